"""What a turn changed, on the page (flow.md §3): files with counts and diffs, Undo, the mode."""

from __future__ import annotations

from typing import Any

import pytest
import pytest_asyncio
from tests.ui.change_data import change_set, created, edited, files_changed, record
from tests.ui.web.bench import Window, Windows, browsing, until
from tests.ui.web.stage import calls
from tests.ui.web.test_page_fold import Story, _fold

from golem_forge import tool
from golem_forge.core.changes import PathChange
from golem_forge.ui.web.api import events as api

pytestmark = browsing

DIFF = "--- a/workspace/a.txt\n+++ b/workspace/a.txt\n@@ -1 +1,2 @@\n-one\n+two\n+three\n"
CHANGES = (edited("/workspace/a.txt", 2, 1), created("/workspace/docs/b.md", 3))


@pytest_asyncio.fixture(loop_scope="session")
async def changed(staged: Any, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A session whose first turn changed two files."""
    monkeypatch.setattr(api, "change_diff", lambda home, change: DIFF if change.path.endswith("a.txt") else "")
    places: list[Any] = []

    @tool(needs_approval=False)
    async def save() -> str:
        """Saves."""
        (stage,) = places
        runtime = stage.runtime
        call = next(event.wire["toolCallId"] for event in reversed(stage.seen("toolStarted")))
        record(runtime.home.path, change_set(runtime.session_id, call, 1, *CHANGES, tool="save"))
        runtime.bus.emit("filesChanged", files_changed(1, *CHANGES, call=call, tool="save"), runtime.id)
        return "saved"

    stage = await staged([calls(("save", {})), "It is saved.", "Once more."], tools=[save])
    places.append(stage)
    return stage


async def _say(window: Any, text: str) -> None:
    await window.page.get_by_label("Message", exact=True).fill(text)
    await window.press("Enter")


async def test_a_turn_ends_with_its_files_their_diffs_undo_and_what_stays(changed: Any, windows: Windows) -> None:
    window = await windows()
    await window.open(changed.link())
    await window.sees("live")
    await _say(window, "save it")
    await window.sees("Changed 2 files +5 −1")
    page = window.page
    part = page.get_by_role("region", name="What turn 1 changed")
    order = await page.evaluate("() => [...document.querySelectorAll('.items > li')].map((one) => one.dataset.kind)")
    assert order[-2:] == ["message", "changes"], "behind the answer"
    assert await part.get_by_role("list").inner_text() != ""
    await part.get_by_role("button", name="What changed in /workspace/a.txt").click()
    await until_text(part, "three")
    await part.get_by_role("button", name="What changed in /workspace/docs/b.md").click()
    await until_text(part, "There is no text to compare.")
    assert await window.accessible() == []
    await window.picture("changes-of-a-turn")
    await part.get_by_role("button", name="Undo the changes of /workspace/a.txt").click()
    await part.get_by_role("button", name="Undo what turn 1 changed").click()
    await until(lambda: len(changed.seen("manualToolInvoke")) == 2)
    asked = [(each.wire["toolName"], each.wire["args"]) for each in changed.seen("manualToolInvoke")]
    assert asked == [
        ("undo_changes", {"turn": 1, "paths": ["/workspace/a.txt"]}),
        ("undo_changes", {"turn": 1}),
    ]
    call = changed.seen("filesChanged")[0].wire["callId"]
    await page.get_by_role("article", name="Tool call").first.get_by_role("button").first.click()  # a call is one line
    mine = page.get_by_role("region", name="What this call changed")
    await mine.get_by_role("button", name="Undo what this call changed").click()
    await until(lambda: len(changed.seen("manualToolInvoke")) == 3)
    assert changed.seen("manualToolInvoke")[-1].wire["args"] == {"call": call}
    undone = files_changed(0, *CHANGES, call="u1", tool="undo_changes", undoes=[call])
    changed.runtime.bus.emit("filesChanged", undone, changed.runtime.id)
    await until_text(part, "undone")

    await _say(window, "/rewind 1 conversation")
    await window.sees("Rewound to message 1")
    box = page.get_by_label("Message", exact=True)
    await until(lambda: _holds(box, "save it"))

    def happens(turn: int, *changes: PathChange, **more: Any) -> None:
        changed.runtime.bus.emit("filesChanged", files_changed(turn, *changes, **more), changed.runtime.id)

    async def ends(turn: int) -> None:
        changed.runtime.bus.emit("inputPrompt", {"requestId": f"p{turn}", "prompt": "> "}, changed.runtime.id)

    happens(7, call="f1", reached=["a.test:443"], undoable=False)
    happens(7, *CHANGES, call="f2", remade=["/workspace/node_modules"])
    happens(7, call="f3", reached=["b.test:443", "a.test:443"], undoable=False)
    await ends(7)
    part = window.page.get_by_role("region", name="What turn 7 changed")
    stays = (
        "Not taken back: /workspace/node_modules (a tool can make it again); what was sent to a.test:443, b.test:443"
    )
    await until_text(part, stays)
    happens(0, *CHANGES, call="u1", tool="undo_changes", undoes=["f2"])
    await until_text(part, "undone")
    happens(8, call="f4", remade=["/workspace/.venv"], undoable=False)
    await ends(8)
    part = window.page.get_by_role("region", name="What turn 8 changed")
    await until_text(part, "Not taken back: /workspace/.venv (a tool can make it again)")
    assert await part.get_by_role("button", name="Undo").count() == 0
    happens(9, call="f5", reached=["a.test:443"], undoable=False)
    await ends(9)
    happens(10, *CHANGES, call="f6")
    await ends(10)
    await window.page.get_by_role("region", name="What turn 10 changed").wait_for()
    assert await window.page.get_by_role("region", name="What turn 9 changed").count() == 0
    window.expects("404", "undo_changes")


async def _holds(box: Any, text: str) -> bool:
    return bool(await box.input_value() == text)


async def until_text(part: Any, text: str) -> None:
    await part.get_by_text(text).first.wait_for()


async def test_the_mode_is_said_in_words_and_changed_at_the_foot(changed: Any, windows: Windows) -> None:
    window = await windows()
    await window.open(changed.link())
    await window.sees("live")
    before = changed.runtime.controller.mode.value
    page = window.page
    words = {"interactive": "Asks before changes", "approve_all": "Asks nothing"}[before]
    await page.get_by_role("button", name=f"Approval mode: {words}. Choose another one").click()
    dialog = page.get_by_role("dialog", name="Approval mode")
    await dialog.get_by_role("button", name="contained").wait_for()
    assert await window.accessible() == []
    await window.picture("approval-mode")
    await dialog.get_by_role("button", name="contained").click()
    await page.get_by_role("button", name="Approval mode: Works on its own inside. Choose another one").wait_for()
    assert changed.runtime.controller.mode.value == "contained"
    changed.runtime.bus.emit("command", {"requestId": "m", "text": f"/mode {before}"}, source="terminal")
    if before != "approve_all":
        await page.get_by_role("button", name=f"Approval mode: {words}. Choose another one").wait_for()
    await page.evaluate("location.hash = '#/settings'")
    await page.get_by_role("radio", name="Asks before everything strict").wait_for()


def _changed(story: Story, turn: int, *changes: PathChange, **more: Any) -> None:
    story.say("filesChanged", **files_changed(turn, *changes, **more))


async def test_the_fold_of_changes_is_the_same_however_the_events_come(functions: Window) -> None:
    story = Story()
    story.message("user", "one")
    story.started("c1")
    _changed(story, 1, edited("/w/a"), call="c1")
    story.result("c1")
    middle = len(story.frames)
    story.started("c2")
    _changed(story, 1, created("/w/b"), call="c2")
    story.result("c2")
    story.message("assistant", "done")
    story.say("inputPrompt", requestId="p", prompt="> ")
    _changed(story, 0, edited("/w/a"), call="u1", undoes=["c1"])
    calls_of = "(i.calls ?? []).map(c => [c.call, c.undone])"
    look = f"return items().map(i => [i.key, i.least, {calls_of}, i.changed?.undone ?? null])"
    whole = await _fold(functions, story.frames, look)
    assert whole[-1] == ["changes:1", "summary", [["c1", True], ["c2", False]], None]
    assert [each[3] for each in whole if each[0] == "t:c1"] == [True]
    joined = await functions.run(
        """async ([frames, middle]) => {
          const { SessionStore } = await import("/store.js");
          const store = new SessionStore();
          for (const one of frames.slice(middle)) store.take(one);
          store.takeEarlier(frames.slice(0, middle), false);
          return [...store.items.values()].map(i => [i.key, i.least, (i.calls ?? []).map(c => c.call)]);
        }""",
        [story.frames, middle],
    )
    assert [each for each in joined if each[0] == "changes:1"] == [["changes:1", "summary", ["c1", "c2"]]]
    open_turn = story.frames[: middle + 2]
    hidden = await _fold(functions, open_turn, "return items().filter(i => i.kind === 'changes').map(i => i.least)")
    assert hidden == ["debug"], "a turn that goes on says nothing yet"
