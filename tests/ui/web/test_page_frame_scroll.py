"""Only the conversation scrolls: no shortcut, no focus and no card moves the frame around it."""

from __future__ import annotations

from typing import Any

from tests.ui.web.bench import browsing
from tests.ui.web.person import Person
from tests.ui.web.stage import calls

from golem_forge import tool

pytestmark = browsing

KEYS = ("Alt+a", *["Tab"] * 10, "Alt+i", "Shift+Tab", "Alt+a", "End", "Alt+2", "Tab", "Tab", "Alt+1", "Alt+a")
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


async def test_no_shortcut_and_no_focus_scrolls_anything_but_the_conversation(
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
    await me.say("talk")
    await window.sees("A long answer.")
    await me.say("go")
    for card, sizes in (("act", SIZES[:2]), ("a.txt", SIZES[2:])):
        await me.sees_card(card)
        for width, height in SIZES if is_long else sizes:
            await window.page.set_viewport_size({"width": width, "height": height})
            for key in KEYS:
                await window.press(key)
                assert await window.run(_MOVED) == [], (card, width, height, key)
        if card == "act":
            await me.answer()
