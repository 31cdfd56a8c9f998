"""`create_cli_approval_callback`: an embedder's calls are asked for on a real terminal, and denied without one."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pexpect
import pytest

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
    calls = [ToolCall(name="git_push", args={"branch": branch}) for branch in ("main\\x1b[2J", "dev")]
    outcomes = await asyncio.gather(*map(path.call, calls))
    for outcome in outcomes:
        print(outcome.status.value, outcome.text)

asyncio.run(main())
"""


@pytest.fixture
def program(tmp_path: Path) -> Path:
    path = tmp_path / "program.py"
    path.write_text(PROGRAM)
    return path


def test_one_card_at_a_time_and_each_answer_goes_to_its_call(program: Path) -> None:
    environment = {**os.environ, "TERM": "xterm"}
    child = pexpect.spawn(sys.executable, [str(program)], encoding="utf-8", timeout=20, env=environment, echo=False)
    child.expect(r"Push to Remote \(git_push\) wants to run")
    child.expect(r"Approve\?.*\) ")
    first = child.before
    assert "wants to run" not in first
    assert "\x1b[2J" not in first
    child.sendline("y" if "main" in first else "n")
    index = child.expect([r"Reason.*: ", "wants to run"])
    if index == 0:
        child.sendline("")
        child.expect("wants to run")
    child.expect(r"Approve\?.*\) ")
    child.sendline("y" if "main" in child.before else "")
    child.expect(pexpect.EOF)
    ended = child.before.replace("\r", "")
    assert "success pushed main" in ended
    assert "approval_denied" in ended
    assert "pushed dev" not in ended


def test_without_a_terminal_it_denies_and_says_why(program: Path) -> None:
    ran = subprocess.run(
        [sys.executable, str(program)], capture_output=True, text=True, timeout=30, stdin=subprocess.DEVNULL
    )
    assert ran.stdout.count("approval_denied") == 2, ran.stderr
    assert "There is no terminal to ask on." in ran.stdout
    assert "Approve?" not in ran.stderr
