"""Quiet: lists are asked for again once a server has stopped saying that they changed.

Half a second after the last word, and at least every five seconds while the words do not end; so never more than once
in half a second. Threats: a flood of notices (one costs two assignments, whatever their number), and a server that
has five thousand other tools each time it is asked: who looked through a list rests ten times as long as that took.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, Final

QUIET: Final = 0.5
LONGEST: Final = 5.0
REST: Final = 10.0
"""Times what the last list cost."""


class Quiet:
    def __init__(self, refetch: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """`refetch` must not raise."""
        self._refetch = refetch
        self._first: float | None = None
        """Of the notices that no refetch has answered yet."""
        self._last = 0.0
        self._rested = 0.0
        """Nothing is asked for again before."""
        self._timer: asyncio.TimerHandle | None = None
        self._running: asyncio.Task[None] | None = None
        self._stopped = False

    @property
    def _loop(self) -> asyncio.AbstractEventLoop:
        """The one that runs: a session may be made before there is any."""
        return asyncio.get_running_loop()

    def notice(self) -> None:
        self._last = self._loop.time()
        if self._first is None:
            self._first = self._last
            self._arm()

    def cost(self, seconds: float) -> None:
        """What was listed took so long to look through, during which nobody else had a turn."""
        self._rested = self._loop.time() + REST * seconds

    def stop(self) -> None:
        self._stopped = True
        if self._timer is not None:
            self._timer.cancel()
        if self._running is not None:
            self._running.cancel()

    def _arm(self) -> None:
        if self._timer is None and self._running is None and self._first is not None and not self._stopped:
            self._timer = self._loop.call_at(self._due(), self._look)

    def _due(self) -> float:
        assert self._first is not None
        return max(self._rested, min(self._last + QUIET, max(self._first + LONGEST, self._loop.time())))

    def _look(self) -> None:
        self._timer = None
        if self._due() > self._loop.time():
            self._arm()
            return
        self._first = None
        self._running = self._loop.create_task(self._refetch())
        self._running.add_done_callback(self._done)

    def _done(self, task: asyncio.Task[None]) -> None:
        self._running = None
        if not task.cancelled():
            task.exception()
        if self._first is not None:  # noticed meanwhile: its half second starts now
            self._first = self._last = self._loop.time()
        self._arm()
