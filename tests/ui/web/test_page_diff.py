"""Diffs on the page: every line is there, nothing passes for a heading, long ones show both ends, and they can be read
inline or side by side."""

from __future__ import annotations

from typing import Any

from tests.ui.web.bench import Window, Windows, browsing

from golem_forge.toolsets.file_access import unified_diff
from golem_forge.ui.render.lines import count_changes
from golem_forge.ui.web.views import both_ends

pytestmark = browsing

_TRICK = unified_diff("/ws/a.sql", b"-- a/other\nkeep\n", b"++ b/other\nkeep\n")
_SEVERAL = (
    unified_diff(
        "/ws/app.py", b"import os\nprint('hello world')\nend\n", b"import os\nprint('hello, new world')\nend\n"
    )
    + unified_diff("/ws/new.txt", None, b"one\n\ntwo")
    + unified_diff("/ws/old.txt", b"gone\n", None)
)
_WIDER = unified_diff(
    "/ws/b", b"".join(b"%d\n" % n for n in range(300)), b"".join(b"%d\n" % (n + 1000) for n in range(300))
)
_ROWS = _WIDER.split("\n")
_SHORTENED = "\n".join([*_ROWS[:90], "# … 500 lines between, display cut …", *_ROWS[-90:]])
_LONG_LINE = unified_diff("/ws/c", b"a\n", b"x" * 3000 + b"-evil()" + b"y" * 493 + b"\nz\n")
_PARSE = """async (texts) => {
  const { parseDiff } = await import("/cards/diff.js");
  return texts.map((text) => parseDiff(text));
}"""
_DRAW = """async ({text, most}) => {
  const { diffView } = await import("/cards/diff.js");
  document.querySelector("main").replaceChildren(diffView(text, most ? {most} : {}));
}"""


def _lines(files: list[dict[str, Any]]) -> list[str]:
    """The text again, as far as rows tell it."""
    marks = {"add": "+", "del": "-", "same": " "}
    return [marks.get(row["kind"], "") + row["text"] for file in files for row in file["rows"]]


async def test_every_line_of_a_diff_is_a_row_and_no_content_is_a_heading(functions: Window) -> None:
    odd = "no diff at all\n\n--- lonely\n@@ nonsense\n"
    inside = both_ends(_LONG_LINE, 2 * (len("-evil()") + 493 + len("\n+z\n")))[0]
    texts = [_TRICK, _SEVERAL, _WIDER, odd, "", _SHORTENED, inside]
    trick, several, wider, free, empty, cut, torn = await functions.run(_PARSE, texts)
    assert [file["title"] for file in trick] == ["/ws/a.sql"], "a removed line `-- a/other` is no heading"
    assert [(file["title"], file["state"]) for file in several] == [
        ("/ws/app.py", ""),
        ("/ws/new.txt", "new file"),
        ("/ws/old.txt", "deleted"),
    ]
    for text, files in ((_TRICK, trick), (_SEVERAL, several), (_WIDER, wider)):
        told = (sum(file["added"] for file in files), sum(file["removed"] for file in files))
        assert told == count_changes(text)
        body = [
            line
            for line in text.split("\n")[:-1]
            if not line.startswith(("--- a/ws", "+++ b/ws", "--- /dev", "+++ /dev"))
        ]
        assert _lines(files) == body
    assert _lines(free) == odd.split("\n")[:-1]
    assert empty == []
    assert [file["title"] for file in cut] == ["/ws/b"]
    assert {row["kind"] for row in cut[0]["rows"]} == {"hunk", "add", "del", "warn"}, (
        "both sides of the gap are coloured"
    )
    assert [row["now"] for row in cut[0]["rows"] if row["kind"] == "add"][-1] is None, (
        "what is not known is not counted"
    )
    assert [row["kind"] for row in torn[0]["rows"]][-3:] == ["warn", "note", "add"], "the rest of a line has no mark"
    assert torn[0]["rows"][-2]["text"].startswith("-evil()y")


async def test_a_diff_is_read_inline_or_side_by_side_and_the_choice_is_kept(windows: Windows) -> None:
    window = await windows.with_modules()
    page = window.page
    await window.run(_DRAW, {"text": _SEVERAL})
    rows = [
        " ".join(row.split()) for row in await page.locator(".diff-table").first.locator("tbody tr").all_inner_texts()
    ]
    assert rows == [
        "@@ -1,3 +1,3 @@",
        "1 1 import os",
        "2 − print('hello world')",
        "2 + print('hello, new world')",
        "3 3 end",
    ]
    assert await page.locator(".diff-word").all_inner_texts() == [", new"], "the words that differ stand out"
    await page.get_by_role("button", name="Side by side").click()
    assert await window.focused() == "Side by side", "the focus stays on the switch"
    changed = page.locator(".diff-side").first.locator("tbody tr").nth(2)
    assert [" ".join(cell.split()) for cell in await changed.locator("td").all_inner_texts()] == [
        *("2", "−", "print('hello world')"),
        *("2", "+", "print('hello, new world')"),
    ]
    assert await window.accessible() == []
    await page.reload()
    await window.run(_DRAW, {"text": _SEVERAL})
    assert await page.locator(".diff-side").count() == 3, "remembered"
    await page.set_viewport_size({"width": 320, "height": 640})
    await page.locator(".diff-side").first.wait_for(state="detached")
    assert not await window.overflows(), "narrow windows are inline, and need no scrolling sideways"


async def test_a_long_diff_shows_both_ends_and_all_when_asked(windows: Windows) -> None:
    window = await windows.with_modules()
    page = window.page
    await window.run(_DRAW, {"text": _WIDER, "most": 40})
    assert await page.locator(".diff-table tbody tr").count() == 40
    text = await window.text()
    assert "561 lines between" in text
    assert "1299" in text, "the end is there"
    await page.get_by_role("button", name="Show all").click()
    assert await page.locator(".diff-table tbody tr").count() == 601
