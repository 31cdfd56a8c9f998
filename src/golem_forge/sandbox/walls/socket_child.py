"""Children inside walls that Forge talks to over a socket pair, and a pool of those that are idle.

`start_on_socket` starts a process whose standard input is one end of the pair; the other end is the caller's. What is
said over it is the caller's protocol. `listen_in` is the other way round: children come to a socket in a directory that
they are shown. `IdleChildren` keeps children for their next use and ends each that nobody takes within its time: its
walls keep placeholders in the zones, and it holds memory.
"""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Coroutine, Iterator
from typing import Any, Final, Generic, Protocol, TypeVar

from golem_forge.core.lazy_dataclass import replace
from golem_forge.sandbox.walls.model import Job
from golem_forge.sandbox.walls.walls import WalledChild, Walls

IDLE_SECONDS: Final = 60.0


async def start_on_socket(walls: Walls, job: Job) -> tuple[WalledChild, socket.socket]:
    """Raises SandboxError; nothing was started then."""
    ours, theirs = socket.socketpair()
    try:
        walled = await walls.start(replace(job, stdin=theirs.fileno()))
    except BaseException:
        ours.close()
        raise
    finally:
        theirs.close()
    return walled, ours


def listen_in(directory: str, name: str, backlog: int) -> socket.socket:
    """A socket file for children that are shown the directory. Bound through the directory's handle: the path itself
    may be longer than a socket's address can be."""
    handle = os.open(directory, os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    made = socket.socket(socket.AF_UNIX)
    try:
        made.setblocking(False)
        made.bind(f"/proc/self/fd/{handle}/{name}")
        made.listen(backlog)
    except BaseException:
        made.close()
        raise
    finally:
        os.close(handle)
    return made


class _Endable(Protocol):
    def end(self) -> Coroutine[Any, Any, object]:
        """Ends the whole process tree and waits for its end."""
        ...


ChildType = TypeVar("ChildType", bound=_Endable)


class IdleChildren(Generic[ChildType]):
    def __init__(self, idle_seconds: float) -> None:
        self.idle_seconds = idle_seconds
        self._timers: dict[ChildType, asyncio.TimerHandle] = {}
        """Longest idle first."""
        self._ending: set[asyncio.Task[object]] = set()

    def __len__(self) -> int:
        return len(self._timers)

    def __iter__(self) -> Iterator[ChildType]:
        return iter(tuple(self._timers))

    def add(self, child: ChildType) -> None:
        self._timers[child] = asyncio.get_running_loop().call_later(self.idle_seconds, self.discard, child)

    def take(self, child: ChildType) -> ChildType:
        self._timers.pop(child).cancel()
        return child

    def discard(self, child: ChildType) -> None:
        """Ends the child, unless somebody took it."""
        if child in self._timers:
            self.end(self.take(child))

    def end(self, child: ChildType) -> None:
        """Ends the child in the background."""
        task: asyncio.Task[object] = asyncio.get_running_loop().create_task(child.end())
        self._ending.add(task)
        task.add_done_callback(self._ending.discard)

    async def aclose(self) -> None:
        for child in self:
            self.discard(child)
        await asyncio.gather(*self._ending, return_exceptions=True)  # one that fails keeps no other alive
