"""Where in a file the chunks of an Update belong, and what they turn it into.

Takes the chunks and the file's text; gives edits in file order and notes about every match that was not exact. Lines
are compared exactly first, then by weaker match levels. Each level has an index from line to positions, made when first
needed; a run of lines is looked for at the positions of its rarest line only, so a hundred chunks in ten thousand lines
cost milliseconds.

Refuses what is not UTF-8 text, and chunks that are not found, with hints that let the caller repair its patch; for a
secret file without its lines. Every search for a hint is bounded. The byte order mark, every kept line's own end and a
file's first line end survive.
"""

from __future__ import annotations

import codecs
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator, Sequence
from enum import IntEnum
from functools import cached_property
from itertools import islice, takewhile
from typing import Final, NamedTuple

from golem_forge.core.changes import LineChange
from golem_forge.toolsets.edit.patch import Chunk, PatchFailed, PatchLine
from golem_forge.toolsets.file_access import split_lines, strip_line_end


class LocatedEdits(NamedTuple):
    edits: list[LineEdit]
    notes: list[str]


class _Location(NamedTuple):
    start: int
    lines: tuple[PatchLine, ...]
    """The chunk's lines that count: all, or all but empty ones at its end."""
    level: MatchLevel
    places: int


def locate_chunks(chunks: Sequence[Chunk], text: PatchedText, *, secret: bool = False) -> LocatedEdits:
    edits: list[LineEdit] = []
    notes: list[str] = []
    start = 0
    for number, chunk in enumerate(chunks, 1):
        after_headers = _after_headers(chunk, text, start)
        location = _locate_chunk(chunk, text, after_headers, start, secret=secret)
        if note := _match_note(chunk, location):
            notes.append(f"{text.path} chunk {number}: {note}")
        start = _add_edits(edits, location, text.lines)
    return LocatedEdits(edits, notes)


def _after_headers(chunk: Chunk, text: PatchedText, start: int) -> int:
    """The line after the last header's, or `start` without one that says anything."""
    for header in chunk.headers:
        if header.context:
            found = text.lines.find([header.context], start)
            if found is None:
                raise PatchFailed(
                    f"line {header.number}: '@@ {header.context}' not found in {text.path} after line {start}",
                    "CONTEXT_NOT_FOUND",
                )
            start = found[1][0] + 1
    return start


def _locate_chunk(chunk: Chunk, text: PatchedText, start: int, previous_end: int, *, secret: bool) -> _Location:
    readings = text.lines
    for lines in _candidate_lines(chunk):
        wanted = [line.text for line in lines if line.mark != "+"]
        if not wanted:
            at = start if _has_context_header(chunk) and not chunk.at_end else len(readings)
            return _Location(at, lines, MatchLevel.EXACT, 1)
        earliest = max(start, len(readings) - len(wanted)) if chunk.at_end else start
        found = readings.find(wanted, earliest)
        if found is None:
            continue
        level, places = found
        if level is not MatchLevel.EXACT and len(places) > 1 and not _has_context_header(chunk):
            raise _not_found(chunk, text, start, [] if secret else [ambiguous_hint(places)])
        return _Location(places[0], lines, level, len(places))
    raise _not_found(chunk, text, start, [] if secret else mismatch_hints(chunk, readings, start, previous_end))


def _candidate_lines(chunk: Chunk) -> Iterator[tuple[PatchLine, ...]]:
    """The whole chunk; without its last line if that is an empty context line; without all empty unmarked ones."""
    yield chunk.lines
    last = chunk.lines[-1]
    if last.mark == " " and is_blank(last.text):
        yield chunk.lines[:-1]
    if chunk.loose > 1:
        yield chunk.lines[: -chunk.loose]


def _has_context_header(chunk: Chunk) -> bool:
    """Whether a header names a line; a bare `@@` says nothing about the place."""
    return any(header.context for header in chunk.headers)


def _match_note(chunk: Chunk, location: _Location) -> str:
    if location.level is not MatchLevel.EXACT:
        return location.level.note
    if location.places == 1 or _has_context_header(chunk):
        return ""
    return f"first of {location.places}{'+' if location.places == MAX_PLACES else ''} places"


def _not_found(chunk: Chunk, text: PatchedText, start: int, why: list[str]) -> PatchFailed:
    problem = f"line {chunk.number}: these lines are not in {text.path} (searched from line {start + 1}):"
    return PatchFailed("\n".join((problem, *searched_lines(chunk), *why)), "LINES_NOT_FOUND")


def _add_edits(edits: list[LineEdit], location: _Location, file: FileLines) -> int:
    """One edit for every run of changed lines; gives the line after the chunk."""
    shift = _indent_shift(location, file) if location.level >= MatchLevel.BOTH_ENDS else ("", "")
    at = start = location.start
    added: list[str] = []

    def close() -> None:
        if added or at > start:
            edits.append(LineEdit(start, at, tuple(added)))
            added.clear()

    for line in location.lines:
        if line.mark == "+":
            added.append(_shift_indent(line.text, *shift))
        elif line.mark == "-":
            at += 1
        else:
            close()
            at += 1
            start = at
    close()
    return at


def _indent_shift(location: _Location, file: FileLines) -> tuple[str, str]:
    """(blanks too many in the patch, blanks too few) if that is the same for every line that has any text."""
    differences = set()
    at = location.start
    for line in location.lines:
        if line.mark == "+":
            continue
        if not is_blank(line.text):
            patched, there = leading_blanks(line.text), leading_blanks(file.lines[at])
            same = _common_length(patched[::-1], there[::-1])  # what both end in
            differences.add((patched[: len(patched) - same], there[: len(there) - same]))
        at += 1
    return differences.pop() if len(differences) == 1 else ("", "")


def _shift_indent(line: str, too_many: str, too_few: str) -> str:
    return line if is_blank(line) else too_few + line[_common_length(line, too_many) :]


def _common_length(one: str, other: str) -> int:
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(one, other, strict=False)))


MAX_PLACES: Final = 1000
"""Further places are not counted, to bound the work in a file of equal lines."""
_MANY_COMPARISONS: Final = 1_000_000
_BLANKS: Final = " \t"


class MatchLevel(IntEnum):
    EXACT = 1
    TRAILING = 2
    BOTH_ENDS = 3
    FOLDED = 4

    @property
    def note(self) -> str:
        return _LEVEL_NOTES[self]


_LEVEL_NOTES: Final = {
    MatchLevel.EXACT: "",
    MatchLevel.TRAILING: "matched ignoring trailing blanks",
    MatchLevel.BOTH_ENDS: "matched ignoring blanks at both ends",
    MatchLevel.FOLDED: "matched with Unicode dashes, quotes and spaces read as ASCII",
}
_ASCII_FOLD: Final = str.maketrans(
    dict.fromkeys("\u2010\u2011\u2012\u2013\u2014\u2015\u2212\ufe58\ufe63\uff0d", "-")
    | dict.fromkeys("\u2018\u2019\u201a\u201b\u2032\uff07", "'")
    | dict.fromkeys("\u201c\u201d\u201e\u201f\u2033\uff02", '"')
    | dict.fromkeys("\u00a0\u1680\u202f\u205f\u3000" + "".join(map(chr, range(0x2000, 0x200B))), " ")
)


def normalize_line(line: str, level: MatchLevel) -> str:
    """A line as this level reads it; equal readings match."""
    if level is MatchLevel.EXACT:
        return line
    if level is MatchLevel.TRAILING:
        return line.rstrip(_BLANKS)
    if level is MatchLevel.FOLDED and not line.isascii():
        line = line.translate(_ASCII_FOLD)
    return line.strip(_BLANKS)


def leading_blanks(line: str) -> str:
    return line[: len(line) - len(line.lstrip(_BLANKS))]


def is_blank(line: str) -> bool:
    return not line.strip(_BLANKS)


class LineIndex:
    """All lines of a file at one match level, with their positions."""

    def __init__(self, lines: list[str]) -> None:
        self.lines = lines
        self.positions: dict[str, list[int]] = {}
        for at, line in enumerate(lines):
            self.positions.setdefault(line, []).append(at)

    def places(self, wanted: list[str], start: int, stop: int) -> Iterator[int]:
        """Yields the positions where the wanted lines stand in sequence, wholly inside `start:stop`."""
        found = [self.positions.get(line) for line in wanted]
        if not wanted or None in found:
            return
        rarest, anchors = min(enumerate(found), key=lambda each: len(each[1] or ()))
        assert anchors is not None
        if len(anchors) * len(wanted) > _MANY_COMPARISONS:
            yield from self._places_in_text(wanted, start, stop)
            return
        for at in anchors[bisect_left(anchors, start + rarest) :]:
            first = at - rarest
            if first + len(wanted) > stop:
                return
            if self.lines[first : first + len(wanted)] == wanted:
                yield first

    def _places_in_text(self, wanted: list[str], start: int, stop: int) -> Iterator[int]:
        """The same with every line as one character: the search for a text takes no quadratic time.

        Threat: a long chunk in a file of few different lines, which would take minutes that nobody can interrupt.
        """
        codes = {line: chr(code) for code, line in enumerate(dict.fromkeys(wanted), 1)}
        sought = "".join(codes[line] for line in wanted)
        text = "".join(codes.get(line, "\0") for line in self.lines[start:stop])
        at = text.find(sought)
        while at >= 0:
            yield start + at
            at = text.find(sought, at + 1)


class FileLines:
    def __init__(self, lines: list[str]) -> None:
        self.lines = lines
        self._by_level: dict[MatchLevel, LineIndex] = {}

    def __len__(self) -> int:
        return len(self.lines)

    def index(self, level: MatchLevel) -> LineIndex:
        if level not in self._by_level:
            lines = self.lines if level is MatchLevel.EXACT else [normalize_line(line, level) for line in self.lines]
            self._by_level[level] = LineIndex(lines)
        return self._by_level[level]

    def find(self, wanted: Sequence[str], start: int, stop: int | None = None) -> tuple[MatchLevel, list[int]] | None:
        """The first level with a hit and its hits, in order; None if no level has one."""
        stop = len(self.lines) if stop is None else stop
        for level in MatchLevel:
            lines = [normalize_line(line, level) for line in wanted]
            hits = list(islice(self.index(level).places(lines, start, stop), MAX_PLACES))
            if hits:
                return level, hits
        return None


class LineEdit(NamedTuple):
    """Lines `start:stop` of the file (counted from 0) give way to `added`."""

    start: int
    stop: int
    added: tuple[str, ...]


class PatchedBytes(NamedTuple):
    data: bytes
    changes: list[LineChange] | None
    """The changed lines, for the diff; None if lines end in a lone CR, at which a diff does not split."""


class PatchedText:
    def __init__(self, data: bytes, path: str) -> None:
        mark = codecs.BOM_UTF8 if data.startswith(codecs.BOM_UTF8) else b""
        try:
            text = data[len(mark) :].decode()
        except UnicodeDecodeError:
            raise PatchFailed(f"'{path}' is not UTF-8 text.", "NOT_TEXT") from None
        if "\0" in text:
            raise PatchFailed(f"'{path}' is not UTF-8 text.", "NOT_TEXT")
        self.path = path
        self._mark = mark
        self._lines = split_lines(text)
        self._has_lone_cr = "\r" in text.replace("\r\n", "")

    @cached_property
    def lines(self) -> FileLines:
        return FileLines([strip_line_end(line) for line in self._lines])

    @property
    def line_end(self) -> str:
        """Returns the line end of the first line; LF for a file without any."""
        first = self._lines[0] if self._lines else ""
        return first[len(strip_line_end(first)) :] or "\n"

    def apply_edits(self, edits: Sequence[LineEdit]) -> PatchedBytes:
        """The new content. Edits are in file order and do not overlap."""
        end = self.line_end
        made: list[str] = []
        changes: list[LineChange] = []
        at = 0
        for edit in edits:
            made += self._lines[at : edit.start]
            if edit.added:
                self._terminate_last_line(made, end, changes, edit.start)
            before = len(made)
            made += [line + end for line in edit.added]
            at = edit.stop
            changes.append(LineChange(edit.start, edit.stop, before, len(made)))
        made += self._lines[at:]
        self._terminate_last_line(made, end, changes, len(self._lines))
        usable = not self._has_lone_cr and not any("\r" in line for edit in edits for line in edit.added)
        return PatchedBytes(self._mark + "".join(made).encode(), changes if usable else None)

    @staticmethod
    def _terminate_last_line(made: list[str], end: str, changes: list[LineChange], old_count: int) -> None:
        """Adds a line end to the last line if it lacks one."""
        if made and not made[-1].endswith(("\n", "\r")):
            made[-1] += end
            changes.append(LineChange(old_count - 1, old_count, len(made) - 1, len(made)))


_MAX_SHOWN: Final = 100
_MAX_LISTED: Final = 20
_MAX_QUOTED: Final = 200
_COMMON_LINE: Final = 200
"""A line that occurs more often than this is not used to guess where a chunk belongs."""
_MAX_COMPARED: Final = 4000
_MIN_SIMILARITY: Final = 0.6


def mismatch_hints(chunk: Chunk, readings: FileLines, start: int, previous_end: int) -> list[str]:
    old = [line.text for line in chunk.lines if line.mark != "+"]
    new = [line.text for line in chunk.lines if line.mark != "-"]
    while len(old) > 1 and len(new) > 1 and is_blank(old[-1]) and is_blank(new[-1]):
        old, new = old[:-1], new[:-1]
    others = [
        *_elsewhere(old, readings, start, previous_end, at_end=chunk.at_end),
        *_already_applied(old, new, readings, start),
    ]
    return [*_closest(old, readings, start, guess=not others), *others]


def ambiguous_hint(places: Sequence[int]) -> str:
    return f"more than one place (lines {_line_list(places)}): add an '@@' line"


def searched_lines(chunk: Chunk) -> list[str]:
    """The lines that were looked for, the middle of very many left out."""
    lines = [line.text for line in chunk.lines if line.mark != "+"]
    while len(lines) > 1 and is_blank(lines[-1]):
        lines.pop()
    if len(lines) <= _MAX_SHOWN:
        return lines
    half = _MAX_SHOWN // 2
    return [*lines[:half], f"[… {len(lines) - _MAX_SHOWN} lines]", *lines[-half:]]


def _line_list(places: Sequence[int]) -> str:
    more = ", …" if len(places) > _MAX_LISTED else ""
    return ", ".join(str(place + 1) for place in places[:_MAX_LISTED]) + more


def _elsewhere(
    old: Sequence[str], readings: FileLines, start: int, previous_end: int, *, at_end: bool
) -> Iterator[str]:
    if at_end and (found := readings.find(old, start)):
        yield f"these lines occur at {_line_list(found[1])}, not at the end of the file"
    if previous_end and (found := readings.find(old, 0, previous_end)):
        yield f"these lines occur at {_line_list(found[1])}, before the previous chunk: chunks must be in file order"
    if start > previous_end:
        stop = min(start + len(old) - 1, len(readings))
        if found := readings.find(old, previous_end, stop):
            yield f"these lines occur at {_line_list(found[1])}, not after the '@@' line: the search begins below it"


def _already_applied(old: list[str], new: list[str], readings: FileLines, start: int) -> Iterator[str]:
    if new == old or all(map(is_blank, new)):
        return
    if found := readings.find(new, start) or readings.find(new, 0):
        first = found[1][0] + 1
        yield f"already applied: the new lines are at {first}-{first + len(new) - 1}"


def _closest(old: list[str], readings: FileLines, start: int, *, guess: bool) -> Iterator[str]:
    """The place with most lines equal or, where nothing else is known, with a line that is merely alike."""
    reading = readings.index(MatchLevel.FOLDED)
    wanted = [normalize_line(line, MatchLevel.FOLDED) for line in old]
    at = _best_equal_place(wanted, reading, start)
    if at is None and guess:
        at = _best_similar_place(wanted, reading, start)
    if at is None:
        return
    there = reading.lines[at : at + len(wanted)]
    equal = sum(one == other for one, other in zip(wanted, there, strict=False))
    if equal == len(wanted):
        return
    different = next((i for i, (one, other) in enumerate(zip(wanted, there, strict=False)) if one != other), None)
    if different is None:
        what = f"the file ends where the patch has {_quote_line(old[len(there)])}"
    else:
        there_is, wanted_is = _quote_line(readings.lines[at + different]), _quote_line(old[different])
        what = f"line {at + different + 1} is {there_is} where the patch has {wanted_is}"
    yield f"closest: lines {at + 1}-{at + len(there)}, {equal} of {len(wanted)} lines equal; {what}"


def _best_equal_place(wanted: list[str], reading: LineIndex, start: int) -> int | None:
    votes: Counter[int] = Counter()
    for offset, line in enumerate(wanted[:_COMMON_LINE]):
        positions = reading.positions.get(line, ())
        if line and len(positions) <= _COMMON_LINE:
            votes.update(at - offset for at in positions if at - offset >= start)
    if not votes:
        return None
    most = max(votes.values())
    return min(at for at, count in votes.items() if count == most)


def _best_similar_place(wanted: list[str], reading: LineIndex, start: int) -> int | None:
    """Returns the position of the line most similar to the longest wanted line, if no line is equal."""
    from difflib import SequenceMatcher

    offset = max(range(len(wanted)), key=lambda i: len(wanted[i]))
    line = wanted[offset][:_MAX_QUOTED]
    first = start + offset
    matcher = SequenceMatcher(None, b=line, autojunk=False)
    best, best_at = _MIN_SIMILARITY, None
    for at, other in enumerate(reading.lines[first : first + _MAX_COMPARED], first):
        matcher.set_seq1(other[:_MAX_QUOTED])
        if matcher.real_quick_ratio() >= best and matcher.quick_ratio() >= best and (now := matcher.ratio()) > best:
            best, best_at = now, at
    return None if best_at is None else best_at - offset


def _quote_line(line: str) -> str:
    return f'"{line[:_MAX_QUOTED]}{"…" if len(line) > _MAX_QUOTED else ""}"'
