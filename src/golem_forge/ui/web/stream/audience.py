"""The pages that watch one session, each with a bounded queue. Never waits for a page.

Recorded events wait in order, none is left out. An open stream waits at most once however often it grows, and comes out
when sending is worth it; one that ended comes out at its place. A page that does not keep up is closed and resumes by
number.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Final
from weakref import WeakKeyDictionary

from golem_forge.events.serialization import Event
from golem_forge.ui.web.stream.frames import Frame, bye_text
from golem_forge.ui.web.stream.history import LatestEvents
from golem_forge.ui.web.stream.open_streams import START_POSITION, OpenStream, OpenStreams, StreamPosition

MAX_PAGES: Final = 200


class Audience:
    def __init__(self) -> None:
        self.standing = LatestEvents()
        self.streams = OpenStreams()
        self._pages: set[PageQueue] = set()

    def __len__(self) -> int:
        return len(self._pages)

    @property
    def full(self) -> bool:
        return len(self._pages) >= MAX_PAGES

    def take(self, event: Event) -> None:
        flow = self.streams.take(event)
        if flow is not None:
            for page in self._pages:
                page.put_stream(flow)
            return
        self.standing.take(event)
        if self._pages:
            frame = Frame(event)
            for page in self._pages:
                page.put(frame)

    def join(self) -> PageQueue:
        page = PageQueue()
        self._pages.add(page)
        return page

    def leave(self, page: PageQueue) -> None:
        self._pages.discard(page)

    def broadcast(self, text: str) -> None:
        for page in self._pages:
            page.put(text)

    def end(self, code: int, reason: str, session: str = "") -> None:
        for page in self._pages:
            page.end(code, reason, session)
        self._pages.clear()


MAX_WAITING: Final = 1024
MAX_WEIGHT: Final = 32 << 20
"""Characters of long events that wait; one alone may be longer."""
BEHIND: Final = 4408
"""Close code: this page fell behind and resumes with the last number it has."""
MOVED: Final = 4409
"""Close code: what this page looks at is to be loaded anew."""
GOING_AWAY: Final = 1001

QueueEntry = Frame | OpenStream | str


class QueueClosed(Exception):
    """Nothing more comes; the socket is to be closed with this code."""

    def __init__(self, code: int) -> None:
        super().__init__(code)
        self.code = code


class PageQueue:
    def __init__(self, most: int = MAX_WAITING) -> None:
        self._most = most
        self._entries: deque[QueueEntry] = deque()
        self._weight = 0
        self._queued: set[OpenStream] = set()
        self._later: dict[OpenStream, float] = {}
        self._places: WeakKeyDictionary[OpenStream, StreamPosition] = WeakKeyDictionary()
        self._wake: asyncio.Future[None] | None = None
        self._end = 0

    def __len__(self) -> int:
        return len(self._entries)

    def put(self, entry: Frame | str) -> None:
        if self._end:
            return
        weight = entry.weight if isinstance(entry, Frame) else 0
        too_heavy = weight and self._weight and self._weight + weight > MAX_WEIGHT
        if len(self._entries) >= self._most or too_heavy:
            self._entries.clear()  # the page will come back for all that waits
            self._weight = 0
            self._queued.clear()
            self._later.clear()
            self.end(BEHIND, "This page fell behind and resumes.")
            return
        self._weight += weight
        self._entries.append(entry)
        self._notify()

    def put_stream(self, flow: OpenStream) -> None:
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

    def position(self, flow: OpenStream) -> StreamPosition:
        return self._places.get(flow, START_POSITION)

    def set_position(self, flow: OpenStream, place: StreamPosition) -> None:
        self._places[flow] = place

    async def next(self) -> QueueEntry:
        while True:
            if (entry := self._ready()) is not None:
                return entry
            if self._end:
                raise QueueClosed(self._end)
            loop = asyncio.get_running_loop()
            self._wake = loop.create_future()
            timer = loop.call_at(min(self._later.values()), self._notify) if self._later else None
            try:
                await self._wake
            finally:
                self._wake = None
                if timer is not None:
                    timer.cancel()

    def _ready(self) -> QueueEntry | None:
        now = asyncio.get_running_loop().time()
        for flow, due in self._later.items():
            if due <= now:
                del self._later[flow]
                return flow
        while self._entries:
            entry = self._entries.popleft()
            if not isinstance(entry, OpenStream):
                self._weight -= entry.weight if isinstance(entry, Frame) else 0
                return entry
            self._queued.discard(entry)
            if (wait := entry.due_in(self.position(entry))) <= 0:
                return entry
            self._later[entry] = now + wait
        return None

    def _notify(self) -> None:
        if self._wake is not None and not self._wake.done():
            self._wake.set_result(None)
