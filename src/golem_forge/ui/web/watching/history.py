"""The past of a session in pages: from its journal, or from memory where a session keeps none.

`page(after=N)` gives the events that follow number N, `page(before=N)` those just below it, `page()` the last ones; all
in rising order, with `more` telling whether there are others beyond in that direction. A page holds at most 200 events
and ends early where they are long. Reading happens in a thread; a journal that cannot be read gives nothing.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Protocol, TypeVar

from golem_forge.events.envelope import Event
from golem_forge.tools.threads import run_in_thread
from golem_forge.ui.web.watching.journal_index import JournalIndex
from golem_forge.ui.web.watching.sizes import characters_in
from golem_forge.ui.web.watching.standing import Standing

PAGE: Final = 200
_PAGE_BYTES: Final = 16 << 20
_REMEMBERED: Final = 1000
_REMEMBERED_CHARACTERS: Final = 32 << 20
_log = logging.getLogger(__name__)
_T = TypeVar("_T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    events: tuple[Event, ...] = ()
    more: bool = False
    reached: int = 0
    """The number furthest in that direction that was looked at, whether or not its record could be read."""


class History(Protocol):
    async def page(self, *, after: int | None = None, before: int | None = None, limit: int = PAGE) -> Page: ...
    async def one(self, seq: int) -> Event | None: ...


class JournalHistory:
    def __init__(self, path: Callable[[], Path], flush: Callable[[], None] = lambda: None) -> None:
        """`path`: a session that is being started knows late under which name it is recorded.

        `flush`: what must happen before the file holds everything that was said.
        """
        self._path = path
        self._flush = flush
        self._index = JournalIndex(path())
        self._reading = asyncio.Lock()

    async def page(self, *, after: int | None = None, before: int | None = None, limit: int = PAGE) -> Page:
        limit = min(max(limit, 1), PAGE)
        async with self._reading:
            index = self._current()
            return await run_in_thread(lambda: _quietly(lambda: _read_page(index, after, before, limit), Page()))

    async def one(self, seq: int) -> Event | None:
        async with self._reading:
            index = self._current()
            return await run_in_thread(lambda: _quietly(lambda: _read_one(index, seq), None))

    async def look(self) -> tuple[bool, int, Standing]:
        """(whether there is a file, the highest number in it, what still holds since the last look)."""
        async with self._reading:
            index = self._current()
            there = await run_in_thread(lambda: _quietly(index.grow, False))
            return there, index.last, index.news()

    def _current(self) -> JournalIndex:
        self._flush()
        if self._index.path != (path := self._path()):
            self._index = JournalIndex(path)
        return self._index


class RememberedHistory:
    """The last events of a session without a journal."""

    def __init__(self) -> None:
        self._events: deque[tuple[Event, int]] = deque()
        self._characters = 0
        self._dropped = False

    def take(self, event: Event) -> None:
        size = characters_in(event.wire)
        self._events.append((event, size))
        self._characters += size
        while len(self._events) > _REMEMBERED or self._characters > _REMEMBERED_CHARACTERS:
            self._characters -= self._events.popleft()[1]
            self._dropped = True

    async def page(self, *, after: int | None = None, before: int | None = None, limit: int = PAGE) -> Page:
        limit = min(max(limit, 1), PAGE)
        if after is not None:
            found = [event for event, _ in self._events if event.seq > after]
            return _page_of(found[:limit], more=len(found) > limit, reached=-1)
        found = [event for event, _ in self._events if before is None or event.seq < before]
        return _page_of(found[-limit:], more=len(found) > limit, reached=0)

    async def one(self, seq: int) -> Event | None:
        return next((event for event, _ in self._events if event.seq == seq), None)


def _page_of(events: list[Event], *, more: bool, reached: int) -> Page:
    return Page(events=tuple(events), more=more, reached=events[reached].seq if events else 0)


def _read_page(index: JournalIndex, after: int | None, before: int | None, limit: int) -> Page:
    if not index.grow():
        return Page()
    backwards = after is None
    if after is not None:
        wanted = index.after(after, limit + 1)
    else:
        wanted = index.before(index.last + 1 if before is None else before, limit + 1)
        wanted.reverse()
    events: list[Event] = []
    room = _PAGE_BYTES
    more, reached = False, 0
    with index.path.open("rb") as file:
        for count, seq in enumerate(wanted):
            if count == limit or room < 0:
                more = True
                break
            event, cost = index.event(file, seq)
            room -= cost
            reached = seq
            if event is not None:
                events.append(event)
    if backwards:
        events.reverse()
    return Page(events=tuple(events), more=more, reached=reached)


def _read_one(index: JournalIndex, seq: int) -> Event | None:
    if not index.grow():
        return None
    with index.path.open("rb") as file:
        return index.event(file, seq)[0]


def _quietly(read: Callable[[], _T], instead: _T) -> _T:
    try:
        return read()
    except OSError as error:
        _log.warning("a journal could not be read: %s", type(error).__name__)
        return instead
