"""Askers: the ways to put one card before a person and get the raw answer back.

`ui_asker` asks every attached UI over the bus; `callback_asker` calls an embedder's function. Both look at edited
arguments while the question is still open: invalid ones are shown with what is wrong at their fields. Neither turns
silence or an error into a yes.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from typing import Any

from golem_forge.core.copying import own_copy
from golem_forge.events.open_questions import INTERRUPT, NOBODY, EditRefused
from golem_forge.events.questions import RuntimeUI
from golem_forge.policy.answers import Answer
from golem_forge.policy.desk import Asker, Question, TooManyEdits, in_words
from golem_forge.policy.request import ApprovalRequest
from golem_forge.tools.forms import errors_by_field
from golem_forge.tools.threads import run_in_thread

ApprovalCallback = Callable[[ApprovalRequest], Any | Awaitable[Any]]


def ui_asker(ui: RuntimeUI, timeout: float | None = None) -> Asker:
    """`timeout` in seconds, shown on the card as `expiresAt`; none by default."""

    async def ask(question: Question) -> Mapping[str, Any]:
        request = question.request

        def check(args: Mapping[str, Any]) -> Mapping[str, str]:
            try:
                return errors_by_field(question.check(args))
            except TooManyEdits as error:
                raise EditRefused(str(error)) from None

        def withdraw(answer: Answer) -> None:
            by = "memory" if answer.approved else INTERRUPT
            ui.withdraw_approval(request.id, approved=answer.approved, by=by)

        question.withdrawn = withdraw
        question.more_wait = lambda waiting: ui.change_approval(request.id, waiting=waiting)
        asked_by = next((str(link["id"]) for link in reversed(request.worker_path) if not link.get("tool")), "")
        return await ui.request_approval(request.to_wire(), timeout=timeout, check_edit=check, worker_id=asked_by)

    return ask


def callback_asker(callback: ApprovalCallback, timeout: float | None = None) -> Asker:
    """An invalid edit calls it again, with `field_errors` on the request; the same edit twice denies."""

    async def ask(question: Question) -> Any:
        request = question.request
        before: Any = None
        while True:
            answer = await _called(callback, request)
            edited = answer.get("args") if isinstance(answer, Mapping) and answer.get("approved") is True else None
            if not isinstance(edited, Mapping):
                return answer
            problems = question.check(edited)
            if not problems:
                return answer
            if edited == before:
                why = f"The edited arguments are not valid ({in_words(problems)}); the call was not run."
                return {"approved": False, "by": NOBODY, "reason": why}
            before = own_copy(edited)
            request = replace(request, field_errors=problems)

    async def ask_in_time(question: Question) -> Any:
        limit = asyncio.timeout(timeout)
        try:
            async with limit:
                return await ask(question)
        except TimeoutError:
            if not limit.expired():  # the callback's own
                raise
            return {"approved": False, "by": "timeout", "reason": f"No answer within {timeout:g} s."}

    return ask_in_time


async def _called(callback: ApprovalCallback, request: ApprovalRequest) -> Any:
    if inspect.iscoroutinefunction(callback):
        return await callback(request)
    answer = await run_in_thread(lambda: callback(request))
    return await answer if inspect.isawaitable(answer) else answer
