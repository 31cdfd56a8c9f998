"""WatchedSession: one session as pages see it, and the pages that watch it, each with a bounded queue.

`LiveSession` runs in this process, `FollowedSession` is read from its journal; only a live one can be answered.
`Audience` gives events to the pages and never waits for one. `Resolutions` knows who answered a question, for a page
whose answer came too late. `diff_for` gives what an open question would change at one path, from the diff of its card:
made of the very bytes that would be written.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Mapping
from enum import StrEnum
from pathlib import Path
from typing import Any, Final
from weakref import WeakKeyDictionary

from golem_forge.agent.runtime import WorkerRuntime
from golem_forge.events.bus import EventBus
from golem_forge.events.journal import Journal
from golem_forge.events.journal_files import JournalError, is_locked, journal_path, sessions_dir
from golem_forge.events.model import REGISTRY
from golem_forge.events.runtime_ui import RuntimeUI, create_runtime_ui
from golem_forge.events.serialization import Event
from golem_forge.tools.threads import run_in_thread
from golem_forge.ui.render.lines import file_diffs
from golem_forge.ui.web.stream.history import EventHistory, JournalHistory, LatestEvents, RememberedHistory
from golem_forge.ui.web.stream.open_streams import START_POSITION, OpenStream, OpenStreams, StreamPosition
from golem_forge.ui.web.views import Frame, bye_text, frame_text

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
    """Raised if nothing more comes; the socket is closed with this code."""

    def __init__(self, code: int) -> None:
        super().__init__(code)
        self.code = code


class PageQueue:
    """The queue of one page. Recorded events wait in order, none is left out. An open stream waits at most once however
    often it grows; one that ended comes out at its place. A page that does not keep up is closed and resumes by number.
    """

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
        """Sends what waits, then the reason, and closes the queue."""
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


class SessionStatus(StrEnum):
    LIVE = "live"
    """It runs in this process, and can be answered here."""
    ELSEWHERE = "elsewhere"
    """Another process runs it; here it can be watched."""
    CLOSED = "closed"
    """No process runs it."""


class WatchedSession(ABC):
    id: str
    state: SessionStatus
    answerable: bool
    bus: EventBus
    history: EventHistory
    last_seq: int
    """The number of the last event that a page which comes now finds in the history."""

    def __init__(self) -> None:
        self.audience = Audience()

    @abstractmethod
    def open_questions(self) -> list[Event]:
        """Returns the open questions with the same ids, in the original order."""

    async def act_elsewhere(self, type: str, given: Mapping[str, Any], scope: Mapping[str, Any]) -> bool:
        """Does what a page asks for where another process runs the session; False: that is not possible from here."""
        return False

    @abstractmethod
    async def arrive(self) -> None:
        """Called when a page is about to look."""

    @abstractmethod
    async def close(self) -> None:
        """Closes the session and tells the pages."""


UI_NAME: Final = "browser"
"""The name in the journal and for other UIs."""
_NO_JOURNAL_NAME: Final = ".none"


class LiveSession(WatchedSession):
    """A session that runs in this process. From `open` to `close` it is attached to the RuntimeUI as `browser`, so
    somebody can answer whether or not a page is open. The past comes from the journal, or from bounded memory where
    there is none. While a session starts it has no journal and its events have no number; if it then resumes an earlier
    session, pages are told to reload.
    """

    state = SessionStatus.LIVE
    answerable = True

    def __init__(self, runtime: WorkerRuntime | None, bus: EventBus, home: Path, root: Path) -> None:
        """`root`: the directory of the program."""
        super().__init__()
        self.runtime = runtime
        self.bus = bus
        self.root = root
        self.resolutions = Resolutions()
        self._home = home
        self._opened_as = bus.session_id
        self._recorded = JournalHistory(self._journal_path, self._flush)
        self._remembered = RememberedHistory()
        self._numbered = False
        self._remembers = False
        """Whether events are kept here, because no journal keeps them."""
        self._detach: list[Callable[[], None]] = []
        self._recalling: asyncio.Task[None] | None = None

    # ---- life

    async def open(self) -> None:
        if self._detach:
            return
        if self._has_begun():
            self._number()
        self._detach = [
            self.bus.on("*", self._take),
            self.bus.on("getDiff", self._show_diff),
            self.ui.attach(UI_NAME),
        ]
        if self._numbered and self.bus.seq and not self._remembers:
            await self._recall()

    async def close(self) -> None:
        """Pages are told; open questions are denied if no other UI can answer."""
        for detach in reversed(self._detach):
            detach()
        self._detach = []
        if self._recalling is not None:
            self._recalling.cancel()
        self.audience.end(GOING_AWAY, "The session ended here.")
        self.audience.streams.clear()

    # ---- what pages see

    @property
    def id(self) -> str:  # type: ignore[override]
        return self.bus.session_id

    def is_known_as(self, session_id: str) -> bool:
        """Whether this is its id, or the one it had before it resumed an earlier session."""
        return session_id in (self.id, self._opened_as)

    @property
    def history(self) -> EventHistory:  # type: ignore[override]
        return self._remembered if self._remembers else self._recorded

    @property
    def last_seq(self) -> int:  # type: ignore[override]
        return self.bus.seq if self._numbered or self._has_begun() else 0

    @property
    def is_ready(self) -> bool:
        """False while it is being started."""
        return self.runtime is None or self.runtime.is_ready

    async def arrive(self) -> None:
        """Returns once what still holds from an earlier run is known."""
        if self._recalling is not None:
            await asyncio.wait({self._recalling})

    # ---- questions

    @property
    def ui(self) -> RuntimeUI:
        return create_runtime_ui(self.bus)

    def open_questions(self) -> list[Event]:
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
        """Marks that events are recorded from now on. What an earlier session left is not on any page yet."""
        self._number()
        if event.seq > 1 and not self._remembers:
            self.audience.end(MOVED, "An earlier session goes on; the page loads it.", self.id)
            self._recalling = asyncio.get_running_loop().create_task(self._recall())

    def _number(self) -> None:
        self._numbered = True
        self._remembers = not self._is_recorded()

    async def _recall(self) -> None:
        """Reads what still holds from before this was opened."""
        _, _, before = await self._recorded.look()
        self.audience.standing.merge(before)

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
            return sessions_dir(self._home) / _NO_JOURNAL_NAME

    def _flush(self) -> None:
        journal = self._journal()
        if journal is not None and not journal.closed:
            with contextlib.suppress(JournalError):  # what waits is kept; who may not go on without it is told there
                journal.flush()


def _unnumbered(event: Event) -> Event:
    """Returns an event that no journal will have, without a number that pages could ask for."""
    return Event(event.type, event.wire, None, 0, event.ts, event.session_id, event.worker_id, event.source)


_POLL_S: Final = 0.2
GONE: Final = 4404
"""Close code: there is no such session any more."""
_log = logging.getLogger(__name__)


class FollowedSession(WatchedSession):
    """A session of another process. While a page looks, its journal is checked five times a second; nothing is written,
    locked or answered. The file may grow, close, be resumed or disappear; of a damaged one what is readable is shown.
    """

    runtime: Final = None

    def __init__(self, home: Path, session_id: str) -> None:
        super().__init__()
        self.id = session_id
        self.bus = EventBus(session_id)
        self.state = SessionStatus.CLOSED
        self.answerable = False
        self.last_seq = 0
        self._path = journal_path(home, session_id)
        self.history: JournalHistory = JournalHistory(lambda: self._path)
        self._following: asyncio.Task[None] | None = None
        self._looking = asyncio.Lock()

    def open_questions(self) -> list[Event]:
        """Returns none: they are answered where the session runs."""
        return []

    async def open(self) -> None:
        async with self._looking:
            await self._look()

    async def arrive(self) -> None:
        """Follows the file from here on, until no page looks."""
        await self.open()
        if self._following is None or self._following.done():
            self._following = asyncio.get_running_loop().create_task(self._follow())

    async def close(self) -> None:
        if self._following is not None:
            self._following.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._following
        self.audience.end(GOING_AWAY, "The server stopped following this session; the page loads it again.")

    @property
    def _is_watched(self) -> bool:
        return len(self.audience) > 0

    async def _follow(self) -> None:
        idle = 0
        while idle < 2 or self._is_watched:  # whoever has just arrived joins in a moment
            await asyncio.sleep(_POLL_S)
            idle = 0 if self._is_watched else idle + 1
            try:
                async with self._looking:
                    there = await self._look()
            except Exception as error:  # a page must not be left without news because of one bad look
                _log.warning("session %s could not be looked at: %s", self.id, type(error).__name__)
                continue
            if not there:
                self.audience.end(GONE, "The record of this session was removed.")
                return

    async def _current_state(self) -> SessionStatus:
        held = await run_in_thread(lambda: is_locked(self._path))
        return SessionStatus.ELSEWHERE if held else SessionStatus.CLOSED

    async def _look(self) -> bool:
        state = await self._current_state()
        there, last, news = await self.history.look()
        if last < self.last_seq:  # cut back, or another file under this name
            self.last_seq = last
        if len(self.audience):
            await self._show_until(last)
        self.last_seq = last
        self.audience.standing.merge(news)
        if state is not self.state:
            self.state = state
            self.audience.broadcast(frame_text("state", state=state.value, answerable=self.answerable))
        return there

    async def _show_until(self, last: int) -> None:
        """Shows what was recorded since the last look; what comes meanwhile is for the next one."""
        while self.last_seq < last:
            page = await self.history.page(after=self.last_seq)
            for event in page.events:
                if event.seq <= last:
                    self._show(event)
            if page.reached <= self.last_seq:
                return
            self.last_seq = min(page.reached, last)

    def _show(self, event: Event) -> None:
        """One event of the record, to the pages that look."""
        self.audience.take(event)
        self.bus.show(event.type, lambda: event.wire, event.worker_id, event.seq)


MAX_RESOLUTIONS: Final = 200
_ANSWER_TYPES: Final = frozenset({"approvalResponse", "formResponse", "userInput"})
_RESOLVED_TYPES: Final = frozenset({"approvalResolved", "formResolved", "inputResolved"})
_NOT_BY_A_UI: Final = {
    "memory": "an earlier answer covered it",
    "mode": "the approval mode answered",
    "timeout": "nobody answered in time",
    "interrupt": "it was interrupted",
    "nobody": "nobody could answer",
}


class Resolutions:
    def __init__(self) -> None:
        self._by: dict[str, str] = {}
        self._answering: dict[str, str] = {}

    def take(self, event: Event) -> None:
        if event.type in _ANSWER_TYPES:
            _keep(self._answering, event.wire.get("requestId"), event.source)
        elif event.type in _RESOLVED_TYPES:
            request, by = event.wire.get("requestId"), event.wire.get("by")
            _keep(self._by, request, by if isinstance(by, str) else self._answering.pop(str(request), ""))

    def late_message(self, request_id: str) -> str:
        """`Too late: answered in terminal.`; empty for a question that was never resolved here."""
        by = self._by.get(request_id)
        if by is None:
            return ""
        if by in _NOT_BY_A_UI:
            return f"Too late: {_NOT_BY_A_UI[by]}."
        return f"Too late: answered in {by}." if by else "Too late: Forge does not ask this any more."


def _keep(kept: dict[str, str], request: Any, by: str) -> None:
    if not isinstance(request, str):
        return
    kept.pop(request, None)
    kept[request] = by
    if len(kept) > MAX_RESOLUTIONS:
        del kept[next(iter(kept))]


_BETWEEN: Final = "…\n"


def diff_for(question: Event | None, path: str) -> dict[str, Any] | None:
    """The data of `diffContent`; None where this question changes no such path."""
    if question is None or not isinstance(diff := question.wire.get("diff"), str):
        return None
    file = next((each for each in file_diffs(diff) if each.path == path), None)
    if file is None:
        return None
    modified = _BETWEEN.join(hunk.new for hunk in file.hunks)
    data: dict[str, Any] = {"requestId": question.wire["requestId"], "path": path, "modified": modified}
    data["isNew"] = file.is_new
    if file.old_shown and not file.is_new:
        data["original"] = _BETWEEN.join(hunk.old for hunk in file.hunks)
    return data
