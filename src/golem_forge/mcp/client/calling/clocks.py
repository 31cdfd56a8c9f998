"""Clocks: how long one call may say nothing, and how long it may take, with one timer for both.

Progress starts the idle clock anew and never the total one. Both stand still while a person is asked. `ring` is called
once, with the limit that was reached; after `stop` it is never called.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from enum import StrEnum


class Limit(StrEnum):
    IDLE = "idle"
    TOTAL = "total"


class Clocks:
    __slots__ = ("_idle", "_idle_from", "_loop", "_pauses", "_ring", "_since", "_timer", "_total", "_total_from")

    def __init__(self, idle: float, total: float, ring: Callable[[Limit], None]) -> None:
        self._loop = asyncio.get_running_loop()
        self._idle, self._total, self._ring = idle, total, ring
        self._idle_from = self._total_from = 0.0
        self._pauses = 0
        self._since = 0.0
        self._timer: asyncio.TimerHandle | None = None

    def start(self) -> None:
        """From now on the server is on the clock; a second start begins anew."""
        self._idle_from = self._total_from = self._loop.time()
        if not self._pauses:
            self._arm()

    def touch(self) -> None:
        """The server showed that it works."""
        self._idle_from = self._loop.time()

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    @contextmanager
    def paused(self) -> Iterator[None]:
        """May be entered several times at once."""
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
        self._timer = self._loop.call_at(self._next(), self._check)

    def _next(self) -> float:
        return min(self._idle_from + self._idle, self._total_from + self._total)

    def _check(self) -> None:
        """Progress only notes the time; the timer looks whether it came too early."""
        if self._pauses:
            return
        now = self._loop.time()
        if now >= self._total_from + self._total:
            self._end(Limit.TOTAL)
        elif now >= self._idle_from + self._idle:
            self._end(Limit.IDLE)
        else:
            self._arm()

    def _end(self, limit: Limit) -> None:
        self._timer = None
        self._ring(limit)
