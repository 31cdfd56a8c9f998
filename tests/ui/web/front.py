"""A real WebServer with little behind its door: a few operations, a socket that echoes, and the page's own files.

    async with front() as served:
        answer = await served.ask("/api/thing", cookie=True)

The login is the real one; `clock` moves its time.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from http.cookies import SimpleCookie
from pathlib import Path
from typing import Any
from unittest import mock

from tests.ui.web.stranger import Answer, request, sent

from golem_forge.net.server_guard import AllowedHosts
from golem_forge.storage.home import ForgeHome
from golem_forge.ui.web import app
from golem_forge.ui.web.api import ApiModel
from golem_forge.ui.web.api import sessions as login_operations
from golem_forge.ui.web.api.operation import ApiCall, operation
from golem_forge.ui.web.app import WebServer, make_app
from golem_forge.ui.web.listen import ListenAddress
from golem_forge.ui.web.sdk import Response, WebSocket
from golem_forge.ui.web.security import LoginStore, RequestGuard
from golem_forge.ui.web.session_registry import SessionRegistry

LARGE = 32 << 20
SOCKET = "/api/sessions/x/stream"
HANDSHAKE = {
    "Connection": "Upgrade",
    "Upgrade": "websocket",
    "Sec-WebSocket-Version": "13",
    "Sec-WebSocket-Key": "dGhlIHNhbXBsZSBub25jZQ==",
}


class Thing(ApiModel):
    text: str = ""


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


@dataclass(slots=True, kw_only=True)
class Front:
    server: WebServer
    login: LoginStore
    clock: Clock
    done: list[str] = field(default_factory=list)
    """What was really done behind the door."""

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def port(self) -> int:
        return self.server._port

    @property
    def connections(self) -> set[Any]:
        """Those that are open now."""
        assert self.server._server is not None
        return self.server._server.server_state.connections

    @property
    def cookie(self) -> str:
        value = self.login.exchange(self.login.new_code())
        return f"forge_{self.port}={value}"

    async def ask(
        self, path: str, *, method: str = "GET", body: str = "", cookie: bool = False, **headers: str
    ) -> Answer:
        given = {"Cookie": self.cookie, **headers} if cookie else headers
        return await sent(self.address, request(self.address, path, method=method, body=body, **given))

    async def log_in(self, code: str, **headers: str) -> Answer:
        given = {"Origin": self.address, **headers}
        return await self.ask("/api/login", method="POST", body=json.dumps({"code": code}), **given)

    async def handshake(self, **headers: str) -> Answer:
        return await self.ask(SOCKET, **HANDSHAKE, **headers)


def cookie_in(answer: Answer) -> Any:
    """The one morsel that was set, or None."""
    found = list(SimpleCookie(answer.headers.get("set-cookie", "")).values())
    return found[0] if found else None


def behind(done: list[str], login: LoginStore, hosts: AllowedHosts, house: SessionRegistry) -> RequestGuard:
    @operation("POST", "/api/thing", "do_thing", tag="x")
    async def do_thing(call: ApiCall, body: Thing) -> Thing:
        done.append(body.text)
        return Thing(text=body.text)

    @operation("GET", "/api/thing", "see_thing", tag="x")
    async def see_thing(call: ApiCall) -> Thing:
        return Thing(text="seen")

    @operation("POST", "/api/upload/{name}", "upload", raw_body="application/octet-stream", tag="x")
    async def upload(call: ApiCall) -> Thing:
        return Thing(text=str(sum([len(piece) async for piece in call.request.stream()])))

    @operation("GET", "/api/broken", "broken", tag="x")
    async def broken(call: ApiCall) -> Thing:
        raise RuntimeError("canary-in-an-error")

    @operation("GET", "/api/large", "large", tag="x")
    async def large(call: ApiCall) -> Response:
        return Response(bytes(LARGE), headers={"server": "x", "content-security-policy": "default-src *"})

    @operation("GET", "/api/stuck", "stuck", tag="x")
    async def stuck(call: ApiCall) -> Thing:
        done.append("stuck")
        try:
            await asyncio.sleep(60)
        finally:
            done.append("freed")
        return Thing()

    async def echo(websocket: WebSocket) -> None:
        await websocket.accept()
        done.append("opened")
        try:
            async for text in websocket.iter_text():
                await websocket.send_text(text)
        finally:
            done.append("closed")

    operations = [do_thing, see_thing, upload, broken, large, stuck, login_operations.log_in, login_operations.log_out]
    return make_app(house, login=login, hosts=hosts, operations=operations, socket=echo)


@contextlib.asynccontextmanager
async def front(reach: ListenAddress | None = None) -> AsyncIterator[Front]:
    clock, done = Clock(), list[str]()
    login = LoginStore(clock)

    def make(house: SessionRegistry, *, login: LoginStore, hosts: AllowedHosts) -> RequestGuard:
        return behind(done, login, hosts, house)

    house = SessionRegistry(ForgeHome(Path("/nowhere")), Path("/nowhere"))
    with mock.patch.object(app, "make_app", make):
        server = WebServer(house, reach or ListenAddress(), login)
        await server.start()
    try:
        yield Front(server=server, login=login, clock=clock, done=done)
    finally:
        await server.stop()
