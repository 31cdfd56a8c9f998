"""ToolResult: what a tool gave back, as a semantic value that every caller and every UI can read.

A semantic value is a dict with a `kind`: a well-known one with the fields that kind needs, or one of a tool's own.
"""

from __future__ import annotations

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


@dataclass(slots=True)
class ToolResult:
    value: dict[str, Any]
    """The semantic value; always has a `kind` (`text`, `diff`, `file_content`, `file_list`, `json` or a custom one)."""
    text: str = ""
    """What a model or a shell reads."""
    content: tuple[dict[str, Any], ...] = ()
    """MCP content blocks, only where the result holds more than its text (images, audio, resources)."""
    structured: Any = None
    """MCP structuredContent, checked against the tool's output schema when it has one."""
    is_error: bool = False
    meta: dict[str, Any] | None = None
    """MCP `_meta`; never shown to a model."""

    @property
    def kind(self) -> str:
        return str(self.value["kind"])

    def to_mcp(self) -> dict[str, Any]:
        """As MCP's CallToolResult, without loss: `ToolResult.from_mcp(result.to_mcp()) == result`."""
        from golem_forge.core.mcp_results import to_mcp  # which needs this class

        return to_mcp(self)

    @classmethod
    def from_mcp(cls, message: Mapping[str, Any]) -> ToolResult:
        """Of a CallToolResult: a dict, or an object of the `mcp` package. Raises TypeError for anything else."""
        from golem_forge.core.mcp_results import from_mcp

        dump = getattr(message, "model_dump", None)
        if dump is not None:
            message = dump(mode="json", by_alias=True, exclude_none=True)
        if not isinstance(message, Mapping):
            raise TypeError(f"from_mcp takes a CallToolResult (a mapping with 'content'), got {type(message).__name__}")
        return from_mcp(message)


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
