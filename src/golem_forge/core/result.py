"""ToolResult: what a tool gave back, as a semantic value that every caller and every UI can read.

A semantic value is a dict with a `kind`: a well-known one with the fields that kind needs, or one of a tool's own.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

_KIND: Final = re.compile(r"[a-z][a-z0-9_]*(?:\.[a-z][a-z0-9_]*)*")
_REQUIRED: Final[dict[str, dict[str, type | tuple[type, ...]]]] = {
    "text": {"content": str},
    "diff": {"path": str, "modified": str, "isNew": bool, "bytesWritten": int},
    "file_content": {"path": str, "content": str, "size": int},
    "file_list": {"path": str, "files": (list, tuple), "count": int},
    "json": {"data": object},
}
WELL_KNOWN_KINDS: Final = frozenset(_REQUIRED)
_NOT_GIVEN: Final = str(b"the text of the value", "ascii")
"""Compared by identity: no text that is given is this very object."""
_encode: Final = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), default=str).encode
_ABOUT: Final = frozenset({"kind", "summary", "mimeType", "display"})


@dataclass(slots=True)
class ToolResult:
    """Raises TypeError for a value without a kind."""

    value: dict[str, Any]
    """The semantic value; always has a `kind` (`text`, `diff`, `file_content`, `file_list`, `json` or a custom one)."""
    text: str = _NOT_GIVEN
    """What a model or a shell reads. Not given: what the value says (`text_of`); an empty text stays empty."""
    content: tuple[dict[str, Any], ...] = ()
    """MCP content blocks, only where the result holds more than its text (images, audio, resources)."""
    structured: Any = None
    """MCP structuredContent, checked against the tool's output schema when it has one."""
    is_error: bool = False
    meta: dict[str, Any] | None = None
    """MCP `_meta`; never shown to a model."""

    def __post_init__(self) -> None:
        value = self.value
        if type(value) is not dict or type(value.get("kind")) is not str:
            self.value = _with_kind(value)
        if self.text is _NOT_GIVEN:
            self.text = text_of(self.value)

    @property
    def kind(self) -> str:
        return str(self.value["kind"])

    def to_mcp(self) -> dict[str, Any]:
        """As MCP's CallToolResult, without loss: `ToolResult.from_mcp(result.to_mcp()) == result`."""
        from golem_forge.core.mcp_results import to_mcp  # which needs this class

        return to_mcp(self)

    @classmethod
    def from_mcp(cls, message: Mapping[str, Any]) -> ToolResult:
        """Of a CallToolResult: a dict by its JSON or its Python names, or an object of the `mcp` package. Raises
        TypeError for anything else."""
        from golem_forge.core.mcp_results import by_wire_names, from_mcp

        dump = getattr(message, "model_dump", None)
        if dump is not None:
            message = dump(mode="json", by_alias=True, exclude_none=True)
        if not isinstance(message, Mapping):
            raise TypeError(f"from_mcp takes a CallToolResult (a mapping with 'content'), got {type(message).__name__}")
        return from_mcp(by_wire_names(message))


def text_of(value: Mapping[str, Any]) -> str:
    """What a model or a shell reads of a semantic value: its content, or its summary and its data as JSON."""
    kind = value.get("kind")
    if is_well_known_kind(kind) and semantic_value(value) is not None:
        if kind in ("text", "file_content"):
            return str(value["content"])
        if kind == "file_list":
            return "\n".join(_file_name(item) for item in value["files"])
        if kind == "diff":
            return f"{'Created' if value['isNew'] else 'Updated'} {value['path']} ({value['bytesWritten']} bytes)"
    summary = value.get("summary")
    if not isinstance(summary, str) or not summary:
        return _compact(value["data"] if "data" in value else {key: value[key] for key in value if key != "kind"})
    data = value["data"] if "data" in value else {key: value[key] for key in value if key not in _ABOUT}
    return summary if data is None or data == {} else f"{summary}\n{_compact(data)}"


def _with_kind(value: Any) -> dict[str, Any]:
    if not isinstance(value, Mapping) or not isinstance(value.get("kind"), str):
        raise TypeError(
            f"ToolResult: value must be a mapping with a 'kind', not {repr(value)[:80]}; "
            "{'kind': 'text', 'content': …} is a text, {'kind': 'json', 'data': …} any JSON"
        )
    return dict(value)


def _file_name(item: Any) -> str:
    if isinstance(item, Mapping):
        item = item.get("path") or item.get("name") or _compact(dict(item))
    return str(item)


def _compact(data: Any) -> str:
    try:
        return _encode(data)
    except (TypeError, ValueError, RecursionError):
        return repr(data)


def is_valid_kind(kind: object) -> bool:
    return isinstance(kind, str) and _KIND.fullmatch(kind) is not None


def is_well_known_kind(kind: object) -> bool:
    return isinstance(kind, str) and kind in WELL_KNOWN_KINDS


def semantic_value(value: Any) -> dict[str, Any] | None:
    """The mapping as a dict if it has a valid kind and, for a well-known kind, the fields that kind needs."""
    if not isinstance(value, Mapping):
        return None
    kind = value.get("kind")
    if not is_valid_kind(kind):
        return None
    for name, wanted in _REQUIRED.get(str(kind), {}).items():
        if name not in value or not isinstance(value[name], wanted):
            return None
    return value if type(value) is dict else dict(value)


def structured_form(value: Mapping[str, Any]) -> dict[str, Any] | None:
    """The object that stands for a semantic value in MCP's structuredContent; None where text says it all."""
    if value.get("kind") == "text":
        return None
    if value.get("kind") == "json" and value.keys() == {"kind", "data"}:
        data = value["data"]
        return data if isinstance(data, dict) and semantic_value(data) is None else None
    return dict(value)
