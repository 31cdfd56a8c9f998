"""The order inside one parallel batch: a writer runs after the calls before it and before those after it.

Asking a person happens for all calls at once; only running keeps the order. A call whose place is not known yet
(it is still being planned) counts as a writer.
"""

from __future__ import annotations

import asyncio
from enum import Enum, auto

from golem_forge.core.signal import InterruptSignal


class _Place(Enum):
    UNKNOWN = auto()
    READER = auto()
    WRITER = auto()
    DONE = auto()


class BatchOrder:
    def __init__(self, size: int, signal: InterruptSignal) -> None:
        self.waiting = InterruptSignal()
        """Ends every wait of this batch: given when the session is interrupted or nothing further may start."""
        self.stopped = ""
        """Why nothing further may start; empty while the batch goes on."""
        self._forget = signal.listen(self.waiting.interrupt)
        self._places = [_Place.UNKNOWN] * size
        self._first_open = 0
        self._waiting: list[tuple[int, asyncio.Future[None]]] = []

    async def my_turn(self, index: int, read_only: bool) -> None:
        self._places[index] = _Place.READER if read_only else _Place.WRITER
        if read_only:
            self._wake()
        while not self._may_run(index):
            turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiting.append((index, turn))
            await turn

    def done(self, index: int) -> None:
        self._places[index] = _Place.DONE
        while self._first_open < len(self._places) and self._places[self._first_open] is _Place.DONE:
            self._first_open += 1
        self._wake()

    def is_next(self, index: int) -> bool:
        """Whether every call before this one is done: nothing can change any more before it runs."""
        return self._first_open >= index

    def stop(self, why: str) -> None:
        if not self.stopped:
            self.stopped = why
            self.waiting.interrupt()

    def close(self) -> None:
        self._forget()

    def _may_run(self, index: int) -> bool:
        harmless = {_Place.DONE, _Place.READER} if self._places[index] is _Place.READER else {_Place.DONE}
        return all(place in harmless for place in self._places[self._first_open : index])

    def _wake(self) -> None:
        waiting, self._waiting = self._waiting, []
        for index, turn in waiting:
            if turn.cancelled():
                continue
            if self._may_run(index):
                turn.set_result(None)
            else:
                self._waiting.append((index, turn))
