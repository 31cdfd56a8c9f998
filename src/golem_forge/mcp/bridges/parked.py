"""Parked calls: they wait at their approval until a framework that cannot be asked during a call returns with an
answer.

Such a framework runs a call, is told that it needs approval, ends its turn, and later repeats the call with a flag that
says "approved". Threat: that flag came over a wire and authorises nothing. So the call itself stays parked in the
middle of the one path, at its question, and `go_on` lets exactly that call pass, matched by the framework's id, the
same arguments and the fingerprint of what was asked. An id that is not known, other arguments, a question that has
changed or expired: a new call, which asks anew.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from contextvars import ContextVar
from time import monotonic
from typing import Any, Final

from golem_forge.core.calls import Outcome
from golem_forge.core.json import digest
from golem_forge.core.lazy_dataclass import dataclass
from golem_forge.policy.request import ApprovalRequest

MOST_PARKED: Final = 64
MOST_SHOWN: Final = 1024
PARKED_SECONDS: Final = 600.0
Runner = Callable[[], Awaitable[Outcome]]
"""Makes the call through all stages."""
_UNASKED: Final = {"approved": False, "by": "nobody", "reason": "Nobody can be asked here; the call was not run."}


@dataclass(eq=False, slots=True)
class _Question:
    request: ApprovalRequest
    answer: asyncio.Future[bool]


class _Run:
    """One run of a call through the stages."""

    def __init__(self, key: str, ahead: str) -> None:
        self.key = key
        self.ahead = ahead
        """A fingerprint that was approved before its question came up again."""
        self.questions: deque[_Question] = deque()
        self.task: asyncio.Task[Outcome] | None = None
        self._news = asyncio.Event()

    @property
    def over(self) -> bool:
        return self.task is None or self.task.done()

    def tell(self) -> None:
        news, self._news = self._news, asyncio.Event()
        news.set()

    async def news(self) -> None:
        """Waits until it came to a question, left one, or ended."""
        await self._news.wait()

    def answer(self, yes: bool) -> None:
        question = self.questions.popleft()
        if not question.answer.done():
            question.answer.set_result(yes)


@dataclass(frozen=True, slots=True)
class _Presented:
    """What the framework was given under one of its ids."""

    key: str
    fingerprint: str
    at: float


_current_run: ContextVar[_Run | None] = ContextVar("golem_forge_parked_call", default=None)


class ParkedCalls:
    """`ask` is the approval callback of the session whose calls are made through `begin` and `go_on`."""

    def __init__(self, seconds: float = PARKED_SECONDS) -> None:
        self._seconds = seconds
        self._shown: dict[str, _Presented] = {}
        """By the framework's id."""
        self._runs: dict[str, _Run] = {}
        """The latest of each call that has not ended, by its key. Those with a question are parked."""

    async def ask(self, request: ApprovalRequest) -> dict[str, Any]:
        """Waits at the question. Somebody else's call, and one that nobody answers in time, is not run."""
        call = _current_run.get()
        if call is None:
            return dict(_UNASKED)
        if call.ahead == request.fingerprint:
            call.ahead = ""
            return {"approved": True}
        question = _Question(request, asyncio.get_running_loop().create_future())
        call.questions.append(question)
        call.tell()
        try:
            async with asyncio.timeout(self._seconds):
                return {"approved": await question.answer}
        except TimeoutError:
            return {"approved": False, "by": "timeout", "reason": f"No answer within {self._seconds:g} s."}
        finally:
            if question in call.questions:
                call.questions.remove(question)
            call.tell()

    async def begin(self, ident: str, name: str, args: Any, run: Runner) -> Outcome | ApprovalRequest:
        """A call under the framework's id: its Outcome, or the question that it now waits at.

        The very same call may be under way already. If that comes to a question, this one is shown it too and starts
        when it is approved itself: two that wait at one question would both pass by one yes.
        """
        key = digest([name, args])
        while (same := self._runs.get(key)) is not None and not same.over:
            if same.questions:
                return self._show(ident, same)
            await same.news()
        return await self._until_news(ident, self._start(key, run))

    async def go_on(
        self, ident: str, name: str, args: Any, run: Runner, fingerprint: str = ""
    ) -> Outcome | ApprovalRequest:
        """The framework says that this call was approved. `fingerprint`: of what, where it says that too."""
        shown = self._shown.pop(ident, None)
        if shown is None or shown.key != digest([name, args]) or monotonic() - shown.at > self._seconds:
            return await self.begin(ident, name, args, run)
        if fingerprint and fingerprint != shown.fingerprint:
            return await self.begin(ident, name, args, run)
        call = self._runs.get(shown.key)
        if call is None or not call.questions:  # an identical call passed meanwhile, by a yes of its own
            call = self._start(shown.key, run, ahead=shown.fingerprint)
        elif call.questions[0].request.fingerprint == shown.fingerprint:
            call.answer(True)
        return await self._until_news(ident, call)

    async def aclose(self) -> None:
        """Withdraws all waiting calls; none of them runs."""
        tasks = [run.task for run in self._runs.values() if run.task is not None]
        self._runs.clear()
        self._shown.clear()
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)

    def _start(self, key: str, run: Runner, ahead: str = "") -> _Run:
        call = _Run(key, ahead)

        async def work() -> Outcome:
            _current_run.set(call)
            return await run()

        def over(_: asyncio.Task[Outcome]) -> None:
            if self._runs.get(key) is call:
                del self._runs[key]
            call.tell()

        call.task = asyncio.get_running_loop().create_task(work())
        call.task.add_done_callback(over)
        self._runs[key] = call
        return call

    async def _until_news(self, ident: str, call: _Run) -> Outcome | ApprovalRequest:
        assert call.task is not None
        try:
            while not call.over:
                if call.questions:
                    self._make_room(call)
                    return self._show(ident, call)
                await call.news()
        except asyncio.CancelledError:
            call.task.cancel()  # whoever called has gone: so does what it called for
            await asyncio.wait({call.task})
            raise
        return call.task.result()

    def _make_room(self, newest: _Run) -> None:
        """The oldest gives way: it is not run, and its person can ask for it again."""
        parked = [run for run in self._runs.values() if run.questions and run is not newest]
        for run in parked[: max(0, len(parked) + 1 - MOST_PARKED)]:
            run.answer(False)

    def _show(self, ident: str, call: _Run) -> ApprovalRequest:
        request = call.questions[0].request
        self._shown.pop(ident, None)
        while len(self._shown) >= MOST_SHOWN:
            self._shown.pop(next(iter(self._shown)))
        self._shown[ident] = _Presented(call.key, request.fingerprint, monotonic())
        return request
