"""JSON-RPC messages as lines on a server's stdout (`LineReader`) and stdin (`LineWriter`): the SDK's two streams.

Reading: a line that is not JSON-RPC is dropped and counted; a line over 16 MiB ends the stream (LineTooLong). Reading
pauses while lines wait to be taken. Writing: `send` returns when the line is written. If it cannot be, a request raises
NotSent when not one byte of it was written, else BrokenResourceError. A cancelled sender withdraws a line that was not
begun; a line that was begun is written to its end. The caller's Delivery learns when the first byte is out.

Threat: output without end or without line ends, millions of tiny lines that starve other tasks, invalid UTF-8, endless
nesting, and a server that reads nothing (senders wait; nothing piles up).
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Final

from golem_forge.mcp import lazy_sdk as sdk
from golem_forge.mcp.client.transport import ClosingStream, Delivery, LineTooLong, NotSent, current_delivery

LONGEST_LINE: Final = 16 << 20
_READ_BYTES: Final = 1 << 16
_LINES_PER_TURN: Final = 32
"""So many lines are taken before somebody else gets a turn."""
_LOGGED: Final = 5
_log = logging.getLogger(__name__)


class LineSplitter:
    """Bytes as they come → whole lines without their ends. No byte of a long line is copied more than twice."""

    def __init__(self, longest: int = LONGEST_LINE) -> None:
        self._longest = longest
        self._begun: list[bytes] = []
        self._size = 0

    def feed(self, data: bytes) -> list[bytes]:
        """Raises LineTooLong."""
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
        """A last line that was not ended."""
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
        """Nobody listens any more. What still comes is read and dropped: a server that cannot get rid of its last words
        does not end."""
        self.discard()

    def discard(self) -> None:
        """The same, without waiting."""
        self._closed = True
        self._lines.clear()
        self._listen()
        self._wake()

    def finish(self) -> None:
        """Nobody writes any more: takes what is still there, as long as somebody listens; the descriptor may be closed
        afterwards."""
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
        """Only a server that writes on while lines wait is no longer listened to: doing so after every line would be
        two system calls for each answer."""
        if self._lines:
            self._pause()
        else:
            self._read()

    def _read(self) -> bool:
        """Whether there may be more."""
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
    """The same JSON in clean UTF-8: programs that cut texts leave half characters, and their answer counts all the
    same. Raises ValueError or RecursionError for what is no JSON object."""
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
        """Nothing more is written; whoever waits learns it. The descriptor may be closed afterwards."""
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
