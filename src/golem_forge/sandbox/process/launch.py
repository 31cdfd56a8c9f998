"""Launch: a child as the system will start it, its pipes and pseudo-terminal, the spawn call itself, and its output.

Walls make a Launch, `start_process` uses it up. Descriptors are handed over under fixed low numbers, because the
inner stage is a plain `sh` that knows only these. ChildPipes owns the descriptors on both sides while a child is
started: nothing leaks if opening them fails half-way. Terminal never blocks on typing: unread input waits in a
bounded buffer, more is refused with INPUT_NOT_READ. `spawn` uses posix_spawn in a new session. Threat: a descriptor
of Forge's that reaches the child; Python's own are closed by exec, those another library made inheritable are
closed by number.

What the child writes is read without blocking, decoded, filtered, and kept whole (Capture) or only its end
(TailBuffer). OutputReader takes one descriptor and feeds an OutputSink; a child that writes faster than Forge reads
waits. Capture keeps up to 1 MiB in memory and everything past that in an unlinked temporary file. Only whole characters
come in, and no read divides one; bytes that are not UTF-8 pass as lone surrogates and are the same bytes in a
Capture. Threats: a character or a secret divided between two reads (decoder and filter carry over); output without
end (all readers of a child share one OutputBudget; what is past it is dropped, and so is an end the filter held
back: it may be the beginning of a secret).
"""

from __future__ import annotations

import asyncio
import codecs
import contextlib
import fcntl
import os
import signal
import tempfile
import termios
from collections.abc import Awaitable, Callable, Iterator, Mapping
from enum import IntEnum, StrEnum
from typing import Final, Protocol

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


IN_MEMORY: Final = 1 << 20
_PIECE: Final = 1 << 18
_LONGEST_CHARACTER: Final = 4


class Capture:
    def __init__(self) -> None:
        self.size = 0
        """Bytes so far."""
        self.complete = False
        """Nothing more will come."""
        self._memory = bytearray()
        self._file: int | None = None
        self._waiters: set[asyncio.Future[None]] = set()

    def append(self, text: str) -> None:
        """`text`: bytes that are none come as lone surrogates (`surrogateescape`). May raise OSError when the
        temporary file cannot grow; what came before stays readable."""
        data = as_bytes(text)
        if not data:
            return
        if self._file is None and self.size + len(data) <= IN_MEMORY:
            self._memory += data
        else:
            self._spool(data)
        self.size += len(data)
        self._wake()

    def finish(self) -> None:
        self.complete = True
        self._wake()

    def read(self, start: int = 0, end: int | None = None) -> bytes:
        """A bound inside a character counts as the beginning of that character."""
        start, end = self._bounds(start, end)
        return self._raw(start, end)

    def pieces(self, start: int = 0, end: int | None = None) -> Iterator[bytes]:
        """Yields the text in pieces of at most 256 KiB, each of whole characters."""
        start, end = self._bounds(start, end)
        while start < end:
            cut = end if end - start <= _PIECE else self._character_start(start + _PIECE)
            yield self._raw(start, cut)
            start = cut

    async def more(self, than: int, seconds: float) -> bool:
        """Waits until there are more than `than` bytes, the end, or `seconds` are over; whether there are more."""
        loop = asyncio.get_running_loop()
        until = loop.time() + seconds
        while self.size <= than and not self.complete and (left := until - loop.time()) > 0:
            waiter: asyncio.Future[None] = loop.create_future()
            self._waiters.add(waiter)
            try:
                await asyncio.wait([waiter], timeout=left)
            finally:
                self._waiters.discard(waiter)
        return self.size > than

    def close(self) -> None:
        """Forgets the text; what was kept elsewhere is not touched."""
        self.size = 0
        self._memory = bytearray()
        if self._file is not None:
            os.close(self._file)
            self._file = None

    def __del__(self) -> None:
        if self._file is not None:
            with contextlib.suppress(OSError):
                os.close(self._file)

    def _wake(self) -> None:
        for waiter in self._waiters:
            if not waiter.done():
                waiter.set_result(None)

    def _spool(self, data: bytes) -> None:
        if self._file is None:
            with tempfile.TemporaryFile(prefix="forge-output-", buffering=0) as made:
                _write_all(made.fileno(), self._memory, 0)
                self._file = os.dup(made.fileno())
            self._memory = bytearray()
        _write_all(self._file, data, self.size)

    def _bounds(self, start: int, end: int | None) -> tuple[int, int]:
        last = self.size if end is None else min(max(end, 0), self.size)
        return self._character_start(min(max(start, 0), self.size)), self._character_start(last)

    def _character_start(self, place: int) -> int:
        if place >= self.size:
            return self.size
        first = max(0, place - _LONGEST_CHARACTER + 1)
        around = self._raw(first, place + 1)
        while around and around[-1] & 0xC0 == 0x80:
            around = around[:-1]
        return first + len(around) - 1 if around else place

    def _raw(self, start: int, end: int) -> bytes:
        if self._file is None:
            return bytes(self._memory[start:end])
        found = bytearray()
        while len(found) < end - start:
            data = os.pread(self._file, end - start - len(found), start + len(found))
            if not data:
                break
            found += data
        return bytes(found)


def as_bytes(text: str) -> bytes:
    """Returns the bytes that a child wrote, from which this text was decoded. Text from a filter may hold a surrogate
    that stands for no byte; it is replaced.
    """
    try:
        return text.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        return text.encode("utf-8", "replace")


def _write_all(file: int, data: bytes | bytearray, place: int) -> None:
    view = memoryview(data)
    while view:
        written = os.pwrite(file, view, place)
        view, place = view[written:], place + written


_AT_ONCE: Final = 1 << 18


def _decoder() -> codecs.IncrementalDecoder:
    return codecs.getincrementaldecoder("utf-8")("surrogateescape")


class TextFilter(Protocol):
    """A filter for every piece of text; it may hold back an end that could become something to hide."""

    def feed(self, chunk: str, /) -> str: ...

    def finish(self) -> str: ...


class OutputSink(Protocol):
    """The destination of the text."""

    def append(self, text: str, /) -> None: ...

    def finish(self) -> None: ...


class OutputBudget:
    """The bytes that all streams of one child may still produce, both raw and as stored text."""

    def __init__(self, size: int, exceeded: Callable[[], None]) -> None:
        self._left = size
        self._room = size
        self._exceeded = exceeded
        self.over = False

    def take(self, data: bytes) -> bytes:
        """Returns the part of `data` that fits into the budget."""
        if len(data) <= self._left:
            self._left -= len(data)
            return data
        kept, self._left = data[: self._left], 0
        self.exceed()
        return kept

    def fit(self, text: str) -> str:
        """Returns the part of a text that fits into the budget."""
        if text.isascii() and len(text) <= self._room:
            self._room -= len(text)
            return text
        data = as_bytes(text)
        if len(data) <= self._room:
            self._room -= len(data)
            return text
        kept, self._room = _decoder().decode(data[: self._room]), 0  # without a character that the cut divides
        self.exceed()
        return kept

    def exceed(self) -> None:
        if not self.over:
            self.over = True
            self._exceeded()


class OutputReader:
    def __init__(
        self, descriptor: int, text_filter: TextFilter, budget: OutputBudget, keeper: OutputSink | None = None
    ) -> None:
        """Without a `keeper` everything is stored in `capture`."""
        self.capture = Capture()
        self._keeper = keeper or self.capture
        self._descriptor = descriptor
        self._open = True
        self._filter = text_filter
        self._budget = budget
        self._decoder = _decoder()
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(descriptor, self._read)

    def catch_up(self) -> None:
        """Takes what waits already; a pipe holds less than is read at once."""
        if self._open:
            self._read()

    def finish(self) -> None:
        """The tree is gone: takes what is still there, then closes, whoever else may hold the other end."""
        while self._open and self._read():
            pass
        self._stop()
        if not self._budget.over:  # a character or a secret cut by the budget is neither
            self._keep(self._filter.feed(self._decoder.decode(b"", final=True)) + self._filter.finish())
        self._keeper.finish()

    def _read(self) -> bool:
        try:
            data = os.read(self._descriptor, _AT_ONCE)
        except BlockingIOError:
            return False
        except InterruptedError:
            return True
        except OSError:  # EIO: nobody holds the terminal's other side any more
            data = b""
        if not data:
            self._stop()
            return False
        if not self._budget.over and (kept := self._budget.take(data)):
            self._keep(self._filter.feed(self._decoder.decode(kept)))
        return not self._budget.over

    def _keep(self, text: str) -> None:
        try:
            self._keeper.append(self._budget.fit(text))
        except OSError:  # no room for the temporary file: the end of what can be kept
            self._budget.exceed()

    def _stop(self) -> None:
        if self._open:
            self._open = False
            self._loop.remove_reader(self._descriptor)
            os.close(self._descriptor)


TAIL_BYTES: Final = 64 << 10


class TailBuffer:
    def __init__(self) -> None:
        self._kept = bytearray()
        self._whole = True

    def append(self, text: str) -> None:
        data = as_bytes(text)
        self._kept += data[-TAIL_BYTES:]
        if len(data) > TAIL_BYTES or len(self._kept) > TAIL_BYTES:
            self._whole = False
            del self._kept[: len(self._kept) - TAIL_BYTES]

    def finish(self) -> None:
        """Does nothing: the text stays readable."""

    def text(self) -> str:
        """Returns the text without a first line whose beginning is lost, unless it is the only line."""
        text = self._kept.decode("utf-8", "replace")
        _, end, after = text.partition("\n")
        return after if not self._whole and end and after else text

    def lines(self, most: int) -> tuple[str, ...]:
        """Returns the last lines that are not empty."""
        return tuple(line for line in self.text().splitlines() if line.strip())[-most:]
