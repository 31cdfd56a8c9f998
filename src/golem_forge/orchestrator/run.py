"""run: enters the tool's code, once. Takes the approved call; gives its Outcome.

Async tools run on the loop and are cancelled; sync ones run in a thread, which is abandoned when the call ends
(`tools/threads.py`); `inline` ones run directly. Around the run, what changes in the zones is recorded; hooks that come
after the call run inside that record. Raises what the tool raised, or CallAborted.
"""

from __future__ import annotations

import asyncio
import contextlib
import inspect
from collections.abc import Awaitable, Callable
from functools import partial
from types import CoroutineType, FunctionType, MethodType
from typing import Any

from golem_forge.core.calls import Outcome
from golem_forge.orchestrator.bound_output import BoundStage
from golem_forge.orchestrator.call_state import CallState
from golem_forge.orchestrator.hooks import CallHooks
from golem_forge.orchestrator.limits import CallAborted, CallLimits, run_with_limits, wait_with_signal
from golem_forge.orchestrator.record import ChangeRecorder
from golem_forge.tools.threads import run_in_thread


class RunStage:
    def __init__(self, changes: ChangeRecorder, hooks: CallHooks, bound: BoundStage) -> None:
        self._changes = changes
        self._hooks = hooks
        self._bound = bound

    async def run(self, state: CallState) -> Outcome:
        hooks = bool(self._hooks.after(state))
        recording = await self._changes.begin(state, everywhere=hooks and self._hooks.may_write(state))
        state.recording = recording
        if state.ctx is not None:
            state.ctx.recording = recording
        try:
            if hooks:
                return await self._run_with_hooks(state)
            value = await enter_tool(state)
        finally:
            if recording is not None:
                await self._changes.end(recording)
        return self._bound.ran(state, value)

    async def _run_with_hooks(self, state: CallState) -> Outcome:
        try:
            outcome = self._bound.ran(state, await enter_tool(state))
        except BaseException as error:
            task = asyncio.current_task()
            if isinstance(error, asyncio.CancelledError) and task is not None and task.cancelling():
                raise
            outcome = self._bound.failed(state, error)
        with contextlib.suppress(CallAborted):  # an interrupt ends the hooks; the call has run
            await wait_with_signal(self._hooks.run_after(state, outcome, self._changes), state.signal)
        return outcome


def enter_tool(state: CallState) -> Awaitable[Any]:
    """Starts the tool's work and returns an awaitable of its result."""
    tool, plan = state.tool, state.plan
    state.executed = True
    work = partial(tool.invoke, state.arguments.values, state.ctx) if plan is None else plan.run
    is_async = tool.is_async if plan is None else is_coroutine_function(plan.run)
    limits = CallLimits(state.signal, tool.timeout, tool.idle_timeout)
    if tool.idle_timeout is not None and state.ctx is not None:
        state.ctx.progress = _with_idle_reset(state.ctx.progress, limits)
    if is_async:
        return run_with_limits(work(), limits)
    return _run_sync(work, limits, inline=plan is None and tool.inline)


async def _run_sync(function: Callable[[], Any], limits: CallLimits, *, inline: bool) -> Any:
    value = function() if inline else await run_with_limits(_wait(run_in_thread(function)), limits)
    if type(value) is CoroutineType:  # a sync function that hands back a coroutine
        return await run_with_limits(value, limits)
    return value


async def _wait(future: asyncio.Future[Any]) -> Any:
    return await future


def _with_idle_reset(report: Callable[[float, float | None, str], None], limits: CallLimits) -> Any:
    def progress(done: float, total: float | None, message: str) -> None:
        limits.reset_idle()
        report(done, total, message)

    return progress


def is_coroutine_function(function: Callable[..., Any]) -> bool:
    plain = function.__func__ if type(function) is MethodType else function
    if type(plain) is FunctionType and plain.__code__.co_flags & inspect.CO_COROUTINE:
        return True
    return inspect.iscoroutinefunction(function)
