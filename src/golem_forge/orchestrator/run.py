"""plan and run: the stages that enter the tool's code, first to state what it will do, then to do it.

`make_plan` lets the tool resolve its targets, state its effects and compute its diff, before anybody is asked. Takes
validated arguments, gives a Plan that holds its targets open. Refuses with `sandbox_denied`, or with the error the tool
would have run into. Nothing is changed by planning. What was planned may be stale once it is the call's turn:
`still_as_judged` looks again.

`run` enters the tool's code, once. Takes the approved call, gives its raw value. Async tools run on the loop and are
cancelled; sync ones run in a thread, which is abandoned when the call ends (`tools/threads.py`); `inline` ones run
directly. Raises what the tool raised, or CallAborted.

`run_with_limits` runs a coroutine in the current task under a deadline and an interrupt signal. Starting a task for
every call would cost more than most calls do, so the coroutine is stepped here. Timers and the interrupt signal are
armed only when it first has to wait. When the time is up the coroutine is cancelled; one that ignores that for GRACE
seconds is abandoned in a task of its own, and its caller continues.
"""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import types
from collections.abc import Awaitable, Callable, Coroutine, Generator
from functools import partial
from types import AsyncGeneratorType, CoroutineType, FunctionType, GeneratorType, MethodType
from typing import Any, Final, cast

from golem_forge.core.calls import ToolCompletion
from golem_forge.core.decisions import AnsweredBy, Status
from golem_forge.core.errors import ForgeError, ToolFailed
from golem_forge.core.json import copy_json
from golem_forge.core.results import ToolResult
from golem_forge.core.signals import InterruptSignal
from golem_forge.orchestrator.call_state import CallState
from golem_forge.orchestrator.schedule import Gate
from golem_forge.policy.evaluate import Judge
from golem_forge.sandbox.walls.model import Level
from golem_forge.tools.context import Plan, ToolContext
from golem_forge.tools.threads import run_in_thread
from golem_forge.tools.tool import Tool


async def make_plan(state: CallState, ctx: ToolContext, gate: Gate) -> Plan:
    planner = state.tool.planner
    assert planner is not None
    state.planned_at = gate.generation
    values = copy_json(state.arguments.values)  # the plan may be made again, from what was judged
    limits = CallLimits(state.waiting, state.tool.timeout)
    if is_coroutine_function(planner):
        planned: Any = planner(values, ctx)
    else:
        if ctx.contains:
            await run_with_limits(look_up_coverage(state.tool, ctx), limits)
        future: asyncio.Future[Any] = run_in_thread(lambda: planner(values, ctx))
        try:
            planned = await run_with_limits(_shielded(future), limits)
        except BaseException:
            future.add_done_callback(_close_unused_plan)
            raise
    return cast(Plan, await run_with_limits(planned, limits) if inspect.iscoroutine(planned) else planned)


async def look_up_coverage(tool: Tool, ctx: ToolContext) -> None:
    """Stores in the context what of the zones could not be undone; a planner runs in a thread and cannot await it."""
    if ctx.contains and ctx.walls is not None and not tool.read_only:
        ctx.coverage = await ctx.walls.coverage() if await ctx.walls.level() is Level.FULL else None


async def still_as_judged(state: CallState, ctx: ToolContext, gate: Gate, judge: Judge) -> bool:
    """Whether the targets are still those that were judged. False means: evaluate again, and perhaps ask again.

    A writer that passed the gate since makes the plan stale, so it is made anew. After a person was asked the paths are
    resolved again: another real path is another call, another inode is `PATH_CHANGED`.
    """
    overtaken = state.planned_at != gate.generation
    if not overtaken and not state.asked:
        return True
    judged = state.plan
    assert judged is not None
    if overtaken and state.asked and judged.recheck is not None:
        try:
            judged.recheck()
        except ForgeError:  # what was shown has changed, so it is shown again
            state.approved_as = ""
            return False
    try:
        fresh = await make_plan(state, ctx, gate)
    except ForgeError:
        if not overtaken and judged.recheck is not None:
            judged.recheck()  # raises "it changed", which is why it cannot be planned
        raise
    same = judge.keys(state.tool, state.arguments, fresh, ctx.worker)[0] == state.judged_as
    if state.decision is not None and state.decision.answered_by is AnsweredBy.CONTAINED:
        same = same and fresh.effects == judged.effects  # what can be undone may be other than it was
    if same and not overtaken:
        fresh.release()
        if judged.recheck is not None:
            judged.recheck()
        return True
    judged.release()
    state.plan = fresh
    if same and fresh.diff == judged.diff:
        return True
    state.approved_as = ""
    return False


async def _shielded(future: asyncio.Future[Any]) -> Any:
    return await asyncio.shield(future)


def _close_unused_plan(future: asyncio.Future[Any]) -> None:
    """Closes the descriptors of a plan that nothing will use."""
    if not future.cancelled() and future.exception() is None:
        plan = future.result()
        if isinstance(plan, Plan) and plan.close is not None:
            plan.close()


_FINISHED_TYPES: Final = frozenset({str, int, float, bool, dict, list, tuple, type(None), ToolResult})
"""Result types that need no further check; nearly every tool returns one of them."""


def run(state: CallState) -> Awaitable[Any]:
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


def refuse_unfinished(name: str, value: Any) -> None:
    """Raises ToolFailed if a tool returned a generator, coroutine or future: its work never happened."""
    if type(value) in _FINISHED_TYPES:
        return
    if isinstance(value, (GeneratorType, AsyncGeneratorType)):
        raise ToolFailed(f"tool '{name}' returned a generator; return its items as a list")
    if isinstance(value, CoroutineType):
        value.close()
        raise ToolFailed(f"tool '{name}' returned a coroutine; await it and return its value")
    if isinstance(value, asyncio.Future):
        raise ToolFailed(f"tool '{name}' returned a future; await it and return its value")


async def _wait(future: asyncio.Future[Any]) -> Any:
    return await future


def _with_idle_reset(report: Callable[[float, float | None, str], None], limits: CallLimits) -> Any:
    def progress(done: float, total: float | None, message: str) -> None:
        limits.reset_idle()
        report(done, total, message)

    return progress


def aborted_text(state: CallState, ended: CallAborted) -> str:
    """Returns the error text for the caller of a call that was ended from outside."""
    tool = state.tool
    if ended.status is Status.TIMEOUT:
        if ended.idle and tool.idle_timeout is not None:
            text = f"'{tool.name}' reported no progress for {tool.idle_timeout:g} s and was ended."
        else:
            text = f"'{tool.name}' timed out after {tool.timeout:g} s."
    elif state.executed:
        text = f"'{tool.name}' was interrupted while it ran."
    else:
        name = tool.name if tool else str(state.call.name)[:200]  # it may wait before its tool is resolved
        return f"'{name}' was interrupted before it ran."
    if ended.abandoned:
        return f"{text} It ignored being cancelled and was left behind."
    if state.executed and state.plan is None and not tool.is_async:
        return f"{text} Its thread cannot be stopped and was left to finish alone."
    return text


GRACE: Final = 0.7
"""Seconds until a call that ignores cancellation is abandoned. Ending a process tree takes about 300 ms, and the caller
has its answer within a second.
"""
_abandoned_tasks: set[asyncio.Task[Any]] = set()


class CallAborted(Exception):
    """Raised when a call was ended from outside before its code finished."""

    def __init__(self, limits: CallLimits, finished: ToolCompletion | None = None) -> None:
        assert limits.aborted_by is not None
        super().__init__(limits.aborted_by)
        self.finished = finished
        """What the code had to say when it was told to end, e.g. the output up to then."""
        self.status = limits.aborted_by
        self.idle = limits.idle
        self.abandoned = limits.abandoned


class CallLimits:
    """Limits of one running call: total time, idle time, and the interrupt signal."""

    aborted_by: Status | None = None
    """The status that ended the call; None while nothing has."""
    idle = False
    only_waits = False
    """Whether the work only waits for a turn at the gate. A turn that came in the same tick as an interrupt was taken,
    and has to be returned.
    """
    abandoned = False
    _task: asyncio.Task[Any] | None = None

    def __init__(self, signal: InterruptSignal, total: float | None = None, idle: float | None = None) -> None:
        self._signal = signal
        self._total = total
        self._idle = idle

    def reset_idle(self) -> None:
        """Restarts the idle timeout after progress was reported. Safe from any thread."""
        if self._task is not None:
            self._touched = self._loop.time()

    def arm(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._task = asyncio.current_task()
        self._release: list[Any] = []
        self._cancels = 0
        if self._total is not None:
            self._release.append(self._loop.call_later(self._total, self._end, Status.TIMEOUT).cancel)
        if self._idle is not None:
            self._touched = self._loop.time()
            self._loop.call_later(self._idle, self._check_idle)
        self._release.append(self._signal.listen(lambda _: self._end(Status.INTERRUPTED)))

    def disarm(self) -> None:
        assert self._task is not None
        for release in self._release:
            release()
        self._release.clear()
        for _ in range(self._cancels):
            self._task.uncancel()
        self._task = None

    def _check_idle(self) -> None:
        if self._task is None or self._idle is None:
            return
        rest = self._touched + self._idle - self._loop.time()
        if rest > 0:
            self._loop.call_later(rest, self._check_idle)
        else:
            self.idle = self.aborted_by is None
            self._end(Status.TIMEOUT)

    def _end(self, why: Status) -> None:
        if self.aborted_by is None:
            self.aborted_by = why
            # via the loop: cancelling the task that is running this very line would hit the wrong await
            self._loop.call_soon_threadsafe(self._cancel)
            self._loop.call_soon_threadsafe(self._start_grace)

    def _start_grace(self) -> None:
        if self._task is not None:
            self._release.append(self._loop.call_later(GRACE, self._abandon).cancel)

    def _abandon(self) -> None:
        self.abandoned = True
        self._cancel()

    def _cancel(self) -> None:
        if self._task is not None:
            self._cancels += 1
            self._task.cancel()


@types.coroutine
def run_with_limits(work: Coroutine[Any, Any, Any], limits: CallLimits) -> Generator[Any, Any, Any]:
    """Runs `work` to its end; raises CallAborted if a limit ended it first."""
    try:
        waits_for = work.send(None)
    except StopIteration as stop:
        return stop.value
    limits.arm()
    try:
        while True:
            thrown: BaseException | None = None
            try:
                yield waits_for
            except BaseException as error:
                if limits.abandoned:
                    _abandon_work(work, error)
                    raise CallAborted(limits) from None
                thrown = error
            try:
                waits_for = work.send(None) if thrown is None else work.throw(thrown)
            except StopIteration as stop:
                if limits.aborted_by is None or limits.only_waits:
                    return stop.value
                raise CallAborted(limits, stop.value if isinstance(stop.value, ToolCompletion) else None) from None
    except CallAborted:
        raise
    except BaseException as error:
        if limits.aborted_by is None:
            raise  # the tool's own error, or the caller itself was cancelled
        raise CallAborted(limits) from error
    finally:
        limits.disarm()


def wait_with_signal(wait: Coroutine[Any, Any, Any], signal: InterruptSignal) -> Awaitable[Any]:
    """Awaits something without a timeout; only the interrupt signal ends the wait."""
    limits = CallLimits(signal)
    limits.only_waits = True
    return run_with_limits(wait, limits)


def _abandon_work(work: Coroutine[Any, Any, Any], thrown: BaseException) -> None:
    task = asyncio.get_running_loop().create_task(_finish_abandoned(work, thrown))
    _abandoned_tasks.add(task)
    task.add_done_callback(_abandoned_tasks.discard)


async def _finish_abandoned(work: Coroutine[Any, Any, Any], thrown: BaseException) -> None:
    with contextlib.suppress(BaseException):  # its call already has an Outcome
        await _resume(work, thrown)


@types.coroutine
def _resume(work: Coroutine[Any, Any, Any], error: BaseException | None) -> Generator[Any, Any, None]:
    while True:
        try:
            waits_for = work.send(None) if error is None else work.throw(error)
        except StopIteration:
            return
        error = None
        try:
            yield waits_for
        except BaseException as thrown:
            error = thrown


def is_coroutine_function(function: Callable[..., Any]) -> bool:
    plain = function.__func__ if type(function) is MethodType else function
    if type(plain) is FunctionType and plain.__code__.co_flags & inspect.CO_COROUTINE:
        return True
    return inspect.iscoroutinefunction(function)
