"""Where the focus is can be seen, and only the conversation scrolls: no shortcut, focus or card moves the frame."""

from __future__ import annotations

from typing import Any

from tests.ui.web.bench import NARROW, WIDE, browsing
from tests.ui.web.person import Person
from tests.ui.web.stage import calls

from golem_forge import tool

pytestmark = browsing

KEYS = ("Alt+a", *["Tab"] * 10, "Alt+i", "Shift+Tab", "Alt+a", "End", "Alt+2", "Tab", "Tab", "Alt+1", "Alt+a")
FEWER_KEYS = ("Alt+a", *["Tab"] * 4, "Alt+i", "Shift+Tab", "Alt+a", "End", "Alt+2", "Tab", "Alt+1", "Alt+a")
SIZES = ((1280, 800), (360, 640), (1280, 420), (900, 300))
_MOVED = """async () => {
  await new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)));
  const said = [];
  for (const node of [document.documentElement, document.body, document.getElementById("main")])
    if (node.scrollTop || node.scrollLeft) said.push(`${node.tagName} is scrolled by ${node.scrollTop}`);
  const scroller = document.querySelector(".scroller");
  if (!scroller) return said;
  const [main, dock] = ["#main", ".dock"].map((one) => document.querySelector(one).getBoundingClientRect());
  const below = main.bottom - dock.bottom;
  if (Math.abs(below) > 1) said.push(`the composer ends ${below} above the foot`);
  const end = scroller.querySelector(".items").getBoundingClientRect().bottom - scroller.getBoundingClientRect().top;
  const gap = scroller.scrollHeight - scroller.scrollTop - end;
  if (scroller.scrollTop && gap > 40) said.push(`the conversation goes on for ${gap} after its end`);
  return said;
}"""


_RINGS = """() => {
  const rings = [];
  for (let one = document.activeElement; one && one !== document.body; one = one.parentElement) {
    const look = getComputedStyle(one);
    if ((look.outlineStyle !== "none" && parseFloat(look.outlineWidth) > 0) || /0px 0px 0px 1px$/.test(look.boxShadow))
      rings.push(one.className || one.tagName);
  }
  return document.activeElement === document.body ? null : rings;
}"""


async def test_the_focus_has_one_ring_and_neither_it_nor_a_shortcut_scrolls_the_frame(
    staged: Any, windows: Any, is_long: bool
) -> None:
    @tool(needs_approval=True)
    def act(text: str) -> str:
        """Acts."""
        return text

    small = calls(("act", {"text": "one"}))
    large = calls(("write_file", {"path": "/workspace/a.txt", "content": "a line\n" * 400}))
    stage = await staged(["A long answer.\n\n" * 60, small, large, "Done."], tools=[act], approval="strict")
    window = await windows()
    me = Person(window)
    await me.enter(stage.link())
    await window.sees("live")
    seen: list[list[str]] = []
    for keys, area, wanted in (("Alt+1", "Chat", "composer-box"), ("Alt+4", "Settings", "mode")):
        await window.press(keys)
        await window.page.locator("nav a[aria-current=page]", has_text=area).wait_for()
        await window.page.locator(f".{wanted}").first.wait_for()
        for _ in range(25):
            await window.press("Tab")
            if (rings := await window.run(_RINGS)) is not None:
                seen.append(rings)
                if wanted in " ".join(rings).split() and not is_long:
                    break
        assert wanted in " ".join(seen[-1]).split() or is_long, seen
    assert [rings for rings in seen if len(rings) != 1] == []

    await window.press("Alt+1")
    await me.say("talk")
    await window.sees("A long answer.")
    await me.say("go")
    for card, sizes in (("act", SIZES[1:2]), ("a.txt", SIZES[3:])):
        await me.sees_card(card)
        for width, height in SIZES if is_long else sizes:
            await window.page.set_viewport_size({"width": width, "height": height})
            for key in KEYS if is_long else FEWER_KEYS:
                await window.press(key)
                assert await window.run(_MOVED) == [], (card, width, height, key)
        if card == "act":
            await me.answer()


_UNCOVERED = """() => [...document.querySelectorAll(".card-panel textarea, .card-panel button")].every((node) => {
  const box = node.getBoundingClientRect();
  const corners = [[box.left + 5, box.top + 5], [box.right - 5, box.bottom - 5]];
  return corners.every(([x, y]) => document.elementFromPoint(x, y) === node);
})"""


async def test_the_message_of_a_denial_and_its_buttons_are_in_view(staged: Any, windows: Any) -> None:
    stage = await staged(["A long answer.\n\n" * 60, calls(("write_file", {"path": "a.txt", "content": "a line\n"}))])
    window = await windows()
    me = Person(window)
    await me.enter(stage.link())
    await me.say("talk")
    await window.sees("A long answer.")
    await me.say("go")
    await me.sees_card("a.txt")
    for width, height in (WIDE, NARROW):
        await window.page.set_viewport_size({"width": width, "height": height})
        await window.page.get_by_role("button", name="Deny with a message…").click()
        await window.page.wait_for_function(_UNCOVERED)
        await window.page.locator(".card-panel").get_by_role("button", name="Back").click()
