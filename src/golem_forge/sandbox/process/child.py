"""Child: a running process tree behind one object: its output, its time and limits, and its end.

`start_process` takes a Launch and returns a Child whose command is about to run. The outer program (bwrap, the
launcher) builds the walls; only the inner stage's byte on READY proves that they stand. Without it the launch's own
refusal is raised, whatever the exit code, and no process or descriptor is left. Everything runs by callbacks of the
event loop, so an end that was decided happens even if nobody waits for it: TERM to the command's group, 300 ms,
then KILL to everybody. Memory and process limits, and walls that no longer hold, kill at once.

Children that Forge talks to: `start_on_socket` starts one in walls whose standard input is one end of a socket pair;
the other end is the caller's, and so is the protocol. `listen_in` is the other way round: children come to a socket in
a directory that they are shown. `IdleChildren` keeps children for their next use and ends each that nobody takes within
its time: its walls keep placeholders in the zones, and it holds memory.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
import time
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Generic, Protocol, TypeVar

from golem_forge.core.lazy_dataclass import replace
from golem_forge.sandbox.errors import SandboxError, walls_unavailable
from golem_forge.sandbox.process import monitor
from golem_forge.sandbox.process.launch import (
    Capture,
    ChildFd,
    ChildPipes,
    Launch,
    OutputBudget,
    OutputReader,
    TailBuffer,
    Terminal,
    TextFilter,
    TreeRoot,
    spawn,
)
from golem_forge.sandbox.process.monitor import ExitStatus, ResourceMonitor
from golem_forge.sandbox.process.tree import ProcessTree, kill_unfinished, watchdog
from golem_forge.sandbox.walls.model import Job, Streams

if TYPE_CHECKING:
    from golem_forge.sandbox.walls.walls import WalledChild, Walls

GRACE_S: Final = 0.3
_AFTERWARDS_S: Final = 0.5
"""Seconds that the caller who ended a command waits for the work after its end; the rest goes on in the background."""
GIVE_UP_S: Final = 1.5
"""Seconds after SIGKILL until the ExitStatus is given anyway; only a process stuck inside the kernel lasts so long."""
IDLE_SECONDS: Final = 60.0
READY_WITHIN_S: Final = 30.0
_NOTICED_WITHIN_S: Final = 30.0
_LAST_WORDS_S: Final = 0.3
_LONGEST_SHOWN: Final = 4096


class Child:
    def __init__(self, launch: Launch, pid: int, descriptors: Mapping[int, int], filters: Sequence[TextFilter]) -> None:
        """`pid`: the outer process. `descriptors`: our ends of its pipes, which become ours to close, unless this
        raises OSError; READY and GO stay the caller's. `filters`: one for each stream. Without STDOUT only the end of
        STDERR is kept."""
        self.ending: ExitStatus | None = None
        """Set once the whole tree is gone, output is complete, and what is done afterwards is done."""
        self._exit: ExitStatus | None = None
        """The same, as soon as nobody is left."""
        self._settling: asyncio.Task[None] | None = None
        info, control = descriptors.get(ChildFd.INFO), descriptors.get(ChildFd.CONTROL)
        self.holder = ProcessTree(pid, launch.root, info=info, control=control, gone=self._gone, marker=launch.marker)
        self._launch = launch
        self._loop = asyncio.get_running_loop()
        self.ended: asyncio.Future[ExitStatus] = self._loop.create_future()
        self._code = ""
        self._ending_began = False
        self._timers: list[asyncio.TimerHandle] = []
        self._watcher: ResourceMonitor | None = None
        self._began = time.monotonic()
        self._terminal = Terminal(descriptors[ChildFd.STDIN]) if ChildFd.STDIN in descriptors else None
        budget = OutputBudget(launch.limits.output, lambda: self.request_end(monitor.OUTPUT_LIMIT))
        streams = (descriptors[number] for number in (ChildFd.STDOUT, ChildFd.STDERR) if number in descriptors)
        self.tail = TailBuffer() if ChildFd.STDOUT not in descriptors else None
        """Of standard error, where standard output goes to the caller as it is."""
        self._readers = [
            OutputReader(each, text_filter, budget, self.tail)
            for each, text_filter in zip(streams, filters, strict=True)
        ]
        self.holder.watch()

    @property
    def pid(self) -> int:
        """The pid of the tree's root on the host."""
        return self.holder.root or 0

    @property
    def output(self) -> Capture:
        """The captured standard output; not available if there is a `tail`."""
        return self._readers[0].capture

    @property
    def errors(self) -> Capture | None:
        return self._readers[1].capture if len(self._readers) > 1 else None

    def error_text(self, longest: int) -> str:
        """Returns standard error, or all output if the two are not separate."""
        if self.tail is not None:
            return self.tail.text()[:longest]
        return (self.errors or self.output).read(0, longest).decode("utf-8", "replace")

    def read_pending(self) -> None:
        """`output` holds all that was written until now, also if the loop had no time for it yet."""
        for reader in self._readers:
            reader.catch_up()

    def begin(self) -> None:
        self._began = time.monotonic()
        if self._exit is not None:
            return
        limits = self._launch.limits
        self._watcher = ResourceMonitor(self.pid, limits, self.holder.sessions, self.kill, self._launch.mount_check)
        if limits.timeout_s is not None:
            self._timers.append(self._loop.call_later(max(limits.timeout_s, 0), self.request_end, monitor.TIMEOUT))

    def was_idle(self, time_ns: int) -> bool:
        """Whether it was seen that nothing of its tree ran at a moment of the files' clock."""
        return self._watcher is not None and self._watcher.idle.include(time_ns)

    @property
    def is_over(self) -> bool:
        """Whether all its processes have ended; work after the end may still go on."""
        return self._exit is not None

    async def wait(self, seconds: float | None = None) -> ExitStatus | None:
        """Waits for the end. Returns None if it still runs after `seconds`."""
        if self.ending is None:
            await asyncio.wait([self.ended], timeout=seconds)
        return self.ending

    async def end(self, code: str = monitor.ENDED) -> ExitStatus:
        """The first code given is the one in the ExitStatus."""
        self.request_end(code or monitor.ENDED)
        return await self.gone()

    async def gone(self) -> ExitStatus:
        """Waits, once the end was decided, until no process is left. Cancellation of the caller is delayed until then,
        so that nothing of a call outlives it.
        """
        cancelled: asyncio.CancelledError | None = None
        while self.ending is None:
            try:
                await asyncio.wait([self.ended])
            except asyncio.CancelledError as error:
                cancelled = cancelled or error
        if cancelled is not None:
            raise cancelled
        return self.ending

    def signal(self, number: int) -> None:
        """Sends a signal to the command's process group, in a terminal to the foreground group; does nothing after the
        end.
        """
        if self._exit is None:
            self.holder.signal(number, self._terminal.foreground() if self._terminal else None)

    async def write(self, data: bytes) -> None:
        """Types into the terminal; after the end it is ignored."""
        if self._terminal is None:
            raise SandboxError("NO_TERMINAL", "This process has no terminal; start it with one to type into it.")
        if self._exit is None:
            self._terminal.write(data)

    def resize(self, rows: int, columns: int) -> None:
        """The window of the person who looks at this terminal changed."""
        if self._terminal is not None and self._exit is None:
            self._terminal.resize(rows, columns)

    def kill(self, code: str = monitor.ENDED) -> None:
        """Like `end`, without TERM, without the time after it, and without waiting."""
        if not self._ending_began:
            self._ending_began = True
            self._code = code
        self._kill()

    def request_end(self, code: str) -> None:
        """Begins to end the child as `end` does, without waiting."""
        if self._ending_began or self._exit is not None:
            return
        self._ending_began = True
        self._code = code
        self.holder.signal(signal.SIGTERM)
        if self._terminal is not None and (group := self._terminal.foreground()) is not None:
            self.holder.signal(signal.SIGTERM, group)
        self._timers.append(self._loop.call_later(GRACE_S, self._kill))

    def _kill(self) -> None:
        if self._exit is None:
            self.holder.kill()
            self._timers.append(self._loop.call_later(GIVE_UP_S, self._give_up))

    def _give_up(self) -> None:
        self._finish()
        self._announce()

    def _gone(self) -> None:
        self._finish()
        self._launch.mount_check = None
        if (afterwards := _afterwards(self._launch)) is None:
            self._announce()
        else:
            self._settling = self._loop.create_task(self._settle(asyncio.ensure_future(afterwards)))

    async def _settle(self, afterwards: asyncio.Future[None]) -> None:
        await asyncio.wait([afterwards], timeout=_AFTERWARDS_S if self._code else None)
        self._announce()
        await afterwards

    def _announce(self) -> None:
        self.ending = self._exit
        if not self.ended.done() and self._exit is not None:
            self.ended.set_result(self._exit)

    def _finish(self) -> None:
        if self._exit is not None:
            return
        for timer in self._timers:
            timer.cancel()
        if self._watcher is not None:
            self._watcher.stop()
        if not self._code and self._launch.mount_check is not None and not self._launch.mount_check():
            self._code = monitor.WALLS_CHANGED  # between two looks, or before the first one
        self._ending_began = True  # a limit reached by the last of the output decides nothing any more
        for reader in self._readers:
            reader.finish()
        if self._terminal is not None:
            self._terminal.close()
        self._exit = monitor.exit_status_of(
            self.holder.status,
            code=self._code,
            seconds=time.monotonic() - self._began,
            cpu_spent=self._watcher is not None and self._watcher.cpu_spent,
        )


async def start_process(
    launch: Launch,
    streams: Streams,
    *,
    stdin: bytes | int | None = None,
    stdout: int | None = None,
    filter: Callable[[], TextFilter],
) -> Child:
    """Returns when the command is about to run. Raises the launch's refusal, or what `before_go` raised."""
    pipes = ChildPipes()
    try:
        child = _spawn_child(launch, pipes, partial(pipes.open, launch, streams, stdin, stdout), filter)
    except BaseException as error:
        pipes.close()
        if (afterwards := _afterwards(launch)) is not None:
            await afterwards
        if isinstance(error, OSError):
            raise _refusal(launch, f"it could not be started ({os.strerror(error.errno or 0)})") from None
        raise
    try:
        await _until_ready(launch, child, pipes)
        child.begin()
    except BaseException:
        child.kill()
        await child.gone()
        raise
    finally:
        pipes.close()
        launch.before_go = launch.make_error = None  # they hold the walls' zones open, and a Child may outlive those
    return child


def _spawn_child(
    launch: Launch, pipes: ChildPipes, lay: Callable[[], None], text_filter: Callable[[], TextFilter]
) -> Child:
    try:
        lay()
        filters = [text_filter() for number in (ChildFd.STDOUT, ChildFd.STDERR) if number in pipes.ours]
        if launch.root is TreeRoot.NAMESPACE:
            watchdog.note_start(pipes.theirs[ChildFd.READY])
        pid = spawn(launch.argv, launch.env, {**launch.descriptors, **pipes.theirs})
    finally:
        pipes.close_theirs()
        for descriptor in launch.descriptors.values():
            with contextlib.suppress(OSError):
                os.close(descriptor)
        launch.descriptors.clear()
    try:
        child = Child(launch, pid, pipes.ours, filters)
    except OSError:
        # No descriptor was left to watch it with. It is not at its inner stage yet, and does not get there.
        pipes.close()  # looking for what it started takes one
        kill_unfinished(pid)
        os.waitpid(pid, 0)
        raise
    pipes.keep_only(ChildFd.READY, ChildFd.GO)
    return child


async def _until_ready(launch: Launch, child: Child, pipes: ChildPipes) -> None:
    ready = await _is_ready(pipes.ours[ChildFd.READY], child)
    if ready and not child.holder.find_root():
        # Over already, which is being noticed just now; otherwise this outer program holds no tree together.
        # What comes after the end, a large commit that is carried over for instance, may take longer.
        await child.wait(_NOTICED_WITHIN_S)
        ready = child.is_over
    if not ready:
        await child.wait(_LAST_WORDS_S)
        child.kill()
        await child.gone()
        text = child.error_text(_LONGEST_SHOWN).strip()
        raise _refusal(launch, text or "it ended before the command could begin")
    if launch.before_go is not None:
        await launch.before_go(child.pid)
        with contextlib.suppress(BrokenPipeError):
            os.write(pipes.ours[ChildFd.GO], b"\n")


async def _is_ready(descriptor: int, child: Child) -> bool:
    """The inner stage's byte; its pipe's end, the child's end or a long time without a word mean no."""
    loop = asyncio.get_running_loop()
    something: asyncio.Future[None] = loop.create_future()
    loop.add_reader(descriptor, something.cancel)  # which may be done twice
    try:
        first: list[asyncio.Future[Any]] = [something, child.ended]
        await asyncio.wait(first, timeout=READY_WITHIN_S, return_when=asyncio.FIRST_COMPLETED)
    finally:
        loop.remove_reader(descriptor)
    with contextlib.suppress(BlockingIOError):
        return os.read(descriptor, 1) != b""
    return False


def _afterwards(launch: Launch) -> Awaitable[None] | None:
    afterwards, launch.on_exit = launch.on_exit, None
    return afterwards() if afterwards is not None else None


def _refusal(launch: Launch, said: str) -> SandboxError:
    if launch.make_error is not None:
        return launch.make_error(said)
    return walls_unavailable(said, "Run 'forge doctor' to see which walls this machine gives.")


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
