"""The loop: request → response → its calls through the one path → results → next request, until an answer.

Takes one input, gives one RunResult; never raises for what a model or a tool does. Errors of tools are results the
model reads. Only an interrupt, a budget, the model's failure and the iteration limit end a run early, and then the
history is whole: every requested call has exactly one result.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Final

from golem_forge.core.call import Caller, Outcome, ToolCall
from golem_forge.core.errors import ForgeError, error_name
from golem_forge.tools.json_values import valid_unicode
from golem_forge.workers.answers import answer_json, check_answer, repair_request
from golem_forge.workers.budget import BudgetExceeded
from golem_forge.workers.context import ContextExceeded
from golem_forge.workers.dialogue import WITHHELD, Dialogue
from golem_forge.workers.fencing import fenced
from golem_forge.workers.interrupting import Interrupted, unless_interrupted
from golem_forge.workers.messages import (
    AssistantMessage,
    Attachment,
    CallResult,
    RequestedCall,
    ResultsMessage,
    UserMessage,
)
from golem_forge.workers.models.flood import TOO_LARGE
from golem_forge.workers.models.layer import ModelError
from golem_forge.workers.repetition import Repetition
from golem_forge.workers.run_result import RunResult, RunStatus
from golem_forge.workers.station import Station

_log = logging.getLogger(__name__)
INTERRUPTED_TEXT: Final = "[Interrupted]"
USER_INTERRUPTED: Final = "The user interrupted before these finished."
_RUNS_COMMANDS: Final = "exec_command"
USER_CUT_IN: Final = "The user interrupted before this was finished."
USER_STOPPED: Final = "The user denied this and ended the turn."


class _Ends(Exception):
    """The run ends here, without an answer."""

    def __init__(self, status: RunStatus, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.message = message


async def _nothing() -> None:
    return None


@dataclass(slots=True, kw_only=True)
class Loop:
    dialogue: Dialogue
    before_turn: Callable[[], Awaitable[None]] = field(default=_nothing)
    """Looks at what may have changed since the last request (tool modules)."""
    tool_calls: int = 0
    """Of the last input."""
    stopped: bool = False
    """A person denied a call and ended the turn."""

    @property
    def station(self) -> Station:
        return self.dialogue.station

    async def answer(self, text: str, attachments: Sequence[Attachment] = ()) -> RunResult:
        dialogue = self.dialogue
        self.tool_calls, self.stopped = 0, False
        deadline = self._arm_deadline()
        try:
            if _RUNS_COMMANDS in self.station.catalog:
                # Tried once; the prompt says which walls commands run in.
                await unless_interrupted(self.station.signal, self.station.walls.report())
            dialogue.history.add(UserMessage(text=self._for_the_model(text), attachments=tuple(attachments)))
            return self._result(RunStatus.COMPLETED, response=await self._until_answered())
        except Interrupted as stopped:
            self._note_stopped_words()
            if over := self._over_time(stopped):
                return self._result(RunStatus.LIMIT, error=over)
            return self._result(stopped.status, response=INTERRUPTED_TEXT)
        except (BudgetExceeded, ContextExceeded) as error:
            return self._result(RunStatus.LIMIT, error=error.message)
        except _Ends as end:
            return self._result(end.status, error=end.message)
        except ModelError as error:
            there = error.code in (WITHHELD, TOO_LARGE)  # the model was there, its answer is none
            return self._result(RunStatus.FAILED if there else RunStatus.MODEL_UNAVAILABLE, error=error.message)
        except ForgeError as error:
            return self._result(RunStatus.FAILED, error=error.message)
        except Exception as error:  # a model made in Python may do anything; the session goes on
            _log.exception("a run failed")
            return self._result(RunStatus.FAILED, error=f"the model failed ({error_name(error)})")
        finally:
            if deadline is not None:
                deadline.cancel()

    def _for_the_model(self, text: str) -> str:
        """An argument of the command line may be no Unicode, and a pasted line may hold a key."""
        return self.station.tree.redactor.secrets_out(valid_unicode(text))

    async def _until_answered(self) -> str:
        worker = self.station.worker
        repetition = Repetition()
        repaired = False
        for _ in range(worker.max_iterations):
            await self.before_turn()
            response = await self.dialogue.next_response()
            if response.calls:
                await self._run_calls(response, repetition)
                continue
            if worker.output_schema is None:
                return response.text
            problem = check_answer(response.text, worker.output_schema)
            if problem is None:
                return answer_json(response.text)
            if repaired:
                raise _Ends(RunStatus.FAILED, f"the answer does not match output_schema: {problem}")
            repaired = True
            self.dialogue.history.add(UserMessage(text=repair_request(problem), kind="note"))
        raise _Ends(RunStatus.LIMIT, f"Maximum iterations ({worker.max_iterations}) exceeded")

    async def _run_calls(self, response: AssistantMessage, repetition: Repetition) -> None:
        outcomes, over = await self._outcomes([_call_of(call) for call in response.calls])
        self.station.deferring.called(outcomes)
        signal = self.station.signal
        stopped = any(outcome.stop_turn for outcome in outcomes)
        notes = repetition.saw_all(outcomes)
        self.dialogue.history.add(
            ResultsMessage(
                results=tuple(
                    _result_of(call, outcome, note)
                    for call, outcome, note in zip(response.calls, outcomes, notes, strict=True)
                ),
                note=USER_INTERRUPTED if signal else USER_STOPPED if stopped else "",
            )
        )
        if signal:
            raise Interrupted(signal.reason or "")
        if stopped:
            self.stopped = True
            raise Interrupted("stopped")
        if over is not None:
            raise over
        if repetition.over:
            raise _Ends(RunStatus.FAILED, repetition.over)

    async def _outcomes(self, calls: list[ToolCall]) -> tuple[list[Outcome], BudgetExceeded | None]:
        """One Outcome each, in order; calls that the budget has no room for are skipped, and then the run ends."""
        path, batch, budget = self.station.path, self.station.worker.batch, self.dialogue.budget
        paid, over = 0, None
        try:
            for _ in calls:
                budget.take_call()
                paid += 1
        except BudgetExceeded as error:
            over = error
        self.tool_calls += paid
        outcomes = await path.batch(calls[:paid], mode=batch.mode, on_failure=batch.on_failure)
        if over is not None:
            outcomes += [path.skip(travel, over.message) for travel in path.propose(calls[paid:], path.signal)]
        return outcomes, over

    def _note_stopped_words(self) -> None:
        """The next request tells the model why its last words break off."""
        messages = self.dialogue.history.messages
        if messages and isinstance(last := messages[-1], AssistantMessage) and last.interrupted:
            self.dialogue.history.add(UserMessage(text=USER_CUT_IN, kind="note"))

    def _arm_deadline(self) -> asyncio.TimerHandle | None:
        """A run whose time is up is stopped like an interrupted one, wherever it is."""
        left = self.dialogue.budget.seconds_left
        if left is None:
            return None
        return asyncio.get_running_loop().call_later(left, self.station.signal.interrupt, _OVER_TIME)

    def _over_time(self, stopped: Interrupted) -> str:
        """Which limit it was; the signal was ours, and is taken back."""
        if stopped.reason != _OVER_TIME:
            return ""
        self.station.signal.reset()
        try:
            self.dialogue.budget.check_time()
        except BudgetExceeded as error:
            return error.message
        return _OVER_TIME

    def _result(self, status: RunStatus, *, response: str = "", error: str = "") -> RunResult:
        orderly = status in (RunStatus.COMPLETED, RunStatus.INTERRUPTED, RunStatus.TERMINATED)
        meter, redactor = self.dialogue.meter, self.station.tree.redactor
        return RunResult(
            success=orderly,
            status=status,
            response=redactor.secrets_out(response),  # as every event that tells it
            partial="" if status is RunStatus.COMPLETED else redactor.secrets_out(self.dialogue.so_far),
            error=redactor.text(error),  # a provider may echo whatever it was sent
            usage=meter.usage,
            cost=meter.cost,
            tool_call_count=self.tool_calls,
            worker=self.station.worker.name,
        )


_OVER_TIME: Final = "the time of its budget is over"


def _call_of(call: RequestedCall) -> ToolCall:
    return ToolCall(call.name, call.args, Caller.LLM, id=call.id, problem=call.problem)


def _result_of(call: RequestedCall, outcome: Outcome, note: str) -> CallResult:
    text = fenced(outcome.text) if outcome.executed else outcome.text
    return CallResult(
        id=call.id,
        name=call.name,
        status=outcome.status,
        text=f"{text}\n{note}" if note else text,
        output_handle=outcome.output_handle,
    )
