"""Several places to answer from, and connections that come and go: one execution, nothing lost, nothing twice.

ui.md §4 and §10, cases 4, 6, 31, 32; a session on a real terminal and a page.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Callable
from typing import Any

import pytest
from tests.ui.web.bench import browsing, until
from tests.ui.web.person import APPROVE, DENY, EDITED, Person
from tests.ui.web.stage import calls

from golem_forge import tool
from golem_forge.agent.model.scripted import Turn

pytestmark = browsing


AWAY = re.compile("The server does not answer")


class Counting(list[str]):
    """A tool that asks, and what it really did."""

    def tool(self) -> Any:
        @tool(needs_approval=True)
        def deploy(where: str) -> str:
            """Deploys."""
            self.append(where)
            return f"deployed to {where}"

        return deploy


async def test_a_card_outlives_a_reload_and_is_answered_once_by_two_windows(staged: Any, windows: Any) -> None:
    """Cases 6, 31 and 32: the same cards, in the same order; the answer works; one execution, and the other window
    shows who answered."""
    did = Counting()
    both = calls(("deploy", {"where": "one"}), ("deploy", {"where": "two"}), say="Both, please.")
    stage = await staged([both, "Done.", calls(("deploy", {"where": "three"})), "All done."], tools=[did.tool()])
    window = await windows()
    me = Person(window)
    await me.enter(stage.link())
    await me.say("deploy")
    await until(lambda: len(stage.seen("approvalRequired")) == 2, "both are asked")
    before = await until(lambda: _whole(me, "two"), "both are shown, and nothing is still being drawn")
    await me.box.fill("a draft")
    await window.page.reload()
    await until(lambda: _same(me, before), "the same as before")
    assert await me.box.input_value() == "a draft"
    assert await me.button(DENY).count() == 2
    texts = await me.cards().all_inner_texts()
    assert texts[0].find("one") >= 0 and texts[-1].find("two") >= 0
    late = await windows()
    other = Person(late)
    await other.enter(stage.link())
    await until(lambda: _whole(other, "two"), "both are shown there too")
    await me.answer()
    await until(lambda: len(did) == 1, "one ran")
    await me.answer()
    await window.sees("Done.")
    await late.sees("Done.")
    assert sorted(did) == ["one", "two"]
    assert [event.wire["by"] for event in stage.seen("approvalResolved")] == ["browser", "browser"]

    await me.say("deploy another")
    for person in (me, other):
        await person.sees_card("three")
    buttons = [await person.ready_button(name) for person, name in ((me, APPROVE), (other, DENY))]
    await asyncio.gather(*(button.evaluate("button => button.click()") for button in buttons))
    for person in (me, other):
        await person.window.sees("All done.")
        await person.window.sees(re.compile("approved|answered", re.I))
        assert await person.button(DENY).filter(visible=True).count() == 0
    [resolved] = stage.seen("approvalResolved")[2:]
    assert did[2:] == (["three"] if resolved.wire["approved"] else [])


async def _whole(me: Person, last: str) -> str:
    """What the conversation says once both cards are in it and take an answer; empty before that."""
    buttons = me.button(DENY)
    waiting = [await buttons.nth(at).get_attribute("aria-disabled") for at in range(await buttons.count())]
    text = await me.page.get_by_role("region", name="Conversation").inner_text()
    return text if waiting == [None, None] and last in text and "Both, please." in text else ""


async def _same(me: Person, before: str) -> bool:
    return _still(await _whole(me, "two")) == _still(before)


def _still(text: str) -> str:
    """Without what moves: clocks."""
    return re.sub(r"\d+(\.\d+)?\s*(ms|s|min)\b|just now|\d\d:\d\d(:\d\d)?", "", text)


async def test_the_connection_is_cut_while_it_streams(staged: Any, windows: Any) -> None:
    """Case 31: the final text is the journal's, nothing is doubled; an answer given meanwhile counts afterwards, its
    card stays and never says what was not so."""
    did = Counting()
    words = " ".join(f"word{number}" for number in range(120))
    gate = asyncio.Event()
    turns = [Turn(say=words, chunks=60, until=gate.wait), calls(("deploy", {"where": "late"})), "Done."]
    stage = await staged(turns, tools=[did.tool()])
    window = await windows()
    window.expects("ERR_", "WebSocket")
    me = Person(window)
    await me.enter(stage.link())
    await me.say("talk")
    await window.sees(re.compile("word10"))
    with stage.unplugged():
        await window.sees(AWAY)
        await window.picture("away")
        gate.set()
        await until(lambda: [event for event in stage.seen("message") if "word119" in str(event.wire)], "it said all")
    await window.sees(re.compile("word119"))
    shown = await me.page.get_by_role("main").inner_text()
    assert shown.count("word119") == 1 and shown.count("word42 ") == 1
    assert words in re.sub(r"\s+", " ", shown)

    await me.say("and deploy")
    await me.sees_card("late")
    assert await window.page.title() == "(1) Forge – talk"
    card = await window.page.query_selector(".items > li.waits")
    await window.run(_SAID)
    with stage.unplugged():
        await window.sees(AWAY)
        await window.sees("Connecting…")
        await me.answer()
        await window.sees("sending…")
        assert did == []
    await window.sees("Done.")
    assert did == ["late"]
    assert card is not None and await card.evaluate("(node) => node.isConnected"), "another card was drawn"
    assert "Nothing ran" not in "\n".join(await window.run("() => said")), "it did"
    await window.sees_not(AWAY)
    await window.sees("Approved")
    assert await window.page.title() == "Forge – talk"


_SAID = """() => {
  window.said = [];
  new MutationObserver(() => {
    const now = document.querySelector("article[data-request-id]")?.innerText ?? "";
    if (now !== said.at(-1)) said.push(now);
  }).observe(document.body, {subtree: true, childList: true, characterData: true});
}"""


async def test_the_server_goes_and_comes_again(staged: Any, windows: Any) -> None:
    did = Counting()
    stage = await staged(["Hello.", calls(("deploy", {"where": "before"})), "Done."], tools=[did.tool()])
    stage.runtime.ui.attach("terminal")  # without anybody else who can answer, the session would end with its page
    window = await windows()
    window.expects("ERR_", "WebSocket", "401")
    me = Person(window)
    await me.enter(stage.link())
    await me.say("hello")
    await window.sees("Hello.")
    await me.say("deploy")
    await me.sees_card("before")
    await me.edit()
    field = me.card.get_by_label(re.compile("^where", re.I))
    await field.fill("typed before")
    port = await stage.stop_server()
    await window.sees(AWAY)
    await stage.serve(port)
    await window.sees(re.compile("/web"))
    await window.picture("login-again")
    await window.open(stage.link())
    await window.sees(re.compile("^live$"))
    await window.sees_not(re.compile("/web"))
    shown = await me.page.get_by_role("main").inner_text()
    assert shown.count("Hello.") == 1
    assert await field.input_value() == "typed before", "what was typed into a card is still there"
    await me.answer(EDITED)
    await window.sees("Done.")
    assert did == ["typed before"]


SCRIPT = {
    "turns": [{"say": "Hello from before."}]
    + [
        {"calls": [{"tool": "write_file", "args": {"path": f"/workspace/{name}.txt", "content": name}}]}
        for name in ("one", "two", "three")
    ]
    + [{"say": "All three."}]
}


LINK = re.compile(r"http://[\w.:]+/?#code=(?:[\w-]\n?){43}")
"""All of it, however the terminal breaks it into rows."""


async def link_on(screen: Any) -> str:
    await asyncio.to_thread(screen.wait_for, LINK)
    found = LINK.search(screen.text)
    assert found is not None
    return found.group(0).replace("\n", "")


@pytest.mark.parametrize(
    "begun", [(), pytest.param(("--ui", "terminal,web"), marks=pytest.mark.long)], ids=["later", "now"]
)
async def test_terminal_and_page_at_once(
    desk: Callable[..., Any], terminal: Callable[..., Any], windows: Any, begun: tuple[str, ...]
) -> None:
    """A page from the start, or by `/web` in the middle of a session; and again by `/web` for another link: what was
    before is there. Case 4: the first answer wins, the other place says who gave it."""
    front = "name: main\nmode: chat\ntoolsets: {filesystem: }\nsandbox: {zones: [{name: workspace}]}"
    place = desk({"main.worker": f"---\n{front}\n---\nWrite.\n", "s.yaml": json.dumps(SCRIPT)})
    screen = terminal(place, "run", *begun, "-m", "scripted:s.yaml")
    if begun:
        link = await link_on(screen)
    await asyncio.to_thread(screen.wait_for, "main · scripted:s.yaml")
    await asyncio.to_thread(screen.enter, "hello")
    await asyncio.to_thread(screen.wait_for, "Hello from before.")
    if not begun:
        await asyncio.to_thread(screen.enter, "/web")
        link = await link_on(screen)
    window = await windows()
    me = Person(window)
    await me.enter(link)
    await window.sees("Hello from before.")
    await asyncio.to_thread(screen.enter, "/web")
    await asyncio.to_thread(screen.wait_for, re.compile(rf"{LINK.pattern}[\s\S]*{LINK.pattern}"))
    await me.say("write all three")

    await me.sees_card("one.txt")
    await asyncio.to_thread(screen.wait_for, "one.txt")
    await asyncio.to_thread(screen.wait_for, "(y once", anywhere=False)  # the keys are named once they count
    screen.send("y")
    await window.sees(re.compile("in terminal|terminal", re.I))
    await until((place.root / "one.txt").exists, "it was written")

    await me.sees_card("two.txt")
    await asyncio.to_thread(screen.wait_for, "two.txt")
    await me.answer(DENY)
    await asyncio.to_thread(screen.wait_for, re.compile("browser"))

    await me.sees_card("three.txt")
    await me.answer()
    await window.sees("All three.")
    await asyncio.to_thread(screen.wait_for, "All three.")
    assert {path.name for path in place.root.glob("*.txt")} == {"one.txt", "three.txt"}
    assert [call.starts for call in place.calls()] == [1, 0, 1]
    code = link.partition("code=")[2]
    assert code.encode() not in place.kept_bytes(), "the code is in no file"
    window.expects("ERR_", "WebSocket")
    await asyncio.to_thread(screen.enter, "/exit")
    await window.sees(re.compile("ended|does not answer", re.I))
    assert await asyncio.to_thread(screen.wait_end) == 0
