"""What the journal knows about each call, from its records alone.

`finished` calls have an outcome. `never_started` ones were proposed, perhaps decided, and no effect can have happened.
`ambiguous` ones were about to run when the record ends: they may have run, so they are never repeated. An id that comes
again after its call finished is a new call: its own records alone say what became of it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any

from golem_forge.events.decision_record import full_decision


class CallState(StrEnum):
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
    def state(self) -> CallState:
        if self.finished_at:
            return CallState.FINISHED
        return CallState.AMBIGUOUS if self.started_at else CallState.NEVER_STARTED


@dataclass(slots=True)
class CallStates:
    calls: dict[str, CallRecord] = field(default_factory=dict)
    """By call id, in the order they were proposed."""

    @classmethod
    def from_records(cls, records: Iterable[Mapping[str, Any]]) -> CallStates:
        states = cls()
        for record in records:
            states.add(record)
        return states

    def by_state(self, state: CallState | str) -> list[CallRecord]:
        return [call for call in self.calls.values() if call.state == state]

    def add(self, record: Mapping[str, Any]) -> CallRecord | None:
        """Takes one record in; gives the call it is about, None for a record that is about no call."""
        take = _TAKE.get(record.get("type", ""))
        call_id = record.get("call")
        if take is None or not isinstance(call_id, str):
            return None
        call = self.calls.get(call_id)
        if call is None:
            call = self.calls[call_id] = CallRecord(id=call_id)
        elif call.finished_at and take is not _finished:
            del self.calls[call_id]  # it takes its place in the order anew
            call = self.calls[call_id] = _anew(call, record)
        take(call, record)
        return call


def _anew(call: CallRecord, record: Mapping[str, Any]) -> CallRecord:
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


def _begun(call: CallRecord, record: Mapping[str, Any]) -> None:
    _proposed(call, record)
    _decided(call, record)
    _started(call, record)


def _finished(call: CallRecord, record: Mapping[str, Any]) -> None:
    call.status = record.get("status", "")
    call.error = record.get("error", "")
    call.duration_ms = record.get("ms", 0.0)
    call.output_handle = record.get("outputHandle", "")
    call.value = record.get("value")
    call.more = record.get("more", {})
    call.finished_at = record.get("ts", "")


def _done(call: CallRecord, record: Mapping[str, Any]) -> None:
    """A call that touched nothing and waited for nothing: its start and its end as one."""
    _begun(call, record)
    _finished(call, record)


_TAKE = {
    "proposed": _proposed,
    "decided": _decided,
    "started": _started,
    "begun": _begun,
    "finished": _finished,
    "done": _done,
}


def call_event(record_type: str, call: CallRecord) -> tuple[str, dict[str, Any]]:
    """(type, data) of the event that a numbered record of a call stands for."""
    data: dict[str, Any] = {"toolCallId": call.id, "toolName": call.tool, "args": call.args}
    if record_type != "finished":
        data |= {"caller": call.caller.partition(":")[0], "workerId": call.worker_id or call.worker}
        return "toolStarted", data | ({"parentCallId": call.parent} if call.parent else {})
    optional = {"value": call.value, "error": call.error, "outputHandle": call.output_handle}
    data |= {"status": call.status, "durationMs": call.duration_ms, "decision": call.decision, "truncated": False}
    return "toolResult", {**data, **{name: value for name, value in optional.items() if value}, **call.more}
