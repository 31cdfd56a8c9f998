"""The ladder: lines compared exactly, then ever more kindly. Takes a file's lines once, finds runs of lines fast.

Every form of the lines has an index from line to positions, made when first asked for; a run is looked for at the
positions of its rarest line only, so a hundred chunks in ten thousand lines cost milliseconds.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from enum import IntEnum
from typing import Final

MOST_PLACES: Final = 1000
"""Further places are not counted: a file of nothing but equal lines would keep us busy."""
_BLANKS: Final = " \t"


class Rung(IntEnum):
    EXACT = 1
    TRAILING = 2
    BOTH_ENDS = 3
    FOLDED = 4

    @property
    def note(self) -> str:
        return _NOTES[self]


_NOTES: Final = {
    Rung.EXACT: "",
    Rung.TRAILING: "matched ignoring trailing blanks",
    Rung.BOTH_ENDS: "matched ignoring blanks at both ends",
    Rung.FOLDED: "matched with Unicode dashes, quotes and spaces read as ASCII",
}
_FOLDED: Final = str.maketrans(
    dict.fromkeys("\u2010\u2011\u2012\u2013\u2014\u2015\u2212\ufe58\ufe63\uff0d", "-")
    | dict.fromkeys("\u2018\u2019\u201a\u201b\u2032\uff07", "'")
    | dict.fromkeys("\u201c\u201d\u201e\u201f\u2033\uff02", '"')
    | dict.fromkeys("\u00a0\u1680\u202f\u205f\u3000" + "".join(map(chr, range(0x2000, 0x200B))), " ")
)


def as_read(line: str, rung: Rung) -> str:
    """A line as this rung reads it; equal readings match."""
    if rung is Rung.EXACT:
        return line
    if rung is Rung.TRAILING:
        return line.rstrip(_BLANKS)
    if rung is Rung.FOLDED and not line.isascii():
        line = line.translate(_FOLDED)
    return line.strip(_BLANKS)


def leading_blanks(line: str) -> str:
    return line[: len(line) - len(line.lstrip(_BLANKS))]


def is_blank(line: str) -> bool:
    return not line.strip(_BLANKS)


class Reading:
    """All lines of a file as one rung reads them, and where each is."""

    def __init__(self, lines: list[str]) -> None:
        self.lines = lines
        self.positions: dict[str, list[int]] = {}
        for at, line in enumerate(lines):
            self.positions.setdefault(line, []).append(at)

    def places(self, wanted: list[str], start: int, stop: int) -> Iterator[int]:
        """Where the wanted lines stand, one after another, wholly inside `start:stop`."""
        found = [self.positions.get(line) for line in wanted]
        if not wanted or None in found:
            return
        rarest, anchors = min(enumerate(found), key=lambda each: len(each[1] or ()))
        assert anchors is not None
        for at in anchors[bisect_left(anchors, start + rarest) :]:
            first = at - rarest
            if first + len(wanted) > stop:
                return
            if self.lines[first : first + len(wanted)] == wanted:
                yield first


class Readings:
    """The lines of one file under every rung."""

    def __init__(self, lines: list[str]) -> None:
        self.lines = lines
        self._by_rung: dict[Rung, Reading] = {}

    def __len__(self) -> int:
        return len(self.lines)

    def under(self, rung: Rung) -> Reading:
        if rung not in self._by_rung:
            lines = self.lines if rung is Rung.EXACT else [as_read(line, rung) for line in self.lines]
            self._by_rung[rung] = Reading(lines)
        return self._by_rung[rung]

    def find(self, wanted: Sequence[str], start: int, stop: int | None = None) -> tuple[Rung, list[int]] | None:
        """The first rung with a hit and its hits, in order; None if no rung has one."""
        stop = len(self.lines) if stop is None else stop
        for rung in Rung:
            lines = [as_read(line, rung) for line in wanted]
            hits: list[int] = []
            for place in self.under(rung).places(lines, start, stop):
                hits.append(place)
                if len(hits) == MOST_PLACES:
                    break
            if hits:
                return rung, hits
        return None
