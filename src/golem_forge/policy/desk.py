"""The desk where requests wait for a person: identical ones share a card, different ones are answered in any order.

Exactly one of answer, timeout and cancel takes effect for each waiting call.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace
from typing import Any, Final

from golem_forge.core.decision import AnsweredBy
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
Asker = Callable[[ApprovalRequest], Awaitable[Any]]
"""Shows one request and returns the raw answer. Cancelled when the request is withdrawn."""


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


class ApprovalDesk:
    def __init__(self, ask: Asker, *, timeout: float | None = None) -> None:
        self._ask = ask
        self._timeout = timeout
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
        loop = asyncio.get_running_loop()  # the signal may come from any thread
        forget = waiting.signal.listen(lambda _: loop.call_soon_threadsafe(self._settle, waiting, _interrupted()))
        try:
            return await waiting.answer
        finally:
            forget()
            self._leave(key, card, waiting)

    def judge_again(self) -> None:
        """After an answer was remembered: whoever is covered by it now needs no card."""
        for card in list(self._cards.values()):
            for waiting in list(card.waiting):
                if not waiting.answer.done() and (answer := waiting.covered()):
                    self._settle(waiting, answer)

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
            answer = await self._answer_to(first)
            # whoever joined while the card was open saw the same request, so the answer is theirs too
            served = [first] if answer.args is not None else [w for w in card.waiting if not w.answer.done()]
            if answer.args is None:
                self._cards.pop(key, None)
            for each in served:
                self._settle(each, answer)
            card.waiting = [w for w in card.waiting if w not in served]

    async def _answer_to(self, waiting: Waiting) -> Answer:
        for _ in range(MAX_EDITS):
            limit = asyncio.timeout(self._timeout)
            try:
                async with limit:
                    raw = await self._ask(waiting.request)
                answer = read_answer(raw, waiting.request)
                if answer.args is None:
                    return answer
                edited = waiting.restore(answer.args)
                problems = waiting.check_edit(edited)
            except Exception as error:  # a broken UI must not become a consent
                if limit.expired():
                    return denied(f"No answer within {self._timeout:g} s.")
                _log.warning("the approval callback failed: %s", type(error).__name__)
                return denied(f"The approval could not be asked ({type(error).__name__}); the call was not run.")
            if not problems:
                return replace(answer, args=edited)
            waiting.request = replace(waiting.request, field_errors=waiting.clean(problems))
        return denied(f"The arguments were edited {MAX_EDITS} times without a valid form; the call was not run.")

    def _settle(self, waiting: Waiting, answer: Answer) -> None:
        if not waiting.answer.done():
            waiting.answer.set_result(answer)

    def _leave(self, key: str, card: _Card, waiting: Waiting) -> None:
        """One gone leaves the card to the others; the last one gone withdraws it."""
        if waiting in card.waiting:
            card.waiting.remove(waiting)
        if not card.waiting and card.task is not None and not card.task.done():
            card.task.cancel()
            if self._cards.get(key) is card:
                del self._cards[key]


def _interrupted() -> Answer:
    return denied("Interrupted before it was approved.", by=AnsweredBy.NOBODY, status=Status.INTERRUPTED)
