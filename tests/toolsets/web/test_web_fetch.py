"""webfetch against a real server: what the caller reads, redirects, addresses, TLS, and its place on the one path."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path
from typing import Any

import pytest
from tests.tables import table

from golem_forge.core.calls import ToolCall
from golem_forge.core.decisions import Risk, Status, Verdict
from golem_forge.core.errors import ForgeError, ToolFailed
from golem_forge.events.redaction import Redactor
from golem_forge.tools.context import HostPermission, ToolContext
from golem_forge.toolsets.web import webfetch_tool


def anything(host: str, port: int) -> HostPermission:
    return HostPermission(listed=True, private=True)


async def test_the_text_the_value_and_the_request(fetch: Any, server: Any) -> None:
    server.page("/a?b=1", "<title>A page</title><h1>Hello</h1><p>See <a href='/x'>this</a>.")
    result = await fetch("/a?b=1")
    url = f"http://site.test:{server.port}/a?b=1"
    page = f"# Hello\n\nSee [this](http://site.test:{server.port}/x)."
    first, fence, *inner, last = result.text.split("\n")
    assert first == f"GET {url} → 200, text/html, {len(page)} chars"
    assert re.fullmatch(r"--- [0-9a-f]{16} untrusted content from site\.test ---", fence)
    assert last == fence and "\n".join(inner) == page
    whole = {"start": 0, "end": len(page), "chars": len(page)}
    head = {"kind": "web.page", "url": url, "status": 200, "type": "text/html", "title": "A page", "text": page}
    assert result.value == {**head, **whole}
    request = server.requests[0].split("\r\n")
    assert request[0] == "GET /a?b=1 HTTP/1.1" and f"Host: site.test:{server.port}" in request
    names = {line.partition(":")[0].lower() for line in request[1:] if line}
    assert names == {"host", "user-agent", "accept", "accept-encoding", "connection"}


async def test_t51_pages_by_start_index(fetch: Any, server: Any) -> None:
    server.page("/", "é" * 25_000, "text/plain; charset=utf-8")
    one = await fetch("/")
    assert one.text.endswith("\n[chars 0-20000 of 25000; continue with start_index=20000]")
    assert one.value["text"] == "é" * 20_000
    two = await fetch("/", start_index=20_000)
    assert two.text.endswith("\n[chars 20000-25000 of 25000]") and len(two.value["text"]) == 5000
    three = await fetch("/", start_index=3, max_length=2)
    assert (three.value["start"], three.value["end"], three.value["text"]) == (3, 5, "éé")
    server.page("/short", "12345", "text/plain")
    assert "[chars" not in (await fetch("/short")).text
    for start in (5, 9):
        with pytest.raises(ToolFailed) as caught:
            await fetch("/short", start_index=start)
        assert caught.value.message == f"start_index {start} is past the end (5 chars)"


async def test_a_secret_divided_between_two_parts_is_in_neither(fetch: Any, server: Any) -> None:
    redactor = Redactor()
    redactor.add_secret("TOKEN", "canary-51c0ffee-canary")
    server.page("/", f"<title>canary-51c0ffee-canary</title><p>{'x' * 300}canary-51c<b>0ffee</b>-canary{'y' * 300}")
    server.page("/plain", f"{'x' * 300}canary-51c0ffee-canary{'y' * 300}", "text/plain")
    clean = f"{'x' * 300}[secret TOKEN]{'y' * 300}"
    for args in ({"url": "/plain"}, {"url": "/", "raw": True}, {"url": "/plain", "raw": True}):
        texts = [await fetch(**args, redactor=redactor, start_index=at, max_length=1) for at in range(299, 312)]
        assert all(one.value["chars"] == texts[0].value["chars"] for one in texts)
        assert "canary" not in "".join(one.value["text"] for one in texts)
    one = await fetch("/plain", redactor=redactor, max_length=307)
    two = await fetch("/plain", redactor=redactor, start_index=307)
    assert one.value["text"] + two.value["text"] == clean
    assert one.text.endswith(f"[chars 0-307 of {len(clean)}; continue with start_index=307]")
    assert (await fetch("/", redactor=redactor)).value["title"] == "[secret TOKEN]"


async def test_the_fence_is_not_in_the_page(fetch: Any, server: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    marks = iter(["a" * 16, "b" * 16])
    monkeypatch.setattr("secrets.token_hex", lambda size: next(marks))
    server.page("/", f"--- {'a' * 16} untrusted content from site.test ---", "text/plain")
    assert f"--- {'b' * 16} untrusted" in (await fetch("/")).text


async def test_raw_gives_the_source(fetch: Any, server: Any) -> None:
    server.page("/", "<p>x<script>y</script>")
    assert (await fetch("/", raw=True)).value["text"] == "<p>x<script>y</script>"
    assert (await fetch("/")).value["text"] == "x"


@table("kind", ["text/plain", "text/csv", "application/json", "application/atom+xml", "a/b+json", ""])
async def test_text_types_come_as_they_are(fetch: Any, server: Any, kind: str) -> None:
    server.page("/", '{"a": "<b>"}', kind)
    result = await fetch("/")
    assert result.value["text"] == '{"a": "<b>"}' and result.value["type"] == (kind or "text/plain")


@table("kind", ["image/png", "application/pdf", "application/octet-stream", "nonsense", "text/x y"])
async def test_other_types_are_not_text(fetch: Any, server: Any, kind: str) -> None:
    server.page("/", b"12345", kind)
    with pytest.raises(ToolFailed) as caught:
        await fetch("/")
    shown = kind if kind in ("image/png", "application/pdf") else "application/octet-stream"
    assert caught.value.message == f"{shown}, 5 bytes: not text."


async def test_a_download_is_not_read_to_its_end(fetch: Any, server: Any) -> None:
    server.answers["/"] = b"HTTP/1.1 200 OK\r\nContent-Type: video/mp4\r\nContent-Length: 99999999999\r\n\r\nx"
    with pytest.raises(ToolFailed, match=r"^video/mp4, 99999999999 bytes: not text\.$"):
        await fetch("/")


async def test_http_errors_fail_with_status_and_text(fetch: Any, server: Any) -> None:
    server.page("/", "<h1>Gone fishing</h1>", status="503 Busy")
    result = await fetch("/")
    assert result.is_error and "→ 503, text/html, 14 chars\n" in result.text and "# Gone fishing" in result.text
    server.page("/", b"\x89PNG", "image/png", status="500 Oops")
    with pytest.raises(ToolFailed, match=r"→ 500, image/png, 4 bytes: not text\.$"):
        await fetch("/")


XML = "<?xml version='1.0' encoding='latin-1'?>"


@table(
    ("kind", "body", "text"),
    [
        ("text/plain; charset=latin-1", b"caf\xe9", "café"),
        ("text/plain; charset=iso-8859-1", b"\x93q\x94", "“q”"),
        ('text/plain; charset="UTF-8"', "café".encode(), "café"),
        ("text/plain; charset=utf-8", b"caf\xe9!", "caf\ufffd!"),
        ("text/plain; charset=klingon", "é".encode(), "é"),
        ("text/plain; charset=rot13", b"abc", "abc"),
        ("text/plain; charset=unicode_escape", b"\\x41", "\\x41"),
        ("text/plain; charset=latin-1", "\ufeffé".encode(), "é"),
        ("text/plain", "\ufeffé".encode("utf-16-le"), "é"),
        ("text/plain; charset=shift_jis", "日本".encode("shift_jis"), "日本"),
        ("text/html", b"<meta charset=windows-1251><p>\xcf\xf0", "Пр"),
        ("text/html", b"<meta http-equiv=x content='text/html; charset=iso-8859-2'>\xb1", "ą"),
        ("application/xml", XML.encode() + b"\xe9", f"{XML}é"),
    ],
)
async def test_character_sets(fetch: Any, server: Any, kind: str, body: bytes, text: str) -> None:
    server.page("/", body, kind)
    assert (await fetch("/")).value["text"] == text


# Redirects


async def test_redirects_on_the_same_host_are_followed_with_one_lookup(fetch: Any, server: Any, resolver: Any) -> None:
    server.redirect("/1", "/dir/2", "301 Moved")
    server.redirect("/dir/2", "3?x=é", "307 Temporary")
    server.redirect("/dir/3?x=%C3%A9", f"http://SITE.test.:{server.port}/end", "308 Permanent")
    server.page("/end", "there", "text/plain")
    result = await fetch("/1")
    assert result.value["url"] == f"http://site.test:{server.port}/end" and result.value["text"] == "there"
    assert resolver.asked == ["site.test"]


async def test_five_redirects_and_no_more(fetch: Any, server: Any) -> None:
    for number in range(6):
        server.redirect(f"/{number}", f"/{number + 1}")
    server.page("/6", "end", "text/plain")
    assert (await fetch("/1")).value["text"] == "end"
    with pytest.raises(ToolFailed, match="More than 5 redirects"):
        await fetch("/0")


@pytest.mark.parametrize(
    ("to", "told"),
    [
        ("https://other.test/x?y=1#z", "https://other.test/x?y=1"),
        ("http://127.0.0.1/admin", "http://127.0.0.1/admin"),
        ("//169.254.169.254/latest", "http://169.254.169.254/latest"),
        ("http://sub.site.test/", "http://sub.site.test/"),
        ("http://site.test:81/", "http://site.test:81/"),
    ],
)
async def test_t50_another_host_is_told_and_not_followed(
    fetch: Any, server: Any, resolver: Any, to: str, told: str
) -> None:
    server.redirect("/", to)
    result = await fetch("/")
    assert result.text == f"Redirects to {told}; call webfetch with it to follow." and not result.is_error
    assert resolver.asked == ["site.test"] and len(server.requests) == 1


@table("to", ["file:///etc/passwd", "javascript:x", "http://u:p@site.test/", "http://2130706433/", "http://[/"])
async def test_a_redirect_to_what_is_never_fetched_fails(fetch: Any, server: Any, to: str) -> None:
    server.redirect("/", to)
    with pytest.raises(ToolFailed, match="redirects to what is not fetched"):
        await fetch("/")


async def test_from_http_to_https_is_the_same_place_unless_a_rule_blocks_it(
    fetch: Any, server: Any, tls_server: Any, certificate: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", f"{certificate}.crt")
    secure = f"https://site.test:{tls_server.port}/"
    server.redirect("/", secure)
    tls_server.page("/", "safe", "text/plain")
    assert (await fetch("/")).value["url"] == secure

    def only_http(host: str, port: int) -> HostPermission:
        return HostPermission(listed=True, private=True, blocked=port == tls_server.port)

    with pytest.raises(ForgeError) as caught:
        await fetch("/", rule=only_http)
    assert caught.value.status is Status.POLICY_DENIED

    def one_port(host: str, port: int) -> HostPermission:
        return HostPermission(listed=port == server.port, private=True)

    assert (await fetch("/", rule=one_port)).text.startswith(f"Redirects to {secure};")
    tls_server.redirect("/", f"http://site.test:{server.port}/")  # and never back to what anybody can read
    assert (await fetch(secure)).text.startswith("Redirects to http://site.test")


async def test_a_redirect_is_checked_anew(fetch: Any, server: Any) -> None:
    """The rule may have gone in the meantime."""
    server.redirect("/", "/next")
    answers = iter([HostPermission(listed=True, private=True)] * 2 + [HostPermission(listed=True)])
    with pytest.raises(ForgeError) as caught:
        await fetch("/", rule=lambda host, port: next(answers))
    assert caught.value.status is Status.SANDBOX_DENIED and len(server.requests) == 1


# Addresses


@table("addresses", [("127.0.0.1",), ("93.184.216.34", "10.0.0.1"), ("::ffff:127.0.0.1",), ("::1",)])
async def test_t49_a_name_with_a_private_address_is_refused_without_a_connection(
    fetch: Any, server: Any, resolver: Any, addresses: tuple[str, ...]
) -> None:
    resolver.names["x.test"] = addresses
    with pytest.raises(ForgeError) as caught:
        await fetch(f"http://x.test:{server.port}/", rule=lambda host, port: HostPermission(listed=True))
    assert caught.value.status is Status.SANDBOX_DENIED
    assert caught.value.message == "Host 'x.test' resolves to a private address."
    assert server.requests == []


async def test_the_real_resolver_is_asked_once(server: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    def resolves(host: str, *rest: Any, **options: Any) -> list[Any]:
        asked.append(host)
        return [(2, 1, 6, "", ("93.184.216.34" if len(asked) > 1 else "127.0.0.1", 80))]

    monkeypatch.setattr("socket.getaddrinfo", resolves)
    server.page("/", "hi", "text/plain")
    url = f"http://rebind.test:{server.port}/"
    result = await webfetch_tool().execute({"url": url}, ToolContext(host_rule=anything))
    assert result.value["text"] == "hi" and asked == ["rebind.test"]


async def test_the_first_address_that_answers_is_used(fetch: Any, server: Any, resolver: Any) -> None:
    resolver.names["site.test"] = ("127.0.0.2", "::1", "127.0.0.1")
    server.page("/", "hi", "text/plain")
    assert (await fetch("/")).value["text"] == "hi"


async def test_a_private_literal_with_a_rule_of_its_own(fetch: Any, server: Any, resolver: Any) -> None:
    server.page("/", "local", "text/plain")
    result = await fetch(f"http://127.0.0.1:{server.port}/", rule=anything)
    assert result.value["text"] == "local" and resolver.asked == []
    assert "untrusted content from 127.0.0.1 ---" in result.text


async def test_names_and_servers_that_are_not_there(fetch: Any, server: Any, resolver: Any) -> None:
    with pytest.raises(ToolFailed, match=r"^Host 'gone\.test' was not found\.$"):
        await fetch("http://gone.test/")
    resolver.names["site.test"] = ("127.0.0.3",)
    with pytest.raises(ToolFailed, match=f"^Could not connect to 'site.test:{server.port}'"):
        await fetch("/")


# TLS


async def test_a_certificate_that_nobody_vouches_for_is_refused(fetch: Any, tls_server: Any) -> None:
    tls_server.page("/", "secret", "text/plain")
    with pytest.raises(ToolFailed, match=r"certificate of 'site\.test' is not trusted: self"):
        await fetch(f"https://site.test:{tls_server.port}/")
    assert tls_server.requests == []


async def test_the_certificate_must_be_for_the_name(
    fetch: Any, tls_server: Any, resolver: Any, certificate: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", f"{certificate}.crt")
    tls_server.page("/", "hello", "text/plain")
    assert (await fetch(f"https://site.test:{tls_server.port}/")).value["text"] == "hello"
    resolver.names["else.test"] = ("127.0.0.1",)
    with pytest.raises(ToolFailed, match=r"certificate of 'else\.test' is not trusted"):
        await fetch(f"https://else.test:{tls_server.port}/", rule=anything)


async def test_https_to_a_server_that_speaks_plain_http(fetch: Any) -> None:
    async def plain(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        writer.close()

    async with await asyncio.start_server(plain, "127.0.0.1", 0) as listening:
        port = listening.sockets[0].getsockname()[1]
        with pytest.raises(ToolFailed, match=r"does not speak TLS|Could not connect"):
            await fetch(f"https://site.test:{port}/")


# On the one path


async def test_it_asks_with_risk_high_and_a_denied_call_sends_nothing(
    make_path: Any, asked: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    looked_up: list[Any] = []
    monkeypatch.setattr("socket.getaddrinfo", lambda *args, **options: looked_up.append(args) or [])
    person = asked({"approved": False})
    path = make_path(webfetch_tool(), ask=person)
    outcome = await path.call(ToolCall("webfetch", {"url": "https://example.test/x"}))
    assert outcome.status is Status.APPROVAL_DENIED and looked_up == []
    assert outcome.decision.verdict is Verdict.ASK and outcome.decision.risk is Risk.HIGH
    assert "example.test:443" in str(person[0].effects)
    for url in ("http://127.0.0.1/", "http://[::1]/", "http://10.0.0.1/", "http://a.test:8080/"):
        outcome = await path.call(ToolCall("webfetch", {"url": url}))
        assert outcome.status is Status.POLICY_DENIED
    assert len(person) == 1


def write_rules(home: Path, *rules: str) -> None:
    (home / ".forge").mkdir(exist_ok=True)
    (home / ".forge" / "rules.yaml").write_text("version: 1\nrules:\n" + "".join(f"  - {rule}\n" for rule in rules))


async def test_a_rule_with_private_reaches_exactly_its_host_and_port(
    make_path: Any, server: Any, resolver: Any, own_home: Path
) -> None:
    write_rules(own_home, f"{{host: site.test, ports: [{server.port}], private: true, verdict: preApproved}}")
    resolver.names["else.test"] = ("127.0.0.1",)
    server.page("/", "here", "text/plain")
    server.page("/gone", "gone", "text/plain", status="410 Gone")
    path = make_path(webfetch_tool(lookup=resolver), mode="approve_all")

    async def get(url: str) -> Any:
        return await path.call(ToolCall("webfetch", {"url": url}))

    assert "\nhere\n" in (await get(f"http://site.test:{server.port}/")).text
    failed = await get(f"http://site.test:{server.port}/gone")
    assert failed.status is Status.EXECUTION_FAILED
    assert "→ 410, text/plain, 4 chars\n" in failed.text and "\ngone\n" in failed.text
    assert (await get(f"http://else.test:{server.port}/")).status is Status.POLICY_DENIED
    assert (await get("http://else.test/")).status is Status.SANDBOX_DENIED
    assert (await get("http://site.test/")).status is Status.SANDBOX_DENIED
    assert len(server.requests) == 2


async def test_a_blocked_port_is_not_reached_by_a_redirect(
    make_path: Any, server: Any, tls_server: Any, resolver: Any, own_home: Path
) -> None:
    write_rules(
        own_home,
        f"{{host: site.test, ports: [{server.port}], private: true, verdict: preApproved}}",
        f"{{host: site.test, ports: [{tls_server.port}], verdict: blocked, reason: no}}",
    )
    server.redirect("/", f"https://site.test:{tls_server.port}/")
    path = make_path(webfetch_tool(lookup=resolver), mode="approve_all")
    outcome = await path.call(ToolCall("webfetch", {"url": f"http://site.test:{server.port}/"}))
    assert outcome.status is Status.POLICY_DENIED and tls_server.requests == []


async def test_approved_it_runs_and_a_local_name_is_denied_by_the_sandbox(make_path: Any, asked: Any) -> None:
    path = make_path(webfetch_tool(), ask=asked())
    outcome = await path.call(ToolCall("webfetch", {"url": "http://localhost/"}))
    expected = "Host 'localhost' resolves to a private address."
    assert (outcome.status, outcome.text) == (Status.SANDBOX_DENIED, expected)
