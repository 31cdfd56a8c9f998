"""Real zones on a real disk, and `call`: one tool call, validated and executed."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from golem_forge.core.decisions import Verdict
from golem_forge.core.results import ToolResult
from golem_forge.sandbox.sandbox import Sandbox, open_sandbox
from golem_forge.sandbox.zones import AccessMode, ZoneSpec
from golem_forge.tools.context import ToolContext
from golem_forge.tools.validation import Ok
from golem_forge.toolsets import TOOLKIT

Call = Callable[..., Awaitable[ToolResult]]


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    path = tmp_path / "host-workspace"
    path.mkdir()
    return path


@pytest.fixture
def sandbox(tmp_path: Path, workspace: Path) -> Sandbox:
    """workspace rw (asks), scratch rw (write preApproved, delete blocked), docs ro."""
    for name in ("host-scratch", "host-docs", "forge_home", "home"):
        (tmp_path / name).mkdir()
    specs = (
        ZoneSpec(name="workspace", path=workspace),
        ZoneSpec(name="scratch", path=tmp_path / "host-scratch", write=Verdict.PRE_APPROVED, delete=Verdict.BLOCKED),
        ZoneSpec(name="docs", path=tmp_path / "host-docs", mode=AccessMode.RO),
    )
    return open_sandbox(specs, forge_home=tmp_path / "forge_home", home=tmp_path / "home")


@pytest.fixture
def ctx(sandbox: Sandbox) -> ToolContext:
    return ToolContext(sandbox=sandbox)


@pytest.fixture
def call(ctx: ToolContext) -> Call:
    async def made(name: str, **args: Any) -> ToolResult:
        tool = TOOLKIT[name]
        checked = tool.validate_input(args)
        assert isinstance(checked, Ok), checked
        return await tool.execute(checked.data, ctx)

    return made
