"""Servers over HTTP: real sockets on loopback, answers written byte by byte. The SDK's own: test_pool_http.py."""

from __future__ import annotations

import asyncio
import contextlib
import gzip
import json
import logging
import socket
import ssl
import subprocess
import time
import tracemalloc
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

import pytest
from tests.deadlines import LONG, PATIENCE, within
from tests.mcp.conftest import Ground
from tests.mcp.pools import Rig, pooled, until
from tests.tables import table

from golem_forge.config.mcp_spec import ExpandedServer, ServerSpec
from golem_forge.core.errors import ForgeError
from golem_forge.mcp import sdk
from golem_forge.mcp.client import connection
from golem_forge.mcp.client.http_transport import HttpTransport
from golem_forge.mcp.client.transport import (
    BadAddress,
    ConnectionLost,
    Delivery,
    NeedsLogin,
    SessionUnknown,
    Unreachable,
    track_delivery,
)

TOKEN = "canary-token-8812"
MIB = 1 << 20


@dataclass
class Got:
    method: str
    path: str
    headers: dict[str, str]
    body: Any


Writer = asyncio.StreamWriter
Script = Callable[[Got, Writer], Awaitable[None]]


@dataclass
class Raw:
    """An HTTP server that answers what a test writes."""

    script: Script
    got: list[Got] = field(default_factory=list)
    port: int = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/mcp"

    async def serve(self, reader: asyncio.StreamReader, writer: Writer) -> None:
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
            while head := await reader.readuntil(b"\r\n\r\n"):
                first, *lines = head.decode().rstrip().split("\r\n")
                headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in lines)}
                body = await reader.readexactly(int(headers.get("content-length", "0")))
                method, path, _ = first.split(" ")
                got = Got(method, path, headers, json.loads(body) if body else None)
                self.got.append(got)
                await self.script(got, writer)
                await writer.drain()
        writer.close()


def answer(status: str = "200 OK", body: bytes = b"", kind: str = "application/json", **headers: str) -> bytes:
    more = {"content-type": kind, "content-length": str(len(body))} | {
        name.replace("_", "-"): value for name, value in headers.items()
    }
    lines = [f"HTTP/1.1 {status}", *(f"{name}: {value}" for name, value in more.items()), "", ""]
    return "\r\n".join(lines).encode() + body


def result(got: Got, **value: Any) -> bytes:
    return json.dumps({"jsonrpc": "2.0", "id": got.body["id"], "result": value}).encode()


@contextlib.asynccontextmanager
async def serving(script: Script, **options: Any) -> AsyncIterator[Raw]:
    raw = Raw(script)
    server = await asyncio.start_server(raw.serve, "127.0.0.1", 0, **options)
    raw.port = server.sockets[0].getsockname()[1]
    try:
        yield raw
    finally:
        server.close()


def transport(url: str, headers: dict[str, str] | None = None, **keys: Any) -> HttpTransport:
    spec = ServerSpec(name="far", scope="", origin="forge.yaml:1", url=url, **keys)
    return HttpTransport(spec, ExpandedServer(url=url, env={}, headers=headers or {}))


@contextlib.asynccontextmanager
async def dialogue(way: HttpTransport) -> AsyncIterator[sdk.JSONRPCDispatcher[Any]]:
    """Requests without a handshake."""

    async def no_request(context: Any, method: str, params: Any) -> dict[str, Any]:
        raise NotImplementedError

    async def no_notice(context: Any, method: str, params: Any) -> None:
        return None

    async with way as (read, write):
        dispatcher: sdk.JSONRPCDispatcher[Any] = sdk.JSONRPCDispatcher(read, write)
        async with sdk.anyio.create_task_group() as group:
            await group.start(dispatcher.run, no_request, no_notice)
            try:
                yield dispatcher
            finally:
                group.cancel_scope.cancel()


async def ask(dispatcher: sdk.JSONRPCDispatcher[Any], method: str = "x") -> tuple[Any, Delivery]:
    """What came of it: a result, or the error; and what is known."""
    with track_delivery() as delivery:
        try:
            return await asyncio.wait_for(dispatcher.send_raw_request(method, {"n": 1}, {}), PATIENCE), delivery
        except sdk.MCPError as error:
            return error, delivery


async def fine(got: Got, writer: Writer) -> None:
    if got.method == "POST" and got.body and "id" in got.body:
        writer.write(answer(body=result(got, echo=got.body.get("params", {})), mcp_session_id="s1"))
    else:
        writer.write(answer("202 Accepted" if got.method == "POST" else "405 Method Not Allowed"))


def says(*parts: Any, **headers: str) -> Script:
    """The same answer to every request."""

    async def script(got: Got, writer: Writer) -> None:
        writer.write(answer(*parts, **headers))

    return script


async def exchange(script: Script) -> tuple[Any, Delivery, Raw]:
    """One request to such a server: what came of it, what is known, and the server."""
    async with serving(script) as raw, dialogue(transport(raw.url)) as way:
        return *(await ask(way)), raw


# Where it goes


@table(
    "url", ["http://example.test/mcp", "ftp://127.0.0.1/", "https://u:p@x.test/", "http://127.0.0.1.evil.test/", "x"]
)
def test_an_address_that_is_neither_https_nor_this_machine_is_refused(url: str) -> None:
    with pytest.raises(BadAddress) as caught:
        transport(url)
    assert "u:p" not in str(caught.value)


async def test_headers_arrive_and_nothing_is_asked_for_compressed() -> None:
    async with serving(fine) as raw, dialogue(transport(raw.url, {"Authorization": f"Bearer {TOKEN}"})) as way:
        answered, delivery = await ask(way)
        assert answered == {"echo": {"n": 1}}
    assert delivery.failure is None and delivery.sent == 1 and not delivery.unprocessed
    assert raw.got[0].headers["authorization"] == f"Bearer {TOKEN}"
    assert raw.got[0].headers["accept-encoding"] == "identity"


@table("status", ["301 Moved", "302 Found", "303 See Other", "307 Temporary", "308 Permanent"])
async def test_a_redirect_to_elsewhere_gets_nothing(status: str) -> None:
    async with serving(fine) as elsewhere:
        away = says(status, b"x" * 100, "text/html", location=f"{elsewhere.url}?key={TOKEN}#{TOKEN}")
        async with serving(away) as raw, dialogue(transport(raw.url, {"X-Key": TOKEN})) as way:
            error, _ = await ask(way)
        assert isinstance(error, sdk.MCPError)
        assert f"redirects to {elsewhere.url} (HTTP {status[:3]}), which is not followed" in str(error)
        assert elsewhere.got == []
        assert TOKEN not in str(error)


async def test_a_redirect_within_the_origin_is_followed() -> None:
    async def slash(got: Got, writer: Writer) -> None:
        if got.path == "/mcp":
            writer.write(answer("307 Temporary Redirect", b"x" * 1000, location="/mcp/"))
        else:
            await fine(got, writer)

    answered, delivery, _ = await exchange(slash)
    assert answered == {"echo": {"n": 1}}
    assert delivery.sent == 2 and delivery.refused == 1 and not delivery.unprocessed


async def test_a_redirect_to_itself_is_not_sent_again_and_again() -> None:
    error, delivery, raw = await exchange(says("307 Temporary Redirect", location="/mcp"))
    assert f"redirects to {raw.url} (HTTP 307), the 4th redirect in a row" in str(error) and delivery.unprocessed
    assert len([got for got in raw.got if got.method == "POST"]) <= 4


async def test_a_stream_that_breaks_and_is_not_given_again_is_a_call_that_may_have_run() -> None:
    async def broken(got: Got, writer: Writer) -> None:
        if got.method == "POST":
            body = b"id: 1\nretry: 1\ndata:\n\n"
            writer.write(answer(body=body, kind="text/event-stream"))
        else:
            writer.write(answer("405 Method Not Allowed"))

    _, delivery, raw = await exchange(broken)
    assert isinstance(delivery.failure, ConnectionLost) and not delivery.unprocessed
    assert "GET" in {got.method for got in raw.got}


async def test_a_cookie_comes_back_to_who_gave_it() -> None:
    """What keeps a client at one of several servers behind an address."""

    async def sticky(got: Got, writer: Writer) -> None:
        writer.write(answer(body=result(got, came=got.headers.get("cookie", "")), set_cookie="at=three; Path=/"))

    async with serving(sticky) as raw, dialogue(transport(raw.url)) as way:
        first, _ = await ask(way)
        second, _ = await ask(way)
    assert (first, second) == ({"came": ""}, {"came": "at=three"})


async def test_a_certificate_nobody_vouches_for_is_refused(tmp_path: Any) -> None:
    key, cert = tmp_path / "key.pem", tmp_path / "cert.pem"
    subject = ["-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1"]
    curve = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256"]
    make = ["openssl", "req", "-x509", *curve, "-nodes", "-days", "2", "-keyout", key, "-out", cert]
    subprocess.run([*make, *subject], check=True, capture_output=True, timeout=PATIENCE)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(cert, key)
    async with serving(fine, ssl=context) as raw:
        way = transport(f"https://127.0.0.1:{raw.port}/mcp", {"X-Key": TOKEN})
        async with dialogue(way) as dispatcher:
            error, delivery = await ask(dispatcher)
        assert raw.got == []
    assert isinstance(delivery.failure, Unreachable) and delivery.unprocessed
    assert "certificate" in str(error).lower()


# What is known of a request


async def test_nobody_there_means_not_sent() -> None:
    with socket.socket() as place:  # taken, so that nobody else comes to listen there
        place.bind(("127.0.0.1", 0))
        await nobody_answers(transport(f"http://127.0.0.1:{place.getsockname()[1]}/mcp"))


async def nobody_answers(way: HttpTransport) -> None:
    async with dialogue(way) as dispatcher:
        for _ in range(2):  # one failure does not end the connection
            error, delivery = await ask(dispatcher)
            assert isinstance(error, sdk.MCPError) and "cannot be reached" in str(error)
            assert isinstance(delivery.failure, Unreachable) and delivery.unprocessed
        assert isinstance(way.failure, Unreachable)


@pytest.mark.parametrize("status", ["401 Unauthorized", "403 Forbidden"])
@pytest.mark.parametrize("kind", ["text/plain", "application/json"])
async def test_a_login_is_needed(status: str, kind: str) -> None:
    no = b'{"jsonrpc":"2.0","id":1,"error":{"code":5,"message":"who?"}}'
    _, delivery, _ = await exchange(says(status, no, kind))
    assert isinstance(delivery.failure, NeedsLogin)
    assert delivery.failure.message == "run: forge mcp login far"


@table("status", ["404 Not Found", "410 Gone"])
async def test_a_session_the_server_does_not_know_was_not_processed(status: str) -> None:
    async def forgetful(got: Got, writer: Writer) -> None:
        if "mcp-session-id" in got.headers:
            writer.write(answer(status, b'{"jsonrpc":"2.0","id":"server-error","error":{"code":-32600,"message":"?"}}'))
        else:
            await fine(got, writer)

    async with serving(forgetful) as raw, dialogue(transport(raw.url)) as way:
        assert (await ask(way, "initialize"))[0] == {"echo": {"n": 1}}
        _, delivery = await ask(way)
    assert isinstance(delivery.failure, SessionUnknown) and delivery.unprocessed and delivery.sent == 1


async def test_without_a_session_404_is_the_servers_answer() -> None:
    error, delivery, _ = await exchange(says("404 Not Found", b"no", "text/plain"))
    assert error.code == sdk.METHOD_NOT_FOUND
    assert delivery.failure is None and not delivery.unprocessed


@table("body", [b"", b'{"jsonrpc":"2.0","id":1,"result"', b"event"])
async def test_a_connection_that_breaks_after_sending_may_have_run(body: bytes) -> None:
    async def breaks(got: Got, writer: Writer) -> None:
        if body == b"event":
            writer.write(answer(body=b": hello\n\n", kind="text/event-stream", content_length="500"))
        elif body:
            writer.write(answer(body=body, content_length="500"))
        await writer.drain()
        writer.transport.abort() if not body else writer.close()

    async with serving(breaks) as raw, dialogue(transport(raw.url)) as way:
        error, delivery = await ask(way)
        assert isinstance(error, sdk.MCPError)
        assert isinstance(delivery.failure, ConnectionLost) and not delivery.unprocessed
        raw.script = fine
        answered, delivery = await ask(way)  # the next one finds its way
        assert answered == {"echo": {"n": 1}} and delivery.failure is None


async def test_a_stream_that_ends_without_the_answer_may_have_run() -> None:
    _, delivery, _ = await exchange(says("200 OK", b": nothing\n\n", "text/event-stream"))
    assert isinstance(delivery.failure, ConnectionLost) and not delivery.unprocessed


async def test_each_caller_learns_only_of_its_own() -> None:
    async def by_method(got: Got, writer: Writer) -> None:
        if got.body["method"] == "good":
            await asyncio.sleep(0.1)
            await fine(got, writer)
        else:
            writer.write(answer("401 Unauthorized"))

    async with serving(by_method) as raw, dialogue(transport(raw.url)) as way:
        (answered, good), (_, bad) = await asyncio.gather(ask(way, "good"), ask(way, "bad"))
    assert answered == {"echo": {"n": 1}} and good.failure is None and good.sent == 1
    assert isinstance(bad.failure, NeedsLogin) and bad.sent == 1


async def test_a_notification_counts_for_nobody() -> None:
    async with serving(fine) as raw, dialogue(transport(raw.url)) as way:
        with track_delivery() as delivery:
            await way.notify("notifications/x", {})
            await ask(way)
    assert len(raw.got) == 2
    assert delivery.sent == 0


# Answers without measure


def endless(kind: str, piece: bytes, head: bytes = b"") -> Script:
    async def script(got: Got, writer: Writer) -> None:
        lines = f"HTTP/1.1 200 OK\r\ncontent-type: {kind}\r\ntransfer-encoding: chunked\r\n\r\n"
        writer.write(lines.encode() + (b"%x\r\n%s\r\n" % (len(head), head) if head else b""))
        for _ in range(100 * MIB // len(piece)):
            writer.write(b"%x\r\n%s\r\n" % (len(piece), piece))
            await writer.drain()

    return script


@table(
    "script",
    [
        endless("application/json", b" " * MIB),
        endless("text/event-stream", b"x" * MIB, b"data: "),
        endless("text/event-stream", b"data: " + b"x" * (MIB // 2) + b"\n"),
        endless("text/html", b"<br>" * (MIB // 4)),
    ],
)
async def test_a_hundred_mebibytes_are_not_taken(script: Script) -> None:
    async with serving(script) as raw, dialogue(transport(raw.url)) as way:
        tracemalloc.start()
        try:
            error, _ = await ask(way)
            peak = tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
        assert isinstance(error, sdk.MCPError)
        raw.script = fine
        assert (await ask(way))[0] == {"echo": {"n": 1}}
    assert peak < 90 * MIB


async def test_a_length_that_says_it_is_too_much_is_not_read() -> None:
    error, _, _ = await exchange(says(content_length=str(100 * MIB)))
    assert "16 MiB" in str(error)


async def test_a_compressed_answer_is_not_unpacked() -> None:
    error, _, _ = await exchange(says("200 OK", gzip.compress(b" " * MIB), content_encoding="gzip"))
    assert "compressed" in str(error)


@table(
    ("body", "kind"),
    [
        (b"not json", "application/json"),
        (b"[]", "application/json"),
        (b"{}", "application/json"),
        (b"\xff\xfe", "application/json"),
        (b"[" * 100_000, "application/json"),
        (b"data: not json\n\n", "text/event-stream"),
        (b"hello", "text/plain"),
        (b"", ""),
    ],
)
async def test_an_answer_that_is_no_message_ends_only_its_call(body: bytes, kind: str) -> None:
    async with serving(says("200 OK", body, kind)) as raw, dialogue(transport(raw.url)) as way:
        error, _ = await ask(way)
        assert isinstance(error, sdk.MCPError)
        raw.script = fine
        assert (await ask(way))[0] == {"echo": {"n": 1}}


@table("status", ["400 Bad Request", "500 Oops", "503 Busy"])
async def test_an_http_error_is_named(status: str) -> None:
    error, delivery, _ = await exchange(says(status, b"<h1>sorry</h1>", "text/html"))
    assert f"HTTP {status[:3]}" in str(error) and delivery.failure is None


async def test_a_json_rpc_error_at_any_status_is_the_servers_answer() -> None:
    async def says_no(got: Got, writer: Writer) -> None:
        body = {"jsonrpc": "2.0", "id": got.body["id"], "error": {"code": -32602, "message": "wrong params"}}
        writer.write(answer("400 Bad Request", json.dumps(body).encode()))

    error, delivery, _ = await exchange(says_no)
    assert error.code == -32602 and "wrong params" in str(error) and delivery.failure is None


# Time


async def test_a_server_that_never_answers_can_be_left_at_once() -> None:
    async def silent(got: Got, writer: Writer) -> None:
        await asyncio.sleep(LONG)

    async with serving(silent) as raw, contextlib.AsyncExitStack() as stack:
        way = await stack.enter_async_context(dialogue(transport(raw.url)))
        with track_delivery() as delivery:
            asking = asyncio.create_task(way.send_raw_request("x", {}, {}))
            await until(lambda: raw.got)
        with within(1):
            asking.cancel()
            await asyncio.wait({asking})
            await stack.aclose()
    assert asking.cancelled()
    assert delivery.sent == 1 and not delivery.unprocessed


async def test_a_goodbye_that_is_not_answered_is_not_waited_for() -> None:
    async def rude(got: Got, writer: Writer) -> None:
        if got.method == "DELETE":
            await asyncio.sleep(LONG)
        await fine(got, writer)

    async with serving(rude) as raw, contextlib.AsyncExitStack() as stack:
        way = await stack.enter_async_context(dialogue(transport(raw.url)))
        await ask(way, "initialize")
        with within(1):
            await stack.aclose()
    assert [one.method for one in raw.got] == ["POST", "DELETE"]


async def test_a_stream_that_asks_to_be_opened_again_at_once_is_not_obeyed() -> None:
    async def hangs_up(got: Got, writer: Writer) -> None:
        if got.method == "GET":
            writer.write(answer(body=b"retry: 0\nid: 1\ndata:\n\n", kind="text/event-stream"))
        else:
            await fine(got, writer)

    async with serving(hangs_up) as raw, dialogue(transport(raw.url)) as way:
        await ask(way, "initialize")
        began = time.monotonic()
        await way.notify("notifications/initialized", {})
        await until(lambda: [one for one in raw.got if one.method == "GET"])
        await asyncio.sleep(0.5)
        opened = len([one for one in raw.got if one.method == "GET"])
    assert opened <= time.monotonic() - began + 2, "once a second"


async def test_an_address_with_a_token_in_it_is_in_no_log(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG):
        async with serving(fine) as raw, dialogue(transport(f"{raw.url}/{TOKEN}", {"X-Key": TOKEN})) as way:
            await ask(way, "initialize")
            await ask(way)
        raw.script = fine
        async with dialogue(transport(f"{raw.url}/{TOKEN}")) as way:
            await ask(way)
    assert raw.got and TOKEN not in caplog.text


async def test_the_sessions_stream_brings_what_the_server_says_by_itself() -> None:
    said = json.dumps({"jsonrpc": "2.0", "method": "notifications/hello"}).encode()

    async def talks(got: Got, writer: Writer) -> None:
        if got.method == "GET":
            writer.write(answer(body=b"data: " + said + b"\n\n", kind="text/event-stream", content_length="5000"))
            await writer.drain()
            await asyncio.sleep(1)
        else:
            await fine(got, writer)

    async with serving(talks) as raw, transport(raw.url) as (read, write):
        for message in (
            sdk.JSONRPCRequest(jsonrpc="2.0", id=1, method="initialize"),
            sdk.JSONRPCNotification(jsonrpc="2.0", method="notifications/initialized"),
        ):
            await write.send(sdk.SessionMessage(message))
            if message.method == "initialize":
                await asyncio.wait_for(read.receive(), PATIENCE)
        heard = await asyncio.wait_for(read.receive(), PATIENCE)
    assert heard.message.method == "notifications/hello"  # type: ignore[union-attr]


# What a person is told


def legacy_server(call: Script, **at_start: str) -> Script:
    """One of the older protocol with a tool `act`; `call` answers its calls, `at_start` heads the handshake."""

    async def script(got: Got, writer: Writer) -> None:
        method = got.body.get("method") if got.method == "POST" else ""
        if method == "initialize":
            about = {"protocolVersion": "2025-06-18", "serverInfo": {"name": "x", "version": "1"}}
            writer.write(answer(body=result(got, **about, capabilities={"tools": {}}), **at_start))
        elif method == "tools/list":
            writer.write(answer(body=result(got, tools=[{"name": "act", "inputSchema": {"type": "object"}}])))
        elif method == "tools/call":
            await call(got, writer)
        else:
            writer.write(answer("405 Method Not Allowed" if not method or "id" in got.body else "202 Accepted"))

    return script


@contextlib.asynccontextmanager
async def used(ground: Ground, script: Script) -> AsyncIterator[tuple[Raw, Rig]]:
    async with serving(script) as raw:
        spec = ServerSpec(name="far", scope="", origin="forge.yaml:1", url=raw.url)
        async with pooled(ground, spec) as rig:
            yield raw, rig


def one_answer(kind: str, before: bytes = b"") -> Script:
    """Larger than the bound, without saying so first."""
    return endless(kind, b"x" * MIB, before)


@pytest.mark.parametrize(
    "script",
    [
        says(content_length=str(17 * MIB)),
        one_answer("application/json"),
        one_answer("text/event-stream", b"data: "),
        one_answer(
            "text/event-stream", b'data: {"jsonrpc": "2.0", "method": "notifications/x"}\r\n\r\nid: 1\r\ndata: '
        ),
    ],
    ids=["announced", "json", "event", "second event"],
)
async def test_an_answer_cut_off_at_the_bound_may_have_run(ground: Ground, script: Script) -> None:
    async with used(ground, legacy_server(script)) as (raw, rig):
        done = await rig.call("far", "act")
        assert done.error == "far sent an answer larger than 16 MiB, which was cut off; the call may have run"
        assert sum(got.body is not None and got.body["method"] == "tools/call" for got in raw.got) == 1, "never again"
        assert rig.pool.status("far").state == "ready"


@pytest.mark.parametrize("odd", ["s\u00e9ance", "a b", "x" * 2000])
async def test_a_session_id_that_cannot_be_sent_back_is_refused_and_the_server_stays(
    ground: Ground, odd: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def act(got: Got, writer: Writer) -> None:
        writer.write(answer(body=result(got, content=[{"type": "text", "text": "done"}])))

    monkeypatch.setattr(connection, "MAX_ATTEMPTS", 1)
    async with used(ground, legacy_server(act, mcp_session_id=odd)) as (raw, rig):
        with pytest.raises(ForgeError, match="far sent a malformed session id"):
            await rig.pool.wait_connected("far")
        assert rig.pool.status("far").state == "failed"
        raw.script = legacy_server(act, mcp_session_id="plain")
        await rig.pool.reconnect("far")
        assert (await rig.call("far", "act")).result.text == "done"
        assert raw.got[-1].headers["mcp-session-id"] == "plain"


async def test_a_server_that_moved_is_told_with_its_new_address_and_not_tried_again(ground: Ground) -> None:
    moved = says("308 Permanent Redirect", location=f"https://new.example/mcp?key={TOKEN}")
    wanted = r"far redirects to https://new.example/mcp \(HTTP 308\).* write that address as its `url`"
    async with used(ground, moved) as (raw, rig):
        with pytest.raises(ForgeError, match=wanted) as caught:
            await rig.pool.wait_connected("far")
        assert TOKEN not in str(caught.value) and rig.pool.status("far").state == "failed"
        raw.script = legacy_server(moved)
        await rig.pool.reconnect("far")
        done = await rig.call("far", "act")
        assert "the call did not run: far redirects to https://new.example/mcp (HTTP 308)" in done.error
