"""The records of a journal: how they are written, and what they say about each call.

`CallRecords` collects what the records know. `finished` calls have an outcome. `never_started` calls were proposed,
perhaps decided, and no effect can have happened. `ambiguous` calls were about to run when the records end: they may
have run, so they are never repeated. An id that comes again after its call finished is a new call.

A Decision is kept without fields at their defaults; `full_decision` puts them back. `decidedBy` is the index of the
deciding source in `sources`. Fingerprint and args_key are written for every call that needed an answer: they say what
was approved. A call that was simply preApproved is kept without them; hashing every quick call would cost more than
recording it.

`RecordEncoder` writes values redacted, as JSON, never longer than a line may be. `split_record` divides a record that
is too long for a line into `part` records; `RecordJoiner` and `join_records` put them together. A record that a crash
left without its last part does not exist. Beyond 64 MiB only length and digest are kept, under `tooLong`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from enum import StrEnum
from hashlib import sha256
from json.encoder import encode_basestring_ascii as quoted
from typing import Any, Final

from golem_forge.core.decisions import AnsweredBy, Decision, Verdict, VerdictSource
from golem_forge.core.lazy_dataclass import dataclass, field, replace
from golem_forge.core.text import clip
from golem_forge.events.serialization import decode_json, encode_json


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
