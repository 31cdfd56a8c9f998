"""record: what happened, to the journal first and then to whoever listens.

Writes `proposed → decided → started → finished` and emits `toolStarted` and `toolResult`. A call whose start cannot
be written does not run (`JournalError` passes through); an end that cannot be written is noted on the Outcome.
"""

from __future__ import annotations

import logging
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
        call, tool, journal = travel.call, travel.tool, self._journal
        if journal is not None:
            args, decision = travel.arguments.plain, travel.decision
            assert decision is not None
            if travel.proposed:
                journal.decide(call.id, decision)
                journal.start(call.id, tool.name, args, travel.approved_as)
            else:
                travel.proposed = True
                journal.begin(
                    call.id, tool.name, args, decision, call.caller.value, self._worker, call.parent_id, str(call.name)
                )
        bus = self._bus
        if bus is not None and bus.wanted:
            data: dict[str, Any] = {
                "toolCallId": call.id,
                "toolName": tool.name,
                "args": travel.arguments.plain,
                "caller": call.caller.value,
                "workerId": self._worker,
            }
            if tool.label:
                data["label"] = tool.label
            if call.parent_id:
                data["parentCallId"] = call.parent_id
            bus.emit("toolStarted", data, self._worker)

    def progress(self, call_id: str, progress: float, total: float | None, message: str) -> None:
        if self._bus is not None:
            data: dict[str, Any] = {"toolCallId": call_id, "progress": progress}
            if total is not None:
                data["total"] = total
            if message:
                data["message"] = message
            self._bus.emit("toolProgress", data, self._worker)

    def finished(self, travel: Travel, outcome: Outcome) -> Outcome:
        if self._journal is not None:
            try:
                self._write_end(self._journal, travel, outcome)
            except JournalError as error:
                _log.error("the end of call %s could not be recorded: %s", outcome.call.id, error.message)
                outcome.notes = (*outcome.notes, f"This result was not recorded: {error.message}")
        if self._bus is not None and self._bus.wanted:
            self._bus.emit("toolResult", _result_data(outcome), self._worker)
        return outcome

    def _write_end(self, journal: Journal, travel: Travel, outcome: Outcome) -> None:
        self.proposed(travel)
        if outcome.decision is not None and not outcome.executed:
            journal.decide(outcome.call.id, outcome.decision)
        journal.finish(
            outcome.call.id,
            outcome.status.value,
            outcome.duration_ms,
            error=outcome.error,
            output_handle=outcome.output_handle,
            summary=_summary(outcome),
        )


def _summary(outcome: Outcome) -> str | None:
    """A few words about a result. The result itself is in the event, or kept by handle."""
    result = outcome.result
    if result is None:
        return None
    first = result.text[:200].partition("\n")[0]
    return first if len(first) == len(result.text) else f"{first} …"


def _result_data(outcome: Outcome) -> dict[str, Any]:
    decision, result = outcome.decision, outcome.result
    data: dict[str, Any] = {
        "toolCallId": outcome.call.id,
        "toolName": outcome.tool,
        "args": outcome.args if outcome.args is not None else outcome.call.args,
        "status": outcome.status.value,
        "durationMs": round(outcome.duration_ms, 3),
        "decision": decision.to_json() if decision is not None else None,
        "truncated": outcome.truncated,
    }
    if result is not None:
        data["value"] = result.value
    if outcome.error:
        data["error"] = outcome.error
    if outcome.output_handle:
        data["outputHandle"] = outcome.output_handle
    if outcome.denials:
        data["denials"] = list(outcome.denials)
    if outcome.protected_created:
        data["protectedCreated"] = list(outcome.protected_created)
    return data
