"""Runs of calls that repeat: read from the journals of the last weeks, cached, compared.

A turn is what a worker did about one input, in the order its model asked. A failed, refused or unfinished call, and
one that makes or runs a user tool, splits it; so does a program (`run_code`), whose own calls stand by themselves. A
`Step` is a successful call: tool, argument names, and a mark for each value that tells type and equality and nothing
else, so the cache holds no argument of anybody.

The cache is FORGE_HOME/cache/suggestions.json (0600), safe to delete. A journal that has not changed is not read
again; a deleted session is gone from suggestions at once. Bounds: 30 days, 500 sessions, 64 MiB of journals at a time,
20,000 steps; the newest first.

`find_repeated` gives each run of 2 to 6 steps seen at least 3 times in at least 2 sessions. The longest come first and
take their steps with them: a part of a longer run counts only where it was seen outside of that. What repeats inside
one turn counts each time; the same step over and over is at most a run of two.
"""

from __future__ import annotations

import contextlib
import json
import os
import time
from collections import defaultdict, deque
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from itertools import pairwise
from pathlib import Path
from typing import Any, BinaryIO, Final

from golem_forge.core.decisions import Status
from golem_forge.core.json import digest
from golem_forge.core.lazy_dataclass import dataclass, field
from golem_forge.core.regex import regex
from golem_forge.events.journal_files import is_locked, list_journals
from golem_forge.events.journal_records import CallRecord, CallRecords, parse_line
from golem_forge.storage.home import JSON_FILE_ERRORS, ForgeHome, read_json, write_private
from golem_forge.usertools.native_tools import RUN_CODE

HIDDEN_MARK: Final = "x"
"""The mark of a value that was taken out of the journal, as a whole or in part: equal to nothing, never shown."""
NULL_MARK: Final = "z"
"""The value mark of null."""
MARK_TYPES: Final = {"s": "string", "i": "integer", "n": "number", "b": "boolean", "a": "array", "o": "object"}
"""First letter of a mark → type; of an array the second letter is the type of its items."""
_OTHER_KIND: Final = "o"
_DIGITS: Final = 16
_MOST_ARGUMENTS: Final = 32
_LONGEST_NAME: Final = 128
_DEEPEST: Final = 50
_REDACTION_MARKER: Final = regex(
    r"\[(?:redacted \d+ chars sha256:[0-9a-f]{8}|secret [^\]]*|unreadable \d+ chars [^\]]*|nested too deep)\]"
)
"""The texts that redaction inserts (`events.redaction`, `events.serialization`)."""

CallShape = tuple[str, ...]
"""A tool and its arguments, sorted: what must be equal for two calls to be the same step."""


@dataclass(frozen=True, slots=True)
class Step:
    shape: CallShape
    marks: tuple[str, ...]
    """One for each argument, in the order of the shape."""
    at: str
    ms: float
    call: str
    program: str = ""
    """The call of the program that made it; empty: the model did."""

    @property
    def tool(self) -> str:
        return self.shape[0]

    def to_json(self) -> list[Any]:
        return [list(self.shape), list(self.marks), self.at, self.ms, self.call, self.program]


Segment = tuple[Step, ...]
"""Steps that followed each other in one turn, with nothing between them."""


def make_step(tool: str, args: Mapping[str, Any], at: str, ms: float, call: str, program: str = "") -> Step | None:
    """Builds a step; None for a call with too many arguments or too long names."""
    names = sorted(args)
    if len(names) > _MOST_ARGUMENTS or any(not name or len(name) > _LONGEST_NAME for name in (tool, *names)):
        return None
    return Step((tool, *names), tuple(value_mark(args[name]) for name in names), at, ms, call, program)


def step_from_json(kept: Any) -> Step:
    """The reverse of `to_json`; ValueError or TypeError for anything else."""
    shape, marks, at, ms, call, program = kept
    found = Step(tuple(map(str, shape)), tuple(map(str, marks)), str(at), float(ms), str(call), str(program))
    if not found.shape or len(found.shape) != len(found.marks) + 1 or not all(found.marks):
        raise ValueError("not a step")
    return found


def value_mark(value: Any) -> str:
    if value is None:
        return NULL_MARK
    if is_redacted(value):
        return HIDDEN_MARK
    try:
        return f"{_value_kind(value)}:{digest(value)[:_DIGITS]}"
    except (ValueError, RecursionError):  # no JSON, so it cannot be compared
        return HIDDEN_MARK


def is_redacted(value: Any, depth: int = _DEEPEST) -> bool:
    """Whether redaction stood in for any part of it; what is nested too deep to tell counts as that."""
    if isinstance(value, str):
        return "[" in value and _REDACTION_MARKER.search(value) is not None
    if isinstance(value, Mapping):
        return depth == 0 or any(is_redacted(part, depth - 1) for pair in value.items() for part in pair)
    if isinstance(value, (list, tuple)):
        return depth == 0 or any(is_redacted(part, depth - 1) for part in value)
    return False


def _value_kind(value: Any) -> str:
    if isinstance(value, bool):
        return "b"
    if isinstance(value, str):
        return "s"
    if isinstance(value, int):
        return "i"
    if isinstance(value, float):
        return "n"
    if isinstance(value, list):
        kinds = {_value_kind(item) for item in value} or {"s"}
        return f"a{kinds.pop()}" if len(kinds) == 1 and kinds <= {"s", "i", "n", "b"} else _OTHER_KIND
    return _OTHER_KIND


MOST_SESSION_STEPS: Final = 2_000
_LONGEST_LINE: Final = 8 << 20
_HEAD_BYTES: Final = 200
_TYPE: Final = b'"type":"'
_CALL_RECORDS: Final = frozenset([b"proposed", b"started", b"begun", b"finished", b"done"])
_RELEVANT_EVENTS: Final = (b'"event":"message"', b'"event":"toolSuggested"')
_RESULTS: Final = b'"message":{"role":"results"'
_SPLITTING_TOOLS: Final = frozenset({"create_custom_tool", "run_custom_tool"})
_BY_MODEL: Final = "llm"
_MOST_OF_PROGRAM: Final = 500
"""Calls of one program that are compared with others."""


@dataclass(slots=True)
class _Turn:
    calls: dict[str, None] = field(default_factory=dict)
    """Calls in the order the model asked for them."""
    answered: bool = False


class TurnReader:
    def __init__(self) -> None:
        self.suggested: list[Any] = []
        """The sequences that this session's `toolSuggested` events named."""
        self._segments: deque[Segment] = deque()
        self._steps = 0
        self._turns: dict[str, _Turn] = {}
        """Worker run → the turn it is in."""
        self._states = CallRecords()
        self._given: dict[str, tuple[str, ...]] = {}
        """Call → the arguments that the model gave; the record of its start has the defaults too."""
        self._inside: dict[str, list[Step | None]] = {}
        """Program → the calls it made, in the order they ended; None: one that was no success."""

    def add(self, record: Mapping[str, Any]) -> None:
        kind = record.get("type")
        if kind == "history":
            self._said(str(record.get("workerId", "")), record.get("message"))
        elif kind == "event":
            self._event(record)
        elif (call := self._states.add(record)) is not None:
            self._called(call, record)

    def answered(self) -> tuple[Segment, ...]:
        """Returns the segments of finished turns; an unfinished one may yet become a longer sequence."""
        return self._all(turn for turn in self._turns.values() if turn.answered)

    def unfinished(self) -> tuple[Segment, ...]:
        """Returns the last steps of each unfinished turn."""
        going_on = [turn for turn in self._turns.values() if not turn.answered and turn.calls]
        last = [(self._parted(turn, least=1), next(reversed(turn.calls))) for turn in going_on]
        return tuple(parts[-1] for parts, call in last if parts and call in (parts[-1][-1].call, parts[-1][-1].program))

    def all(self) -> tuple[Segment, ...]:
        """Returns the segments of a session that has ended, in whatever way."""
        return self._all(iter(self._turns.values()))

    def _all(self, turns: Iterator[_Turn]) -> tuple[Segment, ...]:
        return (*self._segments, *(segment for turn in turns for segment in self._parted(turn)))

    def _said(self, worker: str, message: Any) -> None:
        if not isinstance(message, dict):
            return
        if message.get("role") == "user" and message.get("kind") == "input":
            self._close(worker)
        elif message.get("role") == "assistant":
            calls = message.get("calls")
            asked = [each for each in calls if isinstance(each, dict)] if isinstance(calls, list) else []
            turn = self._turn(worker)
            turn.answered = not asked
            for each in asked:
                self._asked(turn, str(each.get("id", "")), each.get("args"))

    def _event(self, record: Mapping[str, Any]) -> None:
        data = record.get("data")
        if not isinstance(data, dict):
            return
        message = data.get("message")
        if record.get("event") == "toolSuggested":
            self.suggested.append(data.get("sequence"))
        elif isinstance(message, dict) and message.get("role") == "user":
            self._close(str(record.get("workerId", "")))

    def _called(self, call: CallRecord, record: Mapping[str, Any]) -> None:
        call.value, call.decision, call.more = None, None, {}  # large, and nobody asks here
        if call.caller == _BY_MODEL and record.get("type") in ("proposed", "begun", "done"):
            args = record.get("args") if record["type"] == "proposed" else None
            self._asked(self._turn(call.worker_id or call.worker), call.id, args)
        elif call.caller != _BY_MODEL and call.finished_at:
            above = self._states.calls.get(call.parent)
            if above is not None and above.tool == RUN_CODE:
                inside = self._inside.setdefault(above.id, [])
                if len(inside) < _MOST_OF_PROGRAM:
                    inside.append(self._step(call.id, above.id))
            del self._states.calls[call.id]

    def _asked(self, turn: _Turn, call: str, args: Any) -> None:
        turn.answered = False
        turn.calls.setdefault(call)  # a response with its calls and the calls themselves are both on record
        if isinstance(args, dict):
            self._given.setdefault(call, tuple(args))

    def _turn(self, worker: str) -> _Turn:
        return self._turns.setdefault(worker, _Turn())

    def _close(self, worker: str) -> None:
        turn = self._turns.pop(worker, None)
        if turn is None:
            return
        for segment in self._parted(turn):
            self._segments.append(segment)
            self._steps += len(segment)
        while self._steps > MOST_SESSION_STEPS:
            self._steps -= len(self._segments.popleft())
        for call in turn.calls:
            self._states.calls.pop(call, None)
            self._given.pop(call, None)
            self._inside.pop(call, None)

    def _parted(self, turn: _Turn, least: int = 2) -> list[Segment]:
        steps: list[Step | None] = []
        for call in list(turn.calls)[-MOST_SESSION_STEPS:]:
            one = self._step(call)
            if one is not None and one.tool == RUN_CODE:
                steps += [None, *self._inside.get(call, ()), None]
            else:
                steps.append(one)
        found: list[Segment] = []
        row: list[Step] = []
        for step in (*steps, None):
            if step is not None:
                row.append(step)
                continue
            found.append(tuple(row))
            row = []
        return [segment for segment in found if len(segment) >= least]

    def _step(self, call_id: str, program: str = "") -> Step | None:
        call = self._states.calls.get(call_id)
        if call is None or call.status != Status.SUCCESS or not isinstance(call.args, dict):
            return None
        if _SPLITTING_TOOLS & {call.tool, call.requested}:
            return None
        given = self._given.get(call_id)
        asked = given is not None and call.args.keys() >= set(given)  # else a name was written in another way
        args = {name: call.args[name] for name in given} if given is not None and asked else call.args
        ms = float(call.duration_ms) if isinstance(call.duration_ms, (int, float)) else 0.0
        return make_step(call.tool, args, call.proposed_at, ms, call.id, program)


class JournalTail:
    """A journal that may still be written: each time, the records that are new since the last one."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._read = 0

    def records(self) -> Iterator[dict[str, Any]]:
        """Yields the new records that a TurnReader uses. Raises OSError if the file cannot be read."""
        with self.path.open("rb") as file:
            file.seek(self._read)
            while line := _read_line(file):
                self._read = file.tell()
                if _is_relevant(line) and (record := parse_line(line[:-1])) is not None:
                    yield record


def _read_line(file: BinaryIO) -> bytes:
    """The next whole line; only the beginning of one that is longer than any record is. Empty: there is none yet."""
    line = piece = file.readline(_LONGEST_LINE)
    while piece and not piece.endswith(b"\n"):
        piece = file.readline(_LONGEST_LINE)
    return line if piece else b""


def _is_relevant(line: bytes) -> bool:
    """Whether to decode a line; most lines of a journal are results and display events, which are skipped."""
    head = line[:_HEAD_BYTES]
    at = head.find(_TYPE)
    kind = head[at + len(_TYPE) : at + len(_TYPE) + 12].partition(b'"')[0] if at > 0 else b""
    if kind in _CALL_RECORDS:
        return True
    if kind == b"event":
        return any(said in head for said in _RELEVANT_EVENTS)
    return kind == b"history" and _RESULTS not in head


DAYS: Final = 30
DAY_S: Final = 86_400
MOST_SESSIONS: Final = 500
MOST_STEPS: Final = 20_000
MOST_JOURNAL_BYTES: Final = 64 << 20
"""Bytes of journals in one look. The first look at many old ones leaves some for the next."""
_CACHE_VERSION: Final = 2
_CACHE_FOLDER: Final = "cache"
_CACHE_FILE: Final = "suggestions.json"
_LARGEST_CACHE: Final = 64 << 20


@dataclass(frozen=True, slots=True)
class SessionCalls:
    id: str
    segments: tuple[Segment, ...]


@dataclass(frozen=True, slots=True)
class _CachedSession:
    size: int
    changed: int
    segments: tuple[Segment, ...]

    def to_json(self) -> list[Any]:
        return [self.size, self.changed, [[step.to_json() for step in segment] for segment in self.segments]]


def recent_sessions(home: ForgeHome, *, without: str = "", now: float | None = None) -> tuple[SessionCalls, ...]:
    """Newest first. `without`: the session that looks, which knows its own turns better."""
    since = (time.time() if now is None else now) - DAYS * DAY_S
    known = _load_cache(home)
    there: dict[str, _CachedSession] = {}
    budget = MOST_JOURNAL_BYTES
    for path, stat in _journals(home, since, without):
        kept = known.get(path.stem)
        if kept is None or (kept.size, kept.changed) != (stat.st_size, stat.st_mtime_ns):
            budget -= stat.st_size
            if budget < 0:
                continue
            kept = _CachedSession(stat.st_size, stat.st_mtime_ns, _segments(path))
        there[path.stem] = kept
    if there != {id: kept for id, kept in known.items() if id != without}:
        _save_cache(home, there)
    return tuple(_bounded_sessions(there))


def _journals(home: ForgeHome, since: float, without: str) -> Iterable[tuple[Path, os.stat_result]]:
    for path in list_journals(home.path)[:MOST_SESSIONS]:
        with contextlib.suppress(OSError):
            stat = path.stat()
            if stat.st_mtime >= since and path.stem != without:
                yield path, stat


def _segments(path: Path) -> tuple[Segment, ...]:
    """A session that is still at work may be in the middle of a turn."""
    turns = TurnReader()
    try:
        for record in JournalTail(path).records():
            turns.add(record)
    except OSError:
        return ()
    return turns.answered() if is_locked(path) else turns.all()


def _bounded_sessions(there: dict[str, _CachedSession]) -> Iterable[SessionCalls]:
    room = MOST_STEPS
    for id, kept in there.items():
        room -= sum(map(len, kept.segments))
        if room < 0:
            return
        if kept.segments:
            yield SessionCalls(id, kept.segments)


def _load_cache(home: ForgeHome) -> dict[str, _CachedSession]:
    try:
        cached = read_json(home.path / _CACHE_FOLDER / _CACHE_FILE, _LARGEST_CACHE)
        if cached["version"] != _CACHE_VERSION:
            return {}
        return {
            str(id): _CachedSession(
                int(size), int(changed), tuple(tuple(map(step_from_json, each)) for each in segments)
            )
            for id, (size, changed, segments) in cached["sessions"].items()
        }
    except JSON_FILE_ERRORS:
        return {}


def _save_cache(home: ForgeHome, there: dict[str, _CachedSession]) -> None:
    """Writes the cache completely or not at all; without it the journals are read again the next time."""
    sessions = {id: session.to_json() for id, session in there.items()}
    text = json.dumps({"version": _CACHE_VERSION, "sessions": sessions}, separators=(",", ":"))
    with contextlib.suppress(OSError, UnicodeError):
        write_private(home.ensure(_CACHE_FOLDER) / _CACHE_FILE, text.encode(), durable=False)


LONGEST_SEQUENCE: Final = 6
SHORTEST_SEQUENCE: Final = 2
MIN_OCCURRENCES: Final = 3
MIN_SESSIONS: Final = 2
MOST_FOUND: Final = 50
_LONGEST_PAUSE_MS: Final = 600_000.0

CallSequence = tuple[CallShape, ...]


@dataclass(frozen=True, slots=True)
class Occurrence:
    session: str
    steps: Segment

    @property
    def elapsed_ms(self) -> float:
        """The time from the first call to the end of the last, with the model's requests and people's answers in
        between; each pause counts ten minutes at most.
        """
        spent = sum(step.ms for step in self.steps)
        try:
            begins = [datetime.fromisoformat(step.at).timestamp() * 1000 for step in self.steps]
        except ValueError:
            return spent
        pairs = pairwise(begins)
        return max(spent, sum(min(max(b - a, 0.0), _LONGEST_PAUSE_MS) for a, b in pairs) + self.steps[-1].ms)


@dataclass(frozen=True, slots=True)
class RepeatedSequence:
    sequence: CallSequence
    occurrences: tuple[Occurrence, ...]

    @property
    def key(self) -> str:
        return sequence_key(self.sequence)

    @property
    def complete(self) -> tuple[Occurrence, ...]:
        return tuple(each for each in self.occurrences if len(each.steps) == len(self.sequence))

    @property
    def begun(self) -> Occurrence | None:
        """The occurrence that is not at its end yet, or None."""
        return next((each for each in self.occurrences if len(each.steps) < len(self.sequence)), None)

    @property
    def sessions(self) -> int:
        return len({each.session for each in self.occurrences})

    @property
    def last(self) -> str:
        return max(each.steps[-1].at for each in self.occurrences)


def sequence_key(run: Sequence[Sequence[str]]) -> str:
    """Returns the key of a sequence, which is the same in every session."""
    return f"s{digest([list(shape) for shape in run])[:12]}"


def find_repeated(
    sessions: Iterable[SessionCalls], *, own: Collection[str] = (), since: str = "", nearly: bool = False
) -> tuple[RepeatedSequence, ...]:
    """`own`: names of user tools; a call of one is what a suggestion leads to, so it is part of none. `nearly`: those
    too that one more place would make a repeated one.

    The longest first, then those seen most often."""
    rows = [
        _StepRow(session.id, part)
        for session in sessions
        for segment in session.segments
        for part in _split_segment(segment, own, since)
    ]
    found: list[RepeatedSequence] = []
    for length in range(LONGEST_SEQUENCE, SHORTEST_SEQUENCE - 1, -1):
        places: dict[CallSequence, list[_Position]] = defaultdict(list)
        for row in rows:
            for at in range(len(row.steps) - length + 1):
                places[tuple(row.shapes[at : at + length])].append((row, at))
        found += _choose(places, MOST_FOUND - len(found), nearly)
    return tuple(found)


@dataclass(slots=True)
class _StepRow:
    """Steps in a row; those that belong to a run already are taken."""

    session: str
    steps: Segment
    shapes: list[CallShape] = field(init=False)
    taken: bytearray = field(init=False)

    def __post_init__(self) -> None:
        self.shapes = [step.shape for step in self.steps]
        self.taken = bytearray(len(self.steps))

    def free(self, at: int, length: int) -> bool:
        return not any(self.taken[at : at + length])

    def take(self, at: int, length: int) -> None:
        self.taken[at : at + length] = b"\1" * length


_Position = tuple[_StepRow, int]


def _choose(places: dict[CallSequence, list[_Position]], most: int, nearly: bool) -> list[RepeatedSequence]:
    """Selects among runs of one length. If two share steps, the more frequent one gets them."""
    found: list[RepeatedSequence] = []
    least = MIN_OCCURRENCES - nearly
    often = {run: where for run, where in places.items() if len(where) >= least}
    for run in sorted(often, key=lambda run: -len(_without_overlaps(often[run], len(run)))):
        where = _without_overlaps([(row, at) for row, at in often[run] if row.free(at, len(run))], len(run))
        only_one_step = len(run) > SHORTEST_SEQUENCE and len(set(run)) == 1
        if only_one_step or len(where) < least or len(found) >= most:
            continue
        seen = tuple(Occurrence(row.session, row.steps[at : at + len(run)]) for row, at in where)
        one = RepeatedSequence(run, seen)
        if one.sessions >= MIN_SESSIONS - nearly:
            for row, at in where:
                row.take(at, len(run))
            found.append(one)
    return sorted(found, key=lambda each: -len(each.occurrences))


def _without_overlaps(where: list[_Position], length: int) -> list[_Position]:
    """Returns the positions that do not overlap, from the left. `where` is in order within each row."""
    apart: list[_Position] = []
    for row, at in where:
        if not apart or apart[-1][0] is not row or at >= apart[-1][1] + length:
            apart.append((row, at))
    return apart


def _split_segment(segment: Segment, own: Collection[str], since: str) -> Iterable[Segment]:
    """Splits a segment at calls of user tools and old calls, and where a run begins again."""
    start = 0
    for at in range(len(segment) + 1):
        if at == len(segment) or segment[at].tool in own or segment[at].at < since:
            yield from _split_repeats(segment[start:at])
            start = at + 1


def _split_repeats(segment: Segment) -> Iterable[Segment]:
    """a b c a b c a → a b c | a b c | a. A repeated run would otherwise hide in longer ones: abca, bcabc, …"""
    shapes = [step.shape for step in segment]
    cuts: set[int] = set()
    at = 0
    while at < len(shapes):
        period = _repeat_length(shapes, at)
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
        if end - start >= SHORTEST_SEQUENCE:
            yield segment[start:end]


def _repeat_length(shapes: list[CallShape], at: int) -> int:
    """The length of the run that stands at `at` twice in a row; 0 if none does. One step over and over is none."""
    for period in range(SHORTEST_SEQUENCE, LONGEST_SEQUENCE + 1):
        run = shapes[at : at + period]
        if run == shapes[at + period : at + 2 * period] and len(run) == period and len(set(run)) > 1:
            return period
    return 0
