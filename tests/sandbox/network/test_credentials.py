"""Credentials at the proxy: where the value goes, that it never comes back, and what hostile children and talkative
servers try. A real TLS server answers; every request is bytes of the test's own."""

from __future__ import annotations

import asyncio
import base64
import socket
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from tests.deadlines import PATIENCE
from tests.tables import table

from golem_forge.config.sandbox_block import PROJECT_SECRETS, HostCredential, credential_parts
from golem_forge.core.lazy_dataclass import replace
from golem_forge.sandbox.network import credentials as credentials_module
from golem_forge.sandbox.network import proxy as proxy_module
from golem_forge.sandbox.network.credentials import CredentialUse, HeaderCredentials, Refused, plain_path
from golem_forge.sandbox.network.proxy import HostProxy, Upstream
from golem_forge.sandbox.walls.model import HostGrant

SECRET = "ghp_canary/4711+sesame=="
HERE = "forge-credential-GH_TOKEN"
AUTH = f"Authorization: Bearer {HERE}\r\n"


class Api:
    """A TLS server that keeps what it was sent, and answers with `answer`, or with a text made of the request."""

    def __init__(self) -> None:
        self.received: list[bytes] = []
        self.connections = 0
        self.port = 0
        self.answer: bytes | Callable[[bytes], bytes] = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
        self.pieces = 0
        """Sends the answer in pieces of so many bytes; 0: at once."""
        self.heard = asyncio.Event()
        self.serve_next: Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]] | None = None

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        if self.serve_next is not None:
            return await self.serve_next(reader, writer)
        try:
            head = await reader.readuntil(b"\r\n\r\n")
            lines = head.lower().split(b"\r\n")
            body = b""
            length = next((int(one.split(b":")[1]) for one in lines if one.startswith(b"content-length:")), 0)
            if length:
                body = await reader.readexactly(length)
            elif b"transfer-encoding: chunked" in lines:
                body = await reader.readuntil(b"0\r\n\r\n")
            self.received.append(head + body)
            self.heard.set()
            data = self.answer(head) if callable(self.answer) else self.answer
            step = self.pieces or len(data) or 1
            for place in range(0, len(data), step):
                writer.write(data[place : place + step])
                await writer.drain()
            # Whatever follows would be a second request.
            rest = await reader.read(1 << 16) if not self.pieces else b""
            if rest:
                self.received.append(rest)
        except (asyncio.IncompleteReadError, OSError):
            pass
        finally:
            writer.close()

    @property
    def all(self) -> str:
        return b"".join(self.received).decode("latin-1")


@pytest.fixture
async def api(certificate: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Api]:
    made = Api()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)
    async with await asyncio.start_server(made.serve, "127.0.0.1", 0, ssl=context) as listening:
        made.port = listening.sockets[0].getsockname()[1]
        monkeypatch.setattr(proxy_module, "TLS_PORT", made.port)
        yield made


def entry(**changed: Any) -> HostCredential:
    said: dict[str, Any] = {
        "host": "ok.test",
        "header": "Authorization",
        "variable": "GH_TOKEN",
        "methods": ("GET", "POST"),
        "paths": ("/repos/me/**", "/user"),
    }
    return HostCredential(**said | changed)


class Desk:
    def __init__(self, proxy: HostProxy, port: int, uses: list[CredentialUse]) -> None:
        self.proxy = proxy
        self.port = port
        self.uses = uses

    async def say(self, *data: str | bytes) -> str:
        """What comes back for these bytes, to the end of the connection."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        try:
            for each in data:
                writer.write(each.encode("latin-1") if isinstance(each, str) else each)
                await writer.drain()
            return (await asyncio.wait_for(reader.read(), PATIENCE)).decode("latin-1")
        except ConnectionResetError:
            return ""
        finally:
            writer.close()

    async def get(self, path: str = "/user", more: str = AUTH, method: str = "GET", version: str = "1.1") -> str:
        return await self.say(f"{method} http://ok.test{path} HTTP/{version}\r\nHost: ok.test\r\n{more}\r\n")


@pytest.fixture
async def desks(api: Api, certificate: Path) -> AsyncIterator[Callable[..., Any]]:
    made: list[HostProxy] = []

    async def lookup(host: str, port: int) -> tuple[str, ...]:
        return ("127.0.0.1",)

    def trust() -> ssl.SSLContext:
        return ssl.create_default_context(cafile=f"{certificate}.crt")

    async def make(*entries: HostCredential, value: str = SECRET, told: Any = None, **options: Any) -> Desk:
        uses: list[CredentialUse] = []
        store = HeaderCredentials(entries or (entry(),), {"GH_TOKEN": value}, told or uses.append)
        grants = options.pop("grants", (HostGrant("ok.test", api.port, private=True),))
        proxy = HostProxy(grants, lookup=lookup, credentials=store, tls=options.pop("tls", trust), **options)
        made.append(proxy)
        listener = socket.create_server(("127.0.0.1", 0))
        port = listener.getsockname()[1]
        await proxy.serve(listener)
        return Desk(proxy, port, uses)

    yield make
    for proxy in made:
        proxy.close()
    await asyncio.sleep(0)


@pytest.fixture
async def desk(desks: Callable[..., Any]) -> Desk:
    made: Desk = await desks()
    return made


async def test_the_value_stands_where_the_placeholder_stood(desk: Desk, api: Api) -> None:
    answer = await desk.get("/repos/me/app?page=2", AUTH + "X-Other: forge\r\n")
    assert answer.startswith("HTTP/1.1 200 OK\r\n") and "2\r\nok\r\n0\r\n\r\n" in answer
    [sent] = api.received
    assert sent.startswith(b"GET /repos/me/app?page=2 HTTP/1.1\r\nHost: ok.test\r\n")
    assert f"Authorization: Bearer {SECRET}\r\n".encode() in sent and b"X-Other: forge\r\n" in sent
    assert b"Connection: close" in sent and b"Accept-Encoding: identity" in sent
    assert desk.uses == [CredentialUse("GH_TOKEN", "ok.test", "GET", "/repos/me/app")]


async def test_without_a_placeholder_nothing_is_put_in(desk: Desk, api: Api) -> None:
    for headers in ("", "Authorization: Bearer mine\r\n"):
        assert "200 OK" in await desk.get("/anything/else", headers, method="DELETE")
    assert SECRET not in api.all and "Bearer mine" in api.all and desk.uses == []


async def test_basic_credentials_are_filled_inside(desk: Desk, api: Api) -> None:
    """As `curl -u ada:$GH_TOKEN` writes them."""
    await desk.get(more=f"Authorization: Basic {base64.b64encode(f'ada:{HERE}'.encode()).decode()}\r\n")
    assert f"Authorization: Basic {base64.b64encode(f'ada:{SECRET}'.encode()).decode()}" in api.all


@table(
    ("method", "path"),
    [
        ("DELETE", "/user"),
        ("TRACE", "/user"),
        ("PUT", "/repos/me/app"),
        ("GET", "/"),
        ("GET", "/users"),
        ("GET", "/repos/you/app"),
        ("GET", "/repos/me"),
        ("GET", "/REPOS/me/app"),
        ("GET", "/repos/me/../you"),
        ("GET", "/repos/me/.."),
        ("GET", "/repos/me/./../../you"),
        ("GET", "/repos/me/%2e%2e/you"),
        ("GET", "/repos/me/%2E%2E/you"),
        ("GET", "/repos/me/.%2e/you"),
        ("GET", "/repos/me/..%2fyou"),
        ("GET", "/repos/me/%252e%252e/you"),
        ("GET", "/repos/me/..;/you"),
        ("GET", "/repos/me/;/../you"),
        ("GET", "/repos/me/..\\you"),
        ("GET", "/repos/me/..%5cyou"),
        ("GET", "/repos/me//../../you"),
        ("GET", "//repos/me/app"),
        ("GET", "/repos//me/app"),
        ("GET", "/repos/me/%00"),
        ("GET", "/repos/me/a%0d%0aX-Evil:%201"),
        ("GET", "/repos/me/%u002e"),
        ("GET", "/repos/me/%"),
        ("GET", "/repos/me/%c0%ae%c0%ae/you"),
        ("GET", "/repos/me/%ff"),
        ("GET", "/repos/me/%EF%BC%8E%EF%BC%8E/you"),
        ("GET", "/repos/me/%E2%80%A5/you"),
        ("GET", "/repos/me/a%EF%BC%8F..%EF%BC%8Fyou"),
        ("GET", "/repos/me/a%EF%BC%BCyou"),
        ("GET", "/repos/me/%EF%BC%852e%EF%BC%852e/you"),
        ("GET", "/repos%2fme/app"),
        ("GET", "/%75ser"),
        ("GET", "/user%3f"),
        ("GET", "/user%23"),
        ("GET", "/repos/me/" + "a" * 3000),
    ],
)
async def test_other_methods_and_spellings_of_paths_are_refused(desk: Desk, api: Api, method: str, path: str) -> None:
    answer = await desk.get(path, method=method)
    assert answer.split(" ")[1] in ("400", "403"), answer
    assert api.received == [] and desk.uses == []


def test_a_path_is_compared_decoded() -> None:
    assert plain_path("/repos/me/a%20b?x=../..") == "/repos/me/a b"
    assert plain_path("/repos/me/%C3%A9") == "/repos/me/é"
    assert plain_path("/repos/me/%EF%BC%A1") == "/repos/me/\uff21", "a wide letter is a letter"
    for path in ("", "repos", "*", "/a\x00", "/a b", "/é", "/a|b"):
        with pytest.raises(Refused):
            plain_path(path)


@table(
    "more",
    [
        f"{AUTH}Content-Length: 5\r\nTransfer-Encoding: chunked\r\n",
        f"{AUTH}Content-Length: 5\r\nContent-Length: 6\r\n",
        f"{AUTH}Content-Length: 5\r\nContent_Length: 6\r\n",
        f"{AUTH}Content-Length: +5\r\n",
        f"{AUTH}Content-Length: 5, 5\r\n",
        f"{AUTH}Content-Length: 0x5\r\n",
        f"{AUTH}Transfer-Encoding: gzip, chunked\r\n",
        f"{AUTH}Transfer-Encoding: identity\r\n",
        f"{AUTH}Transfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n",
        f"{AUTH}Transfer-Encoding:\x0bchunked\r\n",
        f"{AUTH}Transfer-Encoding : chunked\r\n",
        f"{AUTH} folded\r\n",
        f"{AUTH}X-A: 1\nGET /admin HTTP/1.1\r\n",
        f"{AUTH}X-A: 1\rX-B: 2\r\n",
        f"{AUTH}{AUTH}",
        f"{AUTH}Authorization: Bearer other\r\n",
        f"{AUTH}authorization_: x\r\nAUTHORIZATION: y\r\n",
        f"{AUTH}X-HTTP-Method-Override: DELETE\r\n",
        f"{AUTH}X_HTTP_Method_Override: DELETE\r\n",
        f"{AUTH}X-Original-URL: /admin\r\n",
        f"{AUTH}X-Rewrite-URL: /admin\r\n",
        f"{AUTH}X-Forwarded-Host: evil.test\r\n",
        f"{AUTH}X-Forwarded-Server: evil.test\r\n",
        f"{AUTH}X-Original-Host: evil.test\r\n",
        f"{AUTH}X-HTTP-Host-Override: evil.test\r\n",
        f"{AUTH}X-Host: evil.test\r\n",
        f"{AUTH}X-Original-Method: DELETE\r\n",
        f"{AUTH}X-Forwarded-Method: DELETE\r\n",
        f"{AUTH}X-Envoy-Original-Path: /admin\r\n",
        f"{AUTH}Destination: /admin\r\n",
        f"X-Echo: {HERE}\r\n",
        f"Cookie: {HERE}\r\n",
        f"Authorization: Bearer {HERE}_2\r\n",
        f"Authorization: Bearer {HERE}\r\nX-Echo: {HERE}\r\n",
    ],
)
async def test_heads_that_two_readers_could_understand_differently_are_refused(desk: Desk, api: Api, more: str) -> None:
    answer = await desk.say(f"POST http://ok.test/user HTTP/1.1\r\n{more}\r\nhello")
    assert answer.split(" ")[1] in ("400", "403"), answer
    assert SECRET not in api.all and desk.uses == []


async def test_what_follows_a_request_never_becomes_one(desk: Desk, api: Api) -> None:
    """Pipelining, a body longer than said, a chunked body with more behind it."""
    second = f"GET http://ok.test/admin HTTP/1.1\r\n{AUTH}\r\n"
    await desk.say(f"GET http://ok.test/user HTTP/1.1\r\n{AUTH}\r\n{second}")
    await desk.say(f"POST http://ok.test/user HTTP/1.1\r\n{AUTH}Content-Length: 5\r\n\r\nhello{second}")
    chunked = f"POST http://ok.test/user HTTP/1.1\r\n{AUTH}Transfer-Encoding: chunked\r\n\r\n"
    await desk.say(f"{chunked}5;x=y\r\nhello\r\n0\r\nX-Trailer: {HERE}\r\n\r\n{second}")
    assert [sent.count(b"HTTP/1.1") for sent in api.received] == [1, 1, 1]
    assert api.received[1].endswith(b"\r\n\r\nhello") and api.received[2].endswith(b"5\r\nhello\r\n0\r\n\r\n")
    assert b"admin" not in b"".join(api.received) and b"X-Trailer" not in b"".join(api.received)
    assert len(desk.uses) == 3


@table("body", ["zz\r\nhello\r\n", "5\r\nhelloX\r\n0\r\n\r\n", "-1\r\n", "5\nhello\n0\n\n", "F" * 70_000])
async def test_a_malformed_body_ends_the_exchange(desk: Desk, api: Api, body: str) -> None:
    answer = await desk.say(f"POST http://ok.test/user HTTP/1.1\r\n{AUTH}Transfer-Encoding: chunked\r\n\r\n{body}")
    assert answer == "" or answer.startswith("HTTP/1.1 400 ")
    assert api.received == []


async def test_the_host_header_and_connection_of_the_child_do_not_count(desk: Desk, api: Api) -> None:
    more = f"{AUTH}Host: evil.test\r\nConnection: keep-alive, X-Drop\r\nX-Drop: 1\r\nKeep-Alive: 5\r\n"
    await desk.say(f"GET http://OK.test./user HTTP/1.1\r\nHost: evil.test\r\n{more}\r\n")
    assert b"\r\nHost: ok.test\r\n" in api.received[0]
    assert b"evil" not in api.received[0] and b"X-Drop" not in api.received[0] and b"Keep-Alive" not in api.received[0]


async def test_an_upgrade_is_not_passed_on(desk: Desk, api: Api) -> None:
    more = "Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABk\r\nTE: trailers\r\n"
    assert "200 OK" in await desk.get(more=AUTH + more)
    assert not any(word in api.all for word in ("h2c", "HTTP2-Settings", "TE:", "Upgrade"))
    api.answer = b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\n\r\n" + SECRET.encode()
    answer = await desk.get()
    assert answer.startswith("HTTP/1.1 502 ") and SECRET not in answer


async def test_connect_to_the_same_host_is_a_plain_tunnel(desk: Desk, api: Api, certificate: Path) -> None:
    """What the child says inside is its own: the placeholder is only a word there."""
    reader, writer = await asyncio.open_connection("127.0.0.1", desk.port)
    writer.write(f"CONNECT ok.test:{api.port} HTTP/1.1\r\n{AUTH}\r\n".encode())
    assert b"200" in await reader.readuntil(b"\r\n\r\n")
    await writer.start_tls(ssl.create_default_context(cafile=f"{certificate}.crt"), server_hostname="ok.test")
    writer.write(f"GET /user HTTP/1.1\r\nHost: ok.test\r\n{AUTH}\r\n".encode())
    assert b"200 OK" in await reader.readuntil(b"\r\n\r\n")
    writer.close()
    assert HERE in api.all and SECRET not in api.all and desk.uses == []


async def test_http_1_0_gets_an_answer_without_chunks(desk: Desk, api: Api) -> None:
    answer = await desk.get(version="1.0")
    assert answer.endswith("Connection: close\r\n\r\nok") and "chunked" not in answer
    chunked = f"{AUTH}Transfer-Encoding: chunked\r\n"
    assert (await desk.get(more=chunked, version="1.0")).startswith("HTTP/1.1 400")


def encodings() -> Iterator[str]:
    raw = SECRET.encode()
    yield SECRET
    yield base64.b64encode(raw).decode()
    yield base64.b64encode(b"x:Bearer " + raw + b" tail").decode()
    yield base64.urlsafe_b64encode(raw).decode()
    yield quote(SECRET, safe="")
    yield "".join(f"%{byte:02x}" for byte in raw)
    yield raw.hex()
    yield raw.hex().upper()
    yield SECRET.replace("/", "\\/")


@table(
    "head",
    [
        "Content-Encoding: gzip\r\nContent-Encoding: identity",
        "Content-Encoding: identity\r\nContent-Encoding: gzip",
        "Content-Encoding: identity, gzip",
        "IM: gzip",
        "Content-Type: application/json; charset=UTF-16LE",
        'Content-Type: text/plain; charset = "utf-32"',
    ],
)
async def test_an_answer_in_which_no_value_is_found_does_not_come_back(desk: Desk, api: Api, head: str) -> None:
    api.answer = f"HTTP/1.1 200 OK\r\n{head}\r\nContent-Length: 3\r\n\r\nxyz".encode()
    answer = await desk.get(more=f"{AUTH}Accept-Charset: utf-16\r\nA-IM: gzip\r\n")
    assert answer.startswith("HTTP/1.1 502 ") and "xyz" not in answer
    assert "utf-16" not in api.all.lower() and "a-im" not in api.all.lower()


@table("encoded", encodings())
@table("framing", ["length", "chunked", "close"])
async def test_a_server_that_echoes_the_header_gives_nothing_away(
    desk: Desk, api: Api, encoded: str, framing: str
) -> None:
    """In its body, a byte a piece, in its headers, and in the words of its status."""
    body = f"you sent {encoded}!".encode()
    head = f"HTTP/1.1 401 {encoded}\r\nX-Echo: {encoded}\r\nWWW-Authenticate: Bearer error={encoded}\r\n"
    if framing == "length":
        data = f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body
    elif framing == "chunked":
        chunks = b"".join(b"1\r\n%c\r\n" % byte for byte in body)
        data = (
            f"{head}Transfer-Encoding: chunked\r\n\r\n".encode()
            + chunks
            + b"0\r\nX-T: "
            + encoded.encode()
            + b"\r\n\r\n"
        )
    else:
        data = f"{head}\r\n".encode() + body
    api.answer, api.pieces = data, 7
    answer = await desk.get()
    assert answer.startswith("HTTP/1.1 401 Unauthorized\r\n")
    joined = "".join(answer.split("\r\n")[1::2]) if framing else answer
    assert encoded not in answer and encoded not in joined and "[secret GH_TOKEN]" in answer
    assert "X-T" not in answer
    body_text = answer.partition("\r\n\r\n")[2]
    assert encoded not in "".join(part for part in body_text.split("\r\n") if len(part) != 1 or part == "!")


async def test_cookies_ranges_and_compression_do_not_come_back(desk: Desk, api: Api) -> None:
    api.answer = b"HTTP/1.1 200 OK\r\nSet-Cookie: session=abc\r\nAlt-Svc: h3\r\nContent-Length: 0\r\n\r\n"
    answer = await desk.get(more=f"{AUTH}Range: bytes=0-3\r\nIf-Range: x\r\nAccept-Encoding: gzip\r\n")
    assert "Set-Cookie" not in answer and "Alt-Svc" not in answer
    assert "Range" not in api.all and "gzip" not in api.all
    for told in (b"206 Partial\r\nContent-Length: 3\r\n\r\nghp", b"200 OK\r\nContent-Encoding: gzip\r\n\r\nxyz"):
        api.answer = b"HTTP/1.1 " + told
        answer = await desk.get()
        assert answer.startswith("HTTP/1.1 502 ") and "not passed on" in answer


@table(
    "answer",
    [
        b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\nhello",
        b"HTTP/1.1 200 OK\r\nX-A: 1\r\n folded\r\n\r\n",
        b"ICY 200 OK\r\n\r\n",
        b"HTTP/1.1 100 Continue\r\n\r\n" * 20,
        b"HTTP/1.1 200 OK\r\nX: " + b"a" * 70_000 + b"\r\n\r\n",
        b"",
    ],
)
async def test_answers_that_cannot_be_understood_are_not_passed_on(desk: Desk, api: Api, answer: bytes) -> None:
    api.answer = answer
    if not answer:
        api.pieces = 1  # it closes at once
    assert (await desk.get()).startswith("HTTP/1.1 502 ")


async def test_an_answer_that_ends_early_does_not_look_complete(desk: Desk, api: Api) -> None:
    api.answer, api.pieces = b"HTTP/1.1 200 OK\r\nContent-Length: 500\r\n\r\nhalf", 1
    assert not (await desk.get()).endswith("0\r\n\r\n")


async def test_a_redirect_is_passed_on_and_not_followed(desk: Desk, api: Api) -> None:
    place = f"https://evil.test/?t={SECRET}"
    api.answer = f"HTTP/1.1 302 Found\r\nLocation: {place}\r\nContent-Length: 0\r\n\r\n".encode()
    answer = await desk.get()
    assert "302 Found" in answer and "Location: https://evil.test/?t=[secret GH_TOKEN]" in answer
    assert api.connections == 1


async def test_head_and_empty_answers_have_no_body(desks: Callable[..., Any], api: Api) -> None:
    desk = await desks(entry(methods=("HEAD", "GET")))
    api.answer = b"HTTP/1.1 200 OK\r\nContent-Length: 500\r\n\r\n"
    assert (await desk.get(method="HEAD")).endswith("\r\n\r\n")
    api.answer = b"HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\nHTTP/1.1 204 No Content\r\n\r\n"
    answer = await desk.get()
    assert answer.startswith("HTTP/1.1 204") and "chunked" not in answer and "Link" not in answer


async def test_a_large_body_goes_both_ways(desk: Desk, api: Api) -> None:
    body = bytes(range(256)) * 2000
    api.answer = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(body) + body
    more = f"{AUTH}Content-Length: {len(body)}\r\nExpect: 100-continue\r\n"
    answer = await desk.say(f"POST http://ok.test/user HTTP/1.1\r\n{more}\r\n", body)
    assert answer.startswith("HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK")
    assert api.received[0].endswith(body) and b"Expect" not in api.received[0]
    data, chunks = answer.partition("\r\n\r\n")[2].partition("\r\n\r\n")[2].encode("latin-1"), b""
    while not data.startswith(b"0\r\n"):
        size, _, data = data.partition(b"\r\n")
        chunks, data = chunks + data[: int(size, 16)], data[int(size, 16) + 2 :]
    assert chunks == body


async def test_the_host_must_be_granted_and_public(desks: Callable[..., Any], api: Api) -> None:
    """A credential is no reason to reach a host."""
    for grants, why in (((), "not among"), ((HostGrant("ok.test", api.port),), "private address")):
        desk = await desks(grants=grants)
        answer = await desk.get()
        assert answer.startswith("HTTP/1.1 403 ") and why in answer
        assert desk.uses == [] and api.connections == 0
        assert [one["host"] for one in desk.proxy.refused] == ["ok.test"]


async def test_a_certificate_that_is_not_trusted_ends_it(desks: Callable[..., Any], api: Api) -> None:
    desk = await desks(tls=ssl.create_default_context)
    answer = await desk.get()
    assert answer.startswith("HTTP/1.1 502 ") and "was not asked" in answer and api.received == []


async def test_through_the_persons_own_proxy(desks: Callable[..., Any], api: Api) -> None:
    seen: list[bytes] = []

    async def relay(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        seen.append(await reader.readuntil(b"\r\n\r\n"))
        far_reader, far_writer = await asyncio.open_connection("127.0.0.1", api.port)
        writer.write(b"HTTP/1.1 200 OK\r\n\r\n")

        async def copy(one: asyncio.StreamReader, other: asyncio.StreamWriter) -> None:
            while data := await one.read(1 << 16):
                seen.append(data)
                other.write(data)
            other.close()

        await asyncio.gather(copy(reader, far_writer), copy(far_reader, writer), return_exceptions=True)

    async with await asyncio.start_server(relay, "127.0.0.1", 0) as listening:
        port = listening.sockets[0].getsockname()[1]
        desk = await desks(upstream=Upstream(host="proxy.test", port=port))
        assert "200 OK" in await desk.get()
    assert f"Bearer {SECRET}" in api.all
    assert seen[0].startswith(f"CONNECT ok.test:{api.port} ".encode())
    assert SECRET.encode() not in b"".join(seen)


async def test_a_use_that_cannot_be_recorded_does_not_happen(desks: Callable[..., Any], api: Api) -> None:
    def fails(use: CredentialUse) -> None:
        raise OSError("the disk is full")

    answer = await (await desks(told=fails)).get()
    assert answer.startswith("HTTP/1.1 502 ") and "recorded" in answer and api.connections == 0


async def test_requests_are_counted_with_and_without_a_placeholder(
    desk: Desk, api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(credentials_module, "MOST_REQUESTS", 3)
    answers = [(await desk.get("/user", header)).split(" ")[1] for header in (AUTH, "", AUTH, "", AUTH)]
    assert answers == ["200", "200", "200", "429", "429"] and len(desk.uses) == 2


@table("guess", [SECRET[:10], SECRET[:9] + "#", SECRET[:-1], "x" * 23])
async def test_the_time_of_an_echo_says_nothing_of_the_value(desk: Desk, api: Api, guess: str) -> None:
    """The server streams back what the child itself sent. A line is passed on at once, what follows it at the end."""
    child_saw_the_line = asyncio.Event()

    async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(f"HTTP/1.1 200 OK\r\n\r\n{guess}\n.{guess}".encode())
        await child_saw_the_line.wait()
        writer.write(b"!")
        writer.close()

    api.serve_next = echo
    reader, writer = await asyncio.open_connection("127.0.0.1", desk.port)
    writer.write(b"GET http://ok.test/echo HTTP/1.1\r\nHost: ok.test\r\n\r\n")
    async with asyncio.timeout(PATIENCE):
        await reader.readuntil(b"\r\n\r\n")
        first = await reader.readuntil(guess.encode() + b"\n\r\n")
        child_saw_the_line.set()
        rest = await reader.read()
    writer.close()
    assert first == b"%x\r\n%s\n\r\n" % (len(guess) + 1, guess.encode())
    assert rest == b"%x\r\n.%s!\r\n0\r\n\r\n" % (len(guess) + 2, guess.encode())


@table("value", ["", "short", "two\r\nlines-of-it", "ümlaut-secret", "x" * 20_000])
async def test_a_value_that_cannot_be_kept_out_is_not_used(desks: Callable[..., Any], api: Api, value: str) -> None:
    answer = await (await desks(value=value)).get()
    assert answer.startswith("HTTP/1.1 502 ") and "GH_TOKEN is not set" in answer and api.connections == 0


async def test_entries_are_told_apart_by_host_header_and_path(desks: Callable[..., Any], api: Api) -> None:
    desk = await desks(
        entry(paths=("/a/*",), methods=("GET",)),
        entry(paths=("/b",), methods=("POST",), header="X-Api-Key"),
        entry(host="other.test"),
    )
    assert "200 OK" in await desk.get("/a/x")
    assert "200 OK" in await desk.get("/b", f"X-API-KEY: {HERE}\r\n", method="POST")
    assert f"X-Api-Key: {SECRET}" in api.all
    for path, more, method in (
        ("/a/x/y", AUTH, "GET"),
        ("/b", AUTH, "POST"),
        ("/b", f"X-Api-Key: {HERE}\r\n", "GET"),
        ("/user", AUTH, "GET"),
    ):
        answer = await desk.get(path, more, method=method)
        assert answer.startswith("HTTP/1.1 403 ") and "sandbox.credentials" in answer, (path, answer)


def test_what_a_server_may_answer_with_alone_counts_as_the_value() -> None:
    assert credential_parts("Bearer abcdefghij") == ("Bearer abcdefghij", "abcdefghij")
    basic = base64.b64encode(b"ada:longpassword").decode()
    assert credential_parts(f"Basic {basic}") == (f"Basic {basic}", basic, "ada:longpassword", "longpassword")
    assert credential_parts("token abc") == ("token abc",)


def test_no_text_of_ours_holds_the_value() -> None:
    store = HeaderCredentials((entry(),), {"GH_TOKEN": SECRET}, lambda use: None)
    assert SECRET not in repr(store) + repr(entry())
    with pytest.raises(Refused) as caught:
        store.prepare("ok.test", "DELETE", "/user", [("Authorization", HERE)], minor="1")
    assert SECRET not in str(caught.value)


def test_a_secret_of_the_project_is_never_the_variable_of_that_name() -> None:
    """The account of a runner may have one, and another project's session too."""
    wanted = replace(entry(), of_project=True)
    header = [("Authorization", f"Bearer {HERE}")]
    of_the_account = {"GH_TOKEN": "of-the-account-4711"}
    with pytest.raises(Refused):
        HeaderCredentials((wanted,), of_the_account, lambda use: None).prepare(
            "ok.test", "GET", "/user", header, minor="1"
        )
    before = PROJECT_SECRETS.set({"GH_TOKEN": SECRET})
    try:
        store = HeaderCredentials((wanted,), of_the_account, lambda use: None)
    finally:
        PROJECT_SECRETS.reset(before)
    sent = store.prepare("ok.test", "GET", "/user", header, minor="1").head.decode()
    assert f"Bearer {SECRET}" in sent and "of-the-account" not in sent
