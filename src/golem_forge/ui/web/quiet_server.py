"""The page's HTTP server (`net.server`) with the page's limits and security headers, and its WebSocket connections.

Imported only when a server starts. A WebSocket that is closed and not read to its end is cut off; so is one that pings
faster than it reads, and one that sends a flood of frames (pings, or a message in tiny pieces). A refused handshake
carries the security headers too.
"""

from __future__ import annotations

import asyncio
from typing import Any, Final

from golem_forge.net import server
from golem_forge.net.guard import ASGIApp, RateLimit
from golem_forge.net.server import QuietConfig
from golem_forge.ui.web.sdk import HandshakeResponse, ServerProtocol, WebSocketsSansIOProtocol
from golem_forge.ui.web.security import HEADERS

MAX_CONNECTIONS: Final = 256
"""A quarter of the files that a process may usually have open."""
MAX_FRAME_BYTES: Final = 1 << 20
MAX_UNREAD_BYTES: Final = 4 << 20
PING_SECONDS: Final = 20.0
_MAX_HEADER_BYTES: Final = 1 << 14
_FRAMES_AT_ONCE: Final = 2000
_FRAMES_PER_SECOND: Final = 200
_PIECE_BYTES: Final = 1 << 14
"""Parsed at once: the smallest frames fill it 2,300 times."""


def page_config(app: ASGIApp) -> QuietConfig:
    return QuietConfig(
        app,
        most_connections=MAX_CONNECTIONS,
        makes_room=True,
        refusal_headers=HEADERS,
        h11_max_incomplete_event_size=_MAX_HEADER_BYTES,
        ws=TimedSocketConnection,
        ws_max_size=MAX_FRAME_BYTES,
        ws_ping_interval=PING_SECONDS,
        ws_ping_timeout=PING_SECONDS,
        backlog=128,
    )


class TimedSocketConnection(WebSocketsSansIOProtocol):
    _next_check: asyncio.TimerHandle | None = None

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        # No compression: it costs each page memory, and on loopback it saves nothing.
        self.conn = _Handshake(extensions=[], max_size=self.config.ws_max_size, logger=self.logger)
        self._frames = RateLimit(_FRAMES_AT_ONCE, _FRAMES_PER_SECOND)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self._next_check = self.loop.call_later(server.CHECK_SECONDS, self._check)

    def connection_lost(self, exc: Exception | None) -> None:
        if self._next_check is not None:
            self._next_check.cancel()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        try:
            for at in range(0, len(data), _PIECE_BYTES):
                super().data_received(data[at : at + _PIECE_BYTES])
                if self._frames.exhausted:
                    self.transport.abort()
                    return
        except Exception:
            self.transport.abort()

    def handle_events(self) -> None:
        self._frames.take(len(self.conn.events))
        super().handle_events()

    def handle_ping(self) -> None:
        super().handle_ping()
        if self.transport.get_write_buffer_size() > MAX_UNREAD_BYTES:  # it asks faster than it reads
            self.transport.abort()

    def _check(self) -> None:
        """A closed one whose last bytes nobody takes would stay for ever."""
        if self.transport.is_closing():
            self.transport.abort()
        else:
            self._next_check = self.loop.call_later(server.CHECK_SECONDS, self._check)


class _Handshake(ServerProtocol):
    def reject(self, status: Any, text: str) -> HandshakeResponse:
        response = super().reject(status, text)
        for name, value in HEADERS:
            response.headers[name.decode()] = value.decode()
        return response
