"""OwnSessions: the sessions that `forge web` runs itself, each a conversation of its own in this process.

`start` returns as soon as there is something to show: the session stands, or it asks its first question (whether to
trust the program). It refuses as a start at the terminal would. A session ends when the person ends it, and with the
process.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
from pathlib import Path
from typing import TYPE_CHECKING, Final

from golem_forge.config.home import ForgeHome
from golem_forge.core.errors import ConfigError, ForgeError
from golem_forge.events.failures import described
from golem_forge.ui.web.house import House, Wish
from golem_forge.ui.web.wire import Refused
from golem_forge.workers.conversation import TERMINATED, Conversation, end_conversation
from golem_forge.workers.runtime import WorkerRuntime
from golem_forge.workers.starting import StartInterrupted

if TYPE_CHECKING:
    from golem_forge.ui.web.watching.live import LiveSession

MOST_AT_ONCE: Final = 16
_log = logging.getLogger(__name__)


class OwnSessions:
    def __init__(self, home: ForgeHome, directory: Path, *, notify: bool = False) -> None:
        self.house = House(home, directory, notify=notify, start=self._start, end=self._end)
        self._running: dict[LiveSession, asyncio.Task[None]] = {}
        self._conversations: dict[LiveSession, Conversation] = {}

    async def close(self) -> None:
        """Ends every session in an orderly way."""
        for session in list(self._running):
            self._interrupt(session)
        if self._running:
            await asyncio.wait(set(self._running.values()))
        await self.house.close()

    async def _start(self, wish: Wish) -> LiveSession:
        from golem_forge.ui.web.watching.live import LiveSession

        if len(self._running) >= MOST_AT_ONCE:
            raise Refused(409, f"{MOST_AT_ONCE} sessions run here already; end one first.")
        directory = self._directory(wish)
        runtime = WorkerRuntime(
            wish.worker or None,
            directory=directory,
            model=wish.model or None,
            approval_mode=wish.approval or None,
            home=self.house.home.path,
            resume=wish.resume,
            needs_model=False,
            default_mode="chat",
        )
        session = LiveSession(runtime, runtime.bus, self.house.home.path, directory)
        await session.open()
        shown = asyncio.Event()
        forget = runtime.bus.on("approvalRequired", lambda _: shown.set())
        task = asyncio.get_running_loop().create_task(self._run(session, runtime, wish.input, shown))
        self._running[session] = task
        await self.house.admit(session)
        waiting = asyncio.ensure_future(shown.wait())
        try:
            await asyncio.wait({waiting, task}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            waiting.cancel()
            forget()
        if task.done():
            task.result()  # raises why it could not start
        return session

    def _directory(self, wish: Wish) -> Path:
        return self.house.directory / os.path.expanduser(wish.directory)

    async def _run(self, session: LiveSession, runtime: WorkerRuntime, first: str, shown: asyncio.Event) -> None:
        """Raises what ended the start; nothing a model or a tool does afterwards raises."""
        try:
            try:
                await runtime.initialize()
            except Exception as error:
                if not shown.is_set():
                    raise
                _tell(runtime, error)  # whoever started it was answered when it asked its first question
                return
            shown.set()
            conversation = self._conversations[session] = Conversation(runtime)
            end_conversation(runtime, await conversation.run(first))
        finally:
            self._running.pop(session, None)
            self._conversations.pop(session, None)
            await runtime.aclose()
            await self.house.dismiss(session)

    async def _end(self, session: LiveSession) -> None:
        task = self._running.get(session)
        self._interrupt(session)
        if task is not None:
            with contextlib.suppress(Exception):  # how a start failed is told to whoever started it
                await asyncio.shield(task)

    def _interrupt(self, session: LiveSession) -> None:
        if (conversation := self._conversations.get(session)) is not None:
            conversation.leave()
        if session.runtime is not None:
            session.runtime.signal.interrupt(TERMINATED)


def _tell(runtime: WorkerRuntime, error: Exception) -> None:
    if isinstance(error, StartInterrupted):
        runtime.ui.end_session("interrupted")
        return
    if isinstance(error, ConfigError):
        words = "\n".join(error.problems)
    elif isinstance(error, ForgeError):
        words = error.message
    else:  # its words may quote what nobody may see
        _log.error("a session could not start: %s", described(error, quoting=False))
        words = "The session could not start; the log of the process that serves this page says why."
    runtime.ui.show_status(type="error", message=words, code="START_FAILED")
    runtime.ui.end_session("error", words)
