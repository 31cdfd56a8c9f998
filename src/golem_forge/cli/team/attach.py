"""`forge attach ID`: the terminal on a session of the store, wherever it runs.

The same terminal as `forge run`: history, text as it comes, cards, input. It runs no worker: what needs one is not
available here and says so. Without a terminal it prints what happens, asks nothing, and leaves the session running when
its standard input ends (`</dev/null`: at once).

`AttachedSession` is the session as the terminal sees it. It reads the journal's lines as they come and puts their
events on a bus, with the text that is not recorded (`team/live.py`). Open questions are asked on that bus; an answer
becomes `TeamStore.answer`, a line a message, an interrupt an arrival. A form with a secret field is answered to the
live runner and never becomes a row. The session goes on when the terminal closes.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
import time
from collections import deque
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

from golem_forge.agent.recorded_sessions import export_session, format_of, session_titles
from golem_forge.agent.slash.session_commands import is_port_command
from golem_forge.cli.command import read_args
from golem_forge.cli.team import ID_SHOWN, open_store
from golem_forge.core.lazy_dataclass import dataclass
from golem_forge.core.signals import termination_signals
from golem_forge.core.text import cost_text, nearest_remark, one_line
from golem_forge.events.bus import EventBus
from golem_forge.events.index import SessionSummary
from golem_forge.events.journal_records import EventReader, parse_line
from golem_forge.events.model import REGISTRY
from golem_forge.events.open_questions import INTERRUPT, NOBODY
from golem_forge.events.runtime_ui import InputUnavailable, create_runtime_ui
from golem_forge.events.serialization import Event, iso_time
from golem_forge.storage.home import forge_home
from golem_forge.team.database import StoreUnavailable, TeamError
from golem_forge.team.dispatch import listen
from golem_forge.team.journal import PORT_COMMAND
from golem_forge.team.leases import LEASE_S
from golem_forge.team.live import LIVE_CHANNEL, LiveReceiver
from golem_forge.team.people import Person, PersonStore, TeamStore
from golem_forge.team.question_table import has_secret
from golem_forge.team.remote import RemoteStore
from golem_forge.team.rows import (
    ANSWERED,
    CHANNEL,
    ENDED,
    EXPIRED,
    FAILED,
    FINISHED,
    QUEUED,
    RUNNING,
    QuestionRow,
    StoredSession,
)
from golem_forge.ui.headless import PlainAdapter
from golem_forge.ui.session_ui import INTERRUPTED
from golem_forge.ui.terminal import create_event_cli_adapter
from golem_forge.ui.trace import TraceLevel

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


HELP: Final = f"""usage: forge attach ID

Shows a session of the store at this terminal, wherever it runs: what happened, the text as it comes, its questions.
What you type is its next message. Ctrl+C interrupts its turn. Ctrl+] leaves it running. Without a terminal it prints
what happens, asks nothing, and leaves when its standard input ends.

  -t, --trace LEVEL   {", ".join(TraceLevel)} (default: normal)"""
COMMANDS: Final = {
    "help": "what works here",
    "cost": "what the session has cost so far",
    "export": "/export FILE writes the session to a new file: Markdown, or JSON for a name that ends in .json",
    "ports": "lists the ports that commands of the session listen on",
    "publish": "/publish PORT gives a link to one of them, on the computer where the session runs",
    "unpublish": "/unpublish PORT ends such a link",
    "stop": "ends the session",
    "exit": "leaves the session running, as Ctrl+] does",
}
_COMMAND_CODE: Final = "command"


def run_attach(words: list[str]) -> int:
    given = read_args("attach", HELP, words, "ID", f"-t,--trace {'|'.join(TraceLevel)}")
    store = open_store(door="attach")
    return asyncio.run(_attach(store, store.find(given.id), given.trace or "normal"))


async def _attach(store: TeamStore, row: StoredSession, trace: str) -> int:
    bus = EventBus(row.id)
    adapter = create_event_cli_adapter(bus, trace_level=trace, home=forge_home().path)
    session = AttachedSession(store, row.id, bus, forge_home().path / "state")
    plain = isinstance(adapter, PlainAdapter)
    input_ended = watch_input() if plain else asyncio.Event()

    def show_state(row: StoredSession) -> None:
        if not isinstance(adapter, PlainAdapter):
            adapter.follow_turn(row.state in (QUEUED, RUNNING))
        elif input_ended.is_set() and row.state not in ENDED:  # what is there was shown
            adapter.request_exit()

    session.on_row = show_state
    if not isinstance(adapter, PlainAdapter):
        adapter.offer_commands(COMMANDS)
    commands = _Commands(store, row.id, session, adapter.request_exit)
    bus.on("command", commands.take)
    loop = asyncio.get_running_loop()
    for number in (*termination_signals(), signal.SIGINT):
        loop.add_signal_handler(number, adapter.request_exit)
    await adapter.initialize()
    following = asyncio.ensure_future(session.run())
    leaving = asyncio.ensure_future(adapter.exit_requested.wait())
    try:
        await asyncio.wait({following, leaving}, return_when=asyncio.FIRST_COMPLETED)
        ended = following.result() if following.done() else None
    finally:
        for task in (following, leaving):
            task.cancel()
        with contextlib.suppress(asyncio.CancelledError, TeamError):
            await following
        await adapter.shutdown()
    return _goodbye(row.id, session.row or row, ended, quiet=plain)


def watch_input() -> asyncio.Event:
    """Returns an event that is set when standard input ends. A terminal is not read: a person leaves it by Ctrl+C."""
    ended = asyncio.Event()
    loop = asyncio.get_running_loop()

    def take() -> None:
        with contextlib.suppress(BlockingIOError):
            if not os.read(0, 1 << 16):
                loop.remove_reader(0)
                ended.set()

    try:
        if not os.isatty(0):
            loop.add_reader(0, take)
    except (OSError, ValueError):  # a file, /dev/null, or none: nothing comes from there
        ended.set()
    return ended


def _goodbye(session_id: str, last: StoredSession, ended: StoredSession | None, *, quiet: bool) -> int:
    short = session_id[:ID_SHOWN]
    if ended is None:
        state = (
            "goes on" if last.state in (QUEUED, RUNNING) else f"waits for {one_line(last.shown_wait) or 'an answer'}"
        )
        print(f"session {short} {state}; `forge attach {short}` comes back to it", file=sys.stderr)
        return 0
    why = f": {one_line(ended.error)}" if ended.error else ""
    if not quiet or ended.state != FINISHED:
        print(f"session {short} {ended.state}{why}", file=sys.stderr)
    return {FINISHED: 0, FAILED: 1}.get(ended.state, INTERRUPTED)


class _Commands:
    """The slash commands that need no worker."""

    def __init__(self, store: TeamStore, session_id: str, session: AttachedSession, leave: Any) -> None:
        self._store = store
        self._id = session_id
        self._session = session
        self._leave = leave
        self._tasks: set[asyncio.Task[None]] = set()

    def take(self, event: Any) -> None:
        task = asyncio.get_running_loop().create_task(self._run(str(event.wire["text"])))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _run(self, text: str) -> None:
        name, _, rest = text.strip().removeprefix("/").partition(" ")
        name = {"quit": "exit", "detach": "exit", "?": "help"}.get(name.lower(), name.lower())
        if text.startswith("!") or name not in COMMANDS:
            close = nearest_remark(name, COMMANDS)
            what = "A command of the shell" if text.startswith("!") else f"/{one_line(name[:40])}"
            said = f"{what} is not available in an attached session{close}; /help shows what is."
            self._session.say("error", said, _COMMAND_CODE)
            return
        try:
            said = await asyncio.to_thread(getattr(self, f"_{name}"), rest.strip())
        except (TeamError, OSError) as error:
            said = error.message if isinstance(error, TeamError) else f"The file was not written: {error.strerror}."
            self._session.say("error", said, _COMMAND_CODE)
            return
        if name == "exit":
            self._leave()
        elif said:
            self._session.say("info", said, _COMMAND_CODE)

    def _help(self, rest: str) -> str:
        lines = [f"/{name:<8} {does}" for name, does in COMMANDS.items()]
        return "\n".join([*lines, "Ctrl+C    interrupts the turn", "Ctrl+]    leaves the session running"])

    def _cost(self, rest: str) -> str:
        sums = next(
            (each.wire.get("session") for each in reversed(self._session.events) if each.type == "usageUpdated"), None
        )
        if not isinstance(sums, dict):
            return "No model was asked anything yet."
        price = cost_text(sums.get("cost"), sums.get("prices"))
        return f"{sums.get('input', 0)} tokens in, {sums.get('output', 0)} out, {price}"

    def _export(self, rest: str) -> str:
        row = self._store.find(self._id)
        path = Path(rest or f"session-{self._id[:ID_SHOWN]}.md")
        title = session_titles(forge_home().path).get(self._id) or row.title
        with path.open("x", encoding="utf-8") as file:
            for piece in export_session(summary_of(row), title, self._all_events(), format_of(path.name)):
                file.write(piece)
        return f"wrote {one_line(str(path))}"

    def _all_events(self) -> Any:
        reader, last = EventReader(), 0
        while page := self._store.lines(self._id, last, private=False):
            last = page[-1][0]
            for _, line in page:
                if (record := parse_line(line.rstrip(b"\n"))) is not None:
                    yield from reader.add(record)

    def _ports(self, rest: str) -> str:
        return self._send("/ports")

    def _publish(self, rest: str) -> str:
        return self._send(f"/publish {rest}")

    def _unpublish(self, rest: str) -> str:
        return self._send(f"/unpublish {rest}")

    def _send(self, text: str) -> str:
        """Sends a command to the process that runs the session; its answer is an event of the session."""
        if not is_port_command(text):
            raise TeamError(f"'{one_line(text)[:40]}': write a port, for example /publish 3000")
        row = self._store.find(self._id)
        if row.state != RUNNING and not row.held:
            return "No turn runs: the processes of the session have ended, so nothing of it listens."
        self._store.send(self._id, PORT_COMMAND, {"text": text})
        return ""

    def _stop(self, rest: str) -> str:
        before = self._store.stop(self._id)
        return f"it has ended already ({before})" if before in ENDED else "it is told to stop"

    def _exit(self, rest: str) -> str:
        return ""


def summary_of(row: StoredSession) -> SessionSummary:
    return SessionSummary(
        id=row.id,
        created=iso_time(row.created),
        updated=iso_time(row.updated),
        lines=row.lines,
        calls=0,
        closed=row.state in ENDED,
        worker=row.worker,
        model=row.model,
        root="",
        input=row.title,
        talked=True,
        cost=row.cost or None,
        prices="",
    )
