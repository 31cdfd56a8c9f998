"""ExitWatch: one process that Forge waits for, ours or not, by a handle that no later process of that number shares.

Takes a pid; calls back once when that process is over, and delivers signals to it and to nobody else. A kernel without
process handles (before 5.3) is asked every 10 ms instead.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import select
import signal
from collections.abc import Callable
from typing import Final

from golem_forge.sandbox.processes.tree import stat

_ASK_AGAIN_S: Final = 0.01


class ExitWatch:
    def __init__(self, pid: int) -> None:
        """Raises OSError if there is no such process, or no descriptor left."""
        self.pid = pid
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None
        self._handle: int | None = None
        self._started = 0
        try:
            self._handle = os.pidfd_open(pid)
        except OSError as error:
            if error.errno != errno.ENOSYS:
                raise
            found = stat(pid)
            self._started = found.started if found else 0

    @property
    def handle(self) -> int | None:
        """A pidfd, ours to close. None: the kernel has no such thing, or it is closed already."""
        return self._handle

    def call(self, over: Callable[[], None]) -> None:
        """Once, at once if it is over already."""
        if self.over:
            over()
        elif self._handle is not None:
            self._loop.add_reader(self._handle, self._told, over)
        else:
            self._timer = self._loop.call_later(_ASK_AGAIN_S, self.call, over)

    @property
    def over(self) -> bool:
        if self._handle is None:
            found = stat(self.pid)
            return found is None or not found.alive or found.started != self._started
        poll = select.poll()
        poll.register(self._handle, select.POLLIN)
        return bool(poll.poll(0))

    def signal(self, number: int) -> None:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            if self._handle is not None:
                signal.pidfd_send_signal(self._handle, number)
            elif not self.over:
                os.kill(self.pid, number)

    def status(self) -> int | None:
        """What `waitpid` says once it is over; None if it is not ours to wait for."""
        with contextlib.suppress(ChildProcessError):
            waited, status = os.waitpid(self.pid, os.WNOHANG)
            return status if waited else None
        return None

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        if self._handle is not None:
            self._loop.remove_reader(self._handle)
            os.close(self._handle)
            self._handle = None

    def _told(self, over: Callable[[], None]) -> None:
        assert self._handle is not None
        self._loop.remove_reader(self._handle)
        over()
