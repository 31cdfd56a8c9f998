"""apply_patch on the one path: judged by zone, one prompt with the diff, failures and interrupts as Outcomes."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from golem_forge.core.calls import ToolCall
from golem_forge.core.decisions import Risk, Status, Verdict
from golem_forge.orchestrator.orchestrator import Orchestrator
from golem_forge.sandbox.sandbox import Sandbox
from golem_forge.storage.home import ForgeHome
from golem_forge.toolsets.edit import create_apply_patch_tool


def wrapped(body: str) -> str:
    return f"*** Begin Patch\n{body}*** End Patch\n"


@pytest.fixture
def path_asking(make_path: Any, sandbox: Sandbox, tmp_path: Path) -> Callable[..., Orchestrator]:
    """Without anybody to ask, what asks is denied."""
    return lambda ask=None: make_path(create_apply_patch_tool(), ask=ask, sandbox=sandbox, home=ForgeHome(tmp_path))


def never(request: Any) -> dict[str, Any]:
    raise AssertionError("nobody was to be asked")


@pytest.mark.parametrize(
    ("body", "status", "verdict", "risk"),
    [
        ("*** Add File: /scratch/a\n+x\n", Status.SUCCESS, Verdict.PRE_APPROVED, Risk.MEDIUM),
        ("*** Add File: a\n+x\n", Status.APPROVAL_DENIED, Verdict.ASK, Risk.MEDIUM),
        ("*** Delete File: old\n", Status.APPROVAL_DENIED, Verdict.ASK, Risk.HIGH),
        (
            "*** Add File: /scratch/a\n+x\n*** Delete File: /scratch/b\n",
            Status.POLICY_DENIED,
            Verdict.BLOCKED,
            Risk.HIGH,
        ),
        ("*** Update File: /scratch/b\n*** Move to: /scratch/c\n", Status.POLICY_DENIED, Verdict.BLOCKED, Risk.HIGH),
        ("*** Add File: .git/hooks/x\n+x\n", Status.APPROVAL_DENIED, Verdict.ASK, Risk.CRITICAL),
        ("*** Update File: .env\n*** Move to: plain\n", Status.APPROVAL_DENIED, Verdict.ASK, Risk.CRITICAL),
    ],
)
async def test_verdict_and_risk(
    path_asking: Any, tmp_path: Path, workspace: Path, body: str, status: Status, verdict: Verdict, risk: Risk
) -> None:
    (tmp_path / "host-scratch/b").write_text("b\n")
    (workspace / "old").write_text("x\n")
    (workspace / ".env").write_text("TOKEN=canary\n")
    outcome = await path_asking().call(ToolCall("apply_patch", {"patch": wrapped(body)}))
    assert outcome.decision is not None
    assert (outcome.status, outcome.decision.verdict, outcome.decision.risk) == (status, verdict, risk)
    assert (tmp_path / "host-scratch/a").exists() is (status is Status.SUCCESS)
    assert (tmp_path / "host-scratch/b").read_text() == "b\n"


async def test_t31_t32_what_cannot_work_asks_nobody(path_asking: Any, workspace: Path) -> None:
    (workspace / "a").write_text("a\n")
    path = path_asking(never)
    grammar = await path.call(ToolCall("apply_patch", {"input": "nonsense"}))
    assert (grammar.status, grammar.code) == (Status.INPUT_INVALID, "PATCH_INVALID")
    assert grammar.text == "Patch not applied; nothing was changed.\nline 1: expected '*** Begin Patch'"
    body = "*** Add File: n\n+n\n*** Update File: a\n@@ def x():\n-a\n"
    placing = await path.call(ToolCall("apply_patch", {"input": wrapped(body)}))
    assert placing.status is Status.EXECUTION_FAILED
    assert placing.text.endswith("\nline 5: '@@ def x():' not found in /workspace/a after line 0")
    assert os.listdir(workspace) == ["a"]


@pytest.mark.parametrize("meddle", [True, False])
async def test_t42_the_prompt_shows_the_diff_and_a_changed_target_is_not_written(
    path_asking: Any, workspace: Path, meddle: bool
) -> None:
    (workspace / "a").write_text("a\nb\n")
    (workspace / "b").write_text("b\n")
    shown: list[str] = []

    def answer(request: Any) -> dict[str, Any]:
        shown.append(request.diff)
        if meddle:
            (workspace / "b").write_text("b\nmore\n")
        return {"approved": True}

    body = "*** Update File: a\n@@\n-a\n+A\n*** Update File: b\n@@\n-b\n+B\n"
    outcome = await path_asking(answer).call(ToolCall("apply_patch", {"input": wrapped(body)}))
    assert shown == [
        "--- a/workspace/a\n+++ b/workspace/a\n@@ -1,2 +1,2 @@\n-a\n+A\n b\n"
        "--- a/workspace/b\n+++ b/workspace/b\n@@ -1 +1 @@\n-b\n+B\n"
    ]
    if meddle:
        assert (outcome.status, outcome.code) == (Status.EXECUTION_FAILED, "PATH_CHANGED")
        assert outcome.text.startswith("Patch not applied; nothing was changed.\n")
        assert ((workspace / "a").read_text(), (workspace / "b").read_text()) == ("a\nb\n", "b\nmore\n")
    else:
        assert outcome.text == "Patched 2 files:\nM /workspace/a\nM /workspace/b"
        assert ((workspace / "a").read_text(), (workspace / "b").read_text()) == ("A\nb\n", "B\n")


async def test_an_interrupt_while_it_runs_leaves_every_file_as_it_was(
    path_asking: Any, workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in "abc":
        (workspace / name).write_text(f"{name}\n")
    path = path_asking(lambda request: {"approved": True})
    loop = asyncio.get_running_loop()
    rename = os.rename
    renamed: list[str] = []

    async def interrupt() -> None:
        path.signal.interrupt()

    def watched(source: str, name: str, **kwargs: Any) -> None:
        if name == "b" and "b" not in renamed:
            asyncio.run_coroutine_threadsafe(interrupt(), loop).result(10)
        renamed.append(name)
        rename(source, name, **kwargs)

    monkeypatch.setattr(os, "rename", watched)
    body = "".join(f"*** Update File: {name}\n@@\n-{name}\n+x\n" for name in "abc")
    outcome = await path.call(ToolCall("apply_patch", {"input": wrapped(body)}))
    assert outcome.status is Status.INTERRUPTED
    assert {name: (workspace / name).read_text() for name in os.listdir(workspace)} == {n: f"{n}\n" for n in "abc"}
    assert renamed[:2] == ["a", "b"] and "c" not in renamed
