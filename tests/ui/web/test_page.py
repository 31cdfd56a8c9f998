"""The page around the cards: signing in, talking, waiting, losing the server and finding it again."""

from __future__ import annotations

import asyncio
import re
from typing import Any

import pytest
from tests.deadlines import PATIENCE
from tests.ui.web.bench import NARROW, Windows, browsing, until
from tests.ui.web.person import Person
from tests.ui.web.stage import WORKSPACE, calls

from golem_forge import Worker, tool
from golem_forge.tools.tool import Tool
from golem_forge.ui.web.markdown import to_html

pytestmark = browsing

_ITEMS = "() => [...document.querySelectorAll('.items > li')].map((one) => [one.dataset.kind, one.innerText])"


def _asked(stage: Any) -> list[Any]:
    return stage.seen("inputPrompt")  # type: ignore[no-any-return]


async def test_a_turn_with_what_waits_meanwhile(staged: Any, windows: Windows) -> None:
    """The code leaves the address, the text box has the focus, a queued text goes out when its turn comes; a turn that
    goes on is stopped."""
    running = asyncio.Event()
    go_on = asyncio.Event()

    @tool(needs_approval=False)
    async def wait_here() -> str:
        """Waits."""
        running.set()
        await go_on.wait()
        return "waited"

    turns = [calls(("wait_here", {})), "One **bold** answer.", "Two.", calls(("wait_here", {})), "Stopped."]
    stage = await staged(turns, tools=[wait_here])
    window = await windows()
    await window.open(stage.link())
    await window.sees("live")
    assert "#" not in window.page.url
    assert await window.focused() == "Message"
    await window.page.keyboard.type("first")
    await window.press("Enter")
    async with asyncio.timeout(PATIENCE):
        await running.wait()
    await window.page.keyboard.type("second")
    await window.press("Enter")
    await window.sees("queued")
    await window.page.keyboard.type("a draft")
    assert len(stage.requests) == 1
    go_on.set()
    await window.sees("Two.")
    await until(lambda: len(_asked(stage)) == 3, "the session waits again")
    messages = window.page.locator(".items > li[data-kind=message]")
    await until(lambda: _are(messages, 4), "all words are there")
    texts = [pair for pair in await window.run(_ITEMS) if pair[0] in ("message", "call")]
    assert [kind for kind, _ in texts] == ["message", "call", "message", "message", "message"]
    assert "first" in texts[0][1] and "second" in texts[3][1] and "Two." in texts[4][1]
    assert await window.page.locator(".words strong").inner_text() == "bold"
    await window.page.reload()
    await window.sees("Two.")
    assert [pair for pair in await window.run(_ITEMS) if pair[0] in ("message", "call")] == texts
    assert await window.page.locator("textarea").input_value() == "a draft"
    await window.sees("live")
    go_on.clear()
    running.clear()
    await window.page.locator("textarea").press("Enter")
    async with asyncio.timeout(PATIENCE):
        await running.wait()
    await window.page.get_by_role("button", name=re.compile("^Stop")).filter(visible=True).first.click()
    await until(lambda: stage.results() == [("wait_here", "success"), ("wait_here", "interrupted")], "it was stopped")


@pytest.mark.long
async def test_a_server_that_hangs_is_noticed_by_its_silence(staged: Any, windows: Windows) -> None:
    """Its connection stays open; what is done meanwhile goes out when it answers again."""
    stage = await staged(["One.", "Two."])
    window = await windows()
    await window.page.clock.install()
    await window.open(stage.link())
    await window.sees("live")
    with stage.deaf():
        for _ in range(4):  # a ping, and ten seconds without an answer
            await window.page.clock.run_for(5_100)
        await window.sees("The server does not answer")
        await window.page.locator("textarea").fill("meanwhile")
        await window.press("Enter")

    async def answered_by_now() -> bool:
        await window.page.clock.run_for(5_100)
        return await window.page.get_by_text("One.").first.is_visible()

    await until(answered_by_now, "the next try is answered")
    await window.sees_not("The server does not answer")
    assert [event.wire["content"] for event in stage.seen("userInput")] == ["meanwhile"]


async def test_what_strangers_say_around_the_conversation(staged: Any, windows: Windows) -> None:
    """Hidden characters in the title and in a text put into the box; names that make a page wider than it is; a
    session that there is not."""
    wide = Tool(
        "wide",
        "Takes one of these.",
        input_schema={"type": "object", "properties": {"one": {"enum": ["W" * 3000, "b"]}}},
        execute=lambda args, ctx: "",
        mode="manual",
    )
    stage = await staged([], tools=[wide])
    window = await windows(size=NARROW)
    window.expects("404")
    await window.open(stage.link())
    await window.sees("live")
    begun = {**stage.seen("sessionStarted")[0].wire, "worker": "ma\u202ein"}
    stage.runtime.bus.emit("sessionStarted", begun)
    stage.runtime.bus.emit("status", {"type": "info", "message": "do\u200b it", "code": "prefill"})
    await window.sees("It has invisible characters.")
    await until(lambda: _title_is(window, "Forge – ma\\u202ein"), "the title shows them")
    session = stage.runtime.session_id
    await window.run("(session) => { location.hash = `#/s/${session}/tools/wide` }", session)
    box = window.page.get_by_label("One", exact=True)
    await box.wait_for()
    assert (await box.bounding_box())["width"] < 320, "no choice pushes its field off the page"
    await window.run("() => { location.hash = '#/s/nobody/chat' }")
    await window.sees("There is no such session")
    await window.sees("not connected")
    await window.sees_not(re.compile("signed out", re.I))


async def _are(found: Any, number: int) -> bool:
    return bool(await found.count() == number)


async def _title_is(window: Any, title: str) -> bool:
    return bool(await window.page.title() == title)


_LISTS = """(html) => {
  document.body.innerHTML = `<ol class="items" role="list"><li class="item"><div class="words">${html}</div></li></ol>`;
  const all = (what) => [...document.querySelectorAll(`.words ${what}`)];
  const look = (what, name) => all(what).map((one) => getComputedStyle(one)[name]);
  return [look("ul", "listStyleType"), look("ol", "listStyleType"), look("td", "textAlign")];
}"""


async def test_lists_and_tables_of_an_answer_look_as_they_were_written(windows: Windows) -> None:
    text = "- one\n  - two\n    - three\n\n1. first\n\n| a | b | c | d |\n|:--|--:|:-:|---|\n| 1 | 2 | 3 | 4 |\n"
    window = await windows.with_modules()
    lists, numbers, cells = await window.run(_LISTS, to_html(text))
    assert (lists, numbers) == (["disc", "circle", "square"], ["decimal"])
    assert [each.removeprefix("-webkit-") for each in cells] == ["left", "right", "center", "left"]


_ROWS_OF_CELLS = """(html) => {
  document.body.innerHTML = `<ol class="items" role="list"><li class="item"><div class="words">${html}</div></li></ol>`;
  const rows = [...document.querySelectorAll(".words :is(th, td)")].map((cell) => {
    const all = document.createRange();
    all.selectNodeContents(cell);
    return [cell.innerText, new Set([...all.getClientRects()].map(({ top }) => Math.round(top))).size];
  });
  return [rows, document.documentElement.scrollWidth - innerWidth];
}"""


async def test_a_wide_table_scrolls_on_a_phone_and_its_words_stay_whole(windows: Windows) -> None:
    long = "a text of many words that goes on and on, as texts in tables do"
    text = f"| name | size | state | note |\n|--|--:|--|--|\n| alphabetical | 1234567 | failed | {long} |\n"
    window = await windows.with_modules(size=NARROW)
    cells, beside = await window.run(_ROWS_OF_CELLS, to_html(text + f"| x | 1 | ok | {'y' * 300} |\n"))
    rows = dict(cells)
    assert {rows[word] for word in ("name", "size", "state", "alphabetical", "1234567", "failed")} == {1}
    assert rows[long] > 1 and rows["y" * 300] > 1 and beside <= 0


async def test_the_button_of_the_open_form_for_a_new_session_has_no_minus(windows: Windows) -> None:
    window = await windows.with_modules()
    shown = await window.run(
        """() => ["false", "true"].map((open) => {
          const button = `<button class="disclosure new-session-button" aria-expanded="${open}">New</button>`;
          document.body.innerHTML = button;
          return getComputedStyle(document.querySelector("button"), "::before").content;
        })"""
    )
    assert ["+" in one for one in shown] == [True, False] and shown[1] == "none"


_LETTERS_SEEN = """(part) => {
  const node = part.firstChild ?? part;
  const range = document.createRange();
  const box = part.getBoundingClientRect();
  let seen = 0;
  for (let at = 0; at < node.length; at += 1) {
    range.setStart(node, at);
    range.setEnd(node, at + 1);
    const letter = range.getBoundingClientRect();
    if (letter.right <= box.right + 1 && letter.bottom <= box.bottom + 1) seen += 1;
  }
  return seen;
}"""


async def test_a_page_says_what_it_is_about_and_a_call_is_one_line(staged: Any, windows: Windows) -> None:
    """Title, on a phone too, beside all else in the header; sessions beside the chat, where and with which model, what
    waits, what a call was about, Rewind."""
    command = {"cmd": "python3 -c 'print(sum(range(10)))' > total.txt"}
    worker = Worker(name="main", toolsets={"exec": {}}, sandbox=WORKSPACE)
    stage = await staged([calls(("exec_command", command)), "Done."], worker=worker)
    window = await windows()
    await window.open(stage.link())
    page = window.page
    model = stage.seen("sessionStarted")[0].wire["model"]
    await page.locator(".empty .standing").get_by_text(model).wait_for()
    await page.keyboard.type("Make the bread in our little shop a bit dearer")
    await window.press("Enter")
    person = Person(window)
    await person.sees_card("total.txt")
    assert "total.txt" in await page.locator("#panel .queue").inner_text()
    title = page.get_by_role("heading", level=1, name="Make the bread")
    await page.set_viewport_size({"width": 390, "height": 844})
    assert await title.evaluate(_LETTERS_SEEN) >= 30, "while a question waits"
    await person.answer()
    await window.sees("Done.")
    assert await title.evaluate(_LETTERS_SEEN) >= 30
    assert not await window.overflows()
    await window.picture("title-390")
    await page.set_viewport_size({"width": 1280, "height": 800})
    assert await page.locator(".with-call .tool-about").evaluate(_LETTERS_SEEN) >= 20
    await window.picture("call-1280")
    head = page.locator(".tool-head").first
    assert await head.get_attribute("aria-expanded") == "false" and "total.txt" in await head.inner_text()
    assert "context" not in await page.locator("#foot").inner_text(), "the panel has it"
    recent = page.get_by_role("navigation", name="Recent sessions")
    await recent.get_by_role("link", name="Make the bread").wait_for()
    assert await window.accessible() == []
    await page.set_viewport_size({"width": 768, "height": 800})
    assert not await recent.is_visible()
    await page.get_by_role("button", name="Rewind to before this message").click()
    await page.get_by_role("dialog").get_by_role("button", name="Rewind", exact=True).click()
    await until(lambda: [one.wire["text"] for one in stage.seen("command")] == ["/rewind 1 both"], "it went out")


_TOO_WIDE = """() => {
  const panel = document.getElementById("panel");
  return Math.max(panel.scrollWidth - panel.clientWidth, document.documentElement.scrollWidth - window.innerWidth);
}"""


@pytest.mark.long
async def test_the_panel_lists_ports_and_publishes_them(staged: Any, windows: Windows) -> None:
    """What a command serves is in the panel; a button gives the link, and another one ends it."""
    serve = {"cmd": "python3 -u -m http.server 3000 --bind 127.0.0.1", "yield_time_ms": 0}
    ready = {"cmd": "until (echo > /dev/tcp/127.0.0.1/3000) 2> /dev/null; do sleep 0.1; done", "yield_time_ms": 30_000}
    worker = Worker(name="main", toolsets={"exec": {}}, sandbox=WORKSPACE)
    turns = [calls(("exec_command", serve)), calls(("exec_command", ready)), "It serves."]
    stage = await staged(turns, worker=worker, approval="approve_all")
    window = await windows()
    await window.open(stage.link())
    page = window.page
    await page.set_viewport_size({"width": 1280, "height": 800})
    await window.sees("live")
    await page.locator("textarea").fill("Serve it")
    await window.press("Enter")
    await window.sees("It serves.")
    listed = page.locator("#panel .ports")
    await listed.get_by_text("http.server 3000").wait_for()
    await listed.get_by_role("button", name="publish port 3000", exact=True).click()
    link = listed.get_by_role("link")
    await link.wait_for()
    url = await link.get_attribute("href")
    assert url and re.fullmatch(r"http://127\.(?!0\.)[0-9.]+:3000/", url)
    assert await link.get_attribute("target") == "_blank" and "noopener" in str(await link.get_attribute("rel"))
    assert (await page.request.get(url)).status == 200
    assert await window.accessible() == []
    assert await page.evaluate(_TOO_WIDE) <= 0
    await window.picture("ports-1280")
    await page.set_viewport_size({"width": 390, "height": 800})
    await page.get_by_role("button", name="Session panel").click()
    await listed.get_by_role("link").wait_for()
    assert await page.evaluate(_TOO_WIDE) <= 0
    await window.picture("ports-390")
    await listed.get_by_role("button", name="unpublish port 3000").click()
    await listed.get_by_role("button", name="publish port 3000", exact=True).wait_for()
    assert await listed.get_by_role("link").count() == 0
