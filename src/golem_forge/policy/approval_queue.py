"""ApprovalQueue: requests that wait for a person. Identical requests share one question; different ones are answered in
any order.

Exactly one of answer, timeout and cancel takes effect for each pending call. How a person is asked is up to the Asker:
`ui_asker` asks every attached UI over the bus, `callback_asker` calls an embedder's function. Both validate edited
arguments while the question is still open, and show what is wrong at their fields. Neither turns silence or an error
into a yes.

Answers are read strictly: what is not clearly a yes is a no.
"""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from typing import Any, Final, Literal, Required, TypedDict

from golem_forge.core.decisions import AnsweredBy, Status
from golem_forge.core.errors import error_name
from golem_forge.core.json import copy_json
from golem_forge.core.lazy_dataclass import dataclass, field, replace
from golem_forge.core.regex import regex
from golem_forge.core.signals import InterruptSignal
from golem_forge.core.text import escape_control_chars
from golem_forge.events.open_questions import INTERRUPT, NOBODY, EditRefused, invalid_member
from golem_forge.events.runtime_ui import RuntimeUI
from golem_forge.events.serialization import iso_time
from golem_forge.policy.request import ApprovalOffer, ApprovalRequest
from golem_forge.tools.forms import errors_by_field
from golem_forge.tools.threads import run_in_thread

MAX_PENDING: Final = 100
MAX_EDITS: Final = 20
NEXT_QUESTION_S: Final = 0.05
"""Pause in seconds before the next question is shown; an answer that was just remembered may cover it too."""
_log = logging.getLogger(__name__)

FieldProblems = tuple[tuple[str, str], ...]
CheckEdit = Callable[[dict[str, Any]], FieldProblems]
"""Edited arguments → problems by field; empty when they are valid."""


class TooManyEdits(Exception):
    """This question was answered with invalid arguments often enough."""


@dataclass(slots=True, eq=False)
class ApprovalQuestion:
    """One approval card that is shown to a person."""

    request: ApprovalRequest
    check: Callable[[Mapping[str, Any]], FieldProblems]
    """Problems of edited arguments by field, in words that may be shown; empty if they would do. The question stays
    open meanwhile. Raises TooManyEdits."""
    is_edit: Callable[[Mapping[str, Any]], bool] = field(default=lambda args: True)
    """Whether valid arguments differ from those that were asked about."""
    on_withdrawn: Callable[[ApprovalResult], None] = field(default=lambda answer: None)
    """Set by an asker that wants to be told, just before it is cancelled, which answer replaced its question."""
    on_more_waiting: Callable[[int], None] = field(default=lambda waiting: None)
    """Set by an asker that can show that another identical call waits for the same answer."""
    times: tuple[float, float] | None = None
    """Times of question and answer, set by an asker that knows them better than this process."""


Asker = Callable[[ApprovalQuestion], Awaitable[Any]]
"""Shows one question and returns the raw answer, `{approved, choice?, args?, reason?, stop?, by?}`. Cancelled when the
question is withdrawn."""


@dataclass(slots=True, kw_only=True)
class PendingApproval:
    """A call that waits for an answer."""

    request: ApprovalRequest
    check_edit: CheckEdit
    restore: Callable[[dict[str, Any]], dict[str, Any]]
    """Edited arguments with what the person was not shown put back."""
    redact: Callable[[FieldProblems], FieldProblems]
    """Problems without secrets: their words may repeat a value."""
    reevaluate: Callable[[], ApprovalResult | None]
    """Judges the call again: an answer if it needs no person any more."""
    signal: InterruptSignal
    is_edit: Callable[[dict[str, Any]], bool] = field(default=lambda args: True)
    """Whether valid edited arguments, as `restore` returns them, make a different call."""
    alone: bool = False
    """Whether the call shares its card with no other call, not even an identical one."""
    on_answer: Callable[[ApprovalResult], object] = field(default=lambda answer: None)
    """Called at the moment of the answer, before any other call can ask the same."""
    answer: asyncio.Future[ApprovalResult] = field(default_factory=lambda: asyncio.get_running_loop().create_future())


@dataclass(slots=True)
class _Card:
    waiting: list[PendingApproval]
    task: asyncio.Task[None] | None = None
    question: ApprovalQuestion | None = None
    """Set while a person looks at the card."""


class ApprovalQueue:
    def __init__(self, ask: Asker) -> None:
        self._ask = ask
        self._cards: dict[str, _Card] = {}

    @property
    def pending(self) -> int:
        return sum(len(card.waiting) for card in self._cards.values())

    async def wait(self, waiting: PendingApproval) -> ApprovalResult:
        if self.pending >= MAX_PENDING:
            return denied_result("too many pending approvals")
        key = f"{waiting.request.fingerprint} {waiting.request.diff}"  # one card only for what looks the same too
        if waiting.alone:
            key = f"{waiting.request.call_id} {key}"
        card = self._cards.get(key)
        if card is None:
            card = self._cards[key] = _Card([waiting])
            card.task = asyncio.get_running_loop().create_task(self._serve(key, card))
        else:
            card.waiting.append(waiting)
            card.waiting[0].request.waiting = len(card.waiting)
            if card.question is not None:
                card.question.on_more_waiting(len(card.waiting))
        loop = asyncio.get_running_loop()

        def interrupt() -> None:
            self._settle(waiting, _interrupted_result())
            self._remove(key, card, waiting)

        def interrupted(reason: str) -> None:
            """Interrupts the wait; directly if the signal comes from this loop, so that no later answer counts."""
            if _is_running(loop):
                interrupt()
            else:
                loop.call_soon_threadsafe(interrupt)

        forget = waiting.signal.listen(interrupted)
        try:
            return await waiting.answer
        finally:
            forget()
            self._remove(key, card, waiting)

    def judge_again(self) -> None:
        """Evaluates every waiting call again after an answer was remembered, and removes cards that are no longer
        needed.
        """
        for key, card in list(self._cards.items()):
            for waiting in list(card.waiting):
                if not waiting.answer.done() and (answer := waiting.reevaluate()):
                    self._settle(waiting, answer)
            answers = [waiting.answer for waiting in card.waiting]
            if answers and all(each.done() and not each.cancelled() for each in answers):
                self._cards.pop(key, None)  # nobody joins it any more: this answer is for those who waited
                self._withdraw(card, answers[0].result())

    async def _serve(self, key: str, card: _Card) -> None:
        """Shows a card until every call that waits at it has an answer, also if asking fails."""
        try:
            # once, and again for the others after each edit of the oldest
            while waiting := [each for each in card.waiting if not each.answer.done()]:
                first = waiting[0]
                first.request.waiting = len(waiting)
                card.question = self._question(first)
                answer = await self._answer_to(first, card.question)
                card.question = None
                served = [first]
                if answer.args is None:  # calls that joined while the card was open made the same request
                    served = [each for each in card.waiting if not each.answer.done()]
                    self._cards.pop(key, None)
                for each in served:
                    self._settle(each, answer)
                card.waiting = [each for each in card.waiting if each not in served]
        except BaseException as error:
            if not isinstance(error, asyncio.CancelledError):
                _log.warning("the approval could not be asked: %s", type(error).__name__)
        finally:
            if self._cards.get(key) is card:
                del self._cards[key]
            for each in card.waiting:
                self._settle(each, denied_result("The approval could not be asked; the call was not run."))

    async def _answer_to(self, waiting: PendingApproval, question: ApprovalQuestion) -> ApprovalResult:
        try:
            answer = read_answer(await self._ask(question), waiting.request)
            if question.times is not None:
                asked, answered = map(iso_time, question.times)
                answer = replace(answer, asked_at=asked, answered_at=answered)
            if answer.args is None:
                return answer
            edited = waiting.restore(answer.args)
            problems = waiting.check_edit(edited)
            if problems:
                return denied_result(_invalid_edit(waiting.redact(problems)))
            return replace(answer, args=edited if waiting.is_edit(edited) else None)
        except TooManyEdits as error:
            return denied_result(str(error))
        except Exception as error:  # a broken UI must not become a consent
            _log.warning("the approval could not be asked: %s", type(error).__name__)
            return denied_result(f"The approval could not be asked ({error_name(error)}); the call was not run.")

    def _question(self, waiting: PendingApproval) -> ApprovalQuestion:
        edits = 0

        def check(args: Mapping[str, Any]) -> FieldProblems:
            nonlocal edits
            problems = waiting.check_edit(waiting.restore(dict(args)))
            edits += bool(problems)
            shown = waiting.redact(problems) if problems else ()
            if edits >= MAX_EDITS:
                raise TooManyEdits(
                    f"The arguments were edited {MAX_EDITS} times without a valid form ({format_problems(shown)}); "
                    "the call was not run."
                )
            return shown

        return ApprovalQuestion(waiting.request, check, lambda args: waiting.is_edit(waiting.restore(dict(args))))

    def _withdraw(self, card: _Card, answer: ApprovalResult) -> None:
        question, card.question = card.question, None
        if question is not None:
            question.on_withdrawn(answer)

    def _settle(self, waiting: PendingApproval, answer: ApprovalResult) -> None:
        if not waiting.answer.done():
            waiting.answer.set_result(answer)
            waiting.on_answer(answer)

    def _remove(self, key: str, card: _Card, waiting: PendingApproval) -> None:
        """Removes one call from its card; withdraws the card if no other call waits at it."""
        if waiting in card.waiting:
            card.waiting.remove(waiting)
        if not card.waiting and card.task is not None and not card.task.done():
            gone = waiting.answer.cancelled() or not waiting.answer.done()  # whoever called was cancelled
            self._withdraw(card, _interrupted_result() if gone else waiting.answer.result())
            card.task.cancel()
            if self._cards.get(key) is card:
                del self._cards[key]


def _is_running(loop: asyncio.AbstractEventLoop) -> bool:
    """Whether the caller runs on this loop; a signal may come from any thread."""
    try:
        return asyncio.get_running_loop() is loop
    except RuntimeError:
        return False


def format_problems(problems: FieldProblems) -> str:
    return "; ".join(f"{name}: {problem}" if name else problem for name, problem in problems)


def _invalid_edit(problems: FieldProblems) -> str:
    return f"The edited arguments are not valid ({format_problems(problems)}); the call was not run."


def _interrupted_result() -> ApprovalResult:
    return denied_result("Interrupted before it was approved.", by=AnsweredBy.NOBODY, status=Status.INTERRUPTED)


class ApprovalAnswer(TypedDict, total=False):
    """The answer that an approval callback returns."""

    approved: Required[bool]
    reason: str
    """The reason, shown to the caller of the tool."""
    choice: str
    """The id of one of the request's choices: what is remembered."""
    remember: Literal["session"]
    args: Mapping[str, Any]
    """Edited arguments; they are validated again."""
    stop: bool
    """Denies the call and ends the turn."""


_Answer = ApprovalAnswer | Mapping[str, Any]
ApprovalCallback = Callable[[ApprovalRequest], _Answer | Awaitable[_Answer]]


def ui_asker(ui: RuntimeUI, timeout: float | None = None) -> Asker:
    """`timeout` in seconds, shown on the card as `expiresAt`; none by default."""

    async def ask(question: ApprovalQuestion) -> Mapping[str, Any]:
        request = question.request

        def check(args: Mapping[str, Any]) -> Mapping[str, str] | None:
            try:
                problems = errors_by_field(question.check(args))
                return problems if problems or question.is_edit(args) else None
            except TooManyEdits as error:
                raise EditRefused(str(error)) from None

        def withdraw(answer: ApprovalResult) -> None:
            by = "memory" if answer.approved else INTERRUPT
            ui.withdraw_approval(request.id, approved=answer.approved, by=by)

        question.on_withdrawn = withdraw
        question.on_more_waiting = lambda waiting: ui.change_approval(request.id, waiting=waiting)
        asked_by = next((str(link["id"]) for link in reversed(request.worker_path) if not link.get("tool")), "")
        try:
            return await ui.request_approval(request.to_wire(), timeout=timeout, check_edit=check, worker_id=asked_by)
        finally:
            question.times = ui.kept_times.pop(request.id, None)

    return ask


def callback_asker(callback: ApprovalCallback, timeout: float | None = None) -> Asker:
    """An invalid edit calls it again, with `field_errors` on the request; the same edit twice denies. A callback that
    reads a keyboard is called for one question at a time, in their order."""
    turn = _Turns().take if hasattr(callback, "keyboard") else contextlib.nullcontext

    async def ask(question: ApprovalQuestion) -> Any:
        request = question.request
        before: Any = None
        while True:
            answer = await _call(callback, request)
            edited = answer.get("args") if isinstance(answer, Mapping) and answer.get("approved") is True else None
            if not isinstance(edited, Mapping) or not (problems := question.check(edited)):
                return answer
            if edited == before:
                return {"approved": False, "by": NOBODY, "reason": _invalid_edit(problems)}
            before = copy_json(edited)
            request = replace(request, field_errors=problems)

    async def ask_in_time(question: ApprovalQuestion) -> Any:
        limit = asyncio.timeout(timeout)
        try:
            async with limit, turn():
                return await ask(question)
        except TimeoutError:
            if not limit.expired():  # the callback's own
                raise
            return {"approved": False, "by": "timeout", "reason": f"No answer within {timeout:g} s."}

    return ask_in_time


class _Turns:
    """A lock that admits askers in their order. An asker that had to wait pauses a moment longer, because the previous
    answer may have made its question needless.
    """

    def __init__(self) -> None:
        self._of: tuple[asyncio.AbstractEventLoop, asyncio.Lock] | None = None

    @contextlib.asynccontextmanager
    async def take(self) -> AsyncIterator[None]:
        loop = asyncio.get_running_loop()
        if self._of is None or self._of[0] is not loop:  # a controller may be used again under another loop
            self._of = loop, asyncio.Lock()
        lock = self._of[1]
        waits = lock.locked()
        async with lock:
            if waits:
                await asyncio.sleep(NEXT_QUESTION_S)
            yield


async def _call(callback: ApprovalCallback, request: ApprovalRequest) -> Any:
    if inspect.iscoroutinefunction(callback):
        return await callback(request)
    answer = await run_in_thread(lambda: callback(request))
    return await answer if inspect.isawaitable(answer) else answer


MAX_REASON: Final = 2000
_ANSWER_FORM: Final = "{approved, remember?, choice?, args?, reason?, stop?}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ApprovalResult:
    approved: bool
    by: AnsweredBy = AnsweredBy.PERSON
    message: str = ""
    """The reason of a refusal, shown to the caller."""
    status: Status = Status.APPROVAL_DENIED
    choice: ApprovalOffer | None = None
    args: dict[str, Any] | None = None
    stop: bool = False
    cached: bool = False
    unaskable: bool = False
    """True if nobody could be asked, which differs from a question that got no answer."""
    answered_as: str = ""
    """The name of the person who answered, where a session has several; `door`: by which way."""
    door: str = ""
    asked_at: str = ""
    """The time of the question, if it was asked or answered before this process asked; else empty."""
    answered_at: str = ""


def denied_result(
    message: str,
    *,
    by: AnsweredBy = AnsweredBy.NOBODY,
    status: Status = Status.APPROVAL_DENIED,
    unaskable: bool = False,
) -> ApprovalResult:
    return ApprovalResult(approved=False, by=by, message=message, status=status, unaskable=unaskable)


def read_answer(raw: Any, request: ApprovalRequest) -> ApprovalResult:
    """A mapping `{approved, remember?, choice?, args?, reason?, stop?}`; any other value denies, and so does a member
    that has another name or value."""
    if not isinstance(raw, Mapping):
        return denied_result(f"The approval callback gave no valid answer ({_ANSWER_FORM}); the call was not run.")
    wrong = invalid_member(raw, besides=("by",))
    if not wrong and raw.get("remember") == "always":
        wrong = "'remember' is 'always', not 'session'; what is kept for good is named by its 'choice'"
    if wrong:
        _log.warning("an answer to an approval denied: %s", wrong)
        return denied_result(f"The approval callback gave no valid answer: {wrong}. The call was not run.")
    reason = raw.get("reason")
    if not raw["approved"]:
        text = escape_control_chars(str(reason))[:MAX_REASON].strip() if reason else ""
        if raw.get("by") in ("timeout", "interrupt", "nobody") and text:
            return denied_result(text)
        return ApprovalResult(
            approved=False,
            message=f"Denied by the user: {text}" if text else "Denied by the user.",
            stop=bool(raw.get("stop")),
            **_who_answered(raw),
        )
    args, wanted = raw.get("args"), raw.get("choice")
    choice: ApprovalOffer | None = None
    if wanted:
        choice = next((offer for offer in request.choices if offer.id == wanted), None)
        if choice is None:
            return denied_result("The answer names a choice that was not offered; the call was not run.")
    elif raw.get("remember") == "session":  # the narrowest; what outlives the session is only chosen by its id
        choice = next((offer for offer in request.choices if offer.scope == "session"), None)
    changed = None if args is None else dict(args)
    return ApprovalResult(approved=True, choice=choice, args=changed, **_who_answered(raw))


_NAME_AND_DOOR: Final = regex(r"(.{1,64}) \(([a-z]{1,16})\)")
_DOOR_AND_PROGRAM: Final = regex(r"([a-z]{1,16}):[A-Za-z0-9._-]{1,40}")


def _who_answered(raw: Mapping[str, Any]) -> dict[str, Any]:
    """`bob (inbox)` is how a session that several people answer names who did; a UI of one's own has only a name. A UI
    that another program shows names that program: `door:program`."""
    by = raw.get("by")
    if not isinstance(by, str):
        return {}
    if found := _NAME_AND_DOOR.fullmatch(by):
        return {"answered_as": found[1], "door": found[2]}
    # With its door, so that no program passes for a person of its name.
    return {"answered_as": by, "door": found[1]} if (found := _DOOR_AND_PROGRAM.fullmatch(by)) else {}
