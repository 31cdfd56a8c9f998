"""The `shell` toolset: single programs, by rules of a worker's own.

`create_shell_tool(sandbox)` gives the tool for embedders: it asks for every program unless `needs_approval` says else.
"""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

from golem_forge.sandbox.sandbox import Sandbox
from golem_forge.tools.tool import NeedsApproval, Tool
from golem_forge.tools.toolset import ToolsetContext
from golem_forge.toolsets.shell.settings import ASK_FOR_ALL, shell_model, shell_settings
from golem_forge.toolsets.shell.tool import shell_tool

if TYPE_CHECKING:
    from pydantic import BaseModel


class ShellToolset:
    name = "shell"

    @cached_property
    def config(self) -> type[BaseModel]:
        return shell_model()

    def get_tools(self, ctx: ToolsetContext) -> list[Tool]:
        return [shell_tool(shell_settings(ctx.config), ctx.sandbox)]


def create_shell_tool(sandbox: Sandbox | None = None, needs_approval: NeedsApproval | None = None) -> Tool:
    return shell_tool(ASK_FOR_ALL, sandbox, needs_approval)
