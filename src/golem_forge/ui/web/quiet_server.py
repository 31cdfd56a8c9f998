"""uvicorn in the caller's loop: takes no signals, writes no log, stops when told. Imports the gateway `sdk` at its top.

Imported only when a server starts. A connection that sends no request between two checks is closed, and so is one whose
last answer is not read; beyond the limit the connection that has been idle longest is closed. Answers below the guard
(to what is not HTTP) carry the security headers too. Nothing a client sends makes the loop report an error.
Threat: anybody on this machine who opens connections and sends nothing, or nonsense, until no others fit.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Iterator
from typing import Any, Final

from golem_forge.ui.web.sdk import (
    ASGIApp,
    H11Protocol,
    HandshakeResponse,
    ServerProtocol,
    WebSocketsSansIOProtocol,
    uvicorn,
)
from golem_forge.ui.web.security import HEADERS

MAX_FRAME_BYTES: Final = 1 << 20
PING_SECONDS: Final = 20.0
_MAX_HEADER_BYTES: Final = 1 << 14
_TICK_SECONDS: Final = 1.0
_ANSWER_SECONDS: Final = 0.1
_CANCEL_SECONDS: Final = 0.2


def quiet_config(app: ASGIApp) -> uvicorn.Config:
    return uvicorn.Config(
        app,
        lifespan="off",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,  # who writes X-Forwarded-For is nobody we know
        http=TimedHttpConnection,
        h11_max_incomplete_event_size=_MAX_HEADER_BYTES,
        ws=TimedSocketConnection,
        ws_max_size=MAX_FRAME_BYTES,
        ws_ping_interval=PING_SECONDS,
        ws_ping_timeout=PING_SECONDS,
        backlog=128,
    )


class QuietServer(uvicorn.Server):
    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.listening = asyncio.Event()
        self._stopped = asyncio.Event()

    def stop(self) -> None:
        self.should_exit = True
        self._stopped.set()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self.listening.set()

    async def main_loop(self) -> None:
        while not await self.on_tick(0):
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_TICK_SECONDS):
                    await self._stopped.wait()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Nobody new, and a moment for those who are being answered; then requests are cancelled, connections cut."""
        for server in self.servers:
            server.close()
        for connection in list(self.server_state.connections):
            with contextlib.suppress(Exception):  # one in the middle of nonsense is cut all the same
                connection.shutdown()
        await self._done(_ANSWER_SECONDS)
        for task in self.server_state.tasks:
            task.cancel()
        for connection in list(self.server_state.connections):
            connection.transport.abort()
        await self._done(_CANCEL_SECONDS)

    async def _done(self, within: float) -> None:
        if tasks := set(self.server_state.tasks):
            await asyncio.wait(tasks, timeout=within)
        await asyncio.sleep(0)

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


MAX_CONNECTIONS: Final = 256
"""A quarter of the files that a process may usually have open."""
CHECK_SECONDS: Final = 10.0
MAX_UNREAD_BYTES: Final = 4 << 20
_BAD_REQUEST: Final = b"".join(
    [
        b"HTTP/1.1 400 Bad Request\r\nconnection: close\r\ncontent-type: text/plain; charset=utf-8\r\n",
        b"content-length: 29\r\n",
        *(name + b": " + value + b"\r\n" for name, value in HEADERS),
        b"\r\nThis is not an HTTP request.\n",
    ]
)


class TimedHttpConnection(H11Protocol):
    _idle_since: object = None
    """The request that was answered last at the last check, none at first; `self` while one is being answered."""
    _unsent: int = 0
    _next_check: asyncio.TimerHandle | None = None

    @property
    def idle(self) -> bool:
        return self.cycle is None or self.cycle.response_complete

    @property
    def waits_for_client(self) -> bool:
        return self.idle or bool(self.cycle.more_body)

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._opened = self.loop.time()
        self._next_check = self.loop.call_later(CHECK_SECONDS, self._check)
        if len(self.connections) > MAX_CONNECTIONS:
            self._make_room()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_checking()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        try:
            super().data_received(data)
        except Exception:  # a broken request in the middle of its own answer
            self.transport.abort()

    def send_400_response(self, msg: str) -> None:
        if self.idle or not self.cycle.response_started:
            self.transport.write(_BAD_REQUEST)
        self.transport.close()

    def _should_upgrade(self) -> bool:
        """Only what can become a socket; all else is a request like any other."""
        named = {name for name, _ in self.headers}
        bodiless = not named & {b"content-length", b"transfer-encoding"}
        return bodiless and self.scope["method"] == "GET" and super()._should_upgrade()

    def handle_websocket_upgrade(self, event: Any) -> None:
        self._stop_checking()
        super().handle_websocket_upgrade(event)

    def _make_room(self) -> None:
        there = [each for each in self.connections if not each.transport.is_closing()]
        if len(there) > MAX_CONNECTIONS:
            waiting = [each for each in there if isinstance(each, TimedHttpConnection) and each.waits_for_client]
            min(waiting, key=lambda each: each._opened).transport.abort()  # there is one at least: this one

    def _check(self) -> None:
        unsent, before = self.transport.get_write_buffer_size(), self._unsent
        being_taken = 0 < unsent < before or (unsent > 0 and before == 0)
        asked_nothing = self.idle and self.cycle is self._idle_since
        if (asked_nothing or self.transport.is_closing()) and not being_taken:
            self.transport.abort()
            return
        self._unsent = unsent
        self._idle_since = self.cycle if self.idle else self
        self._next_check = self.loop.call_later(CHECK_SECONDS, self._check)

    def _stop_checking(self) -> None:
        if self._next_check is not None:
            self._next_check.cancel()
            self._next_check = None


class TimedSocketConnection(WebSocketsSansIOProtocol):
    _next_check: asyncio.TimerHandle | None = None

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        # No compression: it costs each page memory, and on loopback it saves nothing.
        self.conn = _Handshake(extensions=[], max_size=self.config.ws_max_size, logger=self.logger)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self._next_check = self.loop.call_later(CHECK_SECONDS, self._check)

    def connection_lost(self, exc: Exception | None) -> None:
        if self._next_check is not None:
            self._next_check.cancel()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        try:
            super().data_received(data)
        except Exception:
            self.transport.abort()

    def handle_ping(self) -> None:
        super().handle_ping()
        if self.transport.get_write_buffer_size() > MAX_UNREAD_BYTES:  # it asks faster than it reads
            self.transport.abort()

    def _check(self) -> None:
        """A closed one whose last bytes nobody takes would stay for ever."""
        if self.transport.is_closing():
            self.transport.abort()
        else:
            self._next_check = self.loop.call_later(CHECK_SECONDS, self._check)


class _Handshake(ServerProtocol):
    def reject(self, status: Any, text: str) -> HandshakeResponse:
        response = super().reject(status, text)
        for name, value in HEADERS:
            response.headers[name.decode()] = value.decode()
        return response
