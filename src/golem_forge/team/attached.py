"""AttachedSession: a session of the store as a terminal sees it, wherever it runs.

It reads the journal's lines as they come and puts their events on a bus, with the text that is not recorded (`live`).
Open questions are asked on that bus; an answer becomes `TeamStore.answer`, a line a message, an interrupt an arrival. A
form with a secret field is answered to the live runner and never becomes a row. The session goes on when the terminal
closes.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import deque
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

from golem_forge.core.lazy_dataclass import dataclass
from golem_forge.core.text import one_line
from golem_forge.events.bus import EventBus
from golem_forge.events.journal_reader import EventReader, parse_line
from golem_forge.events.model import REGISTRY
from golem_forge.events.open_questions import INTERRUPT, NOBODY
from golem_forge.events.runtime_ui import InputUnavailable, create_runtime_ui
from golem_forge.events.serialization import Event
from golem_forge.team.database import StoreUnavailable, TeamError
from golem_forge.team.dispatch import listen
from golem_forge.team.live import LIVE_CHANNEL, LiveReceiver
from golem_forge.team.people import Person, PersonStore, TeamStore
from golem_forge.team.question_table import has_secret
from golem_forge.team.remote import RemoteStore
from golem_forge.team.rows import ANSWERED, CHANNEL, ENDED, EXPIRED, QUEUED, QuestionRow, StoredSession
from golem_forge.team.store import LEASE_S

HISTORY: Final = 300
"""Number of past events that are shown; the journal has all."""
_LOOK_S: Final = 1.0
_QUEUED_S: Final = 3.0
_PAGE: Final = 2000
_LEFT_OUT: Final = frozenset(
    {
        *("approvalRequired", "approvalResolved", "formRequired", "formResolved", "inputPrompt", "inputResolved"),
        "manualToolsAvailable",
    }
)
"""Questions come from the store, with who answered them. Nobody runs a tool by hand from here."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _News:
    row: StoredSession
    events: tuple[Event, ...]
    left_out: int
    open: tuple[QuestionRow, ...]
    closed: tuple[QuestionRow, ...]


class AttachedSession:
    def __init__(self, store: TeamStore, session_id: str, bus: EventBus, state: Path | None = None) -> None:
        """`state`: of this Forge home, where a runner of this machine has its socket."""
        self.row: StoredSession | None = None
        self.on_row: Callable[[StoredSession], None] = lambda row: None
        """Called after every look, on the loop."""
        self.events: deque[Event] = deque(maxlen=HISTORY)
        self._store = store
        self._id = session_id
        self._bus = bus
        self._ui = create_runtime_ui(bus)
        self._reader = EventReader()
        self._lines = 0
        self._started = False
        self._restarted = 0
        """The number of the event that tells a woken worker's start: what follows it repeats the last turn."""
        self._asked: dict[str, asyncio.Task[None]] = {}
        self._withdrawn: set[str] = set()
        self._told: set[str] = set()
        self._answers = True
        """Whether the person's role may answer."""
        self._live_count = 0
        self._catalog: Mapping[str, Any] = {}
        self._still_since = 0.0
        """Since when neither the state nor the lease changed."""
        self._rung = asyncio.Event()
        self._live = LiveReceiver(store, session_id, self._show, state)
        self._tasks: set[asyncio.Task[Any]] = set()

    async def run(self) -> StoredSession:
        """Follows the session until it has ended and returns its row. Cancel it to leave. Raises TeamError."""
        loop = asyncio.get_running_loop()

        def ring(session_id: str) -> None:
            if session_id in ("", self._id):
                with contextlib.suppress(RuntimeError):
                    loop.call_soon_threadsafe(self._rung.set)

        def heard(channel: str, what: str) -> None:
            if channel.startswith(LIVE_CHANNEL):
                with contextlib.suppress(RuntimeError):
                    loop.call_soon_threadsafe(self._live.heard, what)
            else:
                ring(self._id)

        rings = listen(self._store, ring, (f"{CHANNEL}_{self._id}", LIVE_CHANNEL + self._id), heard)
        stop_interrupts = self._bus.on("interrupt", self._interrupt)
        try:
            self._answers = await asyncio.to_thread(
                lambda: self._store.person.may("answer", self._store.find(self._id).program)
            )
            await self._look()
            self._start(self._hear())
            while self.row is None or self.row.state not in ENDED:
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(_LOOK_S):
                        await self._rung.wait()
                self._rung.clear()
                await self._look()
            return self.row
        finally:
            stop_interrupts()
            for task in [*self._tasks, *self._asked.values()]:
                task.cancel()
            await self._live.close()
            await asyncio.to_thread(rings.close)

    # ---- what happens there

    async def _look(self) -> None:
        try:
            await asyncio.to_thread(self._live.watch)
            frames = await asyncio.to_thread(self._fetch_live)
            news = await asyncio.to_thread(self._read)
        except StoreUnavailable as error:
            self._say_once("away", "warning", error.message)
            return
        self._told.discard("away")
        if news.left_out:
            text = f"{news.left_out} earlier events are not shown; `forge log --session {self._id[:12]}` has the calls."
            self.say("info", text)
        for row in news.closed:
            self._close(row)
        for event in news.events:
            self._take(event)
        for frame in frames:  # after the records that it follows; what a message has replaced is dropped
            self._live.take(frame)
        await self._tell_runner(news.row)
        self.row = news.row
        await self._live.follow(news.row.runner)
        for row in news.open:
            if not self._answers:
                self._say_once(row.id, "info", f"An operator or an admin has to answer: {one_line(row.title)}")
            elif row.id not in self._asked:
                self._asked[row.id] = asyncio.get_running_loop().create_task(self._ask(row))
        self.on_row(news.row)

    def _fetch_live(self) -> list[dict[str, Any]]:
        """Fetches the live text through a team's page; runs in a thread."""
        if not isinstance(self._store, RemoteStore):
            return []
        frames, self._live_count = self._store.live(self._id, self._live_count)
        return frames

    async def _tell_runner(self, row: StoredSession) -> None:
        """Says why nothing happens: nobody has taken the session, or its runner is silent."""
        now, before = time.monotonic(), self.row
        if before is None or (row.state, row.epoch, row.lease_until) != (
            before.state,
            before.epoch,
            before.lease_until,
        ):
            self._still_since = now
            if "silent" in self._told and row.runner:  # also after it waited in the queue
                self.say("info", "A runner has the session again.")
                self._told.discard("silent")
            self._told.discard("queued")
        elif not row.runner and (row.state == QUEUED or row.wake) and now - self._still_since > _QUEUED_S:
            if not await asyncio.to_thread(self._store.runners):
                text = "No runner runs, so nobody goes on with this session. `forge runner` starts one."
                self._say_once("queued", "warning", text)
        elif row.runner and now - self._still_since > LEASE_S + _LOOK_S:
            text = "The runner of this session is silent. Another one goes on with it within 30 seconds, if one runs."
            self._say_once("silent", "warning", text)

    def _read(self) -> _News:
        """Reads the row, then new lines, so that the lines of an ended session are complete; runs in a thread."""
        row = self._store.find(self._id)
        first, events, count = not self._lines, deque[Event](maxlen=None if self._lines else HISTORY), 0
        while page := self._store.lines(self._id, self._lines, limit=_PAGE, private=False):
            for number, line in page:
                self._lines = number
                for event in self._events_of(line):
                    count += self._is_shown(event)
                    events.append(event)
        open = tuple(self._store.questions(session=self._id)) if row.state not in ENDED else ()
        gone = set(self._asked) - {each.id for each in open} - self._withdrawn
        closed = tuple(found for each in gone if (found := self._store.question(each)) is not None)
        left_out = max(0, count - HISTORY) if first else 0
        return _News(row=row, events=tuple(events), left_out=left_out, open=open, closed=closed)

    def _events_of(self, line: bytes) -> list[Event]:
        record = parse_line(line.rstrip(b"\n"))
        try:
            return list(self._reader.add(record)) if record is not None else []
        except (KeyError, TypeError, AttributeError):  # a record that is not what it claims to be
            return []

    def _is_shown(self, event: Event) -> bool:
        kind = REGISTRY.get(event.type)
        return event.type not in _LEFT_OUT and kind is not None and (not kind.ACTION or event.type == "interrupt")

    def _take(self, event: Event) -> None:
        self.events.append(event)
        if not self._is_shown(event):
            return
        if event.type == "sessionStarted":
            self._restarted = event.seq if self._started else 0
            if self._started:
                return
            self._started = True
        if event.type == "catalogChanged" and event.wire == self._catalog:
            return  # a woken worker finds the same tools
        if event.type == "catalogChanged":
            self._catalog = event.wire
        if event.type == "status" and self._restarted and event.seq == self._restarted + 1:
            return
        if event.type == "message" and (event.wire.get("message") or {}).get("role") == "assistant":
            self._live.message(event)
        self._show(event)

    def _show(self, event: Event) -> None:
        self._bus.replay([event])

    # ---- questions

    async def _ask(self, row: QuestionRow) -> None:
        secret = row.kind == "form" and has_secret(row.wire)
        if secret and not (self._live.can_answer or isinstance(self._store, RemoteStore)):
            text = "This session asks for a secret, which the store does not keep. Attach on the machine of its runner."
            self._say_once(row.id, "warning", text)
            await asyncio.sleep(_LOOK_S)
            del self._asked[row.id]  # it may be possible in a moment
            return
        try:
            ask = self._ui.request_approval if row.kind == "approval" else self._ui.request_form
            answer = dict(await ask(dict(row.wire)))
        except ValueError:
            self.say("error", f"Question {row.id[:12]} cannot be shown here; `forge inbox` may show it.")
            return
        if row.id in self._withdrawn or answer.pop("by") in (NOBODY, INTERRUPT):
            return
        if problem := await self._answer(row, answer, secret):
            self.say("error", problem)

    async def _answer(self, row: QuestionRow, answer: Mapping[str, Any], secret: bool) -> str:
        """Sends an answer. Returns why it did not count; empty if it did."""
        try:
            if secret and answer.get("action") == "accept" and isinstance(self._store, RemoteStore):
                await asyncio.to_thread(self._store.answer_form, self._id, {**answer, "requestId": row.id})
                return ""
            if secret and answer.get("action") == "accept":
                person = await asyncio.to_thread(self._may_answer, row.id)
                problem = await self._live.answer_form({**answer, "requestId": row.id}, person.name, "attach")
                if problem:
                    del self._asked[row.id]  # it is asked again
                return f"The answer did not count: {problem}." if problem else ""
            await asyncio.to_thread(self._store.answer, row.id, answer)
        except StoreUnavailable as error:
            del self._asked[row.id]
            return f"{error.message} Answer again."
        except TeamError as error:
            return error.message
        return ""

    def _may_answer(self, question_id: str) -> Person:
        """Past the store, so it is asked first whether this person may. Raises TeamError."""
        program = self.row.program if self.row is not None else ""
        if isinstance(self._store, PersonStore):
            return self._store.require("answer", f"question {question_id}", program)
        person = self._store.person
        if not person.may("answer", program):
            raise TeamError(f"{person.name} is {person.role.value} here and may not answer: that takes an operator.")
        return person

    def _close(self, row: QuestionRow) -> None:
        """Somebody else answered, or nobody has to any more."""
        self._withdrawn.add(row.id)
        by = (
            row.person or "another person"
            if row.state == ANSWERED
            else "timeout"
            if row.state == EXPIRED
            else INTERRUPT
        )
        approved = row.state == ANSWERED and row.answer.get("approved") is True
        self._ui.withdraw_approval(row.id, approved=approved, by=by, reason=str(row.answer.get("reason") or ""))

    # ---- what the person says

    async def _hear(self) -> None:
        while True:
            try:
                said = await self._ui.get_user_input("> ")
            except InputUnavailable:
                return
            try:
                await asyncio.to_thread(self._store.send, self._id, "message", {"text": said.content})
            except TeamError as error:
                self.say("error", f"This was not sent: {error.message}")

    def _interrupt(self, event: Event) -> None:
        if event.wire.get("reason") == "user":
            self._start(self._send_interrupt())

    async def _send_interrupt(self) -> None:
        try:
            await asyncio.to_thread(self._store.send, self._id, "interrupt", {})
        except TeamError as error:
            self.say("error", error.message)

    def say(self, type: str, text: str, code: str = "") -> None:
        self._bus.emit("status", {"type": type, "message": text, **({"code": code} if code else {})})

    def _say_once(self, what: str, type: str, text: str) -> None:
        if what not in self._told:
            self._told.add(what)
            self.say(type, text)

    def _start(self, work: Any) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
