"""A server's `tools/list` answer: each entry validated alone, compared with its pin, and kept with what is derived from
it.

1. `check_entries` takes the raw entries and returns the usable tools with their digests and the rejected ones with the
   reason. It never raises for what a server sent. Rejected: no proper name, wrong types, hidden characters, a schema
   that cannot be compiled.
2. `apply_pins` compares the list with the pinned definitions. Tools of a first list are pinned and trusted, later ones
   are `new`, changed ones are held back with `drift` and a diff until a person approves the new text or the server
   returns to the old one. A tool that is gone keeps its pin.
3. `awaiting_approval` and `definition_to_approve` give what a person can approve.
`ServerOffer` holds the result for one server and caches output validators and header maps.

Threat: one bad entry that takes the server's other tools with it; a schema that is endless in size, depth or work; a
message with escape sequences; a server that shows harmless definitions until it is trusted, and others afterwards.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from golem_forge.config.mcp_spec import ServerSpec
from golem_forge.core.decisions import Status
from golem_forge.core.errors import ForgeError, error_name
from golem_forge.core.json import compact_json, digest, sha256_hex
from golem_forge.core.lazy_dataclass import replace
from golem_forge.core.text import display_name, escape_control_chars
from golem_forge.mcp import lazy_sdk as sdk
from golem_forge.mcp.client.approval_text import (
    definition_diff,
    definition_of,
    hidden_in,
    hidden_in_json,
    hidden_in_schema,
)
from golem_forge.mcp.client.model import Familiarity, HeldTool, HoldReason, RemoteTool, ServerManifest, ServerToolList
from golem_forge.mcp.client.tool_source import is_offered
from golem_forge.mcp.client.transport import ServerLink
from golem_forge.tools.schema import resolve_schema
from golem_forge.tools.validation import SchemaCheck, ToolDefinitionError

if TYPE_CHECKING:
    from golem_forge.mcp.client.trust_store import Pin, ServerTrustStore

MAX_TOOLS: Final = 5000
MAX_NAME_BYTES: Final = 256
MAX_TEXT_BYTES: Final = 64 * 1024
"""Maximum size of a title, a description, or all annotations together."""
MAX_LEVELS: Final = 64
_MAX_VALUES: Final = 64 * 1024
_MAX_CACHED: Final = 20_000
_SHOWN_NAME: Final = 100
_MAX_MESSAGE: Final = 500
_write: Final = json.JSONEncoder(
    ensure_ascii=False, separators=(",", ":"), allow_nan=False, check_circular=False
).encode


class _InvalidEntry(Exception):
    """Raised to reject one entry."""

    def __init__(self, reason: HoldReason, message: str) -> None:
        super().__init__(message)
        self.reason = reason
        self.message = message


def check_entries(server: str, entries: Sequence[Any], diagnostics: Sequence[str] = ()) -> ServerToolList:
    """`diagnostics`: what was already said about the list as a whole."""
    tools: list[RemoteTool] = []
    held: list[HeldTool] = []
    taken: set[str] = set()
    for place, entry in enumerate(entries[:MAX_TOOLS], 1):
        try:
            tools.append(_tool(server, entry, taken))
        except _InvalidEntry as unfit:
            held.append(_held_tool(server, place, entry, unfit))
        except Exception as error:  # whatever else an entry can be: it stands alone
            unreadable = _InvalidEntry(HoldReason.ENTRY_INVALID, f"cannot be read: {error_name(error)}")
            held.append(_held_tool(server, place, entry, unreadable))
    beyond = len(entries) - MAX_TOOLS
    more = (f"{beyond} tools beyond the first {MAX_TOOLS} were left out",) if beyond > 0 else ()
    return ServerToolList(server=server, tools=tuple(tools), held=tuple(held), diagnostics=(*diagnostics, *more))


def _shown_name(raw: str) -> str:
    """A raw name on one line of a person's terminal."""
    text = display_name(raw[:_SHOWN_NAME])
    return f"{text}…" if len(raw) > _SHOWN_NAME else text


def _tool(server: str, entry: Any, taken: set[str]) -> RemoteTool:
    if not isinstance(entry, dict):
        raise _InvalidEntry(HoldReason.ENTRY_INVALID, f"a tool must be an object, not {_json_type(entry)}")
    name = _name(entry, taken)
    title, description = _text(entry, "title"), _text(entry, "description")
    annotations = _annotations(entry)
    for key, text in (("name", name), ("title", title), ("description", description)):
        if found := hidden_in(text):
            raise _InvalidEntry(HoldReason.HIDDEN_TEXT, f"{found} in its {key}")
    tool = RemoteTool(
        server=server,
        name=name,
        title=title,
        description=description if description.strip() else f"Tool from {server}: {name}",
        input_schema=_schema(entry, "inputSchema"),
        output_schema=_schema(entry, "outputSchema") if entry.get("outputSchema") is not None else None,
        annotations=annotations,
    )
    return replace(tool, digest=digest(definition_of(tool)))


def _name(entry: dict[str, Any], taken: set[str]) -> str:
    """The first of a name has it, even if it is held: which of two a server means is not for us to guess."""
    name = entry.get("name")
    if not isinstance(name, str) or not name:
        raise _InvalidEntry(HoldReason.ENTRY_INVALID, "it has no name")
    if len(_utf8(name, "name")) > MAX_NAME_BYTES:
        raise _InvalidEntry(HoldReason.ENTRY_INVALID, f"its name is longer than {MAX_NAME_BYTES} bytes")
    if name in taken:
        raise _InvalidEntry(HoldReason.ENTRY_INVALID, "duplicate name: an earlier tool of this server has it")
    taken.add(name)
    return name


def _text(entry: dict[str, Any], key: str) -> str:
    text = entry.get(key)
    if text is None:
        return ""
    if not isinstance(text, str):
        raise _InvalidEntry(HoldReason.ENTRY_INVALID, f"its {key} must be text, not {_json_type(text)}")
    if len(_utf8(text, key)) > MAX_TEXT_BYTES:
        raise _InvalidEntry(HoldReason.ENTRY_INVALID, f"its {key} is longer than {MAX_TEXT_BYTES // 1024} KiB")
    return text


def _annotations(entry: dict[str, Any]) -> dict[str, Any]:
    hints = entry.get("annotations")
    if hints is None:
        return {}
    if not isinstance(hints, dict):
        raise _InvalidEntry(HoldReason.ENTRY_INVALID, f"its annotations must be an object, not {_json_type(hints)}")
    written = _written(hints, "annotations", HoldReason.ENTRY_INVALID)
    if found := hidden_in_json(hints, written):
        raise _InvalidEntry(HoldReason.HIDDEN_TEXT, f"{found} of its annotations")
    return hints


def _schema(entry: dict[str, Any], key: str) -> dict[str, Any]:
    schema = entry.get(key)
    if not isinstance(schema, dict):
        missing = f"it has no {key}" if schema is None else f"its {key} must be an object, not {_json_type(schema)}"
        raise _InvalidEntry(HoldReason.SCHEMA_INVALID, missing)
    written = _written(schema, key, HoldReason.SCHEMA_INVALID)
    if found := hidden_in_schema(schema, written):
        raise _InvalidEntry(HoldReason.HIDDEN_TEXT, f"{found} of its {key}")
    if problem := _schema_problem(schema, written):
        raise _InvalidEntry(HoldReason.SCHEMA_INVALID, f"its {key}: {problem}")
    if key == "inputSchema" and (kind := _root_type(schema)) != "object":
        wrong = f"its {key} must have type object at its root, not {str(kind)[:50]!r}"
        raise _InvalidEntry(HoldReason.SCHEMA_INVALID, wrong)
    return schema


def _written(value: dict[str, Any], key: str, reason: HoldReason) -> str:
    """Returns a value as JSON text, after a check of its depth because writing recurses. Raises _InvalidEntry."""
    if _levels(value) > MAX_LEVELS:
        raise _InvalidEntry(reason, f"its {key} has more than {MAX_LEVELS} levels or far too many values")
    try:
        written = _write(value)
        size = len(written.encode())
    except (ValueError, TypeError):
        raise _InvalidEntry(reason, f"its {key} is not JSON: a number or a text in it cannot be written") from None
    if size > MAX_TEXT_BYTES:
        raise _InvalidEntry(reason, f"its {key} is larger than {MAX_TEXT_BYTES // 1024} KiB")
    return written


def _schema_problem(schema: dict[str, Any], written: str) -> str:
    """Remembered by digest: a list is fetched again and again, and its schemas hardly ever change."""
    key = sha256_hex(written)
    problem = _schema_problems.get(key)
    if problem is None:
        try:
            SchemaCheck(schema)
            problem = ""
        except ToolDefinitionError as error:
            problem = str(error)
        if len(_schema_problems) >= _MAX_CACHED:
            _schema_problems.clear()
        _schema_problems[key] = problem
    return problem


_schema_problems: dict[str, str] = {}


def _root_type(schema: dict[str, Any]) -> Any:
    return (resolve_schema(schema, schema).schema if "$ref" in schema else schema).get("type")


def _levels(value: Any) -> int:
    """Level by level, without recursion; beyond every limit as soon as there are too many values."""
    levels, values, layer = 0, 0, [value]
    while layer := [node for node in layer if isinstance(node, (dict, list))]:
        levels += 1
        layer = [item for node in layer for item in (node.values() if isinstance(node, dict) else node)]
        values += len(layer)
        if levels > MAX_LEVELS or values > _MAX_VALUES:
            return MAX_LEVELS + 1
    return levels


def _utf8(text: str, key: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError:
        raise _InvalidEntry(HoldReason.ENTRY_INVALID, f"its {key} is not valid Unicode") from None


def _json_type(value: Any) -> str:
    kinds = {bool: "a boolean", int: "a number", float: "a number", str: "text", list: "a list", dict: "an object"}
    return "null" if value is None else kinds.get(type(value), type(value).__name__)


def _held_tool(server: str, place: int, entry: Any, unfit: _InvalidEntry) -> HeldTool:
    name = entry.get("name") if isinstance(entry, dict) else None
    return HeldTool(
        server=server,
        name=_shown_name(name) if isinstance(name, str) and name else f"#{place}",
        reason=unfit.reason,
        message=escape_control_chars(unfit.message)[:_MAX_MESSAGE],
    )


def apply_pins(listing: ServerToolList, book: ServerTrustStore, scope: str) -> ServerToolList:
    """Compares a list with the pins. If pins cannot be written, every tool without one is new: it asks, and nothing is
    trusted.
    """
    server, diagnostics = listing.server, listing.diagnostics
    pins = book.pins(scope, server)
    if not book.was_listed(scope, server) or any(tool.name not in pins for tool in listing.tools):
        try:
            book.pin_new(scope, server, listing.tools)
        except ForgeError as error:
            diagnostics = (*diagnostics, f"definitions could not be pinned: {error.message}")
        pins = book.pins(scope, server)
    tools: list[RemoteTool] = []
    drifted: list[HeldTool] = []
    for tool in listing.tools:
        pin = pins.get(tool.name)
        if pin is None or pin.digest == tool.digest:
            familiarity = Familiarity.NEW if pin is None else Familiarity(pin.state.value)
            tools.append(replace(tool, familiarity=familiarity))
        else:
            drifted.append(_drifted_tool(tool, pin))
    return replace(listing, tools=tuple(tools), held=(*listing.held, *drifted), diagnostics=diagnostics)


def _drifted_tool(tool: RemoteTool, pin: Pin) -> HeldTool:
    name = _shown_name(tool.name)
    return HeldTool(
        server=tool.server,
        name=name,
        reason=HoldReason.DRIFT,
        message="its definition is not the one that was pinned; a person can read the change and agree to it with: "
        f"forge mcp approve {tool.server} {name}",
        diff=definition_diff(pin.definition, definition_of(tool)),
        tool=tool,
    )


def all_entries(listing: ServerToolList) -> Iterator[HeldTool | RemoteTool]:
    yield from listing.held
    yield from listing.tools


def is_awaiting_approval(one: HeldTool | RemoteTool) -> bool:
    """Whether a person can approve it: a changed definition, or a new one."""
    return one.tool is not None if isinstance(one, HeldTool) else one.familiarity is Familiarity.NEW


def awaiting_approval(listing: ServerToolList) -> list[HeldTool | RemoteTool]:
    return [one for one in all_entries(listing) if is_awaiting_approval(one)]


def definition_to_approve(one: HeldTool | RemoteTool) -> tuple[RemoteTool, str]:
    """Returns the definition to pin, and the text to read first: the change, or all of a new one."""
    if isinstance(one, HeldTool):
        assert one.tool is not None, "only what waits can be agreed to"
        return one.tool, one.diff
    return one, definition_diff({}, definition_of(one))


HeaderMap = Mapping[tuple[str, ...], str]


class ServerOffer:
    def __init__(self, spec: ServerSpec, book: ServerTrustStore) -> None:
        self.spec = spec
        self._book = book
        self._checked: ServerToolList | None = None
        self._held: ServerToolList | None = None
        self._stamp: Any = None
        self._indexed: ServerToolList | None = None
        self._present: dict[str, str] = {}
        """Raw name → the digest it has now, or `drift`."""
        self._checks: dict[str, SchemaCheck] = {}
        self._header_maps: dict[str, HeaderMap | None] = {}
        self.manifest: ServerManifest | None = None

    def update(self, manifest: ServerManifest) -> bool:
        """Stores a manifest. Returns whether it differs from the one before."""
        before, self.manifest = self.manifest, manifest
        if before is not None and _content(before) == _content(manifest):
            return False
        self._checked = check_entries(self.spec.name, manifest.tools, manifest.diagnostics)
        self._held = None
        self._checks.clear()
        self._header_maps.clear()
        return True

    @property
    def listing(self) -> ServerToolList | None:
        """A person's answer in another session counts here too."""
        if self._checked is None:
            return None
        if self._held is None or self._stamp != self._book.stamp:
            try:
                self._held = apply_pins(self._checked, self._book, self.spec.scope)
            except OSError as error:  # what cannot be pinned cannot be known again: nothing of it is offered
                said = f"the tools of {self.spec.name} could not be pinned: {error.strerror or type(error).__name__}"
                self._held = replace(self._checked, tools=(), diagnostics=(*self._checked.diagnostics, said))
            self._stamp = self._book.stamp  # after: holding may have pinned
        return self._held

    def check_unchanged(self, tool: RemoteTool) -> None:
        """Raises ForgeError where the server defines the tool otherwise by now.

        Threat: a call is judged by a definition from the cache, the server starts for it and has another one.
        """
        if (listing := self.listing) is not self._indexed and listing is not None:
            self._indexed = listing
            self._present = {one.name: one.digest for one in listing.tools}
            self._present |= {held.tool.name: held.reason.value for held in listing.held if held.tool is not None}
        now = self._present.get(tool.name, tool.digest)  # one that is gone is the server's to refuse
        if now == tool.digest:
            return
        why = "it changed"
        if now == HoldReason.DRIFT:
            why = f"{now}: {tool.server} changed its definition after it was approved"
        raise ForgeError(
            f"'{tool.name}' of {tool.server} did not run: {why}; run: forge mcp show {tool.server}",
            status=Status.TOOL_NOT_FOUND,
            code="DEFINITION_CHANGED",
        )

    @property
    def count(self) -> int | None:
        listing = self.listing
        return None if listing is None else sum(is_offered(self.spec, tool.name) for tool in listing.tools)

    def output_check(self, tool: RemoteTool) -> SchemaCheck:
        """Returns the compiled output check; the schema was already checked when it was listed."""
        assert tool.output_schema is not None
        found = self._checks.get(tool.digest)
        if found is None:
            found = self._checks[tool.digest] = SchemaCheck(dict(tool.output_schema))
        return found

    def headers(self, link: ServerLink, tool: RemoteTool, args: Mapping[str, Any]) -> Mapping[str, str] | None:
        """Arguments that the tool wants in headers too; only the new era knows that, and only over HTTP."""
        if not link.is_modern or not self.spec.is_http:
            return None
        if tool.digest not in self._header_maps:
            self._header_maps[tool.digest] = _header_map(tool)
        if not (found := self._header_maps[tool.digest]):
            return None
        return sdk.mcp_param_headers(found, args)


def _header_map(tool: RemoteTool) -> HeaderMap | None:
    if "x-mcp-header" not in compact_json(tool.input_schema):
        return None
    return sdk.x_mcp_header_map(tool.input_schema)


def _content(manifest: ServerManifest) -> tuple[Any, ...]:
    return (manifest.tools, manifest.prompts, manifest.instructions, manifest.has_resources, manifest.diagnostics)
