"""Bytes passed between two connections, and the servers that do it.

`ClientServer` serves the clients of listening sockets, each in a task of its own, until it is closed.

`PortForward` passes the connections of a listening socket on to one place, byte by byte (`relay`). It takes listening
sockets and a function that connects. Used in both directions: from an address of this machine to a port of a session's
loopback (`publish_port`), and from a call's own loopback to one service of this machine. Knows nothing of what is sent.
Bounded: connections at once, seconds without a byte. `close` ends everything.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
from abc import ABC, abstractmethod
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


class ClientServer(ABC):
    """Serves the clients of listening sockets, each in a task of its own, until `close`."""

    def __init__(self, limit: int = _PIECE) -> None:
        """`limit`: bytes of what a client sends that are kept until somebody reads them."""
        self._limit = limit
        self._servers: list[asyncio.Server] = []
        self._clients: set[asyncio.Task[None]] = set()
        self._closed = False

    @abstractmethod
    async def _serve_client(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Called for each client, which `_clients` counts already. May raise OSError and EOFError."""

    async def serve(self, listener: socket.socket) -> None:
        """Answers on this socket from now on, and owns it."""
        listener.setblocking(False)
        if self._closed:  # the child is gone already
            listener.close()
            return
        self._servers.append(await asyncio.start_server(self._accept, sock=listener, limit=self._limit))

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
        if self._closed:
            writer.transport.abort()
            return
        self._clients.add(task)
        try:
            await self._serve_client(reader, writer)
        except (OSError, TimeoutError, EOFError):
            pass  # one side went away, or nobody is there
        except asyncio.CancelledError:
            if not self._closed:
                raise
        finally:
            self._clients.discard(task)
            self._drop(writer)

    def _drop(self, writer: asyncio.StreamWriter) -> None:
        writer.transport.abort() if self._closed else writer.close()


class PortForward(ClientServer):
    def __init__(self, connect: Connect, *, seen: Callable[[], None] = lambda: None) -> None:
        """`seen`: told of each connection before a byte of it is passed on."""
        super().__init__()
        self._connect = connect
        self._seen = seen

    async def _serve_client(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if len(self._clients) > MAX_CONNECTIONS:
            writer.transport.abort()
            return
        self._seen()
        async with asyncio.timeout(CONNECT_SECONDS):
            far_reader, far_writer = await self._connect()
        try:
            await relay((reader, far_writer), (far_reader, writer), IDLE_SECONDS)
        finally:
            self._drop(far_writer)


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
