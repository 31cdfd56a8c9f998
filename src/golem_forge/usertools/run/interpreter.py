"""Python interpreters that wait inside walls for the tool they are to run, and the session's pool of them.

`python_job` turns the job of a Python tool into one that waits (`shown/start.py`); `WaitingInterpreter.start` starts
it; `run` gives it the script, once. Output, limits and ending are the WalledChild's. Refuses what walls refuse.
Threat: an interpreter started ahead must not be looser than one started now, so it is `usable` only for an equal job,
by the same walls, while these would be built the same again.

`InterpreterPool.take` gives one that waits for an equal job and whose walls still hold, or starts one; `prepare`
starts one in the background for the next call. At most four wait, none longer than a minute, none with a way out of
its walls (hosts, the host's network, a socket to other tools). What is taken belongs to its caller; `aclose` ends all
of them.
"""

from __future__ import annotations

import asyncio
import contextlib
import marshal
import os
import socket
from typing import Final

from golem_forge.core.lazy_dataclass import dataclass, replace
from golem_forge.sandbox.process.child import IDLE_SECONDS, IdleChildren, start_on_socket
from golem_forge.sandbox.process.monitor import TIMEOUT
from golem_forge.sandbox.walls.model import HostDirectory, Job, Level
from golem_forge.sandbox.walls.walls import WalledChild, Walls
from golem_forge.usertools.folder import ToolProgram

STARTER_DIR: Final = "/forge/inside"
_STARTER: Final = "start.py"
_MARSHAL_FORMAT: Final = 4
"""The marshal version that every Python of a tool can read."""
_READ_AT_START: Final = frozenset({"LC_ALL", "LC_CTYPE", "GLIBC_TUNABLES", "MALLOC_ARENA_MAX"})
"""Variables that the interpreter or its C library looks at once, before it could be told of them."""


def starter_folder() -> str:
    """The host directory that holds the starting program and nothing else."""
    return os.path.realpath(os.path.join(os.path.dirname(__file__), "shown"))


def python_job(job: Job, program: ToolProgram, level: Level) -> Job:
    """Returns the job with this Python as its command, waiting for its script. Without mounts the starting program is
    read at its host path.
    """
    folder = HostDirectory(starter_folder(), STARTER_DIR)
    starter = os.path.join(folder.inner if level is Level.FULL else folder.host, _STARTER)
    shown = dict.fromkeys((*job.shown, *program.shown, folder))
    return replace(job, argv=(*program.argv, starter), shown=tuple(shown))


class WaitingInterpreter:
    def __init__(
        self, walls: Walls, job: Job, walled: WalledChild, wire: socket.socket, hidden: object, sees: object
    ) -> None:
        """`hidden`: what is redacted from its output; `sees`: the directories it is shown; both as of its start."""
        self.walled = walled
        self._hidden = hidden
        self._walls = walls
        self._job = job
        self._wire: socket.socket | None = wire
        self._sees = sees

    @classmethod
    async def start(cls, walls: Walls, job: Job) -> WaitingInterpreter:
        """Waits inside from now on. Raises SandboxError; nothing was started then."""
        hidden, sees = walls.output_redactor(), _shown_identities(job)
        started = replace(_without_time_limit(job, walls), env=_start_environment(job))
        walled, wire = await start_on_socket(walls, started)
        wire.setblocking(False)
        return cls(walls, job, walled, wire, hidden, sees)

    def fits(self, walls: Walls, job: Job) -> bool:
        """Whether it was started for this, but for what `run` brings."""
        return _same_job(walls, job, self._walls, self._job)

    @property
    def alive(self) -> bool:
        """Whether it runs and has had no script yet."""
        return self._wire is not None and self.walled.child.ending is None

    @property
    def usable(self) -> bool:
        """Whether a new start would give the same."""
        if not self.alive:
            return False
        try:
            # Another redactor: a secret was learned since, and its output would show it.
            if self._hidden is not self._walls.output_redactor():
                return False
            if self._sees != _shown_identities(self._job):  # e.g. a spoilt snapshot was made anew
                return False
            return self._zones_stand() and self._walls.still_valid(self.walled, self._job)
        except Exception:  # rules that cannot be read, a zone that is gone: a start says so in its own words
            return False

    def serve(self, job: Job) -> None:
        """The call's own job, equal to the one it was started for but for what comes with the script."""
        self._job = job

    async def run(
        self, script: str, argv: tuple[str, ...] = (), stdin: bytes | None = None, search: tuple[str, ...] = ()
    ) -> WalledChild:
        """Runs a script (its path inside the walls), as `python SCRIPT …` would: from then on it is the tool, and its
        time counts. `search`: further places to import from, after all others. An interpreter that has ended gets
        nothing: its exit status tells why. Where sending fails, nothing of it is left.
        """
        wire, self._wire = self._wire, None
        if wire is None:
            raise RuntimeError("an interpreter runs one tool, once")
        env = {os.fsencode(name): os.fsencode(value) for name, value in self._job.env.items()}
        order = marshal.dumps((script, list(argv), env, stdin or None, list(search)), _MARSHAL_FORMAT)
        try:
            self._watch_time()
            with contextlib.suppress(BrokenPipeError, ConnectionResetError):
                await asyncio.get_running_loop().sock_sendall(wire, len(order).to_bytes(8, "big") + order)
        except BaseException:
            await self.end()
            raise
        finally:
            wire.close()
        return self.walled

    async def end(self) -> None:
        """Ends the whole process tree."""
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


def _shown_identities(job: Job) -> tuple[object, ...]:
    """Returns device and inode of the shown directories, since another one may later have the same path. Walls report
    what is missing.
    """
    found: list[object] = []
    for shown in job.shown:
        try:
            now = os.stat(shown.host)
            found.append((now.st_dev, now.st_ino))
        except OSError:
            found.append(None)
    return tuple(found)


def _start_environment(job: Job) -> dict[str, str]:
    """Returns the variables for an early start, without anything of a single call."""
    return {name: value for name, value in job.env.items() if name in _READ_AT_START}


def _without_time_limit(job: Job, walls: Walls) -> Job:
    """Returns the job without a time limit, because the run's time begins with its order."""
    limits = job.limits or walls.limits
    return replace(job, limits=limits if limits.timeout_s is None else replace(limits, timeout_s=None))


def comparable_job(job: Job, walls: Walls) -> Job:
    """Returns what two jobs must have in common for one interpreter to serve both."""
    return replace(_without_time_limit(job, walls), env=_start_environment(job), stdin=None)


def _same_job(walls: Walls, job: Job, other_walls: Walls, other: Job) -> bool:
    return walls is other_walls and comparable_job(job, walls) == comparable_job(other, walls)


MOST_IDLE: Final = 4
CALL_DIRECTORY: Final = "/forge/call"
"""Path of the socket to other tools in full walls."""


@dataclass(slots=True, eq=False)
class _Starting:
    walls: Walls
    job: Job
    task: asyncio.Task[WaitingInterpreter | None]


class InterpreterPool:
    def __init__(self, *, idle_s: float = IDLE_SECONDS) -> None:
        self._idle: IdleChildren[WaitingInterpreter] = IdleChildren(idle_s)
        self._starting: list[_Starting] = []
        self._taken: set[WaitingInterpreter] = set()
        self._closed = False

    @property
    def waiting(self) -> int:
        """Number of interpreters that wait or are starting."""
        return len(self._idle) + len(self._starting)

    async def take(self, walls: Walls, job: Job) -> WaitingInterpreter:
        """Raises SandboxError; nothing was started then."""
        found = await self._ready(walls, job) or await WaitingInterpreter.start(walls, job)
        if self._closed:
            await found.end()
            raise RuntimeError("the session of this tool has ended")
        found.serve(job)
        self._taken.add(found)
        found.walled.child.ended.add_done_callback(lambda _: self._taken.discard(found))
        return found

    def prepare(self, walls: Walls, job: Job) -> None:
        """Never raises: whatever stands in the way is said by the call that needs it."""
        if self._closed or not _may_wait(job) or self._is_there(walls, job):
            return
        entry = _Starting(walls, job, asyncio.get_running_loop().create_task(_try_start(walls, job)))
        self._starting.append(entry)
        entry.task.add_done_callback(lambda _: self._arrived(entry))
        for oldest in self._idle:
            if self.waiting > MOST_IDLE:
                self._idle.discard(oldest)

    async def aclose(self) -> None:
        """Ends all interpreters, also busy ones."""
        self._closed = True
        starting, self._starting = self._starting, []
        for entry in starting:
            entry.task.cancel()
        await asyncio.gather(*(entry.task for entry in starting), return_exceptions=True)
        for entry in starting:
            self._end_result(entry.task)
        await asyncio.gather(*(one.end() for one in self._taken), self._idle.aclose(), return_exceptions=True)

    async def _ready(self, walls: Walls, job: Job) -> WaitingInterpreter | None:
        for one in [each for each in self._idle if each.fits(walls, job)]:
            if one.usable:
                return self._idle.take(one)
            self._idle.discard(one)
        for entry in [each for each in self._starting if _same_job(walls, job, each.walls, each.job)]:
            self._starting.remove(entry)  # ours now: nobody else waits for it
            try:
                arrived = await asyncio.shield(entry.task)
            except BaseException:
                entry.task.add_done_callback(self._end_result)
                raise
            if arrived is not None and arrived.usable:
                return arrived
            self._end_result(entry.task)
        return None

    def _is_there(self, walls: Walls, job: Job) -> bool:
        return any(one.alive and one.fits(walls, job) for one in self._idle) or (
            len(self._starting) >= MOST_IDLE
            or any(_same_job(walls, job, each.walls, each.job) for each in self._starting)
        )

    def _arrived(self, entry: _Starting) -> None:
        if entry not in self._starting:
            return  # somebody took it on its way
        self._starting.remove(entry)
        one = None if entry.task.cancelled() else entry.task.result()
        if one is not None:
            self._idle.add(one)
            one.walled.child.ended.add_done_callback(lambda _: self._idle.discard(one))

    def _end_result(self, task: asyncio.Task[WaitingInterpreter | None]) -> None:
        one = None if task.cancelled() or not task.done() else task.result()
        if one is not None:
            self._idle.end(one)


async def _try_start(walls: Walls, job: Job) -> WaitingInterpreter | None:
    try:
        return await WaitingInterpreter.start(walls, job)
    except Exception:
        return None


def _may_wait(job: Job) -> bool:
    """Whether one that waits for nobody yet is harmless."""
    calls = any(directory.inner == CALL_DIRECTORY for directory in job.shown)
    return not (job.hosts or job.shares_network or calls)
