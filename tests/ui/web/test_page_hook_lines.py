"""What hooks and a reviewer say about a call stands at its card on the page (hooks.md §1, §2)."""

from __future__ import annotations

from tests.ui.web.bench import Window, browsing
from tests.ui.web.test_page_fold import Story, _fold

pytestmark = browsing


async def test_what_is_said_of_a_call_is_at_its_card_however_the_events_come(functions: Window) -> None:
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
    assert await _fold(functions, story.frames, f"return items().map({look})") == expected
    for at in (middle - 1, middle, middle + 1):
        joined = await functions.run(
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
