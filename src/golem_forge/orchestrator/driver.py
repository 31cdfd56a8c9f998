"""Drives one tool's coroutine inside the caller's task, and can walk away from it.

Starting a task for every call would cost more than most calls do, so the coroutine is stepped right here. Timers and
the interrupt signal are armed only when it first has to wait. When the time is up the coroutine is cancelled; one
that ignores that for GRACE seconds is left behind in a task of its own, and its caller goes on.
"""

from __future__ import annotations

import asyncio
import contextlib
import types
from collections.abc import Coroutine, Generator
from typing import Any, Final

from golem_forge.core.finished import Finished
from golem_forge.core.signal import InterruptSignal
from golem_forge.core.verdict import Status

GRACE: Final = 0.7
"""Ending a process tree takes 300 ms and a little; the caller has its answer within a second."""
_left_behind: set[asyncio.Task[Any]] = set()


class Ended(Exception):
    """The call was ended from outside, before its code finished by itself."""

    def __init__(self, watch: Watch, finished: Finished | None = None) -> None:
        assert watch.why is not None
        super().__init__(watch.why)
        self.finished = finished
        """What the code had to say when it was told to end, e.g. the output up to then."""
        self.status = watch.why
        self.idle = watch.idle
        self.abandoned = watch.abandoned


class Watch:
    """What may end one running call: its total time, its idle time, the interrupt signal."""

    why: Status | None = None
    """Set once something ended the call."""
    idle = False
    only_waits = False
    """The work is a wait for a turn: one that came in the very tick of an interrupt was still taken."""
    abandoned = False
    _task: asyncio.Task[Any] | None = None

    def __init__(self, signal: InterruptSignal, total: float | None, idle: float | None) -> None:
        self._signal = signal
        self._total = total
        self._idle = idle

    @classmethod
    def over_a_wait(cls, signal: InterruptSignal) -> Watch:
        watch = cls(signal, None, None)
        watch.only_waits = True
        return watch

    @property
    def armed(self) -> bool:
        return self._task is not None

    def touch(self) -> None:
        """Progress was reported: the idle clock starts anew. Safe from any thread."""
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
            self.idle = self.why is None
            self._end(Status.TIMEOUT)

    def _end(self, why: Status) -> None:
        if self.why is None:
            self.why = why
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
def drive(work: Coroutine[Any, Any, Any], watch: Watch) -> Generator[Any, Any, Any]:
    """Runs `work` to its end; raises Ended if the watch ended it first."""
    try:
        waits_for = work.send(None)
    except StopIteration as stop:
        return stop.value
    return (yield from _go_on(work, waits_for, watch))


@types.coroutine
def drive_within(
    work: Coroutine[Any, Any, Any], signal: InterruptSignal, total: float | None
) -> Generator[Any, Any, Any]:
    """The same with a watch that is only made if `work` has to wait; most calls never do."""
    try:
        waits_for = work.send(None)
    except StopIteration as stop:
        return stop.value
    return (yield from _go_on(work, waits_for, Watch(signal, total, None)))


def _go_on(work: Coroutine[Any, Any, Any], waits_for: Any, watch: Watch) -> Generator[Any, Any, Any]:
    """From the first wait on, under the watch."""
    watch.arm()
    try:
        while True:
            thrown: BaseException | None = None
            try:
                yield waits_for
            except BaseException as error:
                if watch.abandoned:
                    _leave_behind(work, error)
                    raise Ended(watch) from None
                thrown = error
            try:
                waits_for = work.send(None) if thrown is None else work.throw(thrown)
            except StopIteration as stop:
                if watch.why is None or watch.only_waits:
                    return stop.value
                raise Ended(watch, stop.value if isinstance(stop.value, Finished) else None) from None
    except Ended:
        raise
    except BaseException as error:
        if watch.why is None:
            raise  # the tool's own error, or the caller itself was cancelled
        raise Ended(watch) from error
    finally:
        watch.disarm()


def _leave_behind(work: Coroutine[Any, Any, Any], thrown: BaseException) -> None:
    task = asyncio.get_running_loop().create_task(_finish_alone(work, thrown))
    _left_behind.add(task)
    task.add_done_callback(_left_behind.discard)


async def _finish_alone(work: Coroutine[Any, Any, Any], thrown: BaseException) -> None:
    with contextlib.suppress(BaseException):  # its call already has an Outcome; nobody is left to tell
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
