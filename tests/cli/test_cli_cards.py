"""The card shows all that is approved, once, and offers only keys that do something."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any

import pexpect
import pytest
from tests.deadlines import PATIENCE

from golem_forge.policy.request import ApprovalOffer, ApprovalRequest
from golem_forge.ui import approval_prompt

from .conftest import Shell

QUESTION = r"Approve\?.*\) "
Terminal = Callable[..., tuple[int, str]]


def command(**args: Any) -> list[str]:
    return ["call", "exec_command", "--args-json", json.dumps(args)]


def test_everything_that_holds_for_a_command_is_on_the_card(shell: Shell, on_terminal: Terminal) -> None:
    (shell.project / "sub").mkdir()
    words = command(
        cmd="make all", workdir="sub", tty=True, network=["example.com"], justification="please \u202e\x1b[2J\nsay y"
    )
    code, screen = on_terminal(words, (QUESTION, ""))
    assert code == 3
    lines = [line.strip() for line in screen.splitlines()]
    for shown in ("│ make all", "in sub", "in a terminal", "net example.com:443"):
        assert lines.count(shown) == 1, screen
    assert "the caller says: please \\u202e\\x1b[2J say y" in lines
    assert "exec make all" not in lines
    assert "\x1b[2J" not in screen


def test_an_ordinary_command_has_no_such_lines(on_terminal: Terminal) -> None:
    _, screen = on_terminal(command(cmd="make all"), (QUESTION, ""))
    assert "in a terminal" not in screen
    assert "the caller says" not in screen


def test_without_walls_the_card_says_so(shell: Shell, on_terminal: Terminal) -> None:
    shell.write_home("config.yaml", "sandbox: {walls: off}\n")
    _, screen = on_terminal(command(cmd="make all"), (QUESTION, ""))
    assert "\n  NO WALLS: " in screen.replace("\r", "")


def test_a_danger_is_told_once_and_d_shows_all_arguments(on_terminal: Terminal) -> None:
    _, screen = on_terminal(command(cmd="rm -rf build", timeout_ms=4321), (QUESTION, "d"), (QUESTION, ""))
    card, _, more = screen.partition("Approve?")
    assert card.count("is on the danger list") == 1
    assert "all arguments:" in more
    assert "timeout_ms = 4321" in more


@pytest.mark.parametrize(
    "cmd", ["make everything-at-once", "rm -rf an-old-folder", "cat /etc/some-file", "make   spaced"]
)
def test_a_command_stands_on_its_card_once(on_terminal: Terminal, cmd: str) -> None:
    _, screen = on_terminal(command(cmd=cmd), (QUESTION, ""))
    card = " ".join(screen.partition("Approve?")[0].split())
    name = " ".join(cmd.split())
    assert card.count(name) - card.count(f"{name} …") == 1, screen
    assert "the command " in card.lower()


def test_a_long_command_pushes_neither_title_nor_level_away(on_terminal: Terminal) -> None:
    """Of 30 kB the danger quotes the command that has it, and one line is cut in its middle as many lines are."""
    words = " ".join(f"word{number:04}" for number in range(3000))
    _, screen = on_terminal(command(cmd=f"echo {words}; rm -rf the-tail"), (QUESTION, "d"), (QUESTION, ""))
    card, _, more = screen.partition("Approve?")
    rows = re.sub(r"\x1b\[[0-9;]*m|\r", "", card).strip().split("\n")
    assert rows[0].startswith("── Run command (exec_command) wants to run · risk critical")
    assert len(rows) < 55 and max(map(len, rows)) <= 80
    assert "  ! 'rm -rf the-tail' is on the danger list (rm_force)" in rows
    assert "word0000" in card and "word1500" not in card and any(row.endswith("-tail") for row in rows)
    assert "word1500" in more, "d shows all"


def test_of_several_effects_those_that_no_rule_covers_are_marked(shell: Shell, on_terminal: Terminal) -> None:
    shell.write_home("rules.yaml", "version: 1\nrules: [{command: [cargo, check], verdict: preApproved}]\n")
    _, screen = on_terminal(command(cmd="cargo check && ls && npm ci"), (QUESTION, "w"), (QUESTION, ""))
    rows = [row.strip() for row in screen.splitlines()]
    for row in ("exec cargo check", "exec ls (only reads)", "exec npm ci (no rule covers it)"):
        assert rows.count(row) == 1, screen
    assert "Running npm ci asks unless a rule allows it." in screen
    assert "cargo check …" not in screen, "nor is what a rule allows offered"


def test_a_line_that_is_no_answer_answers_nothing_and_neither_does_what_follows_it_at_once(shell: Shell) -> None:
    child = shell.forge.expecting(
        command(cmd="make all"), cwd=str(shell.project), env=shell.environ, encoding="utf-8", timeout=PATIENCE
    )
    child.expect(QUESTION)
    child.send("why\n")
    child.expect("y runs it once")
    child.send("y\nye")  # the person types on: no line of it is an answer to the question that comes next
    child.expect(QUESTION)
    child.send("s\n")
    child.expect("y runs it once")
    child.expect(QUESTION)
    child.send("\n")
    child.expect(pexpect.EOF)
    child.wait()
    child.close()
    assert child.exitstatus == 3


def test_control_c_leaves_the_line_of_the_question(shell: Shell) -> None:
    child = shell.forge.expecting(
        command(cmd="make all"), cwd=str(shell.project), env=shell.environ, encoding="utf-8", timeout=PATIENCE
    )
    child.expect(QUESTION)
    child.sendintr()
    child.expect(pexpect.EOF)
    assert "\nforge: interrupted" in child.before.replace("\r", "")
    child.wait()
    child.close()
    assert child.exitstatus == 130


@pytest.fixture
def request_of() -> Callable[..., ApprovalRequest]:
    def make(*labels: str) -> ApprovalRequest:
        choices = tuple(
            ApprovalOffer(id=f"c{number}", label=label, scope="always", exact=False)
            for number, label in enumerate(labels)
        )
        return ApprovalRequest(
            tool="t",
            args={},
            fingerprint="",
            args_key="",
            risk="low",
            why="a test",
            payload="p",
            description="",
            choices=choices,
        )

    return make


def test_keys_that_do_nothing_are_not_offered(
    request_of: Callable[..., ApprovalRequest], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    asked: list[str] = []

    def answer(question: str) -> str:
        asked.append(question)
        return "?" if len(asked) % 2 else ""

    monkeypatch.setattr(approval_prompt, "ask_line", answer)
    for labels in ((), ("one",), ("one", "two", "three")):
        assert approval_prompt.ask_on_terminal(request_of(*labels)) == {"approved": False, "reason": ""}
    none, one, three = asked[::2]
    assert "remember" not in none
    assert "· 5 remember ·" in one
    assert "· 5-7 remember ·" in three
    assert all("q stop" in question for question in asked)
    assert "5-7 also remembers" in capsys.readouterr().err


def test_a_long_choice_is_broken_between_words_and_cannot_fake_another(
    request_of: Callable[..., ApprovalRequest], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(approval_prompt, "ask_line", lambda _: "")
    words = [f"word{number:03}" for number in range(40)]
    approval_prompt.ask_on_terminal(request_of(" ".join(words), "x\n  7 always: y"))
    lines = capsys.readouterr().err.splitlines()
    assert all(len(line) <= 80 for line in lines)
    assert " ".join(" ".join(lines).split()).count(" ".join(words)) == 1
    assert not any(line.startswith("  7 ") for line in lines)
