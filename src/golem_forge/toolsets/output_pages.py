"""Pages of a kept output: numbered lines, the long ones in parts, all of them or only those that matched.

A line too long for one page is shown as `L<n>+<char offset>: …`. Each part counts as a line for `offset` and `limit`,
so that every character can be reached. With a search, `offset` is where it starts and the closing note says how far
it came. Reads the text as often as it needs to instead of holding it: see `output_rows.py`.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from typing import Final, NamedTuple

from golem_forge.toolsets.line_search_child import Span
from golem_forge.toolsets.numbered import PAGE_BYTES, closing_note, first_line
from golem_forge.toolsets.output_rows import LONG_LINE, Block, Row

_ENOUGH: Final = 3 * LONG_LINE
"""Bytes: at worst one block with a single row of the page, a row that fills it, and one that ends it."""
_MOST_KEPT: Final = 4 << 20
Wanted = Mapping[int, list[Span]]
"""Index of a line (from 0) → where in it, for lines that may be long."""


class Place(NamedTuple):
    """Where a page begins."""

    first: int
    """Number of the row, from 1."""
    total: int
    """How many rows there are."""
    before: int
    """How many rows there are before those that were kept on the way."""
    kept: tuple[Block, ...]
    """Blocks with enough rows for a page, if the first is among them: most pages need no second look at the text."""

    @property
    def is_kept(self) -> bool:
        return self.before < self.first


def find_place(blocks: Iterable[Block], offset: int) -> Place:
    """Raises ToolFailed for an offset past the end."""
    kept: deque[Block] = deque()
    total = before = size = 0
    for block in blocks:
        total += block.rows
        if offset > 0:
            if total < offset:
                before = total
            elif size <= _ENOUGH:
                kept.append(block)
                size += len(block.data)
            continue
        kept.append(block)
        size += len(block.data)
        while total - before - kept[0].rows >= -offset or size > _MOST_KEPT:
            gone = kept.popleft()
            before += gone.rows
            size -= len(gone.data)
    return Place(first_line(offset, total), total, before, tuple(kept))


def line_at(blocks: Iterable[Block], place: Place) -> int:
    """Index of the line that the first row belongs to."""
    passed, blocks = (place.before, place.kept) if place.is_kept else (0, blocks)
    for block in blocks:
        if place.first <= passed + block.rows:
            return block.line + place.first - passed - 1
        passed += block.rows
    return 0


def page(blocks: Iterable[Block], place: Place, limit: int, wanted: Wanted | None = None) -> str:
    """What fits, from `place` on; with `wanted` only those lines."""
    last = place.total
    shown: list[str] = []
    room = PAGE_BYTES
    before, blocks = (place.before, place.kept) if place.is_kept and wanted is None else (0, blocks)
    for number, row in _numbered_rows(blocks, before, place.first, wanted):
        text = row.shown()
        room -= len(text.encode()) + 1
        if shown and (room < 0 or len(shown) == limit):
            last = number - 1
            break
        shown.append(text)
    if not shown:
        shown.append("(empty output)" if wanted is None else "No matches.")
    if note := closing_note(place.first, last, place.total):
        shown.append(note)
    return "\n".join(shown)


def with_context(found: Wanted, context: int) -> Wanted:
    """The matching lines and those around them; of a long line around a match, its beginning."""
    around: dict[int, list[Span]] = {
        near: [(0, 0)] for index in found for near in range(index - context, index + context + 1)
    }
    return around | dict(found)


def _numbered_rows(
    blocks: Iterable[Block], passed: int, first: int, wanted: Wanted | None
) -> Iterator[tuple[int, Row]]:
    lines = None if wanted is None else sorted(wanted)
    for block in blocks:
        if passed + block.rows >= first and (lines is None or _is_among(block, lines)):
            for number, row in enumerate(block.each(), passed + 1):
                if number >= first and (wanted is None or _is_wanted(row, wanted)):
                    yield number, row
        passed += block.rows
        if lines is not None and (not lines or lines[-1] < block.line):
            return


def _is_among(block: Block, lines: list[int]) -> bool:
    next_one = bisect_left(lines, block.line)
    return next_one < len(lines) and lines[next_one] < block.line + block.rows


def _is_wanted(row: Row, wanted: Wanted) -> bool:
    spans = wanted.get(row.line)
    if spans is None or row.start is None:
        return spans is not None
    start, end = row.start, row.start + len(row.text)
    return any(first < end and start <= max(first, last - 1) for first, last in spans)
