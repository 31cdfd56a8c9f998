"""Drift: what changed between the definition that was pinned and the one a server sends now.

`definition_of` gives the part of a tool that a pin covers, in the words of the wire; `definition_diff` the unified diff
of two, as pretty-printed JSON that cannot steer a terminal and has at most 64 KiB.

Threat: comparing takes quadratic time and more, and the server wrote both texts. What is equal at both ends is left out
first, and beyond a fixed amount of work the rest is one change: longer than it could be, and just as true.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

from golem_forge.core.visible import visible
from golem_forge.mcp.client.definitions.definition import RemoteTool

MAX_DIFF_BYTES: Final = 64 * 1024
_ROOM_FOR_NOTE: Final = 100
_MOST_COMPARISONS: Final = 250_000
_CONTEXT: Final = 3
_LINE_END: Final = re.compile(r"(?<!\\)((?:\\\\)*\\n)")
_LONG: Final = 160
_PIECE: Final = re.compile(rf".{{1,{_LONG}}}?[.,:;!?] |.{{1,{_LONG}}}")
NOT_KEPT: Final = "(the pinned definition was too large to be kept; this is the present one)"


def definition_of(tool: RemoteTool) -> dict[str, Any]:
    definition: dict[str, Any] = {
        "name": tool.name,
        "description": tool.description,
        "inputSchema": tool.input_schema,
    }
    if tool.title:
        definition["title"] = tool.title
    if tool.output_schema is not None:
        definition["outputSchema"] = tool.output_schema
    if tool.annotations:
        definition["annotations"] = tool.annotations
    return definition


def definition_diff(before: Mapping[str, Any] | None, after: Mapping[str, Any]) -> str:
    """`before` None: it was not kept, so all of the present one is shown."""
    if before is None:
        return _bounded(iter([NOT_KEPT, *(f"+{line}" for line in _lines(after))]))
    return _bounded(_unified(_lines(before), _lines(after)))


def _lines(definition: Mapping[str, Any]) -> list[str]:
    """Texts are broken where they break, and long lines where their sentences do: a change in a long description is
    seen where it is. A quote inside a text stays escaped, so no line of it passes for a key of the definition."""
    text = visible(json.dumps(definition, indent=2, sort_keys=True, ensure_ascii=False))
    lines = _LINE_END.sub(r"\1" + "\n", text).split("\n")
    return [piece for line in lines for piece in (_PIECE.findall(line) if len(line) > _LONG else [line])]


def _unified(old: list[str], new: list[str]) -> Iterator[str]:
    from difflib import unified_diff

    head, shortest = 0, min(len(old), len(new))
    while head < shortest and old[head] == new[head]:
        head += 1
    tail = 0
    while tail < shortest - head and old[-1 - tail] == new[-1 - tail]:
        tail += 1
    old_end, new_end = len(old) - tail, len(new) - tail
    if (old_end - head) * (new_end - head) <= _MOST_COMPARISONS:
        start, more = max(0, head - _CONTEXT), min(tail, _CONTEXT)
        near = unified_diff(
            old[start : old_end + more], new[start : new_end + more], "pinned", "now", n=_CONTEXT, lineterm=""
        )
        yield from (_moved(line, start) for line in near)
        return
    yield "--- pinned"
    yield "+++ now"
    yield f"@@ -{head + 1},{old_end - head} +{head + 1},{new_end - head} @@"
    yield from (f"-{line}" for line in old[head:old_end])
    yield from (f"+{line}" for line in new[head:new_end])


def _moved(line: str, by: int) -> str:
    """The header of a hunk, counted from the first line of the whole text."""
    found = re.fullmatch(r"@@ -(\d+)(,\d+)? \+(\d+)(,\d+)? @@", line)
    if found is None:
        return line
    return f"@@ -{int(found[1]) + by}{found[2] or ''} +{int(found[3]) + by}{found[4] or ''} @@"


def _bounded(lines: Iterator[str]) -> str:
    kept: list[str] = []
    room = MAX_DIFF_BYTES - _ROOM_FOR_NOTE
    for line in lines:
        room -= len(line.encode("utf-8", "replace")) + 1
        if room < 0:
            rest = 1 + sum(1 for _ in lines)
            return "\n".join([*kept, f"… {rest} more lines are not shown: the change is larger than 64 KiB"])
        kept.append(line)
    return "\n".join(kept)
