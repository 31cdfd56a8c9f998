"""The shell tool in real walls: rules before prompts, one program, both streams, exact texts."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.deadlines import PATIENCE, ever_longer, within
from tests.tables import table

from golem_forge.core.decisions import Status
from golem_forge.sandbox.walls.model import Level
from golem_forge.toolsets.exec.shell import create_shell_tool

RULES = [
    {"pattern": "git status", "approval": "preApproved"},
    {"pattern": "git ", "approval": "ask"},
    {"pattern": "git push", "approval": "blocked"},
    {"pattern": "find ", "approval": "preApproved", "ask_if_args": ["-exec", "-delete"]},
]


async def test_t11_rules_decide_who_is_asked(shells: Callable[..., Any], asked: Any) -> None:
    ask = asked({"approved": False})
    shell = shells({"rules": RULES}, ask=ask)
    for refused in ("git push", "git -C . push", "ls", "gitx status"):
        assert (await shell(refused)).status is Status.POLICY_DENIED
    assert (await shell("git status --short")).executed
    assert (await shell("find . -name x")).status is Status.SUCCESS
    assert not ask
    assert (await shell("git commit -m x")).status is Status.APPROVAL_DENIED
    assert (await shell("find . -delete")).status is Status.APPROVAL_DENIED
    assert len(ask) == 2


async def test_danger_asks_whatever_a_rule_of_the_block_says(shells: Callable[..., Any], asked: Any) -> None:
    ask = asked({"approved": False})
    shell = shells({"default": {"approval": "preApproved"}}, ask=ask)
    assert (await shell("rm -rf x")).status is Status.APPROVAL_DENIED
    assert (await shell("cat /etc/passwd")).status is Status.APPROVAL_DENIED
    assert (await shell("rm -rf /")).status is Status.POLICY_DENIED
    assert [request.risk for request in ask] == ["critical", "critical"]


async def test_a_rule_that_asks_asks_for_what_only_reads_too(shells: Callable[..., Any], asked: Any) -> None:
    ask = asked()
    shell = shells({"rules": [{"pattern": "ls"}]}, ask=ask)
    assert (await shell("ls")).status is Status.SUCCESS
    assert len(ask) == 1


async def test_text_and_value(shell: Any) -> None:
    outcome = await shell("printf a\\\\nb")
    assert re.fullmatch(r"exit 0 \(\d+\.\d\d s\)\nstdout:\na\nb", outcome.text)
    value = outcome.result.value
    assert (value["kind"], value["exit_code"], value["stdout"], value["stderr"]) == ("exec.result", 0, "a\nb", "")
    assert value["truncated"] is False and value["denials"] == [] and "handle" not in value
    assert (await shell("true")).text.endswith(" s)\n(no output)")


async def test_both_streams_have_a_section(shell: Any) -> None:
    outcome = await shell("bash -c 'echo out; echo err >&2; exit 4'")
    assert outcome.status is Status.EXECUTION_FAILED
    assert re.fullmatch(r"exit 4 \(.*\)\nstdout:\nout\nstderr:\nerr\n", outcome.text)


async def test_nothing_is_expanded(shell: Any) -> None:
    outcome = await shell("echo $HOME ~ * 'a b'")
    assert outcome.result.value["stdout"] == "$HOME ~ * a b\n"


@table(
    ("command", "text"),
    [
        ("a|b", "shell runs one program; '|' at position 1 needs exec_command."),
        ("echo $(x)", "shell runs one program; '$(' at position 5 needs exec_command."),
        ('echo "${x}"', "shell runs one program; '${' at position 6 needs exec_command."),
        ("echo 'x", "shell: the quote ' at position 5 is not closed."),
        ("  ", "shell: command: there is no program in it"),
    ],
)
async def test_t13_what_needs_a_shell(shell: Any, command: str, text: str) -> None:
    outcome = await shell(command)
    assert (outcome.status, outcome.text) == (Status.INPUT_INVALID, text)


async def test_t14_the_time_limit(shell: Any, shells: Callable[..., Any]) -> None:
    for seconds in ever_longer(1):
        with within(seconds):
            outcome = await shell("bash -c 'echo early; sleep 600'", timeout_s=seconds)
        assert outcome.status is Status.TIMEOUT
        if "early" in outcome.text:
            break
    assert outcome.text == f"timed out after {seconds} s\nstdout:\nearly\n"
    short = shells({"default": {"approval": "preApproved"}, "timeout_s": 0.2}, mode="approve_all")
    assert (await short("sleep 60")).text.startswith("timed out after 0.2 s")


async def test_t15_a_program_that_is_not_there(shell: Any) -> None:
    outcome = await shell("no-such-program x")
    assert outcome.status is Status.EXECUTION_FAILED
    assert outcome.result.value["exit_code"] == 127
    assert outcome.text == "exit 127 (0.00 s)\nstderr:\nno-such-program: command not found\n"


@table(("name", "code", "why"), [("./plain", 126, "permission denied"), ("./nowhere", 127, "command not found")])
async def test_a_path_that_is_no_program(shell: Any, workspace: Path, name: str, code: int, why: str) -> None:
    (workspace / "plain").write_text("text")
    outcome = await shell(name)
    assert (outcome.status, outcome.result.value["exit_code"]) == (Status.EXECUTION_FAILED, code)
    assert outcome.text.endswith(f"\nstderr:\n{name}: {why}\n")


async def test_t16_the_limit_is_in_bytes_and_divides_no_character(shell: Any) -> None:
    outcome = await shell('python3 -c \'print("é" * 40000, end="")\'')
    assert outcome.truncated and outcome.output_handle
    first, label, head, joint, tail = outcome.text.split("\n")
    assert (label, set(head), set(tail)) == ("stdout:", {"é"}, {"é"})
    assert len(f"{first}\n{label}\n{head}{tail}".encode()) <= 32 * 1024
    assert f"read_output handle={outcome.output_handle}]" in joint
    assert outcome.result.value["truncated"] is True
    assert len(outcome.result.value["stdout"].encode()) < 33 * 1024


async def test_cancel_keeps_what_was_said(shell: Any, workspace: Path) -> None:
    call = asyncio.ensure_future(shell("bash -c 'echo early; touch up; sleep 60'"))
    async with asyncio.timeout(PATIENCE):
        while not (workspace / "up").exists():
            await asyncio.sleep(0.02)
    with within(1):
        shell.path.signal.interrupt()
        outcome = await call
    assert outcome.status is Status.INTERRUPTED and "early" in outcome.text


async def test_what_the_walls_refuse_is_said(shell: Any, workspace: Path) -> None:
    (workspace / ".git").mkdir()
    (workspace / ".git/config").touch()
    outcome = await shell("touch .git/config")
    assert outcome.status is Status.SANDBOX_DENIED
    way = "A person can allow it, you cannot: forge.yaml: sandbox: {unprotect: [.git/config]}"
    assert f"\nBlocked by the sandbox: write /workspace/.git/config (protected).\n{way}\nstderr:\n" in outcome.text
    assert outcome.result.value["denials"]


async def test_read_only_walls_take_virtual_paths(shells: Callable[..., Any], workspace: Path) -> None:
    (workspace / "a.txt").write_text("seen\n")
    shell = shells({"default": {"approval": "preApproved"}}, level=Level.LANDLOCK)
    assert "seen" in (await shell("cat /workspace/a.txt")).text
    assert (await shell("make")).code == "WALLS_UNAVAILABLE"


async def test_variables_of_the_block(shells: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FROM_FORGE", "passed")
    monkeypatch.setenv("TOKEN_SOURCE", "canary-4711-token")
    env = {"pass": ["FROM_FORGE"], "set": {"FIXED": "x y"}, "secrets": {"TOKEN": "env:TOKEN_SOURCE"}}
    shell = shells({"default": {"approval": "preApproved"}, "env": env}, mode="approve_all")
    outcome = await shell("printenv FROM_FORGE FIXED TOKEN TOKEN_SOURCE USER")
    assert outcome.result.value["stdout"] == "passed\nx y\n[secret TOKEN]\nforge\n"


async def test_an_embedder_needs_no_session(sandbox: Any) -> None:
    result = await create_shell_tool(sandbox).execute({"command": "echo hi", "timeout_s": None})
    assert result.value["stdout"] == "hi\n"
