"""The `memory` toolset: short texts that outlive a session, by id, for one project or for the person everywhere.

They lie in FORGE_HOME, which no path a tool is given leads to; only an id does. Reading one is free, saving one asks
and shows the diff, and what holds a known secret value is never saved.
"""

from __future__ import annotations

from golem_forge.sandbox.sandbox import Sandbox
from golem_forge.tools.tool import NeedsApproval, Tool
from golem_forge.tools.toolset import ToolsetContext
from golem_forge.toolsets.memory.get_memory import get_memory_tool
from golem_forge.toolsets.memory.save_memory import save_memory_tool


class MemoryToolset:
    name = "memory"
    config = None

    def __init__(self, sandbox: Sandbox | None = None) -> None:
        self._sandbox = sandbox

    def get_tools(self, ctx: ToolsetContext | None = None) -> list[Tool]:
        sandbox = self._sandbox or (ctx.sandbox if ctx else None)
        return [get_memory_tool(sandbox), save_memory_tool(sandbox)]


def create_get_memory_tool(sandbox: Sandbox | None = None, needs_approval: NeedsApproval | None = None) -> Tool:
    return get_memory_tool(sandbox, needs_approval)


def create_save_memory_tool(sandbox: Sandbox | None = None, needs_approval: NeedsApproval | None = None) -> Tool:
    return save_memory_tool(sandbox, needs_approval)
