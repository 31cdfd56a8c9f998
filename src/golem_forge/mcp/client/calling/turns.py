"""Turns: at most eight calls of one server in flight, first come first served; who flies; since when nobody does."""

from __future__ import annotations

import asyncio
from time import monotonic
from typing import Any, Final

from golem_forge.mcp.client.calling.flight import Flight

IN_FLIGHT: Final = 8


class Turns:
    def __init__(self) -> None:
        self._slots = asyncio.Semaphore(IN_FLIGHT)
        self._flights: dict[Flight, None] = {}
        self._wanted = 0
        self._last_used = monotonic()
        self._left: set[asyncio.Task[Any]] = set()

    def flights(self) -> tuple[Flight, ...]:
        """In the order they began."""
        return tuple(self._flights)

    async def take(self) -> None:
        """Waits for a turn, to be given back. Whoever waits counts as use too."""
        self._wanted += 1
        try:
            await self._slots.acquire()
        except BaseException:
            self._wanted -= 1
            raise

    def give_back(self) -> None:
        self._slots.release()
        self._wanted -= 1
        self._last_used = monotonic()

    def airborne(self, flight: Flight) -> None:
        """Its request is about to be sent: only now, and until it `landed`, may the server ask on its behalf."""
        self._flights[flight] = None

    def landed(self, flight: Flight) -> None:
        self._flights.pop(flight, None)

    def touch(self) -> None:
        self._last_used = monotonic()

    def unused_for(self) -> float:
        """Seconds; 0 while anybody uses it or waits."""
        return 0.0 if self._wanted else monotonic() - self._last_used

    def left(self, task: asyncio.Task[Any]) -> None:
        """Work whose caller is gone: it tells the server, and ends."""
        self._left.add(task)
        task.add_done_callback(self._left_ended)
        task.cancel()

    def stop(self) -> None:
        for task in self._left:
            task.cancel()

    def _left_ended(self, task: asyncio.Task[Any]) -> None:
        self._left.discard(task)
        if not task.cancelled():
            task.exception()
