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
    await again.sees("This page is not signed in")
    await again.sees(re.compile("link|/web", re.I))
    assert await again.page.context.cookies() == [] and "code" not in again.page.url
    assert await again.accessible() == []
    await again.open(stage.link())  # where the page is: only the fragment changes
    await again.sees("live")
    assert "#" not in again.page.url
    assert code not in caplog.text and cookie["value"] not in caplog.text
    await signs_out(Person(again))


async def signs_out(me: Person) -> None:
    """The page is closed to whoever comes next, and has nothing left of what was typed."""
    window = me.window
    window.expects("WebSocket")
    await me.box.fill("a draft")
    await me.go_to("Settings")
    await me.button(re.compile("^Sign this browser out")).click()
    await me.page.get_by_role("dialog").get_by_role("button", name="Sign out").click()
    await window.sees("This page is not signed in")
    assert "a draft" not in await window.run("() => JSON.stringify(sessionStorage)")
    await window.page.reload()
    await window.sees("This page is not signed in")


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
    answer = await sent(stage.address, request(stage.address, "/", Host=f"evil.test:{port}"))
    assert answer.status == 421 and answer.headers.items() >= HEADERS.items()


async def test_the_command_refuses_to_be_reached_from_elsewhere_unless_told(desk: Callable[..., Any]) -> None:
    place = desk({"main.worker": "---\nname: main\n---\nTalk.\n", "s.yaml": '{"turns": []}'})
    for words in (["run", "--ui", "web", "-m", "scripted:s.yaml"], ["web"]):
        ran = await asyncio.to_thread(place.forge, *words, "--host", "0.0.0.0")
        assert ran.code == 2, (words, ran)
        assert "--allow-host" in ran.err and "code=" not in ran.out + ran.err
