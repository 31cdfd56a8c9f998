"""A whole session on a page, in a real browser: what a person sees and does there. ui.md §10, cases 8, 9, 30."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path
from typing import Annotated, Any, Literal

import pytest
from tests.ui.web.bench import browsing, until
from tests.ui.web.person import APPROVE, EDITED, Person
from tests.ui.web.stage import WORKSPACE, calls

from golem_forge import ToolContext, tool
from golem_forge.agent.files.worker import Worker
from golem_forge.agent.model.interface import Request
from golem_forge.agent.model.scripted import Turn

pytestmark = browsing

ANSWER = """## What I did

I wrote **notes.txt**, and this is the list:

| what | how many |
|---|---|
| bread | 2 |

```python
def buy(what: str) -> int:
    return len(what)
```
"""


def program(folder: Path) -> Path:
    """main → builder → checker; each has the zone `workspace`."""
    (folder / "workers").mkdir(parents=True)
    (folder / "work").mkdir()
    (folder / "work" / "notes.txt").write_text("buy milk\n")
    (folder / "forge.yaml").write_text("sandbox: {zones: {workspace: {path: work, mode: rw}}}\n")
    zone = "sandbox: {zones: [{name: workspace, mode: rw}]}"
    yes = "approval: {default: preApproved}"
    fronts = {
        "main.worker": f"toolsets: {{filesystem: , plan: , exec: , workers: {{allow: [builder], {yes}}}}}\n{zone}",
        "workers/builder.worker": f"description: Builds.\ntoolsets: {{workers: {{allow: [checker], {yes}}}}}\n{zone}",
        "workers/checker.worker": f"description: Checks.\ntoolsets: {{filesystem: }}\n{zone}",
    }
    for place, front in fronts.items():
        name = Path(place).stem
        (folder / place).write_text(f"---\nname: {name}\n{front}\n---\nI am {name}.\n")
    return folder


def cast(**parts: list[Any]) -> list[Any]:
    """One model for all workers: each plays turns of its own."""

    def turn(request: Request) -> Turn | str:
        name = request.system.split("I am ", 1)[1].split(".", 1)[0]
        return parts[name].pop(0) if parts[name] else "Nothing more."

    return [turn] * 60


class Pushed(list[tuple[str, str, bool]]):
    """A tool for people, and what it was really called with."""

    def tool(self) -> Any:
        @tool(mode="manual", label="Push to Remote", category="Git")
        def git_push(
            branch: Annotated[str, "Target branch"],
            remote: Literal["origin", "upstream"] = "origin",
            force: bool = False,
            *,
            ctx: ToolContext,
        ) -> str:
            """Push commits to a remote repository."""
            self.append((branch, remote, force))
            return f"pushed {branch} to {remote}"

        return git_push


COMMAND = "echo made > made.txt && wc -c made.txt"
PLAN = [
    {"step": "Look at the notes", "status": "completed"},
    {"step": "Write them anew", "status": "in_progress"},
    {"step": "Push", "status": "pending"},
]


async def test_everything_by_keyboard_alone(staged: Any, windows: Any, tmp_path: Path) -> None:
    folder = program(tmp_path / "shop")
    pushed, building = Pushed(), asyncio.Event()

    @tool(needs_approval=True)
    async def build(*, ctx: ToolContext) -> str:
        """Builds."""
        for number in ("one", "two"):
            told = {"toolCallId": ctx.call_id, "stream": "stdout", "delta": f"compiling {number}\n"}
            ctx.show("toolOutput", told)
            await building.wait()
        return "compiling one\ncompiling two\n"

    write = {"path": "/workspace/notes.txt", "content": "buy bread\n"}
    heard = asyncio.Event()
    turns = cast(
        main=[
            calls(
                ("update_plan", {"plan": PLAN}),
                say="I will look, then **write**. " + "Word after word. " * 20,
                think="Hm.",
                chunks=30,
                until=heard.wait,
            ),
            calls(("exec_command", {"cmd": COMMAND})),
            calls(("build", {})),
            calls(("write_file", write)),
            calls(("write_file", {"path": "/workspace/other.txt", "content": "draft"})),
            calls(("builder", {"input": "check the notes"})),
            calls(("delete_file", {"path": "/workspace/notes.txt"})),
            ANSWER,
        ],
        builder=[calls(("checker", {"input": "read notes.txt"})), "It is checked."],
        checker=[calls(("read_file", {"path": "/workspace/notes.txt"})), "It says bread."],
    )
    stage = await staged(turns, worker="main", directory=folder, tools=[pushed.tool(), build])
    window = await windows()
    me = Person(window)
    await me.enter(stage.link())

    # A program that nobody has trusted yet asks that first.
    await me.sees_card(re.compile("trust", re.I), "builder.worker")
    await window.picture("approval-trust")
    await approve_by_keys(window, re.compile("^(Trust|Approve)"))
    await until(lambda: stage.seen("inputPrompt"), "it stands")
    await window.picture("chat-empty")

    # What is typed goes to the worker; its words are there before it has ended them.
    await me.box.focus()
    await window.type("Write the notes anew, please.")
    await window.press("Enter")
    await window.sees("Word after word.")
    assert not stage.seen("toolStarted"), "it is still talking"
    await window.picture("chat-streaming")
    heard.set()

    # A command: asked for, answered by keys, seen while it runs.
    await me.sees_card("exec_command", COMMAND)
    assert re.match(r"\(1\)", await window.page.title())
    await until(lambda: _told_of(window, "exec_command"), "who cannot see it is told")
    assert await window.focused() and "message" in (await window.focused()).lower(), "the focus was not taken"
    await window.press("Enter")
    await window.type("y")
    await window.press("Escape")
    assert len(stage.seen("approvalResolved")) == 1, "no key answers from the box"
    await me.box.fill("")
    await approve_by_keys(window)
    await until((folder / "work/made.txt").exists, "it ran")

    # A tool that speaks while it works.
    await me.sees_card("build wants to run")
    await approve_by_keys(window)
    await window.sees("compiling one")
    assert ("build", "success") not in stage.results()
    await window.picture("tool-output")
    building.set()
    await until(lambda: ("build", "success") in stage.results(), "it has ended, and is one line")
    await window.sees_not("compiling one")
    await window.sees("Write them anew")

    # A write: its diff, and yes.
    await me.sees_card("write_file", "buy milk", "buy bread", "/workspace/notes.txt", re.compile("medium", re.I))
    await window.picture("approval-diff")
    await approve_by_keys(window)
    await until(lambda: (folder / "work/notes.txt").read_text() == "buy bread\n", "it was written")

    # Another, changed on its card.
    await me.sees_card("other.txt", "draft")
    await me.is_ready()
    await window.press("Alt+a")
    await window.tab_to(re.compile("^Edit"))
    await me.press_focused(re.compile("^Edit"))
    await window.tab_to(re.compile("^content", re.I))
    await window.press("Control+a")
    await window.type("final")
    await window.picture("approval-edit")
    await window.tab_to(EDITED)
    await me.press_focused(EDITED)
    await until((folder / "work/other.txt").exists, "it was written")
    assert (folder / "work/other.txt").read_text() == "final"
    await until(lambda: _was_told(stage, 'The user changed: content "draft" → "final".'), "the model is told")

    # Workers below workers; then a no, with a reason.
    await me.sees_card("delete_file")
    for name in ("builder", "checker"):
        await window.sees(re.compile(name))
    await me.is_ready()
    await window.press("Alt+a")
    await window.tab_to(re.compile("^Deny with"))
    await me.press_focused(re.compile("^Deny with"))
    await window.type("keep them")
    await window.picture("approval-deny")
    await window.tab_to("Send denial")
    await me.press_focused("Send denial")
    await window.sees("What I did")
    assert any("keep them" in text for _, text in stage.told()), stage.told()
    assert (folder / "work/notes.txt").exists()
    await window.picture("chat-done")
    assert await window.page.get_by_role("cell", name="bread", exact=True).count() == 1
    assert await window.page.get_by_role("heading", name="What I did").count() == 1

    # A tool of the person's own, as a form.
    await window.press("Alt+2")
    await window.sees("Push to Remote")
    await window.picture("tools")
    await window.tab_to(re.compile("^Branch", re.I))
    await window.type("main")
    await window.tab_to(re.compile("^Remote", re.I))
    await window.press("ArrowDown")
    await window.tab_to(re.compile("^Force", re.I))
    await window.press("Space")
    await window.tab_to(re.compile("^Run"))
    await window.press("Enter")
    await window.sees(re.compile(r"Waiting for you \(1\)"))
    await window.press("Alt+a")
    await me.sees_card("git_push")
    await approve_by_keys(window)
    await until(lambda: pushed, "it was pushed")
    assert pushed == [("main", "upstream", True)]
    await window.sees("pushed main to upstream")


_IS_ON_A_CARD = "() => Boolean(document.activeElement?.closest('article[data-request-id]'))"


async def approve_by_keys(window: Any, yes: str | re.Pattern[str] = APPROVE) -> None:
    """From wherever one is: to the oldest card, past Deny, to yes."""
    await Person(window).is_ready()
    await window.press("Alt+a")
    await until(lambda: window.run(_IS_ON_A_CARD), "a card has the focus")
    names: list[str] = []
    while not names or not re.match(yes, names[-1]):
        assert len(names) < 40, f"40 tabs, and no yes: {names}"
        await window.press("Tab")
        names.append(await window.focused())
    assert any(re.match("(Deny|Do not trust)$", name) for name in names), f"Deny comes first: {names}"
    await Person(window).press_focused(yes)


BLOCKED = """version: 1
rules: [{path: "/workspace/locked/**", access: [write], verdict: blocked, reason: it is locked}]
"""


@pytest.mark.long
async def test_edits_that_cannot_be_and_a_stop(staged: Any, windows: Any, own_home: Path) -> None:
    """Case 8: an invalid edit leaves the card with the field's error, a blocked one is refused. Stop ends a turn."""
    ran: list[Any] = []

    @tool(needs_approval=True)
    def count(text: str, times: Annotated[int, "How often"]) -> int:
        """Counts."""
        ran.append((text, times))
        return times

    @tool(needs_approval=False)
    async def wait_long(*, ctx: ToolContext) -> str:
        """Waits."""
        step = 0
        while True:
            ctx.report_progress(step, None, f"step {step}")
            await asyncio.sleep(0.05)
            step += 1

    home = own_home / ".forge"
    home.mkdir(mode=0o700)
    (home / "rules.yaml").write_text(BLOCKED)
    stage = await staged(
        [
            calls(("count", {"text": "a", "times": 2})),
            calls(("write_file", {"path": "/workspace/a.txt", "content": "x"})),
            calls(("wait_long", {})),
            "I was stopped.",
            "Still here.",
        ],
        tools=[count, wait_long],
        worker=Worker(name="main", toolsets={"filesystem": {}}, sandbox=WORKSPACE),
    )
    window = await windows()
    me = Person(window)
    await me.enter(stage.link())
    await me.say("go")
    await me.sees_card("count")
    await me.edit()
    field = me.card.get_by_label(re.compile("^times", re.I))
    await field.fill("many") if await field.get_attribute("type") != "number" else await field.fill("")
    await me.card.get_by_role("button", name=EDITED).click()
    await until(lambda: _invalid(field), "the field says what is wrong with it")
    assert ran == [] and not stage.seen("approvalResolved")
    assert await window.accessible() == []
    await window.picture("approval-field-error")
    await field.fill("7")
    await me.card.get_by_role("button", name=EDITED).click()
    await until(lambda: ran, "it ran")
    assert ran == [("a", 7)]

    await me.sees_card("write_file", "a.txt")
    await me.edit()
    await me.card.get_by_label(re.compile("^path", re.I)).fill("/workspace/locked/a.txt")
    await me.card.get_by_role("button", name=EDITED).click()
    await until(lambda: len(stage.seen("toolResult")) > 1, "it was judged anew")
    assert stage.results()[-1] == ("write_file", "policy_denied")
    await until(lambda: "it is locked" in stage.told_ever(), "the model is told why")
    assert not (stage.directory / "locked").exists()

    await window.sees(re.compile(r"step \d+"))
    await window.picture("tool-running")
    await me.button(re.compile("^Stop")).filter(visible=True).first.click()
    await until(lambda: stage.results()[-1] == ("wait_long", "interrupted"), "it was stopped")
    await me.say("and now?")
    await window.sees(re.compile("I was stopped|Still here"))
    assert ran == [("a", 7)]


async def _invalid(field: Any) -> bool:
    if await field.get_attribute("aria-invalid") != "true":
        return False
    described = (await field.get_attribute("aria-describedby") or "").split()
    texts = [await field.page.locator(f"[id='{one}']").text_content() for one in described]
    return any(text and text.strip() for text in texts)


async def _told_of(window: Any, name: str) -> bool:
    return name in await window.heard()


_DRAGGED = """() => {
  const given = new DataTransfer();
  given.items.add(new File(["and butter"], "dropped.txt"));
  document.addEventListener("drop", (event) => setTimeout(() => { window.event_left = event.defaultPrevented; }, 0));
  return given;
}"""


async def test_files_are_attached_and_one_branch_is_stopped(staged: Any, windows: Any, tmp_path: Path) -> None:
    folder = tmp_path / "tree"
    folder.mkdir()
    zone = "sandbox: {zones: [{name: workspace}]}"
    allow = "toolsets: {workers: {allow: [helper], approval: {default: preApproved}}}"
    (folder / "main.worker").write_text(f"---\nname: main\n{allow}\n{zone}\n---\nI am main.\n")
    (folder / "helper.worker").write_text(f"---\nname: helper\ndescription: Helps.\n{zone}\n---\nI am helper.\n")
    turns = cast(
        main=["I have read it.", calls(("helper", {"input": "talk for long"})), "The helper was stopped."],
        helper=[Turn(say="and on " * 500, chunks=500, until=asyncio.Event().wait)],
    )
    stage = await staged(turns, worker="main", directory=folder)
    window = await windows()
    me = Person(window)
    await me.enter(stage.link())
    await me.sees_card(re.compile("trust", re.I), "helper.worker")
    await me.answer("Trust")
    await until(lambda: stage.seen("inputPrompt"), "it stands")

    picked = {"name": "list.txt", "mimeType": "text/plain", "buffer": b"two loaves"}
    await window.page.get_by_label("Files to attach").set_input_files(picked)
    await window.sees("list.txt")
    await window.sees_not(re.compile("sending|uploading", re.I))
    given = await window.page.evaluate_handle(_DRAGGED)
    for event in ("dragover", "drop"):
        await window.page.get_by_role("region", name="Conversation").dispatch_event(event, {"dataTransfer": given})
    await window.sees("dropped.txt")
    await until(lambda: me.button("Send").is_enabled(), "both have been received")
    await me.say("what is in it?")
    await window.sees("I have read it.")
    attached = [(each.name, each.size) for each in stage.requests[0].messages[-1].attachments]
    assert attached == [("list.txt", len(b"two loaves")), ("dropped.txt", len(b"and butter"))]
    await window.page.get_by_role("navigation").first.dispatch_event("drop", {"dataTransfer": given})
    assert await window.run("() => event_left"), "a file that misses is not opened in place of the page"

    await me.say("send the helper")
    await window.sees(re.compile("and on and on"))
    await me.button("Stop helper").click()
    await window.sees("The helper was stopped.")
    assert stage.results() == [("helper", "interrupted")]


def _was_told(stage: Any, text: str) -> bool:
    """In any request: the last one may be a sub-worker's by now."""
    results = (getattr(message, "results", ()) for request in stage.requests for message in request.messages)
    return any(text in each.text for some in results for each in some)
