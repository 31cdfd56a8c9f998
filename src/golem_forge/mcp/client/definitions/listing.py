"""Listing: what a server's raw `tools/list` entries are worth, each judged alone. Never raises for what a server sent.

`check_entries` gives the usable tools with their digests, and the others with the reason and what is wrong. Pins come
after it (`pins.py`). Refused: entries without a proper name or of the wrong shape, texts that hide characters, schemas
that cannot be checked against. Threats: one bad entry that takes its server's other tools with it, a schema that is
endless in size, depth or work, a message that carries the server's escape sequences to a terminal.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Final

from golem_forge.core.canonical import digest, sha256_hex
from golem_forge.core.errors import error_name
from golem_forge.core.visible import visible
from golem_forge.mcp.client.definitions.definition import HeldTool, Listing, Reason, RemoteTool
from golem_forge.mcp.client.definitions.hidden_text import hidden_in, hidden_in_json, hidden_in_schema
from golem_forge.mcp.client.trust.drift import definition_of

MAX_TOOLS: Final = 5000
MAX_NAME_BYTES: Final = 256
MAX_TEXT_BYTES: Final = 64 * 1024
"""Of a title, a description, or all annotations together."""
MAX_LEVELS: Final = 64
_MAX_VALUES: Final = 64 * 1024
_MAX_JUDGED: Final = 20_000
_SHOWN_NAME: Final = 100
_MAX_MESSAGE: Final = 500
_write: Final = json.JSONEncoder(
    ensure_ascii=False, separators=(",", ":"), allow_nan=False, check_circular=False
).encode


class _Unfit(Exception):
    """Ends the judgement of one entry."""

    def __init__(self, reason: Reason, message: str) -> None:
        super().__init__(message)
        self.reason = reason
        self.message = message


def check_entries(server: str, entries: Sequence[Any], diagnostics: Sequence[str] = ()) -> Listing:
    """`diagnostics`: what was already said about the list as a whole."""
    tools: list[RemoteTool] = []
    held: list[HeldTool] = []
    taken: set[str] = set()
    for place, entry in enumerate(entries[:MAX_TOOLS], 1):
        try:
            tools.append(_tool(server, entry, taken))
        except _Unfit as unfit:
            held.append(_held(server, place, entry, unfit))
        except Exception as error:  # whatever else an entry can be: it stands alone
            unreadable = _Unfit(Reason.ENTRY_INVALID, f"cannot be read: {error_name(error)}")
            held.append(_held(server, place, entry, unreadable))
    beyond = len(entries) - MAX_TOOLS
    more = (f"{beyond} tools beyond the first {MAX_TOOLS} were left out",) if beyond > 0 else ()
    return Listing(server=server, tools=tuple(tools), held=tuple(held), diagnostics=(*diagnostics, *more))


def shown_name(raw: str) -> str:
    """A raw name on one line of a person's terminal."""
    text = visible(raw[:_SHOWN_NAME]).replace("\n", "\\n").replace("\t", "\\t")
    return f"{text}…" if len(raw) > _SHOWN_NAME else text


def _tool(server: str, entry: Any, taken: set[str]) -> RemoteTool:
    if not isinstance(entry, dict):
        raise _Unfit(Reason.ENTRY_INVALID, f"a tool must be an object, not {_kind(entry)}")
    name = _name(entry, taken)
    title, description = _text(entry, "title"), _text(entry, "description")
    annotations = _annotations(entry)
    for key, text in (("name", name), ("title", title), ("description", description)):
        if found := hidden_in(text):
            raise _Unfit(Reason.HIDDEN_TEXT, f"{found} in its {key}")
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
        raise _Unfit(Reason.ENTRY_INVALID, "it has no name")
    if len(_utf8(name, "name")) > MAX_NAME_BYTES:
        raise _Unfit(Reason.ENTRY_INVALID, f"its name is longer than {MAX_NAME_BYTES} bytes")
    if name in taken:
        raise _Unfit(Reason.ENTRY_INVALID, "duplicate name: an earlier tool of this server has it")
    taken.add(name)
    return name


def _text(entry: dict[str, Any], key: str) -> str:
    text = entry.get(key)
    if text is None:
        return ""
    if not isinstance(text, str):
        raise _Unfit(Reason.ENTRY_INVALID, f"its {key} must be text, not {_kind(text)}")
    if len(_utf8(text, key)) > MAX_TEXT_BYTES:
        raise _Unfit(Reason.ENTRY_INVALID, f"its {key} is longer than {MAX_TEXT_BYTES // 1024} KiB")
    return text


def _annotations(entry: dict[str, Any]) -> dict[str, Any]:
    hints = entry.get("annotations")
    if hints is None:
        return {}
    if not isinstance(hints, dict):
        raise _Unfit(Reason.ENTRY_INVALID, f"its annotations must be an object, not {_kind(hints)}")
    written = _written(hints, "annotations", Reason.ENTRY_INVALID)
    if found := hidden_in_json(hints, written):
        raise _Unfit(Reason.HIDDEN_TEXT, f"{found} of its annotations")
    return hints


def _schema(entry: dict[str, Any], key: str) -> dict[str, Any]:
    schema = entry.get(key)
    if not isinstance(schema, dict):
        missing = f"it has no {key}" if schema is None else f"its {key} must be an object, not {_kind(schema)}"
        raise _Unfit(Reason.SCHEMA_INVALID, missing)
    written = _written(schema, key, Reason.SCHEMA_INVALID)
    if found := hidden_in_schema(schema, written):
        raise _Unfit(Reason.HIDDEN_TEXT, f"{found} of its {key}")
    if problem := _schema_problem(schema, written):
        raise _Unfit(Reason.SCHEMA_INVALID, f"its {key}: {problem}")
    if key == "inputSchema" and (kind := _root_type(schema)) != "object":
        raise _Unfit(Reason.SCHEMA_INVALID, f"its {key} must have type object at its root, not {str(kind)[:50]!r}")
    return schema


def _written(value: dict[str, Any], key: str, reason: Reason) -> str:
    """As JSON text, once it is known to be flat enough: writing it recurses."""
    if _levels(value) > MAX_LEVELS:
        raise _Unfit(reason, f"its {key} has more than {MAX_LEVELS} levels or far too many values")
    try:
        written = _write(value)
        size = len(written.encode())
    except (ValueError, TypeError):
        raise _Unfit(reason, f"its {key} is not JSON: a number or a text in it cannot be written") from None
    if size > MAX_TEXT_BYTES:
        raise _Unfit(reason, f"its {key} is larger than {MAX_TEXT_BYTES // 1024} KiB")
    return written


def _schema_problem(schema: dict[str, Any], written: str) -> str:
    """Remembered by digest: a list is fetched again and again, and its schemas hardly ever change."""
    from golem_forge.tools.jsonschema import SchemaCheck
    from golem_forge.tools.validation import ToolDefinitionError

    key = sha256_hex(written)
    problem = _judged.get(key)
    if problem is None:
        try:
            SchemaCheck(schema)
            problem = ""
        except ToolDefinitionError as error:
            problem = str(error)
        if len(_judged) >= _MAX_JUDGED:
            _judged.clear()
        _judged[key] = problem
    return problem


_judged: dict[str, str] = {}


def _root_type(schema: dict[str, Any]) -> Any:
    from golem_forge.tools.schema_refs import read_schema

    return (read_schema(schema, schema).schema if "$ref" in schema else schema).get("type")


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
        raise _Unfit(Reason.ENTRY_INVALID, f"its {key} is not valid Unicode") from None


def _kind(value: Any) -> str:
    kinds = {bool: "a boolean", int: "a number", float: "a number", str: "text", list: "a list", dict: "an object"}
    return "null" if value is None else kinds.get(type(value), type(value).__name__)


def _held(server: str, place: int, entry: Any, unfit: _Unfit) -> HeldTool:
    name = entry.get("name") if isinstance(entry, dict) else None
    return HeldTool(
        server=server,
        name=shown_name(name) if isinstance(name, str) and name else f"#{place}",
        reason=unfit.reason,
        message=visible(unfit.message)[:_MAX_MESSAGE],
    )
