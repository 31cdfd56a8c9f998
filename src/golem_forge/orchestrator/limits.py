"""limits: ends a call from outside, by its deadline or by an interrupt. Used by every stage that waits.

`run_with_limits` runs a coroutine in the current task under a deadline and an interrupt signal. Starting a task for
every call would cost more than most calls do, so the coroutine is stepped here. Timers and the interrupt signal are
armed only when it first has to wait. When the time is up the coroutine is cancelled; one that ignores that for GRACE
seconds is abandoned in a task of its own, and its caller continues.
"""

from __future__ import annotations

import asyncio
import contextlib
import types
from collections.abc import Awaitable, Coroutine, Generator
from typing import TYPE_CHECKING, Any, Final

from golem_forge.core.calls import ToolCompletion
from golem_forge.core.decisions import Status
from golem_forge.core.signals import InterruptSignal

if TYPE_CHECKING:
    from golem_forge.orchestrator.call_state import CallState

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
