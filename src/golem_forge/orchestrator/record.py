"""record: what happened, to the journal first and then to whoever listens.

Writes `proposed → decided → started → finished` and emits `toolStarted` and `toolResult`. A call whose start cannot
be written does not run (`JournalError` passes through); an end that cannot be written is noted on the Outcome.
"""

from __future__ import annotations

import asyncio
import logging
from functools import partial
from typing import Any, cast

from golem_forge.core.calls import Outcome
from golem_forge.core.decisions import Status
from golem_forge.core.errors import ForgeError
from golem_forge.core.json import copy_json
from golem_forge.core.results import ToolResult
from golem_forge.events.journal import CallStart, Journal
from golem_forge.events.journal_files import JournalError
from golem_forge.events.serialization import parse_raw_args
from golem_forge.orchestrator.call_state import CallState, SessionServices
from golem_forge.tools.results import text_is_complete

_log = logging.getLogger(__name__)


class Recorder:
    def __init__(self, services: SessionServices, worker: str, worker_id: str) -> None:
        """`worker` is the worker's path, for policy; `worker_id` is the id of its run, for events."""
        self._bus = services.bus
        self._journal = services.journal
        self._redactor = services.redactor
        self._worker = worker
        self._run = "" if worker_id == worker else worker_id  # written only where it says more
        self._shown_as = worker_id or worker

    def proposed(self, state: CallState) -> None:
        """Records the proposal of a call once, without waiting for the disk."""
        if self._journal is not None and not state.proposed:
            call = state.call
            args = _without_secrets(state, parse_raw_args(call.args))
            self._journal.propose(
                call.id, str(call.name)[:200], args, call.recorded_caller, self._worker, call.parent_id, self._run
            )
            state.proposed = True

    def before_waiting(self, state: CallState) -> None:
        """Flushes the proposal to disk before a person is asked, so that it survives a crash during the wait."""
        if self._journal is not None:
            self.proposed(state)
            self._journal.flush()

    def started(self, state: CallState) -> None:
        """Records the start of a call and returns when it is on disk. A call that never waited is written as one
        record.
        """
        call, tool, journal, seq = state.call, state.tool, self._journal, 0
        if journal is not None:
            args, decision = _without_secrets(state, state.arguments.plain), state.decision
            assert decision is not None
            if state.proposed:
                journal.decide(call.id, decision)
                seq = journal.start(call.id, tool.name, args, state.approved_as)
            else:
                begin = journal.begin_without_effects if tool.effects == () else journal.begin
                caller = call.caller._value_ if not call.caller_name else call.recorded_caller
                who = (caller, self._worker, call.parent_id, str(call.name))
                seq = begin(CallStart(call.id, tool.name, args, decision, *who, worker_id=self._run))
                state.proposed = True
        if self._bus is not None:
            self._bus.show("toolStarted", partial(self._started_data, state), self._shown_as, seq)

    @property
    def commits_later(self) -> bool:
        return self._journal is not None and self._journal.commits_later

    @property
    def admits(self) -> asyncio.Event | None:
        return None if self._journal is None else self._journal.admits

    async def committed(self, state: CallState) -> None:
        """Waits, where the journal is kept remotely, until the record of the start is stored and this process may still
        act. Raises JournalError, and ForgeError after an interrupt.
        """
        assert self._journal is not None
        await self._journal.committed()
        if state.waiting.reason is not None:
            raise ForgeError("Interrupted before it started.", status=Status.INTERRUPTED)

    def progress(self, call_id: str, progress: float, total: float | None, message: str) -> None:
        if self._bus is not None:
            data: dict[str, Any] = {"toolCallId": call_id, "progress": progress}
            if total is not None:
                data["total"] = total
            if message:
                data["message"] = str(message)[:2000]
            self._bus.emit("toolProgress", data, self._shown_as)

    def show(self, event: str, data: dict[str, Any]) -> None:
        """Emits a tool's own display event, e.g. `planUpdated`."""
        if self._bus is not None:
            self._bus.emit(event, cast(dict[str, Any], self._redactor.value(data)), self._shown_as)

    def finished(self, state: CallState, outcome: Outcome) -> Outcome:
        seq = 0
        if self._journal is not None:
            try:
                seq = self._write_end(self._journal, state, outcome)
            except JournalError as error:
                _log.error("the end of call %s could not be recorded: %s", outcome.call.id, error.message)
                outcome.notes = (*outcome.notes, f"This result was not recorded: {error.message}")
        if self._bus is not None:
            self._bus.show("toolResult", partial(self._result_data, state, outcome), self._shown_as, seq)
        tool = state.tool
        if tool is not None and tool.on_outcome is not None:
            try:
                tool.on_outcome(outcome)
            except Exception as error:  # a failing observer must not change what happened
                _log.warning("the outcome of '%s' was not noted: %s", tool.name, type(error).__name__)
        return outcome

    def _write_end(self, journal: Journal, state: CallState, outcome: Outcome) -> int:
        self.proposed(state)
        if outcome.decision is not None and not outcome.executed:
            journal.decide(outcome.call.id, outcome.decision)
        value, members = self._shown_value(state, outcome.result), _optional_members(outcome)
        ended = (outcome.status, outcome.duration_ms, outcome.error, outcome.output_handle)
        return journal.finish(outcome.call.id, *ended, value, members)

    def _shown_value(self, state: CallState, result: ToolResult | None) -> dict[str, Any] | None:
        """Returns the value without credentials, found by name; known secrets were redacted when the tool returned. The
        content of a secret file goes only to the caller it was approved for, not into a log.
        """
        if result is None:
            return None
        if state.reads_secret:
            return {"kind": "text", "content": "[the content of a secret file is not recorded]"}
        if text_is_complete(result):
            return result.value
        return cast(dict[str, Any], self._redactor.value(result.value))

    def shown_args(self, state: CallState, args: Any) -> Any:
        """Returns a copy of the arguments, so that a listener can change neither the call nor its Outcome."""
        return copy_json(self._redactor.value(_without_secrets(state, args)))

    def _started_data(self, state: CallState) -> dict[str, Any]:
        call = state.call
        data = {
            "toolCallId": call.id,
            "toolName": state.tool.name,
            "args": self.shown_args(state, state.arguments.plain),
            "caller": call.caller.value,
            "workerId": self._shown_as,
        }
        return data | _given({"label": state.tool.label, "parentCallId": call.parent_id})

    def _result_data(self, state: CallState, outcome: Outcome) -> dict[str, Any]:
        args = outcome.args if outcome.args is not None else parse_raw_args(outcome.call.args)
        decision = state.decision
        if decision is None:
            shown_decision = None
        elif state.judged is None:
            shown_decision = decision.without_keys()
        else:
            shown_decision = self._redactor.value(decision.to_json())
        data: dict[str, Any] = {
            "toolCallId": outcome.call.id,
            "toolName": outcome.tool,
            "args": self.shown_args(state, args),
            "status": outcome.status.value,
            "durationMs": round(outcome.duration_ms, 3),
            "decision": shown_decision,
            "truncated": False,
        }
        optional = {
            "value": copy_json(self._shown_value(state, outcome.result)),
            "error": outcome.error,
            "outputHandle": outcome.output_handle,
        }
        return data | _given(optional) | (_optional_members(outcome) or {})


def _without_secrets(state: CallState, args: Any) -> Any:
    """Removes the values of secret fields. `args` may be anything: the call may have been refused before validation."""
    tool = state.tool
    return args if tool is None or not tool.secret_fields else tool.without_secrets(args)


def _given(members: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in members.items() if value}


def _optional_members(outcome: Outcome) -> dict[str, Any] | None:
    """Returns the members of a `toolResult` that most results do not have."""
    if not (outcome.truncated or outcome.denials or outcome.protected_created or outcome.leftovers or outcome.media):
        return None
    lists = {
        "denials": list(outcome.denials),
        "protectedCreated": list(outcome.protected_created),
        "leftovers": [one.to_wire() for one in outcome.leftovers],
        "media": [one.to_wire() for one in outcome.media],
    }
    return {"truncated": outcome.truncated} | _given(lists)
