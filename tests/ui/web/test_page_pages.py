"""The pages beside the conversation, in a real browser under the real policy: what each asks the server for, and when.

The server's answers are given here, so that every state can be shown; the acceptance tests hold the pages against the
real one.
"""

from __future__ import annotations

import json
from typing import Any

from tests.ui.web.bench import Window, Windows, browsing

pytestmark = browsing

HOSTILE = '<img src=x onerror="window.hacked = 1">\u202e'

_CONTEXT = """
window.asked = [];
const problem = (status, problem, fields = {}) => ({ status, problem, fields });
const answered = (method) => async (where, body) => {
  window.asked.push([method, where, body ?? null]);
  const found = window.answers(method, where, body);
  if (found === undefined) throw problem(404, "There is nothing.");
  if (found?.refused) throw problem(found.refused, found.problem, found.fields);
  return found;
};
window.context = async (more = {}) => {
  const [{ path }, { SessionStore }] = await Promise.all([import("/api.js"), import("/store.js")]);
  return {
    api: { path, get: answered("GET"), post: answered("POST"), patch: answered("PATCH"), del: answered("DELETE") },
    me: { mayStart: true, current: "s1", directory: "/work", notify: false },
    store: new SessionStore(), session: { id: "s1", state: "live", answerable: true },
    act: async () => ({ ok: true }), announce: () => {}, go: (where) => { window.went = where; },
    level: () => "normal", settings: { level: "normal", setLevel: () => {}, onLevel: () => () => {} }, ...more,
  };
};
window.show = async (name, params = [], more = {}) => {
  const { page } = await import(`/pages/${name}.js`);
  window.page?.leave?.();
  window.page = page(await window.context(more), params);
  const main = document.querySelector("main");
  main.className = "main";
  document.body.dataset.area = name;
  main.replaceChildren(window.page.node);
};
"""


async def opened(windows: Windows, answers: dict[str, Any]) -> Window:
    """A window in which `GET /api/…` and the others are answered from a table; what is not in it, with 404."""
    window = await windows.with_modules()
    await window.run(f"() => {{ {_CONTEXT} }}")
    await window.run(
        "(table) => { window.answers = (method, where) => table[`${method} ${where.split('?')[0]}`]; }", answers
    )
    return window


async def sent(window: Window, method: str) -> list[Any]:
    return [each[1:] for each in await window.run("() => window.asked") if each[0] == method]


def tool(name: str, **members: Any) -> dict[str, Any]:
    return {"name": name, "label": name, "description": "Does it.", "source": "custom", "fields": [], **members}


SERVER = {
    "name": "echo",
    "state": "pending",
    "error": None,
    "transport": "stdio",
    "origin": "forge.yaml:6",
    "approved": False,
    "trust": "untrusted",
    "required": False,
    "tools": None,
    "digest": "d-server",
    "card": f"runs: {HOSTILE}",
    "heldBack": [
        {
            "name": "echo_a",
            "tool": "a",
            "reason": "drift",
            "message": "",
            "diff": "@@ -1 +1 @@\n-x\n+y",
            "digest": "d-a",
        },
        {"name": "echo_b", "tool": "b", "reason": "schema_invalid", "message": "no", "diff": None, "digest": ""},
    ],
}
TOOLS = {
    "tools": [
        tool("zeta"),
        tool("push", label="Push", category="Git"),
        tool("read_file", source="native", category="Files"),
        tool("odd", category=HOSTILE, label=HOSTILE, description=HOSTILE),
    ],
    "userTools": [
        {"name": "mine", "state": "draft", "reason": "not trusted", "version": "1", "author": "a model"},
        {"name": "gone", "state": "unusable", "reason": HOSTILE},
    ],
    "servers": [SERVER],
    "quarantined": [{"name": "bad", "source": "mcp", "reason": f"its schema {HOSTILE}"}],
    "problems": [],
}


async def test_tools_are_forms_by_category_and_are_found_by_typing(windows: Windows) -> None:
    window = await opened(
        windows, {"GET /api/sessions/s1/tools": TOOLS, "POST /api/sessions/s1/servers/echo/agree": {}}
    )
    page = window.page
    await window.run("() => window.show('tools')")
    await window.sees("Push")
    own = await window.run("() => [...document.querySelectorAll('.tool-group')].map(n => n.getAttribute('aria-label'))")
    assert own[1:] == ["Git", "Other", "Files"], own
    assert "\\u202e" in own[0] and await page.locator("main img").count() == 0
    assert not await page.get_by_text("read_file").first.is_visible(), "what workers use is folded away"
    for reason in ("not trusted", "its schema", "its definition changed"):
        await window.sees(reason)
    assert await window.accessible() == []
    await page.get_by_label("Search tools and servers").fill("git")
    await window.sees_not("zeta")
    await page.get_by_label("Search tools and servers").fill("")
    agree = page.get_by_role("button", name="Agree to this definition")
    assert await agree.count() == 1, "nobody can agree to what is not valid"
    await agree.click()
    await window.sees("Done.")
    assert await sent(window, "POST") == [["/api/sessions/s1/servers/echo/agree", {"tool": "a", "digest": "d-a"}]], (
        "a yes is to what was shown"
    )


DETAIL = {
    **tool("mine", mode="both", offered=False, approval="ask", aliases=[], definition={"name": "mine"}),
    "own": {
        **dict.fromkeys(("folder", "version", "entrypoint", "author", "code", "reason"), "x"),
        "state": "draft",
        "digest": "sha256:feed",
        "permissions": {"zones": "none"},
        "tests": [],
        "notes": [],
        "files": [
            {"path": "a.py", "size": 9, "executable": False, "sha256": "0", "text": HOSTILE, "language": "python"}
        ],
        "trust": {
            "digest": "sha256:feed",
            "text": "\n".join(f"| line {number}" for number in range(300)),
            "diff": "",
            "warnings": ["it reaches the network"],
            "buildHosts": ["pypi.org"],
            "problem": "",
        },
    },
    "versions": [
        {
            "digest": "bbbb",
            "at": "2026-01-02T00:00:00Z",
            "author": "me",
            "restored": 0,
            "trusted": False,
            "current": True,
        },
        {
            "digest": "aaaa",
            "at": "2026-01-01T00:00:00Z",
            "author": "me",
            "restored": 0,
            "trusted": True,
            "current": False,
        },
    ],
    "statistics": {"name": "mine", "calls": 4, "statuses": {"success": 3}, "ran": 4, "good": 0, "bad": 0, "totalMs": 9},
}


async def test_trust_is_given_to_every_line_that_is_shown(windows: Windows) -> None:
    base = "/api/sessions/s1/tools/mine"
    difference = {"before": "aaaa", "after": "bbbb", "reach": [], "changes": "@@ -1 +1 @@\n-x\n+y", "warnings": []}
    window = await opened(
        windows,
        {
            f"GET {base}": DETAIL,
            f"GET {base}/difference": difference,
            f"POST {base}/activate": {"refused": 409, "problem": "The folder changed after the page showed it."},
            f"POST {base}/undo": {"text": "It is at version aaaa again."},
        },
    )
    page = window.page
    await window.run("() => window.show('tools', ['mine'])")
    await window.sees("line 150")
    await window.sees("it reaches the network")
    await page.get_by_role("button", name="Changes since aaaa").click()
    await window.sees("Inline")
    assert await window.accessible() == []
    assert await page.locator("main img").count() == 0
    await page.get_by_role("button", name="Trust and activate mine").click()
    await window.sees("The folder changed after the page showed it.")
    await page.get_by_role("button", name="Go back to version aaaa").click()
    assert await window.focused() == "Cancel", "what changes nothing comes first"
    await page.keyboard.press("Escape")
    await page.get_by_role("button", name="Go back to version aaaa").click()
    await page.get_by_role("dialog").get_by_role("button", name="Go back").click()
    await window.sees("It is at version aaaa again.")
    assert await sent(window, "POST") == [
        [f"{base}/activate", {"digest": "sha256:feed", "buildHosts": ["pypi.org"]}],
        [f"{base}/undo", {"version": "aaaa"}],
    ], "Esc does nothing"


async def test_a_permission_is_taken_back_only_after_a_yes(windows: Windows) -> None:
    rule: dict[str, Any] = {
        "id": "r-1",
        "verdict": "preApproved",
        "what": HOSTILE,
        "keptIn": "remembered.yaml:3",
        "scope": "all",
    }
    rule |= {
        "reason": "",
        "origin": "remembered",
        "hits": 2,
        "lastUsed": None,
        "inactive": "shadowed",
        "revocable": True,
    }
    built_in = rule | {"id": "b-1", "origin": "builtin", "revocable": False}
    approval = {"id": "a-1", "what": HOSTILE, "worker": ""}
    base = "/api/sessions/s1"
    window = await opened(
        windows,
        {
            f"GET {base}/rules": {"rules": [rule, built_in], "approvals": [approval], "notices": []},
            f"DELETE {base}/rules/r-1": {"text": "revoked r-1"},
            f"DELETE {base}/rules/a-1": {"text": "revoked a-1"},
            f"GET {base}/settings": {"refused": 409, "problem": "This session does not run here."},
        },
    )
    page = window.page
    await window.run("() => window.show('settings')")
    await window.sees("Inactive: shadowed")
    await window.sees("This session does not run here.")
    assert await window.accessible() == []
    remove = page.get_by_role("button", name="Remove r-1")
    await remove.click()
    await page.keyboard.press("Escape")
    assert await sent(window, "DELETE") == []
    assert await window.focused() == "Remove r-1"
    await remove.click()
    await page.get_by_role("dialog").get_by_role("button", name="Remove").click()
    await window.sees("revoked r-1")
    await page.get_by_role("button", name="Revoke").click()
    await page.get_by_role("dialog").get_by_role("button", name="Revoke").click()
    await window.sees("revoked a-1")
    assert await sent(window, "DELETE") == [[f"{base}/rules/r-1", None], [f"{base}/rules/a-1", None]]
    assert await page.get_by_role("button", name="Remove").count() == 1, "no button for what Forge brings"


async def test_a_row_too_short_for_all_facts_keeps_calls_and_cost(windows: Windows) -> None:
    row: dict[str, Any] = {"id": "s2", "state": "closed", "finished": True, "created": "", "calls": 13, "cost": 0.25}
    row |= {"updated": "2026-01-01T00:00:00Z", "worker": "main", "input": "Change the cart"}
    row |= {"model": "a-provider:a-model-with-a-long-name", "directory": "~/projects/a/directory/with/a/long/name"}
    window = await opened(windows, {"GET /api/sessions": {"sessions": [row], "more": False}})
    page = window.page
    await page.set_viewport_size({"width": 700, "height": 800})
    await window.run("() => window.show('sessions')")
    await window.sees("13 calls")
    cut = await page.evaluate(
        """() => {
          const facts = document.querySelector(".session-facts");
          const end = facts.getBoundingClientRect().right;
          return [...facts.children].filter((one) => one.getBoundingClientRect().right > end + 1
            || one.lastElementChild?.scrollWidth > one.lastElementChild?.clientWidth).map((one) => one.textContent);
        }"""
    )
    assert cut and all("long" in one for one in cut), cut


async def test_a_session_that_cannot_start_says_so_at_its_field(windows: Windows) -> None:
    row: dict[str, Any] = {
        "id": "s2",
        "state": "closed",
        "finished": True,
        "created": "",
        "updated": "2026-01-01T00:00:00Z",
    }
    row |= {"worker": "main", "model": "m", "directory": "~/x", "input": HOSTILE, "calls": 3}
    refused = {"refused": 422, "problem": "It cannot be started.", "fields": {"directory": "not a path"}}
    window = await opened(
        windows,
        {"GET /api/sessions": {"sessions": [row, row | {"id": "s3", "state": "elsewhere"}], "more": False},
         "POST /api/sessions": refused},
    )  # fmt: skip
    page = window.page
    await window.run("() => window.show('sessions')")
    await window.sees("runs elsewhere")
    assert await page.get_by_role("button", name="Resume").count() == 1, "not of one that runs"
    await page.get_by_role("button", name="New session").click()
    await page.get_by_label("First message").fill("go")
    await page.get_by_role("button", name="Start", exact=True).click()
    await window.sees("not a path")
    assert await window.focused() == "Directory"
    assert await window.accessible() == []
    assert await sent(window, "POST") == [["/api/sessions", {"input": "go"}]]


async def test_a_session_is_named_ended_resumed_and_after_a_yes_deleted(windows: Windows) -> None:
    row: dict[str, Any] = {"id": "s2", "state": "live", "title": "Milk", "created": "", "worker": "main", "model": "m"}
    row |= {"updated": "2026-01-01T00:00:00Z", "directory": "~/x", "input": "", "calls": 3}
    window = await opened(
        windows,
        {
            "GET /api/sessions": {
                "sessions": [row, row | {"id": "s3", "state": "closed", "title": "Tea"}],
                "more": False,
            },
            "PATCH /api/sessions/s2": {},
            "POST /api/sessions/s2/end": {},
            "POST /api/sessions": {"id": "s3"},
            "DELETE /api/sessions/s3": {},
        },
    )
    page = window.page
    await window.run("() => window.show('sessions')")
    for title in ("Milk", "Tea"):
        await page.get_by_role("button", name=f"{title}: More").click()
    assert await page.get_by_role("button", name="Delete").count() == 1, "not of one that runs"
    export = page.get_by_role("link", name="Export as Markdown: Tea")
    assert await export.get_attribute("href") == "/api/sessions/s3/export?format=markdown"
    await page.get_by_role("button", name="Rename: Milk").click()
    await page.get_by_role("dialog").get_by_label("Title").fill("Bread and milk")
    await window.press("Enter")
    await window.sees("The session has another title.")
    assert await sent(window, "PATCH") == [["/api/sessions/s2", {"title": "Bread and milk"}]]
    await page.get_by_role("button", name="End: Milk").click()
    await page.get_by_role("dialog").get_by_role("button", name="End").click()
    await window.sees("The session ends.")
    await page.get_by_role("button", name="Delete: Tea").click()
    await window.press("Escape")
    assert await sent(window, "DELETE") == []
    await page.get_by_role("button", name="Delete: Tea").click()
    await page.get_by_role("dialog").get_by_role("button", name="Delete").click()
    await window.sees("The session is deleted.")
    assert await sent(window, "DELETE") == [["/api/sessions/s3", None]]
    await page.get_by_role("button", name="Resume: Tea").click()
    await page.wait_for_function("() => window.went")
    assert await sent(window, "POST") == [["/api/sessions/s2/end", None], ["/api/sessions", {"resume": "s3"}]]


_PANEL = """async () => {
  const [{ Panel }, { SessionStore }] = await Promise.all([import("/panel.js"), import("/store.js")]);
  const [node, button] = [document.createElement("aside"), document.createElement("button")];
  node.setAttribute("aria-label", "Session");
  document.querySelector("main").append(button, node);
  window.sent = [];
  const rows = [{ port: 3000, command: "python3 -m http.server 3000", since: "2026-01-01T00:00:00Z", url: "" },
    { port: 3001, command: "x".repeat(300), since: "", url: "http://127.83.12.201:3001/" }];
  const ctx = { act: (type, data) => sent.push(data.text) };
  const panel = new Panel(node, button, () => {});
  const session = { id: "s", answerable: true };
  panel.shows({ session, store: new SessionStore(), ports: { rows }, budget: { rows: [] }, ctx });
  return node.hidden;
}"""


async def test_the_panel_lists_ports_and_a_button_publishes_one(windows: Windows) -> None:
    window = await windows.with_modules()
    page = window.page
    assert await window.run(_PANEL) is False
    listed = page.locator(".ports")
    await listed.get_by_text("http.server 3000").wait_for()
    link = listed.get_by_role("link")
    assert await link.get_attribute("href") == "http://127.83.12.201:3001/"
    assert await link.get_attribute("target") == "_blank" and "noopener" in str(await link.get_attribute("rel"))
    for verb, port in (("publish", 3000), ("unpublish", 3001)):
        await listed.get_by_role("button", name=f"{verb} port {port}", exact=True).click()
    assert await window.run("() => sent") == ["/publish 3000", "/unpublish 3001"]


def event(seq: int, type: str, **data: Any) -> dict[str, Any]:
    ts = f"2026-01-01T00:{seq // 60 % 60:02}:{seq % 60:02}.000Z"
    envelope = {"type": type, "seq": seq, "ts": ts, "sessionId": "s1", "workerId": "w", "data": data}
    return {"event": envelope, "view": {"html": f"<p>{data['content']}</p>"} if type == "message" else {}}


_PAGES = """(events) => {
  window.answers = (method, where) => {
    if (method !== "GET") return undefined;
    const query = new URL(where, location.href).searchParams;
    const limit = Number(query.get("limit") ?? 200);
    if (query.has("before")) {
      const found = events.filter(e => e.event.seq < Number(query.get("before")));
      return { events: found.slice(-limit), more: found.length > limit };
    }
    const after = query.get("after");
    const found = after === null ? events.slice(-limit) : events.filter(e => e.event.seq > Number(after));
    return { events: found.slice(0, limit), more: found.length > limit };
  };
}"""


async def test_a_replay_shows_each_moment_and_only_asks(windows: Windows) -> None:
    """Forward, back, anywhere; the page's size does not grow with the session."""
    window = await opened(windows, {})
    events = [event(1, "sessionStarted", worker="main", model="m", approvalMode="interactive", zones=[])]
    events.append(event(2, "toolStarted", callId="c1", name="push", args={}, caller="llm"))
    events.append(event(3, "toolResult", callId="c1", name="push", status="tool_error", error="no", durationMs=1))
    events += [event(seq, "message", role="assistant", content=f"said {seq}.") for seq in range(4, 461)]
    await window.run(_PAGES, events)
    await window.run("() => window.show('replay')")
    page = window.page
    slider, number = page.get_by_role("slider"), page.get_by_label("Event", exact=True)
    await window.sees("of 460")
    await window.sees("said 4.")  # the first words, and then it plays
    await page.get_by_role("button", name="Pause").click()
    await number.fill("1")
    await number.press("Enter")
    await window.sees_not("said 4.")
    step = page.get_by_role("button", name="One event on")
    await step.click()
    await step.click()
    await window.sees("no")
    await page.get_by_role("button", name="One event back").click()
    await window.sees_not("tool_error")
    assert await number.input_value() == "2"
    await number.fill("360")
    await number.press("Enter")
    await window.sees("said 360.")
    await window.sees_not("said 361.")
    assert "event 360 of 460" in str(await slider.get_attribute("aria-valuetext"))
    assert await page.locator("main li.item").count() <= 300
    await slider.press("Home")
    await window.sees_not("said 360.")
    await page.get_by_label("Speed").select_option("max")
    await page.get_by_role("button", name="Play").click()
    await window.sees("said 460.")
    await window.sees("Play again")
    await page.get_by_role("button", name="To the moment before").click()
    await page.wait_for_function("() => document.querySelector('#replay-event').value === '3'")
    assert await page.locator(".mark-error").count() == 1
    assert {each[0] for each in await window.run("() => window.asked")} == {"GET"}, "a replay only asks"


async def test_moments_and_bars_in_words(windows: Windows) -> None:
    window = await opened(windows, {})
    said = await window.run(
        """async (name) => {
          const { ago, elapsed, shortProse, span } = await import("/format.js");
          const { callsChart } = await import("/pages/statistics.js");
          const now = new Date("2026-01-02T00:00:00Z");
          const chart = callsChart("Calls", [{ name, calls: 4, good: 3 }, { name: "b", calls: 8, good: 0 }]);
          document.querySelector("main").replaceChildren(chart);
          return {
            ago: ["23:59:58", "23:50:00", "20:00:00"].map(t => ago(new Date(`2026-01-01T${t}Z`), now)),
            elapsed: [elapsed(61000), elapsed(3661000)],
            span: [12, 1500, 65000, null, 999.6, 59960, 119700].map(span),
            prose: ["as it is", "Read a text\\nfile whole", "Read it a text-file", "x".repeat(40)]
              .map(t => shortProse(t, 15)),
            label: chart.querySelector("svg").getAttribute("aria-label"),
            widths: [...chart.querySelectorAll("rect")].map(r => r.getAttribute("width")),
          };
        }""",
        HOSTILE,
    )
    assert said["ago"] == ["just now", "10 min ago", "4 h ago"]
    assert said["elapsed"] == ["1:01", "1:01:01"]
    assert said["span"] == ["12 ms", "1.5 s", "1 min 5 s", "", "1.0 s", "1 min 0 s", "2 min 0 s"]
    assert said["prose"] == ["as it is", "Read a text…", "Read it a…", f"{'x' * 14}…"]
    assert "b 8 calls, 0 % went well" in said["label"] and "4 calls, 75 % went well" in said["label"]
    assert "\u202e" not in json.dumps(said, ensure_ascii=False)
    assert said["widths"] == ["100%", "100%", "0%", "100%", "50%", "37.5%"]
    await window.page.get_by_role("button", name="The numbers as a table").click()
    await window.sees("3 (75 %)")
    assert await window.accessible() == []
