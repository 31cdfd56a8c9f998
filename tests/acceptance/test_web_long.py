"""A long history: 10,000 events with --long, else 1,000. The page is there at once, keeps little of it, and finds the
rest. Issue 7."""

from __future__ import annotations

import re
from typing import Any

from tests.ui.web.bench import browsing, until
from tests.ui.web.person import Person

from golem_forge import tool
from golem_forge.core.calls import ToolCall

pytestmark = browsing

FEW, MANY = 1_000, 10_000
MOST_TOLD = 600
"""Events that come over the wire before the page can be used: a page or three of the history."""
MOST_NODES = 15_000


@tool(needs_approval=False)
async def add(a: int, b: int) -> int:
    """Adds; in no thread of its own, which would take longer than the call."""
    return a + b


async def lived(stage: Any, events: int) -> None:
    """Real calls and real words, until the journal has so many events."""
    number = 0
    while stage.runtime.bus.seq < events:
        number += 1
        stage.runtime.ui.show_message(role="user" if number % 2 else "assistant", content=f"**message** {number}")
        await stage.runtime.path.call(ToolCall(name="add", args={"a": number, "b": 1}))
    stage.runtime.ui.show_message(role="assistant", content="the **very last** word")


async def test_thousands_of_events(staged: Any, windows: Any, is_long: bool) -> None:
    stage = await staged(["Here."], tools=[add])
    await lived(stage, MANY if is_long else FEW)
    window = await windows()
    me = Person(window)

    assert await told_until_usable(me, stage.link(), "very last") < MOST_TOLD
    await check_bounded(window)
    earlier = me.button(re.compile("earlier", re.I)).first
    for _ in range(3 if is_long else 1):
        before = await first_number(window)
        await earlier.scroll_into_view_if_needed()
        if await earlier.is_visible():
            await earlier.click()
        await until(lambda before=before: _is_before(window, before), "earlier ones are there")
        await check_bounded(window)
    await window.picture("long-history")
    await me.say("hello?")
    await window.sees("Here.")


async def told_until_usable(me: Person, link: str, shown: str) -> int:
    """How many events the page got until its last words were there and it took what is typed."""
    frames: list[str | bytes] = []
    answers: list[Any] = []
    me.page.on("websocket", lambda wire: wire.on("framereceived", lambda frame: frames.append(frame)))
    me.page.on("response", lambda answer: answers.append(answer))
    await me.window.open(link)
    await me.window.sees(shown)
    await me.box.fill("typed")
    assert await me.box.input_value() == "typed"
    # Read here, not in the listener: a page that closes while a listener reads fails whichever test comes next.
    texts = [await answer.text() for answer in list(answers) if "/api/" in answer.url]
    told = sum(str(text).count('"seq"') for text in [*frames, *texts])
    assert told, "the history came some other way"
    return told


async def check_bounded(window: Any) -> None:
    nodes = await window.run("() => document.querySelectorAll('*').length")
    assert nodes < MOST_NODES, f"the page holds {nodes} elements"


async def first_number(window: Any) -> int:
    """Of the earliest message that is on the page."""
    earliest = window.page.get_by_role("main").get_by_text(re.compile(r"^message \d+$")).first
    return int((await earliest.inner_text()).split()[-1])


async def _is_before(window: Any, before: int) -> bool:
    return await first_number(window) < before
