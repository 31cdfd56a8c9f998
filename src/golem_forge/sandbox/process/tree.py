"""ProcessTree: keeps one tree of processes together and ends everybody in it; Watchdog does so when Forge is gone.

Takes the started (outer) process and its kind of root. NAMESPACE: the kernel ends all when the namespace's first
process dies. LAUNCHER: a subreaper ends all when CONTROL closes. Threats: members that change session or group,
ignore TERM, fork while they are being killed, stop or kill the process that should end them; so a second line kills
every process group below, again and again, until nobody is left (a group dies at one stroke, also in the middle of
a fork).

The watchdog is one process outside all walls (`watchdog_child.py`), started with the first tree and stopped a while
after the last one; it gets pidfds of the trees' roots. Threat: a child that takes over the first process of its
namespace, whose death signal ties the tree to Forge. Where the watchdog cannot start, that signal is all there is.
"""

from __future__ import annotations

import array
import asyncio
import contextlib
import json
import os
import signal
import socket
import threading
import time
from collections.abc import Callable
from typing import Final

from golem_forge.sandbox.handles import Handle
from golem_forge.sandbox.host import isolated
from golem_forge.sandbox.process import monitor
from golem_forge.sandbox.process.launch import TreeRoot, spawn
from golem_forge.sandbox.process.watchdog_child import END_ALL, FORGE, PIPE_NUMBER_BYTES, SOCKET

_SWEEP_EVERY_S: Final = 0.02
_SWEEPS_ALONE: Final = 10
"""Sweeps that the outer process may take to end by itself once no process is below it."""
_STOPS_WITHIN: Final = 100
"""Looks at an outer process that was told to stop, and is in the middle of making namespaces."""
_LOOK_EVERY_S: Final = 0.002
_ROUNDS: Final = 20
_SEEN_AT_ONCE: Final = 1000
_LONGEST_INFO: Final = 4096


class ProcessTree:
    def __init__(
        self,
        outer: int,
        kind: TreeRoot,
        *,
        info: int | None,
        control: int | None,
        gone: Callable[[], None],
        marker: str = "",
    ) -> None:
        """`info` and `control` become ours to close, unless this raises OSError. `gone` is called once, when nobody
        of the tree is left. `marker`: what everybody of a launcher's tree carries in the environment."""
        self._outer = monitor.ExitWatch(outer)
        self.status: int | None = None
        """Of the outer process, as `waitpid` gives it."""
        self._kind = kind
        self._info = info
        self._control = control
        self._gone = gone
        self._marker = marker
        self._loop = asyncio.get_running_loop()
        self._root: monitor.ExitWatch | None = self._outer if kind is TreeRoot.LAUNCHER else None
        self.sessions = {outer}
        """Of everybody seen: who a dying launcher leaves behind is found again by them."""
        self._unnamed: dict[int, monitor.ExitWatch] = {}
        """What an outer process had started that was ended before it said what."""
        self._sweeping: asyncio.TimerHandle | None = None
        self._sweeps = 0

    def watch(self) -> None:
        """Starts to watch the outer process; `gone` may be called from now on, even before this returns."""
        if self._kind is TreeRoot.LAUNCHER and self._outer.handle is not None:
            watchdog.hold_launcher(self._outer.handle)
        self._outer.call(self._outer_over)

    @property
    def root(self) -> int | None:
        """The process that everybody else of the tree is below; None: not known (yet)."""
        return self._root.pid if self._root else None

    def find_root(self) -> bool:
        """Whether the root is known now. bwrap names it on INFO, in several writes, all before its inner stage."""
        if self._kind is TreeRoot.LAUNCHER:
            self.sessions |= {
                facts.session for facts in map(monitor.process_stat, monitor.children(self._outer.pid)) if facts
            }
        if self._root is not None or self._info is None:
            return self._root is not None
        try:
            first = monitor.ExitWatch(int(json.loads(os.pread(self._info, _LONGEST_INFO, 0))["child-pid"]))
        except (ValueError, KeyError, TypeError, OSError):  # not said yet, or over already
            return False
        facts = monitor.process_stat(first.pid)
        # Its parent is the outer process, or was: nobody else of that number is meant.
        if facts is None or (
            facts.parent != self._outer.pid and not (self._outer.over and monitor.is_first_of_a_namespace(first.pid))
        ):
            first.close()
            return False
        self._root = first
        if first.handle is not None:
            watchdog.hold(first.handle)
        return True

    def signal(self, number: int, group: int | None = None) -> None:
        """Sends a signal to a process group, by default the command's. Never to the group of the outer process: its end
        would kill the whole tree without a grace period.
        """
        if self.root is None:
            return
        command = next(iter(monitor.children(self.root)), None)
        with contextlib.suppress(ProcessLookupError, PermissionError):
            if group is None and command is not None:
                group = os.getpgid(command)
            if group is None or group in (0, os.getpgrp()):
                return
            if group != self._outer.pid:
                os.killpg(group, number)
                return
        for pid in monitor.descendants(self.root):
            with contextlib.suppress(ProcessLookupError, PermissionError):
                if os.getpgid(pid) == group:
                    os.kill(pid, number)

    def kill(self) -> None:
        """Kills all processes of the tree. May be called again."""
        if self._sweeping is None:
            self.find_root()
            self._sweep()
            self._close_control()

    def _sweep(self) -> None:
        """Goes on until nobody is left, whoever still waits for it."""
        unfinished = self._kind is TreeRoot.NAMESPACE and self._root is None
        self._sweeping = self._loop.call_later(_LOOK_EVERY_S if unfinished else _SWEEP_EVERY_S, self._sweep)
        self._sweeps += 1
        if self._kind is TreeRoot.LAUNCHER:
            self._sweep_launcher()
        elif self._root is None:
            self._sweep_unfinished()
        else:
            # The kernel ends everybody once that process gets to run, for which a fork bomb leaves it little time.
            self._root.signal(signal.SIGKILL)
            self._kill_groups(monitor.descendants(self._root.pid, _SEEN_AT_ONCE))
            if self._sweeps > _SWEEPS_ALONE and self._root.over:
                self._outer.signal(signal.SIGKILL)

    def _sweep_launcher(self) -> None:
        """The launcher itself stays as long as it has a child: without it nobody would find the others again."""
        self._outer.signal(signal.SIGCONT)
        for _ in range(_ROUNDS):
            if not self._kill_groups(monitor.descendants(self._outer.pid, _SEEN_AT_ONCE)):
                break
        if self._sweeps > _SWEEPS_ALONE and not monitor.children(self._outer.pid):
            self._outer.signal(signal.SIGKILL)

    def _sweep_unfinished(self) -> None:
        """bwrap before it named the namespace's first process: stopped, so that it makes none while it is killed."""
        if self._outer.over or self.find_root():
            return
        self._outer.signal(signal.SIGSTOP)
        if self._sweeps < _STOPS_WITHIN and not _is_stopped(self._outer.pid):
            return
        for pid in monitor.children(self._outer.pid):
            with contextlib.suppress(OSError):  # gone, or no descriptor is left for one
                self._unnamed[pid] = self._unnamed.get(pid) or monitor.ExitWatch(pid)
            _send_signal(pid, signal.SIGKILL)
        self._outer.signal(signal.SIGKILL)

    def _kill_groups(self, pids: list[int]) -> bool:
        """Kills these processes and their groups. Returns whether any was alive."""
        alive = [(pid, facts) for pid in pids if (facts := monitor.process_stat(pid)) and facts.alive]
        spared = (0, self._outer.pid, os.getpgrp())
        self.sessions |= {facts.session for _, facts in alive}
        for group in {facts.group for _, facts in alive}.difference(spared):
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(group, signal.SIGKILL)
        for pid, facts in alive:
            if facts.group in spared:
                _send_signal(pid, signal.SIGKILL)
        return bool(alive)

    def _outer_over(self) -> None:
        self.status = self._outer.status()
        if self._kind is TreeRoot.LAUNCHER and (self.status is None or os.WIFSIGNALED(self.status)):
            self._sweep_orphans()
        self.find_root()
        if self._root is None or self._root is self._outer:
            self._unnamed_over()
            return
        # What the command left behind. bwrap's own arrangement does the same, but not at once.
        self._root.signal(signal.SIGKILL)
        self._root.call(self._over)

    def _unnamed_over(self) -> None:
        for watch in self._unnamed.values():
            if not watch.over:
                watch.call(self._unnamed_over)
                return
        self._over()

    def _sweep_orphans(self) -> None:
        """Somebody ended the launcher before its work was done: those it held hang elsewhere by now. Who made a session
        that was not seen yet is found by the marker; only who also gave up its environment is not."""
        for _ in range(_ROUNDS):
            marked = monitor.with_environment(self._marker) if self._marker else ()
            left = {*monitor.in_sessions(self.sessions), *marked} - {os.getpid()}
            if not self._kill_groups([each for pid in left for each in (*monitor.descendants(pid), pid)]):
                break

    def _over(self) -> None:
        if self._root is not None and self._root is not self._outer:
            self._root.status()  # it is ours where Forge is the first process of a container
            if self._root.handle is not None:
                watchdog.release(self._root.handle)
            self._root.close()
        for watch in self._unnamed.values():
            watch.close()
        if self._outer.handle is not None:
            watchdog.release(self._outer.handle)
        self._outer.close()
        if self._sweeping is not None:
            self._sweeping.cancel()
        self._close_control()
        if self._info is not None:
            os.close(self._info)
            self._info = None
        self._gone()

    def _close_control(self) -> None:
        if self._control is not None:
            os.close(self._control)
            self._control = None


def kill_unfinished(outer: int) -> None:
    """A child of ours that may have started another one, or be about to: it is stopped first, so that it does not.
    Waits, because there is no descriptor to be told by."""
    _send_signal(outer, signal.SIGSTOP)
    for _ in range(_STOPS_WITHIN):
        if _is_stopped(outer):
            break
        time.sleep(_LOOK_EVERY_S)
    for pid in monitor.children(outer):
        _send_signal(pid, signal.SIGKILL)
    _send_signal(outer, signal.SIGKILL)


def _is_stopped(pid: int) -> bool:
    facts = monitor.process_stat(pid)
    return facts is None or facts.state not in "RSD"


def _send_signal(pid: int, number: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.kill(pid, number)


LINGERS_S: Final = 2.0
"""Seconds that the watchdog stays after the last tree: commands mostly come one after another, and a start takes 13 ms
of CPU time.
"""
_PROGRAM: Final = os.path.join(os.path.dirname(os.path.abspath(__file__)), "watchdog_child.py")
_LONGEST_NUMBER: Final = 20
_ALONE: Final = 'cd /; unset PWD OLDPWD; "$@" &'
"""Starts a program that is nobody's child, so that it is not mistaken for something that a call left running."""


class Watchdog:
    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._wire: socket.socket | None = None
        self._held: dict[int, int] = {}
        """By handle: the signal that ends the tree."""
        self._idle_since = 0.0
        self._silence = 0
        """Seconds; 0: it needs no beats."""
        self._before = 0
        """The process that was let go last."""
        os.register_at_fork(after_in_child=self._forget)

    def hold_launcher(self, handle: int) -> None:
        """A launcher notices by itself that Forge is gone; only of a Forge that is silent it has to be told."""
        if self._silence:
            self.hold(handle, END_ALL)

    def hold(self, handle: int, ends_by: int = signal.SIGKILL) -> None:
        """Never fails and never waits. Give it back by `release` before it is closed."""
        with self._lock:
            self._held[handle] = ends_by
            self._send(bytes([ends_by]), handle)

    def note_start(self, ready: int) -> None:
        """A bwrap is about to start with this pipe under READY. Until its root is held, only the pipe tells who is
        of it."""
        with self._lock:
            self._idle_since = time.monotonic()
            self._send(os.fstat(ready).st_ino.to_bytes(PIPE_NUMBER_BYTES, "little"))

    def _send(self, message: bytes, *handles: int) -> None:
        if self._wire is not None and _send_message(self._wire, message, *handles):
            return
        self._let_go()  # the one there was is dead
        with contextlib.suppress(OSError):
            self._wire = _start_program()
            if self._silence:
                self._send_beat()
            for each, number in self._held.items():
                _send_message(self._wire, bytes([number]), each)
            if not handles:
                _send_message(self._wire, message)

    def beat(self, seconds: int) -> None:
        """Sends a heartbeat: without another one the trees are ended after `seconds`; 0: none is needed any more. Safe
        from any thread."""
        with self._lock:
            self._silence = seconds
            self._send_beat()

    def _send_beat(self) -> None:
        if self._wire is not None:
            with contextlib.suppress(OSError):
                self._wire.send(bytes([self._silence]))

    def release(self, handle: int) -> None:
        """Forgets a tree that is gone; the watchdog process notices that by itself."""
        with self._lock:
            if self._held.pop(handle, None) is not None and not self._held and self._wire is not None:
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
        self._held = {}
        if self._wire is not None:
            self._wire.close()
            self._wire = None


watchdog: Final = Watchdog()


def _start_program() -> socket.socket:
    """Raises OSError. Ends by itself when the socket given back is closed, or this process ends."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    try:
        ours.setblocking(False)
        nothing = Handle(os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC))
        forge = Handle(os.pidfd_open(os.getpid()))
        argv = ("/bin/sh", "-c", _ALONE, "sh", *isolated(_PROGRAM))
        given = {**dict.fromkeys((0, 1, 2), nothing.fd), SOCKET: theirs.fileno(), FORGE: forge.fd}
        pid = spawn(argv, {}, given)
    except BaseException:
        ours.close()
        raise
    finally:
        theirs.close()
    _reap_shell(pid)
    return ours


def _reap_shell(pid: int) -> None:
    """The shell that left it alone, which is over at once."""
    try:
        shell = monitor.ExitWatch(pid)
    except OSError:
        os.waitpid(pid, 0)
        return

    def over() -> None:
        shell.status()
        shell.close()

    shell.call(over)


def _send_message(wire: socket.socket, message: bytes, *handles: int) -> bool:
    """Sends a message to the watchdog. Returns False if it is gone."""
    beside = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", handles))] if handles else []
    try:
        wire.sendmsg([message], beside, socket.MSG_NOSIGNAL)
    except ConnectionError:
        return False
    except OSError:  # it is there, and has more to read than it can take
        pass
    return True
