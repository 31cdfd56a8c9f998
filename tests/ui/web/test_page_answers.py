"""An answer is one that was meant: nothing pushes a card under the pointer, and a card says what became of its answer.

The whole page over a real server; what ran the tool tells.
"""

from __future__ import annotations

from typing import Any

import pytest
from tests.ui.web.bench import browsing, until
from tests.ui.web.person import APPROVE, DENY, Person
from tests.ui.web.stage import calls
from tests.ui.web.test_page_cards import question, request

from golem_forge import tool

pytestmark = browsing


TYPED = (("why not ", 0), ("why not ", 50), ("n o w \n", 0), ("hello\n", 20))
"""And the milliseconds between two keys."""


async def test_a_card_stands_still_and_takes_only_a_press_that_is_meant(
    staged: Any, windows: Any, is_long: bool
) -> None:
    """Threat: one presses where Deny stood, and there stands another answer by then; or a blank, typed for the box,
    presses the button that has the focus."""

    @tool(needs_approval=True)
    def first(x: str) -> str:
        """Acts."""
        return x

    @tool(needs_approval=True)
    def second(x: str) -> str:
        """Acts."""
        return x

    stage = await staged([calls(("first", {"x": "a"}), ("second", {"x": "b"})), "Done."], tools=[first, second])
    window = await windows()
    me = Person(window)
    await me.enter(stage.link())
    await me.say("go")
    await until(lambda: len(stage.seen("approvalRequired")) == 2, "both ask")
    await window.press("Alt+a")
    await me.is_ready()
    deny = me.card.get_by_role("button", name=DENY, exact=True)
    stood = await deny.bounding_box()
    for number in range(5):
        words = f"another worker says {number}\n\n" * 5
        stage.runtime.bus.emit("message", {"message": {"role": "assistant", "content": words}})
        await window.run("() => new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))")
        assert await deny.bounding_box() == stood, "what comes below does not push it"

    # What is above it grows and cannot be held: whatever stands under the pointer then is not meant.
    approve = me.card.get_by_role("button", name=APPROVE, exact=True)
    box = await approve.bounding_box()
    await window.page.mouse.move(box["x"] + 5, box["y"] + 5)
    assert await window.run(_GROWN_AND_PRESSED) == "false"
    assert stage.seen("approvalResponse") == []
    await me.answer()
    await until(lambda: stage.results() == [("first", "success")], "once it stands still, it counts")

    # Words go to the box, and press nothing.
    await me.sees_card("second")
    approve = me.card.get_by_role("button", name=APPROVE, exact=True)
    written = ""
    for typed, delay in TYPED if is_long else TYPED[1:3]:
        await me.is_ready(approve)
        await approve.focus()
        async with window.at_once():
            await window.page.keyboard.type(typed, delay=delay)
        written += typed.rstrip("\n")
        await until(lambda text=written: _holds(me, text), "it is in the box")
    await me.is_ready(approve)
    await window.press("Alt+a")
    await window.page.keyboard.type("y")
    assert await me.box.input_value() == written + "y"
    assert len(stage.seen("approvalResponse")) == 1 and len(stage.seen("userInput")) == 1
    await me.is_ready(approve)
    await approve.focus()
    await window.run(_WATCHED)
    await window.page.keyboard.press("Backspace")  # it changes nothing, and is typing all the same
    await until(lambda: window.run("() => window.unready"), "a key that changes nothing breaks the silence")
    await me.is_ready(approve)
    await me.press_focused(APPROVE)
    await until(lambda: stage.results()[1:] == [("second", "success")], "a press after a silence counts")
    assert await me.box.input_value() == written + "y"


_GROWN_AND_PRESSED = """() => {
  document.querySelector("[data-request-id] .card-facts").style.setProperty("height", "320px");
  const button = [...document.querySelectorAll("button")].find((one) => one.innerText === "Approve once");
  button.click();
  return button.closest("article").dataset.ready;
}"""

_WATCHED = """() => {
  const card = document.querySelector("article[data-request-id][data-state=open]");
  new MutationObserver(() => (window.unready ||= card.dataset.ready === "false")).observe(card, { attributes: true });
}"""


async def _holds(me: Person, text: str) -> bool:
    return await me.box.input_value() == text


_ONE_FORM = """async () => {
  const { toolForm } = await import("/forms/tool_form.js");
  window.ran = 0;
  const ctx = {
    session: {id: "s"}, store: {items: new Map(), subscribe: (told) => { window.tell = told; return () => {}; }},
    act: async (type, data) => { ran += 1; window.sent = data; return {ok: true}; },
  };
  window.result = (id, text) => {
    const shown = {event: {data: {status: "success"}}, view: {form: "text", text, summary: text}};
    ctx.store.items.set(`t:${id}`, {kind: "call", name: "act", caller: "human", result: shown});
    tell({what: "item", key: `t:${id}`, fresh: true});
  };
  const fields = [{name: "x", label: "X", type: "text", required: false}];
  document.querySelector("main").replaceChildren(toolForm({name: "act", label: "Act", fields}, ctx));
}"""


_DOUBLE_CLICK = """async (button) => {
  button.click();
  await new Promise((done) => setTimeout(done, 0));
  button.click();
}"""


async def test_one_wish_runs_a_tool_once(windows: Any) -> None:
    """Neither the second press of a double click nor Enter that is held down is another wish."""
    window = await windows.with_modules()
    page = window.page
    await window.run(_ONE_FORM)
    await page.get_by_role("button", name="Run Act").evaluate(_DOUBLE_CLICK)
    assert await window.run("() => ran") == 1
    await page.wait_for_timeout(50)
    await window.run(_ONE_FORM)
    await page.get_by_label("X").focus()
    for _ in range(5):
        await page.keyboard.down("Enter")  # the second and later ones repeat
    await page.keyboard.up("Enter")
    assert await window.run("() => ran") == 1
    await window.run("() => result('f'.repeat(32), 'of a terminal')")
    await window.run("() => result(sent.requestId, 'of this form')")
    await window.sees("of this form")
    assert "of a terminal" not in await window.text(), "the same tool, run by another"


_TOOLS_PAGE = """async () => {
  const { page } = await import("/pages/tools.js");
  const items = new Map();
  const shown = page({session: {id: "s"}, store: {items}, api: {get: async () => ({})}, announce: () => {}}, []);
  document.querySelector("main").replaceChildren(shown.node);
  window.ended = () => {
    items.set("t:1", {kind: "call", name: "act", result: {event: {data: {status: "success"}}}});
    shown.update({what: "item", key: "t:1", fresh: true});
  };
}"""


async def test_the_page_of_tools_counts_a_call_that_ends_while_it_is_shown(windows: Any) -> None:
    window = await windows.with_modules()
    await window.run(_TOOLS_PAGE)
    await window.sees("No tool was called in this session yet.")
    await window.run("() => ended()")
    await window.sees("Calls in this session")
    assert "No tool was called" not in await window.text()


_CARD = """async ({items, whole}) => {
  const { approvalCard } = await import("/cards/approval_card.js");
  window.acts = [];
  const ctx = {
    session: {id: "s", answerable: true}, store: {standing: {tools: []}, items: new Map(), subscribe: () => () => {}},
    api: {get: async () => whole}, act: async (type, data) => { acts.push(data); return {ok: true}; },
    announce: () => {}, level: () => "normal",
  };
  const card = approvalCard(items[0], ctx);
  document.querySelector("main").replaceChildren(card.node);
  for (const item of items.slice(1)) card.update(item);
}"""


async def test_a_card_that_was_closed_and_is_asked_after_all_can_be_answered(windows: Any) -> None:
    window = await windows.with_modules()
    asked = question(request())
    gone = {**asked, "resolved": {"gone": True, "approved": False, "by": ""}}
    await window.run(_CARD, {"items": [asked, gone, question(request())], "whole": None})
    await window.page.locator("[data-ready=true]").wait_for()
    await window.page.get_by_role("button", name=APPROVE).click()
    assert await window.run("() => acts") == [{"requestId": "r1", "approved": True}]


_PASTE = """() => {
  const clipboardData = new DataTransfer();
  clipboardData.setData("text/plain", "go on");
  document.activeElement.dispatchEvent(new ClipboardEvent("paste", { clipboardData, bubbles: true }));
}"""


@pytest.mark.parametrize("pasted", [False, True])
async def test_text_at_a_card_without_a_box_leaves_its_buttons(windows: Any, pasted: bool) -> None:
    """Threat: in the inbox there is no box for the text; a blank after a pause would press the button."""
    window = await windows.with_modules()
    await window.run(_CARD, {"items": [question(request())], "whole": None})
    card, page = window.page.locator("article"), window.page
    ready = window.page.locator("[data-ready=true]")
    await ready.wait_for()
    await window.page.get_by_role("button", name=APPROVE).focus()
    await window.run(_WATCHED)
    if pasted:
        await window.run(_PASTE)
    else:
        await page.keyboard.press("g")
    await until(lambda: window.run("() => window.unready"), "it breaks the silence")
    await ready.wait_for()
    for key in ("Space", "Enter"):
        await page.keyboard.press(key)
    assert await window.run("() => acts") == []
    assert await card.evaluate("(card) => card.contains(document.activeElement)"), "the keyboard stays at the card"
    await ready.wait_for()
    await window.page.get_by_role("button", name=APPROVE).focus()
    await page.keyboard.press("Enter")
    await until(lambda: window.run("() => acts.length"), "a press that is meant counts")
    assert await window.run("() => acts") == [{"requestId": "r1", "approved": True}]


async def test_no_label_and_no_number_that_is_not_so(windows: Any) -> None:
    """Threat: a label long enough to push the name and the risk away; counts of what is only a part of a change."""
    window = await windows.with_modules()
    part = "--- a/x\n+++ b/x\n@@ -1,60 +1,61 @@\n" + "".join(f"-a{n}\n+b{n}\n" for n in range(60))
    data = request(label="harmless " * 40, diff=part, changed=part)
    whole = {"event": {"data": {**data, "diff": part + "+the end\n", "changed": part + "+the other end\n"}}}
    await window.run(_CARD, {"items": [question(data, cut=True)], "whole": whole})
    said = await window.text()
    assert "harmless harmless" not in said
    assert "git_push wants to run · risk high" in said
    assert "+60" not in said, "nobody knows how many there are"
    assert "at least" in said
    for end in ("the end", "the other end"):
        await window.page.get_by_role("button", name="Show all").first.click()
        await window.sees(end)
    assert "+61" in await window.text()
