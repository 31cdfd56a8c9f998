"""Mining: which runs of calls come again and again.

Takes the steps of sessions; gives each run of 2 to 6 steps that was seen at least 3 times in at least 2 sessions since
a moment, with where it was seen. The longest come first and take their places with them: a part of a longer run counts
only where it was seen outside of that. What repeats inside one turn counts each time, as one run and not as a longer
one; the same step over and over is at most a run of two.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final

from golem_forge.core.canonical import digest
from golem_forge.custom.suggestions.kept import Session
from golem_forge.custom.suggestions.steps import Segment, Shape

LONGEST: Final = 6
SHORTEST: Final = 2
LEAST_TIMES: Final = 3
LEAST_SESSIONS: Final = 2
MOST_FOUND: Final = 50

Run = tuple[Shape, ...]


@dataclass(frozen=True, slots=True)
class Seen:
    session: str
    steps: Segment


@dataclass(frozen=True, slots=True)
class Found:
    run: Run
    seen: tuple[Seen, ...]

    @property
    def key(self) -> str:
        return key_of(self.run)

    @property
    def sessions(self) -> int:
        return len({each.session for each in self.seen})

    @property
    def last(self) -> str:
        return max(each.steps[-1].at for each in self.seen)


def key_of(run: Sequence[Sequence[str]]) -> str:
    """By which a sequence is known from one session to the next."""
    return f"s{digest([list(shape) for shape in run])[:12]}"


def mine(sessions: Iterable[Session], *, own: Collection[str] = (), since: str = "") -> tuple[Found, ...]:
    """`own`: names of user tools; a call of one is what a suggestion leads to, so it is part of none.

    The longest first, then those seen most often."""
    pieces = [
        _Piece(session.id, part)
        for session in sessions
        for segment in session.segments
        for part in _parts(segment, own, since)
    ]
    found: list[Found] = []
    for often in reversed(_repeated(pieces)):
        found += _chosen(often, MOST_FOUND - len(found))
    return tuple(found)


@dataclass(slots=True)
class _Piece:
    """Steps in a row; those that belong to a run already are taken."""

    session: str
    steps: Segment
    shapes: list[Shape] = field(init=False)
    taken: bytearray = field(init=False)

    def __post_init__(self) -> None:
        self.shapes = [step.shape for step in self.steps]
        self.taken = bytearray(len(self.steps))

    def free(self, at: int, length: int) -> bool:
        return not any(self.taken[at : at + length])

    def take(self, at: int, length: int) -> None:
        self.taken[at : at + length] = b"\1" * length


_Place = tuple[_Piece, int]


def _repeated(pieces: list[_Piece]) -> list[dict[Run, list[_Place]]]:
    """By length, the shortest first: where each run stands that stands anywhere often enough. A longer one can do so
    only where its beginning and its end do, so the others are not even looked at."""
    found: list[dict[Run, list[_Place]]] = []
    hopeful: list[_Place] = [(piece, at) for piece in pieces for at in range(len(piece.steps) - SHORTEST + 1)]
    for length in range(SHORTEST, LONGEST + 1):
        places: dict[Run, list[_Place]] = defaultdict(list)
        for piece, at in hopeful:
            places[tuple(piece.shapes[at : at + length])].append((piece, at))
        often = {run: where for run, where in places.items() if len(where) >= LEAST_TIMES}
        found.append(often)
        there = {(id(piece), at) for where in often.values() for piece, at in where}
        hopeful = [
            (piece, at)
            for piece, at in hopeful
            if (id(piece), at) in there and (id(piece), at + 1) in there and at + length < len(piece.steps)
        ]
    return found


def _chosen(often: dict[Run, list[_Place]], most: int) -> list[Found]:
    """Of runs of one length. Where two share steps, the one that was seen more often has them."""
    found: list[Found] = []
    for run in sorted(often, key=lambda run: -len(_apart(often[run], len(run)))):
        where = _apart([(piece, at) for piece, at in often[run] if piece.free(at, len(run))], len(run))
        if _one_step(run) or len(where) < LEAST_TIMES or len(found) >= most:
            continue
        one = Found(run, tuple(Seen(piece.session, piece.steps[at : at + len(run)]) for piece, at in where))
        if one.sessions >= LEAST_SESSIONS:
            for piece, at in where:
                piece.take(at, len(run))
            found.append(one)
    return sorted(found, key=lambda each: -len(each.seen))


def _one_step(run: Run) -> bool:
    return len(run) > SHORTEST and len(set(run)) == 1


def _apart(where: list[_Place], length: int) -> list[_Place]:
    """Those that do not overlap, from the left. `where` is in order within each piece."""
    apart: list[_Place] = []
    for piece, at in where:
        if not apart or apart[-1][0] is not piece or at >= apart[-1][1] + length:
            apart.append((piece, at))
    return apart


def _parts(segment: Segment, own: Collection[str], since: str) -> Iterable[Segment]:
    """Without calls of user tools and old ones, and cut where a run begins again."""
    start = 0
    for at in range(len(segment) + 1):
        if at == len(segment) or segment[at].tool in own or segment[at].at < since:
            yield from _repeats_apart(segment[start:at])
            start = at + 1


def _repeats_apart(segment: Segment) -> Iterable[Segment]:
    """a b c a b c a → a b c | a b c | a. A repeated run would otherwise hide in longer ones: abca, bcabc, …"""
    shapes = [step.shape for step in segment]
    cuts: set[int] = set()
    at = 0
    while at < len(shapes):
        period = _period(shapes, at)
        if not period:
            at += 1
            continue
        first = at
        while shapes[at + period : at + 2 * period] == shapes[first : first + period]:
            at += period
            cuts.add(at)
        at += period
        if at < len(shapes) and shapes[at] == shapes[first]:
            cuts.add(at)
    for start, end in zip([0, *sorted(cuts)], [*sorted(cuts), len(shapes)], strict=True):
        if end - start >= SHORTEST:
            yield segment[start:end]


def _period(shapes: list[Shape], at: int) -> int:
    """The length of the run that stands at `at` twice in a row; 0 if none does. One step over and over is none."""
    for period in range(SHORTEST, LONGEST + 1):
        run = shapes[at : at + period]
        if run == shapes[at + period : at + 2 * period] and len(run) == period and len(set(run)) > 1:
            return period
    return 0
