"""Pages of a kept output: numbered lines, the long ones in parts, all of them or only those that matched.

A line too long for one page is shown as `L<n>+<char offset>: …`. Each part counts as a line for `offset` and `limit`,
so that every character can be reached. With a search, `offset` is where it starts and the closing note says how far
it came.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple

from golem_forge.toolsets.line_search_child import Span
from golem_forge.toolsets.numbered import PAGE_BYTES, closing_note, first_line

LONG_LINE: Final = 32 * 1024 - 256
"""A line over 32 KiB is shown in parts; a little less, so that number and closing note still fit beside it."""
MAYBE_LONG: Final = LONG_LINE // 4
"""No line of fewer characters can be long."""
Wanted = Mapping[int, list[Span]]
"""Index of a line (from 0) → where in it, for lines that may be long."""


class Row(NamedTuple):
    """A line, or one part of a long one."""

    line: int
    """From 0."""
    text: str
    start: int | None = None
    """Where in its line a part begins; None for a whole line."""

    def shown(self) -> str:
        part = "" if self.start is None else f"+{self.start}"
        return f"L{self.line + 1}{part}: {self.text}"

    def is_wanted(self, wanted: Wanted) -> bool:
        spans = wanted.get(self.line)
        if spans is None or self.start is None:
            return spans is not None
        end = self.start + len(self.text)
        return any(first < end and self.start <= max(first, last - 1) for first, last in spans)


def page(lines: list[str], offset: int, limit: int, wanted: Wanted | None = None) -> str:
    """What fits, from `offset` on; with `wanted` only those lines."""
    parts = {index: _parts(line) for index, line in enumerate(lines) if len(line) > MAYBE_LONG and _is_long(line)}
    total = len(lines) + sum(len(starts) - 1 for starts in parts.values())
    first = first_line(offset, total)
    last = total
    shown: list[str] = []
    room = PAGE_BYTES
    for number, row in enumerate(_rows(lines, parts), 1):
        if number < first or (wanted is not None and not row.is_wanted(wanted)):
            continue
        text = row.shown()
        room -= len(text.encode()) + 1
        if shown and (room < 0 or len(shown) == limit):
            last = number - 1
            break
        shown.append(text)
    if not shown:
        shown.append("(empty output)" if wanted is None else "No matches.")
    if note := closing_note(first, last, total):
        shown.append(note)
    return "\n".join(shown)


def with_context(found: Wanted, context: int) -> Wanted:
    """The matching lines and those around them; of a long line around a match, its beginning."""
    around: dict[int, list[Span]] = {
        near: [(0, 0)] for index in found for near in range(index - context, index + context + 1)
    }
    return around | dict(found)


def _rows(lines: list[str], parts: Mapping[int, list[int]]) -> Iterator[Row]:
    for index, line in enumerate(lines):
        if index not in parts:
            yield Row(index, line)
            continue
        starts = parts[index]
        for start, end in zip(starts, [*starts[1:], len(line)], strict=True):
            yield Row(index, line[start:end], start)


def _is_long(line: str) -> bool:
    return len(line.encode()) > LONG_LINE


def _parts(line: str) -> list[int]:
    """Where the parts of a long line begin, in characters; no part has more bytes than a page."""
    if line.isascii():
        return list(range(0, len(line), PAGE_BYTES))
    data = line.encode()
    starts: list[int] = []
    characters = position = 0
    while position < len(data):
        starts.append(characters)
        end = min(position + PAGE_BYTES, len(data))
        while end < len(data) and data[end] & 0xC0 == 0x80:
            end -= 1
        characters += len(data[position:end].decode())
        position = end
    return starts
