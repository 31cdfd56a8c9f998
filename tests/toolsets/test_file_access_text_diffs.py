"""Unified diffs: applying one to the old text gives the new text, whatever the two are."""

from __future__ import annotations

import re

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from tests.tables import table

from golem_forge.toolsets import file_access as diffs
from golem_forge.toolsets.file_access import unified_diff


def applied(diff: str, old: str) -> str:
    """A patch program of a few lines: every context and removed line must be there."""
    source = re.findall(r"[^\n]*\n|[^\n]+", old)
    rows = re.findall(r"[^\n]*\n", diff)[2:]
    result: list[str] = []
    position = 0
    for number, row in enumerate(rows):
        text = row[1:]
        if number + 1 < len(rows) and rows[number + 1].startswith("\\"):
            text = text[:-1]
        if row.startswith("@@"):
            found = re.match(r"@@ -(\d+)(?:,(\d+))? ", row)
            assert found
            start = int(found[1]) - (0 if found[2] == "0" else 1)
            result += source[position:start]
            position = start
        elif row[0] in " -":
            assert source[position] == text
            position += 1
            result += [text] if row[0] == " " else []
        elif row[0] == "+":
            result.append(text)
    return "".join(result + source[position:])


_LINES = st.lists(st.sampled_from(["a", "b", "c", "", "é\r"]), max_size=30).map("\n".join)


def all_end_in_crlf(*texts: str) -> bool:
    return all("\n" in text and not re.search(r"(?<!\r)\n", text) for text in texts if text)


@given(old=_LINES, new=_LINES, ending=st.sampled_from(["", "\n"]))
@example(old="", new="é\r", ending="\n")
def test_applying_a_diff_gives_the_new_text(old: str, new: str, ending: str) -> None:
    """Where every line on both sides ends in CR LF the diff shows LF: no line end changes."""
    wanted = new + ending
    diff = unified_diff("/w/a", old.encode(), wanted.encode())
    assert (diff == "") == (old == wanted)
    if all_end_in_crlf(old, wanted):
        old, wanted = old.replace("\r\n", "\n"), wanted.replace("\r\n", "\n")
    assert applied(diff, old) == wanted


def test_work_beyond_the_limit_gives_one_block_that_is_just_as_true(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(diffs, "_MAX_COMPARISONS", 3)
    old, new = "head\na\nx\nb\ntail\n", "head\nc\nx\nd\ntail\n"
    diff = unified_diff("/w/a", old.encode(), new.encode())
    assert diff.count("@@ -") == 1
    assert "-x\n" in diff and "+x\n" in diff
    assert applied(diff, old) == new


def test_distant_changes_are_separate_hunks() -> None:
    old = [f"{number}\n" for number in range(40)]
    new = [*old[:5], "five\n", *old[6:30], "thirty\n", *old[31:]]
    diff = unified_diff("/w/a", "".join(old).encode(), "".join(new).encode())
    assert re.findall(r"^@@.*$", diff, re.M) == ["@@ -3,7 +3,7 @@", "@@ -28,7 +28,7 @@"]
    assert applied(diff, "".join(old)) == "".join(new)


def test_bytes_that_are_no_text_are_shown_as_such_and_never_taken_for_equal() -> None:
    diff = unified_diff("/w/a", b"caf\xe9\n", rb"caf\xe9" + b"\n")
    assert diff.splitlines()[3:] == [r"-caf\xe9", r"+caf\xe9"]


@table(
    ("old", "why"),
    [
        (b"a\0b", "is binary"),
        (b"x\n" * (diffs.COMPARE_LIMIT // 2 + 1), "is too large to show"),
        (b"long line\n" * 120_000, "is too large to show"),
    ],
)
def test_what_is_not_shown_is_said_and_the_new_content_is_complete(old: bytes, why: str) -> None:
    diff = unified_diff("/w/a", old, b"1\n2\n")
    head, note, rest = diff[: diff.index("# ")], diff[diff.index("# ") :].split("\n", 1)[0], diff[diff.index("@@") :]
    assert head == "--- a/w/a\n+++ b/w/a\n"
    assert f"({len(old)} bytes, sha256 " in note and note.endswith(f"{why}; it is replaced whole.")
    assert rest == "@@ -0,0 +1,2 @@\n+1\n+2\n"


def test_a_removed_file() -> None:
    assert unified_diff("/w/a", b"x\n", None) == "--- a/w/a\n+++ /dev/null\n@@ -1 +0,0 @@\n-x\n"


@table(
    ("old", "new"),
    [(None, b"a\r\nb\r\n"), (b"", b"a\r\nb"), (b"a\r\nb\r\n", None), (b"\0", b"a\r\nb\r\n")],
)
def test_a_file_with_crlf_on_one_side_shows_lines_and_no_escapes(old: bytes | None, new: bytes | None) -> None:
    assert "\r" not in unified_diff("/w/a.txt", old, new)


@table(("old", "new"), [(b"a\n", b"a\r\n"), (b"a\r\n", b"a\n"), (None, b"a\r\nb\n"), (b"a\r\n", b"a\rb\r\n")])
def test_a_changed_or_mixed_line_end_is_seen(old: bytes | None, new: bytes) -> None:
    assert "\r" in unified_diff("/w/a.txt", old, new)
