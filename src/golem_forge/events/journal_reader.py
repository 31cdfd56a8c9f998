"""The journal's reader: streams records, checks the chain, and tells an accident from tampering.

`read` gives every whole record. `scan` reads a file once and tells its state; `verify` adds what only the world around
the file can tell. A torn last line (a crash or a full disk in mid-write) is reported as torn, never as tampering;
a problem is named by its line number.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from golem_forge.core.lazy_dataclass import dataclass, field
from golem_forge.events.journal_files import CHAIN_START, Anchor, is_locked, next_hash, read_anchor, unseal_line
from golem_forge.events.journal_records import CallRecords, call_event
from golem_forge.events.serialization import Event, decode_json

Record = dict[str, Any]
_MAX_PROBLEMS = 100
_MAX_READS = 3
_EARLIER_LINES = 64
"""Number of earlier lines that a line may follow after a fault, so that an inserted or moved line is reported once."""


class JournalProblem(NamedTuple):
    line: int
    what: str


@dataclass(slots=True, kw_only=True)
class JournalScan:
    """The result of one pass over a journal."""

    lines: int = 0
    hash: str = CHAIN_START
    size: int = 0
    """Bytes up to the end of the last whole line."""
    torn: int = 0
    """Bytes of an unfinished last line."""
    seq: int = 0
    closed: bool = False
    session_id: str = ""
    problems: list[JournalProblem] = field(default_factory=list)
    hashes: dict[int, str] = field(default_factory=dict)
    """The hashes of the requested lines."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Verification:
    ok: bool
    lines: int
    problems: list[JournalProblem]
    """The lines that were changed."""
    notes: list[str]
    """Remarks that prove nothing: `torn last line`, `not closed`, `in use`."""


def parse_body(body: bytes) -> Record | None:
    try:
        record = decode_json(body + b"}")
    except (ValueError, RecursionError):
        return None
    return record if isinstance(record, dict) else None


def parse_line(line: bytes) -> Record | None:
    """The record of a line without its newline, hash not checked; None for what is no record."""
    parts = unseal_line(line)
    return parse_body(parts[0]) if parts else None


def _whole_lines(path: Path) -> Iterator[tuple[bytes, bool]]:
    with path.open("rb") as file:
        for line in file:
            yield (line[:-1], True) if line.endswith(b"\n") else (line, False)


def read(path: Path) -> Iterator[Record]:
    """Every readable record in file order, without its hash. The chain is not checked; a torn last line is left out."""
    for line, whole in _whole_lines(path):
        if whole and (record := parse_line(line)) is not None:
            yield record


def read_between(path: Path, first: int, last: int, *, naming: bytes) -> Iterator[Record]:
    """The readable records that hold `naming`, from the one that begins at byte `first` to the one at `last`."""
    with path.open("rb") as file:
        file.seek(first)
        while first <= last and (line := file.readline()).endswith(b"\n"):
            first += len(line)
            if naming in line and (record := parse_line(line[:-1])) is not None:
                yield record


def scan(
    path: Path, *, want: frozenset[int] = frozenset(), take: Callable[[Record], object] | None = None
) -> JournalScan:
    """Checks every line against the chain. `want` names lines whose hashes are needed; `take` is given each record up
    to the first problem."""
    found = JournalScan()
    earlier: list[str] = []
    for number, (line, whole) in enumerate(_whole_lines(path), start=1):
        if not whole:
            found.torn = len(line)
            break
        found.lines = number
        found.size += len(line) + 1
        parts = unseal_line(line)
        record = parse_body(parts[0]) if parts else None
        if parts is None or record is None:
            _add_problem(found, number, "is not a journal record (changed)")
            continue
        body, hash = parts
        if next_hash(found.hash, body) != hash and not any(next_hash(one, body) == hash for one in earlier):
            _add_problem(found, number, _fault(number, record))
        if found.problems:
            earlier = [*earlier[-_EARLIER_LINES:], found.hash]
        found.hash = hash
        if number in want:
            found.hashes[number] = hash
        _apply_record(found, number, record)
        if take is not None and not found.problems:
            take(record)
    return found


def _apply_record(found: JournalScan, number: int, record: Mapping[str, Any]) -> None:
    kind = record.get("type")
    if found.closed and kind != "resumed":
        _add_problem(found, number, "follows the end of the session, which was not resumed: it was added")
    found.closed = kind == "closed"
    if isinstance(record.get("seq"), int):
        found.seq = record["seq"]
    if number == 1:
        found.session_id = str(record.get("sessionId", ""))
        if kind != "session" and not found.problems:
            _add_problem(found, 1, "is not the first line of a session")


def _fault(number: int, record: Mapping[str, Any]) -> str:
    named = record.get("n")
    if not isinstance(named, int) or named == number:
        return "does not match its hash: it, or the line before it, was changed"
    if named > number:
        return f"was line {named}: lines before it are missing, or it was moved"
    return f"was line {named}: it was moved or inserted here"


def _add_problem(found: JournalScan, number: int, what: str) -> None:
    if len(found.problems) < _MAX_PROBLEMS:
        found.problems.append(JournalProblem(number, what))


def check_anchor(found: JournalScan, anchor: Anchor, verdict: str = ": it was rewritten") -> list[JournalProblem]:
    """`found` must come from a scan that was asked for the anchor's line; `verdict` ends the text about a hash."""
    if found.lines < anchor.lines:
        return [JournalProblem(found.lines + 1, f"lines {found.lines + 1} to {anchor.lines} are missing at the end")]
    if found.hashes.get(anchor.lines) != anchor.hash:
        return [JournalProblem(anchor.lines, f"has another hash than the one kept outside this file{verdict}")]
    return []


def _check_end(found: JournalScan, head: Anchor | None) -> list[JournalProblem]:
    """A closed journal is exactly as long as its anchor says, and has one."""
    if head is None:
        what = "closes the session, but the .head file that proves its length is gone or unreadable"
        return [JournalProblem(found.lines, what)]
    if found.lines > head.lines:
        return [JournalProblem(head.lines + 1, "comes after the end that was kept outside this file: it was added")]
    return []


def verify(path: Path, anchor: Anchor | None = None) -> Verification:
    """Whether the file is what was written. `anchor`: what another record (the index) knows about its length."""
    for _ in range(_MAX_READS):
        head = read_anchor(path)
        anchors = [known for known in (head, anchor) if known is not None]
        found = scan(path, want=frozenset(known.lines for known in anchors))
        held = is_locked(path)
        if head == read_anchor(path):  # else a writer closed or resumed the session meanwhile
            break
    problems = list(found.problems)
    for known in anchors:
        problems += check_anchor(found, known, " (rewritten)")
    if found.session_id and found.session_id != path.stem:
        problems.append(JournalProblem(1, f"belongs to session {found.session_id}"))
    if found.closed and not held:
        problems += _check_end(found, head)
    if not found.lines and not held:
        problems.append(JournalProblem(1, "the file holds no record"))
    notes = []
    if found.torn and not held:
        notes.append(f"torn last line ({found.torn} bytes): the writer was stopped while writing it")
    if held:
        notes.append("in use")
    elif not found.closed:
        notes.append("not closed: the session crashed, or lines are missing at the end")
    unique = list(dict.fromkeys(problems))
    return Verification(ok=not unique, lines=found.lines, problems=unique, notes=notes)


class EventReader:
    """Takes the records of one journal in order, and gives the UI events that they stand for.

    The start and the end of a call are kept once, as records of the call; here they become events again.
    """

    def __init__(self) -> None:
        self._session_id = ""
        self._calls = CallRecords()

    def add(self, record: Record) -> Iterator[Event]:
        if record.get("type") == "session":
            self._session_id = str(record.get("sessionId", ""))
        call = self._calls.add(record)
        for number, kind, record_type in _numbered(record):
            if call is None:
                name, data, worker = kind, record["data"], record.get("workerId", "")
            else:
                name, data = call_event(record_type, call)
                worker = call.worker_id or call.worker
            yield Event(name, data, None, number, record["ts"], self._session_id, worker)


def events_after(path: Path, seq: int = 0, limit: int | None = None) -> Iterator[Event]:
    """The recorded UI events with a number above `seq`, in order; at most `limit`."""
    given = 0
    reader = EventReader()
    for record in read(path):
        for event in reader.add(record):
            if event.seq <= seq:
                continue
            if limit is not None and given >= limit:
                return
            given += 1
            yield event


def _numbered(record: Record) -> Iterator[tuple[int, str, str]]:
    """(number, event, record type) of each event that a record stands for: none, one, or the two of a `done`."""
    number = record.get("seq", 0)
    if record.get("type") == "done":
        yield number - 1, "", "begun"
        yield number, "", "finished"
    elif number:
        yield number, record.get("event", ""), record["type"]
