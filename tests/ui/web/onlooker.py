"""A program that looks at a session over the real socket of a real server, as a page does: no browser, every frame.

    async with served(runtime) as house:
        page = await house.page()
        frame = await page.until("caught_up")

`served` puts a server before a runtime (or before none, then it shows what the home has).
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import httpx2
from tests.deadlines import PATIENCE
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed

from golem_forge.agent.runtime import WorkerRuntime
from golem_forge.storage.home import ForgeHome
from golem_forge.ui.web.app import WebServer
from golem_forge.ui.web.listen import ListenAddress
from golem_forge.ui.web.security import LoginStore
from golem_forge.ui.web.session_registry import SessionRegistry
from golem_forge.ui.web.stream.watched_session import LiveSession


class Page:
    def __init__(self, socket: ClientConnection) -> None:
        self.socket = socket
        self.frames: list[dict[str, Any]] = []
        self._ids = 0

    async def next(self) -> dict[str, Any]:
        async with asyncio.timeout(PATIENCE):
            frame: dict[str, Any] = json.loads(await self.socket.recv())
        self.frames.append(frame)
        return frame

    async def until(self, wanted: str | Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
        """The next frame of this kind, or the next event of this type, or the next that fits."""
        while True:
            frame = await self.next()
            if callable(wanted):
                if wanted(frame):
                    return frame
            elif frame["kind"] == wanted or (frame["kind"] == "event" and frame["event"]["type"] == wanted):
                return frame

    async def act(self, type: str, **data: Any) -> dict[str, Any]:
        """The answer to it."""
        self._ids += 1
        name = f"c{self._ids}"
        await self.socket.send(json.dumps({"id": name, "type": type, "data": data}))
        return await self.until(lambda frame: frame["kind"] == "answer" and frame["id"] == name)

    async def closed(self) -> int:
        """The code it is closed with; what is sent until then is kept."""
        with contextlib.suppress(ConnectionClosed):
            while True:
                await self.next()
        return self.socket.close_code or 0

    @property
    def recorded(self) -> list[int]:
        """The numbers of the recorded events, as they came."""
        return [
            frame["event"]["seq"]
            for frame in self.frames
            if frame["kind"] == "event"
            and frame["event"]["type"] not in ("streaming", "toolOutput", "toolProgress")
            and not frame.get("again")
        ]

    @property
    def last_seq(self) -> int:
        return max(self.recorded, default=0)

    def events(self, type: str) -> list[dict[str, Any]]:
        return [frame["event"] for frame in self.frames if frame["kind"] == "event" and frame["event"]["type"] == type]

    def text(self, request: str) -> str:
        """What a reader of deltas alone has put together."""
        said = ""
        for event in self.events("streaming"):
            data = event["data"]
            if data["requestId"] == request and data["channel"] == "text":
                said = data["whole"] if "whole" in data else said + data["delta"]
        return said


class Served:
    def __init__(self, house: SessionRegistry, server: WebServer, login: LoginStore) -> None:
        self.house = house
        self._server = server
        self._login = login
        self._open = contextlib.AsyncExitStack()

    @property
    def headers(self) -> dict[str, str]:
        cookie = self._login.exchange(self._login.new_code())
        port = self._server.address.rstrip("/").rpartition(":")[2]
        return {"Cookie": f"forge_{port}={cookie}", "Origin": self._server.address.rstrip("/")}

    @property
    def session(self) -> LiveSession:
        return self.house.live_sessions()[0]

    async def page(self, after: int | None = None, session: str = "", *, small: bool = False, **options: Any) -> Page:
        """`small`: with little room for what is not read."""
        if small:
            options["sock"] = _small_socket(int(self._server.address.rstrip("/").rpartition(":")[2]))
        address = self._server.address.rstrip("/").replace("http:", "ws:")
        query = "" if after is None else f"?after={after}"
        headers = self.headers
        connection = await self._open.enter_async_context(
            connect(
                f"{address}/api/sessions/{session or self.house.current}/stream{query}",
                origin=headers.pop("Origin"),  # type: ignore[arg-type]
                additional_headers=headers,
                max_size=4 << 20,
                open_timeout=PATIENCE,
                ping_timeout=PATIENCE,
                close_timeout=0.2,
                **options,
            )
        )
        return Page(connection)

    async def ask(self, method: str, path: str, **options: Any) -> httpx2.Response:
        async with httpx2.AsyncClient(
            base_url=self._server.address, headers=self.headers, verify=False, timeout=PATIENCE
        ) as client:
            return await client.request(method, path, **options)

    async def close(self) -> None:
        await self._open.aclose()
        await self.house.close()
        await self._server.stop()


def _small_socket(port: int) -> socket.socket:
    made = socket.socket()
    made.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    made.connect(("127.0.0.1", port))
    return made


@contextlib.asynccontextmanager
async def served(runtime: WorkerRuntime | None = None, *, home: Path | None = None) -> AsyncIterator[Served]:
    where = runtime.home if runtime is not None else ForgeHome(home or Path("."))
    house, login = SessionRegistry(where, Path(".")), LoginStore()
    server = WebServer(house, ListenAddress(), login)
    await server.start()
    made = Served(house, server, login)
    try:
        if runtime is not None:
            session = LiveSession(runtime, runtime.bus, where.path, Path("."))
            await session.open()
            await house.add(session)
        yield made
    finally:
        await made.close()
