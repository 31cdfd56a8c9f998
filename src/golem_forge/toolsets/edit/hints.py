"""Hints: why lines of a patch were not found, as far as the file can tell. Only asked for after a failure.

Every search here is bounded, whatever the file: comparing all with all would take minutes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Final

from golem_forge.toolsets.edit.grammar import Chunk
from golem_forge.toolsets.edit.ladder import Reading, Readings, Rung, as_read, is_blank

_MOST_SHOWN: Final = 100
_MOST_LISTED: Final = 20
_MOST_QUOTED: Final = 200
_COMMON: Final = 200
"""A line that stands at more places than this says little about where a chunk belongs."""
_MOST_COMPARED: Final = 4000
_ALIKE: Final = 0.6


def why_not(chunk: Chunk, readings: Readings, start: int, previous_end: int) -> list[str]:
    old = [line.text for line in chunk.lines if line.mark != "+"]
    new = [line.text for line in chunk.lines if line.mark != "-"]
    while len(old) > 1 and len(new) > 1 and is_blank(old[-1]) and is_blank(new[-1]):
        old, new = old[:-1], new[:-1]
    others = [
        *_elsewhere(old, readings, start, previous_end, at_end=chunk.at_end),
        *_already_applied(old, new, readings, start),
    ]
    return [*_closest(old, readings, start, guess=not others), *others]


def more_than_one(places: Sequence[int]) -> str:
    return f"more than one place (lines {_listed(places)}): add an '@@' line"


def shown_lines(chunk: Chunk) -> list[str]:
    """The lines that were looked for, the middle of very many left out."""
    lines = [line.text for line in chunk.lines if line.mark != "+"]
    while len(lines) > 1 and is_blank(lines[-1]):
        lines.pop()
    if len(lines) <= _MOST_SHOWN:
        return lines
    half = _MOST_SHOWN // 2
    return [*lines[:half], f"[… {len(lines) - _MOST_SHOWN} lines]", *lines[-half:]]


def _listed(places: Sequence[int]) -> str:
    more = ", …" if len(places) > _MOST_LISTED else ""
    return ", ".join(str(place + 1) for place in places[:_MOST_LISTED]) + more


def _elsewhere(old: Sequence[str], readings: Readings, start: int, previous_end: int, *, at_end: bool) -> Iterator[str]:
    if at_end and (found := readings.find(old, start)):
        yield f"these lines occur at {_listed(found[1])}, not at the end of the file"
    if previous_end and (found := readings.find(old, 0, previous_end)):
        yield f"these lines occur at {_listed(found[1])}, before the previous chunk: chunks must be in file order"
    if start > previous_end:
        stop = min(start + len(old) - 1, len(readings))
        if found := readings.find(old, previous_end, stop):
            yield f"these lines occur at {_listed(found[1])}, not after the '@@' line: the search begins below it"


def _already_applied(old: list[str], new: list[str], readings: Readings, start: int) -> Iterator[str]:
    if new == old or all(map(is_blank, new)):
        return
    if found := readings.find(new, start) or readings.find(new, 0):
        first = found[1][0] + 1
        yield f"already applied: the new lines are at {first}-{first + len(new) - 1}"


def _closest(old: list[str], readings: Readings, start: int, *, guess: bool) -> Iterator[str]:
    """The place with most lines equal or, where nothing else is known, with a line that is merely alike."""
    reading = readings.under(Rung.FOLDED)
    wanted = [as_read(line, Rung.FOLDED) for line in old]
    at = _most_equal(wanted, reading, start)
    if at is None and guess:
        at = _most_alike(wanted, reading, start)
    if at is None:
        return
    there = reading.lines[at : at + len(wanted)]
    equal = sum(one == other for one, other in zip(wanted, there, strict=False))
    if equal == len(wanted):
        return
    different = next((i for i, (one, other) in enumerate(zip(wanted, there, strict=False)) if one != other), None)
    if different is None:
        what = f"the file ends where the patch has {_quoted(old[len(there)])}"
    else:
        line = at + different
        what = f"line {line + 1} is {_quoted(readings.lines[line])} where the patch has {_quoted(old[different])}"
    yield f"closest: lines {at + 1}-{at + len(there)}, {equal} of {len(wanted)} lines equal; {what}"


def _most_equal(wanted: list[str], reading: Reading, start: int) -> int | None:
    """The place from `start` on where most lines are equal."""
    votes: Counter[int] = Counter()
    for offset, line in enumerate(wanted[:_COMMON]):
        positions = reading.positions.get(line, ())
        if line and len(positions) <= _COMMON:
            votes.update(at - offset for at in positions if at - offset >= start)
    if not votes:
        return None
    most = max(votes.values())
    return min(at for at, count in votes.items() if count == most)


def _most_alike(wanted: list[str], reading: Reading, start: int) -> int | None:
    """Without an equal line: the place of the line most like the longest one."""
    from difflib import SequenceMatcher

    offset = max(range(len(wanted)), key=lambda i: len(wanted[i]))
    line = wanted[offset][:_MOST_QUOTED]
    first = start + offset
    matcher = SequenceMatcher(None, b=line, autojunk=False)
    best, best_at = _ALIKE, None
    for at, other in enumerate(reading.lines[first : first + _MOST_COMPARED], first):
        matcher.set_seq1(other[:_MOST_QUOTED])
        if matcher.real_quick_ratio() >= best and matcher.quick_ratio() >= best and (now := matcher.ratio()) > best:
            best, best_at = now, at
    return None if best_at is None else best_at - offset


def _quoted(line: str) -> str:
    return f'"{line[:_MOST_QUOTED]}{"…" if len(line) > _MOST_QUOTED else ""}"'
