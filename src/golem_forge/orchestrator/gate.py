"""The gate: readers run together, a writer runs alone, first come first served.

`generation` counts the writers that have passed, so that a plan made before one of them knows it may be stale.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque


class Gate:
    __slots__ = ("_queue", "_readers", "_writing", "generation")

    def __init__(self) -> None:
        self._readers = 0
        self._writing = False
        self._queue: deque[tuple[bool, asyncio.Future[None]]] = deque()
        self.generation = 0

    def try_enter(self, read_only: bool) -> bool:
        """Enters at once if nobody is in the way; never overtakes a waiting writer."""
        if self._queue or self._writing or (self._readers and not read_only):
            return False
        self._admit(read_only)
        return True

    async def enter(self, read_only: bool) -> None:
        if self.try_enter(read_only):
            return
        place: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        entry = (read_only, place)
        self._queue.append(entry)
        try:
            await place
        except asyncio.CancelledError:
            if place.done() and not place.cancelled():  # admitted and cancelled in the same breath
                self.leave(read_only)
            else:
                with contextlib.suppress(ValueError):  # already passed over, because it was cancelled
                    self._queue.remove(entry)
                self._admit_waiting()
            raise

    def leave(self, read_only: bool) -> None:
        if read_only:
            self._readers -= 1
        else:
            self._writing = False
            self.generation += 1
        if self._queue:
            self._admit_waiting()

    def _admit(self, read_only: bool) -> None:
        if read_only:
            self._readers += 1
        else:
            self._writing = True

    def _admit_waiting(self) -> None:
        while self._queue:
            read_only, place = self._queue[0]
            if self._writing or (self._readers and not read_only):
                return
            self._queue.popleft()
            if not place.cancelled():
                self._admit(read_only)
                place.set_result(None)
