"""The door, by requests no page of ours would send: other hosts, other origins, no cookie, nonsense."""

from __future__ import annotations

import asyncio
import contextlib
import json

import pytest
from tests.deadlines import PATIENCE
from tests.ui.web.front import HANDSHAKE, SOCKET, Front, front
from tests.ui.web.stranger import Answer, request, sent

from golem_forge.net import server_guard
from golem_forge.ui.web.listen import ListenAddress

CSP = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "font-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)


def check_headers(answer: Answer) -> None:
    expected = {
        "content-security-policy": CSP,
        "x-content-type-options": "nosniff",
        "referrer-policy": "no-referrer",
        "cache-control": "no-store",
        "cross-origin-opener-policy": "same-origin",
        "cross-origin-resource-policy": "same-origin",
    }
    assert {name: answer.headers.get(name) for name in expected} == expected
    assert "server" not in answer.headers
    assert "access-control-allow-origin" not in answer.headers


class TestHost:
    @pytest.mark.parametrize("name", ["127.0.0.1", "localhost", "LOCALHOST", "[::1]"])
    async def test_ours(self, served: Front, name: str) -> None:
        assert (await served.ask("/", Host=f"{name}:{served.port}")).status == 200

    async def test_others(self, served: Front) -> None:
        """DNS rebinding: the page's own name, which points here."""
        bad = [
            "evil.test",
            f"evil.test:{served.port}",
            "127.0.0.1",
            "127.0.0.1:1",
            f"127.0.0.1.evil.test:{served.port}",
        ]
        bad += [f"localhost.:{served.port}", f"x@127.0.0.1:{served.port}", f"127.0.0.1:{served.port}²", "0.0.0.0"]
        for host in bad:
            for path, cookie in (("/", False), ("/api/thing", True), ("/api/nothing", False)):
                answer = await served.ask(path, Host=host, cookie=cookie)
                assert answer.status == 421, (host, path)
                check_headers(answer)
            assert (await served.handshake(Host=host, Cookie=served.cookie)).status == 421
            assert (await served.log_in(served.login.new_code(), Host=host)).status == 421

    async def test_allowed_ones(self) -> None:
        async with front(ListenAddress(allow_hosts=("forge.test", "other.test:99"))) as served:
            for host, status in [
                ("forge.test", 200),
                ("forge.test:5", 200),
                ("other.test:99", 200),
                ("other.test", 421),
            ]:
                assert (await served.ask("/api/thing", Host=host, cookie=True)).status == status
            proxied = {"Host": "forge.test", "Origin": "https://forge.test"}
            assert (await served.ask("/api/thing", method="POST", body="{}", cookie=True, **proxied)).status == 200

    async def test_a_host_that_is_absent_or_comes_twice(self, served: Front) -> None:
        own = f"Host: 127.0.0.1:{served.port}\r\n"
        for heads in ("", own + own, own + "Host: evil.test\r\n"):
            answer = await sent(served.address, f"GET / HTTP/1.1\r\n{heads}\r\n")
            assert answer.status in {400, 421}
            check_headers(answer)
        assert (await sent(served.address, "GET / HTTP/1.0\r\n\r\n")).status == 421

    async def test_a_whole_url_as_the_target(self, served: Front) -> None:
        assert (await served.ask("http://evil.test/")).status == 421
        assert (await served.ask("http://evil.test/api/thing", cookie=True)).status == 421
        assert (await served.ask(f"http://127.0.0.1:{served.port}/api/thing", cookie=True)).status == 400
        assert (await served.ask("*", method="OPTIONS", cookie=True)).status == 400
        assert (await served.ask("evil.test:443", method="CONNECT", cookie=True)).status == 400


class TestOrigin:
    @pytest.mark.parametrize(
        "origin",
        ["https://evil.test", "null", "http://127.0.0.1", "http://127.0.0.1:1", "http://localhost", "", "file://"],
    )
    async def test_another_ones_request_changes_nothing(self, served: Front, origin: str) -> None:
        """CSRF, with the person's own cookie. Without any Origin too: browsers always say where a POST comes from."""
        for method in ("POST", "PUT", "PATCH", "DELETE", "FROB"):
            answer = await served.ask("/api/thing", method=method, body='{"text":"x"}', cookie=True, Origin=origin)
            assert answer.status == 403, method
            check_headers(answer)
        assert served.done == []

    async def test_the_pages_own_counts(self, served: Front) -> None:
        own = {"Origin": served.address}
        for given in (own, {"Sec_Fetch_Site": "same-origin"}, {**own, "Sec_Fetch_Site": "same-origin"}):
            assert (await served.ask("/api/thing", method="POST", body="{}", cookie=True, **given)).status == 200
        alike = {"Origin": f"http://localhost:{served.port}"}  # ours, but another origin for a browser
        assert (await served.ask("/api/thing", method="POST", body="{}", cookie=True, **alike)).status == 403

    @pytest.mark.parametrize("site", ["cross-site", "same-site", "anything"])
    async def test_what_the_browser_says_about_the_other_page(self, served: Front, site: str) -> None:
        """Another port of this machine is `same-site`, and the cookie comes with it."""
        assert (await served.ask("/api/thing", cookie=True, Sec_Fetch_Site=site)).status == 403
        own = {"Origin": served.address}
        posted = await served.ask("/api/thing", method="POST", body="{}", cookie=True, Sec_Fetch_Site=site, **own)
        assert posted.status == 403
        assert (await served.handshake(Cookie=served.cookie, Sec_Fetch_Site=site, **own)).status == 403
        assert (await served.log_in(served.login.new_code(), Sec_Fetch_Site=site)).status == 403
        assert (await served.ask("/", Sec_Fetch_Site=site)).status == 200  # a link to the page may be followed

    async def test_login_from_elsewhere(self, served: Front) -> None:
        code = served.login.new_code()
        assert (await served.log_in(code, Origin="https://evil.test")).status == 403
        nobody = await served.ask("/api/login", method="POST", body=json.dumps({"code": code}))
        assert nobody.status == 403 and b"Origin" in nobody.body
        assert (await served.log_in(code, Origin=served.address)).status == 204  # the code was not used up

    async def test_a_read_from_elsewhere(self, served: Front) -> None:
        assert (await served.ask("/api/thing", cookie=True, Origin="https://evil.test")).status == 403
        assert (await served.ask("/api/thing", cookie=True)).status == 200

    async def test_a_socket(self, served: Front) -> None:
        own, cookie = {"Origin": served.address}, served.cookie
        for status, headers in [
            (403, {"Cookie": cookie, "Origin": "https://evil.test"}),
            (403, {"Cookie": cookie, "Origin": "null"}),
            (403, {"Cookie": cookie}),
            (403, {"Origin": "https://evil.test"}),
            (401, own),
            (401, {**own, "Cookie": f"forge_{served.port}=wrong"}),
            (101, {**own, "Cookie": cookie}),
        ]:
            answer = await served.handshake(**headers)
            assert answer.status == status, headers
            check_headers(answer)
            assert (answer.body == b"") is (status == 101)
        elsewhere = await served.ask("/api/sockets", **HANDSHAKE, **own, Cookie=cookie)
        assert elsewhere.status == 404
        check_headers(elsewhere)
        assert served.done.count("opened") <= 1


class TestCookie:
    async def test_without_one_only_the_shell_is_there(self, served: Front) -> None:
        for path in ("/", "/index.html", "/main.js", "/css/tokens.css"):
            for method in ("GET", "HEAD"):
                answer = await served.ask(path, method=method)
                assert answer.status == 200, path
                check_headers(answer)
        for method, path in [
            ("GET", "/api/thing"),
            ("HEAD", "/api/thing"),
            ("GET", "/api/openapi.json"),
            ("GET", "/api/nothing"),
            ("GET", "/nothing"),
            ("GET", "/api/login"),
            ("GET", "//"),
            ("POST", "/"),
            ("POST", "/api/thing"),
            ("POST", "/api/logout"),
            ("OPTIONS", "/api/login"),
            ("OPTIONS", "/"),
            ("TRACE", "/"),
            ("FROB", "/api/thing"),
        ]:
            answer = await served.ask(path, method=method)
            assert answer.status == 401, (method, path)
            assert "www-authenticate" in answer.headers
            check_headers(answer)
            assert method == "HEAD" or "link" in json.loads(answer.body)["problem"]

    async def test_what_is_no_cookie_of_ours(self, served: Front) -> None:
        value = served.cookie.partition("=")[2]
        name = f"forge_{served.port}"
        bad = [
            f"forge_1={value}",
            f"{name}=",
            f"{name}={value}x",
            f"x{name}={value}",
            f"{name}={'a' * 5000}",
            "=",
            ";;",
        ]
        for cookie in bad:
            assert (await served.ask("/api/thing", Cookie=cookie)).status == 401, cookie
        for query in (f"cookie={value}", f"{name}={value}", f"code={value}"):
            assert (await served.ask(f"/api/thing?{query}")).status == 401
        assert (await served.ask("/api/thing", Authorization=f"Bearer {value}")).status == 401

    async def test_one_planted_by_another_server_does_not_hide_ours(self, served: Front) -> None:
        name, own = f"forge_{served.port}", served.cookie
        assert (await served.ask("/api/thing", Cookie=f"{name}=planted; a=b; {own}")).status == 200

    @pytest.mark.parametrize("name", ["Cookie", "Origin", "Content-Type", "Sec-Fetch-Site"])
    async def test_a_header_that_comes_twice(self, served: Front, name: str) -> None:
        values = {"Cookie": served.cookie, "Origin": served.address, "Content-Type": "application/json"}
        values |= {"Sec-Fetch-Site": "same-origin", "Host": f"127.0.0.1:{served.port}", "Content-Length": "2"}
        lines = [f"{key}: {value}" for key, value in values.items()]
        once = "\r\n".join(["POST /api/thing HTTP/1.1", *lines, "", "{}"])
        twice = "\r\n".join(["POST /api/thing HTTP/1.1", *lines, f"{name}: {values[name]}", "", "{}"])
        assert (await sent(served.address, once)).status == 200
        assert (await sent(served.address, twice)).status in {400, 403}


class TestBodies:
    async def test_one_over_the_limit(self, served: Front) -> None:
        own = {"Origin": served.address, "Cookie": served.cookie}
        fits = json.dumps({"text": "x" * ((1 << 20) - 20)})
        assert (await served.ask("/api/thing", method="POST", body=fits, **own)).status == 200
        big = json.dumps({"text": "x" * (1 << 20)})
        for path in ("/api/thing", "/api/login"):
            answer = await served.ask(path, method="POST", body=big, **own)
            assert answer.status == 413
            check_headers(answer)
        assert (await served.ask("/api/upload/a", method="POST", body=big, **own)).status == 200
        endless = {**own, "Content_Length": str(1 << 40), "Content_Type": "application/json"}
        for path in ("/api/thing", "/"):
            answer = await served.ask(path, method="POST", **endless)
            assert answer.status == 413
            assert answer.headers["connection"] == "close"

    async def test_one_over_the_limit_that_does_not_say_so(self, served: Front) -> None:
        own = {"Origin": served.address, "Cookie": served.cookie, "Content_Type": "application/json"}
        head = request(served.address, "/api/thing", method="POST", Transfer_Encoding="chunked", **own)
        piece = b"10000\r\n" + b" " * (1 << 16) + b"\r\n"
        assert (await sent(served.address, head.encode() + piece * 17)).status == 413

    async def test_one_of_two_lengths(self, served: Front) -> None:
        """Threat: a proxy in front of us that counts by the other one takes what follows for another's request."""
        own = {"Cookie": served.cookie, "Origin": served.address, "Content_Type": "application/json"}
        both = {"Transfer_Encoding": "chunked", "Content_Length": "40", "Connection": "keep-alive"}
        head = request(served.address, "/api/thing", method="POST", **own, **both)
        answer = await sent(served.address, head + "c\r\n" + '{"text":"x"}' + "\r\n0\r\n\r\n" + "GET / HTTP/1.1\r\n")
        assert answer.status == 400 and answer.headers["connection"] == "close" and served.done == []

    @pytest.mark.parametrize("path", ["/api/login", "/api/thing"])
    async def test_one_that_does_not_arrive(self, path: str, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(server_guard, "BODY_SECONDS", 0.1)
        async with front() as served:
            own = {"Origin": served.address, "Cookie": served.cookie, "Content_Type": "application/json"}
            answer = await served.ask(path, method="POST", Content_Length="50", **own)
            assert answer.status == 408
            check_headers(answer)
            assert served.done == []

    async def test_who_leaves_in_the_middle_is_no_fault_of_ours(self, caplog: pytest.LogCaptureFixture) -> None:
        async with front() as served:
            own = {"Origin": served.address, "Cookie": served.cookie, "Content_Type": "application/json"}
            _, writer = await asyncio.open_connection("127.0.0.1", served.port)
            writer.write(request(served.address, "/api/thing", method="POST", Content_Length="50", **own).encode())
            await writer.drain()
            await asyncio.sleep(0.02)
            writer.close()
            await writer.wait_closed()
            assert (await served.ask("/api/thing", cookie=True)).status == 200
        assert caplog.records == []


class TestAnswers:
    async def test_headers_are_ours_whatever_happens(self, served: Front, caplog: pytest.LogCaptureFixture) -> None:
        for path, status in [("/api/broken", 500), ("/api/large", 200), ("/nothing", 404), ("/api/login", 405)]:
            answer = await served.ask(path, cookie=True)
            assert answer.status == status
            check_headers(answer)
            assert b"canary" not in answer.body

    @pytest.mark.parametrize(
        "said",
        [
            b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
            b"hello\r\n\r\n",
            b"GET / HTTP/1.1\r\nHost 127.0.0.1\r\n\r\n",
            b"GET /\x00 HTTP/1.1\r\nHost: x\r\n\r\n",
            b"GET /\xc3\xa4 HTTP/1.1\r\nHost: x\r\n\r\n",
            b"GET / HTTP/1.1\r\nHost: x\r\nX: a\rb\r\n\r\n",
            b"GET / HTTP/1.1\r\nHost: x\r\nX: a\x00b\r\n\r\n",
            b"GET / HTTP/1.1\r\nHost: x\r\n folded: y\r\n Host: z\r\nA B: c\r\n\r\n",
            b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\n",
            b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: -1\r\n\r\n",
            b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: " + b"9" * 5000 + b"\r\n\r\n",
            b"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: gzip\r\n\r\n",
            b"GET / HTTP/1.1\r\nHost: x\r\nX: " + b"y" * 20_000 + b"\r\n\r\n",
            b"GET /" + b"y" * 20_000 + b" HTTP/1.1\r\nHost: x\r\n\r\n",
            b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        ],
    )
    async def test_what_is_no_request(self, said: bytes, caplog: pytest.LogCaptureFixture) -> None:
        async with front() as served:
            answer = await sent(served.address, said)
            assert answer.status in {400, 421, 501}
            check_headers(answer)
        assert caplog.records == []

    @pytest.mark.parametrize(
        "changed",
        [
            {"Sec-WebSocket-Version": "12"},
            {"Sec-WebSocket-Key": "short"},
            {"Sec-WebSocket-Key": ""},
            {"Upgrade": "h2c"},
            {"Content-Length": "5"},
            {"method": "POST"},
        ],
    )
    async def test_what_is_no_handshake(self, changed: dict[str, str], caplog: pytest.LogCaptureFixture) -> None:
        async with front() as served:
            given = {**HANDSHAKE, "Cookie": served.cookie, "Origin": served.address, **changed}
            answer = await served.ask(SOCKET, **given)
            assert 400 <= answer.status < 500
            check_headers(answer)
            assert served.done == []
        assert caplog.records == []


async def break_off(served: Front) -> None:
    """A chunk that is none, after the answer has begun."""
    reader, writer = await asyncio.open_connection("127.0.0.1", served.port)
    head = request(served.address, "/api/large", Cookie=served.cookie, Transfer_Encoding="chunked")
    writer.write(head.encode())
    await reader.readuntil(b"\r\n\r\n")
    writer.write(b"zzz\r\n")
    with contextlib.suppress(ConnectionError):
        await reader.read()
    writer.close()


async def test_nonsense_after_the_answer_began(caplog: pytest.LogCaptureFixture) -> None:
    async with front() as served:
        await asyncio.wait_for(break_off(served), PATIENCE)
        assert (await served.ask("/api/thing", cookie=True)).status == 200
    assert caplog.records == []
