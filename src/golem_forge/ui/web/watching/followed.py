"""FollowedSession: a session that does not run here, read from its journal: by another process now, or by nobody.

While a page looks, the file is looked at four times a second and what is new is shown; nothing is ever written, locked
or answered. The file may grow, close, be taken up again or disappear; a damaged one shows what can be read of it.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from pathlib import Path
from typing import Final

from golem_forge.events.bus import EventBus
from golem_forge.events.envelope import Event
from golem_forge.events.session_files import is_held, journal_path
from golem_forge.tools.threads import run_in_thread
from golem_forge.ui.web.watching.audience import Audience
from golem_forge.ui.web.watching.frames import state_text
from golem_forge.ui.web.watching.history import JournalHistory
from golem_forge.ui.web.watching.open_streams import OpenStreams
from golem_forge.ui.web.watching.page_queue import LEFT
from golem_forge.ui.web.watching.session import SessionState
from golem_forge.ui.web.watching.standing import Standing

_LOOK_EVERY_S: Final = 0.2
GONE: Final = 4404
"""Close code: there is no such session any more."""
_log = logging.getLogger(__name__)


class FollowedSession:
    answerable: Final = False
    runtime: Final = None

    def __init__(self, home: Path, session_id: str) -> None:
        self.id = session_id
        self.bus = EventBus(session_id)
        self.audience = Audience()
        self.state = SessionState.CLOSED
        self.last_seq = 0
        """The number of the last event that pages were told of."""
        self._path = journal_path(home, session_id)
        self.history = JournalHistory(lambda: self._path)
        self._following: asyncio.Task[None] | None = None
        self._looking = asyncio.Lock()

    @property
    def standing(self) -> Standing:
        return self.audience.standing

    @property
    def streams(self) -> OpenStreams:
        return self.audience.streams

    def open_questions(self) -> list[Event]:
        """Those that are open are answered where it runs."""
        return []

    async def open(self) -> None:
        async with self._looking:
            await self._look()

    async def arrive(self) -> None:
        """A page is about to look: from here on, until nobody does, the file is followed."""
        await self.open()
        if self._following is None or self._following.done():
            self._following = asyncio.get_running_loop().create_task(self._follow())

    async def close(self) -> None:
        if self._following is not None:
            self._following.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._following
        self.audience.end(LEFT, "This session is no longer followed here; the page looks again.")

    async def _follow(self) -> None:
        idle = 0
        while idle < 2 or len(self.audience):  # whoever has just arrived joins in a moment
            await asyncio.sleep(_LOOK_EVERY_S)
            idle = 0 if len(self.audience) else idle + 1
            try:
                async with self._looking:
                    there = await self._look()
            except Exception as error:  # a page must not be left without news because of one bad look
                _log.warning("session %s could not be looked at: %s", self.id, type(error).__name__)
                continue
            if not there:
                self.audience.end(GONE, "The record of this session was removed.")
                return

    async def _look(self) -> bool:
        held = await run_in_thread(lambda: is_held(self._path))
        there, last, news = await self.history.look()
        if last < self.last_seq:  # cut back, or another file under this name
            self.last_seq = last
        if len(self.audience):
            await self._tell(last)
        self.last_seq = last
        self.standing.merge(news)
        self._enter(SessionState.ELSEWHERE if held else SessionState.CLOSED)
        return there

    async def _tell(self, last: int) -> None:
        """What was recorded since the last look, and not more: what comes meanwhile is for the next one."""
        while self.last_seq < last:
            page = await self.history.page(after=self.last_seq)
            for event in page.events:
                if event.seq <= last:
                    self.audience.take(event)
                    self.bus.show(event.type, lambda wire=event.wire: wire, event.worker_id, event.seq)  # type: ignore[misc]
            if page.reached <= self.last_seq:
                return
            self.last_seq = min(page.reached, last)

    def _enter(self, state: SessionState) -> None:
        if state is not self.state:
            self.state = state
            self.audience.say(state_text(state.value, self.answerable))
