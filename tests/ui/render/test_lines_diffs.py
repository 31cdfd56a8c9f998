"""Changes of files: summaries and colours (ui.md §8; U21)."""

from __future__ import annotations

from typing import Any

import pytest

from golem_forge.toolsets.file_access import unified_diff
from golem_forge.ui.render.lines import diff_content_lines, diff_summary, diff_summary_lines, plain_text, styled_diff
from golem_forge.ui.render.results import result_lines


@pytest.mark.parametrize(
    ("original", "modified", "is_new", "said"),
    [
        ("a\n", "a\n", False, "no changes"),
        ("a\n", "a\n\n", False, "+1 −0"),
        ("a\nb\n", "a\nc\nd\n", False, "+2 −1"),
        (None, "a\n", True, "new file"),
        (None, "a\n", False, "+? −?"),
        ("-- x\n++ y\n", "", False, "+0 −2"),
        ("a", "a\n", False, "+1 −1"),
    ],
)
def test_u21_the_summary(original: str | None, modified: str, is_new: bool, said: str) -> None:
    assert diff_summary(original=original, modified=modified, is_new=is_new) == said
    value: dict[str, Any] = {"kind": "diff", "path": "/w/a", "modified": modified, "isNew": is_new, "bytesWritten": 1}
    if original is not None:
        value["original"] = original
    lines = plain_text(
        result_lines({"toolName": "edit", "status": "success", "durationMs": 1, "value": value})
    ).splitlines()
    assert lines[0] == f"✓ edit - /w/a {said} (1 ms)"


def test_lines_that_look_like_headings_keep_their_colour() -> None:
    diff = unified_diff("/w/a", b"-- a/w/x\nkept\n", b"++ b/w/x\nkept\n@@ -1 +1 @@\n")
    styles = {text: style for row in styled_diff(diff) for style, text in row}
    assert styles["--- a/w/a"] == styles["+++ b/w/a"] == "dim"
    assert styles["--- a/w/x"] == "del"
    assert styles["+++ b/w/x"] == "add"
    assert styles["+@@ -1 +1 @@"] == "add"
    assert styles[" kept"] == ""


def test_a_long_diff_shows_its_beginning_and_its_end() -> None:
    value = {"path": "/w/a", "modified": "".join(f"line {at}\n" for at in range(100)), "isNew": True}
    lines = plain_text(diff_content_lines(value)).splitlines()
    assert lines[0] == "/w/a: new file"
    assert len(lines) == 1 + 41
    assert lines[21] == "... (63 lines between) · display cut"
    assert lines[-1] == "+line 99"


def test_summaries_of_several_files() -> None:
    rows = diff_summary_lines(
        [
            {"path": "/w/a", "operation": "create", "additions": 3, "deletions": 0},
            {"path": "/w/b", "operation": "update", "additions": 1, "deletions": 2},
            {"path": "/w/c", "operation": "update", "additions": 0, "deletions": 0},
            {"path": "/w/d", "operation": "delete", "additions": -1, "deletions": -1},
        ]
    )
    assert plain_text(rows).splitlines() == [
        "/w/a: new file",
        "/w/b: +1 −2",
        "/w/c: no changes",
        "/w/d: +? −? (deleted)",
    ]
