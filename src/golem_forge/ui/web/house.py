"""House: the sessions one web server shows. Those that run in this process are live; all others are read-only.

`find` gives any session of FORGE_HOME to look at, `live` one that can be acted on. A server of `forge web` has a way to
start sessions of its own (`starting`); one inside a session shows that session and refuses to start others.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from golem_forge.config.home import ForgeHome
from golem_forge.events.session_files import journal_path
from golem_forge.ui.web.wire import Refused

if TYPE_CHECKING:
    from golem_forge.ui.web.watching.followed import FollowedSession
    from golem_forge.ui.web.watching.live import LiveSession
    from golem_forge.ui.web.watching.session import WatchedSession

_MOST_FOLLOWED: Final = 32
_NOT_HERE: Final = "This page belongs to one session; `forge web` serves a page that starts and resumes others."
_READ_ONLY: Final = "This session does not run in the process that serves this page, so it can only be looked at."


@dataclass(frozen=True, slots=True, kw_only=True)
class Wish:
    """What a person wants to start."""

    directory: str = ""
    worker: str = ""
    model: str = ""
    approval: str = ""
    resume: str = ""
    """The id of an earlier session that goes on; the rest is what it was then, unless said."""
    input: str = ""


class House:
    def __init__(
        self,
        home: ForgeHome,
        directory: Path,
        *,
        notify: bool = False,
        start: Callable[[Wish], Awaitable[LiveSession]] | None = None,
        end: Callable[[LiveSession], Awaitable[None]] | None = None,
    ) -> None:
        """`start` and `end`: how sessions come and go; without them this server shows what is handed to `admit`."""
        self.home = home
        self.directory = directory
        self.notify = notify
        self._start = start
        self._end = end
        self._live: list[LiveSession] = []
        self._followed: dict[str, FollowedSession] = {}

    @property
    def may_start(self) -> bool:
        return self._start is not None

    @property
    def current(self) -> str:
        """The session to show first: the one that was started last."""
        return self._live[-1].id if self._live else ""

    def live_sessions(self) -> tuple[LiveSession, ...]:
        return tuple(self._live)

    async def admit(self, session: LiveSession) -> None:
        """From now on it is live here; whoever watched it as one of the others is sent there."""
        self._live.append(session)
        await self._follow_no_more(session.id)

    async def dismiss(self, session: LiveSession) -> None:
        """It ended; from now on it is one of the others."""
        if session in self._live:
            self._live.remove(session)
            await session.close()

    async def find(self, session_id: str) -> WatchedSession:
        if (running := self._running(session_id)) is not None:
            return running
        self._check_there(session_id)
        if (known := self._followed.pop(session_id, None)) is None:
            from golem_forge.ui.web.watching.followed import FollowedSession

            known = FollowedSession(self.home.path, session_id)
            await known.open()
        self._followed[session_id] = known
        await self._let_go()
        return known

    def live(self, session_id: str) -> LiveSession:
        if (running := self._running(session_id)) is not None:
            return running
        self._check_there(session_id)
        raise Refused(409, _READ_ONLY)

    async def start(self, wish: Wish) -> str:
        if self._start is None:
            raise Refused(409, _NOT_HERE)
        if wish.resume and self._running(wish.resume) is not None:
            return wish.resume
        session = await self._start(wish)
        await self._follow_no_more(session.id)  # one that goes on has its own id only now
        return session.id

    async def end(self, session_id: str) -> None:
        session = self.live(session_id)
        if self._end is None:
            session.bus.emit("command", {"requestId": "end", "text": "/exit"}, source="browser")
        else:
            await self._end(session)

    async def close(self) -> None:
        open_here: list[WatchedSession] = [*self._live, *self._followed.values()]
        for session in open_here:
            await session.close()
        self._live.clear()
        self._followed.clear()

    def _running(self, session_id: str) -> LiveSession | None:
        return next((each for each in self._live if each.is_known_as(session_id)), None)

    def _check_there(self, session_id: str) -> None:
        try:
            there = journal_path(self.home.path, session_id).is_file()
        except ValueError:
            there = False
        if not there:
            raise Refused(404, "There is no such session; the list of sessions shows those there are.")

    async def _follow_no_more(self, session_id: str) -> None:
        if (known := self._followed.pop(session_id, None)) is not None:
            await known.close()

    async def _let_go(self) -> None:
        """Of those nobody looked at for the longest time."""
        for session_id in list(self._followed)[: max(len(self._followed) - _MOST_FOLLOWED, 0)]:
            await self._followed.pop(session_id).close()
