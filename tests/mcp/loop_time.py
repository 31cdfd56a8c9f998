"""The clock of the event loop in the hands of a test: limits are reached exactly when they should be, and at no cost.

`skip(seconds)`: so much later, for everything that waits on this loop. `never_wait()`: from now on the loop does not
sleep until its next timer but sets the clock to it: for tests without processes and sockets, which take real time."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest


class LoopTime:
    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._loop: Any = asyncio.get_running_loop()
        self._patch = monkeypatch
        self._ahead = 0.0
        time = self._loop.time
        monkeypatch.setattr(self._loop, "time", lambda: time() + self._ahead)

    def now(self) -> float:
        return float(self._loop.time())

    def skip(self, seconds: float) -> None:
        self._ahead += seconds

    def never_wait(self) -> None:
        """Time stands still while something runs, and jumps when nothing does."""
        stopped = self._loop.time()
        self._ahead = 0.0
        self._patch.setattr(self._loop, "time", lambda: stopped + self._ahead)
        select = self._loop._selector.select

        def at_once(timeout: float | None = None) -> Any:
            if timeout:
                self.skip(timeout)
            return select(timeout if timeout is None else 0)

        self._patch.setattr(self._loop._selector, "select", at_once)
