"""Launch: a child as the system will start it, with its pipes, pseudo-terminal and the spawn call itself.

Walls make a Launch, `start_process` uses it up. Descriptors are handed over under fixed low numbers, because the
inner stage is a plain `sh` that knows only these. ChildPipes owns the descriptors on both sides while a child is
started: nothing leaks if opening them fails half-way. Terminal never blocks on typing: unread input waits in a
bounded buffer, more is refused with INPUT_NOT_READ. `spawn` uses posix_spawn in a new session. Threat: a descriptor
of Forge's that reaches the child; Python's own are closed by exec, those another library made inheritable are
closed by number.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import os
import signal
import termios
from collections.abc import Awaitable, Callable, Mapping
from enum import IntEnum, StrEnum
from typing import Final

from golem_forge.config.sandbox_block import ResourceLimits
from golem_forge.core.lazy_dataclass import dataclass, field
from golem_forge.sandbox.errors import SandboxError
from golem_forge.sandbox.walls.model import Streams


class ChildFd(IntEnum):
    """The numbers that descriptors have in a child."""

    STDIN = 0
    STDOUT = 1
    STDERR = 2
    ARGUMENTS = 3
    """From here the outer program (bwrap, the launcher) reads its own arguments."""
    FILTER = 4
    """The seccomp program."""
    INFO = 5
    """Here bwrap writes the pid of the namespace's first process."""
    CONTROL = 6
    """The launcher's lifeline: its end means that Forge is gone or wants the tree ended."""
    GO = 8
    """The inner stage waits here for one line, where something must be ready before the command starts."""
    READY = 9
    """The inner stage writes one byte here just before it starts the command."""


class TreeRoot(StrEnum):
    """The kind of process that holds the tree together."""

    NAMESPACE = "namespace"
    """The first process of a pid namespace, named on INFO: killing it ends everything in it."""
    LAUNCHER = "launcher"
    """The started process itself, a subreaper: when CONTROL closes it ends everything below it and exits."""


@dataclass(slots=True, kw_only=True)
class Launch:
    argv: tuple[str, ...]
    """argv[0] is an absolute host path."""
    env: dict[str, str]
    """The child's complete environment."""
    root: TreeRoot
    limits: ResourceLimits = field(default_factory=ResourceLimits)
    descriptors: dict[int, int] = field(default_factory=dict)
    """Number in the child → our descriptor, closed once it is started. Not READY, INFO, GO, CONTROL nor 0–2, which
    `start_process` makes itself."""
    before_go: Callable[[int], Awaitable[None]] | None = None
    """Called with the pid of the tree's root when the inner stage is ready; only then the command may start. Set: the
    inner stage waits on GO."""
    mount_check: Callable[[], bool] | None = None
    """Called while the command runs; False means that the walls are no longer as built, and all
    processes are killed.
    """
    marker: str = ""
    """A text that only the environments of this tree's processes contain, to find those that a killed launcher leaves
    behind. Empty if there is none.
    """
    make_error: Callable[[str], SandboxError] | None = None
    """Makes the error of a start without a READY byte, from what the outer program said on stderr."""
    on_exit: Callable[[], Awaitable[None] | None] | None = None
    """Called once, after the whole tree is gone (or was never started)."""


class ChildPipes:
    def __init__(self) -> None:
        self.theirs: dict[int, int] = {}
        self.ours: dict[int, int] = {}

    def open(self, launch: Launch, streams: Streams, stdin: bytes | int | None, stdout: int | None) -> None:
        if streams is Streams.TERMINAL:
            self.ours[ChildFd.STDOUT], self.theirs[ChildFd.STDIN] = open_pty_pair()
            self.ours[ChildFd.STDIN] = os.dup(self.ours[ChildFd.STDOUT])
            self.theirs[ChildFd.STDOUT] = self.theirs[ChildFd.STDERR] = self.theirs[ChildFd.STDIN]
        else:
            self.theirs[ChildFd.STDIN] = _standard_input(stdin)
            if stdout is not None:
                self.theirs[ChildFd.STDOUT] = os.dup(stdout)
            else:
                self._from_child(ChildFd.STDOUT)
            if stdout is not None or streams is Streams.APART:
                self._from_child(ChildFd.STDERR)
            else:
                self.theirs[ChildFd.STDERR] = self.theirs[ChildFd.STDOUT]
        self._from_child(ChildFd.READY)
        if launch.root is TreeRoot.NAMESPACE:
            # A file in memory, which can be written also when nobody reads any more. Threat: Forge is killed while
            # bwrap starts. On a broken pipe bwrap would end before it lets its inner process go on, and that one would
            # wait for ever.
            self.ours[ChildFd.INFO] = os.memfd_create("noted", os.MFD_CLOEXEC)
            self.theirs[ChildFd.INFO] = os.dup(self.ours[ChildFd.INFO])
        else:
            self._to_child(ChildFd.CONTROL)
        if launch.before_go is not None:
            self._to_child(ChildFd.GO)

    def keep_only(self, *numbers: int) -> None:
        """The others of ours have a new owner, who closes them."""
        self.ours = {number: self.ours[number] for number in numbers if number in self.ours}

    def close_theirs(self) -> None:
        for descriptor in set(self.theirs.values()):
            os.close(descriptor)
        self.theirs.clear()

    def close(self) -> None:
        self.close_theirs()
        for descriptor in self.ours.values():
            os.close(descriptor)
        self.ours.clear()

    def _from_child(self, number: int) -> None:
        self.ours[number], self.theirs[number] = os.pipe()
        os.set_blocking(self.ours[number], False)

    def _to_child(self, number: int) -> None:
        self.theirs[number], self.ours[number] = os.pipe()


def _standard_input(given: bytes | int | None) -> int:
    """Returns a descriptor for standard input: /dev/null, a copy of a given descriptor, or a file in memory with the
    given content.
    """
    if isinstance(given, int):
        return os.dup(given)
    if not given:
        return os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
    descriptor = os.memfd_create("stdin", os.MFD_CLOEXEC)
    try:
        view = memoryview(given)
        while view:
            view = view[os.write(descriptor, view) :]
        os.lseek(descriptor, 0, os.SEEK_SET)
    except OSError:
        os.close(descriptor)
        raise
    return descriptor


ROWS: Final = 40
COLUMNS: Final = 120
WAITING_AT_MOST: Final = 1 << 16


class Terminal:
    def __init__(self, descriptor: int) -> None:
        """Takes ownership of `descriptor`."""
        self._descriptor = descriptor
        self._waiting = bytearray()
        self._loop = asyncio.get_running_loop()

    def write(self, data: bytes) -> None:
        if len(self._waiting) + len(data) > WAITING_AT_MOST:
            raise SandboxError(
                "INPUT_NOT_READ",
                f"The program does not read its input ({len(self._waiting)} bytes are waiting); nothing was written. "
                "Wait until it does, or end it.",
            )
        idle = not self._waiting
        self._waiting += data
        if idle:
            self._type()
            if self._waiting:
                self._loop.add_writer(self._descriptor, self._type)

    def resize(self, rows: int, columns: int) -> None:
        with contextlib.suppress(OSError):
            termios.tcsetwinsize(self._descriptor, (rows, columns))

    def foreground(self) -> int | None:
        """The process group that reads from this terminal now, by its number on the host."""
        try:
            return os.tcgetpgrp(self._descriptor) or None
        except OSError:
            return None

    def close(self) -> None:
        self._loop.remove_writer(self._descriptor)
        os.close(self._descriptor)

    def _type(self) -> None:
        try:
            while self._waiting:
                del self._waiting[: os.write(self._descriptor, self._waiting)]
        except (BlockingIOError, InterruptedError):
            return
        except OSError:  # nobody is at the other side any more
            self._waiting.clear()
        self._loop.remove_writer(self._descriptor)


def open_pty_pair() -> tuple[int, int]:
    """Ours (reads do not block) and the program's. Neither becomes Forge's own controlling terminal."""
    ours, theirs = os.openpty()
    with contextlib.ExitStack() as undo:
        undo.callback(os.close, ours)
        undo.callback(os.close, theirs)
        termios.tcsetwinsize(theirs, (ROWS, COLUMNS))
        os.set_blocking(ours, False)
        undo.pop_all()
    return ours, theirs


_ABOVE_ALL_TARGETS: Final = 100
"""Copies are made here first, so that giving one descriptor its number never overwrites another."""
_DEFAULT_SIGNALS: Final = signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}
"""Python ignores PIPE and XFSZ; a child must not inherit that."""


def spawn(argv: tuple[str, ...], env: Mapping[str, str], descriptors: Mapping[int, int]) -> int:
    """Call it on the loop's thread only: bwrap dies with the thread that started it."""
    copies: list[int] = []
    actions: list[tuple[int, int] | tuple[int, int, int]] = []
    above = max(_ABOVE_ALL_TARGETS, *descriptors) + 1
    try:
        for number, descriptor in descriptors.items():
            copies.append(fcntl.fcntl(descriptor, fcntl.F_DUPFD_CLOEXEC, above))
            actions.append((os.POSIX_SPAWN_DUP2, copies[-1], number))
        actions += [(os.POSIX_SPAWN_CLOSE, each) for each in _inheritable() if each not in descriptors]
        return os.posix_spawn(
            argv[0], argv, env, file_actions=actions, setsid=True, setsigmask=(), setsigdef=_DEFAULT_SIGNALS
        )
    finally:
        for copy in copies:
            os.close(copy)


def _inheritable() -> list[int]:
    found = []
    for name in os.listdir("/proc/self/fd"):
        try:
            if os.get_inheritable(int(name)):
                found.append(int(name))
        except OSError:  # the one the listing itself used
            continue
    return found
