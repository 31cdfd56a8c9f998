"""Commands that run: each watched until it ends, numbered once it outlives its call, ended with the Forge session.

`ExecSessions` is kept in the session's parts. A number belongs to whoever's call started it (a worker, and of a served
session one client); for everybody else it does not exist. At most 64 run at once, the last 64 that ended can still be
read.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from golem_forge.core.errors import ToolFailed
from golem_forge.toolsets.exec.pending import PendingInput
from golem_forge.toolsets.exec.text import ENDED, TIMED_OUT

if TYPE_CHECKING:
    from golem_forge.sandbox.processes.child import Child
    from golem_forge.sandbox.processes.ending import Ending
    from golem_forge.sandbox.walls.walled_child import WalledChild

MOST_RUNNING: Final = 64
MOST_ENDED: Final = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class Started:
    """What is known of a command before it runs."""

    owner: str
    """As `ToolContext.owner`."""
    tty: bool
    timeout_s: float
    no_walls: bool = False
    """The person switched walls off: typing into it is then as grave as starting it was."""
    hosts: bool = False
    """It was given hosts to connect to."""


class Running:
    """One started command, from its start until nobody can ask for it any more."""

    def __init__(self, walled: WalledChild, kind: Started) -> None:
        self.walled = walled
        self.owner = kind.owner
        self.tty = kind.tty
        self.timeout_s = kind.timeout_s
        self.no_walls = kind.no_walls
        self.offline = not kind.hosts and not kind.no_walls
        self.number = 0
        """0 while its first call still waits for it."""
        self.delivered = 0
        """How much of its output was handed out, in bytes."""
        self.input = PendingInput()
        self.awaited = 0
        """How many calls wait for it now, and will report its end."""
        self._started = time.monotonic()
        self._watch = asyncio.ensure_future(self._until_it_ends())

    @property
    def child(self) -> Child:
        return self.walled.child

    @property
    def ending(self) -> Ending | None:
        return self._watch.result() if self._watch.done() and not self._watch.cancelled() else None

    @property
    def seconds(self) -> float:
        ending = self.ending
        return time.monotonic() - self._started if ending is None else ending.seconds

    async def settle(self, seconds: float) -> None:
        """Returns when it ended, or after this time."""
        self.awaited += 1
        try:
            await asyncio.wait((self._watch,), timeout=seconds)
        finally:
            self.awaited -= 1

    async def end(self) -> None:
        """Ends the whole tree; goes on doing so even if the caller itself is cancelled meanwhile."""
        await asyncio.shield(asyncio.ensure_future(self.child.end(ENDED)))
        await asyncio.shield(self._watch)

    def when_ended(self, told: Callable[[Running], None]) -> None:
        self._watch.add_done_callback(lambda _: told(self))

    async def _until_it_ends(self) -> Ending:
        ending = await self.child.wait(self.timeout_s)
        return await self.child.end(TIMED_OUT) if ending is None else ending


class ExecSessions:
    def __init__(self) -> None:
        self._last = 0
        self._starting = 0
        self._running: set[Running] = set()
        self._ended: OrderedDict[int, Running] = OrderedDict()

    def check_room(self) -> None:
        if len(self._running) + self._starting >= MOST_RUNNING:
            raise ToolFailed(f"too many running sessions ({MOST_RUNNING}); end one first", code="TOO_MANY_SESSIONS")

    async def start(self, start: Callable[[], Awaitable[WalledChild]], kind: Started) -> Running:
        """Starts a command and watches it. What is about to start counts already: many may be asked for at once."""
        self.check_room()
        self._starting += 1
        try:
            walled = await start()
        finally:
            self._starting -= 1
        running = Running(walled, kind)
        self._running.add(running)
        running.when_ended(self._retire)
        return running

    def number(self, running: Running) -> int:
        """Makes it a session: from now on it is found by this number."""
        if not running.number:
            self._last += 1
            running.number = self._last
            if running.ending is not None:
                self._remember(running)
        return running.number

    def find(self, number: int, owner: str) -> Running | None:
        found = self._ended.get(number) or next((each for each in self._running if each.number == number), None)
        return found if found is not None and number > 0 and found.owner == owner else None

    async def end_all_of(self, owner: str) -> None:
        """Its owner has left: nobody else could ever read or end what is still running."""
        left = [each for each in self._running if each.owner == owner]
        await asyncio.gather(*(each.end() for each in left), return_exceptions=True)
        left += [each for each in self._ended.values() if each.owner == owner]
        _tell_unread(left)
        for number in [number for number, each in self._ended.items() if each.owner == owner]:
            del self._ended[number]

    async def aclose(self) -> None:
        """The Forge session ends: nothing outlives it."""
        running, self._running = list(self._running), set()
        with contextlib.suppress(Exception):
            await asyncio.gather(*(each.end() for each in running), return_exceptions=True)
        _tell_unread([*running, *self._ended.values()])
        self._ended.clear()

    def _retire(self, running: Running) -> None:
        self._running.discard(running)
        if running.number:
            if not running.awaited:  # perhaps nobody ever reads it again
                _tell_unread([running])
            self._remember(running)

    def _remember(self, running: Running) -> None:
        self._ended[running.number] = running
        while len(self._ended) > MOST_ENDED:
            _tell_unread([self._ended.popitem(last=False)[1]])


def _tell_unread(forgotten: list[Running]) -> None:
    """What they left behind is not forgotten with them."""
    for running in forgotten:
        if running.ending is not None:
            with contextlib.suppress(Exception):
                running.walled.tell_unread()
