"""LineWriter: JSON-RPC messages to a server's standard input, each a whole line, in order. The SDK's WriteStream.

`send` returns when the line is written. Where it cannot be, a request raises NotSent if not one byte of it was written,
else BrokenResourceError, as everything that is no request does. Whoever stops waiting takes a line that was not begun
back with them; one that was begun is written to its end, or all after it would be garbage. The caller's Delivery learns
when the first byte is out. Threat: a server that reads nothing; then senders wait, and nothing piles up.
"""

from __future__ import annotations

import asyncio
import os
from collections import deque
from collections.abc import Callable
from types import TracebackType
from typing import TYPE_CHECKING

from golem_forge.mcp.client.transport.delivery import Delivery, current
from golem_forge.mcp.client.transport.errors import NotSent

if TYPE_CHECKING:
    from golem_forge.mcp import sdk


class _Line:
    __slots__ = ("begun", "delivery", "left", "waiter")

    def __init__(self, data: bytes, delivery: Delivery | None) -> None:
        self.left = memoryview(data)
        self.delivery = delivery
        """Only a request's."""
        self.begun = False
        self.waiter: asyncio.Future[None] | None = None


class LineWriter:
    def __init__(self, descriptor: int, *, server: str, before: Callable[[], None]) -> None:
        """The descriptor does not block, and stays the caller's to close. `before`: called before each request."""
        from golem_forge.mcp import sdk

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
        line = _Line(data, current() if is_request else None)
        if self._broken:
            raise self._failure(line)
        if is_request:
            self._before()
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

    async def __aenter__(self) -> LineWriter:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()

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
