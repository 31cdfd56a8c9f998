"""`shells`: the shell tool of a block on the one path, in real walls around a real workspace."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from tests.toolsets.conftest import Bench

from golem_forge.core.calls import Outcome
from golem_forge.tools.factory import ToolsetContext
from golem_forge.toolsets.exec.shell import ShellToolset


class Shell(Bench):
    async def __call__(self, command: str, **args: Any) -> Outcome:
        return await self.call("shell", command=command, **args)


@pytest.fixture
def shells(benches: Callable[..., Bench]) -> Callable[..., Shell]:
    """`shells(block)`: calls go by its rules; `ask=…` or `mode=…` as for a path."""

    def make(block: dict[str, Any], **options: Any) -> Shell:
        toolset = ShellToolset()
        (tool,) = toolset.get_tools(ToolsetContext(config=toolset.config.model_validate(block)))
        return Shell(benches(tool, **{"mode": "", **options}).path)

    return make


@pytest.fixture
def shell(shells: Callable[..., Shell]) -> Shell:
    """Runs anything that no floor stops."""
    return shells({"default": {"approval": "preApproved"}}, mode="approve_all")
