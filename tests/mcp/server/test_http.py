"""The HTTP server's door, its sessions and its tokens, by requests that no client of ours would send."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator
from typing import Any

import httpx2
import pytest
from tests.deadlines import PATIENCE, within
from tests.mcp.pools import until
from tests.tables import table

from golem_forge.core.errors import ForgeError
from golem_forge.mcp.server import http
from golem_forge.mcp.server.http import HttpOptions, parse_address
from golem_forge.net.server_guard import check_bind

from .conftest import Served, Serving

INITIALIZE = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "initialize",
    "params": {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "by-hand", "version": "0"}},
}
SLOWLY = {"name": "slow", "arguments": {"x": 1200}}
"""A call that takes a minute, for which nobody waits."""
ACCEPT = {"Accept": "application/json, text/event-stream"}


async def post(served: Served, body: Any = INITIALIZE, **headers: str) -> httpx2.Response:
    sent: httpx2.Response = await served.http.post(
        served.url, json=body, headers={**ACCEPT, **served.headers, **headers}
    )
    return sent


async def opened(served: Served) -> dict[str, str]:
    """The header of a new session."""
    answer = await post(served)
    assert answer.status_code == 200, answer.text
    return {"Mcp-Session-Id": answer.headers["mcp-session-id"]}


class TestDoor:
    async def test_allowed_names_and_origins(self, serving: Serving) -> None:
        options = HttpOptions(port=0, allow_hosts=("forge.test",), allow_origins=("https://page.test",))
        async with serving(options) as served:
            assert (await post(served, Host="forge.test")).status_code == 200
            answer = await post(served, Origin="https://page.test")
            assert answer.status_code == 200
            assert answer.headers["access-control-allow-origin"] == "https://page.test"
            assert (await post(served, Origin="https://page.test.evil")).status_code == 403
            asks = {"Access-Control-Request-Method": "POST", "Access-Control-Request-Headers": "authorization"}
            first = await served.http.options(served.url, headers={"Origin": "https://page.test", **asks})
            assert first.status_code == 200 and "mcp-session-id" not in first.headers
            assert (await served.http.options(served.url, headers=asks)).status_code == 401

    async def test_other_paths(self, serving: Serving) -> None:
        async with serving() as served:
            for path in ("/", "/mcp/", "/mcp/../mcp2"):
                elsewhere = served.url.removesuffix("/mcp") + path
                answer = await served.http.post(elsewhere, json=INITIALIZE, headers=served.headers)
                assert answer.status_code == 404

    @pytest.mark.parametrize("chunked", [False, True])
    @pytest.mark.parametrize("version", ["2025-06-18", "2026-07-28"])
    async def test_a_body_over_the_limit(self, serving: Serving, chunked: bool, version: str) -> None:
        async def pieces() -> AsyncIterator[bytes]:
            for _ in range(5):
                yield b" " * (1 << 20)

        headers = {"Content-Type": "application/json", "MCP-Protocol-Version": version, **ACCEPT}
        async with serving() as served:
            big: Any = pieces() if chunked else b" " * ((4 << 20) + 1)
            with contextlib.suppress(httpx2.TransportError):
                assert (
                    await served.http.post(served.url, content=big, headers={**served.headers, **headers})
                ).status_code == 413
            assert (await post(served)).status_code == 200

    def test_a_bind_that_others_reach_needs_a_name(self) -> None:
        for bind in ("0.0.0.0", "::", "192.168.1.5", "example.test"):
            with pytest.raises(ForgeError, match="--allow-host"):
                check_bind(bind, ())
            check_bind(bind, ("forge.test",))
        for bind in ("127.0.0.1", "localhost", "::1", "[::1]", "127.8.8.8"):
            check_bind(bind, ())

    @table(
        ("text", "address"),
        [
            ("127.0.0.1:80", ("127.0.0.1", 80)),
            ("0.0.0.0:8765", ("0.0.0.0", 8765)),
            ("9000", ("127.0.0.1", 9000)),
            (":9000", ("127.0.0.1", 9000)),
            ("localhost", ("localhost", 8765)),
            ("[::1]:90", ("[::1]", 90)),
            ("[::1]", ("[::1]", 8765)),
            ("::1", ("::1", 8765)),
        ],
    )
    def test_addresses(self, text: str, address: tuple[str, int]) -> None:
        assert parse_address(text) == address

    @pytest.mark.parametrize("text", ["a:b", "127.0.0.1:", "127.0.0.1:99999", "x:-1", "x:²", "9" * 5000])
    def test_what_is_no_address(self, text: str) -> None:
        with pytest.raises(ForgeError, match="HOST:PORT"):
            parse_address(text)

    async def test_a_taken_port_is_said(self, serving: Serving) -> None:
        with socket.socket() as taken:
            taken.bind(("127.0.0.1", 0))
            taken.listen()
            with pytest.raises(ForgeError, match=r"cannot listen at 127\.0\.0\.1"):
                async with serving(HttpOptions(port=taken.getsockname()[1])):
                    raise AssertionError("it listens")


class TestSessions:
    async def test_an_unknown_session_and_somebody_elses(self, serving: Serving) -> None:
        ping = {"jsonrpc": "2.0", "id": 2, "method": "ping"}
        async with serving() as served:
            mine, other = await opened(served), f"Bearer {served.tokens.create('other')}"
            assert (await post(served, ping, **mine)).status_code == 200
            assert (await post(served, ping, **{"Mcp-Session-Id": "0" * 32})).status_code == 404
            stolen = await post(served, ping, **mine, Authorization=other)
            assert stolen.status_code == 404

    async def test_closing_a_session_ends_its_calls(self, serving: Serving) -> None:
        async with serving() as served:
            mine = await opened(served)
            call = {"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": SLOWLY}
            calling = asyncio.create_task(post(served, call, **mine))
            await until(lambda: len(served.host.calls) == 1)
            await served.http.delete(served.url, headers={**served.headers, **mine})
            await until(lambda: len(served.host.calls) == 0)
            calling.cancel()
            await asyncio.wait({calling})

    async def test_one_token_cannot_take_every_session(self, serving: Serving, monkeypatch: pytest.MonkeyPatch) -> None:
        """A token has its share, whoever came first; the rest is for whoever comes."""
        monkeypatch.setattr(http, "MOST_SESSIONS", 32)
        ping = {"jsonrpc": "2.0", "id": 2, "method": "ping"}
        async with serving() as served:
            crowd = [await opened(served) for _ in range(32)]
            assert (await post(served)).status_code == 503
            async with served.client("auto") as modern:
                assert not (await modern.call_tool("free", {"x": 1})).is_error, "needs no session, so no place either"
            assert (await post(served, ping, **crowd[0])).status_code == 200, "used again: no longer the oldest"
            other = {"Authorization": f"Bearer {served.tokens.create('other')}"}
            theirs = [await post(served, **other) for _ in range(3)]
            assert [each.status_code for each in theirs] == [200, 200, 503], "two of 32 are its share"
            mine = {"Mcp-Session-Id": theirs[0].headers["mcp-session-id"]}
            assert (await post(served, ping, **mine, **other)).status_code == 200
            assert [(await post(served, ping, **each)).status_code for each in crowd[:4]] == [200, 404, 404, 200]
            assert (await served.http.delete(served.url, headers={**served.headers, **crowd[5]})).status_code == 200
            assert (await post(served, **other)).status_code == 200, "what is free is for whoever comes"
            assert (await post(served)).status_code == 503


class TestTokens:
    async def test_the_journal_names_the_caller(self, serving: Serving) -> None:
        async with serving() as served:
            for mode in ("legacy", "auto"):
                async with served.client(mode) as client:
                    await client.call_tool("free", {"x": 1})
                    await client.call_tool("asks", {"x": 1})
            journal = served.host.session.journal
            assert journal is not None
            journal.flush()
            text = journal.path.read_text()
            assert text.count('"mcp:laptop"') == 4
            assert served.token not in text

    @pytest.mark.parametrize("mode", ["legacy", "auto"])
    async def test_revoking_cuts_off_what_is_open(self, serving: Serving, mode: str) -> None:
        async with serving() as served:
            theirs = served.tokens.create("theirs")
            caught: list[BaseException] = []

            async def use() -> None:
                try:
                    async with served.client(mode, theirs) as client:
                        await client.call_tool(**SLOWLY)
                except BaseException as error:
                    caught.append(error)

            using = asyncio.create_task(use())
            await until(lambda: len(served.host.calls) == 1)
            served.tokens.revoke("theirs")
            assert (await post(served, Authorization=f"Bearer {theirs}")).status_code == 401
            await until(lambda: len(served.host.calls) == 0)
            done, _ = await asyncio.wait({using}, timeout=PATIENCE)
            using.cancel()
            assert done and caught
            assert (await post(served)).status_code == 200

    async def test_a_revoked_tokens_sessions_make_room(self, serving: Serving, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(http, "MOST_SESSIONS", 3)
        async with serving() as served:
            theirs = {"Authorization": f"Bearer {served.tokens.create('theirs')}"}
            for _ in range(3):
                assert (await post(served, **theirs)).status_code == 200
            assert (await post(served)).status_code == 503
            served.tokens.revoke("theirs")
            async with asyncio.timeout(PATIENCE):
                while (await post(served)).status_code != 200:
                    await asyncio.sleep(0.05)


async def test_stopping_ends_running_calls_at_once(serving: Serving) -> None:
    async with contextlib.AsyncExitStack() as stack:
        served = await stack.enter_async_context(serving())
        body = {"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": SLOWLY}
        calling = asyncio.create_task(post(served, body, **await opened(served)))
        await until(lambda: len(served.host.calls) == 1)
        with within(1):
            await stack.aclose()
    assert len(served.host.calls) == 0
    calling.cancel()
    await asyncio.wait({calling})
