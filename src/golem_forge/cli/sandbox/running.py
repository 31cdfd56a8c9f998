"""`forge sandbox exec -- CMD`: the person's own command inside the walls of the worker that `forge call` uses.

Journalled like a call, judged by nobody: whoever types it could run it without walls too. No tool, model or MCP client
can come here. Output is passed on as it comes; on a terminal keys and window size go in.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

from golem_forge.cli.plain import complain
from golem_forge.cli.sandbox.feeding import standard_input
from golem_forge.cli.sandbox.words import ShortCommand, read_words
from golem_forge.core.decision import AnsweredBy, Decision, Source
from golem_forge.core.errors import ForgeError
from golem_forge.core.ids import new_id
from golem_forge.core.leftovers import leftover_lines
from golem_forge.core.verdict import Risk, Status, Verdict

if TYPE_CHECKING:
    from golem_forge.sandbox.walls.walled_child import Aftermath

_TOOL: Final = "sandbox exec"
_NO_WALLS: Final = 125
_TIMED_OUT: Final = 124
_PIECE: Final = 64 * 1024


def run(words: list[str]) -> int:
    asked = read_words("sandbox exec", words)
    if isinstance(asked, int):
        return asked
    if not asked.command:
        complain("sandbox exec", "no command; write it after --, like: forge sandbox exec -- make test")
        return 2
    return asyncio.run(_run(asked))


async def _run(asked: ShortCommand) -> int:
    from golem_forge.sandbox.limits import Limits
    from golem_forge.sandbox.walls.environment import exec_environment
    from golem_forge.sandbox.walls.job import Job, Streams
    from golem_forge.workers.session import open_session

    on_terminal = bool(sys.stdin and sys.stdin.isatty() and sys.stdout.isatty())
    async with open_session(asked.program) as session:
        for notice in session.notices_for_one_command:
            complain("sandbox exec", notice)
        walls = session.path.walls
        assert walls is not None
        level = await walls.level()
        streams = Streams.TERMINAL if on_terminal else Streams.APART
        limits = Limits(timeout_s=asked.timeout)
        zone = session.sandbox.default_zone
        workspace = walls.stands_at(zone, level) if zone else ""
        environment = exec_environment(tty=on_terminal, level=level, hosts=False, workspace=workspace)
        feed = None if on_terminal else standard_input()
        stdin = feed.theirs if feed else None
        job = Job(argv=_argv(asked.command), env=environment, streams=streams, limits=limits, stdin=stdin)
        with _recorded(session, asked.command) as record:
            try:
                walled = await walls.start(walls.keeping_bytecode(job, level))
                if feed:
                    feed.begin()
            except ForgeError as error:
                complain("sandbox exec", error.message)
                record.end(Status.EXECUTION_FAILED, error.message)
                return _NO_WALLS
            code = await _attended(walled.child, on_terminal, asked.timeout)
            after = walled.aftermath()
            status = Status.SUCCESS if code == 0 else Status.EXECUTION_FAILED
            record.end(status, "" if code == 0 else f"exit {code}", after)
            for line in leftover_lines(after.protected_created, after.leftovers):
                complain("sandbox exec", line.text)
            for denial in after.denials:
                complain("sandbox exec", f"the walls refused: {denial['access']} {denial['target']} ({denial['why']})")
            return code


def _argv(command: list[str]) -> tuple[str, ...]:
    """One word is a script, as it would be for a shell's `-c`; several are a program and its arguments."""
    return ("bash", "--noprofile", "--norc", "-c", command[0]) if len(command) == 1 else tuple(command)


async def _attended(child: Any, on_terminal: bool, limit: float | None) -> int:
    """Passes everything through until the command is over."""
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGINT, child.signal, signal.SIGINT)
    loop.add_signal_handler(signal.SIGTERM, lambda: loop.create_task(child.end()))
    shown = [asyncio.create_task(_copied(child.output, sys.stdout.buffer))]
    if child.errors is not None:
        shown.append(asyncio.create_task(_copied(child.errors, sys.stderr.buffer)))
    with _raw_terminal(child) if on_terminal else _nothing():
        ending = await child.wait()
        await asyncio.gather(*shown)
    if ending.code == "TIMEOUT":
        complain("sandbox exec", f"timed out after {ending.seconds if limit is None else limit:g} s")
        return _TIMED_OUT
    if ending.code:
        complain("sandbox exec", f"ended by a limit: {ending.code}; see `sandbox.limits` in forge.yaml")
    return 128 + ending.signal if ending.signal is not None else ending.exit_code or 0


async def _copied(capture: Any, to: Any) -> None:
    """As it arrives, to its end, byte for byte."""
    done = 0
    while True:
        grown = await capture.more(done, 0.5)
        while done < capture.size:
            piece = capture.read(done, min(done + _PIECE, capture.size))
            to.write(piece)
            to.flush()
            done += len(piece)
        if not grown and capture.complete:
            return


@contextmanager
def _nothing() -> Iterator[None]:
    yield


@contextmanager
def _raw_terminal(child: Any) -> Iterator[None]:
    """The person's keys go to the command, every one of them; the terminal is put back however it ends."""
    import termios
    import tty

    fd = sys.stdin.fileno()
    before = termios.tcgetattr(fd)
    loop = asyncio.get_running_loop()
    waiting: set[asyncio.Task[None]] = set()

    def resize() -> None:
        size = os.get_terminal_size(fd)
        child.resize(size.lines, size.columns)

    def keys() -> None:
        if data := os.read(fd, 4096):
            task = loop.create_task(child.write(data))
            waiting.add(task)
            task.add_done_callback(waiting.discard)

    tty.setraw(fd)
    try:
        resize()
        loop.add_signal_handler(signal.SIGWINCH, resize)
        loop.add_reader(fd, keys)
        yield
    finally:
        loop.remove_reader(fd)
        loop.remove_signal_handler(signal.SIGWINCH)
        termios.tcsetattr(fd, termios.TCSADRAIN, before)


class _Record:
    """The journal's two lines about it: that it starts, and how it ended."""

    def __init__(self, session: Any, command: list[str]) -> None:
        self._journal = session.journal
        self._id = new_id()
        self._started = time.perf_counter()
        self._ended = False
        person = Source(source="person", verdict=Verdict.PRE_APPROVED, reason="the person's own command")
        decision = Decision(Verdict.PRE_APPROVED, (person,), person, Risk.HIGH, answered_by=AnsweredBy.PERSON)
        args = {"command": command}
        if self._journal is not None:
            self._journal.begin(self._id, _TOOL, args, decision, "human", session.path.worker, "", _TOOL)

    def end(self, status: Status, error: str = "", after: Aftermath | None = None) -> None:
        if self._journal is not None and not self._ended:
            self._ended = True
            took = (time.perf_counter() - self._started) * 1e3
            self._journal.finish(self._id, status, took, error, more=_left_behind(after))


def _left_behind(after: Aftermath | None) -> dict[str, Any] | None:
    """The members of a `toolResult` that tell of it."""
    if after is None or not (after.denials or after.protected_created or after.leftovers):
        return None
    said = {
        "denials": list(after.denials),
        "protectedCreated": list(after.protected_created),
        "leftovers": [one.to_wire() for one in after.leftovers],
    }
    return {name: value for name, value in said.items() if value}


@contextmanager
def _recorded(session: Any, command: list[str]) -> Iterator[_Record]:
    record = _Record(session, command)
    try:
        yield record
    finally:
        record.end(Status.INTERRUPTED, "interrupted")
