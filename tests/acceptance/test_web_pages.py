"""The pages beside the conversation: tools, sessions, replay, settings; each for everybody. ui.md §10, cases 34–36."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Callable
from typing import Annotated, Any, Literal

import pytest
from tests.deadlines import PATIENCE
from tests.ui.web.bench import NARROW, WIDE, browsing, until
from tests.ui.web.person import DENY, Person
from tests.ui.web.stage import WORKSPACE, calls
from tests.wire.server import WireServer, WireTurn

from golem_forge import ToolContext, tool
from golem_forge.agent.files.worker import Worker
from golem_forge.ui.web.api import settings

pytestmark = browsing

AREAS = {
    "Tools": "Push to Remote",
    "Sessions": re.compile("^(runs here|live)", re.I),
    "Settings": re.compile("No rule yet|Built in"),
    "Chat": "write_file",
}
ZOOMED = (640, 400)
"""A window of 1280 × 800 at 200 %."""
WRITE = ("write_file", {"path": "/workspace/a.txt", "content": "one\n"})
PLAN = [{"step": "First", "status": "completed"}, {"step": "Second", "status": "in_progress"}]


@tool(mode="manual", label="Push to Remote", category="Git")
def git_push(
    branch: Annotated[str, "Target branch"],
    remote: Literal["origin", "upstream"] = "origin",
    tags: list[str] | None = None,
    force: bool = False,
    *,
    ctx: ToolContext,
) -> str:
    """Push commits to a remote repository."""
    return f"pushed {branch} to {remote}"


WORKER = Worker(name="main", toolsets={"filesystem": {}, "plan": {}}, sandbox=WORKSPACE)


async def lived(staged: Any) -> Any:
    """A session in which something happened."""
    turns = [
        calls(("update_plan", {"plan": PLAN}), ("list_files", {"path": "/workspace"}), say="I **look**.", think="Hm."),
        calls(WRITE),
        "Written.",
    ]
    return await staged(turns, tools=[git_push], worker=WORKER)


async def test_nobody_is_shut_out_and_a_replay_does_nothing(staged: Any, windows: Any) -> None:
    """Case 36: axe on every page, its dark colours and how it is at 320 px; there and at 200 % nothing is scrolled
    sideways. Case 34: a replay shows the same cards in order; no new row in the journal, no call."""
    stage = await lived(staged)
    window = await windows()
    me = Person(window)
    found: dict[str, list[str]] = {}
    wide: list[str] = []

    async def look(name: str) -> None:
        found[name] = await window.accessible()
        await window.picture(f"{name}-light")
        await window.page.emulate_media(color_scheme="dark")
        found[f"dark {name}"] = await window.readable()
        await window.picture(f"{name}-dark")
        await window.page.emulate_media(color_scheme="light")

    await me.enter(stage.link())
    await me.say("go")
    await me.sees_card("a.txt")
    await look("card")
    await me.edit()
    found["form"] = await window.accessible(colours=False)  # of fields they are on the page of tools
    await window.picture("form-light")
    await me.button("Back").click()
    for area in ("Tools", "Sessions", "Settings"):
        await me.go_to(area)
        await window.sees(AREAS[area])
        await look(area.lower())
    for area, says in AREAS.items():
        await window.page.set_viewport_size({"width": NARROW[0], "height": NARROW[1]})
        await me.go_to(area)
        await window.sees(says)
        await window.picture(f"narrow-{area.lower()}")
        found[f"320 px {area}"] = await window.accessible(colours=False)
        for size in (ZOOMED, NARROW):
            await window.page.set_viewport_size({"width": size[0], "height": size[1]})
            wide += [f"{area} at {size}"] if await window.overflows() else []
    await me.answer()
    await window.sees("Written.")
    found["done"] = await window.accessible(colours=False)

    await window.page.set_viewport_size({"width": WIDE[0], "height": WIDE[1]})
    journal = stage.runtime.home.path / "sessions" / f"{stage.runtime.session_id}.jsonl"
    stage.runtime.journal.flush()
    before, events = journal.read_bytes(), len(stage.events)
    await me.page.goto(f"{stage.address}/#/s/{stage.runtime.session_id}/replay")
    await window.sees(re.compile("speed", re.I))
    await me.button(re.compile("^(Play|Pause)")).wait_for()
    await window.picture("replay")
    found["replay"] = await window.accessible(colours=False)
    fastest = me.page.get_by_label(re.compile("speed", re.I)).first
    if await fastest.evaluate("node => node.tagName") == "SELECT":
        await fastest.select_option(index=-1 % await fastest.locator("option").count())
    play = me.button(re.compile("^Play", re.I))
    if await play.count():
        await play.click()
    main = me.page.get_by_role("main")  # what was said to a screen reader before stands outside of it
    await main.get_by_text("Written.").filter(visible=True).first.wait_for()
    text = await main.inner_text()
    order = [text.find(word) for word in ("list_files", "write_file", "Written.")]
    assert -1 not in order and order == sorted(order), order
    assert await me.button(DENY).filter(visible=True).count() == 0
    stage.runtime.journal.flush()
    assert journal.read_bytes() == before and len(stage.events) == events
    assert all("/actions" not in url for url in window.asked)

    assert {page: said for page, said in found.items() if said} == {}
    assert wide == []


@pytest.mark.long
async def test_a_rule_removed_and_an_approval_revoked_ask_again(staged: Any, windows: Any) -> None:
    """Case 35."""
    stage = await staged(
        [calls(WRITE), "1.", calls(WRITE), "2.", calls(WRITE), "3.", calls(WRITE), "4.", calls(WRITE), "5."]
    )
    window = await windows()
    me = Person(window)
    await me.enter(stage.link())
    for words, kept in (("always", "rule"), ("session", "approval")):
        await me.say(f"write and remember {words}")
        card = await me.sees_card("a.txt")
        await me.answer(re.compile(rf"\b{words}\b", re.I))
        await until(lambda: stage.seen("approvalResolved"), "answered")
        asked = len(stage.seen("approvalRequired"))
        await me.say("again")
        await until(lambda: len(stage.results()) % 2 == 0, "it ran again")
        assert len(stage.seen("approvalRequired")) == asked, "nobody was asked"
        await me.go_to("Settings")
        await window.sees(re.compile("a.txt"))
        await window.picture(f"settings-{kept}")
        remove = me.page.get_by_role("main").get_by_role("button", name=re.compile("^(Remove|Revoke)", re.I))
        await remove.first.click()
        confirm = me.page.get_by_role("dialog").get_by_role("button", name=re.compile("Remove|Revoke", re.I))
        if await confirm.count():
            await confirm.first.click()
        await until(lambda button=remove: _none(button), "it is gone from the list")
        await me.go_to("Chat")
    await me.say("once more")
    card = await me.sees_card("a.txt")
    assert await card.is_visible()
    await me.answer(DENY)
    await window.sees("5.")


async def _none(locator: Any) -> bool:
    return await locator.count() == 0


PHONE = (390, 780)
LONG = ("write_file", {"path": "/workspace/a.py", "content": "".join(f"row_{n} = {n}  # of many\n" for n in range(90))})


async def test_a_conversation_starts_on_a_phone_and_its_answers_stay_in_view(staged: Any, windows: Any) -> None:
    """An example fills the box; a long card keeps its answers on the screen; answered, it is one line that opens."""
    stage = await staged([calls(LONG), "Written."], worker=WORKER)
    window = await windows(size=PHONE)
    me = Person(window)
    await me.enter(stage.link())
    await window.sees("What do you want to do?")
    await window.sees("It reads and writes /workspace.")
    await window.sees("It asks you before it changes something, unless a rule allows it.")
    assert await window.accessible() == []
    await me.page.get_by_role("list", name="Examples").get_by_role("button").first.click()
    assert "explain how the project is built" in await me.box.input_value()
    assert await window.focused() == "Message", "it waits in the box until it is sent"
    await window.press("Enter")
    card = await me.sees_card("a.py", "row_0 = 0", "risk medium")
    await window.sees_not("What do you want to do?")
    assert await card.locator(".diff-new span.m").count() > 10, "a new file has colours"
    await me.is_ready()
    for name in (DENY, "Approve once", "Approve and remember…"):
        assert await in_view(card.get_by_role("button", name=name, exact=True)), name
    await card.get_by_role("button", name="Approve and remember…").click()
    await card.get_by_role("button", name=re.compile("session$")).first.wait_for()
    await until(lambda: in_view(card.get_by_role("button", name=DENY, exact=True)), "Deny is in view beside the menu")
    await window.press("Escape")
    assert stage.seen("approvalResolved") == [], "a menu answers nothing"
    await me.answer()
    await window.sees("Written.")
    await window.sees("Approved")
    assert await me.page.get_by_text("row_0 = 0").filter(visible=True).count() == 0
    line = me.page.get_by_role("listitem").filter(has_text="Approved")
    result = line.get_by_role("button", name=re.compile("write_file.*a.py new file", re.DOTALL))
    assert await result.is_visible(), "result and answer: one"
    assert await me.page.get_by_role("article", name="Tool call write_file").count() == 1
    await me.button(re.compile("^What was asked: write_file")).click()
    await window.sees("row_0 = 0")
    assert not await window.overflows()


async def in_view(button: Any) -> bool:
    """Whether a finger could press it now."""
    return bool(
        await button.evaluate(
            """node => {
              const {left, top, width, height} = node.getBoundingClientRect();
              const there = document.elementFromPoint(left + width / 2, top + height / 2);
              return there === node || node.contains(there);
            }"""
        )
    )


async def test_the_model_is_chosen_in_the_header_by_name_or_from_the_providers_list(
    staged: Any, windows: Any, own_home: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same as `/model`; the header shows what is in force. The list is asked for on demand; typing filters it; the
    arrow keys and Enter choose one."""
    with WireServer(lambda request: WireTurn(say="From the wire.")) as provider:
        provider.key, provider.models = "canary-key-0451", ("claude-large", "claude-small")
        monkeypatch.setenv("ANTHROPIC_API_KEY", provider.key)
        settings._tries.clear()
        (own_home / ".forge").mkdir(mode=0o700, exist_ok=True)
        address = provider.base_url("anthropic")
        (own_home / ".forge" / "config.yaml").write_text(f"models: {{anthropic: {{base_url: '{address}'}}}}\n")
        stage = await staged(["Hello."], worker=WORKER)
        (stage.directory / "other.yaml").write_text(json.dumps({"turns": [{"say": "From the other."}]}))
        window = await windows()
        me = Person(window)
        await me.enter(stage.link())
        header = me.button(re.compile("^Model: .*Choose another one"))
        dialog = me.page.get_by_role("dialog")
        await header.click()
        await dialog.get_by_label("Model").last.fill("two words")
        await dialog.get_by_role("button", name="Use this model").click()
        await window.sees(re.compile("Write one name"))
        await dialog.get_by_label("Model").last.fill("scripted:other.yaml")
        await dialog.get_by_role("button", name="Use this model").click()
        await me.button("Model: scripted:other.yaml. Choose another one").wait_for()
        await me.say("hello")
        await window.sees("From the other.")
        await header.click()
        assert provider.lists == [], "nobody asked for them yet"
        await dialog.get_by_role("button", name="More models…").click()
        await window.sees("anthropic:claude-small")
        await dialog.get_by_label("Model").last.fill("")
        await window.type("small")
        await window.sees_not("anthropic:claude-large")
        assert await window.accessible() == []
        await window.press("ArrowDown")
        assert await window.focused() == "anthropic:claude-small"
        await window.press("ArrowUp")
        assert await window.focused() == "Model"
        await window.press("ArrowDown", "Enter")
        await me.button("Model: anthropic:claude-small. Choose another one").wait_for()
        assert provider.key not in await window.text()


FRONT = "name: main\nmode: chat\ntoolsets: {filesystem: }\nsandbox: {zones: [{name: workspace}]}"
TURNS = {"turns": [{"calls": [{"tool": WRITE[0], "args": WRITE[1]}]}, {"say": "Written."}, {"say": "Gladly."}]}


def shop(desk: Callable[..., Any]) -> Any:
    return desk(
        {
            "forge.yaml": "model: scripted:s.yaml\n",
            "main.worker": f"---\n{FRONT}\n---\nWrite.\n",
            "s.yaml": json.dumps(TURNS),
        }
    )


async def begin(me: Person, words: str) -> None:
    """A new session, until its card is there; then back to the list."""
    first = me.page.get_by_label("First message")
    await until(lambda: me.button(re.compile("^New session")).is_visible(), "the page is there")
    if not await first.is_visible():
        await me.button(re.compile("^New session")).click()
    await first.fill(words)
    await me.window.picture("new-session")
    await me.button("Start").click()
    await me.sees_card("a.txt")
    await me.go_to("Sessions")


async def test_forge_web_runs_its_own_sessions(desk: Callable[..., Any], windows: Any) -> None:
    """The real command and two sessions, whose questions are in one inbox."""
    place = shop(desk)
    served, link = await started(place, "web")
    window = await windows()
    me = Person(window)
    await window.open(link)
    await window.sees(re.compile("session", re.I))
    await window.picture("sessions-empty")
    for words in ("the first", "the second"):
        await begin(me, words)
    bell = me.button(re.compile("answers are awaited"))
    await until(bell.is_visible, "both questions count")
    assert (await me.page.title()).startswith("(2)")
    await bell.click()
    inbox = me.page.get_by_role("dialog")
    assert await inbox.get_by_role("button", name=re.compile("write_file")).count() == 2
    assert await window.accessible() == []
    await inbox.get_by_role("button", name=re.compile("another session")).click()
    await window.sees("the first")
    await me.sees_card("a.txt")
    await me.answer()
    await window.sees("Written.")
    assert (place.root / "a.txt").read_text() == "one\n"
    window.expects("ERR_CONNECTION", "WebSocket connection", "Failed to fetch")  # the page outlives its server
    served.kill()
    said = "".join([link, *await asyncio.to_thread(served.communicate, PATIENCE)])
    assert said.count("code=") == 1, "the code is printed once, and logged nowhere"


@pytest.mark.long
async def test_forge_web_resumes_its_sessions_and_shows_others(desk: Callable[..., Any], windows: Any) -> None:
    """Name, export, end, resume, delete. A session of another process is only to be looked at."""
    place = shop(desk)
    _, link = await started(place, "web")
    window = await windows()
    me = Person(window)
    await window.open(link)
    await begin(me, "the first")
    await me.go_to("Chat")
    await me.answer()
    await window.sees("Written.")
    await me.say("thanks")
    await window.sees("Gladly.")

    await me.go_to("Sessions")
    row = me.page.get_by_role("listitem").filter(has_text="the first")
    await row.get_by_role("button", name=re.compile("More$")).click()
    assert await row.get_by_role("button", name=re.compile("^Delete")).count() == 0, "it runs"
    await row.get_by_role("button", name=re.compile("^Rename")).click()
    await me.page.get_by_role("dialog").get_by_label("Title").fill("Bread and milk")
    await window.press("Enter")
    row = me.page.get_by_role("listitem").filter(has_text="Bread and milk")
    async with me.page.expect_download() as saving:
        await row.get_by_role("link", name=re.compile("^Export as Markdown")).click()
    saved = await (await saving.value).path()
    assert "Written." in saved.read_text()
    await row.get_by_role("button", name=re.compile("^End")).click()
    await me.page.get_by_role("dialog").get_by_role("button", name="End").click()
    await row.get_by_role("link", name="Bread and milk", exact=True).click()
    await me.button("Resume").click()
    await window.sees_not("This session does not run.")
    await until(me.box.is_enabled, "it goes on")
    await me.go_to("Sessions")
    await row.get_by_role("button", name=re.compile("^End")).click()
    await me.page.get_by_role("dialog").get_by_role("button", name="End").click()
    await row.get_by_role("button", name=re.compile("^Delete")).click()
    await me.page.get_by_role("dialog").get_by_role("button", name="Delete").click()
    await window.sees_not("Bread and milk")
    assert len(place.journals) == 0

    _, elsewhere = await started(place, "run", "--ui", "web")
    other = Person(await windows())
    await other.enter(elsewhere)
    await other.say("elsewhere")
    await other.sees_card("a.txt")
    await me.go_to("Sessions")
    await window.sees(re.compile("elsewhere", re.I))
    await window.picture("sessions")
    await (
        me.page.get_by_role("link", name=re.compile("elsewhere"))
        .or_(me.page.get_by_role("row", name=re.compile("elsewhere")).get_by_role("link"))
        .first.click()
    )
    await window.sees(re.compile("read-only|runs elsewhere|another process", re.I))
    await window.sees(re.compile("write_file"))
    assert await me.button(DENY).filter(visible=True).count() == 0 or await me.button(DENY).first.is_disabled()
    await other.answer(DENY)
    await window.sees("Written.")
    window.expects("ERR_CONNECTION", "WebSocket connection", "Failed to fetch")  # the page outlives its server


async def started(place: Any, *words: str) -> tuple[Any, str]:
    """The command, which goes on, and the link it printed."""
    process = place.start(*words, BROWSER="true")
    said = await asyncio.to_thread(process.stdout.readline)
    link = re.search(r"http://\S+#code=\S+", said)
    assert link is not None, said
    return process, link.group(0)
