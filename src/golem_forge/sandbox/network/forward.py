"""PortForward: passes the connections of a listening socket on to one place, byte by byte.

Takes listening sockets and a function that connects. Used in both directions: from an address of this machine to a port
of a session's loopback (`publish_port`), and from a call's own loopback to one service of this machine. Knows nothing
of what is sent. Bounded: connections at once, seconds without a byte. `close` ends everything.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Awaitable, Callable
from typing import Final

MAX_CONNECTIONS: Final = 128
IDLE_SECONDS: Final = 3600.0
"""A page that waits for news of its server says nothing for long."""
CONNECT_SECONDS: Final = 20.0
_PIECE: Final = 1 << 16

Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]
Connect = Callable[[], Awaitable[Streams]]
"""Opens a connection. Raises OSError."""


class PortForward:
    def __init__(self, connect: Connect, *, seen: Callable[[], None] = lambda: None) -> None:
        """`seen`: told of each connection before a byte of it is passed on."""
        self._connect = connect
        self._seen = seen
        self._servers: list[asyncio.Server] = []
        self._clients: set[asyncio.Task[None]] = set()
        self._closed = False

    async def serve(self, listener: socket.socket) -> None:
        """Answers on this socket from now on, and owns it."""
        listener.setblocking(False)
        if self._closed:
            listener.close()
            return
        self._servers.append(await asyncio.start_server(self._accept, sock=listener))

    def close(self) -> None:
        """Stops listening and drops all clients. May be called twice, or before `serve`."""
        self._closed = True
        for server in self._servers:
            server.close()
        for client in tuple(self._clients):
            client.cancel()

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        if self._closed or len(self._clients) >= MAX_CONNECTIONS:
            writer.transport.abort()
            return
        self._clients.add(task)
        try:
            await self._pass_on(reader, writer)
        except (OSError, TimeoutError):
            pass  # one side went away, or nobody is there
        except asyncio.CancelledError:
            if not self._closed:
                raise
        finally:
            self._clients.discard(task)
            writer.transport.abort() if self._closed else writer.close()

    async def _pass_on(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._seen()
        async with asyncio.timeout(CONNECT_SECONDS):
            far_reader, far_writer = await self._connect()
        try:
            await relay((reader, far_writer), (far_reader, writer), IDLE_SECONDS)
        finally:
            far_writer.transport.abort() if self._closed else far_writer.close()


async def relay(out: Streams, back: Streams, idle_seconds: float) -> None:
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
