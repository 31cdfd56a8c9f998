"""Audience: the pages that look at one session. Told every event once, it knows what stands, what streams and who
is to be sent what. It never waits for a page.
"""

from __future__ import annotations

from typing import Final

from golem_forge.events.envelope import Event
from golem_forge.ui.web.watching.frames import Frame
from golem_forge.ui.web.watching.open_streams import OpenStreams
from golem_forge.ui.web.watching.page_queue import PageQueue
from golem_forge.ui.web.watching.standing import Standing

MOST_PAGES: Final = 200


class Audience:
    def __init__(self) -> None:
        self.standing = Standing()
        self.streams = OpenStreams()
        self._pages: set[PageQueue] = set()

    def __len__(self) -> int:
        return len(self._pages)

    @property
    def full(self) -> bool:
        return len(self._pages) >= MOST_PAGES

    def take(self, event: Event) -> None:
        flow = self.streams.take(event)
        if flow is not None:
            for page in self._pages:
                page.mark(flow)
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

    def say(self, text: str) -> None:
        for page in self._pages:
            page.put(text)

    def end(self, code: int, reason: str, session: str = "") -> None:
        for page in self._pages:
            page.end(code, reason, session)
        self._pages.clear()
