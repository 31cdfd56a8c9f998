"""run: enters the tool's code, once. Takes the approved call, gives its raw value.

Async tools run on the loop and are cancelled; sync ones run in a thread, which is abandoned when the call ends
(`driver.py`, `tools/threads.py`); `inline` ones run right here. Raises what the tool raised, or Ended.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from types import AsyncGeneratorType, CoroutineType, GeneratorType
from typing import Any, Final

from golem_forge.core.coroutine_functions import is_coroutine_function
from golem_forge.core.errors import ToolFailed
from golem_forge.core.result import ToolResult
from golem_forge.core.verdict import Status
from golem_forge.orchestrator.driver import Ended, Watch, drive, drive_within
from golem_forge.orchestrator.travel import Travel
from golem_forge.tools.threads import run_in_thread

_FINISHED: Final = frozenset({str, int, float, bool, dict, list, tuple, type(None), ToolResult})
"""What nearly every tool returns."""


def run(travel: Travel) -> Awaitable[Any]:
    """The tool's work, ready to be awaited."""
    tool = travel.tool
    travel.executed = True
    plan = travel.plan
    if plan is None and tool.is_async and tool.idle_timeout is None:  # most calls need nothing of what follows
        return drive_within(tool.invoke(travel.arguments.values, travel.ctx), travel.signal, tool.timeout)
    work = partial(tool.invoke, travel.arguments.values, travel.ctx) if plan is None else plan.run
    is_async = tool.is_async if plan is None else is_coroutine_function(plan.run)
    if is_async and tool.idle_timeout is None:
        return drive_within(work(), travel.signal, tool.timeout)
    watch = Watch(travel.signal, tool.timeout, tool.idle_timeout)
    if tool.idle_timeout is not None and travel.ctx is not None:
        travel.ctx.progress = _touching(travel.ctx.progress, watch)
    if is_async:
        return drive(work(), watch)
    return _run_sync(work, watch, inline=plan is None and tool.inline)


async def _run_sync(function: Callable[[], Any], watch: Watch, *, inline: bool) -> Any:
    value = function() if inline else await _off_the_loop(function, watch)
    if type(value) is CoroutineType:  # a sync function that hands back a coroutine
        return await drive(value, watch)
    return value


def refuse_unfinished(name: str, value: Any) -> None:
    """Nothing these would do has happened yet, and nobody will ever run them."""
    if type(value) in _FINISHED:
        return
    if isinstance(value, (GeneratorType, AsyncGeneratorType)):
        raise ToolFailed(f"tool '{name}' returned a generator; return its items as a list")
    if isinstance(value, CoroutineType):
        value.close()
        raise ToolFailed(f"tool '{name}' returned a coroutine; await it and return its value")
    if isinstance(value, asyncio.Future):
        raise ToolFailed(f"tool '{name}' returned a future; await it and return its value")


async def _off_the_loop(function: Callable[[], Any], watch: Watch) -> Any:
    future = run_in_thread(function)
    return await drive(_wait(future), watch)


async def _wait(future: asyncio.Future[Any]) -> Any:
    return await future


def _touching(report: Callable[[float, float | None, str], None], watch: Watch) -> Any:
    def progress(done: float, total: float | None, message: str) -> None:
        watch.touch()
        report(done, total, message)

    return progress


def ended_text(travel: Travel, ended: Ended) -> str:
    """What the caller reads when a call was ended from outside."""
    tool = travel.tool
    if ended.status is Status.TIMEOUT:
        if ended.idle and tool.idle_timeout is not None:
            text = f"'{tool.name}' reported no progress for {tool.idle_timeout:g} s and was ended."
        else:
            text = f"'{tool.name}' timed out after {tool.timeout:g} s."
    elif travel.executed:
        text = f"'{tool.name}' was interrupted while it ran."
    else:
        name = tool.name if tool else str(travel.call.name)[:200]  # it may wait before there is a tool of that name
        return f"'{name}' was interrupted before it ran."
    if ended.abandoned:
        return f"{text} It ignored being cancelled and was left behind."
    if travel.executed and travel.plan is None and not tool.is_async:
        return f"{text} Its thread cannot be stopped and was left to finish alone."
    return text
