"""The file tools on the one path: judged by zone, bounded with a handle, failures as Outcomes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from golem_forge.core.calls import ToolCall
from golem_forge.core.decisions import Risk, Status, Verdict
from golem_forge.orchestrator.orchestrator import Orchestrator
from golem_forge.sandbox.sandbox import Sandbox
from golem_forge.storage.home import ForgeHome
from golem_forge.toolsets import ALIASES, TOOLKIT, FilesystemToolset, create_write_file_tool


@pytest.fixture
def path(make_path: Any, sandbox: Sandbox, tmp_path: Path) -> Orchestrator:
    return make_path(*TOOLKIT.values(), sandbox=sandbox, home=ForgeHome(tmp_path))


async def test_t4_a_long_line_has_head_tail_and_handle(path: Orchestrator, workspace: Path) -> None:
    (workspace / "a.txt").write_text("a" * 2_500_000 + "b" * 2_500_000)
    outcome = await path.call(ToolCall("read_file", {"path": "a.txt", "limit": 1}))
    assert outcome.status is Status.SUCCESS
    assert outcome.text.startswith("L1: aaa") and outcome.text.endswith("bbb")
    assert f"read_output handle={outcome.output_handle}]" in outcome.text
    page = await path.call(ToolCall("read_output", {"handle": outcome.output_handle, "offset": 2, "limit": 1}))
    assert page.text.startswith("L1+30720: aaa")
    assert not page.output_handle


async def test_t6_a_missing_file_is_a_failed_outcome(path: Orchestrator) -> None:
    outcome = await path.call(ToolCall("read_file", {"path": "x"}))
    assert (outcome.status, outcome.code) == (Status.EXECUTION_FAILED, "NOT_FOUND")
    assert outcome.text == "File not found: /workspace/x"


@pytest.mark.parametrize(
    ("name", "args", "status", "verdict", "risk"),
    [
        ("read_file", {"path": "a.txt"}, Status.SUCCESS, Verdict.PRE_APPROVED, Risk.LOW),
        ("read_file", {"path": ".env"}, Status.APPROVAL_DENIED, Verdict.ASK, Risk.CRITICAL),
        ("write_file", {"path": "a.txt", "content": "x"}, Status.APPROVAL_DENIED, Verdict.ASK, Risk.MEDIUM),
        ("write_file", {"path": "/scratch/a", "content": "x"}, Status.SUCCESS, Verdict.PRE_APPROVED, Risk.MEDIUM),
        ("delete_file", {"path": "/scratch/b"}, Status.POLICY_DENIED, Verdict.BLOCKED, Risk.HIGH),
        ("delete_file", {"path": "a.txt"}, Status.APPROVAL_DENIED, Verdict.ASK, Risk.HIGH),
    ],
)
async def test_verdict_and_risk(
    path: Orchestrator, tmp_path: Path, name: str, args: dict[str, Any], status: Status, verdict: Verdict, risk: Risk
) -> None:
    for file in ("host-workspace/a.txt", "host-workspace/.env", "host-scratch/b"):
        (tmp_path / file).write_text("old")
    outcome = await path.call(ToolCall(name, args))
    assert outcome.decision is not None
    assert (outcome.status, outcome.decision.verdict, outcome.decision.risk) == (status, verdict, risk)
    assert (tmp_path / "host-workspace/a.txt").read_text() == "old"
    assert (tmp_path / "host-scratch/b").read_text() == "old"
    assert str(tmp_path) not in outcome.text


@pytest.mark.parametrize(
    ("target", "status"),
    [("a.txt", Status.SUCCESS), ("forge.yaml", Status.APPROVAL_DENIED), ("/scratch/b", Status.POLICY_DENIED)],
)
async def test_an_override_never_reaches_blocked_or_a_floor(
    make_path: Any, sandbox: Sandbox, tmp_path: Path, target: str, status: Status
) -> None:
    (tmp_path / "host-workspace/a.txt").touch()
    (tmp_path / "host-workspace/forge.yaml").touch()
    (tmp_path / "host-scratch/b").touch()
    agreed = {"workspace": {"delete": "preApproved"}, "scratch": {"delete": "preApproved"}}
    path = make_path(*FilesystemToolset(sandbox, zone_approval=agreed).get_tools(), home=ForgeHome(tmp_path))
    outcome = await path.call(ToolCall("delete_file", {"path": target}))
    assert outcome.status is status, outcome.text


async def test_needs_approval_of_an_embedder_replaces_the_zones_ask(
    make_path: Any, sandbox: Sandbox, tmp_path: Path
) -> None:
    tool = create_write_file_tool(sandbox, needs_approval=lambda args: args["path"] != "free.txt")
    path = make_path(tool, home=ForgeHome(tmp_path))
    free = await path.call(ToolCall("write_file", {"path": "free.txt", "content": "x"}))
    other = await path.call(ToolCall("write_file", {"path": "other.txt", "content": "x"}))
    assert (free.status, other.status) == (Status.SUCCESS, Status.APPROVAL_DENIED)


async def test_t55_an_alias_runs_and_is_recorded_under_the_canonical_name(path: Orchestrator, workspace: Path) -> None:
    (workspace / "a.txt").write_text("a")
    for alias, name in ALIASES.items():
        path.catalog.add_alias(alias, name)
    outcome = await path.call(ToolCall("read", {"file_path": "a.txt"}))
    assert (outcome.status, outcome.tool, outcome.text) == (Status.SUCCESS, "read_file", "L1: a")
    assert outcome.args == {"path": "a.txt", "offset": 1, "limit": 2000}


@pytest.mark.parametrize("meddle", [True, False])
async def test_what_changes_while_a_person_is_asked_is_not_written(
    make_path: Any, sandbox: Sandbox, workspace: Path, tmp_path: Path, meddle: bool
) -> None:
    file = workspace / "a.txt"
    file.write_text("old\n")
    seen: list[str] = []

    def answer(request: Any) -> dict[str, Any]:
        seen.append(request.diff)
        if meddle:
            file.write_text("OLD\n")
        return {"approved": True}

    path = make_path(TOOLKIT["write_file"], ask=answer, sandbox=sandbox, home=ForgeHome(tmp_path))
    outcome = await path.call(ToolCall("write_file", {"path": "a.txt", "content": "new\n"}))
    assert seen == ["--- a/workspace/a.txt\n+++ b/workspace/a.txt\n@@ -1 +1 @@\n-old\n+new\n"]
    if meddle:
        assert (outcome.status, outcome.code) == (Status.EXECUTION_FAILED, "PATH_CHANGED")
        assert file.read_text() == "OLD\n"
    else:
        assert outcome.text == "Modified /workspace/a.txt (4 bytes, was 4)"
        assert file.read_text() == "new\n"
