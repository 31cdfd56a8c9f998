"""EventQueue: the bus for a subscriber that reads at its own pace, e.g. a browser's socket.

It holds at most `maxsize` events. Adjacent `streaming` or `toolOutput` deltas of one id that still wait are merged;
nothing else is ever dropped. A reader that overflows all the same is disconnected: it gets what is queued, then
`Disconnected` with the number to resume after.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Final

from golem_forge.events.envelope import Event

_MERGED_CHARS: Final = 16_384
"""Merging stops here, so that a slow reader costs bounded memory and no long string is copied over and over."""
_SAME: Final = {"streaming": ("requestId", "channel"), "toolOutput": ("toolCallId", "stream")}


class Disconnected(Exception):
    """The reader was too slow. Every recorded event after `seq` has to be read from the journal."""

    stated_name = "Disconnected"

    def __init__(self, seq: int) -> None:
        super().__init__(f"this subscriber fell behind and was disconnected; resume after event {seq}")
        self.seq = seq


class EventQueue:
    def __init__(self, maxsize: int, on_close: Callable[[], None]) -> None:
        self._events: deque[Event] = deque()
        self._maxsize = maxsize
        self._on_close = on_close
        self._wake: asyncio.Future[None] | None = None
        self._last_seq = 0
        self.closed = False
        self.overflowed = False

    def __len__(self) -> int:
        return len(self._events)

    def put(self, event: Event) -> None:
        """Called by the bus, on the loop's thread."""
        if self.closed:
            return
        if event.type in _SAME and self._events:
            merged = _merged(self._events[-1], event)
            if merged is not None:
                self._events[-1] = merged
                return
        if len(self._events) >= self._maxsize:
            self.overflowed = True
            self.close()
            return
        self._events.append(event)
        self._notify()

    async def get(self) -> Event:
        """The next event. `Disconnected` after an overflow, `StopAsyncIteration` once closed and empty."""
        while not self._events:
            if self.overflowed:
                raise Disconnected(self._last_seq)
            if self.closed:
                raise StopAsyncIteration
            self._wake = asyncio.get_running_loop().create_future()
            await self._wake
        event = self._events.popleft()
        self._last_seq = event.seq
        return event

    def close(self) -> None:
        if not self.closed:
            self.closed = True
            self._on_close()
            self._notify()

    def __aiter__(self) -> EventQueue:
        return self

    async def __anext__(self) -> Event:
        return await self.get()

    def _notify(self) -> None:
        if self._wake is not None and not self._wake.done():
            self._wake.set_result(None)


def _merged(waiting: Event, new: Event) -> Event | None:
    if waiting.type != new.type:
        return None
    old, more = waiting.wire, new.wire
    if any(old.get(key) != more.get(key) for key in _SAME[new.type]) or waiting.worker_id != new.worker_id:
        return None
    if old.get("done") or any(part.get(key) is not None for part in (old, more) for key in ("whole", "discarded")):
        return None
    delta = old["delta"] + more["delta"]
    if len(delta) > _MERGED_CHARS:
        return None
    return Event(new.type, {**more, "delta": delta}, None, new.seq, new.ts, new.session_id, new.worker_id)
