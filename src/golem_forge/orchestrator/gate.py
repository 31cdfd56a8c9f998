"""gate: readers run together, a writer runs alone; first come, first served. And who is on the way to it.

`Gate.generation` counts the writers that have passed, so that a plan made before one of them is known to be possibly
stale. `OpenCalls` knows the calls that have no Outcome yet, and which of them only wait.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any

from golem_forge.core.calls import Caller
from golem_forge.orchestrator.limits import wait_with_signal

if TYPE_CHECKING:
    from golem_forge.orchestrator.call_state import CallState


class Gate:
    __slots__ = ("_queue", "_readers", "_writing", "generation")

    def __init__(self) -> None:
        self._readers = 0
        self._writing = False
        self._queue: deque[tuple[bool, asyncio.Future[None]]] = deque()
        self.generation = 0

    def try_enter(self, read_only: bool) -> bool:
        """Enters if no other call is in the way; never overtakes a waiting writer."""
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


class OpenCalls:
    """The ids of calls that have no Outcome yet."""

    def __init__(self) -> None:
        self.running: set[str] = set()
        self._waiting: set[str] = set()
        """Those of a model that wait for an answer, or for the calls before them."""

    @property
    def only_wait(self) -> bool:
        """Whether calls are open and none of them has had an effect yet, so that they can start again without loss."""
        return bool(self.running) and self.running == self._waiting

    @property
    def run_something(self) -> bool:
        return self.running != self._waiting

    async def wait(self, state: CallState, turn: Coroutine[Any, Any, Any], *, plain: bool = False) -> Any:
        """Waits for a turn or, `plain`, for an answer, which hears an interrupt by itself."""
        of_model = state.call.caller is Caller.LLM and state.depth == 0
        if of_model:
            self._waiting.add(state.call.id)
        try:
            return await (turn if plain else wait_with_signal(turn, state.waiting))
        finally:
            if of_model:
                self._waiting.discard(state.call.id)
