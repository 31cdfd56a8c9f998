"""A server as a child process inside walls, behind the SDK's transport protocol; messages are lines on its stdout and
stdin.

Takes a spec with expanded values and walls around exactly its zones; gives a read and a write stream. Refuses before
anything runs: walls that cannot be built (WallsFailed), a command that does not exist inside them (CannotStart), an
environment variable that would decide what runs outside of them. However the transport is left (an error half-way, a
cancelled task, twice), the end is the same: close stdin, 300 ms, TERM, 300 ms, KILL to the whole tree. Timers of the
event loop do this, so it happens whoever stops waiting; if Forge itself is killed, the walls end the server.

Reading (`LineReader`): a line that is not JSON-RPC is dropped and counted; a line over 16 MiB ends the stream
(LineTooLong). Reading pauses while lines wait to be taken. Writing (`LineWriter`): `send` returns when the line is
written. If it cannot be, a request raises NotSent when not one byte of it was written, else BrokenResourceError. A
cancelled sender withdraws a line that was not begun; a line that was begun is written to its end. The caller's Delivery
learns when the first byte is out.

Threat: output without end or without line ends, millions of tiny lines that starve other tasks, invalid UTF-8, endless
nesting, and a server that reads nothing (senders wait; nothing piles up).
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import logging
import os
import shutil
import signal
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Final

from golem_forge.config.mcp_spec import ExpandedServer, ServerSpec
from golem_forge.config.sandbox_block import ResourceLimits, variable_problem
from golem_forge.core.errors import ForgeError
from golem_forge.core.lazy_dataclass import replace
from golem_forge.core.text import escape_control_chars
from golem_forge.events.redaction import Redactor
from golem_forge.mcp import lazy_sdk as sdk
from golem_forge.mcp.client.transport import (
    CannotStart,
    ClosingStream,
    Delivery,
    LineTooLong,
    NotSent,
    TransportError,
    WallsFailed,
    current_delivery,
)
from golem_forge.policy.rules.model import expand_groups, is_mirror
from golem_forge.sandbox.errors import SandboxError
from golem_forge.sandbox.process.child import Child
from golem_forge.sandbox.process.monitor import ENDED, REASONS
from golem_forge.sandbox.walls.environment import CERTIFICATE_VARIABLES, Certificates, show_certificates
from golem_forge.sandbox.walls.layout import IS_PRIVATE
from golem_forge.sandbox.walls.model import HostGrant, Job, Level
from golem_forge.sandbox.walls.walls import WalledChild, Walls
from golem_forge.storage.home import ForgeHome
from golem_forge.tools.context import HostRule, no_host_rule

LONGEST_LINE: Final = 16 << 20
_READ_BYTES: Final = 1 << 16
_LINES_PER_TURN: Final = 32
"""Lines that are read before other tasks get a turn."""
_LOGGED: Final = 5
_log = logging.getLogger(__name__)


class LineSplitter:
    """Bytes as they come → whole lines without their ends. No byte of a long line is copied more than twice."""

    def __init__(self, longest: int = LONGEST_LINE) -> None:
        self._longest = longest
        self._begun: list[bytes] = []
        self._size = 0

    def feed(self, data: bytes) -> list[bytes]:
        """Adds data and returns the complete lines. Raises LineTooLong."""
        lines = data.split(b"\n")
        rest = lines.pop()
        if self._size + len(lines[0] if lines else rest) > self._longest:
            raise LineTooLong(f"the server wrote a line of more than {self._longest >> 20} MiB", code="LINE_TOO_LONG")
        if lines and self._begun:
            lines[0] = b"".join((*self._begun, lines[0]))
        if lines:
            self._begun, self._size = [], 0
        if rest:
            self._begun.append(rest)
            self._size += len(rest)
        return lines

    def rest(self) -> bytes:
        """Returns a last line without a line end."""
        begun, self._begun, self._size = self._begun, [], 0
        return b"".join(begun)


class LineReader(ClosingStream):
    """The SDK's ReadStream over one descriptor, which stays the caller's to close."""

    def __init__(
        self,
        descriptor: int,
        *,
        server: str,
        over: Callable[[LineTooLong | None], None],
        answered: Callable[[], Awaitable[None]],
    ) -> None:
        """`over`: told once, when nothing more will be read, and whether that is because of what was. `answered`:
        called when an answer has come, before anybody gets it."""
        self.dropped = 0
        """Lines that were not JSON-RPC."""
        self._server = server
        self._over = over
        self._answered = answered
        self._descriptor = descriptor
        self._splitter = LineSplitter()
        self._lines: deque[bytes] = deque()
        self._ended = False
        self._closed = False
        self._reading = False
        self._taken = 0
        self._waiter: asyncio.Future[None] | None = None
        self._loop = asyncio.get_running_loop()
        self._parsed = sdk.jsonrpc_message_adapter.validate_json
        self._response = sdk.JSONRPCResponse
        self._answer = sdk.JSONRPCResponse.model_validate_json
        self._message = sdk.SessionMessage
        self._end = sdk.anyio.EndOfStream
        self._listen()

    async def receive(self) -> sdk.SessionMessage | Exception:
        while True:
            while self._lines:
                self._taken += 1
                message = self._understood(self._lines.popleft())
                if not self._taken % _LINES_PER_TURN:
                    await asyncio.sleep(0)
                if message is not None:
                    if isinstance(message, self._message) and isinstance(message.message, self._response):
                        await self._answered()
                    return message
            if self._ended or self._closed:
                raise self._end
            self._listen()
            self._waiter = self._loop.create_future()
            try:
                await self._waiter
            finally:
                self._waiter = None

    async def __anext__(self) -> sdk.SessionMessage | Exception:
        try:
            return await self.receive()
        except self._end:
            raise StopAsyncIteration from None

    def __aiter__(self) -> LineReader:
        return self

    async def aclose(self) -> None:
        """Stops delivering lines. Further output is read and dropped, because a server that cannot write its last words
        does not end.
        """
        self.discard()

    def discard(self) -> None:
        """Does the same as `aclose` without waiting."""
        self._closed = True
        self._lines.clear()
        self._listen()
        self._wake()

    def finish(self) -> None:
        """Reads what is still there after the writer has ended; the descriptor may be closed afterwards."""
        while not self._ended and not self._closed and self._read():
            pass
        self._end_reading()

    def _listen(self) -> None:
        if not self._reading and not self._ended:
            self._reading = True
            self._loop.add_reader(self._descriptor, self._readable)

    def _pause(self) -> None:
        if self._reading:
            self._reading = False
            self._loop.remove_reader(self._descriptor)

    def _end_reading(self, error: LineTooLong | None = None) -> None:
        self._pause()
        if not self._ended:
            self._ended = True
            self._wake()
            self._over(error)

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    def _readable(self) -> None:
        """Reads, or pauses if lines are still waiting. Pausing after every line would cost two system calls for each
        answer.
        """
        if self._lines:
            self._pause()
        else:
            self._read()

    def _read(self) -> bool:
        """Reads once. Returns whether there may be more."""
        try:
            data = os.read(self._descriptor, _READ_BYTES)
        except (BlockingIOError, InterruptedError):
            return False
        except OSError:
            data = b""
        if self._closed and data:
            return True
        try:
            lines = self._splitter.feed(data) if data else [self._splitter.rest()]
        except LineTooLong as error:
            self._end_reading(error)
            return False
        self._lines.extend(line for line in lines if line and line != b"\r")
        if not data:
            self._end_reading()
        elif self._lines:
            self._wake()
        return bool(data)

    def _understood(self, line: bytes) -> sdk.SessionMessage | None:
        if b'"result"' in line and b'"method"' not in line and b'"error"' not in line:
            # It can only be an answer, and need not be held against every other kind of message.
            try:
                return self._message(self._answer(line, by_name=False))
            except ValueError:
                pass
        try:
            return self._message(self._parsed(line, by_name=False))
        except ValueError:
            pass
        try:
            return self._message(self._parsed(_repaired_utf8(line), by_name=False))
        except (ValueError, RecursionError):
            self.dropped += 1
        if self.dropped <= _LOGGED:
            # Not what it says: it may be anything, a secret too.
            _log.info("a line of %d bytes from MCP server %s is not JSON-RPC", len(line), self._server)
        return None


def _repaired_utf8(line: bytes) -> bytes:
    """Returns the same JSON in valid UTF-8: programs that cut texts leave half characters, and their answer still
    counts. Raises ValueError or RecursionError if it is no JSON object.
    """
    if (line.isascii() and b"\\u" not in line) or not line.lstrip().startswith(b"{"):
        raise ValueError
    value = json.loads(line.decode("utf-8", "replace"))
    return json.dumps(value, ensure_ascii=False).encode("utf-8", "replace")


class _Line:
    __slots__ = ("begun", "delivery", "left", "waiter")

    def __init__(self, data: bytes, delivery: Delivery | None) -> None:
        self.left = memoryview(data)
        self.delivery = delivery
        """Only a request's."""
        self.begun = False
        self.waiter: asyncio.Future[None] | None = None


class LineWriter(ClosingStream):
    def __init__(self, descriptor: int, *, server: str, before: Callable[[], Awaitable[None]]) -> None:
        """The descriptor does not block, and stays the caller's to close. `before`: called before each request."""
        self._descriptor = descriptor
        self._server = server
        self._before = before
        self._queue: deque[_Line] = deque()
        self._broken = False
        self._writing = False
        self._loop = asyncio.get_running_loop()
        self._request = sdk.JSONRPCRequest
        self._torn = sdk.anyio.BrokenResourceError

    async def send(self, item: sdk.SessionMessage, /) -> None:
        message = item.message
        data = message.model_dump_json(by_alias=True, exclude_unset=True).encode() + b"\n"
        is_request = isinstance(message, self._request)
        line = _Line(data, current_delivery() if is_request else None)
        if self._broken:
            raise self._failure(line)
        if is_request:
            await self._before()
        self._queue.append(line)
        if not self._writing:
            self._write()
        if not line.left:
            return
        if self._broken:
            raise self._failure(line)
        line.waiter = self._loop.create_future()
        try:
            await line.waiter
        except asyncio.CancelledError:
            if not line.begun and line in self._queue:
                self._queue.remove(line)
            raise
        if line.left:
            raise self._failure(line)

    async def aclose(self) -> None:
        self.stop()

    def stop(self) -> None:
        """Stops writing and releases all waiting writers. The descriptor may be closed afterwards."""
        self._broken = True
        self._rest()
        while self._queue:
            self._settle(self._queue.popleft())

    def _failure(self, line: _Line) -> Exception:
        if line.delivery is None or line.begun:
            return self._torn()
        error = NotSent(f"'{self._server}' has ended; the request was not sent", code="NOT_SENT")
        line.delivery.failure = error
        return error

    def _write(self) -> None:
        while self._queue:
            line = self._queue[0]
            try:
                written = os.write(self._descriptor, line.left)
            except (BlockingIOError, InterruptedError):
                self._wait()
                return
            except OSError:
                self.stop()
                return
            if not line.begun:
                line.begun = True
                if line.delivery is not None:
                    line.delivery.sent += 1
            line.left = line.left[written:]
            if not line.left:
                self._queue.popleft()
                self._settle(line)
        self._rest()

    def _wait(self) -> None:
        if not self._writing:
            self._writing = True
            self._loop.add_writer(self._descriptor, self._write)

    def _rest(self) -> None:
        if self._writing:
            self._writing = False
            self._loop.remove_writer(self._descriptor)

    @staticmethod
    def _settle(line: _Line) -> None:
        if line.waiter is not None and not line.waiter.done():
            line.waiter.set_result(None)


STDIN_GRACE_S: Final = 0.3
"""Seconds between the end of its input and SIGTERM."""
STDERR_LINES: Final = 20
_NO_CPU_LIMIT_S: Final = 1 << 31
"""CPU seconds: 68 years."""
_WIDEST: Final = 2000


class StdioTransport:
    def __init__(
        self,
        spec: ServerSpec,
        expanded: ExpandedServer,
        walls: Walls,
        home: ForgeHome,
        redactor: Redactor | None,
        host_rule: HostRule = no_host_rule,
    ) -> None:
        """Prepares one connection; make another transport for the next."""
        self._spec = spec
        self._expanded = expanded
        self._walls = walls
        self._forge_home = home
        self._redactor = redactor
        self._host_rule = host_rule
        self._child: Child | None = None
        self._pipes: ServerPipes | None = None
        self._reader: LineReader | None = None
        self._writer: LineWriter | None = None
        self._leaving = False
        self.gone = asyncio.Event()
        """Nobody of its process tree is left."""
        self.failure: TransportError | None = None
        """Why we ended it, if it was for something it did."""

    async def __aenter__(self) -> sdk.TransportStreams:
        if self._child is not None or self._leaving:
            raise RuntimeError("a transport is for one connection")
        try:
            level = await self._walls.level()
            _check_command(self._spec.command, self._walls, level)
            pipes, walled = await self._started(self._job(level))
        except SandboxError as error:
            raise WallsFailed(error.message, code=error.code) from None
        # From here on nothing waits: what was started is ours to end.
        self._pipes, self._child = pipes, walled.child
        walled.child.ended.add_done_callback(self._over)
        walled.child.ended.add_done_callback(lambda _: walled.report_unread())
        self._reader = LineReader(
            pipes.stdout, server=self._spec.name, over=self._output_over, answered=walled.exchange
        )
        self._writer = LineWriter(pipes.stdin, server=self._spec.name, before=walled.exchange)
        return self._reader, self._writer

    async def __aexit__(self, *_: object) -> None:
        self.start_shutdown()
        with sdk.anyio.CancelScope(shield=True):
            await self.gone.wait()

    def start_shutdown(self) -> None:
        """Begins the shutdown without waiting; `gone` is set at its end. May be called at any time, and again."""
        if self._leaving:
            return
        self._leaving = True
        if self._child is None or self._pipes is None or self._reader is None:
            self.gone.set()
        elif not self.gone.is_set():
            self._close_stdin()
            self._reader.discard()
            asyncio.get_running_loop().call_later(STDIN_GRACE_S, self._child.request_end, ENDED)

    @property
    def dropped_lines(self) -> int:
        """Number of lines on standard output that were not JSON-RPC."""
        return self._reader.dropped if self._reader else 0

    @property
    def pid(self) -> int:
        """The root of its process tree; 0 while there is none."""
        return self._child.pid if self._child else 0

    def stderr_tail(self) -> tuple[str, ...]:
        """Its last lines on standard error: redacted, zones by their addresses, and harmless on a terminal."""
        tail = self._child.tail if self._child else None
        lines = tail.lines(STDERR_LINES) if tail else ()
        clean = [self._redactor.text(line) if self._redactor else line for line in lines]
        return tuple(escape_control_chars(self._walls.redact(line)[:_WIDEST]) for line in clean)

    def why_ended(self) -> str:
        """Describes why it ended; empty while it runs, and if Forge ended it."""
        if self.failure is not None:
            return self.failure.message
        ending = self._child.ending if self._child else None
        if ending is None or ending.code == ENDED:
            return ""
        if ending.code:
            return f"the server was ended: {REASONS.get(ending.code, ending.code)}"
        if ending.signal is not None:
            return f"the server was ended by signal {ending.signal} ({signal.strsignal(ending.signal) or 'unknown'})"
        if ending.exit_code in (126, 127):
            return f"the server's command could not be run (exit code {ending.exit_code})"
        return f"the server ended with exit code {ending.exit_code}"

    async def _started(self, job: Job) -> tuple[ServerPipes, WalledChild]:
        try:
            pipes = ServerPipes()
        except OSError:
            raise CannotStart("Forge has too many files open to start another server", code="NO_DESCRIPTOR") from None
        try:
            stdin, stdout = pipes.theirs
            walled = await self._walls.start(replace(job, stdin=stdin, stdout=stdout))
        except BaseException:
            pipes.close()
            raise
        pipes.close_theirs()
        return pipes, walled

    def _job(self, level: Level) -> Job:
        for name in self._expanded.env:
            if why := variable_problem(name):
                raise CannotStart(f"env: {escape_control_chars(name)} {why}", code="ENV_REFUSED")
        network, env = self._spec.network, self._expanded.env
        try:  # certificates that `env` or `pass_env` name lie outside of what walls show
            found = show_certificates(env, self._forge_home) if level is Level.FULL else Certificates()
        except ForgeError as error:
            raise CannotStart(f"env: {error.message}", code="CERTIFICATES") from None
        if found.env:
            env = {name: value for name, value in env.items() if name not in CERTIFICATE_VARIABLES} | found.env
        return Job(
            argv=(self._spec.command, *self._expanded.args),
            cwd=self._spec.cwd,
            env=env,
            shown=found.shown,
            limits=long_running_limits(self._walls.limits),
            hosts=() if isinstance(network, bool) else tuple(map(self._grant, expand_groups(network))),
            shares_network=network is True,
            home=self._home(),
        )

    def _grant(self, target: str) -> HostGrant:
        """`host` or `host:port`, as the config reader made it: IPv6 in brackets."""
        host, colon, port = target.rpartition(":")
        if not colon or not port.isdigit() or host.endswith(":"):
            host, port = target, "443"
        host = host.strip("[]")
        private = self._host_rule(host, int(port)).private or is_mirror(host, int(port))
        return HostGrant(host, int(port), private)

    def _home(self) -> str:
        made = self._walls.kept_home("golem-forge", "mcp", server_home_name(self._spec))
        forge = os.path.realpath(self._forge_home.path)
        if f"{made}/".startswith(f"{forge}/"):
            text = "Walls could not be built: your cache directory is inside Forge's own. The command was not run."
            raise WallsFailed(f"{text} Set XDG_CACHE_HOME to another directory.", code="WALLS_UNAVAILABLE")
        return made

    def _output_over(self, error: TransportError | None) -> None:
        """Stops writing when the output has ended, since no request could be answered any more."""
        if self._writer is not None:
            self._writer.stop()
        if error is not None:
            self.failure = error
            self.start_shutdown()

    def _close_stdin(self) -> None:
        if self._writer is not None:
            self._writer.stop()
        if self._pipes is not None:
            self._pipes.close_stdin()

    def _over(self, _: object) -> None:
        self._close_stdin()
        if self._reader is not None:
            self._reader.finish()
        if self._pipes is not None:
            self._pipes.close()
        self.gone.set()


def long_running_limits(limits: ResourceLimits) -> ResourceLimits:
    """Returns the limits of a process that serves many calls: memory, processes and files stay limited; time, CPU time
    and output are not, because a call has its own timeouts and only messages and the end of stderr are kept.
    """
    return replace(limits, timeout_s=None, cpu_s=_NO_CPU_LIMIT_S, output=1 << 62)


def server_home_name(spec: ServerSpec) -> str:
    """Two programs may each have a `docs`: what one keeps the other does not see."""
    scope = hashlib.sha256(f"{spec.scope}\0{spec.name}".encode()).hexdigest()
    return f"{spec.name}-{scope[:8]}"


def _check_command(command: str, walls: Walls, level: Level) -> None:
    """Says before the start what a shell inside would only call "not found"."""
    shown = escape_control_chars(command)
    if "/" not in command:
        if not shutil.which(command, path=os.pathsep.join(walls.search_path(command=False))):
            raise CannotStart(
                f"command '{shown}' is not on the PATH that servers get; install it, or name its directory in "
                "sandbox.read and give its full path; if it lies in a zone, add that to the server's `zones` and "
                "name it by its path there, /ZONE/… ('forge doctor' lists what is visible)",
                code="COMMAND_NOT_FOUND",
            )
    elif command.startswith("/") and not _in_a_zone(command, walls):
        if not os.path.exists(command):
            raise CannotStart(f"there is no command '{shown}'", code="COMMAND_NOT_FOUND")
        explained = walls.explain(command)
        if level is Level.FULL and (explained.read is not None or explained.stands == IS_PRIVATE):
            raise CannotStart(
                f"command '{shown}' is not visible inside walls; put its directory on your PATH or in sandbox.read",
                code="COMMAND_NOT_VISIBLE",
            )


def _in_a_zone(path: str, walls: Walls) -> bool:
    try:
        return walls.sandbox.locate(path).zone is not None
    except SandboxError:
        return False


class ServerPipes:
    def __init__(self) -> None:
        """Raises OSError if no descriptor is left."""
        self._ends: dict[str, int] = {}
        self._make("their stdin", "stdin")
        self._make("stdout", "their stdout")
        for ours in (self.stdin, self.stdout):
            os.set_blocking(ours, False)

    @property
    def stdin(self) -> int:
        return self._ends["stdin"]

    @property
    def stdout(self) -> int:
        return self._ends["stdout"]

    @property
    def theirs(self) -> tuple[int, int]:
        """The child's ends, of which it gets copies."""
        return self._ends["their stdin"], self._ends["their stdout"]

    def close_theirs(self) -> None:
        self._close("their stdin", "their stdout")

    def close_stdin(self) -> None:
        self._close("stdin")

    def close(self) -> None:
        self._close(*self._ends)

    def _make(self, reading: str, writing: str) -> None:
        try:
            self._ends[reading], self._ends[writing] = os.pipe()
        except OSError:
            self.close()
            raise

    def _close(self, *ends: str) -> None:
        for end in ends:
            if end in self._ends:
                os.close(self._ends.pop(end))
