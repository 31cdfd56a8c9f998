"""Servers over HTTP, both eras, the SDK's own on the other side: restarts, lost connections, who is told of an end."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from tests.deadlines import LONG, PATIENCE, within
from tests.mcp.conftest import Ground
from tests.mcp.pools import pooled, until

from golem_forge.config.mcp_spec import AuthKind, ServerAuth, ServerSpec
from golem_forge.core.decisions import Status
from golem_forge.core.errors import ForgeError
from golem_forge.core.signals import InterruptSignal
from golem_forge.mcp.client import connection
from golem_forge.mcp.client.model import ServerState
from golem_forge.tools.context import ToolContext

BOTH = pytest.mark.parametrize("protocol", ["auto", "legacy"])


class Office:
    """What the server on the other side did."""

    def __init__(self) -> None:
        self.ran: list[str] = []
        self.cancelled = 0
        self.headers: list[dict[str, str]] = []
        self.says = "Acts."
        """Of its tool `act`."""
        self._place = self._bound(0)
        """Held while nobody listens, so that nobody else gets the port."""
        self.port: int = self._place.getsockname()[1]

    def _bound(self, port: int) -> socket.socket:
        made = socket.socket()
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        made.bind(("127.0.0.1", port))
        return made

    def close(self) -> None:
        self._place.close()

    def spec(self, **keys: Any) -> ServerSpec:
        url = f"http://127.0.0.1:{self.port}/mcp"
        return ServerSpec(name="web", scope="", origin="forge.yaml:1", url=url, **keys)

    @asynccontextmanager
    async def open(self, token: str = "") -> AsyncIterator[None]:
        """The server for as long; another one after it knows nothing of the first one's sessions."""
        import uvicorn

        server = uvicorn.Server(uvicorn.Config(self._app(token), log_config=None, timeout_keep_alive=int(PATIENCE)))
        with contextlib.suppress(AttributeError):
            server.install_signal_handlers = lambda: None  # type: ignore[attr-defined]
        task = asyncio.create_task(server.serve(sockets=[self._bound(self.port)]))
        try:
            await until(lambda: server.started)
            yield
        finally:
            server.should_exit = server.force_exit = True
            for connection in list(server.server_state.connections):
                connection.transport.abort()  # type: ignore[union-attr]
            await asyncio.wait_for(task, PATIENCE)

    def _app(self, token: str) -> Any:
        from mcp.server import Server
        from mcp_types import CallToolResult, ListToolsResult, TextContent, Tool

        async def tools(ctx: Any, params: Any) -> ListToolsResult:
            shape = {"type": "object", "properties": {"region": {"type": "string", "x-mcp-header": "Region"}}}
            return ListToolsResult(
                tools=[
                    Tool(name="act", description=self.says, input_schema=shape),
                    Tool(name="wait", description="Waits.", input_schema={"type": "object"}),
                ]
            )

        async def call(ctx: Any, params: Any) -> CallToolResult:
            self.ran.append(params.name)
            try:
                if params.name == "wait":
                    await asyncio.sleep(LONG)
            except asyncio.CancelledError:
                self.cancelled += 1
                raise
            return CallToolResult(content=[TextContent(type="text", text="acted")])

        inner = Server("web", on_list_tools=tools, on_call_tool=call).streamable_http_app()

        async def app(scope: Any, receive: Any, send: Any) -> None:
            if scope["type"] == "http":
                headers = {name.decode(): value.decode() for name, value in scope["headers"]}
                self.headers.append(headers)
                if token and headers.get("authorization") != f"Bearer {token}":
                    await send({"type": "http.response.start", "status": 401, "headers": []})
                    await send({"type": "http.response.body", "body": b""})
                    return
            await inner(scope, receive, send)

        return app


@pytest.fixture
def office() -> Iterator[Office]:
    made = Office()
    yield made
    made.close()


@BOTH
async def test_a_call_over_http_in_both_eras(ground: Ground, office: Office, protocol: Any) -> None:
    async with office.open(), pooled(ground, office.spec(protocol=protocol)) as rig:
        done = await asyncio.gather(*(rig.call("web", "act", region="eu west") for _ in range(5)))
        assert [finished.result.text for finished in done] == ["acted"] * 5
        modern = rig.pool.status("web").protocol == "2026-07-28"
        assert modern is (protocol == "auto")
        mirrored = [headers for headers in office.headers if "mcp-param-region" in headers]
        assert bool(mirrored) is modern


@pytest.mark.usefixtures("quick_tries")
@BOTH
async def test_a_server_that_is_away_is_told_and_a_server_that_came_back_is_used(
    ground: Ground, office: Office, protocol: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection, "MAX_ATTEMPTS", 2)
    monkeypatch.setattr("golem_forge.mcp.client.managed_server.FAILED_PAUSE_S", 0.1)
    async with pooled(ground, office.spec(protocol=protocol)) as rig:
        async with office.open():
            await rig.call("web", "act")
        finished = await rig.pool.call(rig.tool("web", "act"), {}, ToolContext())
        assert finished.status is Status.EXECUTION_FAILED
        assert "web cannot be reached" in finished.error
        assert "may have run" not in finished.error
        assert rig.pool.status("web").state is ServerState.FAILED
        await asyncio.sleep(0.15)
        async with office.open():
            finished = await rig.pool.call(rig.tool("web", "act"), {}, ToolContext())
            assert finished.status is Status.SUCCESS
            assert office.ran == ["act", "act"]


@BOTH
async def test_an_interrupt_ends_the_servers_work_and_the_connection_stays(
    ground: Ground, office: Office, protocol: Any
) -> None:
    signal = InterruptSignal()
    async with office.open(), pooled(ground, office.spec(protocol=protocol)) as rig:
        await rig.pool.wait_connected("web")
        calling = asyncio.create_task(rig.call("web", "wait", ToolContext(cancel=signal)))
        await until(lambda: office.ran)
        await asyncio.sleep(0.1)
        signal.interrupt()
        with within(1):
            finished = await calling
        assert finished.status is Status.INTERRUPTED
        await until(lambda: office.cancelled == 1)
        assert (await rig.call("web", "act")).status is Status.SUCCESS
        assert ServerState.BACKOFF not in rig.states("web")


@BOTH
async def test_a_server_that_dies_during_a_call_may_have_run_it(ground: Ground, office: Office, protocol: Any) -> None:
    async with pooled(ground, office.spec(protocol=protocol)) as rig:
        async with office.open():
            await rig.pool.wait_connected("web")
            calling = asyncio.create_task(rig.call("web", "wait"))
            await until(lambda: office.ran)
            await asyncio.sleep(0.1)
        finished = await asyncio.wait_for(calling, PATIENCE)
        assert finished.error == "connection to web was lost; the call may have run"
        assert office.ran == ["wait"]


async def test_without_a_token_it_needs_a_login_and_says_how(ground: Ground, office: Office) -> None:
    ground.environ = {**ground.environ, "WEB_TOKEN": "canary-token-value", "OLD_TOKEN": "expired-token-value"}
    async with office.open(token="canary-token-value"):
        stale = office.spec(auth=ServerAuth(kind=AuthKind.BEARER, variable="OLD_TOKEN"))
        async with pooled(ground, stale) as rig:
            rig.pool.begin()
            with pytest.raises(ForgeError, match="server 'web' needs a login; run: forge mcp login web"):
                await rig.pool.wait_connected("web")
            assert rig.states("web") == [ServerState.CONNECTING, ServerState.NEEDS_LOGIN]
            assert rig.pool.status("web").error == "run: forge mcp login web"
        async with pooled(ground, office.spec(auth=ServerAuth(kind=AuthKind.BEARER, variable="WEB_TOKEN"))) as rig:
            assert (await rig.call("web", "act")).status is Status.SUCCESS
            assert rig.redactor.text("x canary-token-value") != "x canary-token-value"


async def test_closing_over_http_is_quick_also_when_the_server_is_gone(ground: Ground, office: Office) -> None:
    async with pooled(ground, office.spec(protocol="legacy")) as rig:
        async with office.open():
            await rig.call("web", "act")
        with within(1):
            await rig.pool.aclose()


async def test_a_secret_header_said_back_in_a_description_reaches_no_model(ground: Ground, office: Office) -> None:
    canary = "canary-5be1c0de"
    ground.environ = {**ground.environ, "WEB_KEY": canary}
    office.says = f"Acts with {canary}."
    async with office.open(), pooled(ground, office.spec(headers={"X-Key": "${WEB_KEY}"})) as rig:
        await rig.pool.wait_connected("web")
        assert office.headers[-1]["x-key"] == canary, "it was sent where it belongs"
        described = rig.tool("web", "act").description
        assert described.startswith("Acts with ") and canary not in described
    kept = [file.read_text() for file in ground.home.path.rglob("*") if file.is_file()]
    assert kept and not any(canary in text for text in kept), "neither in the manifest nor in the pins"
