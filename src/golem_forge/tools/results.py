"""Whatever a tool returns becomes a ToolResult: a semantic value with a kind, and the text its caller reads.

str → `text`; a ToolResult, MCP's CallToolResult object or a mapping with a valid kind → itself; anything else → `json`;
what JSON cannot hold → text. Never raises. Common small values take about a microsecond: this runs after every call.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from json.encoder import encode_basestring as _quote
from typing import Any, Final, TypedDict

from golem_forge.core.mcp_results import call_result
from golem_forge.core.result import (
    WELL_KNOWN_KINDS,
    ToolResult,
    is_valid_kind,
    is_well_known_kind,
    semantic_value,
    structured_form,
    text_of,
)
from golem_forge.tools.json_values import NotJson, as_json, compact, safe_json, valid_unicode

__all__ = [
    "PREFERRED_VIEWS",
    "WELL_KNOWN_KINDS",
    "DisplayHints",
    "display_hints",
    "is_valid_kind",
    "is_well_known_kind",
    "says_all",
    "semantic_value",
    "structured_form",
    "text_of",
    "to_result",
]

_JSON_NAMES: Final = {"mime_type": "mimeType"}
_JSON_NAMES_OF_DIFF: Final = {"is_new": "isNew", "bytes_written": "bytesWritten", **_JSON_NAMES}
_JSON_HINTS: Final = {"preferred_view": "preferredView", "max_height": "maxHeight"}
"""Fields and display hints that Python code may spell its own way; events, MCP and pages have the JSON names."""
PREFERRED_VIEWS: Final = frozenset({"text", "markdown", "code", "diff", "table", "tree", "image", "raw", "hidden"})
_SCALARS: Final = frozenset({int, float, bool, type(None)})
_SHORT_DICT: Final = 8
_SAFE_INTEGER: Final = 1 << 63


class DisplayHints(TypedDict, total=False):
    preferredView: str
    language: str
    collapsed: bool
    maxHeight: int | float
    priority: int | float


def display_hints(value: Mapping[str, Any]) -> DisplayHints:
    """The hints of a semantic value that have a meaning; everything else about them is ignored."""
    raw = value.get("display")
    hints: DisplayHints = {}
    if not isinstance(raw, Mapping):
        return hints
    if isinstance(view := raw.get("preferredView"), str) and view in PREFERRED_VIEWS:
        hints["preferredView"] = view
    if isinstance(language := raw.get("language"), str) and language:
        hints["language"] = language
    if isinstance(collapsed := raw.get("collapsed"), bool):
        hints["collapsed"] = collapsed
    if (height := _number(raw.get("maxHeight"))) is not None and height > 0:
        hints["maxHeight"] = height
    if (priority := _number(raw.get("priority"))) is not None:
        hints["priority"] = priority
    return hints


def to_result(value: Any) -> ToolResult:
    kind = type(value)
    if kind is str:
        text = value if value.isascii() else valid_unicode(value)
        return ToolResult({"kind": "text", "content": text}, text)
    if kind is dict and 0 < len(value) <= _SHORT_DICT and "kind" not in value:
        quick = _short_dict_text(value)
        if quick is not None:
            data = value.copy()
            return ToolResult(value={"kind": "json", "data": data}, text=quick, structured=data)
    elif (quick := _scalar_text(value, kind)) is not None:
        return ToolResult({"kind": "json", "data": value}, quick)
    value = call_result(value)
    if isinstance(value, ToolResult):
        named = _by_json_names(value.value)
        return value if named is value.value else replace(value, value=named)
    semantic = _semantic_json(value)
    return _json_result(value) if semantic is None else _semantic_result(semantic)


def _scalar_text(value: Any, kind: type) -> str | None:
    if kind is int:
        return repr(value) if -_SAFE_INTEGER < value < _SAFE_INTEGER else None
    if kind is bool:
        return "true" if value else "false"
    if value is None:
        return "null"
    return repr(value) if kind is float and value - value == 0.0 else None


def _short_dict_text(value: dict[Any, Any]) -> str | None:
    """The compact JSON of a small flat dict, several times faster than the general encoder; None if it is not one."""
    text = ""
    for key, item in value.items():
        kind = type(item)
        if type(key) is not str:
            return None
        if kind is str:
            text += f",{_quote(key)}:{_quote(item)}"
        elif kind is int and -_SAFE_INTEGER < item < _SAFE_INTEGER:
            text += f",{_quote(key)}:{item}"
        elif (word := _scalar_text(item, kind)) is not None:
            text += f",{_quote(key)}:{word}"
        else:
            return None
    return f"{{{text[1:]}}}" if text.isascii() else None


def _semantic_json(value: Any) -> dict[str, Any] | None:
    try:
        semantic = semantic_value(_by_json_names(value))
    except Exception:  # a foreign mapping may raise while it is read
        return None
    if semantic is None:
        return None
    if all((type(item) is str and item.isascii()) or item is True or item is False for item in semantic.values()):
        return semantic.copy()
    try:
        data = as_json(semantic)
    except NotJson:
        data, _ = safe_json(semantic)
    return semantic_value(data)


def _by_json_names(value: Any) -> Any:
    """A value with a kind, its fields and hints by their JSON names; the same object where they are already."""
    if not isinstance(value, Mapping) or "kind" not in value:
        return value
    value = _renamed(value, _JSON_NAMES_OF_DIFF if value["kind"] == "diff" else _JSON_NAMES)
    hints = value.get("display")
    if isinstance(hints, Mapping) and (named := _renamed(hints, _JSON_HINTS)) is not hints:
        value = {**value, "display": named}
    return value


def _renamed(fields: Mapping[str, Any], names: Mapping[str, str]) -> Mapping[str, Any]:
    return fields if fields.keys().isdisjoint(names) else {names.get(key, key): item for key, item in fields.items()}


def _semantic_result(value: dict[str, Any]) -> ToolResult:
    return ToolResult(value=value, text=text_of(value), structured=structured_form(value))


def _json_result(value: Any) -> ToolResult:
    try:
        data = as_json(value)
    except NotJson:
        words, _ = safe_json(value)
        text = words if isinstance(words, str) else compact(words)
        return ToolResult({"kind": "text", "content": text}, text)
    semantic = semantic_value(_by_json_names(data))  # a model or dataclass may carry a kind too
    return _semantic_result(semantic or {"kind": "json", "data": data})


def _number(value: Any) -> int | float | None:
    return value if type(value) in (int, float) and value - value == 0 else None


def says_all(result: ToolResult) -> bool:
    """True: the text holds everything the value holds, so looking through the text is enough. False: look closer."""
    if result.content or result.structured is not None or len(result.value) != 2:
        return False
    value = result.value
    return value.get("content") is result.text if value["kind"] == "text" else type(value.get("data", "")) in _SCALARS
