"""exchange: one request to a server and its answer, within limits. The caller always gets its end within a second.

The work (a turn, a connection, the request, the questions in between) runs in a task of its own, so that a caller who
is interrupted or out of time goes on at once whatever the server does, while that task still tells the server. Raises
TimedOut, Interrupted, what `Link.request` raises, or ForgeError where there is no connection.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final

from golem_forge.core.visible import visible
from golem_forge.mcp.client.calling.clocks import Clocks, Limit
from golem_forge.mcp.client.calling.flight import Flight, flying
from golem_forge.mcp.client.calling.input_rounds import answered
from golem_forge.mcp.client.connecting.link import Link, Lost
from golem_forge.tools.context import ToolContext

if TYPE_CHECKING:
    from golem_forge.mcp.client.calling.rewriting import Rewriter
    from golem_forge.mcp.client.connecting.owner import Owner

SHOWN_EVERY: Final = 0.05
"""Threat: a server may report progress ten thousand times a second; people see twenty."""
_MOST_WORDS: Final = 500
Headers = Callable[[Link], Mapping[str, str] | None]


class TimedOut(Exception):
    def __init__(self, limit: Limit) -> None:
        super().__init__(limit)
        self.limit = limit


class Interrupted(Exception):
    pass


async def exchange(
    owner: Owner,
    method: str,
    params: Mapping[str, Any],
    ctx: ToolContext,
    *,
    about: str,
    headers: Headers | None = None,
) -> dict[str, Any]:
    """`about`: the tool's raw name, or the method; what a server's question on behalf of this call is headed with."""
    if ctx.cancel:
        raise Interrupted
    spec = owner.spec
    loop = asyncio.get_running_loop()
    end: asyncio.Future[Exception | None] = loop.create_future()

    def ends(why: Exception | None) -> None:
        if not end.done():
            end.set_result(why)

    clocks = Clocks(spec.idle_timeout, spec.total_timeout, lambda limit: ends(TimedOut(limit)))
    shown = _Shown(clocks, ctx, owner.rewriter)
    flight = Flight(ctx, about, clocks.paused)

    async def asked(link: Link) -> dict[str, Any]:
        clocks.start()
        more = headers(link) if headers is not None else None
        sent = owner.rewriter.request(params)
        result = await link.request(method, sent, progress=shown.report, headers=more)
        if link.is_modern and result.get("resultType") == "input_required":
            return await answered(link, method, sent, result, clocks, progress=shown.report, headers=more)
        return result

    async def work() -> dict[str, Any]:
        try:
            with flying(flight):
                return await owner.perform(flight, asked)
        finally:
            ends(None)  # here: told by the task's end, the caller would go on one turn of the loop later

    task = loop.create_task(work())
    task.add_done_callback(lambda _: ends(None))  # one that is cancelled before it began never comes to that line
    forget = ctx.cancel.listen(lambda _: loop.call_soon_threadsafe(ends, Interrupted()))
    try:
        why = await end
    finally:
        forget()
        clocks.stop()
        shown.stop()
        if not task.done():
            owner.turns.left(task)
    if why is not None:
        raise why
    if task.cancelled():  # not by this caller, who must not be taken for cancelled
        raise Lost(None)
    return task.result()


class _Shown:
    """Progress as it is passed on: at once, or the latest of many a little later."""

    __slots__ = ("_clocks", "_ctx", "_due", "_latest", "_loop", "_rewriter", "_timer")

    def __init__(self, clocks: Clocks, ctx: ToolContext, rewriter: Rewriter) -> None:
        self._clocks, self._ctx, self._rewriter = clocks, ctx, rewriter
        self._loop = asyncio.get_running_loop()
        self._due = 0.0
        self._latest: tuple[float, float | None, str] | None = None
        self._timer: asyncio.TimerHandle | None = None

    def report(self, done: float, total: float | None, words: str) -> None:
        self._clocks.touch()
        self._latest = (done, total, words)
        if self._timer is not None:
            return
        if self._loop.time() >= self._due:
            self._show()
        else:
            self._timer = self._loop.call_at(self._due, self._show)

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._show()

    def _show(self) -> None:
        self._timer = None
        self._due = self._loop.time() + SHOWN_EVERY
        if self._latest is not None:
            done, total, words = self._latest
            self._latest = None
            self._ctx.report_progress(done, total, visible(self._rewriter.words(words[:_MOST_WORDS])))
