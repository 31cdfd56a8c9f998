"""The desk where requests wait for a person: identical ones share a card, different ones are answered in any order.

Exactly one of answer, timeout and cancel takes effect for each waiting call. How a person is asked is the Asker's
business (`policy/asking.py`); the desk decides what an answer means, and for whom.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

from golem_forge.core.decision import AnsweredBy
from golem_forge.core.errors import error_name
from golem_forge.core.signal import InterruptSignal
from golem_forge.core.verdict import Status
from golem_forge.policy.answers import Answer, denied, read_answer
from golem_forge.policy.request import ApprovalRequest

MAX_PENDING: Final = 100
MAX_EDITS: Final = 20
_log = logging.getLogger(__name__)

Problems = tuple[tuple[str, str], ...]
CheckEdit = Callable[[dict[str, Any]], Problems]
"""Edited arguments → problems by field; empty when they are valid."""


class TooManyEdits(Exception):
    """This question was answered with invalid arguments often enough."""


@dataclass(slots=True, eq=False)
class Question:
    """One card on its way to a person."""

    request: ApprovalRequest
    check: Callable[[Mapping[str, Any]], Problems]
    """Problems of edited arguments by field, in words that may be shown; empty if they would do. The question stays
    open meanwhile. Raises TooManyEdits."""
    withdrawn: Callable[[Answer], None] = field(default=lambda answer: None)
    """Set by an asker that wants to know, just before it is cancelled, what made its question needless."""
    more_wait: Callable[[int], None] = field(default=lambda waiting: None)
    """Set by an asker that can show that another identical call has come to wait."""


Asker = Callable[[Question], Awaitable[Any]]
"""Shows one question and returns the raw answer, `{approved, choice?, args?, reason?, stop?, by?}`. Cancelled when the
question is withdrawn."""


@dataclass(slots=True, kw_only=True)
class Waiting:
    """One call that waits at the desk."""

    request: ApprovalRequest
    check_edit: CheckEdit
    restore: Callable[[dict[str, Any]], dict[str, Any]]
    """Edited arguments with what the person was not shown put back."""
    clean: Callable[[Problems], Problems]
    """Problems without secrets: their words may repeat a value."""
    covered: Callable[[], Answer | None]
    """Judges the call again: an answer if it needs no person any more."""
    signal: InterruptSignal
    answer: asyncio.Future[Answer] = field(default_factory=lambda: asyncio.get_running_loop().create_future())


@dataclass(slots=True)
class _Card:
    waiting: list[Waiting]
    task: asyncio.Task[None] | None = None
    question: Question | None = None
    """While a person looks at it."""


class ApprovalDesk:
    def __init__(self, ask: Asker) -> None:
        self._ask = ask
        self._cards: dict[str, _Card] = {}

    @property
    def pending(self) -> int:
        return sum(len(card.waiting) for card in self._cards.values())

    async def wait(self, waiting: Waiting) -> Answer:
        if self.pending >= MAX_PENDING:
            return denied("too many pending approvals")
        key = f"{waiting.request.fingerprint} {waiting.request.diff}"  # one card only for what looks the same too
        card = self._cards.get(key)
        if card is None:
            card = self._cards[key] = _Card([waiting])
            card.task = asyncio.get_running_loop().create_task(self._serve(key, card))
        else:
            card.waiting.append(waiting)
            card.waiting[0].request.waiting = len(card.waiting)
            if card.question is not None:
                card.question.more_wait(len(card.waiting))
        loop = asyncio.get_running_loop()  # the signal may come from any thread
        forget = waiting.signal.listen(lambda _: loop.call_soon_threadsafe(self._settle, waiting, _interrupted()))
        try:
            return await waiting.answer
        finally:
            forget()
            self._leave(key, card, waiting)

    def judge_again(self) -> None:
        """After an answer was remembered: whoever is covered by it now needs no card."""
        for key, card in list(self._cards.items()):
            for waiting in list(card.waiting):
                if not waiting.answer.done() and (answer := waiting.covered()):
                    self._settle(waiting, answer)
            answers = [waiting.answer for waiting in card.waiting]
            if answers and all(each.done() and not each.cancelled() for each in answers):
                self._cards.pop(key, None)  # nobody joins it any more: this answer is for those who waited
                self._withdraw(card, answers[0].result())

    async def _serve(self, key: str, card: _Card) -> None:
        """Whatever happens to the asking, nobody who waits at this card is left without an answer."""
        try:
            await self._ask_until_nobody_waits(key, card)
        except BaseException as error:
            if not isinstance(error, asyncio.CancelledError):
                _log.warning("the approval could not be asked: %s", type(error).__name__)
        finally:
            if self._cards.get(key) is card:
                del self._cards[key]
            for waiting in card.waiting:
                self._settle(waiting, denied("The approval could not be asked; the call was not run."))

    async def _ask_until_nobody_waits(self, key: str, card: _Card) -> None:
        """Once, and again for the others after each edit of the oldest."""
        while waiting := [w for w in card.waiting if not w.answer.done()]:
            first = waiting[0]
            first.request.waiting = len(waiting)
            card.question = self._question(first)
            answer = await self._answer_to(first, card.question)
            card.question = None
            # whoever joined while the card was open saw the same request, so the answer is theirs too
            served = [first] if answer.args is not None else [w for w in card.waiting if not w.answer.done()]
            if answer.args is None:
                self._cards.pop(key, None)
            for each in served:
                self._settle(each, answer)
            card.waiting = [w for w in card.waiting if w not in served]

    async def _answer_to(self, waiting: Waiting, question: Question) -> Answer:
        try:
            answer = read_answer(await self._ask(question), waiting.request)
            if answer.args is None:
                return answer
            edited = waiting.restore(answer.args)
            problems = waiting.check_edit(edited)
            if not problems:
                return replace(answer, args=edited)
            why = in_words(waiting.clean(problems))
            return denied(f"The edited arguments are not valid ({why}); the call was not run.")
        except TooManyEdits as error:
            return denied(str(error))
        except Exception as error:  # a broken UI must not become a consent
            _log.warning("the approval could not be asked: %s", type(error).__name__)
            return denied(f"The approval could not be asked ({error_name(error)}); the call was not run.")

    def _question(self, waiting: Waiting) -> Question:
        edits = 0

        def check(args: Mapping[str, Any]) -> Problems:
            nonlocal edits
            problems = waiting.check_edit(waiting.restore(dict(args)))
            edits += bool(problems)
            shown = waiting.clean(problems) if problems else ()
            if edits >= MAX_EDITS:
                raise TooManyEdits(
                    f"The arguments were edited {MAX_EDITS} times without a valid form ({in_words(shown)}); "
                    "the call was not run."
                )
            return shown

        return Question(waiting.request, check)

    def _withdraw(self, card: _Card, answer: Answer) -> None:
        question, card.question = card.question, None
        if question is not None:
            question.withdrawn(answer)

    def _settle(self, waiting: Waiting, answer: Answer) -> None:
        if not waiting.answer.done():
            waiting.answer.set_result(answer)

    def _leave(self, key: str, card: _Card, waiting: Waiting) -> None:
        """One gone leaves the card to the others; the last one gone withdraws it."""
        if waiting in card.waiting:
            card.waiting.remove(waiting)
        if not card.waiting and card.task is not None and not card.task.done():
            gone = waiting.answer.cancelled() or not waiting.answer.done()  # whoever called was cancelled
            self._withdraw(card, _interrupted() if gone else waiting.answer.result())
            card.task.cancel()
            if self._cards.get(key) is card:
                del self._cards[key]


def in_words(problems: Problems) -> str:
    return "; ".join(f"{name}: {problem}" if name else problem for name, problem in problems)


def _interrupted() -> Answer:
    return denied("Interrupted before it was approved.", by=AnsweredBy.NOBODY, status=Status.INTERRUPTED)
