"""The open questions to the user: who may answer, who waits, and how each question ends exactly once.

A question ends by a valid answer, by the asker giving up (timeout, cancel) or by the last adapter detaching. An answer
is checked against its question; the check gives the answer the runtime acts on, or a string that says why it is
invalid, and an invalid answer leaves the question open. Calls that wait for the same answer are the business of
`policy`: here each question is asked once.
"""

from __future__ import annotations

import asyncio
import logging
import warnings
from collections import deque
from collections.abc import Awaitable, Callable, Collection, Mapping
from typing import Any, Final, Protocol

from golem_forge.core.json import same_json
from golem_forge.core.lazy_dataclass import dataclass
from golem_forge.core.options import unknown_name_message
from golem_forge.events.bus import ALL_EVENTS, EventBus
from golem_forge.events.serialization import Event

AnswerData = dict[str, Any]
MAX_REASON_CHARS: Final = 2000
_MEMBERS: Final[Mapping[str, tuple[type, str]]] = {
    "approved": (bool, "true or false"),
    "choice": (str, "the id of a choice"),
    "remember": (str, "'session'"),
    "args": (Mapping, "an object"),
    "reason": (str, "text"),
    "stop": (bool, "true or false"),
}
_SCOPES: Final = ("session", "always")


class AnsweredApproval(AnswerData):
    """`{approved, by, choice?, remember?, args?, reason?, stop?}`, and true only if approved.

    Threat: whoever asks writes `if await …request_approval(…)`, and a denial is a mapping with members, too.
    """

    def __bool__(self) -> bool:
        return self.get("approved") is True

    @property
    def approved(self) -> bool:
        return bool(self)


class InputText(str):
    """The text that a person typed, with the files attached to it."""

    __slots__ = ("attachments", "request_id")

    def __new__(cls, content: str, request_id: str = "", attachments: list[dict[str, Any]] | None = None) -> InputText:
        text = super().__new__(cls, content)
        text.request_id, text.attachments = request_id, attachments
        return text

    request_id: str
    attachments: list[dict[str, Any]] | None

    @property
    def content(self) -> str:
        return str(self)


def invalid_member(data: Mapping[str, Any], besides: Collection[str] = ()) -> str:
    """Describes the first member of an approval answer that is not valid; empty if all are.

    `besides`: other members that it may hold.
    """
    if not isinstance(data.get("approved"), bool):
        return "'approved' is not true or false"
    for name, value in data.items():
        if name in besides:
            continue
        if name not in _MEMBERS:
            return unknown_name_message("there is no", name, _MEMBERS)
        kind, words = _MEMBERS[name]
        if value is not None and not isinstance(value, kind):
            return f"{name!r} is not {words}"
    if data.get("remember") not in (None, *_SCOPES):
        return f"'remember' is {data['remember']!r}, not 'session'; leave it out for this once"
    return "an approval cannot also stop the turn" if data["approved"] and data.get("stop") else ""


def approval_answer(question: Mapping[str, Any], data: Mapping[str, Any]) -> AnswerData | str:
    """`{approved, choice?, remember?, args?, reason?, stop?}`; `remember` only where no choices were offered."""
    if wrong := invalid_member(data, besides=("requestId",)):
        return wrong
    approved = data["approved"]
    choice = _choice(question, data)
    if isinstance(choice, str):
        return choice
    answer: AnswerData = {"approved": approved}
    if approved and choice is not None:
        answer["choice"] = choice["id"]
    elif approved and data.get("remember"):
        answer["remember"] = data["remember"]
    if approved and data.get("args") is not None and not same_json(data["args"], question.get("args")):
        answer["args"] = dict(data["args"])
    if data.get("reason"):
        answer["reason"] = str(data["reason"])[:MAX_REASON_CHARS]
    if data.get("stop"):
        answer["stop"] = True
    return answer


def _choice(question: Mapping[str, Any], data: Mapping[str, Any]) -> Mapping[str, Any] | str | None:
    """The offered choice an answer names, by id or by scope; choices are offered narrow to wide."""
    choices = question.get("choices") or []
    named, scope = data.get("choice"), data.get("remember")
    if named is not None:
        offered = ", ".join(str(one.get("id")) for one in choices) or "none"
        why = f"choice {named!r} was not offered; there is {offered}"
        return next((one for one in choices if one.get("id") == named), why)
    if scope and (choices or scope != "session"):  # without choices, what `session` means is up to whoever asks
        why = f"'remember': no choice for {scope!r} was offered"
        return next((one for one in choices if one.get("scope") == scope), why)
    return None


def form_answer(question: Mapping[str, Any], data: Mapping[str, Any]) -> AnswerData | str:
    """Checks the answer to a form, `{action, values?}`. Returns the data, or the problem as text."""
    action = data.get("action")
    if action not in ("accept", "decline", "cancel"):
        return f"action {action!r} is not accept, decline or cancel"
    if action != "accept":
        return {"action": action}
    values = data.get("values")
    if values is not None and not isinstance(values, Mapping):
        return "'values' is not an object"
    return {"action": action, "values": dict(values or {})}


def input_answer(question: Mapping[str, Any], data: Mapping[str, Any]) -> AnswerData | str:
    """Checks the answer to an input question, `{content, attachments?}`. Returns the data, or the problem as text."""
    if not isinstance(data.get("content"), str):
        return "'content' is not text"
    return {key: data[key] for key in ("content", "attachments") if data.get(key) is not None}


def with_field_errors(question: Mapping[str, Any], errors: Mapping[str, str]) -> dict[str, Any]:
    """Returns the card with the errors of an edit: at its fields, and as warnings for UIs without a form."""
    fields = [
        {key: value for key, value in field.items() if key != "error"}
        | ({"error": errors[field["name"]]} if field.get("name") in errors else {})
        for field in question.get("fields") or []
    ]
    words = [f"{name}: {error}" if name else error for name, error in errors.items()]
    kept = [text for text in question.get("warnings") or [] if text not in words]
    return {**question, "warnings": kept + words, **({"fields": fields} if fields else {})}


NOBODY: Final = "nobody"
INTERRUPT: Final = "interrupt"
TIMEOUT: Final = "timeout"
COMMAND: Final = "command"
UI_GONE: Final = "No one can answer: the UI is gone."
NO_UI: Final = "No one can answer: no UI is attached."
NO_LISTENER: Final = "No one can answer: no UI listens to {asks!r}."
TOO_MANY: Final = "too many pending approvals"
TRUST_QUESTIONS: Final = frozenset({"trust", "definition"})
"""Types of approvals that trust code or a definition from now on."""
NO_TRUST_HERE: Final = (
    "No one here may trust this. Run `forge trust`, `forge mcp approve NAME` or `forge tools activate NAME` at a "
    "terminal, or answer on the page (/web)."
)
MAX_OPEN: Final = 100
MAX_PROBLEM_CHARS: Final = 500
ANSWER_REFUSED: Final = "ANSWER_REFUSED"
"""The code of the `status` that tells a UI why its answer did not count."""
NOT_ATTACHED: Final = (
    "{who} is not attached, so nobody can answer: what asks is denied. In its `initialize` it calls "
    "`self.detach = create_runtime_ui(bus).attach('its name')`, and in `shutdown` `self.detach()`"
)

EditCheck = Callable[[Mapping[str, Any]], Mapping[str, str] | None]
"""Looks at edited arguments; gives the errors by field name, none if they are valid; None: they are what was asked
about, so that the answer is no edit. Raises EditRefused to end it."""

_log = logging.getLogger(__name__)


class EditRefused(Exception):
    """Raised if no further edit is accepted: the question ends as denied, with this text."""


class CancelSignal(Protocol):
    """Anything with an awaitable `wait`, such as asyncio.Event."""

    def wait(self) -> Awaitable[object]: ...


@dataclass(frozen=True, slots=True)
class QuestionKind:
    """One kind of question: its events, which answers count, and what it comes to when nobody answers."""

    asks: str
    answered: str
    resolved: str
    judge: Callable[[Mapping[str, Any], Mapping[str, Any]], AnswerData | str]
    refusal: AnswerData

    def refused(self, by: str, reason: str = "") -> AnswerData:
        return {**self.refusal, "by": by, **({"reason": reason} if reason else {})}


APPROVAL: Final = QuestionKind(
    "approvalRequired", "approvalResponse", "approvalResolved", approval_answer, {"approved": False}
)
FORM: Final = QuestionKind("formRequired", "formResponse", "formResolved", form_answer, {"action": "cancel"})
INPUT: Final = QuestionKind("inputPrompt", "userInput", "inputResolved", input_answer, {})


@dataclass(slots=True, eq=False)
class _Question:
    kind: QuestionKind
    wire: dict[str, Any]
    worker_id: str
    check_edit: EditCheck | None
    answer: asyncio.Future[AnswerData]
    cancel: CancelSignal | None = None

    @property
    def cancelled(self) -> bool:
        return self.cancel is not None and bool(getattr(self.cancel, "is_set", bool)())

    @property
    def id(self) -> str:
        return str(self.wire["requestId"])

    @property
    def trusts(self) -> bool:
        return self.kind is APPROVAL and self.wire.get("type") in TRUST_QUESTIONS


class OpenQuestions:
    def __init__(self, bus: EventBus) -> None:
        self.bus = bus
        self._adapters: list[str] = []
        self._without_trust: list[str] = []
        """Those of them whose answer to a question of trust does not count."""
        self._open: dict[str, _Question] = {}
        self._closed: deque[str] = deque(maxlen=2 * MAX_OPEN)
        self.kept_times: dict[str, tuple[float, float]] = {}
        """By question: when it was asked and when it was answered, where both are kept outside of this process."""
        self._warned = False
        self.ever_attached = False
        """Whether anyone ever could answer, also one who is gone now."""
        for kind in (APPROVAL, FORM, INPUT):
            bus.on(kind.answered, lambda event, kind=kind: self._take(kind, event))  # type: ignore[misc]

    @property
    def attached(self) -> bool:
        """Whether a UI that can answer is attached."""
        return bool(self._adapters)

    @property
    def may_trust(self) -> bool:
        """Whether anyone can answer a question of trust."""
        return len(self._adapters) > len(self._without_trust)

    @property
    def open_count(self) -> int:
        return len(self._open)

    def attach(self, name: str, *, may_trust: bool = True) -> Callable[[], None]:
        """Registers a UI that can answer; gives the function that says it is gone.

        `may_trust=False`: a program may give this UI's answers, so none of them trusts code or a definition.
        """
        self._adapters.append(name)
        if not may_trust:
            self._without_trust.append(name)
        self.ever_attached = True
        gone = False

        def detach() -> None:
            nonlocal gone
            if gone:
                return
            gone = True
            self._adapters.remove(name)
            if not may_trust:
                self._without_trust.remove(name)
            for question in list(self._open.values()):
                if not self._adapters or (question.trusts and not self.may_trust):
                    self._settle(question, question.kind.refused(NOBODY, UI_GONE), shown_by=name)

        return detach

    def replay_open(self, handler: Callable[[Event], object]) -> None:
        """Gives a UI that has just attached every open question again: same ids, original order."""
        for question in list(self._open.values()):
            handler(self._shown(question))

    def open_question(self, request_id: str) -> Event | None:
        """One open question, as UIs were shown it; None once it is resolved."""
        question = self._open.get(request_id)
        return None if question is None else self._shown(question)

    def _shown(self, question: _Question) -> Event:
        return self.bus.make_event(question.kind.asks, question.wire, question.worker_id)

    def objection(self, answer_type: str, data: Mapping[str, Any]) -> str | None:
        """Why this answer (`approvalResponse`, `formResponse`, `userInput`) would not count; empty: it would.

        None: no such question is open. Answers nothing; for a UI that wants to tell its person before it answers.
        """
        question = self._find(data.get("requestId"))
        if question is None or question.kind.answered != answer_type:
            return None
        judged = question.kind.judge(question.wire, data)
        return judged if isinstance(judged, str) else ""

    def _find(self, request_id: Any) -> _Question | None:
        """The open question of this id. One whose asker was cancelled ends here: no answer counts after that."""
        question = self._open.get(request_id) if isinstance(request_id, str) else None
        if question is not None and question.cancelled:
            self._settle(question, question.kind.refused(INTERRUPT))
            return None
        return question

    async def _ask(
        self,
        kind: QuestionKind,
        wire: dict[str, Any],
        *,
        limit_s: float | None,
        cancel: CancelSignal | None,
        worker_id: str = "",
        check_edit: EditCheck | None = None,
    ) -> AnswerData:
        if not self._adapters:
            if self.bus.listens(kind.asks):  # whoever listens to questions by name wants to answer them
                self.warn_not_attached(f"a UI that listens to {kind.asks!r}")
            return kind.refused(NOBODY, UI_GONE if self.ever_attached else NO_UI)
        listens = self.bus.listens
        if kind is FORM and not (listens(kind.asks) or listens(ALL_EVENTS)):  # many a UI has no forms
            return kind.refused(NOBODY, NO_LISTENER.format(asks=kind.asks))
        if len(self._open) >= MAX_OPEN:
            return kind.refused(NOBODY, TOO_MANY)
        self.bus.bind_loop()
        question = _Question(kind, wire, worker_id, check_edit, asyncio.get_running_loop().create_future(), cancel)
        if question.cancelled:
            return kind.refused(INTERRUPT)
        if question.trusts and not self.may_trust:
            return kind.refused(NOBODY, NO_TRUST_HERE)
        self._put(question)
        return await self._outcome(question, limit_s)

    def warn_not_attached(self, who: str) -> str:
        """A RuntimeWarning to the author of a UI, once for a bus; gives the sentence, empty the next time."""
        if self._warned:
            return ""
        self._warned = True
        warning = NOT_ATTACHED.format(who=who)
        warnings.warn(warning, RuntimeWarning, stacklevel=2)
        return warning

    def _put(self, question: _Question) -> None:
        if question.id in self._open:
            raise ValueError(f"request {question.id!r} is already open")
        self._open[question.id] = question  # first, because a UI may answer before emit returns
        try:
            self.bus.emit(question.kind.asks, dict(question.wire), question.worker_id)
        except ValueError:
            del self._open[question.id]
            raise

    async def _outcome(self, question: _Question, limit_s: float | None) -> AnswerData:
        waiter, cancel = question.answer, question.cancel
        cancelled = None if cancel is None else asyncio.ensure_future(cancel.wait())
        awaited: set[asyncio.Future[Any]] = {waiter} if cancelled is None else {waiter, cancelled}
        refused = question.kind.refused
        try:
            await asyncio.wait(awaited, timeout=limit_s, return_when=asyncio.FIRST_COMPLETED)
            if not waiter.done():
                interrupted = cancelled is not None and cancelled.done()
                if interrupted:
                    self._settle(question, refused(INTERRUPT))
                else:
                    self._settle(question, refused(TIMEOUT, f"No answer within {limit_s:g} s."))
            return waiter.result()
        except asyncio.CancelledError:
            if not waiter.done():
                self._settle(question, refused(INTERRUPT))
            raise
        finally:
            if cancelled is not None:
                cancelled.cancel()

    def _take(self, kind: QuestionKind, event: Event) -> None:
        request_id = event.wire.get("requestId")
        question = self._find(request_id)
        if question is None or question.kind is not kind:
            _log.debug("%s for %r ignored: no such request is open", event.type, request_id)
            if request_id not in self._closed:  # an answer that only came too late is nobody's mistake
                self._warn(f"{event.type} was ignored: no question {str(request_id)[:80]!r} is open.", event)
            return
        answer = kind.judge(question.wire, event.wire)
        if question.trusts and event.source in self._without_trust:
            answer = NO_TRUST_HERE.rstrip(".")
        if isinstance(answer, str):
            _log.debug("%s for %r is invalid and ignored: %s", event.type, request_id, answer)
            self._warn(f"This answer does not count: {answer[:MAX_PROBLEM_CHARS]}. The question is still open.", event)
            return
        if "args" in answer and question.check_edit is not None:
            try:
                errors = question.check_edit(answer["args"])
            except Exception as error:  # nobody denied it, and nobody may approve what was not looked at
                why = str(error) if isinstance(error, EditRefused) else "The edited arguments could not be checked."
                _log.warning("an edit ended its question: %s", type(error).__name__)
                self._settle(question, kind.refused(NOBODY, why), shown_by=event.source or NOBODY)
                return
            if errors:
                self._show_again(question, with_field_errors(question.wire, errors))
                return
            if errors is None:
                del answer["args"]
        only = self._adapters[0] if len(set(self._adapters)) == 1 else "ui"
        self._settle(question, {**answer, "by": event.source or only})

    def _warn(self, text: str, event: Event) -> None:
        self.bus.emit("status", {"type": "warning", "message": text, "code": ANSWER_REFUSED}, event.worker_id)

    def _withdraw(self, request_id: str, answer: AnswerData) -> None:
        """Ends a question that needs no answer any more; one that is not open is left as it is."""
        if (question := self._open.get(request_id)) is not None:
            self._settle(question, {**question.kind.refusal, **answer})

    def change_approval(self, request_id: str, **members: Any) -> None:
        """Shows an open card again with other facts: same id, members by wire name."""
        question = self._open.get(request_id)
        if question is not None and any(question.wire.get(name) != value for name, value in members.items()):
            self._show_again(question, {**question.wire, **members})

    def _show_again(self, question: _Question, wire: dict[str, Any]) -> None:
        question.wire = wire
        self.bus.emit(question.kind.asks, dict(wire), question.worker_id)

    def _settle(self, question: _Question, answer: AnswerData, shown_by: str = "") -> None:
        """Ends a question. `shown_by`: who is named to the UIs, where it is not who answered."""
        del self._open[question.id]
        self._closed.append(question.id)
        self.bus.emit(question.kind.resolved, _resolution(question, answer, shown_by), question.worker_id)
        if not question.answer.done():
            question.answer.set_result(dict(answer))


def _resolution(question: _Question, answer: AnswerData, shown_by: str) -> dict[str, Any]:
    resolution: dict[str, Any] = {"requestId": question.id}
    if question.kind is FORM:
        resolution["action"] = answer["action"]
    elif question.kind is APPROVAL:
        resolution |= {"approved": answer["approved"], "by": shown_by or answer["by"], "edited": "args" in answer}
        resolution |= {key: answer[key] for key in ("choice", "reason") if key in answer}
    return resolution
