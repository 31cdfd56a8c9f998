"""`create_cli_approval_callback`: an embedder's calls are asked for on a real terminal, and denied without one."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import pexpect
import pytest
from tests.deadlines import PATIENCE

PROGRAM = """
import asyncio
from golem_forge import ApprovalController, Orchestrator, tool
from golem_forge.core.calls import ToolCall
from golem_forge.ui.approval_prompt import create_cli_approval_callback

@tool(needs_approval=True, label="Push to Remote")
def git_push(branch: str) -> str:
    "Push commits."
    return f"pushed {branch}"

async def main():
    path = Orchestrator([git_push], approval=ApprovalController("interactive", create_cli_approval_callback()))
    branches = ("main\\x1b[2J", "dev", "next", "old", "odd")
    for outcome in await path.batch([ToolCall(name="git_push", args={"branch": branch}) for branch in branches]):
        print(outcome.status.value, outcome.text)

asyncio.run(main())
"""


@pytest.fixture
def program(tmp_path: Path) -> Path:
    path = tmp_path / "program.py"
    path.write_text(PROGRAM)
    return path


def test_cards_come_one_by_one_in_the_order_of_the_calls_and_none_after_the_turn_was_ended(program: Path) -> None:
    environment = {**os.environ, "TERM": "xterm"}
    child = pexpect.spawn(
        sys.executable, [str(program)], encoding="utf-8", timeout=PATIENCE, env=environment, echo=False
    )
    for branch, answer in (("main", "y"), ("dev", "n"), ("next", "y"), ("old", "q")):
        child.expect(r"Push to Remote \(git_push\) wants to run")
        child.expect(r"Approve\?.*\) ")
        assert branch in child.before and "wants to run" not in child.before and "\x1b[2J" not in child.before
        child.sendline(answer)
        if answer == "n":
            child.expect(r"Reason.*: ")
            child.sendline("")
    child.expect(pexpect.EOF)
    ended = child.before.replace("\r", "")
    assert "wants to run" not in ended and "Approve?" not in ended
    statuses = [line.split()[0] for line in ended.splitlines() if "_denied" in line or "success" in line]
    assert statuses[:4] == ["success", "approval_denied", "success", "approval_denied"], ended
    assert "success pushed main" in ended and "pushed odd" not in ended


def test_without_a_terminal_it_denies_and_says_why(program: Path, ready_forge: Any) -> None:
    ran = ready_forge.program(str(program), cwd=program.parent, env=os.environ)
    assert ran.stdout.count("approval_denied") == 5, ran.stderr
    assert "There is no terminal to ask on." in ran.stdout
    assert "Approve?" not in ran.stderr
