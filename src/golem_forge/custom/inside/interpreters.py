"""Interpreters: a session's Pythons that were started ahead, each in walls of its own, each used once.

`take` gives one that waits for an equal job and whose walls still hold, or starts one now; `prepare` starts one in the
background for the next call. Never more than four wait, none longer than a minute, none with a way out of its walls
(hosts, the host's network, a socket to other tools). What is taken belongs to its caller; `aclose` ends whatever is
left, taken or not.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Final

from golem_forge.custom.inside.interpreter import Interpreter, comparable
from golem_forge.sandbox.walls.job import Job
from golem_forge.sandbox.walls.walls import Walls

MOST_IDLE: Final = 4
IDLE_S: Final = 60.0
"""So long one waits: its walls keep placeholders in the zones, and it holds memory."""
CALL_DIRECTORY: Final = "/forge/call"
"""Where the socket to other tools stands in full walls."""


@dataclass(slots=True, eq=False)
class _Starting:
    walls: Walls
    job: Job
    task: asyncio.Task[Interpreter | None]


class Interpreters:
    def __init__(self, *, idle_s: float = IDLE_S) -> None:
        self._idle_s = idle_s
        self._idle: list[Interpreter] = []
        """Oldest first."""
        self._starting: list[_Starting] = []
        self._taken: set[Interpreter] = set()
        self._ending: set[asyncio.Task[None]] = set()
        self._closed = False

    @property
    def waiting(self) -> int:
        """How many wait, or will as soon as they are up."""
        return len(self._idle) + len(self._starting)

    async def take(self, walls: Walls, job: Job) -> Interpreter:
        """Raises SandboxError; nothing was started then."""
        found = await self._ready(walls, job) or await Interpreter.start(walls, job)
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
        entry = _Starting(walls, job, asyncio.get_running_loop().create_task(_started(walls, job)))
        self._starting.append(entry)
        entry.task.add_done_callback(lambda _: self._arrived(entry))
        while self.waiting > MOST_IDLE and self._idle:
            self._end(self._idle.pop(0))

    async def aclose(self) -> None:
        """Ends every one of them, whatever it does."""
        self._closed = True
        starting, self._starting = self._starting, []
        for entry in starting:
            entry.task.cancel()
        await asyncio.gather(*(entry.task for entry in starting), return_exceptions=True)
        for entry in starting:
            self._end_result(entry.task)
        idle, self._idle = self._idle, []
        await asyncio.gather(*(one.end() for one in (*idle, *self._taken)), *self._ending, return_exceptions=True)

    async def _ready(self, walls: Walls, job: Job) -> Interpreter | None:
        for one in [each for each in self._idle if each.fits(walls, job)]:
            self._idle.remove(one)
            if one.usable:
                return one
            self._end(one)
        for entry in [each for each in self._starting if _same(each, walls, job)]:
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
            len(self._starting) >= MOST_IDLE or any(_same(entry, walls, job) for entry in self._starting)
        )

    def _arrived(self, entry: _Starting) -> None:
        if entry not in self._starting:
            return  # somebody took it on its way
        self._starting.remove(entry)
        one = None if entry.task.cancelled() else entry.task.result()
        if one is not None:
            self._idle.append(one)
            asyncio.get_running_loop().call_later(self._idle_s, self._let_go, one)
            one.walled.child.ended.add_done_callback(lambda _: self._let_go(one))

    def _let_go(self, one: Interpreter) -> None:
        """Unless somebody took it."""
        if one in self._idle:
            self._idle.remove(one)
            self._end(one)

    def _end(self, one: Interpreter) -> None:
        task = asyncio.get_running_loop().create_task(one.end())
        self._ending.add(task)
        task.add_done_callback(self._ending.discard)

    def _end_result(self, task: asyncio.Task[Interpreter | None]) -> None:
        one = None if task.cancelled() or not task.done() else task.result()
        if one is not None:
            self._end(one)


async def _started(walls: Walls, job: Job) -> Interpreter | None:
    try:
        return await Interpreter.start(walls, job)
    except Exception:
        return None


def _same(entry: _Starting, walls: Walls, job: Job) -> bool:
    return entry.walls is walls and comparable(entry.job, walls) == comparable(job, walls)


def _may_wait(job: Job) -> bool:
    """Whether one that waits for nobody yet is harmless."""
    calls = any(directory.inner == CALL_DIRECTORY for directory in job.shown)
    return not (job.hosts or getattr(job, "shares_network", False) or calls)
