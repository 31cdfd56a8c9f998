"""The promises of the runtime, one named test each (numbers as in the design). Each runs the real thing end to end.

Invariant 7 for processes is in acceptance/test_an_agent_in_a_directory.py and sandbox/process; for tools inside this
process in orchestrator/test_run_endings.py. That every config key has an effect (10): agent/test_agent_config_keys.py.
"""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest
from tests.deadlines import LONG

from golem_forge import Caller, Tool, ToolCall, open_session, tool
from golem_forge.core.errors import ConfigError
from golem_forge.events.journal import reopen
from golem_forge.events.journal_records import CallRecords, read, verify
from golem_forge.storage.home import forge_home
from golem_forge.tools.tool import Definition

MODES = ["interactive", "strict", "approve_all", "auto_deny"]


def counting(name: str = "count", **options: Any) -> tuple[Any, list[int]]:
    runs: list[int] = []

    async def count(n: int = 0) -> int:
        runs.append(n)
        return len(runs)

    return tool(name=name, **options)(count), runs


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("answer", [True, False])
async def test_invariant_01_approved_runs_once_and_denied_never(
    make_path: Any, asked: Any, mode: str, answer: bool
) -> None:
    count, runs = counting()
    path = make_path(count, ask=asked({"approved": answer}), mode=mode)
    outcome = await path.call(ToolCall("count", {}))
    approved = mode == "approve_all" or (answer and mode != "auto_deny")
    assert len(runs) == (1 if approved else 0)
    assert outcome.status == ("success" if approved else "approval_denied")


async def test_invariant_02_a_model_cannot_name_a_manual_tool(make_path: Any) -> None:
    deploy, runs = counting("deploy", mode="manual", needs_approval=False)
    only_llm, _ = counting("think", mode="llm", needs_approval=False)
    path = make_path(deploy, only_llm)
    for caller in (Caller.LLM, Caller.MCP, Caller.TOOL):
        assert (await path.call(ToolCall("deploy", {}, caller))).status == "tool_not_found"
    assert runs == []
    assert (await path.call(ToolCall("deploy", {}, Caller.HUMAN))).ok
    assert (await path.call(ToolCall("think", {}, Caller.HUMAN))).status == "tool_not_found"


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("caller", list(Caller))
@pytest.mark.parametrize("by", ["tool", "predicate", "rule"])
async def test_invariant_03_blocked_never_prompts_and_never_runs(
    make_path: Any, asked: Any, own_home: Path, mode: str, caller: Caller, by: str
) -> None:
    if by == "rule":
        (own_home / ".forge").mkdir()
        (own_home / ".forge" / "rules.yaml").write_text(
            "rules:\n  - {tool: count, verdict: blocked, reason: never}\n  - {tool: count, verdict: preApproved}\n"
        )
    needs: Any = {"tool": "blocked", "predicate": lambda args: "blocked", "rule": False}[by]
    count, runs = counting(needs_approval=needs, mode="both")
    ask = asked()
    outcome = await make_path(count, ask=ask, mode=mode).call(ToolCall("count", {}, caller))
    assert (outcome.status, runs, len(ask)) == ("policy_denied", [], 0)


async def test_invariant_04_a_changed_tool_is_a_new_tool(make_path: Any, asked: Any) -> None:
    state = {"digest": "1" * 64, "approved": True, "diff": ""}
    runs: list[int] = []
    changing = Tool(
        "changing",
        "May change.",
        input_schema={"type": "object"},
        execute=lambda args: runs.append(1) or "ran",
        definition=lambda: Definition(**state),  # type: ignore[arg-type]
        pin=lambda: state.update(approved=True, diff=""),
    )
    ask = asked({"approved": True, "remember": "session"})
    path = make_path(changing, ask=ask)
    await path.call(ToolCall("changing", {}))
    await path.call(ToolCall("changing", {}))
    assert len(ask) == 1
    state.update(digest="2" * 64, approved=False, diff="-old\n+new")
    outcome = await path.call(ToolCall("changing", {}))
    assert len(ask) == 2
    assert ask[1].changed == "-old\n+new"
    assert "this definition of 'changing' was never approved" in ask[1].why
    assert state["approved"] is True, "approving it pins it"
    assert outcome.ok and len(runs) == 3


async def test_invariant_05_fail_closed(make_path: Any, asked: Any, own_home: Path) -> None:
    home = own_home / ".forge"
    count, runs = counting()

    def raises(request: Any) -> Any:
        raise RuntimeError("the UI died")

    outcome = await make_path(count, ask=raises).call(ToolCall("count", {}))
    assert outcome.status == "approval_denied"
    home.mkdir(exist_ok=True)
    path = make_path(count, mode="approve_all")
    (home / "rules.yaml").write_text("rules: [oops")
    await asyncio.sleep(0.03)
    outcome = await path.call(ToolCall("count", {}))
    assert outcome.status == "policy_denied"
    assert "rules.yaml:" in outcome.error
    assert runs == []
    (home / "rules.yaml").write_text("rules: []\n")
    await asyncio.sleep(0.03)
    assert (await path.call(ToolCall("count", {}))).ok, "repaired: it runs"
    (home / "rules.yaml").write_text("rules: [oops")
    with pytest.raises(ConfigError):
        make_path(count)


async def test_invariant_06_every_call_gets_exactly_one_outcome_in_order(make_path: Any) -> None:
    good, _ = counting("good", needs_approval=False)

    @tool(needs_approval=False)
    async def bad() -> str:
        raise SystemExit(1)

    from golem_forge import create_ui_event_bus

    bus = create_ui_event_bus()
    results: list[str] = []
    bus.on("toolResult", lambda event: results.append(event.data.tool_call_id))
    path = make_path(good, bad, bus=bus)
    calls = [ToolCall(name, {}) for name in ("good", "bad", "nope", "good", "bad")]
    calls.append(ToolCall("good", {"n": "x"}))
    outcomes = await path.batch(calls)
    assert [outcome.call.id for outcome in outcomes] == [call.id for call in calls]
    assert [outcome.status for outcome in outcomes] == [
        "success", "execution_failed", "tool_not_found", "success", "execution_failed", "input_invalid",
    ]  # fmt: skip
    assert sorted(results) == sorted(call.id for call in calls)


async def test_invariant_08_outputs_are_bounded_and_kept_whole(project: Path) -> None:
    @tool(needs_approval=False)
    def chatty() -> str:
        return "".join(f"line {n} é\n" for n in range(20_000))

    async with open_session(project, tools=[chatty]) as session:
        outcome = await session.call("chatty", {}, caller=Caller.LLM)
        assert outcome.truncated and len(outcome.text.encode()) < 34_000
        assert f"read_output handle={outcome.output_handle}]" in outcome.text
        assert outcome.text.startswith("line 0 é") and outcome.text.rstrip().endswith("line 19999 é")
        page = await session.call("read_output", {"handle": outcome.output_handle, "offset": 10_001, "limit": 1})
        assert "line 10000 é" in page.text


async def test_invariant_09_no_host_path_and_no_secret_in_what_forge_says(project: Path) -> None:
    (project / "dir").mkdir()
    (project / "out").symlink_to("/etc/passwd")

    @tool(needs_approval=False)
    def leaks() -> str:
        raise FileNotFoundError(f"no such file: {project}/secret/file")

    async with open_session(project, tools=[leaks]) as session:
        session.path.redactor.add_secret("CANARY", "canary-71c6f0")
        texts = [
            (await session.call("leaks", {}, caller=Caller.LLM)).text,
            *[
                (await session.call("read_file", {"path": path})).text
                for path in ("nope", "dir", "out", "../x", f"{project}/nope", "a\0b", "canary-71c6f0")
            ],
        ]
        assert session.journal is not None
        written = session.journal.path.read_text()
    for text in (*texts, written):
        assert str(project) not in text
        assert "canary-71c6f0" not in text


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("sandbx: {}", "unknown key 'sandbx'; did you mean 'sandbox'?"),
        ("sandbox:\n  zones:\n    tmp: {path: .}", "tmp"),
        ("sandbox:\n  zones:\n    workspace: {path: nowhere}", "workspace"),
        ("approval: {tools: {read_file: preApproved}}", "'read_file' decides for itself"),
    ],
)
def test_invariant_10_a_bad_config_names_file_line_and_nearest_key(project: Path, text: str, says: str) -> None:
    from golem_forge.config.trust import TrustStore

    (project / "forge.yaml").write_text(text + "\n")
    TrustStore(forge_home()).give(project)
    with pytest.raises(ConfigError) as error:
        open_session(project)
    assert says in str(error.value)


CRASHING = """
    import asyncio, os, sys
    from golem_forge import Caller, ToolCall, open_session, tool

    @tool(needs_approval=False)
    async def effect(n: int) -> str:
        with open("effects", "a") as file:
            file.write(f"{n}\\n")
        if n == 2:
            print("now", flush=True)
            await asyncio.sleep(30)
        return "done"

    async def main():
        async with open_session(".", tools=[effect]) as session:
            print(session.id, flush=True)
            await session.path.batch([ToolCall("effect", {"n": n}) for n in (1, 2, 3)])

    asyncio.run(main())
"""


def test_invariant_11_after_kill_9_the_journal_says_what_happened(tmp_path: Path, own_home: Path) -> None:
    process = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(CRASHING)], cwd=tmp_path, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    session_id = process.stdout.readline().strip()
    assert process.stdout.readline().strip() == "now"
    process.send_signal(signal.SIGKILL)
    process.wait(LONG)
    journal = own_home / ".forge" / "sessions" / f"{session_id}.jsonl"
    assert verify(journal).ok
    states = [call.state for call in CallRecords.from_records(read(journal)).calls.values()]
    assert states == ["finished", "ambiguous", "never_started"]
    reopened = reopen(own_home / ".forge", session_id)
    reopened.journal.close()
    after = CallRecords.from_records(read(journal)).calls.values()
    assert [(call.status, call.state) for call in after][1:] == [("interrupted", "finished")] * 2
    assert "may have run" in journal.read_text()
    assert (tmp_path / "effects").read_text() == "1\n2\n", "nothing is repeated by itself"


async def test_invariant_12_a_link_swapped_in_after_the_approval_is_not_followed(project: Path, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "a.txt").write_text("outside")
    (project / "sub").mkdir()
    (project / "sub" / "a.txt").write_text("inside")

    def swap_then_approve(request: Any) -> dict[str, bool]:
        if not (project / "sub").is_symlink():
            os.rename(project / "sub", project / "moved")
            (project / "sub").symlink_to(outside)
        return {"approved": True}

    async with open_session(project, approval_callback=swap_then_approve) as session:
        outcome = await session.call("write_file", {"path": "sub/a.txt", "content": "changed"})
    assert not outcome.ok
    assert outcome.code in ("SYMLINK_ESCAPE", "PATH_CHANGED")
    assert (outside / "a.txt").read_text() == "outside"
    assert (project / "moved" / "a.txt").read_text() == "inside"


async def test_invariant_12_a_file_replaced_after_the_approval_is_not_overwritten(project: Path) -> None:
    (project / "a.txt").write_text("old")

    def replace_then_approve(request: Any) -> dict[str, bool]:
        (project / "new").write_text("somebody else's")
        os.replace(project / "new", project / "a.txt")
        return {"approved": True}

    async with open_session(project, approval_callback=replace_then_approve) as session:
        outcome = await session.call("write_file", {"path": "a.txt", "content": "changed"})
    assert (outcome.status, outcome.code) == ("execution_failed", "PATH_CHANGED")
    assert (project / "a.txt").read_text() == "somebody else's"


async def test_invariant_18_what_a_command_leaves_is_prevented_undone_or_told(project: Path, tmp_path: Path) -> None:
    """A hook, a setting, a repository in a folder: the person's git runs none of it. A workflow: they are told."""

    def git(*words: str, where: Path = project) -> str:
        environ = {"PATH": "/usr/bin:/bin", "HOME": str(tmp_path), "GIT_CONFIG_NOSYSTEM": "1"}
        ran = subprocess.run(["git", *words], cwd=where, env=environ, capture_output=True, text=True, timeout=LONG)
        return ran.stdout

    (tmp_path / ".gitconfig").write_text("[user]\n\tname = Ada\n\temail = ada@example.test\n")
    git("init", "-q", "-b", "main")
    git("commit", "-q", "--allow-empty", "-m", "first")
    mark = tmp_path / "mark"
    evil = project / "evil.sh"
    evil.write_text(f"#!/bin/sh\ntouch {mark}\n")
    evil.chmod(0o755)
    script = (
        "git init -q inner; git -C inner config core.fsmonitor $PWD/evil.sh;"
        " cp evil.sh .git/hooks/pre-commit; echo ../inner/.git > .git/commondir;"
        " mkdir -p .github/workflows; cp evil.sh .github/workflows/ci.yml"
    )

    async with open_session(project, approval="approve_all") as session:
        outcome = await session.call("exec_command", {"cmd": script})

    for where in (project, project / "inner"):
        git("status", where=where)
        git("commit", "-q", "--allow-empty", "-m", "by the person", where=where)
    assert not mark.exists(), "the person's git ran what a command left"
    assert git("log", "-1", "--format=%s") == "by the person\n"
    told = {(one.kind, one.severity.value) for one in outcome.leftovers}
    assert {("nested_repository", "critical"), ("git_files", "critical"), ("obeyed_name", "warning")} <= told
    assert "/workspace/.github/workflows/ci.yml" in outcome.text
