"""What a person approved about servers, and the pinned definitions of their tools: FORGE_HOME/state/mcp.json.

Approvals are bound to a config's digest; pins are stored by scope, server and raw tool name. A missing or broken file
reads as empty, so everything is pending and new; a broken one is renamed at the next write and `problem` says so.
Readers never raise; writers raise ServerTrustError.

Threat: two sessions that overwrite each other's answers, a half-written file, a server that fills the store, and a
link, a pipe or a huge file at the path.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Callable, Collection, Mapping, Sequence
from enum import StrEnum
from typing import Any, Final, TypeVar

from golem_forge.config.mcp_spec import ServerSpec
from golem_forge.core.errors import ForgeError
from golem_forge.core.lazy_dataclass import dataclass, field, replace
from golem_forge.events.serialization import iso_now
from golem_forge.mcp.client.approval_text import approved_description, definition_of
from golem_forge.mcp.client.model import RemoteTool
from golem_forge.storage.home import FileStamp, ForgeHome, JsonFile, LockTimeout

_FOLDER: Final = "state"
_FILE: Final = "mcp.json"
MAX_FILE_BYTES: Final = 64 << 20


class ServerTrustError(ForgeError):
    """Raised if an approval could not be stored."""

    def __init__(self, message: str) -> None:
        super().__init__(message, code="MCP_TRUST_BOOK")


class ServerTrustStore:
    def __init__(self, home: ForgeHome) -> None:
        path = home.path / _FOLDER / _FILE
        self._home = home
        self._name = home.shown(path)
        lock = path.with_name(f"{_FILE}.lock")
        self._file = JsonFile(path, from_json, limit=MAX_FILE_BYTES, lock=lock, name=self._name)
        self._problem = ""

    @property
    def stamp(self) -> FileStamp | None:
        """Changes whenever anybody wrote, this process or another."""
        return self._file.stamp

    @property
    def problem(self) -> str:
        """Why the book reads as empty although there is a file; empty when all is well."""
        self._records()
        return self._problem

    def approved(self, spec: ServerSpec) -> bool:
        """Whether a person approved exactly this config."""
        approval = self._record(spec.scope, spec.name).approval
        return approval is not None and approval.digest == spec.digest

    def approved_before(self, spec: ServerSpec) -> Mapping[str, object] | None:
        """Returns the last approved description of a server of that name, for `server_diff`; values of variables are
        digests.
        """
        approval = self._record(spec.scope, spec.name).approval
        return None if approval is None else approval.described

    def approve_server(self, spec: ServerSpec, who: str) -> None:
        described = approved_description(spec.described)
        given = ServerApproval(digest=spec.digest, described=described, at=iso_now(), who=who)
        self._change(spec.scope, spec.name, lambda record: replace(record, approval=given))

    def note_named(self, spec: ServerSpec, client: str) -> None:
        """An editor names this server, and nobody approved it: `forge mcp list` shows it and `approve` can say yes.
        Values of variables and headers are kept as digests. Threat: a client that names ever new ones fills the file;
        beyond MAX_NAMED the oldest that nobody approved are forgotten."""
        described = approved_description(spec.described)
        given = ServerApproval(digest=spec.digest, described=described, at=iso_now(), who=client)
        if (known := self._record(spec.scope, spec.name).named) is not None and known.digest == given.digest:
            return
        self._change(spec.scope, spec.name, lambda record: replace(record, named=given))

    def named(self) -> dict[tuple[str, str], ServerRecord]:
        """Returns the servers that editors named, by (scope, server)."""
        return {key: record for key, record in self._records().items() if record.named is not None}

    def approve_named(self, scope: str, server: str, shown: ServerApproval, who: str) -> None:
        """`shown`: what the person read. Raises ServerTrustError if the editor named another one meanwhile."""

        def approved(record: ServerRecord) -> ServerRecord:
            if record.named != shown:
                raise ServerTrustError(f"the editor changed '{server}' meanwhile; read it again")
            return replace(record, approval=replace(shown, at=iso_now(), who=who))

        self._change(scope, server, approved)

    def forget(self, scope: str, server: str) -> None:
        """Approval and pins: the next time it is a stranger."""
        self._change(scope, server, lambda record: NO_RECORD)

    def was_listed(self, scope: str, server: str) -> bool:
        """Whether its tools were ever pinned."""
        return self._record(scope, server).listed

    def pins(self, scope: str, server: str) -> Mapping[str, Pin]:
        """Returns the pins by raw tool name."""
        return self._record(scope, server).pins

    def pin_new(self, scope: str, server: str, tools: Sequence[RemoteTool]) -> None:
        """Pins the tools that have no pin: those of a first list are trusted, those that come later are new."""
        names = {tool.name for tool in tools}

        def noted(record: ServerRecord) -> ServerRecord:
            state = PinState.NEW if record.listed else PinState.PINNED
            return record.with_pins({t.name: _new_pin(t, state) for t in tools if t.name not in record.pins}, names)

        self._change(scope, server, noted)

    def pin(self, scope: str, tool: RemoteTool) -> None:
        """A person agreed to this definition: it is the one from now on."""
        pin = {tool.name: _new_pin(tool, PinState.PINNED)}
        self._change(scope, tool.server, lambda record: record.with_pins(pin, {*record.pins, tool.name}))

    def accept_new(self, scope: str, tool: RemoteTool) -> None:
        """A new tool had its first yes. One whose definition is no longer the one that was agreed to stays new."""

        def accepted(record: ServerRecord) -> ServerRecord:
            pin = record.pins.get(tool.name)
            if pin is not None and (pin.digest != tool.digest or pin.state is PinState.PINNED):
                return record
            return record.with_pins({tool.name: _new_pin(tool, PinState.PINNED)}, {*record.pins, tool.name})

        self._change(scope, tool.server, accepted)

    def _record(self, scope: str, server: str) -> ServerRecord:
        return self._records().get((scope, server), NO_RECORD)

    def _records(self) -> ServerRecords:
        self._problem = ""
        try:
            return self._file.read() or {}
        except OSError as error:
            reason = error.strerror or "it cannot be read"
        except json.JSONDecodeError:
            reason = "it is not JSON"
        except (ValueError, RecursionError) as error:
            reason = str(error)[:100]
        self._problem = f"{self._name} cannot be used ({reason}): MCP servers must be approved again"
        return {}

    def _change(self, scope: str, server: str, change: Callable[[ServerRecord], ServerRecord]) -> None:
        try:
            self._home.ensure(_FOLDER)
            with self._file.locked():
                records = dict(self._records())
                before = records.get((scope, server), NO_RECORD)
                after = change(before)
                if after == before:
                    return
                if self._problem:  # kept for whoever wants to look at it
                    with contextlib.suppress(OSError):
                        os.replace(self._file.path, self._file.path.with_name(f"{_FILE}.broken"))
                if after == NO_RECORD:
                    del records[scope, server]
                else:
                    records[scope, server] = after
                self._write(_drop_old_named(records))
        except LockTimeout as error:
            raise ServerTrustError(error.message) from None
        except OSError as error:
            raise ServerTrustError(
                f"{self._name} cannot be written: {error.strerror}; the answer was not kept"
            ) from None

    def _write(self, records: ServerRecords) -> None:
        text = json.dumps(to_json(records), separators=(",", ":"))
        if len(text) > MAX_FILE_BYTES:
            remedy = "run `forge mcp list` and remove servers that are not used"
            raise ServerTrustError(f"the list of MCP approvals is full; {remedy}")
        self._file.write(text)


def _new_pin(tool: RemoteTool, state: PinState) -> Pin:
    return Pin(digest=tool.digest, definition=definition_of(tool), at=iso_now(), state=state)


_T = TypeVar("_T")
VERSION: Final = 1
MAX_NAMED: Final = 100
"""Maximum number of editors' servers that nobody approved."""
MAX_PINS: Final = 10_000
"""Maximum pins of one server. Above it, new tools that nobody approved and that are gone again are removed."""
MAX_DEFINITIONS_BYTES: Final = 4 << 20
"""Maximum size of one server's definitions. Above it, a pin is a digest alone and its diff shows the present
definition.
"""


class PinState(StrEnum):
    PINNED = "pinned"
    NEW = "new"
    """It appeared after the server was first pinned, and nobody has approved it yet."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pin:
    digest: str
    definition: Mapping[str, Any] | None
    """None if it was too large to store."""
    at: str
    state: PinState


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerApproval:
    digest: str
    """The digest of the unexpanded config."""
    described: Mapping[str, Any]
    """The result of `approved_description`."""
    at: str
    who: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerRecord:
    """Everything stored about one server."""

    approval: ServerApproval | None = None
    named: ServerApproval | None = None
    """An editor's server as the editor named it last; `who` is the client. It grants nothing."""
    listed: bool = False
    """Its tools were pinned once: whatever comes later is new."""
    pins: Mapping[str, Pin] = field(default_factory=dict)
    """Pins by raw tool name. A tool that is gone keeps its pin."""

    def with_pins(self, more: Mapping[str, Pin], present: Collection[str]) -> ServerRecord:
        """`present`: the tools that the server has now."""
        pins = {**self.pins, **more}
        if len(pins) > MAX_PINS:
            pins = {name: pin for name, pin in pins.items() if name in present or pin.state is PinState.PINNED}
        return replace(self, listed=True, pins=_drop_large_definitions(pins))


ServerRecords = dict[tuple[str, str], ServerRecord]
"""Records by (scope, server)."""
NO_RECORD: Final = ServerRecord()


def _drop_old_named(records: ServerRecords) -> ServerRecords:
    waiting = [
        (record.named.at, key)
        for key, record in records.items()
        if record.named is not None and record.approval is None
    ]
    gone = {key for _, key in sorted(waiting)[: max(0, len(waiting) - MAX_NAMED)]}
    return {key: record for key, record in records.items() if key not in gone}


def to_json(records: ServerRecords) -> dict[str, Any]:
    servers = [
        {
            "scope": scope,
            "server": server,
            "approval": None if (given := record.approval) is None else _fields(given),
            **({} if (named := record.named) is None else {"named": _fields(named)}),
            "listed": record.listed,
            "pins": {name: _fields(pin) for name, pin in record.pins.items()},
        }
        for (scope, server), record in sorted(records.items())
    ]
    return {"version": VERSION, "servers": servers}


def from_json(data: Any) -> ServerRecords:
    if _typed(data, dict).get("version") != VERSION:
        raise ValueError("it was written by another version of Forge")
    records: ServerRecords = {}
    for entry in _typed(data.get("servers"), list):
        _typed(entry, dict)
        given, named = entry.get("approval"), entry.get("named")
        pins = _typed(entry.get("pins"), dict).items()
        records[_typed(entry.get("scope"), str), _typed(entry.get("server"), str)] = ServerRecord(
            approval=None if given is None else _parse_approval(_typed(given, dict)),
            named=None if named is None else _parse_approval(_typed(named, dict)),
            listed=_typed(entry.get("listed"), bool),
            pins={name: _parse_pin(_typed(pin, dict)) for name, pin in pins},
        )
    return records


def _parse_approval(data: dict[str, Any]) -> ServerApproval:
    return ServerApproval(
        digest=_typed(data.get("digest"), str),
        described=_typed(data.get("described"), dict),
        at=_typed(data.get("at"), str),
        who=_typed(data.get("who"), str),
    )


def _parse_pin(data: dict[str, Any]) -> Pin:
    definition = data.get("definition")
    return Pin(
        digest=_typed(data.get("digest"), str),
        definition=None if definition is None else _typed(definition, dict),
        at=_typed(data.get("at"), str),
        state=PinState(_typed(data.get("state"), str)),
    )


def _fields(record: ServerApproval | Pin) -> dict[str, Any]:
    return {name: getattr(record, name) for name in record.__slots__}


def _typed(value: Any, kind: type[_T]) -> _T:
    if type(value) is not kind:
        raise ValueError("it does not have the expected form")
    return value


def _drop_large_definitions(pins: Mapping[str, Pin]) -> dict[str, Pin]:
    """The definitions that fit, the shortest first: no one of them can push all others out."""
    room, dropped = MAX_DEFINITIONS_BYTES, set[str]()
    sizes = ((len(json.dumps(pin.definition)), name) for name, pin in pins.items() if pin.definition is not None)
    for size, name in sorted(sizes):
        room -= size
        if room < 0:
            dropped.add(name)
    return {name: replace(pin, definition=None) if name in dropped else pin for name, pin in pins.items()}
