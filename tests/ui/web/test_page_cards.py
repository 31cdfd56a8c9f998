"""Cards on the page, in a real browser under the real policy: what an approval says and what may answer it, what a tool
card shows, what a server's form may do."""

from __future__ import annotations

import json
from typing import Any

from tests.ui.card_data import card_data
from tests.ui.web.bench import Window, Windows, browsing, until

from golem_forge.core.ids import is_id
from golem_forge.events.serialization import Event, encode_json
from golem_forge.tools.forms import derive_fields
from golem_forge.ui.render.card import approval_card, card_view
from golem_forge.ui.render.lines import plain_text
from golem_forge.ui.web.views import event_with_view
from golem_forge.usertools.native_tools import listed_create_custom_tool

pytestmark = browsing

_PUSH = {
    "type": "object",
    "required": ["branch"],
    "properties": {
        "branch": {"type": "string"},
        "remote": {"enum": ["origin", "upstream"], "default": "origin"},
        "force": {"type": "boolean", "default": False},
    },
}


def request(**members: Any) -> dict[str, Any]:
    given: dict[str, Any] = {
        "requestId": "r1",
        "description": "Push to Remote: pushes commits",
        "tool": "git_push",
        "args": {"branch": "main"},
        "payload": json.dumps({"branch": "main"}, indent=2),
        "effects": ["net github.com"],
        "risk": "high",
        "riskReasons": ["reaches the network"],
        "why": "rule ask-push: pushes are asked (forge.yaml:12)",
        "choices": [
            {"id": "c1", "label": "this exact call", "scope": "session", "rule": "git_push(main)"},
            {"id": "c2", "label": "any push", "scope": "always", "rule": "git_push", "file": ".forge/rules.yaml"},
        ],
        "workerPath": [{"id": "0", "name": "main", "depth": 0, "task": ""}],
        "fields": derive_fields(_PUSH),
    }
    return card_data(**given | members)


def question(
    data: dict[str, Any], *, resolved: Any = None, cut: bool = False, asks: str = "approval"
) -> dict[str, Any]:
    event = {"type": "approvalRequired", "seq": 5, "data": data}
    return {
        "kind": "question",
        "asks": asks,
        "requestId": data["requestId"],
        "resolved": resolved,
        "shown": {"event": event, "view": {"cut": cut, "card": card_view(data)}},
    }


_MOUNT = """async ({module, make, items, answerable, whole, tools}) => {
  const made = (await import(`/cards/${module}.js`))[make];
  window.acts = [];
  window.asked = [];
  window.reply = {ok: true};
  window.ctx = {
    session: {id: "s", answerable},
    store: {standing: {tools}, items: new Map(), subscribe: () => () => {}},
    api: {get: async where => { asked.push(where); return whole; }},
    act: async (type, data) => { acts.push({type, ...data}); return reply; },
    announce: () => {}, level: () => "normal",
  };
  window.cards = items.map(item => made(item, ctx));
  document.querySelector("main").replaceChildren(...cards.map(card => card.node));
}"""


async def show(
    window: Window,
    *items: dict[str, Any],
    module: str = "approval_card",
    make: str = "approvalCard",
    answerable: bool = True,
    whole: Any = None,
    tools: Any = (),
) -> None:
    given = {
        "module": module,
        "make": make,
        "items": items,
        "answerable": answerable,
        "whole": whole,
        "tools": list(tools),
    }
    await window.run(_MOUNT, given)


async def acts(window: Window) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = await window.run("() => acts")
    return found


HOSTILE = "echo \x1b[2K ok \u202e; " + "x" * 10_000 + "; rm -rf x"
_REQUESTS = [
    request(),
    request(
        type="command",
        tool="exec_command",
        description="Run: runs a command",
        payload="git push",
        args={"command": "git push", "workdir": "/ws/sub", "shell": "zsh", "login": True, "tty": True},
        effects=["exec git push", "net github.com"],
        riskReasons=["NO WALLS: no bubblewrap", "reaches the network"],
        previouslyDenied=2,
        waiting=3,
        warnings=["2 control or invisible characters are shown as escapes"],
        workerPath=[{"id": "0", "name": "main"}, {"id": "1", "name": "publisher", "task": "release"}],
        fields=[],
    ),
    request(tool="write_stdin", payload="y\n", args={"session_id": 4, "chars": "y\n"}, fields=[]),
    request(
        type="definition", toolCallId="t", payload="Pushes main", args={"branch": "main"}, description="git_push: x"
    ),
    request(
        payload="deploy to production now", args={"env": "production now", "n": 3, "gone": None}, description="a_b: x"
    ),
    request(payload=HOSTILE, args={"command": HOSTILE}, fields=[]),
    request(
        type="command",
        tool="exec_command",
        payload="cargo check && npm ci",
        args={"cmd": "cargo check && npm ci"},
        effects=["exec cargo check", "exec npm ci (no rule covers it)", "net github.com (no rule covers it)"],
        segments=[
            {"words": ["cargo", "check"], "proven": True, "dangers": []},
            {"words": ["npm", "ci"], "dangers": ["x"]},
        ],
        riskReasons=["'npm ci' is on the danger list (x)"],
        fields=[],
    ),
]


async def test_a_card_says_what_the_terminals_card_says(windows: Windows) -> None:
    window = await windows.with_modules()
    for data in _REQUESTS:
        await show(window, question(data))
        said = _flat(f"{await window.text()} {await remembered(window)}")
        title, *rows = plain_text(approval_card(data, choices=[])).splitlines()
        wanted = [row.removeprefix("│ ").strip() for row in rows if row.strip("│ ")]
        assert [row for row in wanted if _flat(row) not in said] == []
        assert _flat(title.strip("─ ")) in said
        for choice in data["choices"]:
            assert choice["rule"] in said, "what would be remembered is said"
        assert "\x1b" not in said
        assert "\u202e" not in said


async def remembered(window: Window) -> str:
    """What the menu of choices says; it stands there, folded away."""
    return " ".join(await window.page.locator(".choices").all_text_contents())


def _flat(text: str) -> str:
    return " ".join(text.split())


async def test_a_command_stands_on_its_card_once(windows: Windows) -> None:
    exact = {"id": "exact:always", "label": "exactly make it all", "scope": "always", "file": "remembered.yaml"}
    data = request(
        type="command",
        tool="exec_command",
        payload="make it all",
        args={"cmd": "make it all"},
        effects=["exec make it all"],
        segments=[{"words": ["make", "it", "all"], "proven": False, "dangers": ["power"]}],
        riskReasons=["'make it all' is on the danger list (power)"],
        why="floor danger:power: 'make it all' is on the danger list (power)",
        choices=[exact | {"rule": "command make it all (exactly)"}],
    )
    window = await windows.with_modules()
    await show(window, question(data))
    said = _flat(await window.text())
    assert said.count("make it all") == 1, said
    assert "the command is on the danger list (power)" in said
    assert "exactly this command" in await remembered(window)


async def test_of_very_many_facts_both_ends_are_shown_and_how_many_are_between(windows: Windows) -> None:
    window = await windows.with_modules()
    data = request(effects=[f"write /ws/{number}.txt" for number in range(2000)])
    made = event_with_view(Event("approvalRequired", data))
    assert len(encode_json(made["view"])) < 1 << 17
    await show(window, {**question(data), "shown": made})
    said = await window.text()
    assert "write /ws/0.txt" in said
    assert "write /ws/1999.txt" in said
    assert " more …" in said


async def test_only_a_press_meant_for_the_button_answers(windows: Windows) -> None:
    window = await windows.with_modules()
    page = window.page
    async with window.at_once():
        await show(window, question(request()))
        await window.run("() => [...document.querySelectorAll('.card-place button')].forEach(one => one.click())")
    assert await acts(window) == [], "a card that has just appeared answers nothing"
    await page.locator("[data-ready=true]").wait_for()

    order = await page.locator(".card-place button:visible").all_text_contents()
    others = ["Edit…", "Deny with a message…", "Stop the turn"]
    assert order == ["Deny", "Approve once", "Approve and remember…", *others]
    await page.get_by_role("button", name="Approve and remember…").click()
    assert (await page.locator(".card-place button:visible").all_text_contents())[:3] == order[:3], "still in view"
    exact, wide = await page.locator(".choices button:visible").all_text_contents()
    assert exact.startswith("Approve and remember: this exact call") and exact.endswith("session")
    assert wide.startswith("Approve and remember: any push")
    assert wide.endswith("always for this project, in .forge/rules.yaml")
    await window.press("Escape")
    assert await window.focused() == "Approve and remember…"
    assert await acts(window) == [], "a menu that opens and closes answers nothing"
    await page.locator("[data-ready=true]").wait_for()
    await window.run("() => cards[0].focus()")
    await window.press("Enter", "Escape", "Space")
    await page.mouse.click(5, 700)
    assert await acts(window) == [], "neither Enter, nor Esc, nor a click beside it"

    approve = page.get_by_role("button", name="Approve once")
    await approve.focus()
    await approve.dispatch_event("keydown", {"key": "Enter", "repeat": True, "bubbles": True, "cancelable": True})
    await page.keyboard.down("Shift")
    held = await window.run(
        """() => {
          const press = new KeyboardEvent("keydown", {key: "Enter", repeat: true, bubbles: true, cancelable: true});
          return document.activeElement.dispatchEvent(press);
        }"""
    )
    await page.keyboard.up("Shift")
    assert held is False, "a key that is held does nothing"
    assert await acts(window) == []
    await window.press("Enter")
    assert await acts(window) == [{"type": "approvalResponse", "requestId": "r1", "approved": True}]
    await window.press("Enter", "Enter")
    assert len(await acts(window)) == 1, "sent once"
    await window.sees("sending…")

    await show(window, question(request()))
    await page.locator("[data-ready=true]").wait_for()
    await page.get_by_role("button", name="Approve and remember…").click()
    await until(lambda: _answered(window, "always for this project"))
    assert [one["choice"] for one in await acts(window)] == ["c2"]


async def _answered(window: Window, name: str) -> bool:
    """Presses again where the last press came too early: what opened or was shown has moved the buttons."""
    await window.page.get_by_role("button", name=name).first.click()
    return bool(await acts(window))


async def test_a_denial_takes_a_message_and_an_edit_comes_back_with_its_errors(windows: Windows) -> None:
    window = await windows.with_modules()
    page = window.page
    asked = question(request())
    await show(window, asked)
    await page.get_by_role("button", name="Deny with a message…").click()
    await page.keyboard.type("not on a Friday")
    await window.run("() => { reply = {ok: false, problem: 'Not now.'} }")
    await page.get_by_role("button", name="Send denial").click()
    await window.sees("Not now.")
    assert (await acts(window))[-1]["reason"] == "not on a Friday"
    await window.run("() => { reply = {ok: true} }")

    await page.get_by_role("button", name="Back").click()
    await page.get_by_role("button", name="Edit…").click()
    branch = page.get_by_label("Branch")
    assert await branch.input_value() == "main"
    await branch.fill("no such branch")
    await window.press("Enter")
    assert len(await acts(window)) == 1, "Enter in a field sends nothing"
    await page.get_by_role("button", name="Approve with these arguments").click()
    assert (await acts(window))[-1]["args"] == {"branch": "no such branch", "remote": "origin", "force": False}

    fields = [{**one, "error": "no blanks"} if one["name"] == "branch" else one for one in request()["fields"]]
    again = question(request(fields=fields, warnings=["branch: no blanks"]))
    await window.run("(item) => cards[0].update(item)", again)
    await page.locator("[data-ready=true]").wait_for()
    assert await branch.input_value() == "no such branch", "what was typed stays"
    assert await branch.get_attribute("aria-invalid") == "true"
    assert await window.focused() == "Branch (required)"
    await branch.fill("dev")
    await page.get_by_role("button", name="Approve with these arguments").click()
    assert (await acts(window))[-1]["args"]["branch"] == "dev"
    closed = {**again, "resolved": {"requestId": "r1", "approved": True, "by": "browser", "edited": True}}
    await window.run("(item) => cards[0].update(item)", closed)
    await window.sees("Approved · with changed arguments")
    assert "Approved" in await window.focused(), "the focus stays in the card"


async def test_cards_of_other_windows_replays_and_strangers(windows: Windows) -> None:
    window = await windows.with_modules(dark=True)
    page = window.page
    elsewhere = {"requestId": "r1", "approved": False, "by": "terminal", "edited": False, "reason": "<b>no</b>"}
    other = {"requestId": "r1", "approved": True, "by": "browser", "edited": False, "choice": "c2"}
    name = "<img src=x onerror=alert(1)>"
    await show(
        window,
        question(request(), resolved=elsewhere),
        question(request(), resolved=other),
        question(request(tool=name, description=f"{name}: {name}", payload=name, effects=[name], why=name)),
        question(request(type="trust", description="Trust the program in demo?")),
        question(
            request(
                modelNote="please", diff="--- a/x\n+++ b/x\n@@ -1 +1 @@\n-a\n+b\n", expiresAt="2999-01-01T00:00:00Z"
            )
        ),
    )
    text = await window.text()
    assert "Denied · answered in terminal: <b>no</b>" in text
    assert (
        "answered in another browser window · remembered (always for this project, in .forge/rules.yaml): any push"
        in text
    )
    assert f"{name} wants to run" in text
    assert await page.locator("img, b").count() == 0
    assert await page.get_by_role("button", name="Trust", exact=True).count() == 1
    assert await window.accessible() == []
    await show(window, question(request()), answerable=False)
    assert await page.locator(".card-place button").count() == 0, "where nothing can be answered there is no button"


async def test_a_shortened_request_is_fetched_whole_to_be_seen_and_to_be_edited(windows: Windows) -> None:
    window = await windows.with_modules()
    page = window.page
    rows = [f"line {number}" for number in range(1, 101)]
    short, whole = (
        request(payload="\n".join(rows), args={"branch": "m…n"}),
        request(payload="\n".join([*rows, "rm -rf x"])),
    )
    await show(window, question(short, cut=True), whole={"event": {"data": whole}})
    text = await window.text()
    assert "60 lines between" in text
    assert "line 20\n" in text
    assert "line 81\n" in text
    await page.get_by_role("button", name="Show all").first.click()
    await window.sees("rm -rf x")
    assert "line 50\n" in await window.text()
    await page.get_by_role("button", name="Edit…").click()
    assert await page.get_by_label("Branch").input_value() == "main", "nobody edits what was shortened"
    assert set(await window.run("() => asked")) == {"/api/sessions/s/questions/r1"}


def call(**members: Any) -> dict[str, Any]:
    return {
        "kind": "call",
        "name": "git_push",
        "label": "Push to Remote",
        "args": {"branch": "main", "api_key": "[redacted 8 chars sha256:12345678]"},
        "caller": "human",
        "output": {"stdout": "", "stderr": ""},
        "progress": None,
        "result": None,
        "seqs": [3],
        **members,
    }


def result(view: dict[str, Any], **data: Any) -> dict[str, Any]:
    members = {"status": "success", "truncated": False, "value": None, "decision": None, **data}
    return {"event": {"type": "toolResult", "seq": 9, "data": members}, "view": {"took": "12 ms", **view}}


async def test_the_subject_of_a_call_can_be_read_whole(windows: Windows) -> None:
    """On one line it is cut at a phone's width: it is whole where the pointer is, by keyboard, and in the open card."""
    window = await windows.with_modules(size=(390, 800))
    page = window.page
    subject = "git log --oneline --decorate --graph --all " + "-- a/very/long/path/of/a/file " * 4
    await show(window, call(subject=subject), module="tool_card", make="toolCard")
    about, head = page.locator(".tool-about"), page.locator("button.tool-head")
    assert await about.get_attribute("title") == subject
    cut = "(node) => node.scrollWidth > node.clientWidth"
    assert await about.evaluate(cut)
    await page.keyboard.press("Tab")
    assert await head.evaluate("(node) => node.matches(':focus-visible')") and not await about.evaluate(cut)
    await head.click()
    assert not await about.evaluate(cut)


async def test_a_tool_card_from_its_start_to_its_result(windows: Windows) -> None:
    window = await windows.with_modules()
    page = window.page
    tools = [{"name": "git_push", "label": "Push to Remote", "description": "Pushes.", "fields": derive_fields(_PUSH)}]
    await show(window, call(), module="tool_card", make="toolCard", tools=tools)
    head = page.locator("button.tool-head")
    assert await head.get_attribute("aria-expanded") == "false"
    running = call(
        output={"stdout": "pushing\r\n", "stderr": "careful\x1b[0m\n"},
        progress={"progress": 1, "total": 4, "message": "a"},
    )
    await window.run("(item) => cards[0].update(item)", running)
    await window.sees("careful\\x1b[0m")
    await window.sees("1/4 a")
    assert await head.get_attribute("aria-expanded") == "true", "output is seen as it comes"

    decision = {"verdict": "ask", "decidedBy": {"source": "rule", "id": "r-1", "reason": "asks"}, "risk": "high"}
    failed = result(
        {"form": "output", "summary": "execution_failed: exit 1", "parts": [{"stream": "stderr", "text": "rejected"}]},
        status="execution_failed",
        error="exit 1",
        decision=decision,
    )
    said = [
        {"type": "reviewed", "data": {"reviewer": "review", "answer": "approve", "reason": "a file of the docs"}},
        {"type": "hookRan", "data": {"hook": "format", "line": "one line was formatted"}},
    ]
    await window.run("(item) => cards[0].update(item)", call(result=failed, said=said))
    lines = await page.get_by_role("list", name="Said about this call").get_by_role("listitem").all_text_contents()
    assert lines == ["reviewer review: approve (a file of the docs)", "hook format: one line was formatted"]
    text = await window.text()
    assert "✗" in text
    assert "execution_failed: exit 1" in text
    assert "rejected" in text
    assert "12 ms" in text
    await page.get_by_role("button", name="Why Forge asked").click()
    await window.sees("rule r-1: asks")
    await page.get_by_role("button", name="Run again with changes").click()
    await page.get_by_label("Branch").fill("dev")
    await page.get_by_label("Branch").press("Enter")
    wanted = {"toolName": "git_push", "args": {"branch": "dev", "remote": "origin", "force": False}}
    [sent] = await acts(window)
    assert is_id(sent.pop("requestId")) and sent == {"type": "manualToolInvoke", **wanted}
    assert await window.accessible() == []


async def test_a_program_that_worked_is_kept_by_a_form_with_its_run_filled_in(windows: Windows) -> None:
    window = await windows.with_modules()
    page = window.page
    schema = listed_create_custom_tool().input_schema
    maker = {"name": "create_custom_tool", "label": "", "description": "Creates.", "fields": derive_fields(schema)}
    view = {
        "form": "output",
        "summary": "exit 0, 3 calls",
        "parts": [{"stream": "stdout", "text": "found\n"}, {"stream": "answer", "text": '{"files": 3}'}],
    }
    program = call(name="run_code", label="", args={"code": "print(1)"}, id="c-17", parent=None, result=result(view))
    failed = {**program, "id": "c-18", "result": result(view, status="execution_failed", error="exit 1")}
    inside = {**program, "id": "c-19", "parent": "c-17"}
    await show(window, program, failed, inside, module="tool_card", make="toolCard", tools=[maker])
    await window.sees('{"files": 3}')
    keep = page.get_by_role("button", name="Keep as a tool")
    assert await keep.count() == 1, "only of one that worked, and not of a call inside"
    await keep.click()
    assert await page.get_by_label("From run").input_value() == "c-17"
    await page.get_by_label("Name").first.fill("count-files")
    await page.get_by_label("Description").first.fill("Counts.")
    await page.get_by_label("Description").first.press("Enter")
    [sent] = await acts(window)
    assert sent["toolName"] == "create_custom_tool"
    wanted = {"name": "count-files", "description": "Counts.", "from_run": "c-17"}
    assert {name: sent["args"][name] for name in wanted} == wanted


async def test_results_by_their_form(windows: Windows) -> None:
    window = await windows.with_modules(dark=True)
    page = window.page
    dot = "data:image/png;base64,iVBORw0KGgo="
    views: list[dict[str, Any]] = [
        {"form": "text", "text": "<script>alert(1)</script>"},
        {"form": "markdown", "html": "<p><strong>bold</strong></p>"},
        {"form": "table", "columns": ["id", "name"], "rows": [["1", "Ada"]], "count": 3, "cut": True},
        {"form": "tree", "data": {"a": {"b": [1, "x"]}, "e": []}},
        {"form": "files", "files": ["a.py", "b\u202e.py"], "count": 9},
        {"form": "image", "src": dot, "summary": "a dot"},
        {"form": "image", "src": "https://evil.test/x.png"},
        {"form": "diff", "diff": "--- a/x\n+++ b/x\n@@ -1 +1 @@\n-a\n+b\n"},
        {"form": "text", "text": "", "notes": ["output truncated, handle out_0123456789ab"]},
        {"form": "text", "text": "x\n" * 60, "summary": "long one"},
        {"form": "text", "text": "short", "collapsed": True, "summary": "closed one"},
        {"form": "hidden"},
    ]
    left = [
        {"severity": "critical", "text": "left behind (critical): <b>hook</b>"},
        {"severity": "note", "text": "left behind (note): 3 files"},
    ]
    views[11]["leftovers"] = left
    items = [call(name=f"tool_{number}", result=result(view)) for number, view in enumerate(views)]
    items[8]["result"]["event"]["data"] |= {"truncated": True, "outputHandle": "out_0123456789ab"}
    page_of_output = {"handle": "out_0123456789ab", "text": "L1: all of it", "total": 1, "next": None}
    await show(window, *items, module="tool_card", make="toolCard", whole=page_of_output)
    opened = await page.locator("button.tool-head").evaluate_all(
        "all => all.map(one => one.getAttribute('aria-expanded'))"
    )
    assert opened[9:] == ["false", "false", "false"], "long, collapsed by hint, hidden"
    text = await window.text()
    for wanted in (
        "<script>alert(1)</script>",
        "bold",
        "... and 2 more",
        "b\\u202e.py",
        "... and 7 more",
        "display cut",
    ):
        assert wanted in text
    assert await page.locator("th[scope=col]").filter(has_text="name").count() == 1
    assert await page.locator("img").get_attribute("alt") == "a dot"
    assert await page.locator("img, script").count() == 1
    told = page.get_by_role("list", name="Left behind").get_by_role("listitem")
    assert await told.all_text_contents() == [one["text"] for one in left], "although its card is closed"
    await page.get_by_role("button", name="tool_8").click()
    await page.get_by_role("button", name="Show the stored output").click()
    await window.sees("L1: all of it")
    assert await window.accessible() == []


async def test_both_answers_of_a_choice_are_answers_and_neither_is_a_refusal(windows: Windows) -> None:
    window = await windows.with_modules()
    choice = {"source": "Forge", "title": "How?", "message": "", "fields": [], "workerPath": []}
    said = {"accept": {"action": "accept"}, "decline": {"action": "decline"}, "later": {"action": "cancel"}}
    items = [
        question({**choice, "requestId": f"f{at}", "accept": "alone", "decline": "ask"}, asks="form", resolved=resolved)
        for at, resolved in enumerate([*said.values(), {"gone": True}])
    ]
    await show(window, *items, module="form_card", make="formCard")
    endings = await window.page.locator(".ending").all_text_contents()
    assert endings[:3] == ["✓ alone", "✓ ask", "✗ Not now"]
    assert endings[3].startswith("✗ Closed without an answer")
    asked = {"requestId": "f9", "accept": "work alone", "decline": "ask first"}
    await show(window, question(choice | asked, asks="form"), module="form_card", make="formCard")
    await window.sees("Not now")
    await until(lambda: _answered(window, "work alone"))
    assert await acts(window) == [{"type": "formResponse", "requestId": "f9", "action": "accept", "values": {}}]


async def test_a_servers_form_is_answered_by_its_buttons_and_opens_only_safe_links(windows: Windows) -> None:
    window = await windows.with_modules()
    page = window.page
    form = {"requestId": "f1", "source": "calendar", "title": "MCP server 'calendar' asks", "message": "<i>Which?</i>"}
    fields = derive_fields({"type": "object", "properties": {"day": {"type": "string"}}, "required": ["day"]})
    links = [
        "https://login.test/?a=b",
        "http://login.test/",
        "javascript:alert(1)",
        "https://me:x@login.test/",
        "http://[::1]:8/",
    ]
    items = [question({**form, "fields": fields, "workerPath": []}, asks="form")]
    items += [question({**form, "fields": [], "workerPath": [], "url": link}, asks="form") for link in links]
    await show(window, *items, module="form_card", make="formCard")
    text = await window.text()
    for link in links:
        assert link in text, "the whole address is shown"
    hrefs = await page.locator("main a").evaluate_all(
        "all => all.map(one => [one.getAttribute('href'), one.rel, one.target])"
    )
    assert hrefs == [
        ["https://login.test/?a=b", "noopener noreferrer", "_blank"],
        ["http://[::1]:8/", "noopener noreferrer", "_blank"],
    ]
    await page.get_by_role("button", name="Accept").first.click()
    assert await acts(window) == [], "a value is needed first"
    await page.get_by_label("Day").fill("Monday")
    await window.press("Enter", "Escape")
    assert await acts(window) == []

    await until(lambda: _answered(window, "Accept"))
    sent = {"type": "formResponse", "requestId": "f1", "action": "accept", "values": {"day": "Monday"}}
    assert await acts(window) == [sent]
    assert await window.accessible() == []
