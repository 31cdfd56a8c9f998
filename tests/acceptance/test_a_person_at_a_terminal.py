"""A person runs tools from a real terminal: sees what would change, answers, and finds it all in the log."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pexpect
import pytest
from tests.acceptance.conftest import FORGE
from tests.deadlines import PATIENCE

Forge = Callable[..., subprocess.CompletedProcess[str]]
CARD = r"Approve\?.*\) "


@pytest.fixture
def project(tmp_path: Path) -> Path:
    folder = tmp_path / "project"
    folder.mkdir()
    (folder / "notes.txt").write_text("buy milk\n")
    return folder


Write = Callable[..., pexpect.spawn]


@pytest.fixture
def write(project: Path, ready_forge: Any) -> Write:
    """`write()` gives the command at its card."""

    def start(content: str = "buy bread\n") -> pexpect.spawn:
        words = ["call", "write_file", "--path", "notes.txt", "--content", content]
        child = ready_forge.expecting(words, **on_a_terminal(project))
        child.expect(CARD)
        return child

    return start


def on_a_terminal(project: Path) -> dict[str, Any]:
    return {"cwd": str(project), "encoding": "utf-8", "timeout": PATIENCE, "env": {**os.environ, "TERM": "dumb"}}


def finish(child: pexpect.spawn) -> int:
    child.expect(pexpect.EOF)
    child.close()
    return int(child.exitstatus if child.exitstatus is not None else 128 + child.signalstatus)


@pytest.fixture
def forge(ready_forge: Any) -> Forge:
    return lambda project, *words: ready_forge(*words, cwd=project, env=os.environ, timeout=PATIENCE)


def test_the_card_shows_the_diff_and_yes_runs_it_once(project: Path, write: Write, forge: Forge) -> None:
    child = write()
    card = child.before
    assert "-buy milk" in card and "+buy bread" in card
    assert "risk medium" in card and "/workspace/notes.txt +1 −1" in card and "Writing in /workspace asks." in card
    child.sendline("y")
    assert finish(child) == 0
    assert (project / "notes.txt").read_text() == "buy bread\n"
    assert forge(project, "log", "--tool", "write_file").stdout.count("write_file") == 1


def test_any_other_key_asks_again_and_enter_alone_denies(project: Path, write: Write) -> None:
    child = write()
    child.sendline("x")
    child.expect(CARD)
    child.sendline("w")
    child.expect("Writing in /workspace asks.")
    child.expect(CARD)
    child.sendline("")
    assert finish(child) == 3
    assert (project / "notes.txt").read_text() == "buy milk\n"


def test_what_was_typed_ahead_does_not_answer(project: Path) -> None:
    """The command takes its time to start, so it is the real one."""
    words = ["call", "write_file", "--path", "notes.txt", "--content", "x"]
    child = pexpect.spawn(FORGE, words, **on_a_terminal(project))
    child.sendline("y")
    child.sendline("y")
    child.expect(CARD)

    child.sendline("")

    assert finish(child) == 3
    assert (project / "notes.txt").read_text() == "buy milk\n"


def test_an_edit_is_validated_and_then_runs(project: Path, write: Write) -> None:
    child = write()
    child.sendline("e")
    child.expect("new arguments as JSON")
    child.sendline('{"path": "notes.txt", "content": 7}')
    child.expect("✗ content")
    child.expect(CARD)
    child.sendline("e")
    child.expect("new arguments as JSON")
    child.sendline('{"path": "other.txt", "content": "edited"}')
    child.expect("The user changed: path ")
    assert finish(child) == 0
    assert (project / "other.txt").read_text() == "edited"
    assert (project / "notes.txt").read_text() == "buy milk\n"


def test_always_is_remembered_listed_and_revoked(project: Path, write: Write, forge: Forge) -> None:
    child = write("one\n")
    number = re.search(r"(\d) always, in \S+remembered.yaml: write /workspace/notes.txt", child.before)
    assert number
    child.sendline(number[1])
    assert finish(child) == 0
    assert forge(project, "call", "write_file", "--path", "notes.txt", "--content", "two\n").returncode == 0
    listed = forge(project, "rules", "list", "--json").stdout
    assert "remembered" in listed and "/workspace/notes.txt" in listed
    assert forge(project, "rules", "revoke", "--remembered").returncode == 0
    assert forge(project, "call", "write_file", "--path", "notes.txt", "--content", "three\n").returncode == 3
    assert (project / "notes.txt").read_text() == "two\n"


def test_ctrl_c_at_the_card_ends_it_with_nothing_done(project: Path, write: Write, forge: Forge) -> None:
    child = write()
    child.sendintr()
    assert finish(child) == 130
    assert (project / "notes.txt").read_text() == "buy milk\n"
    assert "interrupted" in forge(project, "log").stdout


def test_escapes_in_arguments_do_not_reach_the_terminal(project: Path, write: Write) -> None:
    child = write("\x1b[2Jhidden \u202e tail\n")
    assert "\x1b[2J" not in child.before and "\u202e" not in child.before
    assert "\\x1b[2J" in child.before and "\\u202e" in child.before and "tail" in child.before
    child.sendline("")
    assert finish(child) == 3


def test_without_a_terminal_it_fails_closed_and_says_what_to_do(project: Path, forge: Forge) -> None:
    ran = forge(project, "call", "write_file", "--path", "notes.txt", "--content", "x")
    assert ran.returncode == 3
    assert ran.stdout == ""
    assert "Auto-deny mode: write_file requires approval" in ran.stderr
    assert "--approval approve_all" in ran.stderr and "forge rules" in ran.stderr
    assert (project / "notes.txt").read_text() == "buy milk\n"


def test_n_denies_with_a_reason_and_a_line_that_comes_with_others_is_no_answer(project: Path, write: Write) -> None:
    """A text whose first line reads like a yes was pasted."""
    child = write()
    child.send("y\nes, and then\n")
    child.expect("ignores several lines at once")
    child.expect(CARD)
    child.sendline("n")
    child.expect("Reason")
    child.send("because\nof that\n")
    child.expect("ignores several lines at once")
    child.expect("Reason")
    child.sendline("use staging")
    child.expect("Denied by the user: use staging")
    assert finish(child) == 3
    assert (project / "notes.txt").read_text() == "buy milk\n"
