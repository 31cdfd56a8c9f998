"""The `exec` toolset: shell scripts inside walls, and the sessions they go on as.

`create_<tool>_tool(sandbox)` gives one tool for embedders; without a sandbox it uses the one of each call's context.
"""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

from golem_forge.sandbox.sandbox import Sandbox
from golem_forge.tools.tool import NeedsApproval, Tool
from golem_forge.tools.toolset import ToolsetContext
from golem_forge.toolsets.exec.exec_command import exec_command_tool
from golem_forge.toolsets.exec.settings import ExecSettings, exec_model, exec_settings
from golem_forge.toolsets.exec.write_stdin import write_stdin_tool

if TYPE_CHECKING:
    from pydantic import BaseModel


class ExecToolset:
    name = "exec"

    @cached_property
    def config(self) -> type[BaseModel]:
        return exec_model()

    def get_tools(self, ctx: ToolsetContext) -> list[Tool]:
        return [exec_command_tool(exec_settings(ctx.config), ctx.sandbox), write_stdin_tool()]


def create_exec_command_tool(sandbox: Sandbox | None = None, needs_approval: NeedsApproval | None = None) -> Tool:
    return exec_command_tool(ExecSettings(), sandbox, needs_approval)


def create_write_stdin_tool(sandbox: Sandbox | None = None, needs_approval: NeedsApproval | None = None) -> Tool:
    """`sandbox` is not asked: a session runs where it was started."""
    return write_stdin_tool(needs_approval)
