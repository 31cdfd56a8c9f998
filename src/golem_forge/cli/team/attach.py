"""`forge attach ID`: the terminal on a session of the store, wherever it runs.

The same terminal as `forge run`: history, text as it comes, cards, input. It runs no worker: what needs one is not
available here and says so. Without a terminal it prints what happens, asks nothing, and leaves the session running when
its standard input ends (`</dev/null`: at once).
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
from pathlib import Path
from typing import Any, Final

from golem_forge.agent.recorded_sessions import export_session, format_of, session_titles
from golem_forge.agent.slash.session_commands import is_port_command
from golem_forge.cli.command import read_args
from golem_forge.cli.team import ID_SHOWN, fail_with, open_store
from golem_forge.core.signals import termination_signals
from golem_forge.core.text import cost_text, nearest_remark, one_line
from golem_forge.events.bus import EventBus
from golem_forge.events.index import SessionSummary
from golem_forge.events.journal_reader import EventReader, parse_line
from golem_forge.events.serialization import iso_time
from golem_forge.storage.home import forge_home
from golem_forge.team.attached import AttachedSession
from golem_forge.team.database import TeamError
from golem_forge.team.journal import PORT_COMMAND
from golem_forge.team.people import TeamStore
from golem_forge.team.rows import ENDED, FAILED, FINISHED, QUEUED, RUNNING, StoredSession
from golem_forge.ui.headless import PlainAdapter
from golem_forge.ui.session_ui import INTERRUPTED
from golem_forge.ui.terminal import create_event_cli_adapter
from golem_forge.ui.trace import TraceLevel

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
    try:
        store = open_store(door="attach")
        row = store.find(given.id)
        return asyncio.run(_attach(store, row, given.trace or "normal"))
    except TeamError as error:
        return fail_with("attach", error)


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
