"""A call in few lines: what it is about, without defaults, and what came out of it."""

from __future__ import annotations

from typing import Any

import pytest
from tests.ui.render.test_results import outcome

from golem_forge.ui.render.lines import compact_diff, plain_text
from golem_forge.ui.render.reports import CallDisplay, brief_result, call_line, call_subject
from golem_forge.ui.terminal.transcript import pretty_lines

PATCH = "*** Begin Patch\n*** Update File: cart.py\n@@\n-a\n+b\n*** End Patch\n"


@pytest.mark.parametrize(
    ("tool", "args", "subject"),
    [
        ("read_file", {"path": "cart.py", "offset": 1, "limit": 2000}, "cart.py"),
        ("read_file", {"path": "cart.py", "offset": 4, "limit": 3}, "cart.py:4-6"),
        ("list_dir", {"path": ".", "depth": 2, "offset": 1, "limit": 200}, "."),
        ("grep_files", {"pattern": "TODO", "path": ".", "include": "", "mode": "files"}, '"TODO"'),
        ("grep_files", {"pattern": "a\nb", "path": "src", "include": "*.py"}, '"a b" in src *.py'),
        ("exec_command", {"cmd": "ls -la", "workdir": "", "shell": "bash", "tty": False}, "ls -la"),
        ("exec_command", {"cmd": "ls", "workdir": "src"}, "ls (in src)"),
        ("apply_patch", {"input": PATCH}, "cart.py"),
        ("apply_patch", {"patch": PATCH + PATCH.replace("cart", "b")}, "cart.py and 1 more"),
        ("update_plan", {"plan": [{"step": "a", "status": "completed"}, {"step": "b"}]}, "1 of 2 steps done"),
        ("run_code", {"code": "print()", "timeout_ms": 1}, ""),
        ("git_push", {"branch": "main", "force": False, "tags": []}, 'branch="main"'),
        ("git_push", None, ""),
        ("undo_changes", {"turn": None, "call": "", "paths": [], "redo": False}, "the last turn"),
        ("undo_changes", {"turn": 2, "paths": ["a", "b"], "also": ["c"]}, "a and 2 more in turn 2"),
        ("undo_changes", {"call": "c1", "redo": False, "session": "s"}, "call c1 of session s"),
        ("undo_changes", {"paths": 3, "redo": True}, "the last undo"),
        ("read_file", {"path": 3}, "path=3"),
        (["odd"], {"a": 1}, "a=1"),
    ],
)
def test_the_subject_names_what_matters_and_no_default(tool: Any, args: Any, subject: str) -> None:
    assert call_subject(tool, args, {"force": False, "tags": None, "branch": "dev"}) == subject


def test_defaults_are_learned_from_what_the_session_offers() -> None:
    how = CallDisplay()
    how.learn([{"name": "push", "fields": [{"name": "remote", "default": "origin"}]}, "odd", {"name": "x"}])
    data = {"toolName": "push", "label": "Push", "caller": "llm", "args": {"remote": "origin", "branch": "b"}}
    assert plain_text([call_line(data, how)]) == '▸ push (Push) branch="b"\n'
    assert plain_text([call_line({**data, "toolName": "read_file", "args": {"path": "a"}})]) == "▸ read_file a\n"


def brief(tool: str, args: Any, value: Any, **fields: Any) -> list[str]:
    data = outcome(value, toolName=tool, args=args, **fields)
    return plain_text(brief_result(data, CallDisplay(), 80)).splitlines()


LISTED = {"kind": "text", "content": "/workspace\na.py\nsrc/\n  b.py\n[more than 3 entries; continue with offset=4]"}
MATCHES = [{"path": f"/w/{name}.py", "number": 1, "text": "x  # TODO"} for name in "abcde"]
OUTPUT = "".join(f"line {number}\n" for number in range(100))
CHANGED = {"kind": "diff", "path": "/w/a", "original": "x\n", "modified": "y\n", "isNew": False}


@pytest.mark.parametrize(
    ("tool", "args", "value", "lines"),
    [
        (
            "read_file",
            {"path": "a.py"},
            {"kind": "file_content", "path": "/w/a.py", "content": "one\ntwo\n", "size": 8},
            ["✓ read_file a.py - 2 lines (12 ms)"],
        ),
        ("list_dir", {"path": "."}, LISTED, ["✓ list_dir . - 2 entries (12 ms)", "  a.py  src/"]),
        (
            "grep_files",
            {"pattern": "TODO"},
            {"kind": "search.result", "engine": "rg", "matches": MATCHES, "count": 5, "truncated": False},
            [
                '✓ grep_files "TODO" - 5 matches in 5 files (12 ms)',
                *[f"  /w/{name}.py:1: x  # TODO" for name in "ab"],
                "  … 3 more lines · display cut",
            ],
        ),
        (
            "grep_files",
            {"pattern": "x"},
            {"kind": "search.result", "files": [], "count": 0},
            ['✓ grep_files "x" - nothing found (12 ms)'],
        ),
        (
            "exec_command",
            {"cmd": "make"},
            {"kind": "exec.result", "exit_code": 0, "output": OUTPUT},
            ["✓ exec_command make - exit 0 (12 ms)", "  … 98 lines before · display cut", "  line 98", "  line 99"],
        ),
        ("write_file", {"path": "a"}, CHANGED, ["✓ write_file /w/a +1 −1 (12 ms)", "  -x", "  +y"]),
        (
            "file_exists",
            {"path": "a"},
            {"kind": "json", "data": {"exists": True, "type": "file"}},
            ["✓ file_exists a - file (12 ms)"],
        ),
        ("look", {}, {"kind": "text", "content": "a\nb\n"}, ["✓ look (text) (12 ms)", "  a", "  b"]),
    ],
)
def test_a_result_stands_below_its_call_in_a_few_lines(tool: str, args: Any, value: Any, lines: list[str]) -> None:
    assert brief(tool, args, value) == lines


def test_what_failed_names_its_call_and_shows_more() -> None:
    value = {"kind": "exec.result", "exit_code": 1, "output": OUTPUT}
    rows = brief("exec_command", {"cmd": "make"}, value, status="execution_failed", error="exit 1")
    assert rows[:2] == ["✗ exec_command make - execution_failed: exit 1", "  … 92 lines before · display cut"]
    assert len(rows) == 10


def test_markdown_is_laid_out_and_code_is_coloured_and_neither_steers_the_terminal() -> None:
    shown = pretty_lines("# Title\n\n- **bold** &#x202e;x\n", "markdown", "", 60)
    text = plain_text(shown)
    assert "Title" in text and "#" not in text and "**" not in text and "• bold" in text and "\\u202e" in text
    assert any("bold" in style for row in shown for style, part in row if "bold" in part)
    code = pretty_lines('def f():\n    return "x\x1b[2J"\n', "code", "python", 60)
    assert plain_text(code) == 'def f():\n    return "x\\x1b[2J"\n'
    assert len({style for row in code for style, _ in row}) > 1
    data = outcome({"kind": "x.y", "data": "# hi", "display": {"preferredView": "markdown"}})
    how = CallDisplay(brief=True, pretty=lambda *given: pretty_lines(*given, 60))
    assert "# hi" not in plain_text(brief_result(data, how, 80))


def test_a_diff_on_a_card_is_its_changes_with_a_line_around_them() -> None:
    diff = (
        "--- a/w/a\n+++ b/w/a\n@@ -1,4 +1,4 @@\n one\n two\n-old\n+new\n three\n@@ -9,2 +9,1 @@\n nine\n--- a/x\n"
        "--- /dev/null\n+++ b/w/b\n@@ -0,0 +1 @@\n+only\n"
    )
    rows, paths = compact_diff(diff)
    assert plain_text(rows).splitlines() == [
        "/w/a +1 −2", " two", "-old", "+new", " three", "…", " nine", "--- a/x", "/w/b new file +1 −0", "+only",
    ]  # fmt: skip
    assert paths == {"/w/a", "/w/b"} and compact_diff("") == ([], set())
