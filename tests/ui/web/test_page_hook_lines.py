"""What hooks and a reviewer say about a call stands at its card on the page (hooks.md §1, §2)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tests.ui.web.bench import Windows, browsing, until
from tests.ui.web.stage import WORKSPACE, calls
from tests.ui.web.test_page_fold import Story, _fold

from golem_forge.agent.files.worker import Worker
from golem_forge.storage.home import forge_home

pytestmark = browsing

HOOK = """#!/bin/sh
echo '{"systemMessage": "one line was formatted"}'
"""
REVIEWER = """#!/usr/bin/env python3
import json, sys
unsure = "b.txt" in json.dumps(json.load(sys.stdin)["card"])
print(json.dumps({"answer": "unsure" if unsure else "approve", "reason": "a file of the docs" if not unsure else "?"}))
"""


def write(name: str) -> tuple[str, dict[str, Any]]:
    return "write_file", {"path": f"/workspace/{name}", "content": "x\n"}


async def test_a_hooks_line_and_a_reviewers_stand_at_their_call(staged: Any, windows: Windows, own_home: Path) -> None:
    programs = {}
    for name, text in (("format", HOOK), ("review", REVIEWER)):
        programs[name] = own_home / name
        programs[name].write_text(text)
        programs[name].chmod(0o755)
    forge_home().ensure()
    settings = {
        "hooks": [{"on": "after_call", "tools": ["write_file"], "run": str(programs["format"]), "timeout_s": 60}],
        "approval": {"reviewer": {"run": str(programs["review"])}},
    }
    forge_home().config.write_text(json.dumps(settings))
    stage = await staged(
        [calls(write("a.txt"), write("b.txt")), "Both are written."],
        worker=Worker(name="main", toolsets={"filesystem": {}}, sandbox=WORKSPACE),
        approval="interactive",
    )
    window = await windows()
    page = window.page
    await window.open(stage.link())
    await window.sees("live")
    await page.get_by_label("Message", exact=True).fill("write both")
    await window.press("Enter")
    await until(lambda: bool(stage.seen("approvalRequired")))
    await window.sees("The reviewer 'review' said unsure: ?")
    await window.picture("reviewer-is-unsure")
    await page.get_by_role("button", name="Approve").first.click()
    await window.sees("Both are written.")
    cards = page.get_by_role("article", name="Tool call write_file")
    assert await cards.count() == 2
    said = {}
    for card in await cards.all():
        name = "a.txt" if "a.txt" in await card.get_by_role("button").first.inner_text() else "b.txt"
        said[name] = await card.get_by_role("list", name="Said about this call").inner_text()
    formatted = "hook format: one line was formatted"
    assert said == {
        "a.txt": f"reviewer review: approve (a file of the docs)\n{formatted}",
        "b.txt": f"reviewer review: unsure (?)\n{formatted}",
    }
    assert await window.accessible() == []
    await window.picture("hook-and-reviewer-lines")


async def test_what_is_said_of_a_call_is_at_its_card_however_the_events_come(windows: Windows) -> None:
    story = Story()
    story.message("user", "go")
    story.say("reviewed", reviewer="r", answer="approve", toolCallId="c1", durationMs=1)
    story.say("hookRan", hook="early", on="before_call", status="said", line="look", toolCallId="c1", durationMs=1)
    middle = len(story.frames)
    story.started("c1")
    story.say("hookRan", hook="late", on="after_call", status="failed", line="bad", toolCallId="c1", durationMs=1)
    story.result("c1")
    story.say("hookRan", hook="turn", on="turn_end", status="said", line="of no call", durationMs=1)
    story.say("hookRan", hook="waits", on="before_call", status="said", line="asked", toolCallId="c2", durationMs=1)
    look = "i => [i.kind, i.least, (i.said ?? []).map(s => s.data.hook ?? s.data.reviewer), i.data?.hook ?? null]"
    expected = [
        ["message", "summary", [], None],
        ["call", "summary", ["r", "early", "late"], None],
        ["notice", "normal", [], "turn"],
        ["notice", "normal", [], "waits"],
    ]
    assert await _fold(windows, story.frames, f"return items().map({look})") == expected
    window = await windows.with_modules()
    for at in (middle - 1, middle, middle + 1):
        joined = await window.run(
            f"""async ([frames, middle]) => {{
              const {{ SessionStore }} = await import("/store.js");
              const store = new SessionStore();
              for (const one of frames.slice(middle)) store.take(one);
              store.takeEarlier(frames.slice(0, middle), false);
              return [...store.items.values()].map({look});
            }}""",
            [story.frames, at],
        )
        assert joined == expected, at
