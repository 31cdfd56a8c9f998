"""Flight: one call of a server's tool that is under way, and what the server may ask of a person meanwhile.

The caller enters `flying(flight)` around the call itself, so that questions which the SDK puts in the caller's own task
find their call. `asked` puts a question: the call's clocks stand still till there is an answer, and the question is
withdrawn when the call is interrupted or over.

Threats: a server that asks without end (what it may ask is counted here), and a question about one person's call that
is put before another: a connection is shared, and in the old era nothing says which of its calls a question is about.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from contextlib import AbstractContextManager, nullcontext
from contextvars import Context, ContextVar, Token, copy_context
from dataclasses import dataclass, field
from typing import Any, TypeVar

from golem_forge.mcp.client.asking.request_errors import INVALID_REQUEST, Refused
from golem_forge.tools.context import ToolContext

T = TypeVar("T")
asks_for: ContextVar[object] = ContextVar("mcp_asks_for", default=None)
"""Who answers what servers ask during the calls that are made here; None: whoever watches the session."""


@dataclass(slots=True, eq=False)
class Flight:
    ctx: ToolContext
    tool: str
    """Raw name; or the method, for a resource or a prompt."""
    paused: Callable[[], AbstractContextManager[None]] = nullcontext
    """Stops the call's clocks while a person is asked; may be entered several times at once."""
    over: asyncio.Event = field(default_factory=asyncio.Event)
    """Set by `flying` when the call has ended: what is still being asked on its behalf is withdrawn."""
    forms: int = 0
    """How many forms were asked for so far."""
    samplings: int = 0
    context: Context = field(default_factory=copy_context)
    """The caller's: what is asked on its behalf is asked there, whichever task the question arrives in."""


_current: ContextVar[Flight | None] = ContextVar("mcp_flight", default=None)


class flying:
    """`with flying(flight): …`, around the call, in the task that makes it."""

    __slots__ = ("_flight", "_token")

    def __init__(self, flight: Flight) -> None:
        self._flight = flight

    def __enter__(self) -> Flight:
        self._token: Token[Flight | None] = _current.set(self._flight)
        return self._flight

    def __exit__(self, *_: object) -> None:
        _current.reset(self._token)
        self._flight.over.set()


def asking_flight(flights: Sequence[Flight]) -> Flight | None:
    """The call on whose behalf a question is asked: the one whose task it arrives in, else the latest of that server.

    `flights`: those of the server, in the order they began. Raises Refused where it could be about the call of either
    of two who share nothing but this server.
    """
    current = _current.get()
    if current is not None and any(each is current for each in flights):
        return current
    if len({id(each.context.get(asks_for)) for each in flights}) > 1:
        raise Refused(INVALID_REQUEST, "calls of several clients are under way; nobody can tell whose this is about")
    return flights[-1] if flights else None


async def asked(flight: Flight, question: Coroutine[Any, Any, T]) -> T | None:
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
