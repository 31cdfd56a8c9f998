"""`shells`: the shell tool of a block on the one path, in real walls around a real workspace."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from golem_forge.core.calls import Outcome, ToolCall
from golem_forge.orchestrator.orchestrator import Orchestrator
from golem_forge.sandbox.sandbox import Sandbox
from golem_forge.sandbox.walls.model import Level, ProbeReport
from golem_forge.sandbox.walls.walls import Walls
from golem_forge.storage.home import ForgeHome
from golem_forge.tools.factory import ToolsetContext
from golem_forge.toolsets.exec.shell import ShellToolset
from golem_forge.toolsets.output import create_read_output_tool


class Shell:
    def __init__(self, path: Orchestrator) -> None:
        self.path = path

    async def __call__(self, command: str, **args: Any) -> Outcome:
        return await self.path.call(ToolCall("shell", {"command": command, **args}))


@pytest.fixture
async def shells(
    make_path: Callable[..., Orchestrator], sandbox: Sandbox, tmp_path: Path
) -> AsyncIterator[Callable[..., Shell]]:
    """`shells(block)`: calls go by its rules; `ask=…` or `mode=…` as for a path."""
    made: list[Orchestrator] = []

    def make(block: dict[str, Any], *, level: Level = Level.FULL, **options: Any) -> Shell:
        toolset = ShellToolset()
        (tool,) = toolset.get_tools(ToolsetContext(config=toolset.config.model_validate(block)))
        path = make_path(tool, create_read_output_tool(), sandbox=sandbox, home=ForgeHome(tmp_path), **options)
        report = ProbeReport(level=level)  # probing has tests of its own
        path.walls = Walls(sandbox, forge_home=tmp_path / "forge_home", rules=path.path_rules, report=report)
        made.append(path)
        return Shell(path)

    yield make
    for path in made:
        await path.parts.close()


@pytest.fixture
def shell(shells: Callable[..., Shell]) -> Shell:
    """Runs anything that no floor stops."""
    return shells({"default": {"approval": "preApproved"}}, mode="approve_all")
