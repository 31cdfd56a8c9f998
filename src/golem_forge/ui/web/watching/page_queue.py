"""PageQueue: what waits to be sent to one page. Bounded: a page that does not keep up is let go and resumes by number.

Recorded events wait in order, none is ever left out. A flow waits at most once however often it grows, and comes out
when telling is worth it; one that ended comes out at its place, before what was said after it.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Final
from weakref import WeakKeyDictionary

from golem_forge.ui.web.watching.flowing import NOWHERE, Flow, Place
from golem_forge.ui.web.watching.frames import Frame, bye_text

MOST_WAITING: Final = 1024
MOST_WEIGHT: Final = 32 << 20
"""Characters of long events that wait; one alone may be longer."""
BEHIND: Final = 4408
"""Close code: this page fell behind and resumes with the last number it has."""
MOVED: Final = 4409
"""Close code: what this page looks at is to be loaded anew."""
LEFT: Final = 1001

Entry = Frame | Flow | str


class Ended(Exception):
    """Nothing more comes; the socket is to be closed with this code."""

    def __init__(self, code: int) -> None:
        super().__init__(code)
        self.code = code


class PageQueue:
    def __init__(self, most: int = MOST_WAITING) -> None:
        self._most = most
        self._entries: deque[Entry] = deque()
        self._weight = 0
        self._queued: set[Flow] = set()
        self._later: dict[Flow, float] = {}
        self._places: WeakKeyDictionary[Flow, Place] = WeakKeyDictionary()
        self._wake: asyncio.Future[None] | None = None
        self._end = 0

    def __len__(self) -> int:
        return len(self._entries)

    def put(self, entry: Frame | str) -> None:
        if self._end:
            return
        weight = entry.weight if isinstance(entry, Frame) else 0
        too_heavy = weight and self._weight and self._weight + weight > MOST_WEIGHT
        if len(self._entries) >= self._most or too_heavy:
            self._forget()
            self.end(BEHIND, "This page fell behind and resumes.")
            return
        self._weight += weight
        self._entries.append(entry)
        self._notify()

    def mark(self, flow: Flow) -> None:
        """It has grown, or ended."""
        if self._end or flow in self._queued:
            return
        if flow in self._later:
            if not flow.ended:
                return
            del self._later[flow]
        self._queued.add(flow)
        self._entries.append(flow)  # one at most for each that is open, and those are bounded
        self._notify()

    def end(self, code: int, reason: str, session: str = "") -> None:
        """What waits is still sent, then why, then nothing."""
        if not self._end:
            self._entries.append(bye_text(reason, session))
            self._end = code
            self._notify()

    def place(self, flow: Flow) -> Place:
        return self._places.get(flow, NOWHERE)

    def reached(self, flow: Flow, place: Place) -> None:
        self._places[flow] = place

    async def next(self) -> Entry:
        while True:
            if (entry := self._ready()) is not None:
                return entry
            if self._end:
                raise Ended(self._end)
            loop = asyncio.get_running_loop()
            self._wake = loop.create_future()
            timer = None
            if self._later:
                timer = loop.call_at(min(self._later.values()), self._notify)
            try:
                await self._wake
            finally:
                self._wake = None
                if timer is not None:
                    timer.cancel()

    def _ready(self) -> Entry | None:
        now = asyncio.get_running_loop().time()
        for flow, due in self._later.items():
            if due <= now:
                del self._later[flow]
                return flow
        while self._entries:
            entry = self._entries.popleft()
            if not isinstance(entry, Flow):
                self._weight -= entry.weight if isinstance(entry, Frame) else 0
                return entry
            self._queued.discard(entry)
            if (wait := entry.due_in(self.place(entry))) <= 0:
                return entry
            self._later[entry] = now + wait
        return None

    def _forget(self) -> None:
        """It will come back for all of it: nothing that waits needs to be kept until then."""
        self._entries.clear()
        self._weight = 0
        self._queued.clear()
        self._later.clear()

    def _notify(self) -> None:
        if self._wake is not None and not self._wake.done():
            self._wake.set_result(None)
