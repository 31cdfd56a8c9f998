"""ServedCall: one call of a client, from its request to its Outcome, however many requests that takes.

The call runs in a task of its own. It either ends, or a question comes up that the client must answer (an approval, a
form of a proxied server): `next` gives whichever comes first. In the handshake era the question is put while the
request stays open; on 2026-07-28 the request is answered with it, the call is parked and a later request goes on.

Threat: a client may leave at any moment, answer twice or never. A question is answered once, by `cancel` if nobody
does within its time, and whoever ends a call ends what it asks.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import Callable, Coroutine, Mapping
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from golem_forge.core.call import Outcome
from golem_forge.core.signal import InterruptSignal
from golem_forge.mcp.client.calling.flight import asks_for
from golem_forge.mcp.client.hooks import Form, FormAnswer

if TYPE_CHECKING:
    from golem_forge.policy.request import ApprovalRequest
    from golem_forge.tools.context import ToolContext

ANSWER_SECONDS: Final = 600.0
OUR_KEY: Final = "forge"
END_SECONDS: Final = 0.8
"""Cancelling a call must be over within a second, whatever the call does about it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """What the client's person did: `accept` (with content), `decline` or `cancel`."""

    action: str = "cancel"
    content: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Abilities:
    """What the client said it can be asked."""

    forms: bool = False
    pages: bool = False
    """URLs that its person opens."""


class Question:
    """One elicitation on its way to the client. Answered once; later answers change nothing."""

    def __init__(self, message: str, schema: Mapping[str, Any], url: str = "", key: str = "") -> None:
        """`key`: how whoever asks calls the question."""
        self.message = message
        self.schema = schema
        self.url = url
        self.key = key or OUR_KEY
        self._reply: asyncio.Future[Reply] = asyncio.get_running_loop().create_future()

    @property
    def open(self) -> bool:
        return not self._reply.done()

    def answer(self, reply: Reply) -> None:
        if self.open:
            self._reply.set_result(reply)

    async def replied(self) -> Reply:
        return await asyncio.shield(self._reply)  # whoever stops waiting does not withdraw it


class ServedCall:
    def __init__(self, call_id: str, abilities: Abilities, client: object = None) -> None:
        """`client`: whose it is; what servers ask during calls of different ones is never mixed up."""
        self.id = call_id
        self._client = client
        self.abilities = abilities
        self.cancel = InterruptSignal()
        self.progress: asyncio.Queue[tuple[float, float | None, str]] = asyncio.Queue(1)
        """The latest that is not sent yet: one that nobody has read makes room for the next."""
        self._questions: deque[Question] = deque()
        self._news = asyncio.Event()
        self._task: asyncio.Task[Outcome] | None = None

    def start(self, work: Coroutine[Any, Any, Outcome], over: Callable[[], None] = lambda: None) -> None:
        """`over` is told when the call has its Outcome, whoever still waits for it."""

        def ended(task: asyncio.Task[Outcome]) -> None:
            self._news.set()
            over()

        self._task = asyncio.get_running_loop().create_task(self._run(work))
        self._task.add_done_callback(ended)

    async def _run(self, work: Coroutine[Any, Any, Outcome]) -> Outcome:
        _current.set(self)
        asks_for.set(self._client)
        return await work

    async def next(self) -> Question | Outcome:
        """The next open question, else the Outcome. A caller that is cancelled leaves the call as it is."""
        assert self._task is not None
        while True:
            while self._questions and not self._questions[0].open:
                self._questions.popleft()
            if self._task.done():
                return self._task.result()
            if self._questions:
                return self._questions[0]
            self._news.clear()
            await self._news.wait()

    async def ask(self, question: Question, seconds: float = ANSWER_SECONDS) -> Reply:
        """From inside the call: waits for the client's answer, and takes silence for `cancel`."""
        able = self.abilities.pages if question.url else self.abilities.forms
        over = self._task is not None and self._task.done()  # nobody would ever fetch it
        if not able or over or self.cancel:
            return Reply()
        loop = asyncio.get_running_loop()
        forget = self.cancel.listen(lambda _: loop.call_soon_threadsafe(question.answer, Reply()))
        late = loop.call_later(seconds, question.answer, Reply())
        self._questions.append(question)
        self._news.set()
        try:
            return await question.replied()
        finally:
            late.cancel()
            forget()
            question.answer(Reply())
            self._news.set()

    def report(self, progress: float, total: float | None, message: str) -> None:
        with contextlib.suppress(asyncio.QueueEmpty):
            self.progress.get_nowait()
            self.progress.task_done()
        self.progress.put_nowait((progress, total, message))

    async def end(self, why: str) -> None:
        """Ends the call and its whole process tree; back within a second."""
        self.cancel.interrupt(why)
        task = self._task
        if task is None or task.done():
            return
        await asyncio.wait({task}, timeout=END_SECONDS)
        if not task.done():
            task.cancel()


_current: ContextVar[ServedCall | None] = ContextVar("golem_forge_served_call", default=None)


class ServedCalls:
    """The calls under way, by their id at the top of the one path."""

    def __init__(self) -> None:
        self._calls: dict[str, ServedCall] = {}

    def __len__(self) -> int:
        return len(self._calls)

    def add(self, call: ServedCall) -> None:
        self._calls[call.id] = call

    def discard(self, call: ServedCall) -> None:
        self._calls.pop(call.id, None)

    def asked_in(self, request: ApprovalRequest) -> ServedCall | None:
        """The call in which this approval came up: itself, or made by a tool that it called."""
        outermost = next((str(link["id"]) for link in request.worker_path if link.get("tool")), request.call_id)
        return self._calls.get(outermost) or _current.get()

    async def fill(self, form: Form, ctx: ToolContext) -> FormAnswer:
        """`Hooks.ask_form` of a served session: the form of a proxied server goes to the client whose call it is."""
        call = self._calls.get(ctx.outermost_call_id or ctx.call_id) or _current.get()
        if call is None:
            return FormAnswer()
        reply = await call.ask(Question(f"{form.server}: {form.message}", form.schema, form.url, form.key))
        return FormAnswer(action=reply.action, values=dict(reply.content))
