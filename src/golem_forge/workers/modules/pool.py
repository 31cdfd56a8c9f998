"""HostPool: the hosts of one module version in one session, at most four, started when they are needed.

`use` gives a host to one call and takes it back. Parallel calls get further hosts; more than four wait their turn.
Refuses (ToolFailed) a call that could only wait for itself: every host busy with a call that waits for another tool.
Whatever ends a call from outside (cancel, timeout) ends its host with it, and nobody else's.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

from golem_forge.core.errors import ForgeError, ToolFailed
from golem_forge.sandbox.walls.walls import Walls
from golem_forge.workers.modules.describing import Described
from golem_forge.workers.modules.host import Loading, ModuleHost

MOST_HOSTS: Final = 4
IDLE_S: Final = 60.0
"""So long a host waits for another call: its walls keep placeholders in the zones, and it holds memory."""


class HostPool:
    def __init__(self, walls: Walls, loading: Loading, *, idle_s: float = IDLE_S) -> None:
        self._walls = walls
        self._loading = loading
        self._idle_s = idle_s
        self._idle: list[ModuleHost] = []
        self._ending: set[asyncio.Task[object]] = set()
        self._busy: set[ModuleHost] = set()
        self._taken = 0
        """Places of the four in use, a host that is just being started included."""
        self._turns: deque[asyncio.Future[None]] = deque()
        self._retired = False

    @property
    def hosts(self) -> tuple[ModuleHost, ...]:
        return (*self._busy, *self._idle)

    async def load(self) -> tuple[Described, ...]:
        """What the module exports. The host that said so serves the first call."""
        async with self.use() as host:
            return host.tools

    @asynccontextmanager
    async def use(self) -> AsyncIterator[ModuleHost]:
        await self._place()
        host: ModuleHost | None = None
        try:
            host = await self._host()
            self._must_be_in_force()
            self._busy.add(host)
            host.served += 1
            try:
                yield host
            except ForgeError:
                raise  # the tool's own failure, or a host that is gone already
            except BaseException:
                await asyncio.shield(host.end())
                raise
        finally:
            if host is not None:
                self._busy.discard(host)
                if self._retired:
                    await host.end()
                elif host.alive:
                    self._rest(host)
            self._free()

    def _rest(self, host: ModuleHost) -> None:
        self._idle.append(host)
        served = host.served
        asyncio.get_running_loop().call_later(self._idle_s, self._let_go, host, served)

    def _let_go(self, host: ModuleHost, served: int) -> None:
        """Unless it served somebody meanwhile."""
        if host in self._idle and host.served == served:
            self._idle.remove(host)
            task: asyncio.Task[object] = asyncio.get_running_loop().create_task(host.end())
            self._ending.add(task)
            task.add_done_callback(self._ending.discard)

    def withdraw(self) -> None:
        """From now on calls are refused, those that are approved already included: it was for this code."""
        self._retired = True

    async def retire(self) -> None:
        """Idle hosts end now, busy ones after their call."""
        self.withdraw()
        idle, self._idle = self._idle, []
        await asyncio.gather(*(host.end() for host in idle))

    async def aclose(self) -> None:
        """Ends every host, whatever it does."""
        await self.retire()
        await asyncio.gather(*(host.end() for host in tuple(self._busy)), *self._ending)

    async def _host(self) -> ModuleHost:
        while self._idle:
            host = self._idle.pop()
            try:
                if host.usable:
                    return host
            except BaseException:  # rules that cannot be read, a zone that is gone
                await host.end()
                raise
            await host.end()
        return await ModuleHost.start(self._walls, self._loading)

    async def _place(self) -> None:
        self._must_be_in_force()
        while self._taken >= MOST_HOSTS:
            if len(self._busy) >= MOST_HOSTS and all(host.waiting for host in self._busy):
                raise ToolFailed(
                    f"all {MOST_HOSTS} hosts of this module wait for tools they called; this call could never start"
                )
            turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._turns.append(turn)
            try:
                await turn
            except BaseException:
                if turn.done() and not turn.cancelled():
                    self._wake()  # the turn was given just now; somebody else takes it
                raise
        self._taken += 1

    def _must_be_in_force(self) -> None:
        if self._retired:
            raise ToolFailed("the code of this tool was changed or withdrawn; look which tools there are now")

    def _free(self) -> None:
        self._taken -= 1
        self._wake()

    def _wake(self) -> None:
        while self._turns:
            turn = self._turns.popleft()
            if not turn.done():
                turn.set_result(None)
                return
