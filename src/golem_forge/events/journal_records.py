"""The records of a journal: how they are written, how they are read back, and what they say about each call.

`RecordEncoder` writes values redacted, as JSON, never longer than a line may be. `split_record` divides a record that
is too long for a line into `part` records; `RecordJoiner` and `join_records` put them together. A record that a crash
left without its last part does not exist. Beyond 64 MiB only length and digest are kept, under `tooLong`.

`read` gives every whole record. `scan` reads a file once, checks the chain and tells its state; `verify` adds what only
the world around the file can tell. A torn last line (a crash or a full disk in mid-write) is reported as torn, never as
tampering; a problem is named by its line number.

`CallRecords` collects what the records know. `finished` calls have an outcome. `never_started` calls were proposed,
perhaps decided, and no effect can have happened. `ambiguous` calls were about to run when the records end: they may
have run, so they are never repeated. An id that comes again after its call finished is a new call.

A Decision is kept without fields at their defaults; `full_decision` puts them back. `decidedBy` is the index of the
deciding source in `sources`. Fingerprint and args_key are written for every call that needed an answer: they say what
was approved. A call that was simply preApproved is kept without them; hashing every quick call would cost more than
recording it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from enum import StrEnum
from hashlib import sha256
from json.encoder import encode_basestring_ascii as quoted
from pathlib import Path
from typing import Any, Final, NamedTuple

from golem_forge.core.decisions import AnsweredBy, Decision, Verdict, VerdictSource
from golem_forge.core.lazy_dataclass import dataclass, field, replace
from golem_forge.core.text import clip
from golem_forge.events.journal_files import CHAIN_START, Anchor, is_locked, next_hash, read_anchor, unseal_line
from golem_forge.events.serialization import Event, decode_json, encode_json


class RecordedState(StrEnum):
    FINISHED = "finished"
    NEVER_STARTED = "never_started"
    AMBIGUOUS = "ambiguous"


@dataclass(slots=True, kw_only=True)
class CallRecord:
    id: str
    tool: str = ""
    """The canonical name once it is known, until then the requested one."""
    requested: str = ""
    args: Any = None
    caller: str = ""
    worker: str = ""
    worker_id: str = ""
    """Its run, by which events name it; empty: they name it by `worker`."""
    parent: str = ""
    decision: dict[str, Any] | None = None
    fingerprint: str = ""
    status: str = ""
    error: str = ""
    duration_ms: float = 0.0
    output_handle: str = ""
    value: Any = None
    more: dict[str, Any] = field(default_factory=dict)
    """Rarer members of its `toolResult`, by their wire names."""
    proposed_at: str = ""
    started_at: str = ""
    finished_at: str = ""

    @property
    def state(self) -> RecordedState:
        if self.finished_at:
            return RecordedState.FINISHED
        return RecordedState.AMBIGUOUS if self.started_at else RecordedState.NEVER_STARTED


@dataclass(slots=True)
class CallRecords:
    calls: dict[str, CallRecord] = field(default_factory=dict)
    """Records by call id, in the order of proposal."""

    @classmethod
    def from_records(cls, records: Iterable[Mapping[str, Any]]) -> CallRecords:
        states = cls()
        for record in records:
            states.add(record)
        return states

    def by_state(self, state: RecordedState | str) -> list[CallRecord]:
        return [call for call in self.calls.values() if call.state == state]

    def add(self, record: Mapping[str, Any]) -> CallRecord | None:
        """Takes one record in; gives the call it is about, None for a record that is about no call."""
        kind, call_id = record.get("type", ""), record.get("call")
        if kind not in _STEPS or not isinstance(call_id, str):
            return None
        call = self.calls.get(call_id)
        if call is None:
            call = self.calls[call_id] = CallRecord(id=call_id)
        elif call.finished_at and kind != "finished":
            del self.calls[call_id]  # it takes its place in the order anew
            call = self.calls[call_id] = _new_call(call, record)
        for step in _STEPS[kind]:
            step(call, record)
        return call


def _new_call(call: CallRecord, record: Mapping[str, Any]) -> CallRecord:
    if record["type"] in ("proposed", "begun"):
        return CallRecord(id=call.id)
    # It was proposed before the other one finished: what that said still stands, its outcome does not.
    return replace(
        call, status="", error="", duration_ms=0.0, output_handle="", value=None, more={}, started_at="", finished_at=""
    )


def _proposed(call: CallRecord, record: Mapping[str, Any]) -> None:
    call.tool = record.get("tool", "")
    call.requested = record.get("requested", call.tool)
    call.args = record.get("args")
    call.caller = record.get("caller", "")
    call.worker = record.get("worker", "")
    call.worker_id = record.get("workerId", "")
    call.parent = record.get("parent", "")
    call.proposed_at = record.get("ts", "")


def _decided(call: CallRecord, record: Mapping[str, Any]) -> None:
    call.decision = full_decision(record.get("decision", {}))
    call.fingerprint = call.decision["fingerprint"]


def _started(call: CallRecord, record: Mapping[str, Any]) -> None:
    call.tool = record.get("tool", call.tool)
    call.args = record.get("args", call.args)
    call.fingerprint = record.get("fingerprint") or call.fingerprint
    call.started_at = record.get("ts", "")


def _finished(call: CallRecord, record: Mapping[str, Any]) -> None:
    call.status = record.get("status", "")
    call.error = record.get("error", "")
    call.duration_ms = record.get("ms", 0.0)
    call.output_handle = record.get("outputHandle", "")
    call.value = record.get("value")
    call.more = record.get("more", {})
    call.finished_at = record.get("ts", "")


_STEPS: Final[Mapping[str, tuple[Callable[[CallRecord, Mapping[str, Any]], None], ...]]] = {
    "proposed": (_proposed,),
    "decided": (_decided,),
    "started": (_started,),
    "begun": (_proposed, _decided, _started),
    "finished": (_finished,),
    "done": (_proposed, _decided, _started, _finished),
}
"""The parts of each record type. `begun`: a call that did not wait before it ran. `done`: such a call that also touched
nothing.
"""


def call_event(record_type: str, call: CallRecord) -> tuple[str, dict[str, Any]]:
    """(type, data) of the event that a numbered record of a call stands for."""
    data: dict[str, Any] = {"toolCallId": call.id, "toolName": call.tool, "args": call.args}
    if record_type != "finished":
        data |= {"caller": call.caller.partition(":")[0], "workerId": call.worker_id or call.worker}
        return "toolStarted", data | ({"parentCallId": call.parent} if call.parent else {})
    optional = {"value": call.value, "error": call.error, "outputHandle": call.output_handle}
    data |= {"status": call.status, "durationMs": call.duration_ms, "decision": call.decision, "truncated": False}
    return "toolResult", {**data, **{name: value for name, value in optional.items() if value}, **call.more}


_EMPTY_SOURCE: dict[str, Any] = VerdictSource(source="", verdict=Verdict.ASK).to_json()
_EMPTY_DECISION: dict[str, Any] = Decision(verdict=Verdict.ASK).to_json()


def _source_json(source: VerdictSource, redact: Callable[[Any], Any] | None) -> str:
    text = f'{{"source":{quoted(source.source)},"verdict":"{source.verdict._value_}"'
    if source.id:
        text += f',"id":{quoted(source.id)}'
    if source.reason:
        text += f',"reason":{quoted(source.reason if redact is None else redact(source.reason))}'
    if source.file:
        text += f',"file":{quoted(source.file if redact is None else redact(source.file))},"line":{source.line}'
    return text + "}"


def _complete_json(decision: Decision, redact: Callable[[Any], Any] | None) -> str:
    complete = {key: value for key, value in decision.to_json().items() if value}
    return encode_json(complete if redact is None else redact(complete)).decode()


def full_decision(kept: Mapping[str, Any]) -> dict[str, Any]:
    """The complete JSON of a Decision, as `Decision.to_json` gives it."""
    full = {**_EMPTY_DECISION, **kept}
    full["sources"] = [{**_EMPTY_SOURCE, **source} for source in full["sources"]]
    decider = full["decidedBy"]
    if isinstance(decider, int):
        full["decidedBy"] = full["sources"][decider]
    elif decider is not None:
        full["decidedBy"] = {**_EMPTY_SOURCE, **decider}
    return full


MAX_VALUE_BYTES: Final = 4 * 1024 * 1024
"""Arguments are limited to 1 MiB before they are validated; escaping may make them longer."""
_MAX_ERROR_CHARS: Final = 2000


_MAX_CACHED_SOURCES: Final = 512


class RecordEncoder:
    """Values as JSON text, redacted. One journal's: what it remembers goes with the session."""

    def __init__(self, redact: Callable[[Any], Any] | None) -> None:
        self._redact = redact
        self._sources_cache: dict[int, tuple[tuple[VerdictSource, ...], VerdictSource | None, str]] = {}
        """By identity: what always stands for a tool is the same object call after call, and is written out once."""

    def decision(self, decision: Decision) -> str:
        quick = decision.verdict is Verdict.PRE_APPROVED and decision.answered_by is AnsweredBy.NOBODY
        if not quick or decision.message or decision.risk_reasons:
            return _complete_json(decision, self._redact)
        if decision.decided_by is not None and decision.decided_by not in decision.sources:
            return _complete_json(decision, self._redact)
        said = self._sources(decision.sources, decision.decided_by)
        return f'{{"verdict":"preApproved","risk":"{decision.risk._value_}",{said}}}'

    def _sources(self, sources: tuple[VerdictSource, ...], decider: VerdictSource | None) -> str:
        known = self._sources_cache.get(id(sources))
        if known is not None and known[0] is sources and known[1] is decider:
            return known[2]
        place = "" if decider is None else f',"decidedBy":{sources.index(decider)}'
        text = f'"sources":[{",".join([_source_json(source, self._redact) for source in sources])}]{place}'
        if len(self._sources_cache) >= _MAX_CACHED_SOURCES:
            self._sources_cache.clear()
        self._sources_cache[id(sources)] = (sources, decider, text)
        return text

    def json(self, value: Any) -> str:
        return self.written(value if self._redact is None else self._redact(value))

    def written(self, redacted: Any) -> str:
        """Encodes a value that is already redacted; replaces one that is too long by its size and hash."""
        text = encode_json(redacted)
        if len(text) > MAX_VALUE_BYTES:
            return f'"[too long to record: {len(text)} bytes sha256:{sha256(text).hexdigest()[:8]}]"'
        return text.decode()

    def name(self, name: str) -> str:
        """An id or a name. They come from outside too: a model can put a secret there as well as anywhere."""
        return quoted(self._text(name))

    def short(self, text: str) -> str:
        text = self._text(text)  # first: half a secret would not be known any more
        return self.written(clip(text, _MAX_ERROR_CHARS))

    def _text(self, text: str) -> str:
        return text if self._redact is None else str(self._redact(text))


PART_CHARS: Final = 1 << 20
"""Maximum characters of JSON text in one part of a split record."""
MAX_RECORD_BYTES: Final = 64 << 20


def split_record(type: str, fields: bytes) -> Iterator[str]:
    """`fields`: the JSON object of the record's own members."""
    if len(fields) <= PART_CHARS:
        body = fields[1:-1].decode()
        yield f'"type":{quoted(type)},{body}' if body else f'"type":{quoted(type)}'
        return
    if len(fields) > MAX_RECORD_BYTES:
        known = encode_json({"tooLong": f"{len(fields)} bytes sha256:{sha256(fields).hexdigest()[:8]}"})
        yield from split_record(type, known)
        return
    text = fields.decode()
    pieces = [text[at : at + PART_CHARS] for at in range(0, len(text), PART_CHARS)]
    for number, piece in enumerate(pieces, start=1):
        encoded = encode_json(piece).decode()
        yield f'"type":"part","of":{quoted(type)},"part":{number},"parts":{len(pieces)},"text":{encoded}'


class RecordJoiner:
    """Takes records one by one and gives them back whole. The parts of one follow each other; a row that does not is
    left out."""

    def __init__(self) -> None:
        self._pieces: list[str] = []

    def add(self, record: Mapping[str, Any]) -> Mapping[str, Any] | None:
        """The record that is whole now; None after a part that is not the last."""
        if record.get("type") != "part":
            self._pieces = []
            return record
        number, text = record.get("part"), record.get("text")
        if number == 1:
            self._pieces = []
        if number != len(self._pieces) + 1 or not isinstance(text, str):
            self._pieces = []
            return None
        self._pieces.append(text)
        if number != record.get("parts"):
            return None
        whole, self._pieces = "".join(self._pieces), []
        try:
            fields = decode_json(whole)
        except ValueError:
            return None
        if not isinstance(fields, dict):
            return None
        return {"n": record.get("n"), "ts": record.get("ts"), "type": record.get("of"), **fields}


def join_records(records: Iterable[Mapping[str, Any]]) -> Iterator[Mapping[str, Any]]:
    """Yields whole records; joins those that were split."""
    joiner = RecordJoiner()
    for record in records:
        if (whole := joiner.add(record)) is not None:
            yield whole


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
