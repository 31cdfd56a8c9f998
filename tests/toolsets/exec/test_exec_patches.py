"""T27: a script that is nothing but a patch is handed on as one, asked for once, as a patch."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from golem_forge.config.validation import Setting
from golem_forge.core.decisions import Status, Verdict
from golem_forge.policy.base import ApprovalBlock, ApprovalBlocks
from golem_forge.toolsets.edit import create_apply_patch_tool
from golem_forge.toolsets.exec import create_exec_command_tool

PATCH = "*** Begin Patch\n*** Add File: new.txt\n+hello\n*** End Patch\n"


@pytest.fixture
def tools() -> tuple[Any, ...]:
    return create_exec_command_tool(), create_apply_patch_tool()


async def test_it_becomes_a_patch(
    benches: Callable[..., Any], asked: Any, tools: tuple[Any, ...], workspace: Path
) -> None:
    (workspace / "sub").mkdir()
    ask = asked()
    bench = benches(*tools, ask=ask)
    calls: list[tuple[str, dict[str, str], str]] = [
        (f"cd sub && apply_patch <<'EOF'\n{PATCH}EOF\n", {}, "sub/new.txt"),
        (f"apply_patch <<'EOF'\n{PATCH}EOF", {"workdir": "sub"}, "sub/new.txt"),
        (f"cd sub && apply_patch <<'EOF'\n{PATCH}EOF", {"workdir": "/workspace/top"}, "top/sub/new.txt"),
        (f"apply_patch '{PATCH}'", {}, "new.txt"),
    ]
    for cmd, args, made in calls:
        ask.clear()
        outcome = await bench.cmd(cmd, **args)
        assert (outcome.status, outcome.tool) == (Status.SUCCESS, "apply_patch"), cmd
        assert [request.tool for request in ask] == ["apply_patch"]
        assert (workspace / made).read_text() == "hello\n"
        (workspace / made).unlink()


async def test_with_anything_beside_it_it_is_a_command(
    benches: Callable[..., Any], tools: tuple[Any, ...], workspace: Path
) -> None:
    (workspace / "sub").mkdir()
    outcome = await benches(*tools).cmd(f"cd sub && apply_patch <<'EOF'; ls\n{PATCH}EOF\n")
    assert outcome.tool == "exec_command"
    assert not (workspace / "sub/new.txt").exists()


async def test_blocked_on_either_tool_blocks(
    benches: Callable[..., Any], tools: tuple[Any, ...], workspace: Path
) -> None:
    for name in ("exec_command", "apply_patch"):
        block = ApprovalBlock(tools={name: Setting(Verdict.BLOCKED, "forge.yaml:3")})
        outcome = await benches(*tools, blocks=ApprovalBlocks(program=block)).cmd(f"apply_patch <<'EOF'\n{PATCH}EOF\n")
        assert outcome.status is Status.POLICY_DENIED
    assert not (workspace / "new.txt").exists()
