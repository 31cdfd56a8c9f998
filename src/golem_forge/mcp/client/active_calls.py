"""Calls of one server that are under way: slots, time limits, and questions that the server asks during a call.

`ActiveCall` is one call; `call_in_progress` marks it in the caller's task, so that a question which the SDK delivers
there finds its call. `ask_during_call` asks a person: the call's timers stand still until there is an answer, and the
question is withdrawn when the call is interrupted or over. `CallSlots` admits eight calls at a time, first come first
served. `CallTimers` has one timer for two limits: progress restarts the idle limit, never the total one.
`RequestRefused` becomes a JSON-RPC error; its text is for the server's author.

Threat: a server that asks without end (its questions are counted per call), and a question about one client's call that
is shown to another: a connection is shared, and older protocol versions do not say which call a question is about.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from contextvars import Context, ContextVar, Token, copy_context
from enum import StrEnum
from time import monotonic
from typing import Any, Final, TypeVar

from golem_forge.core.lazy_dataclass import dataclass, field
from golem_forge.tools.context import ToolContext

T = TypeVar("T")
answering_client: ContextVar[object] = ContextVar("mcp_asks_for", default=None)
"""The client that answers what servers ask during these calls; None means the people at the session."""


@dataclass(slots=True, eq=False)
class ActiveCall:
    ctx: ToolContext
    tool: str
    """Raw name; or the method, for a resource or a prompt."""
    paused: Callable[[], AbstractContextManager[None]] = nullcontext
    """Stops the call's clocks while a person is asked; may be entered several times at once."""
    over: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when the call has ended; open questions on its behalf are withdrawn."""
    form_count: int = 0
    """Number of forms so far."""
    sampling_count: int = 0
    context: Context = field(default_factory=copy_context)
    """The caller's: what is asked on its behalf is asked there, whichever task the question arrives in."""


_current_call: ContextVar[ActiveCall | None] = ContextVar("mcp_flight", default=None)


class call_in_progress:
    """`with call_in_progress(call): …`, around the call, in the task that makes it."""

    __slots__ = ("_flight", "_token")

    def __init__(self, flight: ActiveCall) -> None:
        self._flight = flight

    def __enter__(self) -> ActiveCall:
        self._token: Token[ActiveCall | None] = _current_call.set(self._flight)
        return self._flight

    def __exit__(self, *_: object) -> None:
        _current_call.reset(self._token)
        self._flight.over.set()


def call_for_question(flights: Sequence[ActiveCall]) -> ActiveCall | None:
    """The call on whose behalf a question is asked: the one whose task it arrives in, else the latest of that server.

    `flights`: those of the server, in the order they began. Raises RequestRefused where it could be about the call of
    either of two who share nothing but this server.
    """
    current = _current_call.get()
    if current is not None and any(each is current for each in flights):
        return current
    if len({id(each.context.get(answering_client)) for each in flights}) > 1:
        why = "several clients have calls under way, so Forge cannot tell which client this is about"
        raise RequestRefused(INVALID_REQUEST, why)
    return flights[-1] if flights else None


async def ask_during_call(flight: ActiveCall, question: Coroutine[Any, Any, T]) -> T | None:
    """The answer; None: the call was interrupted or ended first, and the question was withdrawn."""
    loop = asyncio.get_running_loop()
    interrupted = asyncio.Event()
    with flight.paused():
        answer = loop.create_task(question, context=flight.context)
        ends = [loop.create_task(interrupted.wait()), loop.create_task(flight.over.wait())]
        forget = flight.ctx.cancel.listen(lambda _: loop.call_soon_threadsafe(interrupted.set))
        try:
            await asyncio.wait({answer, *ends}, return_when=asyncio.FIRST_COMPLETED)
            return answer.result() if answer.done() else None
        finally:  # also when the server itself takes its question back
            forget()
            for task in (answer, *ends):
                task.cancel()


MAX_ACTIVE_CALLS: Final = 8


class CallSlots:
    def __init__(self) -> None:
        self._slots = asyncio.Semaphore(MAX_ACTIVE_CALLS)
        self._flights: dict[ActiveCall, None] = {}
        self._wanted = 0
        self._last_used = monotonic()
        self._left: set[asyncio.Task[Any]] = set()

    def active_calls(self) -> tuple[ActiveCall, ...]:
        """Returns the active calls in the order they began."""
        return tuple(self._flights)

    async def acquire(self) -> None:
        """Waits for a turn, to be given back. Whoever waits counts as use too."""
        self._wanted += 1
        try:
            await self._slots.acquire()
        except BaseException:
            self._wanted -= 1
            raise

    def release(self) -> None:
        self._slots.release()
        self._wanted -= 1
        self._last_used = monotonic()

    def call_began(self, flight: ActiveCall) -> None:
        """Its request is about to be sent: only now, and until it `landed`, may the server ask on its behalf."""
        self._flights[flight] = None

    def call_ended(self, flight: ActiveCall) -> None:
        self._flights.pop(flight, None)

    def touch(self) -> None:
        self._last_used = monotonic()

    def idle_seconds(self) -> float:
        """Returns the seconds without use; 0 while a call runs or waits."""
        return 0.0 if self._wanted else monotonic() - self._last_used

    def abandon(self, task: asyncio.Task[Any]) -> None:
        """Work whose caller is gone: it tells the server, and ends."""
        self._left.add(task)
        task.add_done_callback(self._left_ended)
        task.cancel()

    def stop(self) -> None:
        for task in self._left:
            task.cancel()

    def _left_ended(self, task: asyncio.Task[Any]) -> None:
        self._left.discard(task)
        if not task.cancelled():
            task.exception()


class TimeLimit(StrEnum):
    IDLE = "idle"
    TOTAL = "total"


class CallTimers:
    __slots__ = ("_idle", "_idle_from", "_loop", "_pauses", "_ring", "_since", "_timer", "_total", "_total_from")

    def __init__(self, idle: float, total: float, ring: Callable[[TimeLimit], None]) -> None:
        self._loop = asyncio.get_running_loop()
        self._idle, self._total, self._ring = idle, total, ring
        self._idle_from = self._total_from = 0.0
        self._pauses = 0
        self._since = 0.0
        self._timer: asyncio.TimerHandle | None = None

    def start(self) -> None:
        """Starts the timers; a second start begins anew."""
        self._idle_from = self._total_from = self._loop.time()
        if not self._pauses:
            self._arm()

    def note_progress(self) -> None:
        """Restarts the idle timer after the server reported progress."""
        self._idle_from = self._loop.time()

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Stops the timers; may be entered several times."""
        self._pauses += 1
        if self._pauses == 1:
            self._since = self._loop.time()
        try:
            yield
        finally:
            self._pauses -= 1
            if not self._pauses:
                # progress may have come while a person was asked: the idle clock then starts now
                waited = self._loop.time() - self._since
                self._idle_from = min(self._idle_from + waited, self._loop.time())
                self._total_from += waited
                if self._timer is not None:
                    self._arm()

    def _arm(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        due = min(self._idle_from + self._idle, self._total_from + self._total)
        self._timer = self._loop.call_at(due, self._check)

    def _check(self) -> None:
        """Progress only notes the time; the timer looks whether it came too early."""
        if self._pauses:
            return
        now = self._loop.time()
        if now >= self._total_from + self._total:
            self._end(TimeLimit.TOTAL)
        elif now >= self._idle_from + self._idle:
            self._end(TimeLimit.IDLE)
        else:
            self._arm()

    def _end(self, limit: TimeLimit) -> None:
        self._timer = None
        self._ring(limit)


INVALID_REQUEST: Final = -32600
INVALID_PARAMS: Final = -32602
REJECTED: Final = -1
"""The error code that MCP's documentation shows for a rejected sampling request."""


class RequestRefused(Exception):
    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
