"""record: what happened, to the journal first and then to whoever listens.

Writes `proposed → decided → started → finished` and emits `toolStarted` and `toolResult`. A call whose start cannot
be written does not run (`JournalError` passes through); an end that cannot be written is noted on the Outcome.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

from golem_forge.core.call import Outcome
from golem_forge.events.bus import EventBus
from golem_forge.events.journal import Journal
from golem_forge.events.journal_errors import JournalError
from golem_forge.events.redaction import Redactor
from golem_forge.orchestrator.travel import Travel

_log = logging.getLogger(__name__)


class Recorder:
    def __init__(self, bus: EventBus | None, journal: Journal | None, redactor: Redactor, worker: str) -> None:
        self._bus = bus
        self._journal = journal
        self._redactor = redactor
        self._worker = worker

    def proposed(self, travel: Travel) -> None:
        """The call is on record (not yet on disk); done once."""
        if self._journal is not None and not travel.proposed:
            call = travel.call
            travel.proposed = True
            self._journal.propose(
                call.id, str(call.name)[:200], call.args, call.caller.value, self._worker, call.parent_id
            )

    def before_waiting(self, travel: Travel) -> None:
        """What was proposed must survive a crash while nobody has answered yet."""
        if self._journal is not None:
            self.proposed(travel)
            self._journal.flush()

    def started(self, travel: Travel) -> None:
        """About to run: on disk when this returns. A call that never waited is written as one record."""
        call, tool, journal, seq = travel.call, travel.tool, self._journal, 0
        if journal is not None:
            args, decision = travel.arguments.plain, travel.decision
            assert decision is not None
            if travel.proposed:
                journal.decide(call.id, decision)
                seq = journal.start(call.id, tool.name, args, travel.approved_as)
            else:
                seq = journal.begin(
                    call.id,
                    tool.name,
                    args,
                    decision,
                    call.caller.value,
                    self._worker,
                    call.parent_id,
                    str(call.name),
                    travel.approved_as,
                )
                travel.proposed = True
        self._tell("toolStarted", seq, lambda: _started_data(travel, self._worker))

    def progress(self, call_id: str, progress: float, total: float | None, message: str) -> None:
        if self._bus is not None:
            data: dict[str, Any] = {"toolCallId": call_id, "progress": progress}
            if total is not None:
                data["total"] = total
            if message:
                data["message"] = message
            self._bus.emit("toolProgress", data, self._worker)

    def finished(self, travel: Travel, outcome: Outcome) -> Outcome:
        seq = 0
        if self._journal is not None:
            try:
                seq = self._write_end(self._journal, travel, outcome)
            except JournalError as error:
                _log.error("the end of call %s could not be recorded: %s", outcome.call.id, error.message)
                outcome.notes = (*outcome.notes, f"This result was not recorded: {error.message}")
        self._tell("toolResult", seq, lambda: _result_data(outcome))
        return outcome

    def _write_end(self, journal: Journal, travel: Travel, outcome: Outcome) -> int:
        self.proposed(travel)
        if outcome.decision is not None and not outcome.executed:
            journal.decide(outcome.call.id, outcome.decision)
        return journal.finish(
            outcome.call.id,
            outcome.status.value,
            outcome.duration_ms,
            outcome.error,
            outcome.output_handle,
            outcome.result.value if outcome.result is not None else None,
            _rarer(outcome),
        )

    def _tell(self, kind: str, seq: int, data: Callable[[], dict[str, Any]]) -> None:
        """Whoever listens; an event that nobody would see is not put together."""
        bus = self._bus
        if bus is None:
            return
        if bus.wanted:
            bus.emit(kind, data(), self._worker, recorded_as=seq)
        else:
            bus.seq = seq or bus.seq + 1


def _started_data(travel: Travel, worker: str) -> dict[str, Any]:
    call = travel.call
    data = {
        "toolCallId": call.id,
        "toolName": travel.tool.name,
        "args": travel.arguments.plain,
        "caller": call.caller.value,
        "workerId": worker,
    }
    if travel.tool.label:
        data["label"] = travel.tool.label
    if call.parent_id:
        data["parentCallId"] = call.parent_id
    return data


def _result_data(outcome: Outcome) -> dict[str, Any]:
    decision, result = outcome.decision, outcome.result
    data: dict[str, Any] = {
        "toolCallId": outcome.call.id,
        "toolName": outcome.tool,
        "args": outcome.args if outcome.args is not None else outcome.call.args,
        "status": outcome.status.value,
        "durationMs": round(outcome.duration_ms, 3),
        "decision": decision.to_json() if decision is not None else None,
        "truncated": False,
    }
    optional = {
        "value": result.value if result is not None else None,
        "error": outcome.error,
        "outputHandle": outcome.output_handle,
    }
    return {**data, **{name: value for name, value in optional.items() if value}, **(_rarer(outcome) or {})}


def _rarer(outcome: Outcome) -> dict[str, Any] | None:
    """The members of a `toolResult` that most results do not have."""
    if not (outcome.truncated or outcome.denials or outcome.protected_created):
        return None
    rarer: dict[str, Any] = {"truncated": outcome.truncated}
    if outcome.denials:
        rarer["denials"] = list(outcome.denials)
    if outcome.protected_created:
        rarer["protectedCreated"] = list(outcome.protected_created)
    return rarer
