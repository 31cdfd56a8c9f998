"""ToolResult: what a tool gave back, as a semantic value that every caller and every UI can read."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


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
