"""Interpreter: one Python inside walls of its own that waits for what it is to run, and runs exactly that.

`python_job` turns the job of a Python tool into one that waits; `Interpreter.start` starts it; `go` hands it its order,
once. Output, limits and ending are the WalledChild's, as of any process. Refuses what walls refuse. Threat: what was
started ahead must not be looser than what is started now, so an interpreter is `usable` only for an equal job, by the
same walls, while these would be built the same again.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from golem_forge.custom.entry import Program
from golem_forge.sandbox.processes.ending import TIMEOUT
from golem_forge.sandbox.walls.job import HostDirectory, Job
from golem_forge.sandbox.walls.levels import Level
from golem_forge.sandbox.walls.walled_child import WalledChild
from golem_forge.sandbox.walls.walls import Walls

INSIDE: Final = "/forge/inside"
_STARTER: Final = "start.py"
_FORMAT: Final = 4
"""Of marshal; every Python that a tool may bring reads it."""
_READ_AT_START: Final = frozenset({"LC_ALL", "LC_CTYPE", "GLIBC_TUNABLES", "MALLOC_ARENA_MAX"})
"""Variables that the interpreter or its C library looks at once, before it could be told of them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """What `python SCRIPT …` would have been given."""

    script: str
    """As the interpreter sees it."""
    argv: tuple[str, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict)
    """On top of what every child gets and of what the job declares."""
    stdin: bytes | None = None
    search: tuple[str, ...] = ()
    """Further places to import from, after all others."""


def shown_folder() -> str:
    """The host directory that holds the starting program and nothing else."""
    return os.path.realpath(os.path.join(os.path.dirname(__file__), "shown"))


def python_job(job: Job, program: Program, level: Level) -> Job:
    """The same job with this Python in place of its command, waiting for an Order. Where there are no mounts the
    starting program is read in its own place."""
    folder = HostDirectory(shown_folder(), INSIDE)
    starter = os.path.join(folder.inner if level is Level.FULL else folder.host, _STARTER)
    shown = dict.fromkeys((*job.shown, *program.shown, folder))
    return replace(job, argv=(*program.argv, starter), shown=tuple(shown))


class Interpreter:
    def __init__(
        self, walls: Walls, job: Job, walled: WalledChild, wire: socket.socket, hidden: object, sees: object
    ) -> None:
        """As known before its start: `hidden`, what is taken out of its output; `sees`, the directories it is shown."""
        self.walled = walled
        self._hidden = hidden
        self._walls = walls
        self._job = job
        self._wire: socket.socket | None = wire
        self._sees = sees

    @classmethod
    async def start(cls, walls: Walls, job: Job) -> Interpreter:
        """Waits inside from now on. Raises SandboxError; nothing was started then."""
        hidden, sees = _hidden_now(walls), _identities(job)
        ours, theirs = socket.socketpair()
        ours.setblocking(False)
        try:
            walled = await walls.start(replace(_waiting(job, walls), env=_at_start(job), stdin=theirs.fileno()))
        except BaseException:
            ours.close()
            raise
        finally:
            theirs.close()
        return cls(walls, job, walled, ours, hidden, sees)

    def fits(self, walls: Walls, job: Job) -> bool:
        """Whether it was started for this, but for what an Order brings."""
        return walls is self._walls and comparable(job, walls) == comparable(self._job, walls)

    @property
    def alive(self) -> bool:
        """It lives and has had no order yet."""
        return self._wire is not None and self.walled.child.ending is None

    @property
    def usable(self) -> bool:
        """Whether a start now would give the same."""
        if not self.alive:
            return False
        try:
            if self._hidden is not _hidden_now(self._walls):  # a secret was learned since, and its output would show it
                return False
            if self._sees != _identities(self._job):  # e.g. a spoilt snapshot was made anew
                return False
            return self._zones_stand() and self._walls.still_hold(self.walled, self._job)
        except Exception:  # rules that cannot be read, a zone that is gone: a start says so in its own words
            return False

    def serve(self, job: Job) -> None:
        """The call's own job, equal to the one it was started for but for what comes with the order."""
        self._job = job

    async def go(self, order: Order) -> None:
        """From here on it is the tool, and its time counts. One that ended is told nothing: its Ending says how."""
        wire, self._wire = self._wire, None
        if wire is None:
            raise RuntimeError("an interpreter runs one tool, once")
        try:
            self._watch_time()
            with contextlib.suppress(BrokenPipeError, ConnectionResetError):
                await asyncio.get_running_loop().sock_sendall(wire, _written(order, self._job))
        finally:
            wire.close()

    async def end(self) -> None:
        """The whole tree is gone afterwards."""
        wire, self._wire = self._wire, None
        if wire is not None:
            wire.close()
        self.walled.child.kill()  # it has nothing to finish
        await self.walled.child.gone()

    def _watch_time(self) -> None:
        seconds = (self._job.limits or self._walls.limits).timeout_s
        if seconds is None:
            return
        loop, child = asyncio.get_running_loop(), self.walled.child
        endings: list[asyncio.Task[object]] = []
        timer = loop.call_later(max(seconds, 0), lambda: endings.append(loop.create_task(child.end(TIMEOUT))))
        child.ended.add_done_callback(lambda _: timer.cancel())

    def _zones_stand(self) -> bool:
        """Another directory in a zone's place is what a start would refuse."""
        for zone in self._walls.sandbox.zones.values():
            now = os.stat(zone.host)
            if (now.st_dev, now.st_ino) != zone.root.identity():
                return False
        return True


def _hidden_now(walls: Walls) -> object:
    """Another object as soon as there is something else to take out."""
    return walls.output_redactor()


def _identities(job: Job) -> tuple[object, ...]:
    """Which directories are shown; another one may stand in the same place later. Walls say what is missing."""
    return tuple(_identity(shown.host) for shown in job.shown)


def _identity(path: str) -> object:
    try:
        now = os.stat(path)
    except OSError:
        return None
    return now.st_dev, now.st_ino


def _at_start(job: Job) -> dict[str, str]:
    """Nothing of one call may be read in what was started ahead of it."""
    return {name: value for name, value in job.env.items() if name in _READ_AT_START}


def _waiting(job: Job, walls: Walls) -> Job:
    """Without a limit of time: the time of the run begins with its order."""
    limits = job.limits or walls.limits
    return replace(job, limits=limits if limits.timeout_s is None else replace(limits, timeout_s=None))


def comparable(job: Job, walls: Walls) -> Job:
    """What two jobs must have in common for one interpreter to serve either."""
    return replace(_waiting(job, walls), env=_at_start(job), stdin=None)


def _written(order: Order, job: Job) -> bytes:
    import marshal

    env = {os.fsencode(name): os.fsencode(value) for name, value in {**job.env, **order.env}.items()}
    content = marshal.dumps((order.script, list(order.argv), env, order.stdin or None, list(order.search)), _FORMAT)
    return len(content).to_bytes(8, "big") + content
