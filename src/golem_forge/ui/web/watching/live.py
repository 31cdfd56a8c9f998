"""LiveSession: a session that runs in this process, as pages see it and answer it.

From `open` to `close` it is attached to the session's RuntimeUI as `browser`: whether or not a page is there, somebody
can answer. What was before comes from the journal; a session without one is remembered from here on, within bounds.

A session that is just being started has no journal yet, and what it says has no number (its first question: whether
to trust the program). Where it then goes on under the name of an earlier session, pages are told to load it anew.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Final

from golem_forge.events.bus import EventBus
from golem_forge.events.envelope import Event
from golem_forge.events.journal_errors import JournalError
from golem_forge.events.questions import RuntimeUI, create_runtime_ui
from golem_forge.events.session_files import journal_path, sessions_dir
from golem_forge.events.types import REGISTRY
from golem_forge.ui.web.watching.answering import Resolutions
from golem_forge.ui.web.watching.audience import Audience
from golem_forge.ui.web.watching.diffs import diff_for
from golem_forge.ui.web.watching.history import History, JournalHistory, RememberedHistory
from golem_forge.ui.web.watching.open_streams import OpenStreams
from golem_forge.ui.web.watching.page_queue import LEFT, MOVED
from golem_forge.ui.web.watching.session import SessionState
from golem_forge.ui.web.watching.standing import Standing

if TYPE_CHECKING:
    from golem_forge.events.journal import Journal
    from golem_forge.workers.runtime import WorkerRuntime

NAME: Final = "browser"
"""Who answers, as the journal and other UIs name it."""
_NO_FILE: Final = ".none"


class LiveSession:
    state: Final = SessionState.LIVE
    answerable: Final = True

    def __init__(self, runtime: WorkerRuntime | None, bus: EventBus, home: Path, root: Path) -> None:
        """`root`: the directory of the program."""
        self.runtime = runtime
        self.bus = bus
        self.root = root
        self.audience = Audience()
        self.resolutions = Resolutions()
        self._home = home
        self._opened_as = bus.session_id
        self._recorded = JournalHistory(self._journal_path, self._flush)
        self._remembered = RememberedHistory()
        self._numbered = False
        self._remembers = False
        """Whether events are kept here, because no journal keeps them."""
        self._let_go: list[Callable[[], None]] = []
        self._recalling: asyncio.Task[None] | None = None

    # ---- life

    async def open(self) -> None:
        if self._let_go:
            return
        if self._has_begun():
            self._number()
        self._let_go = [
            self.bus.on("*", self._take),
            self.bus.on("getDiff", self._show_diff),
            self.ui.attach(NAME),
        ]
        if self._numbered and self.bus.seq and not self._remembers:
            await self._recall()

    async def close(self) -> None:
        """Pages are told; open questions are denied if no other UI can answer."""
        for let_go in reversed(self._let_go):
            let_go()
        self._let_go = []
        if self._recalling is not None:
            self._recalling.cancel()
        self.audience.end(LEFT, "The session ended here.")
        self.audience.streams.clear()

    # ---- what pages see

    @property
    def id(self) -> str:
        return self.bus.session_id

    def is_known_as(self, session_id: str) -> bool:
        """Also by the name it had before an earlier session went on in it."""
        return session_id in (self.id, self._opened_as)

    @property
    def standing(self) -> Standing:
        return self.audience.standing

    @property
    def streams(self) -> OpenStreams:
        return self.audience.streams

    @property
    def history(self) -> History:
        return self._remembered if self._remembers else self._recorded

    @property
    def last_seq(self) -> int:
        """The number of the last event that a page which comes now finds in the history."""
        return self.bus.seq if self._numbered or self._has_begun() else 0

    @property
    def stands(self) -> bool:
        """False while it is being started."""
        return self.runtime is None or self.runtime.is_ready

    async def arrive(self) -> None:
        """A page is about to look: what still holds from an earlier run is known by then."""
        if self._recalling is not None:
            await asyncio.wait({self._recalling})

    # ---- questions

    @property
    def ui(self) -> RuntimeUI:
        return create_runtime_ui(self.bus)

    def open_questions(self) -> list[Event]:
        """Same ids, original order."""
        found: list[Event] = []
        self.ui.replay_open(found.append)
        return found if self._numbered else [_unnumbered(event) for event in found]

    # ---- inside

    def _take(self, event: Event) -> None:
        if not self._numbered and self._has_begun():
            self._begin(event)
        if self._remembers and ((kind := REGISTRY.get(event.type)) is None or kind.RECORDED):
            self._remembered.take(event)
        self.resolutions.take(event)
        self.audience.take(event if self._numbered else _unnumbered(event))

    def _begin(self, event: Event) -> None:
        """From now on events are recorded. What an earlier session left is not on any page yet."""
        self._number()
        if event.seq > 1 and not self._remembers:
            self.audience.end(MOVED, "An earlier session goes on; the page loads it.", self.id)
            self._recalling = asyncio.get_running_loop().create_task(self._recall())

    def _number(self) -> None:
        self._numbered = True
        self._remembers = not self._is_recorded()

    async def _recall(self) -> None:
        """What still holds from before this was opened."""
        _, _, before = await self._recorded.look()
        self.standing.merge(before)

    def _show_diff(self, event: Event) -> None:
        shown = diff_for(self.ui.open_question(str(event.wire.get("requestId"))), str(event.wire.get("path")))
        if shown is not None:
            self.bus.emit("diffContent", shown, event.worker_id)

    def _has_begun(self) -> bool:
        """Whether events have numbers that last: the runtime stands, or its journal is there already."""
        return self.runtime is None or self.runtime.is_ready or self._is_recorded()

    def _journal(self) -> Journal | None:
        return self.runtime.journal if self.runtime is not None and self.runtime.is_ready else None

    def _is_recorded(self) -> bool:
        return self._journal() is not None or self._journal_path().is_file()

    def _journal_path(self) -> Path:
        try:
            return journal_path(self._home, self.bus.session_id)
        except ValueError:  # a bus of an embedder's own making
            return sessions_dir(self._home) / _NO_FILE

    def _flush(self) -> None:
        journal = self._journal()
        if journal is not None and not journal.closed:
            with contextlib.suppress(JournalError):  # what waits is kept; who may not go on without it is told there
                journal.flush()


def _unnumbered(event: Event) -> Event:
    """As pages see what no journal will ever have."""
    return Event(event.type, event.wire, None, 0, event.ts, event.session_id, event.worker_id, event.source)
