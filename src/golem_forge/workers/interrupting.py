"""Waiting that an interrupt ends at once. Takes the signal and what to await; raises Interrupted when it is given."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

from golem_forge.core.signal import InterruptSignal
from golem_forge.workers.run_result import RunStatus

T = TypeVar("T")


class Interrupted(Exception):
    """The signal was given; `reason` is who gave it, in words."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason

    @property
    def status(self) -> RunStatus:
        return RunStatus.TERMINATED if self.reason == "terminated" else RunStatus.INTERRUPTED


async def unless_interrupted(signal: InterruptSignal, work: Coroutine[Any, Any, T]) -> T:
    """The work is cancelled the moment the signal is given, from whichever thread."""
    if signal:
        work.close()
        raise Interrupted(signal.reason or "")
    loop = asyncio.get_running_loop()
    task = loop.create_task(work)
    forget = signal.listen(lambda _: loop.call_soon_threadsafe(task.cancel))
    try:
        return await task
    except asyncio.CancelledError:
        mine = asyncio.current_task()
        if signal and not (mine is not None and mine.cancelling()):
            raise Interrupted(signal.reason or "") from None
        raise
    finally:
        forget()
        if not task.done():
            task.cancel()
