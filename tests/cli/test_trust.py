"""`forge trust`: what is shown is what is trusted, and any changed byte ends it."""

from __future__ import annotations

import pytest

RULES = "version: 1\nrules:\n  - {command: [cargo, check], verdict: preApproved}\n"


@pytest.fixture
def shell(in_process):
    return in_process


def test_yes_trusts_and_a_changed_byte_ends_it_A19(shell):
    shell.write("forge.yaml", "approval: {mode: strict}\n")
    shell.write(".forge/rules.yaml", RULES)
    asks = shell("rules", "explain", "--", "cargo", "check")
    assert asks.code == 3 and ".forge/rules.yaml: ignored" in asks.err

    given = shell("trust", "--yes")
    assert given.code == 0 and "is trusted: 2 files" in given.out
    assert RULES.strip() in given.out
    assert shell("rules", "explain", "--mode", "interactive", "--", "cargo", "check").code == 0

    shell.write(".forge/rules.yaml", RULES + "# \n")
    again = shell("rules", "explain", "--mode", "interactive", "--", "cargo", "check")
    assert again.code == 3 and "not trusted" in again.err
    shown = shell("trust", "--show")
    assert shown.code == 0
    assert "+# " in shown.out and "approval" not in shown.out, "only the difference is shown"


def test_rules_without_a_forge_yaml_can_be_trusted(shell):
    shell.write(".forge/rules.yaml", RULES)
    assert shell("trust", "--yes").code == 0
    assert shell("rules", "explain", "--", "cargo", "check").code == 0


def test_trust_reaches_the_program_from_below(shell):
    shell.write("forge.yaml", "")
    below = shell.project / "src" / "deep"
    below.mkdir(parents=True)
    assert shell("trust", "--yes", cwd=below).code == 0
    assert "is trusted. Nothing changed" in shell("trust", "--show").out
    assert shell("trust", str(shell.project), cwd=shell.home).code == 0


def test_an_empty_name_is_not_this_directory(shell):
    shell.write("forge.yaml", "")
    assert shell("trust", "", "--yes").code == 2
    assert "is trusted. Nothing changed" not in shell("trust", "--show").out


def test_a_program_that_cannot_start_says_so_before_trust_is_asked_for(shell):
    """Trust would not help: a missing module, a syntax error and a zone without a directory come first."""
    shell.write("forge.yaml", "sandbox: {zones: {data: {path: ./data}}}\n")
    worker = "name: main\ntoolsets: {custom: {module: ./tools.py, tools: [x]}}\nsandbox: {zones: [{name: data}]}"
    shell.write("main.worker", f"---\n{worker}\n---\nHi\n")
    missing = "Failed to load custom tools from ./tools.py: tools.py: file not found"
    zone = "forge.yaml:1: Zone 'data': its directory does not exist; create it."
    for words in (["run", "--headless", "hello"], ["run", "--dry-run"]):
        refused = shell(*words)
        assert refused.code == 2 and missing in refused.err and zone in refused.err and "trust" not in refused.err
    shown = shell("trust", "--show")
    assert (
        shown.code == 0
        and f"warning: main.worker:3: toolsets.custom.module: {missing}" in shown.err
        and f"warning: {zone}" in shown.err
    )

    (shell.project / "data").mkdir()
    shell.write("tools.py", "def x():\n    return (\n")
    refused = shell("run", "--headless", "hello")
    assert refused.code == 2 and "from ./tools.py: SyntaxError: '(' was never closed (line 2)" in refused.err
    shell.write("tools.py", "def x():\n    return 1\n")
    waiting = shell("run", "--headless", "hello")
    assert waiting.code == 3 and "forge trust" in waiting.err
    assert shell("trust", "--yes").err == ""


@pytest.mark.parametrize(("typed", "code"), [("y", 0), ("n", 3), ("", 3)])
def test_the_question_on_a_terminal(shell, on_terminal, typed, code):
    shell.write("forge.yaml", "approval: {mode: auto_deny}\n")
    ended, screen = on_terminal(["trust"], (r"\[y/N\] ", typed))
    assert ended == code
    assert "approval: {mode: auto_deny}" in screen
    assert shell("trust", "--show").out.rstrip().endswith("is trusted. Nothing changed since then.") is (code == 0)


def test_a_line_that_is_neither_yes_nor_no_is_no_answer_and_is_asked_again(shell, on_terminal):
    shell.write("forge.yaml", "approval: {mode: auto_deny}\n")
    question = r"\[y/N\] "
    code, screen = on_terminal(
        ["trust"], (question, "yes please"), (f"not an answer[\\s\\S]*{question}", "why\ny"), (question, "y")
    )
    assert code == 0, screen
    assert "'yes please' is not an answer: y means yes" in screen and "ignores several lines at once" in screen


def test_nothing_in_the_files_steers_the_terminal(shell):
    shell.write(".forge/note", "\x1b[2J\u202egnp.exe")
    shown = shell("trust", "--show")
    assert "\x1b" not in shown.out and "\u202e" not in shown.out
    assert r"\x1b[2J\u202e" in shown.out and "2 control or invisible characters" in shown.out


def test_one_program_at_a_time(shell):
    shell.write("forge.yaml", "")
    ended = shell("trust", "a", "b")
    assert ended.code == 2 and ended.err
