"""The `edit` toolset: one tool, `apply_patch`, that changes several files of the sandbox at once or none of them."""

from __future__ import annotations

from golem_forge.sandbox.sandbox import Sandbox
from golem_forge.tools.tool import NeedsApproval, Tool
from golem_forge.tools.toolset import ToolsetContext
from golem_forge.toolsets.edit.tool import apply_patch_tool
from golem_forge.toolsets.filesystem.reach import Reach, ZoneApproval, checked_overrides


class EditToolset:
    name = "edit"
    config = None

    def __init__(self, sandbox: Sandbox | None = None, *, zone_approval: ZoneApproval | None = None) -> None:
        self._sandbox = sandbox
        self._overrides = checked_overrides(sandbox, zone_approval or {})

    def get_tools(self, ctx: ToolsetContext | None = None) -> list[Tool]:
        return [apply_patch_tool(Reach(self._sandbox or (ctx.sandbox if ctx else None), self._overrides))]


def create_apply_patch_tool(sandbox: Sandbox | None = None, needs_approval: NeedsApproval | None = None) -> Tool:
    return apply_patch_tool(Reach(sandbox), needs_approval)
