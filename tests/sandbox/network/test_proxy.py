"""The proxy by itself: what it lets through, what it refuses and records (S38, S39), and its bounds."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
from tests.deadlines import PATIENCE
from tests.tables import table

from golem_forge.sandbox.network import proxy as proxy_module
from golem_forge.sandbox.network.proxy import HostProxy, Upstream, find_grant, user_proxy
from golem_forge.sandbox.walls.model import HostGrant

Opened = Callable[..., Any]
NAMES = {
    "ok.test": "127.0.0.1",
    "loop.test": "127.0.0.1",
    "meta.test": "169.254.169.254",
    "mapped.test": "::ffff:10.0.0.1",
}


class Asked(list[str]):
    async def __call__(self, host: str, port: int) -> tuple[str, ...]:
        self.append(host)
        if host == "both.test":
            return "93.184.216.34", "10.0.0.1"
        if host not in NAMES:
            raise socket.gaierror(socket.EAI_NONAME, "unknown")
        return (NAMES[host],)


@pytest.fixture
def asked() -> Asked:
    return Asked()


@pytest.fixture
async def opened(asked: Asked) -> AsyncIterator[Opened]:
    made: list[HostProxy] = []

    async def open_proxy(*grants: HostGrant, **options: Any) -> tuple[HostProxy, int]:
        listener = socket.create_server(("127.0.0.1", 0))
        port = listener.getsockname()[1]
        proxy = HostProxy(grants, lookup=asked, **options)
        made.append(proxy)
        await proxy.serve(listener)
        return proxy, port

    yield open_proxy
    for proxy in made:
        proxy.close()
    await asyncio.sleep(0)


async def say(port: int, data: bytes, more: bytes = b"") -> bytes:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        writer.write(data)
        answer = b""
        if more:
            answer = await reader.readuntil(b"\r\n\r\n")
            writer.write(more)
        return answer + await asyncio.wait_for(reader.read(), PATIENCE)
    finally:
        writer.close()


def connect_to(host: str, port: int) -> bytes:
    return f"CONNECT {host}:{port} HTTP/1.1\r\nHost: {host}:{port}\r\n\r\n".encode()


async def test_connect_and_absolute_form_reach_a_granted_host(opened: Opened, server: Any) -> None:
    proxy, port = await opened(HostGrant("ok.test", server.port, private=True))
    answer = await say(port, connect_to("ok.test", server.port), b"GET / HTTP/1.0\r\n\r\n")
    assert answer.startswith(b"HTTP/1.1 200 Connection established\r\n\r\nHTTP/1.1 200") and answer.endswith(
        server.body
    )
    head = f"GET http://OK.test.:{server.port}/a?b=1 HTTP/1.1\r\nHost: evil.test\r\nProxy-Connection: keep-alive\r\n"
    answer = await say(port, f"{head}Proxy-Authorization: x\r\nX-Own: 1\r\n\r\n".encode())
    assert answer.endswith(server.body)
    expected = f"GET /a?b=1 HTTP/1.1\r\nHost: ok.test:{server.port}\r\nConnection: close\r\nX-Own: 1\r\n\r\n"
    assert server.heads[1] == expected
    assert proxy.refused == ()


@table("host", ["other.test", "x.ok.test", "evilok.test", "127.0.0.1", "[::1]"])
async def test_s38_another_host_is_refused_recorded_and_not_even_looked_up(
    opened: Opened, server: Any, asked: Asked, host: str
) -> None:
    proxy, port = await opened(HostGrant("ok.test", server.port, private=True))
    answer = await say(port, connect_to(host, server.port))
    assert answer.startswith(b"HTTP/1.1 403 ")
    assert b"Blocked by the sandbox: " in answer
    shown = host.strip("[]")
    assert proxy.refused == ({"host": shown, "port": server.port, "why": "not among the approved hosts"},)
    await say(port, f"GET http://{host}:{server.port}/ HTTP/1.1\r\n\r\n".encode())
    assert len(proxy.refused) == 1  # each once
    assert asked == [] and server.heads == []


async def test_s38_another_port_and_an_empty_list_allow_nothing(opened: Opened, server: Any) -> None:
    proxy, port = await opened(HostGrant("ok.test", 443, private=True))
    assert (await say(port, connect_to("ok.test", server.port))).startswith(b"HTTP/1.1 403 ")
    nothing, port = await opened()
    assert (await say(port, connect_to("ok.test", 443))).startswith(b"HTTP/1.1 403 ")
    assert nothing.refused[0]["host"] == "ok.test" and proxy.refused[0]["port"] == server.port


def test_s38_a_pattern_means_subdomains_only() -> None:
    grants = [HostGrant("*.x.test")]
    assert find_grant(grants, "a.x.test", 443) and find_grant(grants, "b.a.x.test", 443)
    for host in ("x.test", "evilx.test", ".x.test.evil", "a.x.test.evil", ""):
        assert find_grant(grants, host, 443) is None, host
    assert find_grant(grants, "a.x.test", 80) is None
    exact = HostGrant("a.x.test", 443, private=True)
    assert find_grant([HostGrant("*.x.test"), exact], "a.x.test", 443) is exact
    assert find_grant([exact, HostGrant("*.x.test")], "a.x.test", 443) is exact


@table("host", ["loop.test", "meta.test", "mapped.test", "both.test"])
async def test_s39_a_granted_name_with_a_private_address_is_refused(opened: Opened, server: Any, host: str) -> None:
    proxy, port = await opened(HostGrant(host, server.port))
    answer = await say(port, connect_to(host, server.port))
    assert answer.startswith(b"HTTP/1.1 403 ")
    assert proxy.refused == ({"host": host, "port": server.port, "why": "resolves to a private address"},)
    assert server.heads == []


@pytest.fixture
async def persons_proxy() -> AsyncIterator[Any]:
    """A company's: it looks names up by itself, and keeps what it was asked."""
    heads: list[str] = []

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        heads.append((await reader.readuntil(b"\r\n\r\n")).decode())
        refused = heads[-1].startswith("CONNECT never.test")
        writer.write(b"HTTP/1.1 403 No\r\n\r\n" if refused else b"HTTP/1.1 200 OK\r\n\r\n")
        writer.write(b"" if refused else b"through " + await reader.readuntil(b"\n"))
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    server.heads = heads  # type: ignore[attr-defined]
    async with server:
        yield server


async def test_granted_hosts_are_reached_through_the_persons_own_proxy(
    opened: Opened, persons_proxy: Any, server: Any
) -> None:
    at = persons_proxy.sockets[0].getsockname()[1]
    environ = {"HTTPS_PROXY": f"http://me:p%40ss@loop.test:{at}", "NO_PROXY": " .inner.test, ok.test"}
    upstream = user_proxy(environ)
    grants = [HostGrant(host, port) for host in ("far.test", "never.test", "meta.test") for port in (80, 443)]
    proxy, port = await opened(*grants, HostGrant("ok.test", server.port, private=True), upstream=upstream)
    answer = await say(port, connect_to("far.test", 443), b"hello\n")
    assert answer.endswith(b"\r\n\r\nthrough hello\n")
    head = "CONNECT far.test:443 HTTP/1.1\r\nHost: far.test:443\r\nProxy-Authorization: Basic bWU6cEBzcw==\r\n\r\n"
    assert persons_proxy.heads == [head]
    assert (await say(port, b"GET http://far.test/a HTTP/1.1\r\n\r\n")).endswith(b"through GET /a HTTP/1.1\r\n")
    assert b"502 " in await say(port, connect_to("never.test", 443))
    assert (await say(port, connect_to("meta.test", 443))).startswith(b"HTTP/1.1 403 ")
    assert (await say(port, connect_to("other.test", 443))).startswith(b"HTTP/1.1 403 ")
    assert len(persons_proxy.heads) == 3
    await say(port, connect_to("ok.test", server.port), b"GET / HTTP/1.0\r\n\r\n")
    assert len(server.heads) == 1 and len(persons_proxy.heads) == 3
    assert {one["host"] for one in proxy.refused} == {"meta.test", "other.test"}
    assert "bWU6" not in repr(upstream)


@table(
    ("environ", "expected"),
    [
        ({}, None),
        ({"https_proxy": "p.test:3128"}, Upstream(host="p.test", port=3128)),
        ({"ALL_PROXY": "socks5://p.test:1080"}, None),
        ({"HTTPS_PROXY": "https://p.test"}, None),
        ({"HTTPS_PROXY": "http://p.test:port"}, None),
        ({"HTTPS_PROXY": "http://p.test", "no_proxy": "*"}, Upstream(host="p.test", port=80, direct=("*",))),
    ],
)
def test_what_counts_as_the_persons_proxy(environ: dict[str, str], expected: Upstream | None) -> None:
    assert user_proxy(environ) == expected
    assert expected is None or expected.leads_to("a.test") is not bool(expected.direct)


async def test_what_is_no_refusal_is_not_on_record(opened: Opened, unused_port: int) -> None:
    proxy, port = await opened(HostGrant("gone.test", 443), HostGrant("ok.test", unused_port, private=True))
    assert (await say(port, connect_to("gone.test", 443))).startswith(b"HTTP/1.1 502 ")
    assert (await say(port, connect_to("ok.test", unused_port))).startswith(b"HTTP/1.1 502 ")
    assert proxy.refused == ()
    assert proxy.unreached == ("gone.test:443", f"ok.test:{unused_port}")


@table(
    "request_head",
    [
        b"\x16\x03\x01\x02\x00\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: ok.test\r\n\r\n",
        b"GET https://ok.test/ HTTP/1.1\r\n\r\n",
        b"GET http://u:p@ok.test/ HTTP/1.1\r\n\r\n",
        b"CONNECT ok.test HTTP/1.1\r\n\r\n",
        b"CONNECT ok.test:0 HTTP/1.1\r\n\r\n",
        b"CONNECT ok.test:443 HTTP/1.1\r\nbad header\r\n\r\n",
        b"GET http://ok.test/ HTTP/1.1\r\nA: b\nHost: evil\r\n\r\n",
        b"GET http://ok.test/ HTTP/1.1\r\nA: b\r\n folded\r\n\r\n",
    ],
)
async def test_malformed_requests_go_nowhere(opened: Opened, asked: Asked, request_head: bytes) -> None:
    _, port = await opened(HostGrant("ok.test", 443, private=True), HostGrant("ok.test", 80, private=True))
    assert (await say(port, request_head)).startswith(b"HTTP/1.1 400 ")
    assert asked == []


async def test_a_header_flood_and_silence_end(opened: Opened) -> None:
    _, port = await opened()
    flood = b"CONNECT ok.test:443 HTTP/1.1\r\n" + b"A: b\r\n" * 20_000
    assert (await say(port, flood)).startswith(b"HTTP/1.1 431 ")
    _, port = await opened(idle_seconds=0.2)
    assert await say(port, b"CONNECT ok.") == b""


async def test_an_idle_tunnel_ends(opened: Opened) -> None:
    async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()
        writer.close()

    async with await asyncio.start_server(silent, "127.0.0.1", 0) as listening:
        far = listening.sockets[0].getsockname()[1]
        _, port = await opened(HostGrant("ok.test", far, private=True), idle_seconds=0.3)
        assert await say(port, connect_to("ok.test", far)) == b"HTTP/1.1 200 Connection established\r\n\r\n"


async def test_connections_are_bounded_and_close_ends_them_all(opened: Opened, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(proxy_module, "MAX_CONNECTIONS", 2)
    proxy, port = await opened()
    waiting = [await asyncio.open_connection("127.0.0.1", port) for _ in range(2)]
    async with asyncio.timeout(PATIENCE):
        while len(proxy._clients) < 2:
            await asyncio.sleep(0.01)
    assert (await say(port, b"")).startswith(b"HTTP/1.1 503 ")
    proxy.close()
    proxy.close()
    for reader, writer in waiting:
        with contextlib.suppress(ConnectionResetError):
            assert await asyncio.wait_for(reader.read(), PATIENCE) == b""
        writer.close()
    with pytest.raises(ConnectionRefusedError):
        await asyncio.open_connection("127.0.0.1", port)


@pytest.fixture
def unused_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return int(listener.getsockname()[1])
