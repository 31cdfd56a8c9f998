"""Who gets in: links that work once, other people's pages, other names for this machine. ui.md §10, case 29."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable
from typing import Any
from urllib.parse import urlsplit

from tests.ui.web.bench import browsing, until
from tests.ui.web.person import Person
from tests.ui.web.stranger import other_site, request, sent

pytestmark = browsing

CSP = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "font-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
HEADERS = {
    "content-security-policy": CSP,
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cache-control": "no-store",
}


def code_in(link: str) -> str:
    return urlsplit(link).fragment.partition("code=")[2]


async def log_in(address: str, code: str, **headers: str) -> Any:
    given = {"Origin": address} | headers
    return await sent(address, request(address, "/api/login", method="POST", body=f'{{"code": "{code}"}}', **given))


async def test_a_link_opens_the_page_once_and_leaves_no_trace(staged: Any, windows: Any, caplog: Any) -> None:
    caplog.set_level("DEBUG")
    stage = await staged(["Hello."])
    link = stage.link()
    code = code_in(link)
    assert len(code) >= 22, "128 bits at least"
    async with other_site() as elsewhere:
        window = await windows()
        await Person(window).enter(link)
        assert code not in window.page.url and "code" not in window.page.url
        assert not any(code in url for url in window.asked), "the code is in no address that was asked for"
        assert code not in await window.run("() => JSON.stringify([location.href, document.referrer, history.state])")
        [cookie] = await window.page.context.cookies()
        assert cookie["httpOnly"] and cookie["sameSite"] == "Strict" and cookie["path"] == "/"
        assert not await window.run("() => document.cookie"), "no script can read it"
        window.check_clean()
        windows.opened.remove(window)  # from here on it shows another page
        await window.page.goto(f"{elsewhere.address}/from-here")
        await window.run("url => { location = url }", f"{elsewhere.foreign}/again")
        await until(lambda: len([one for one in elsewhere.asked if "again" in one]), "the other page was asked for")
        assert not any(code in head or stage.address in head for head in elsewhere.asked), "nothing in a referrer"
    again = await windows()
    again.expects("401")
    await again.open(link)
    await again.sees(re.compile("link|/web", re.I))
    assert await again.page.context.cookies() == []
    assert code not in caplog.text and cookie["value"] not in caplog.text


async def test_without_the_cookie_there_is_only_the_shell(staged: Any) -> None:
    stage = await staged([])
    address = stage.address
    shell = await sent(address, request(address, "/"))
    assert shell.status == 200 and shell.headers.items() >= HEADERS.items()
    for path in ("/api/me", "/api/sessions", "/api/openapi.json", "/api/nothing", "/api/sessions/x/events"):
        answer = await sent(address, request(address, path))
        assert answer.status == 401, path
        assert answer.headers.items() >= HEADERS.items(), path
    code = code_in(stage.link())
    assert (await log_in(address, code, Origin="http://evil.test")).status == 403
    assert (await log_in(address, code, Origin=f"http://127.0.0.1:{int(address.rpartition(':')[2]) + 1}")).status == 403
    answer = await log_in(address, code)
    assert answer.status == 204
    cookie = answer.headers["set-cookie"]
    assert re.search(r"; ?HttpOnly", cookie) and re.search(r"; ?SameSite=Strict", cookie, re.I)
    assert "max-age=43200" in cookie.lower()
    assert (await log_in(address, code)).status == 401, "once"
    mine = {"Cookie": cookie.partition(";")[0]}
    assert (await sent(address, request(address, "/api/me", **mine))).status == 200
    assert (await sent(address, request(address, "/api/me", Cookie=f"{mine['Cookie']}x"))).status == 401


ATTACKS = """async ({ours, id}) => {
  const session = `${ours}/api/sessions/${id}`;
  const got = {};
  const tried = async (name, make) => {
    try { got[name] = await make(); } catch (error) { got[name] = "refused"; }
  };
  const loaded = (tag, more) => new Promise((resolve, reject) => {
    const one = Object.assign(document.createElement(tag), more);
    one.onload = () => resolve("loaded");
    one.onerror = () => reject(new Error());
    document.body.append(one);
  });
  const asked = (path, options) => fetch(path, {credentials: "include", ...options}).then(r => r.text());
  const body = JSON.stringify({type: "interrupt", data: {}});
  const posted = type => ({method: "POST", headers: {"Content-Type": type}, body});
  await tried("read", () => asked(`${ours}/api/me`));
  await tried("readBlindly", () => asked(`${ours}/api/me`, {mode: "no-cors"}));
  await tried("postBlindly", () => asked(`${session}/actions`, {mode: "no-cors", ...posted("text/plain")}));
  await tried("post", () => asked(`${session}/actions`, posted("application/json")));
  await tried("end", () => asked(`${session}/end`, {mode: "no-cors", method: "POST"}));
  await tried("socket", () => new Promise((resolve, reject) => {
    const one = new WebSocket(`${session.replace("http", "ws")}/stream`);
    one.onopen = () => resolve("open");
    one.onerror = () => reject(new Error());
  }));
  await tried("script", () => loaded("script", {src: `${ours}/api/me`}));
  await tried("frame", () => loaded("iframe", {src: `${ours}/`}));
  return got;
}"""


async def test_another_page_can_do_nothing_here(staged: Any, windows: Any) -> None:
    """From another port (the same site, so the browser sends the cookie) and from another name."""
    stage = await staged(["Hello."])
    window = await windows()
    me = Person(window)
    await me.enter(stage.link())
    before = len(stage.events)
    async with other_site() as elsewhere:
        for address in (elsewhere.address, elsewhere.foreign):
            theirs = await windows(beside=window)
            windows.opened.remove(theirs)  # whatever it does and says is theirs
            await theirs.open(f"{address}/attack")
            got = await theirs.run(ATTACKS, {"ours": stage.address, "id": stage.runtime.session_id})
            for name in ("read", "post", "socket", "script"):
                assert got[name] == "refused", (address, got)
            assert all(got[name] in ("", "refused") for name in ("readBlindly", "postBlindly", "end")), (address, got)
            assert any("frame" in said for said in theirs.complaints), f"{address}: it is shown in nobody's frame"
            await theirs.close()
    assert [event for event in stage.events[before:] if event.type in ("interrupt", "command", "userInput")] == []
    assert not stage.runtime.signal, "nobody stopped the session"
    await me.say("mine")
    await window.sees("Hello.")


async def test_another_name_for_this_machine_shows_nothing(staged: Any, windows: Any) -> None:
    """DNS rebinding: a name of theirs that now leads here."""
    stage = await staged([])
    window = await windows()
    window.expects("421", "Cross-Origin-Opener-Policy header has been ignored")
    port = stage.address.rpartition(":")[2]
    response = await window.page.goto(f"http://rebound.test:{port}/")
    assert response.status == 421 and "textbox" not in await window.page.content()
    window.asked.clear()
    for host in (
        "evil.test",
        f"evil.test:{port}",
        "127.0.0.1",
        f"127.0.0.1:{int(port) + 1}",
        f"localhost.evil.test:{port}",
    ):
        answer = await sent(stage.address, request(stage.address, "/", Host=host))
        assert answer.status == 421, host
        assert answer.headers.items() >= HEADERS.items(), host
    handshake = {
        "Upgrade": "websocket",
        "Connection": "Upgrade",
        "Sec_WebSocket_Key": "dGhlIHNhbXBsZSBub25jZQ==",
        "Sec_WebSocket_Version": "13",
    }
    path = f"/api/sessions/{stage.runtime.session_id}/stream"
    cookie = (await log_in(stage.address, code_in(stage.link()))).headers["set-cookie"].partition(";")[0]
    for origin, status in ((f"http://evil.test:{port}", 403), ("null", 403), ("", 403), (stage.address, 101)):
        asked = request(stage.address, path, Origin=origin, Cookie=cookie, **handshake)
        assert (await sent(stage.address, asked)).status == status, origin
    asked = request(stage.address, path, Origin=stage.address, **handshake)
    assert (await sent(stage.address, asked)).status == 401


async def test_the_command_refuses_to_be_reached_from_elsewhere_unless_told(desk: Callable[..., Any]) -> None:
    place = desk({"main.worker": "---\nname: main\n---\nTalk.\n", "s.yaml": '{"turns": []}'})
    for words in (["run", "--ui", "web", "-m", "scripted:s.yaml"], ["web"]):
        ran = await asyncio.to_thread(place.forge, *words, "--host", "0.0.0.0")
        assert ran.code == 2, (words, ran)
        assert "--allow-host" in ran.err and "code=" not in ran.out + ran.err
