"""Placing: where in a file the chunks of an Update belong, and what they turn it into.

Takes the chunks and the file's text, gives edits in file order and notes about everything that was not exact.
Refuses with a text that lets the caller repair its patch (`hints.py`); for a secret file without its lines.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from golem_forge.toolsets.edit import hints
from golem_forge.toolsets.edit.failures import PatchFailed
from golem_forge.toolsets.edit.grammar import Chunk, Line
from golem_forge.toolsets.edit.ladder import MOST_PLACES, Readings, Rung, is_blank, leading_blanks
from golem_forge.toolsets.edit.text import Edit, PatchedText


class Placed(NamedTuple):
    edits: list[Edit]
    notes: list[str]


class _Spot(NamedTuple):
    start: int
    lines: tuple[Line, ...]
    """The chunk's lines that count: all, or all but empty ones at its end."""
    rung: Rung
    places: int


def place(chunks: Sequence[Chunk], text: PatchedText, *, secret: bool = False) -> Placed:
    edits: list[Edit] = []
    notes: list[str] = []
    start = 0
    for number, chunk in enumerate(chunks, 1):
        after_headers = _after_headers(chunk, text, start)
        spot = _spot(chunk, text, after_headers, start, secret=secret)
        if note := _note(chunk, spot):
            notes.append(f"{text.path} chunk {number}: {note}")
        start = _add_edits(edits, spot, text.readings)
    return Placed(edits, notes)


def _after_headers(chunk: Chunk, text: PatchedText, start: int) -> int:
    """The line after the last header's, or `start` without one that says anything."""
    for header in chunk.headers:
        if header.context:
            found = text.readings.find([header.context], start)
            if found is None:
                raise PatchFailed(
                    f"line {header.number}: '@@ {header.context}' not found in {text.path} after line {start}",
                    "CONTEXT_NOT_FOUND",
                )
            start = found[1][0] + 1
    return start


def _spot(chunk: Chunk, text: PatchedText, start: int, previous_end: int, *, secret: bool) -> _Spot:
    readings = text.readings
    for lines in _shorter_and_shorter(chunk):
        wanted = [line.text for line in lines if line.mark != "+"]
        if not wanted:
            at = start if _is_narrowed(chunk) and not chunk.at_end else len(readings)
            return _Spot(at, lines, Rung.EXACT, 1)
        earliest = max(start, len(readings) - len(wanted)) if chunk.at_end else start
        found = readings.find(wanted, earliest)
        if found is None:
            continue
        rung, places = found
        if rung is not Rung.EXACT and len(places) > 1 and not _is_narrowed(chunk):
            raise _not_placed(chunk, text, start, [] if secret else [hints.more_than_one(places)])
        return _Spot(places[0], lines, rung, len(places))
    raise _not_placed(chunk, text, start, [] if secret else hints.why_not(chunk, readings, start, previous_end))


def _shorter_and_shorter(chunk: Chunk) -> Iterator[tuple[Line, ...]]:
    """The whole chunk; without its last line if that is an empty context line; without all empty unmarked ones."""
    yield chunk.lines
    last = chunk.lines[-1]
    if last.mark == " " and is_blank(last.text):
        yield chunk.lines[:-1]
    if chunk.loose > 1:
        yield chunk.lines[: -chunk.loose]


def _is_narrowed(chunk: Chunk) -> bool:
    """A bare `@@` says nothing about the place."""
    return any(header.context for header in chunk.headers)


def _note(chunk: Chunk, spot: _Spot) -> str:
    if spot.rung is not Rung.EXACT:
        return spot.rung.note
    if spot.places == 1 or _is_narrowed(chunk):
        return ""
    return f"first of {spot.places}{'+' if spot.places == MOST_PLACES else ''} places"


def _not_placed(chunk: Chunk, text: PatchedText, start: int, why: list[str]) -> PatchFailed:
    problem = f"line {chunk.number}: these lines are not in {text.path} (searched from line {start + 1}):"
    return PatchFailed("\n".join((problem, *hints.shown_lines(chunk), *why)), "LINES_NOT_FOUND")


def _add_edits(edits: list[Edit], spot: _Spot, readings: Readings) -> int:
    """One edit for every run of changed lines; gives the line after the chunk."""
    shift = _shift(spot, readings) if spot.rung >= Rung.BOTH_ENDS else ("", "")
    at = start = spot.start
    added: list[str] = []

    def close() -> None:
        if added or at > start:
            edits.append(Edit(start, at, tuple(added)))
            added.clear()

    for line in spot.lines:
        if line.mark == "+":
            added.append(_shifted(line.text, *shift))
        elif line.mark == "-":
            at += 1
        else:
            close()
            at += 1
            start = at
    close()
    return at


def _shift(spot: _Spot, readings: Readings) -> tuple[str, str]:
    """(blanks too many in the patch, blanks too few) if that is the same for every line that has any text."""
    differences = set()
    at = spot.start
    for line in spot.lines:
        if line.mark == "+":
            continue
        if not is_blank(line.text):
            differences.add(_difference(leading_blanks(line.text), leading_blanks(readings.lines[at])))
        at += 1
    return differences.pop() if len(differences) == 1 else ("", "")


def _difference(patch: str, file: str) -> tuple[str, str]:
    """What to take off and what to put before, leaving alone what both end in."""
    same = 0
    while same < min(len(patch), len(file)) and patch[-1 - same] == file[-1 - same]:
        same += 1
    return patch[: len(patch) - same], file[: len(file) - same]


def _shifted(line: str, too_many: str, too_few: str) -> str:
    if is_blank(line):
        return line
    same = 0
    while same < min(len(line), len(too_many)) and line[same] == too_many[same]:
        same += 1
    return too_few + line[same:]
