"""TrustBook: what a person agreed to about servers, and the definitions their tools were first seen with.

One file, FORGE_HOME/state/mcp.json, for all sessions: approvals bound to a config's digest, and pins, by scope (whose
server it is), server and raw tool name. Readers cost one stat while nothing changed; writers take a lock, read again
and replace the file. A file that is lost or broken reads as empty, so everything is pending and new; a broken one is
put aside at the next write, and `problem` says so. Readers never raise; writers raise BookError.
Threats: two sessions that overwrite each other's answers, a half-written file, a server that fills the book.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Final

from golem_forge.config.home import ForgeHome
from golem_forge.config.mcp.spec import ServerSpec
from golem_forge.config.stamps import Stamp, stamp
from golem_forge.events.clock import iso_now
from golem_forge.mcp.client.definitions.definition import RemoteTool
from golem_forge.mcp.client.trust.book_file import BookError, Broken, locked, put_aside, read_records, write_records
from golem_forge.mcp.client.trust.book_records import UNKNOWN, Approval, Pin, PinState, Record, Records
from golem_forge.mcp.client.trust.drift import definition_of
from golem_forge.mcp.client.trust.server_card import agreed, server_card, server_diff

__all__ = ["BookError", "Pin", "PinState", "TrustBook", "server_card", "server_diff"]

_FOLDER: Final = "state"
_FILE: Final = "mcp.json"


class TrustBook:
    def __init__(self, home: ForgeHome) -> None:
        self._home = home
        self._path = home.path / _FOLDER / _FILE
        self._place = str(self._path)  # every call looks there
        self._kept: tuple[Stamp, Records] | None = None
        self._problem = ""

    @property
    def stamp(self) -> Stamp | None:
        """Other than before once anybody wrote, this process or another."""
        return stamp(self._place)

    @property
    def problem(self) -> str:
        """Why the book reads as empty although there is a file; empty when all is well."""
        self._records()
        return self._problem

    def approved(self, spec: ServerSpec) -> bool:
        """Whether a person let this very config start."""
        approval = self._record(spec.scope, spec.name).approval
        return approval is not None and approval.digest == spec.digest

    def approved_before(self, spec: ServerSpec) -> Mapping[str, object] | None:
        """What was last agreed to for a server of that name, for `server_diff`; values of variables as digests."""
        approval = self._record(spec.scope, spec.name).approval
        return None if approval is None else approval.described

    def approve_server(self, spec: ServerSpec, who: str) -> None:
        given = Approval(digest=spec.digest, described=agreed(spec.described), at=iso_now(), who=who)
        self._change(spec.scope, spec.name, lambda record: replace(record, approval=given))

    def forget(self, scope: str, server: str) -> None:
        """Approval and pins: the next time it is a stranger."""
        self._change(scope, server, lambda record: UNKNOWN)

    def listed(self, scope: str, server: str) -> bool:
        """Whether its tools were pinned once."""
        return self._record(scope, server).listed

    def pins(self, scope: str, server: str) -> Mapping[str, Pin]:
        """By raw tool name."""
        return self._record(scope, server).pins

    def note(self, scope: str, server: str, tools: Sequence[RemoteTool]) -> None:
        """Pins the tools that have no pin: those of a first list are trusted, those that come later are new."""
        names = {tool.name for tool in tools}

        def noted(record: Record) -> Record:
            state = PinState.NEW if record.listed else PinState.PINNED
            return record.with_pins({t.name: _pin(t, state) for t in tools if t.name not in record.pins}, names)

        self._change(scope, server, noted)

    def pin(self, scope: str, tool: RemoteTool) -> None:
        """A person agreed to this definition: it is the one from now on."""
        self._change(
            scope,
            tool.server,
            lambda record: record.with_pins({tool.name: _pin(tool, PinState.PINNED)}, {*record.pins, tool.name}),
        )

    def accept(self, scope: str, tool: RemoteTool) -> None:
        """A new tool had its first yes. One whose definition is no longer the one that was agreed to stays new."""

        def accepted(record: Record) -> Record:
            pin = record.pins.get(tool.name)
            if pin is not None and (pin.digest != tool.digest or pin.state is PinState.PINNED):
                return record
            return record.with_pins({tool.name: _pin(tool, PinState.PINNED)}, {*record.pins, tool.name})

        self._change(scope, tool.server, accepted)

    def _record(self, scope: str, server: str) -> Record:
        return self._records().get((scope, server), UNKNOWN)

    def _records(self) -> Records:
        if self._kept is not None and self._kept[0] == self.stamp:
            return self._kept[1]
        self._kept, self._problem = None, ""
        try:
            records, seen = read_records(self._path)
        except Broken as broken:
            shown = self._home.shown(self._path)
            self._problem = f"{shown} cannot be used ({broken}): MCP servers must be approved again"
            return {}
        if seen is not None and seen.settled:
            self._kept = seen, records
        return records

    def _change(self, scope: str, server: str, change: Callable[[Record], Record]) -> None:
        try:
            self._home.ensure(_FOLDER)
            with locked(self._path):
                self._kept = None
                records = dict(self._records())
                before = records.get((scope, server), UNKNOWN)
                after = change(before)
                if after == before:
                    return
                if self._problem:
                    put_aside(self._path)
                if after == UNKNOWN:
                    del records[scope, server]
                else:
                    records[scope, server] = after
                write_records(self._path, records)
        except OSError as error:
            shown = self._home.shown(self._path)
            raise BookError(f"{shown} cannot be written: {error.strerror}; the answer was not kept") from None


def _pin(tool: RemoteTool, state: PinState) -> Pin:
    return Pin(digest=tool.digest, definition=definition_of(tool), at=iso_now(), state=state)
