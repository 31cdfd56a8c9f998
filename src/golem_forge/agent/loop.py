"""The loop: request, response, its calls through the one path, results, next request, until there is an answer.

Takes one input and returns one RunResult; never raises for what a model or a tool does. Errors of tools are results
that the model reads. Only an interrupt, a budget, a failure of the model and the iteration limit end a run early, and
then the history is complete: every requested call has exactly one result.

A small model on a server of one's own, asked for one answer, that made no call or only calls that failed is asked once
whether it means to: such models tell what a file holds that they never read. Where it then calls nothing either, its
first answer stands. A call that was refused ends there; nothing asks it to try another way.

`Repetition`: a model that repeats the same call with the same result is told so, then stopped; sooner where the call
fails. "In a row" means that no other call was made in between, except those requested in the same response.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Any, Final

from golem_forge.agent.budget import BudgetExceeded
from golem_forge.agent.dialogue import ANSWER_WITHHELD, Dialogue
from golem_forge.agent.history import ContextExceeded
from golem_forge.agent.model.interface import (
    RESPONSE_TOO_LARGE,
    AssistantMessage,
    Attachment,
    CallResult,
    ModelError,
    RequestedCall,
    ResultsMessage,
    UserMessage,
    fenced,
)
from golem_forge.agent.model.text_calls import TextCallModel
from golem_forge.agent.prompt import answer_json, check_answer, repair_request
from golem_forge.agent.resume import OpenTurn
from golem_forge.agent.run_result import RunInterrupted, RunResult, RunStatus, unless_interrupted
from golem_forge.agent.worker_scope import WorkerScope
from golem_forge.core.calls import Caller, Outcome, ToolCall
from golem_forge.core.decisions import Status
from golem_forge.core.errors import ForgeError, error_name
from golem_forge.core.json import sha256_hex, valid_unicode
from golem_forge.core.lazy_dataclass import dataclass
from golem_forge.core.regex import regex
from golem_forge.core.text import display_name
from golem_forge.orchestrator.bound_output import with_handles
from golem_forge.tools.context import ModelNotes
from golem_forge.tools.results import text_for_model

_log = logging.getLogger(__name__)
INTERRUPTED_TEXT: Final = "[Interrupted]"
USER_INTERRUPTED: Final = "The user interrupted before these finished."
_COMMAND_TOOL: Final = "exec_command"
_CALL_BEHIND_WORDS: Final = (
    "Nothing was run: your message ends with a call of {} behind other words{}. To make a call, send it alone, without "
    "words beside it. Until then nothing is read or changed."
)
_NOTHING_CALLED: Final = (
    "You have called no tool, so nothing is read, changed or run. If the task is about files, commands or tools here, "
    "make the first call now, alone, without words beside it. If it needs none, say only: no call."
)
_NOTHING_WORKED: Final = (
    "None of your calls has worked, so nothing is read, changed or run. If another call can do the task, make it now, "
    "alone, without words beside it; look first at what there is. If none can, say only: no call."
)
_REFUSED: Final = frozenset(
    (Status.APPROVAL_DENIED, Status.POLICY_DENIED, Status.SANDBOX_DENIED, Status.INTERRUPTED, Status.SKIPPED)
)
USER_CUT_IN: Final = "The user interrupted before this was finished."
USER_STOPPED: Final = "The user denied this and ended the turn."


class _RunEnded(Exception):
    """Raised to end the run without an answer."""

    def __init__(self, status: RunStatus, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.message = message


@dataclass(slots=True, kw_only=True)
class Loop:
    dialogue: Dialogue
    before_turn: Callable[[], Awaitable[None]]
    """Looks at what may have changed since the last request (tool modules)."""
    is_single: Callable[[], bool]
    """Whether the answer ends the run; else a person reads it and can say more."""
    tool_calls: int = 0
    """Number of calls since the last input."""
    stopped: bool = False
    """Whether a person denied a call and ended the turn."""
    failed_only: bool = True
    """Whether each call since the last input failed, or there was none; one that was refused is no failure."""
    busy: bool = False
    """Whether it answers an input now: its history is not to be changed by anybody else."""

    @property
    def scope(self) -> WorkerScope:
        return self.dialogue.scope

    async def answer(self, text: str, attachments: Sequence[Attachment] = ()) -> RunResult:
        # An argument of the command line may be no Unicode, and a pasted line may hold a key.
        text = self.scope.state.redactor.redact_secrets(valid_unicode(text))
        return await self._run(UserMessage(text=text, attachments=tuple(attachments)), OpenTurn())

    async def answer_note(self, text: str) -> RunResult:
        """Runs the turn with a message of Forge's own."""
        return await self._run(UserMessage(text=text, kind="note"), OpenTurn())

    async def go_on(self, turn: OpenTurn) -> RunResult:
        """Answers the input of a turn that another process began; its history is this loop's already."""
        return await self._run(None, turn)

    async def _run(self, message: UserMessage | None, turn: OpenTurn) -> RunResult:
        dialogue = self.dialogue
        self.tool_calls, self.stopped, self.busy, self.failed_only = 0, False, True, not turn.known
        deadline = self._arm_deadline()
        try:
            if _COMMAND_TOOL in self.scope.catalog:
                # Tried once; the prompt says which walls commands run in.
                await unless_interrupted(self.scope.signal, self.scope.walls.report())
            if message is not None:
                for note in self.scope.state.parts.get(ModelNotes).take() if self.scope.depth == 0 else ():
                    dialogue.history.add(UserMessage(text=note, kind="note"))
                dialogue.history.add(message)
            response = await self._until_answered(turn)
            return self._result(RunStatus.COMPLETED, response=response, warning=self._warn_if_empty(response))
        except RunInterrupted as stopped:
            # The next request tells the model why its last words break off.
            messages = dialogue.history.messages
            if messages and isinstance(last := messages[-1], AssistantMessage) and last.interrupted:
                dialogue.history.add(UserMessage(text=USER_CUT_IN, kind="note"))
            if over := self._over_time(stopped):
                return self._result(RunStatus.LIMIT, error=over)
            return self._result(stopped.status, response=INTERRUPTED_TEXT)
        except (BudgetExceeded, ContextExceeded) as error:
            return self._result(RunStatus.LIMIT, error=error.message)
        except _RunEnded as end:
            return self._result(end.status, error=end.message)
        except ModelError as error:
            there = error.code in (ANSWER_WITHHELD, RESPONSE_TOO_LARGE)  # the model was there, its answer is none
            return self._result(RunStatus.FAILED if there else RunStatus.MODEL_UNAVAILABLE, error=error.message)
        except ForgeError as error:
            return self._result(RunStatus.FAILED, error=error.message)
        except Exception as error:  # a model made in Python may do anything; the session goes on
            _log.exception("a run failed")
            return self._result(RunStatus.FAILED, error=f"the model failed ({error_name(error)})")
        finally:
            self.busy = False
            dialogue.use_chosen()
            if deadline is not None:
                deadline.cancel()

    async def _until_answered(self, turn: OpenTurn) -> str:
        worker = self.scope.worker
        repetition = Repetition()
        repaired = asked = False
        first: AssistantMessage | None = None
        for _ in range(worker.max_iterations):
            await self.before_turn()
            response = turn.response or await self.dialogue.next_response()
            begun, turn = turn, OpenTurn()
            if response.calls:
                await self._run_calls(response, repetition, begun)
                first = None
                continue
            if (unsent := self.dialogue.last_unsent) and not asked:
                asked = True
                self.dialogue.history.add(UserMessage(text=self._call_behind_words(unsent), kind="note"))
                continue
            if not asked and self._may_have_forgotten():
                asked, first = True, response
                text = _NOTHING_WORKED if self.tool_calls else _NOTHING_CALLED
                self.dialogue.history.add(UserMessage(text=text, kind="note"))
                continue
            response, first = first or response, None
            if worker.output_schema is None:
                return response.text
            problem = check_answer(response.text, worker.output_schema)
            if problem is None:
                return answer_json(response.text)
            if repaired:
                raise _RunEnded(RunStatus.FAILED, f"the answer does not match output_schema: {problem}")
            repaired = True
            self.dialogue.history.add(UserMessage(text=repair_request(problem), kind="note"))
        raise _RunEnded(RunStatus.LIMIT, f"Maximum iterations ({worker.max_iterations}) exceeded")

    def _may_have_forgotten(self) -> bool:
        tools, is_small = self.scope.model_tools, isinstance(self.dialogue.model, TextCallModel)
        return self.is_single() and self.failed_only and is_small and tools.compact and bool(tools.offers())

    def _call_behind_words(self, tool: str) -> str:
        tools = self.scope.model_tools
        known = ", ".join(offer.name for offer in tools.offers())
        unknown = "" if tools.schema_of(tool) else f", and there is no such tool; yours are {known}"
        return _CALL_BEHIND_WORDS.format(display_name(tool), unknown)

    async def _run_calls(self, response: AssistantMessage, repetition: Repetition, begun: OpenTurn) -> None:
        """`begun`: with the results of calls that were made before this process took over."""
        known = begun.known
        calls = [call for call in response.calls if call.id not in known]
        outcomes, over = await self._outcomes(
            [ToolCall(call.name, call.args, Caller.LLM, id=call.id, problem=call.problem) for call in calls]
        )
        self.scope.model_tools.mark_called(outcomes)
        self.failed_only &= not any(outcome.ok or outcome.status in _REFUSED for outcome in outcomes)
        signal = self.scope.signal
        stopped = any(outcome.stop_turn for outcome in outcomes)
        notes = repetition.note_all(outcomes)
        made = {
            call.id: _result_of(call, outcome, note) for call, outcome, note in zip(calls, outcomes, notes, strict=True)
        }
        self.dialogue.history.add(
            ResultsMessage(
                results=tuple(known.get(call.id) or made[call.id] for call in response.calls),
                note="\n".join(
                    filter(None, (begun.note, USER_INTERRUPTED if signal else USER_STOPPED if stopped else ""))
                ),
            )
        )
        if signal:
            raise RunInterrupted(signal.reason or "")
        if stopped:
            self.stopped = True
            raise RunInterrupted("stopped")
        if over is not None:
            raise over
        if repetition.end_reason:
            raise _RunEnded(RunStatus.FAILED, repetition.end_reason)

    async def _outcomes(self, calls: list[ToolCall]) -> tuple[list[Outcome], BudgetExceeded | None]:
        """One Outcome each, in order; calls that the budget has no room for are skipped, and then the run ends."""
        path, batch, budget = self.scope.orchestrator, self.scope.worker.batch, self.dialogue.budget
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
            outcomes += [path.skip(state, over.message) for state in path.propose(calls[paid:], path.signal)]
        return outcomes, over

    def _arm_deadline(self) -> asyncio.TimerHandle | None:
        """A run whose time is up is stopped like an interrupted one, wherever it is."""
        left = self.dialogue.budget.seconds_left
        if left is None:
            return None
        return asyncio.get_running_loop().call_later(left, self.scope.signal.interrupt, _OVER_TIME)

    def _over_time(self, stopped: RunInterrupted) -> str:
        """Returns which time limit ended the run, and resets the signal that Forge itself sent; empty if it was another
        interrupt.
        """
        if stopped.reason != _OVER_TIME:
            return ""
        self.scope.signal.reset()
        try:
            self.dialogue.budget.check_time()
        except BudgetExceeded as error:
            return error.message
        return _OVER_TIME

    def _warn_if_empty(self, response: str) -> str:
        if response.strip():
            return ""
        warning = f"the answer of {self.dialogue.model.name} is empty; ask again, or try another model"
        self.scope.emit("status", {"type": "warning", "message": warning, "code": "EMPTY_ANSWER"})
        return warning

    def _result(self, status: RunStatus, *, response: str = "", error: str = "", warning: str = "") -> RunResult:
        orderly = status in (RunStatus.COMPLETED, RunStatus.INTERRUPTED, RunStatus.TERMINATED)
        meter, redactor = self.dialogue.meter, self.scope.state.redactor
        return RunResult(
            success=orderly,
            status=status,
            response=redactor.redact_secrets(response),  # as every event that tells it
            partial="" if status is RunStatus.COMPLETED else redactor.redact_secrets(self.dialogue.last_text),
            error=redactor.text(error),  # a provider may echo whatever it was sent
            warning=warning,
            usage=meter.usage,
            cost=meter.cost,
            tool_call_count=self.tool_calls,
            worker=self.scope.worker.name,
            finish=self.dialogue.last_finish,
        )


_OVER_TIME: Final = "the time of its budget is over"


def _result_of(call: RequestedCall, outcome: Outcome, note: str) -> CallResult:
    said = with_handles(_text_of(outcome), outcome.result, outcome.media)
    text = fenced(said) if outcome.executed else said
    return CallResult(
        id=call.id,
        name=call.name,
        status=outcome.status,
        text=f"{text}\n{note}" if note else text,
        output_handle=outcome.output_handle,
        media=outcome.media,
    )


def _text_of(outcome: Outcome) -> str:
    """Returns the text for the model, with structured content that the text does not include."""
    result = outcome.result
    whole = text_for_model(result) if result is not None else ""
    more = whole[len(result.text) :] if result is not None else ""
    return f"{outcome.text}{more}"


NOTE_AT: Final = 3
END_AT: Final = 5
SUCCESS_NOTE_AT: Final = 10
SUCCESS_END_AT: Final = 20
"""A model may look several times whether something has happened yet."""
_NOT_TRIED: Final = frozenset({Status.INTERRUPTED, Status.SKIPPED})
_HANDLE: Final = regex(r"out_[0-9a-f]{12}")
"""Differs each time an output is kept; the result is the same."""
_DURATION: Final = regex(r"\b\d+(\.\d+)? ?(ms|s|seconds)\b")


class Repetition:
    def __init__(self) -> None:
        self.end_reason = ""
        self._repeated: dict[str, tuple[str, int]] = {}
        """Call → its last result or failure, and how often in a row."""

    def note_all(self, outcomes: Iterable[Outcome]) -> list[str]:
        """The outcomes of one turn, a note for each or nothing. Calls that were not repeated in it are forgotten."""
        outcomes = list(outcomes)
        notes = [self._note(outcome) for outcome in outcomes]
        asked = {_key(outcome) for outcome in outcomes}
        self._repeated = {key: repeated for key, repeated in self._repeated.items() if key in asked}
        return notes

    def _note(self, outcome: Outcome) -> str:
        if outcome.status in _NOT_TRIED:
            return ""
        key = _key(outcome)
        if outcome.ok and _still_runs(outcome):
            self._repeated.pop(key, None)
            return ""
        more = outcome.result.content if outcome.result is not None else ()  # pictures, which no text tells apart
        became = sha256_hex(_DURATION.sub("", _HANDLE.sub("", f"{outcome.status} {outcome.text} {more or ''}")))
        before, count = self._repeated.get(key, ("", 0))
        count = count + 1 if became == before else 1
        self._repeated[key] = (became, count)
        return self._note_success(outcome, count) if outcome.ok else self._note_failure(outcome, count)

    def _note_failure(self, outcome: Outcome, count: int) -> str:
        if count >= END_AT and not self.end_reason:
            self.end_reason = f"'{outcome.tool}' was called {count} times with the same arguments and failed each time"
        return f"This exact call has failed {count} times." if count >= NOTE_AT else ""

    def _note_success(self, outcome: Outcome, count: int) -> str:
        if count >= SUCCESS_END_AT and not self.end_reason:
            same = f"'{outcome.tool}' was called {count} times in a row with the same arguments and the same result"
            self.end_reason = f"{same}: stopped as repetition"
        if count != SUCCESS_NOTE_AT:
            return ""
        return f"This exact call has given the same result {count} times. Do something else, or give your answer."


def _still_runs(outcome: Outcome) -> bool:
    """Waiting for a command that has nothing to say yet is no repetition."""
    result = outcome.result
    return result is not None and result.kind == "exec.result" and "session_id" in result.value


def _key(outcome: Outcome) -> str:
    return sha256_hex(f"{outcome.tool} {_spelling(outcome.call.args)}")


def _spelling(args: Any) -> str:
    """One text for one set of arguments, whether they came as a mapping or as JSON."""
    try:
        return json.dumps(json.loads(args) if isinstance(args, str) else args, sort_keys=True, default=repr)
    except (ValueError, TypeError, RecursionError):
        return repr(args)
