"""The rows of a kept output: its lines, the long ones in parts. Takes the text in pieces, gives it in blocks.

Each row has a number, a line too long for one page has one per part. Threat: an output of 64 MiB has up to 64 million
lines; as a list of texts they would take gigabytes. So only a block (at most 32 KiB) is looked at, at a time.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final, NamedTuple

from golem_forge.toolsets.line_search_child import clean_pieces
from golem_forge.toolsets.numbered import PAGE_BYTES

LONG_LINE: Final = 32 * 1024 - 256
"""A line over 32 KiB is shown in parts; a little less, so that number and closing note still fit beside it."""
MAYBE_LONG: Final = LONG_LINE // 4
"""No line of fewer characters can be long."""


class Row(NamedTuple):
    """A line, or one part of a long one."""

    line: int
    """From 0."""
    text: str
    start: int | None = None
    """Where in its line a part begins, in characters; None for a whole line."""

    def shown(self) -> str:
        part = "" if self.start is None else f"+{self.start}"
        return f"L{self.line + 1}{part}: {self.text}"


class Block(NamedTuple):
    """Some whole lines, none of them long, or one part of a long line."""

    line: int
    """Index of the first, from 0."""
    rows: int
    data: bytes
    """Without the last line end."""
    start: int | None = None
    """See Row."""

    def each(self) -> Iterator[Row]:
        for index, text in enumerate(self.data.decode().split("\n"), self.line):
            yield Row(index, text, self.start)


def blocks_of(path: Path) -> Iterator[Block]:
    """Everything in a file. Raises OSError."""
    with open(path, "rb", buffering=0) as file:
        yield from _Cutting().blocks(clean_pieces(file))


class _Cutting:
    """Where in the text the next block begins."""

    def __init__(self) -> None:
        self._buffer = b""
        self._place = 0
        self._line = 0
        self._start: int | None = None
        """Inside a long line: how many of its characters are passed."""

    def blocks(self, pieces: Iterable[bytes]) -> Iterator[Block]:
        for piece in pieces:
            self._buffer, self._place = self._buffer[self._place :] + piece, 0
            yield from self._known(final=False)
        yield from self._known(final=True)

    def _known(self, *, final: bool) -> Iterator[Block]:
        """The blocks that are certain whatever follows; with `final` nothing does."""
        while self._place < len(self._buffer):
            enough = LONG_LINE if self._start is None else PAGE_BYTES
            if len(self._buffer) - self._place <= enough and not final:
                return
            if (block := self._lines() if self._start is None else self._part(self._start)) is not None:
                yield block

    def _lines(self) -> Block | None:
        """As many lines as there are in the room of one long line; None where a long one begins."""
        place = self._place
        end = self._buffer.rfind(b"\n", place, place + LONG_LINE + 1)
        if end < 0:
            if len(self._buffer) - place > LONG_LINE:
                self._start = 0
                return None
            end = len(self._buffer)
        data = self._buffer[place:end]
        block = Block(self._line, data.count(b"\n") + 1, data)
        self._line += block.rows
        self._place = end + 1
        return block

    def _part(self, start: int) -> Block | None:
        """None where the line ended with the part before."""
        place = self._place
        end = self._buffer.find(b"\n", place, place + PAGE_BYTES + 1)
        if ended := end >= 0:
            data = self._buffer[place:end]
        else:
            end = min(place + PAGE_BYTES, len(self._buffer))
            while end < len(self._buffer) and self._buffer[end] & 0xC0 == 0x80:
                end -= 1
            data = self._buffer[place:end]
        block = Block(self._line, 1, data, start) if data else None
        self._place = end + ended
        self._line += ended
        self._start = None if ended else start + len(data.decode())
        return block
