"""Whatever a model, a tool, a file's name or a journal says is text on the page. ui.md §4, §10; cases 9, 33; issue 7.

Every window is checked at its end as well: no script ran, no request left, nothing had to be stopped by the policy.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from tests.deadlines import within
from tests.ui.web.bench import browsing, until
from tests.ui.web.person import Person
from tests.ui.web.stage import calls

from golem_forge import ToolResult, tool
from golem_forge.tools.tool import Tool

pytestmark = browsing

IMAGE = '<img src=x onerror="window.hacked = 1">'
SCRIPT = "<script>window.hacked = 1</script>"
SVG = '<svg onload="window.hacked = 1"></svg>'
MARKDOWN = f"""Look: {IMAGE} {SCRIPT} {SVG}

{IMAGE}

[a link](javascript:window.hacked=1) [b](JaVaScRiPt:window.hacked=1) [c](data:text/html,{SCRIPT})
[d](vbscript:x) [e](https://example.com/" onmouseover="window.hacked=1) [f][ref]
![picture](http://tracker.test/pixel.png) ![p](//tracker.test/p.png "{IMAGE}")
<javascript:window.hacked=1> <https://example.com/ok>

[ref]: javascript:window.hacked=1 "{SCRIPT}"

```{IMAGE}
{SCRIPT}
```

<iframe src="http://tracker.test/"></iframe><style>body {{ display: none }}</style><base href="http://tracker.test/">

| {IMAGE} |
|---|
| `{SCRIPT}` |
"""
FOLDED = "main details:not([open]) > summary, main [aria-expanded=false]:not([role=combobox])"
AREAS = {"Tools": "onerror", "Sessions": "onerror", "Settings": re.compile("No rule yet|Built in"), "Chat": "The end."}
HACKED = "() => 'hacked' in window"
LIVE = "main img:not([src^='data:']), main script, main iframe, main svg[onload], main base, main style, main [onerror]"


def every_kind(name: str) -> list[dict[str, Any]]:
    """The same hostile text through every kind of result and every way to show one."""
    views = ("text", "markdown", "code", "diff", "table", "tree", "image", "raw")
    shown = [
        {"kind": "x.y", "data": data, "summary": IMAGE, "display": {"preferredView": view, "language": IMAGE}}
        for view in views
        for data in (f"{name} {MARKDOWN}", [{IMAGE: SCRIPT, "a": MARKDOWN}])
    ]
    return [
        {"kind": "text", "content": f"{name} {SCRIPT}"},
        {"kind": "json", "data": {IMAGE: [SCRIPT, {"x": SVG}]}},
        {"kind": "diff", "path": f"/workspace/{IMAGE}", "original": SCRIPT, "modified": IMAGE, "isNew": False},
        {"kind": "file_content", "path": f"/workspace/{IMAGE}.html", "content": MARKDOWN, "size": 3},
        {"kind": "file_list", "path": "/workspace", "files": [IMAGE, f"{SCRIPT}.txt"], "count": 2},
        {
            "kind": "x.img",
            "data": f"<svg xmlns='http://www.w3.org/2000/svg'>{SCRIPT}</svg>",
            "mimeType": "image/svg+xml",
        },
        *shown,
    ]


async def test_stored_scripts_stay_text(staged: Any, windows: Any, tmp_path: Path) -> None:
    results = every_kind("result")

    @tool(needs_approval=False)
    def show(number: int) -> ToolResult | dict[str, Any]:
        """Shows one."""
        return results[number]

    async def fails(args: Any, ctx: Any) -> Any:
        raise RuntimeError(f"failed {IMAGE} {SCRIPT}")

    odd = Tool(
        "odd",
        f"{IMAGE} {SCRIPT}",
        input_schema={
            "type": "object",
            "title": IMAGE,
            "properties": {"x": {"type": "string", "title": IMAGE, "description": SCRIPT, "enum": [IMAGE, "b"]}},
        },
        execute=fails,
        label=IMAGE,
        category=SCRIPT,
        mode="both",
        needs_approval=True,
    )
    stage = await staged(
        [
            calls(*(("show", {"number": number}) for number in range(len(results))), say=MARKDOWN, think=MARKDOWN),
            calls(("write_file", {"path": f"/workspace/{IMAGE}.txt", "content": MARKDOWN})),
            calls(("odd", {"x": IMAGE})),
            calls((IMAGE, {IMAGE: SCRIPT})),
            MARKDOWN + "The end.",
        ],
        tools=[show, odd],
        directory=tmp_path / IMAGE.replace("/", ""),
    )
    window = await windows()
    me = Person(window)
    await me.enter(stage.link())
    await me.say(f"{MARKDOWN}")
    await me.sees_card(f"{IMAGE}.txt")
    await window.picture("hostile-card")
    await me.answer()
    await me.sees_card("odd")
    await me.answer()
    await window.sees("The end.")
    assert len(stage.seen("toolResult")) == len(results) + 3
    await open_everything(window)
    await window.sees(IMAGE)
    for area, says in AREAS.items():
        await me.go_to(area)
        await window.sees(says)
        assert not await window.run(HACKED), area
        assert await window.page.locator(LIVE).count() == 0, area
    links = await window.run("() => [...document.querySelectorAll('main a[href]')].map(a => [a.href, a.rel, a.target])")
    for href, rel, target in links:
        assert re.match(r"https?://|mailto:", href), href
        if not href.startswith(stage.address):
            assert set(rel.split()) >= {"noopener", "noreferrer"} and target == "_blank", (href, rel)
    assert any(href.startswith("https://example.com/") for href, _, _ in links), "a good link is one"


async def open_everything(window: Any) -> None:
    """Whatever is folded, and what was folded inside it."""
    for _ in range(3):
        await window.page.locator(FOLDED).evaluate_all(
            "all => all.filter(one => one.checkVisibility()).forEach(one => one.click())"
        )
        await window.run("() => new Promise(done => setTimeout(() => requestAnimationFrame(done), 50))")


async def test_the_card_shows_what_would_run(staged: Any, windows: Any) -> None:
    """Case 9: escapes visible, the tail visible, secrets not."""
    command = "echo \x1b[2J\u202egpj.exe \u200b" + "x" * 10_000 + "; rm -rf x"
    asked: list[Any] = []

    @tool(needs_approval=True)
    def send(command: str, api_key: str) -> str:
        """Sends."""
        asked.append(command)
        return "sent"

    stage = await staged([calls(("send", {"command": command, "api_key": "canary-4711"})), "Done."], tools=[send])
    window = await windows()
    me = Person(window)
    await me.enter(stage.link())
    await me.say("send")
    card = await me.sees_card(re.compile(r"\\(x1b|u001b)\[2J\\u202egpj.exe \\u200bxxx"), "; rm -rf x")
    html = await window.page.content()
    assert "canary-4711" not in html and "\x1b" not in html and "\u202e" not in html
    tail = card.get_by_text("; rm -rf x").last
    await tail.scroll_into_view_if_needed()
    assert await tail.is_visible()
    await window.picture("approval-literal")
    await me.answer()
    await window.sees("Done.")
    assert asked == [command]


async def test_fifty_megabytes(staged: Any, windows: Any, is_long: bool) -> None:
    """Two without --long: the page is sent the same, see test_views."""
    size = (50 if is_long else 2) << 20

    @tool(needs_approval=False)
    def flood() -> str:
        """Says a lot."""
        return "HEAD" + "flood " * (size // 6) + "TAIL"

    @tool(needs_approval=False)
    def rows() -> list[dict[str, str]]:
        """Many."""
        return [{"a": str(number), "b": "x" * 100} for number in range(size // 500)]

    stage = await staged([calls(("flood", {}), ("rows", {})), "It was a lot."], tools=[flood, rows])
    window = await windows()
    me = Person(window)
    await me.enter(stage.link())
    await me.say("flood")
    await window.sees("It was a lot.")
    with within(30):
        await me.box.fill("still quick")
        await open_everything(window)
    held = await window.run("() => document.documentElement.outerHTML.length")
    assert held < 3_000_000, f"the page holds {held} characters"
    assert await window.run("() => document.querySelectorAll('*').length") < 20_000
    await window.sees(re.compile("cut|truncated", re.I))
    again = await windows(beside=window)
    await again.open(stage.address)
    await again.sees("It was a lot.")
    await until(lambda: stage.results() == [("flood", "success"), ("rows", "success")], "both are recorded")
