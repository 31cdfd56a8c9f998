"""The sessions that one web server shows, and those that `forge web` starts itself.

`SessionRegistry.find` gives any session of FORGE_HOME to look at, `live` one that runs in this process and can be acted
on (409 otherwise, 404 if there is none). A server inside a session shows that session and refuses to start others.
`SessionLauncher` runs sessions in this process. A start returns as soon as there is something to show: the session is
ready, or it asks its first question (whether to trust the program). It refuses as a start at the terminal would. A
session ends when the person ends it, and with the process.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, ClassVar, Final

from pydantic import Field

from golem_forge.agent.conversation import TERMINATED, Conversation, end_conversation
from golem_forge.agent.root_worker import StartInterrupted
from golem_forge.agent.runtime import WorkerRuntime
from golem_forge.core.errors import ConfigError, ForgeError
from golem_forge.events.bus import describe_failure
from golem_forge.events.journal_files import journal_path
from golem_forge.storage.home import ForgeHome
from golem_forge.ui.web.api import ApiModel, ApiRefusal
from golem_forge.ui.web.stream.watched_session import FollowedSession, LiveSession, WatchedSession

_MAX_FOLLOWED: Final = 32
_CANNOT_START: Final = "This page belongs to one session; `forge web` serves a page that starts and resumes others."
_READ_ONLY: Final = "This session does not run in the process that serves this page, so you can only read it here."


_ShortText = Annotated[str, Field(max_length=1000)]


class StartRequest(ApiModel, title="NewSession"):
    directory: Annotated[str, Field(max_length=4096)] = ""
    worker: _ShortText = ""
    model: _ShortText = ""
    approval: _ShortText = ""
    resume: _ShortText = ""
    """The id of a session that goes on."""
    input: Annotated[str, Field(max_length=500_000)] = ""


class SessionRegistry:
    """Shows the sessions that it is given; `SessionLauncher` starts and ends them too."""

    may_start: ClassVar = False

    def __init__(self, home: ForgeHome, directory: Path, *, notify: bool = False) -> None:
        self.home = home
        self.directory = directory
        self.notify = notify
        self._live: list[LiveSession] = []
        self._followed: dict[str, FollowedSession] = {}

    @property
    def current(self) -> str:
        """The session to show first: the one that was started last."""
        return self._live[-1].id if self._live else ""

    def live_sessions(self) -> tuple[LiveSession, ...]:
        return tuple(self._live)

    async def add(self, session: LiveSession) -> None:
        """Shows it as live; pages that followed it by its journal are sent there."""
        self._live.append(session)
        await self._stop_following(session.id)

    async def remove(self, session: LiveSession) -> None:
        """Removes an ended session, which is read from its journal from now on."""
        if session in self._live:
            self._live.remove(session)
            await session.close()

    async def find(self, session_id: str) -> WatchedSession:
        if (running := self._find_live(session_id)) is not None:
            return running
        self._check_exists(session_id)
        if (known := self._followed.pop(session_id, None)) is None:
            known = FollowedSession(self.home.path, session_id)
            await known.open()
        self._followed[session_id] = known  # behind the others: the first one was looked at longest ago
        while len(self._followed) > _MAX_FOLLOWED:
            await self._followed.pop(next(iter(self._followed))).close()
        return known

    def live(self, session_id: str) -> LiveSession:
        if (running := self._find_live(session_id)) is not None:
            return running
        self._check_exists(session_id)
        raise ApiRefusal(409, _READ_ONLY)

    async def start(self, request: StartRequest) -> str:
        raise ApiRefusal(409, _CANNOT_START)

    async def end(self, session_id: str) -> None:
        self.live(session_id).bus.emit("command", {"requestId": "end", "text": "/exit"}, source="browser")

    async def forget(self, session_id: str) -> None:
        """Removes a deleted session and tells the pages that show it."""
        await self._stop_following(session_id)

    async def close(self) -> None:
        open_here: list[WatchedSession] = [*self._live, *self._followed.values()]
        for session in open_here:
            await session.close()
        self._live.clear()
        self._followed.clear()

    def _find_live(self, session_id: str) -> LiveSession | None:
        return next((each for each in self._live if each.is_known_as(session_id)), None)

    def _check_exists(self, session_id: str) -> None:
        try:
            there = journal_path(self.home.path, session_id).is_file()
        except ValueError:
            there = False
        if not there:
            raise ApiRefusal(404, "There is no such session; the list of sessions shows all.")

    async def _stop_following(self, session_id: str) -> None:
        if (known := self._followed.pop(session_id, None)) is not None:
            await known.close()


MAX_SESSIONS: Final = 16
_log = logging.getLogger(__name__)


class SessionLauncher(SessionRegistry):
    may_start = True

    def __init__(self, home: ForgeHome, directory: Path, *, notify: bool = False) -> None:
        super().__init__(home, directory, notify=notify)
        self._running: dict[LiveSession, asyncio.Task[None]] = {}
        self._conversations: dict[LiveSession, Conversation] = {}

    async def close(self) -> None:
        """Ends every session in order."""
        for session in list(self._running):
            self._interrupt(session)
        if self._running:
            await asyncio.wait(set(self._running.values()))
        await super().close()

    async def start(self, request: StartRequest) -> str:
        if request.resume and self._find_live(request.resume) is not None:
            return request.resume
        session = await self._launch(request)
        await self._stop_following(session.id)  # one that goes on has its own id only now
        return session.id

    async def end(self, session_id: str) -> None:
        session = self.live(session_id)
        task = self._running.get(session)
        self._interrupt(session)
        if task is not None:
            with contextlib.suppress(Exception):  # how a start failed is told to whoever started it
                await asyncio.shield(task)

    async def _launch(self, request: StartRequest) -> LiveSession:
        if len(self._running) >= MAX_SESSIONS:
            raise ApiRefusal(409, f"{MAX_SESSIONS} sessions run here already; end one first.")
        directory = self.directory / os.path.expanduser(request.directory)  # noqa: ASYNC240
        runtime = WorkerRuntime(
            request.worker or None,
            directory=directory,
            model=request.model or None,
            approval_mode=request.approval or None,
            home=self.home.path,
            resume=request.resume,
            needs_model=False,
            default_mode="chat",
        )
        runtime.open_session = self._open_beside
        runtime.uses_directory_mode = True
        session = LiveSession(runtime, runtime.bus, self.home.path, directory)
        await session.open()
        shown = asyncio.Event()
        forget = runtime.bus.on("approvalRequired", lambda _: shown.set())
        task = asyncio.get_running_loop().create_task(self._run(session, runtime, request.input, shown))
        self._running[session] = task
        await self.add(session)
        waiting = asyncio.ensure_future(shown.wait())
        try:
            await asyncio.wait({waiting, task}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            waiting.cancel()
            forget()
        if task.done():
            task.result()  # raises why it could not start
        return session

    async def _open_beside(self, session_id: str, leave: Callable[[], None]) -> str:
        """Runs `/resume` on a page: the other session starts here too, and this one ends."""
        try:
            id = await self.start(StartRequest(resume=session_id))
        except ApiRefusal as refused:
            raise ForgeError(refused.problem.problem) from None
        leave()
        return f"This session ends. Session {id[:12]} goes on at #/s/{id}/chat."

    async def _run(self, session: LiveSession, runtime: WorkerRuntime, first: str, shown: asyncio.Event) -> None:
        """Raises what ended the start; nothing a model or a tool does afterwards raises."""
        try:
            try:
                await runtime.initialize()
            except Exception as error:
                if not shown.is_set():
                    raise
                _report_failure(runtime, error)  # whoever started it was answered when it asked its first question
                return
            shown.set()
            await runtime.ask_directory_mode()
            conversation = self._conversations[session] = Conversation(runtime)
            end_conversation(runtime, await conversation.run(first))
        finally:
            self._running.pop(session, None)
            self._conversations.pop(session, None)
            await runtime.aclose()
            await self.remove(session)

    def _interrupt(self, session: LiveSession) -> None:
        if (conversation := self._conversations.get(session)) is not None:
            conversation.leave()
        if session.runtime is not None:
            session.runtime.signal.interrupt(TERMINATED)


def _report_failure(runtime: WorkerRuntime, error: Exception) -> None:
    if isinstance(error, StartInterrupted):
        runtime.ui.end_session("interrupted")
        return
    if isinstance(error, ConfigError):
        words = "\n".join(error.problems)
    elif isinstance(error, ForgeError):
        words = error.message
    else:  # its words may quote what nobody may see
        _log.error("a session could not start: %s", describe_failure(error, quoting=False))
        words = "The session could not start; the log of the process that serves this page says why."
    runtime.ui.show_status(type="error", message=words, code="START_FAILED")
    runtime.ui.end_session("error", words)
