"""HostProxy: the one way out of a child's network namespace, to exactly the granted `host:port` pairs.

Takes a listening socket that only the child can reach. An allowed name is looked up here (the child has no DNS), its
addresses are checked, and the connection goes to a checked address. Everything else gets 403 and is on record in
`refused`. Bounded: connections, head size, idle time. Ends with `close`, and everything in flight with it.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Sequence
from typing import Any, Final

from golem_forge.sandbox.network.grants import granted
from golem_forge.sandbox.network.proxy_request import BadRequest, ProxyRequest, read_request
from golem_forge.sandbox.network.resolve import Lookup, PrivateAddress, connect, lookup, refuse_private
from golem_forge.sandbox.walls.job import HostGrant

MAX_CONNECTIONS: Final = 64
MAX_HEAD: Final = 1 << 16
MAX_RECORDS: Final = 100
IDLE_SECONDS: Final = 60.0
CONNECT_SECONDS: Final = 20.0
_PIECE: Final = 1 << 16
_NOT_GRANTED: Final = "not among the approved hosts"
_PRIVATE: Final = "resolves to a private address"


class _Answer(Exception):
    """Ends a client's request with a status of our own."""

    def __init__(self, status: str, text: str) -> None:
        super().__init__(text)
        body = f"{text}\n".encode()
        head = f"HTTP/1.1 {status}\r\nContent-Type: text/plain; charset=utf-8\r\nContent-Length: {len(body)}\r\n"
        self.data = head.encode() + b"Connection: close\r\n\r\n" + body


class HostProxy:
    def __init__(
        self, grants: Sequence[HostGrant], *, lookup: Lookup = lookup, idle_seconds: float = IDLE_SECONDS
    ) -> None:
        self._grants = tuple(grants)
        self._lookup = lookup
        self._idle_seconds = idle_seconds
        self._server: asyncio.Server | None = None
        self._clients: set[asyncio.Task[None]] = set()
        self._refused: dict[tuple[str, int, str], None] = {}
        self._closed = False

    @property
    def refused(self) -> tuple[dict[str, Any], ...]:
        """`{host, port, why}` for each target that was refused, in order, each once."""
        return tuple({"host": host, "port": port, "why": why} for host, port, why in self._refused)

    async def serve(self, listener: socket.socket) -> None:
        """Answers on this socket from now on, and owns it."""
        listener.setblocking(False)
        if self._closed:  # the child is gone already
            listener.close()
            return
        self._server = await asyncio.start_server(self._accept, sock=listener, limit=MAX_HEAD)

    def close(self) -> None:
        """Ends listening and every connection. May be called twice, or before `serve`."""
        self._closed = True
        if self._server is not None:
            self._server.close()
        for client in tuple(self._clients):
            client.cancel()

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        if self._closed:
            writer.transport.abort()
            return
        crowded = len(self._clients) >= MAX_CONNECTIONS
        self._clients.add(task)
        try:
            if crowded:
                raise _Answer("503 Service Unavailable", f"More than {MAX_CONNECTIONS} connections at once.")
            await self._serve_client(reader, writer)
        except _Answer as answer:
            await _say(writer, answer.data)
        except (OSError, TimeoutError, asyncio.IncompleteReadError):
            pass  # one side went away
        except asyncio.CancelledError:
            if not self._closed:
                raise
        finally:
            self._clients.discard(task)
            writer.transport.abort() if self._closed else writer.close()

    async def _serve_client(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        request = await self._read_head(reader)
        addresses = await self._checked(request)
        try:
            async with asyncio.timeout(CONNECT_SECONDS):
                far_reader, far_writer = await connect(addresses, request.port)
        except OSError:  # a TimeoutError is one too
            raise _Answer("502 Bad Gateway", f"{request.host}:{request.port} does not answer.") from None
        try:
            if request.forward is None:
                writer.write(b"HTTP/1.1 200 Connection established\r\n\r\n")
            else:
                far_writer.write(request.forward)
            await _relay((reader, far_writer), (far_reader, writer), self._idle_seconds)
        finally:
            far_writer.transport.abort() if self._closed else far_writer.close()

    async def _read_head(self, reader: asyncio.StreamReader) -> ProxyRequest:
        try:
            async with asyncio.timeout(self._idle_seconds):
                return read_request(await reader.readuntil(b"\r\n\r\n"))
        except asyncio.LimitOverrunError:
            raise _Answer("431 Request Header Fields Too Large", f"More than {MAX_HEAD} bytes of headers.") from None
        except BadRequest as error:
            raise _Answer("400 Bad Request", str(error)) from None

    async def _checked(self, request: ProxyRequest) -> tuple[str, ...]:
        """The addresses of a granted host. Nothing is looked up for one that was not granted."""
        grant = granted(self._grants, request.host, request.port)
        if grant is None:
            raise self._refusal(request, _NOT_GRANTED)
        try:
            async with asyncio.timeout(CONNECT_SECONDS):
                addresses = await self._lookup(request.host, request.port)
        except (OSError, UnicodeError):
            raise _Answer("502 Bad Gateway", f"Host '{request.host}' was not found.") from None
        if not grant.private:
            try:
                refuse_private(addresses)
            except PrivateAddress:
                raise self._refusal(request, _PRIVATE) from None
        return addresses

    def _refusal(self, request: ProxyRequest, why: str) -> _Answer:
        if len(self._refused) < MAX_RECORDS:
            self._refused[request.host, request.port, why] = None
        return _Answer("403 Forbidden", f"Blocked by the sandbox: {request.host}:{request.port} ({why}).")


async def _say(writer: asyncio.StreamWriter, data: bytes) -> None:
    with contextlib.suppress(OSError, TimeoutError):
        writer.write(data)
        async with asyncio.timeout(5):
            await writer.drain()


_Way = tuple[asyncio.StreamReader, asyncio.StreamWriter]


async def _relay(out: _Way, back: _Way, idle_seconds: float) -> None:
    """Bytes in both directions until both ends are done, or neither said anything for a while."""
    loop = asyncio.get_running_loop()
    async with asyncio.timeout(idle_seconds) as idle:

        async def pass_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            while data := await reader.read(_PIECE):
                idle.reschedule(loop.time() + idle_seconds)
                writer.write(data)
                await writer.drain()
            with contextlib.suppress(OSError, RuntimeError):  # the other side hung up first
                writer.write_eof()

        both = [asyncio.ensure_future(pass_on(*way)) for way in (out, back)]
        try:
            await asyncio.gather(*both)
        finally:
            for each in both:
                each.cancel()
