"""Gateway to uvicorn in the caller's loop: takes no signals, writes no log, stops when told. Shared by page and MCP.

Imported only when a server starts. A connection that sends no request between two checks is closed, and so is one whose
last answer is not read. One that has its answer may rest for longer than clients keep one, so that no client sends into
a connection that is just being closed. Beyond `most_connections` the one that has been idle longest is closed
(`makes_room`), or the new one. Nothing a client sends makes the loop report an error.
Threat: anybody on this machine who opens connections and sends nothing, or nonsense, until no others fit.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
from collections.abc import Iterator
from typing import Any, Final

import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from golem_forge.net.server_guard import ASGIApp, Headers

CHECK_SECONDS: Final = 10.0
KEEP_ALIVE_SECONDS: Final = 120
"""Clients that are known leave first: Node after 4 s, httpx after 5, Go after 90, curl after 118."""
_TICK_SECONDS: Final = 1.0
_ANSWER_SECONDS: Final = 0.1
_CANCEL_SECONDS: Final = 0.2
_NOT_HTTP: Final = b"This is not an HTTP request.\n"


class QuietConfig(uvicorn.Config):
    def __init__(
        self,
        app: ASGIApp,
        *,
        most_connections: int,
        makes_room: bool = False,
        refusal_headers: Headers = (),
        **more: Any,
    ) -> None:
        """`refusal_headers`: of the answer to what is not HTTP, which no guard sees. `more`: as uvicorn takes it."""
        super().__init__(
            app,
            lifespan="off",
            log_config=None,
            log_level=logging.CRITICAL,
            access_log=False,
            server_header=False,
            proxy_headers=False,  # who writes X-Forwarded-For is nobody we know
            http=TimedHttpConnection,
            timeout_keep_alive=KEEP_ALIVE_SECONDS,
            **more,
        )
        self.most_connections = most_connections
        self.makes_room = makes_room
        self.refusal_headers = refusal_headers


class QuietServer(uvicorn.Server):
    def __init__(self, config: QuietConfig) -> None:
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
        """Leaves signals alone: uvicorn would raise them again once it has ended."""
        yield


class TimedHttpConnection(H11Protocol):
    config: QuietConfig
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
        if len(self.connections) > self.config.most_connections:
            self._keep_limit()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_checking()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        try:
            super().data_received(data)
        except Exception:  # a broken request in the middle of its own answer
            self.transport.abort()

    def send_400_response(self, msg: str) -> None:
        if not self.config.refusal_headers:
            super().send_400_response(msg)
            return
        if self.idle or not self.cycle.response_started:
            headers = (
                (b"connection", b"close"),
                (b"content-type", b"text/plain; charset=utf-8"),
                (b"content-length", b"%d" % len(_NOT_HTTP)),
                *self.config.refusal_headers,
            )
            lines = [b"HTTP/1.1 400 Bad Request", *(name + b": " + value for name, value in headers), b"", _NOT_HTTP]
            self.transport.write(b"\r\n".join(lines))
        self.transport.close()

    def _should_upgrade(self) -> bool:
        """Only what can become a socket; all else is a request like any other."""
        named = {name for name, _ in self.headers}
        bodiless = not named & {b"content-length", b"transfer-encoding"}
        return bodiless and self.scope["method"] == "GET" and super()._should_upgrade()

    def handle_websocket_upgrade(self, event: Any) -> None:
        self._stop_checking()
        super().handle_websocket_upgrade(event)

    def _keep_limit(self) -> None:
        if not self.config.makes_room:
            self.transport.abort()
            return
        there = [each for each in self.connections if not each.transport.is_closing()]
        if len(there) > self.config.most_connections:
            waiting = [each for each in there if isinstance(each, TimedHttpConnection) and each.waits_for_client]
            min(waiting, key=lambda each: each._opened).transport.abort()  # there is one at least: this one

    def _check(self) -> None:
        unsent, before = self.transport.get_write_buffer_size(), self._unsent
        being_taken = 0 < unsent < before or (unsent > 0 and before == 0)
        half_asked = bool(self.conn.trailing_data[0])
        rests = unsent == 0 and not half_asked and self.timeout_keep_alive_task is not None
        asked_nothing = self.idle and self.cycle is self._idle_since and not rests
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
