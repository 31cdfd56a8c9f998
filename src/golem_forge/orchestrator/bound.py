"""bound: head and tail for the caller, the whole on disk. Takes a result, gives one that fits.

Cuts between characters, at line ends where that is near. An output that cannot be kept makes the call fail rather
than lose what it said.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final

from golem_forge.core.result import ToolResult
from golem_forge.orchestrator.outputs import OutputStore

TEXT_LIMIT: Final = 32 * 1024
VALUE_LIMIT: Final = 256 * 1024
CONTENT_LIMIT: Final = 16 * 1024 * 1024
"""Images are content too, and are not cut."""
_LINE_SLACK: Final = 1024
SHORT: Final = 4096
"""A text of this length fits, whatever its characters."""


def bound_text(text: str, limit: int, keep: OutputStore, worker: str) -> tuple[str, str]:
    """(text that fits, handle of the whole or empty)."""
    if len(text) <= limit // 4 or len(data := text.encode("utf-8", "replace")) <= limit:
        return text, ""
    handle = keep.keep(text, worker)
    half = limit // 2
    head = cut_tail(data[:half])
    tail = cut_head(data[len(data) - half :])
    left_out = data[len(head) : len(data) - len(tail)]
    lines = left_out.count(b"\n") + (0 if left_out.endswith(b"\n") else 1)
    joint = f"[… {lines} lines, {len(left_out)} bytes left out; whole output: read_output handle={handle}]"
    first = head.decode("utf-8", "replace").rstrip("\n")
    return f"{first}\n{joint}\n{tail.decode('utf-8', 'replace')}", handle


def cut_tail(head: bytes) -> bytes:
    """Ends at a line end if one is near, else at a whole character."""
    newline = head.rfind(b"\n", max(0, len(head) - _LINE_SLACK))
    if newline >= 0:
        return head[: newline + 1]
    end = len(head)
    while end and head[end - 1] & 0xC0 == 0x80:
        end -= 1
    if end and head[end - 1] >= 0xC0:  # a lead byte: whole only if its continuation bytes are all there
        lead = head[end - 1]
        need = 2 if lead < 0xE0 else 3 if lead < 0xF0 else 4
        end = end - 1 if len(head) - (end - 1) < need else end - 1 + need
    return head[:end]


def cut_head(tail: bytes) -> bytes:
    """Begins after a line end if one is near, else at a whole character."""
    newline = tail.find(b"\n", 0, _LINE_SLACK)
    if 0 <= newline < len(tail) - 1:
        return tail[newline + 1 :]
    start = 0
    while start < len(tail) and tail[start] & 0xC0 == 0x80:
        start += 1
    return tail[start:]


def bound_result(result: ToolResult, keep: OutputStore, worker: str, limit: int = TEXT_LIMIT) -> tuple[ToolResult, str]:
    text, handle = bound_text(result.text, limit, keep, worker)
    value = result.value if _fits(result.value, VALUE_LIMIT) else _without_bulk(result.value)
    structured = result.structured if _fits(result.structured, VALUE_LIMIT) else None
    content = result.content if _fits(list(result.content), CONTENT_LIMIT) else ()
    if not handle and value is result.value and structured is result.structured and content is result.content:
        return result, ""
    return replace(result, text=text, value=value, structured=structured, content=content), handle


def _fits(value: Any, room: int) -> bool:
    return _weigh(value, room) >= 0


def _weigh(value: Any, room: int) -> int:
    """What is left of `room` after this value; negative once it is used up."""
    kind = type(value)
    if kind is str or kind is bytes:
        return room - len(value)
    if kind is dict:
        for key, item in value.items():
            room = _weigh(item, room - len(str(key)) - 4)
            if room < 0:
                break
        return room
    if kind is list or kind is tuple:
        for item in value:
            room = _weigh(item, room - 1)
            if room < 0:
                break
        return room
    return room - 8


def _without_bulk(value: dict[str, Any]) -> dict[str, Any]:
    """The same kind with its large members left out and named."""
    kept: dict[str, Any] = {"kind": value["kind"]}
    left_out: list[str] = []
    room = VALUE_LIMIT // 4
    for key, item in value.items():
        rest = _weigh(item, room - len(key)) if key != "kind" else room
        if rest >= 0:
            kept[key], room = item, rest
        elif len(left_out) < 20:
            left_out.append(key[:100])
    return {**kept, "leftOut": left_out}
