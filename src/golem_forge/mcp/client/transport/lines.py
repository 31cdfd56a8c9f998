"""Lines: what a server writes to its standard output, as JSON-RPC messages. Takes a descriptor, gives a read stream.

A line that is not JSON-RPC is dropped and counted; one over 16 MiB ends the stream (LineTooLong). Reading stops while
lines wait to be taken, so a server that writes faster than we work waits itself. Threats: output without end or without
an end of line, millions of tiny lines that would leave nobody else a turn, bytes that are no text, nesting without end.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
from collections import deque
from collections.abc import Callable
from types import TracebackType
from typing import TYPE_CHECKING, Final

from golem_forge.mcp.client.transport.errors import LineTooLong

if TYPE_CHECKING:
    from golem_forge.mcp import sdk

LONGEST_LINE: Final = 16 << 20
_AT_ONCE: Final = 1 << 16
_TURN: Final = 32
"""So many lines are taken before somebody else gets a turn."""
_LOGGED: Final = 5
_log = logging.getLogger(__name__)


class Splitter:
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


class LineReader:
    """The SDK's ReadStream over one descriptor, which stays the caller's to close."""

    def __init__(
        self,
        descriptor: int,
        *,
        server: str,
        over: Callable[[LineTooLong | None], None],
        answered: Callable[[], None],
    ) -> None:
        """`over`: told once, when nothing more will be read, and whether that is because of what was. `answered`:
        called when an answer has come, before anybody gets it."""
        from golem_forge.mcp import sdk

        self.dropped = 0
        """Lines that were not JSON-RPC."""
        self._server = server
        self._over = over
        self._answered = answered
        self._descriptor = descriptor
        self._splitter = Splitter()
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
                if not self._taken % _TURN:
                    await asyncio.sleep(0)
                if message is not None:
                    if isinstance(message, self._message) and isinstance(message.message, self._response):
                        self._answered()
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

    async def __aenter__(self) -> LineReader:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()

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
            data = os.read(self._descriptor, _AT_ONCE)
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
            return self._message(self._parsed(_mended(line), by_name=False))
        except (ValueError, RecursionError):
            self.dropped += 1
        if self.dropped <= _LOGGED:
            # Not what it says: it may be anything, a secret too.
            _log.info("a line of %d bytes from MCP server %s is not JSON-RPC", len(line), self._server)
        return None


def _mended(line: bytes) -> bytes:
    """The same JSON in clean UTF-8: programs that cut texts leave half characters, and their answer counts all the
    same. Raises ValueError or RecursionError for what is no JSON object."""
    if (line.isascii() and b"\\u" not in line) or not line.lstrip().startswith(b"{"):
        raise ValueError
    value = json.loads(line.decode("utf-8", "replace"))
    return json.dumps(value, ensure_ascii=False).encode("utf-8", "replace")
