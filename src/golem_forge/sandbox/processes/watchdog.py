"""Watchdog: one process outside all walls that ends every tree Forge holds when Forge is gone, however it went.

Takes handles (pidfds) of the trees' roots. Started with the first one, for all threads and loops of this process, and
let go a while after the last one is over. Threat: a child that took over the first process of its namespace, whose
death signal is what ties the tree to Forge. Where it cannot be started (no handles in the kernel, no descriptor left),
that signal is all there is, and nothing else changes.
"""

from __future__ import annotations

import array
import asyncio
import contextlib
import os
import socket
import threading
import time
from typing import Final

from golem_forge.sandbox.host import isolated
from golem_forge.sandbox.processes.exits import ExitWatch
from golem_forge.sandbox.processes.spawn import spawn
from golem_forge.sandbox.processes.watchdog_child import FORGE, SOCKET

LINGERS_S: Final = 2.0
"""After the last tree: commands mostly come one after another, and a start takes 13 ms of another processor."""
_PROGRAM: Final = os.path.join(os.path.dirname(os.path.abspath(__file__)), "watchdog_child.py")
_LONGEST_NUMBER: Final = 20
_ALONE: Final = 'cd /; unset PWD OLDPWD; "$@" &'
"""Nobody's child: it is not to be mistaken for something that a call left running."""


class Watchdog:
    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._wire: socket.socket | None = None
        self._held: set[int] = set()
        self._idle_since = 0.0
        self._before = 0
        """The process that was let go last."""
        os.register_at_fork(after_in_child=self._forget)

    def hold(self, handle: int) -> None:
        """Never fails and never waits. Give it back by `release` before it is closed."""
        with self._lock:
            self._held.add(handle)
            if self._wire is not None and _told(self._wire, handle):
                return
            self._let_go()  # the one there was is dead
            with contextlib.suppress(OSError):
                self._wire = _started()
                for each in self._held:
                    _told(self._wire, each)

    def release(self, handle: int) -> None:
        """That tree is gone, which the watchdog sees by itself."""
        with self._lock:
            self._held.discard(handle)
            if not self._held and self._wire is not None:
                self._idle_since = time.monotonic()
                asyncio.get_running_loop().call_later(LINGERS_S, self._leave)

    def _leave(self) -> None:
        with self._lock:
            if not self._held and time.monotonic() - self._idle_since >= LINGERS_S:
                self._let_go()

    def _let_go(self) -> None:
        if self._before:
            with contextlib.suppress(ChildProcessError):  # it is ours only where Forge is a container's first process
                os.waitpid(self._before, os.WNOHANG)
        if self._wire is not None:
            with contextlib.suppress(OSError, ValueError):
                self._before = int(self._wire.recv(_LONGEST_NUMBER))
            self._wire.close()
            self._wire = None

    def _forget(self) -> None:
        """A fork has nothing of this; who holds the lock in another thread is not there to give it back."""
        self._lock = threading.Lock()
        self._held = set()
        if self._wire is not None:
            self._wire.close()
            self._wire = None


watchdog: Final = Watchdog()


def _started() -> socket.socket:
    """Raises OSError. Ends by itself when the socket given back is closed, or this process ends."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    given: list[int] = []
    try:
        ours.setblocking(False)
        given.append(os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC))
        given.append(os.pidfd_open(os.getpid()))
        nothing, forge = given
        argv = ("/bin/sh", "-c", _ALONE, "sh", *isolated(_PROGRAM))
        pid = spawn(argv, {}, {0: nothing, 1: nothing, 2: nothing, SOCKET: theirs.fileno(), FORGE: forge})
    except BaseException:
        ours.close()
        raise
    finally:
        theirs.close()
        for descriptor in given:
            os.close(descriptor)
    _collect(pid)
    return ours


def _collect(pid: int) -> None:
    """The shell that left it alone, which is over at once."""
    try:
        shell = ExitWatch(pid)
    except OSError:
        os.waitpid(pid, 0)
        return

    def over() -> None:
        shell.status()
        shell.close()

    shell.call(over)


def _told(wire: socket.socket, handle: int) -> bool:
    """Whether there is somebody to tell."""
    try:
        wire.sendmsg([b"+"], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [handle]))], socket.MSG_NOSIGNAL)
    except (BrokenPipeError, ConnectionError):
        return False
    except OSError:  # it is there, and has more to read than it can take
        return True
    return True
