"""uvicorn inside somebody else's loop: it takes no signal, writes no log, and stops as soon as it is told to.

Imported by `serving` alone, when a server starts.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Iterator
from typing import Final

from golem_forge.ui.web.door.connections import ImpatientConnection, SocketConnection
from golem_forge.ui.web.sdk import ASGIApp, uvicorn

MOST_FRAME_BYTES: Final = 1 << 20
PING_SECONDS: Final = 20.0
_MOST_HEADER_BYTES: Final = 1 << 14
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
        http=ImpatientConnection,
        h11_max_incomplete_event_size=_MOST_HEADER_BYTES,
        ws=SocketConnection,
        ws_max_size=MOST_FRAME_BYTES,
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
