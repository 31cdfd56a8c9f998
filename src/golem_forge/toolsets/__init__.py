"""Native tools, and other names that a call may use for them (`ALIASES`). A new toolset is one file here
and one line in `_REGISTERED`; nothing else changes.

Importing this builds no schema and imports nothing heavy: names and descriptions are there at once.

The bundle `coding` is what an agent needs to work in a directory, under one name: `coding: {exec: {walled:
preApproved}}` gives a member its own keys; a member that is not named gets an empty block.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from types import MappingProxyType
from typing import Any, Final

from golem_forge.core.lazy_module import pydantic
from golem_forge.tools.factory import Toolset, ToolsetContext
from golem_forge.tools.tool import Tool
from golem_forge.toolsets.edit import EditToolset, create_apply_patch_tool
from golem_forge.toolsets.exec import ExecToolset, create_exec_command_tool, create_write_stdin_tool
from golem_forge.toolsets.exec.ports import create_publish_port_tool
from golem_forge.toolsets.exec.shell import ShellToolset, create_shell_tool
from golem_forge.toolsets.filesystem import (
    FilesystemToolset,
    create_delete_file_tool,
    create_file_exists_tool,
    create_file_info_tool,
    create_list_files_tool,
    create_read_file_tool,
    create_write_file_tool,
)
from golem_forge.toolsets.git import create_git_fetch_tool, create_git_push_tool
from golem_forge.toolsets.memory import MemoryToolset, create_get_memory_tool, create_save_memory_tool
from golem_forge.toolsets.output import create_read_output_tool
from golem_forge.toolsets.plan import PlanToolset, create_update_plan_tool
from golem_forge.toolsets.search import SearchToolset, create_grep_files_tool, create_list_dir_tool
from golem_forge.toolsets.web import WebToolset, create_webfetch_tool

__all__ = [
    "ALIASES",
    "TOOLKIT",
    "TOOLSETS",
    "TOOL_LIST",
    "CodingToolset",
    "EditToolset",
    "ExecToolset",
    "FilesystemToolset",
    "MemoryToolset",
    "PlanToolset",
    "SearchToolset",
    "ShellToolset",
    "WebToolset",
    "create_apply_patch_tool",
    "create_delete_file_tool",
    "create_exec_command_tool",
    "create_file_exists_tool",
    "create_file_info_tool",
    "create_get_memory_tool",
    "create_git_fetch_tool",
    "create_git_push_tool",
    "create_grep_files_tool",
    "create_list_dir_tool",
    "create_list_files_tool",
    "create_publish_port_tool",
    "create_read_file_tool",
    "create_read_output_tool",
    "create_save_memory_tool",
    "create_shell_tool",
    "create_update_plan_tool",
    "create_webfetch_tool",
    "create_write_file_tool",
    "create_write_stdin_tool",
]


class CodingToolset:
    name = "coding"

    def __init__(self, members: Iterable[Toolset]) -> None:
        self._members = tuple(members)

    def with_member(self, member: Toolset, *, after: str) -> CodingToolset:
        """The bundle with one more, which stands behind the one named `after`."""
        at = 1 + next(index for index, each in enumerate(self._members) if each.name == after)
        return CodingToolset((*self._members[:at], member, *self._members[at:]))

    @cached_property
    def config(self) -> type[pydantic.BaseModel]:
        closed = pydantic.ConfigDict(extra="forbid")
        nothing = pydantic.create_model("nothing", __config__=closed)
        blocks: dict[str, Any] = {
            member.name: (member.config or nothing, pydantic.Field(default=None)) for member in self._members
        }
        return pydantic.create_model("coding", __config__=closed, **blocks)

    def get_tools(self, ctx: ToolsetContext) -> Sequence[Tool]:
        from dataclasses import replace

        tools = [create_read_file_tool(ctx.sandbox)]
        for member in self._members:
            block = getattr(ctx.config, member.name, None) if ctx.config is not None else None
            tools += member.get_tools(replace(ctx, config=block))
        return tools


_CODING: Final[tuple[Toolset, ...]] = (
    ExecToolset(),
    EditToolset(),
    SearchToolset(),
    PlanToolset(),
    WebToolset(),
    MemoryToolset(),
)
_REGISTERED: Final[tuple[Toolset, ...]] = (FilesystemToolset(), ShellToolset(), *_CODING)

TOOLSETS: Final[Mapping[str, Toolset]] = MappingProxyType(
    {toolset.name: toolset for toolset in (*_REGISTERED, CodingToolset(_CODING))}
)
"""Toolsets by their name in a worker file."""

TOOL_LIST: Final[tuple[Tool, ...]] = (
    *(tool for toolset in _REGISTERED for tool in toolset.get_tools(ToolsetContext())),
    create_read_output_tool(),
)
"""Every native Tool, working in the sandbox of each call's context; `read_output` is in every catalog."""

TOOLKIT: Final[Mapping[str, Tool]] = MappingProxyType({tool.name: tool for tool in TOOL_LIST})

ALIASES: Final[Mapping[str, str]] = MappingProxyType(
    {
        "read": "read_file",
        "list_directory": "list_dir",
        "shell_command": "exec_command",
        "execute_command": "exec_command",
    }
)
"""Other names a call may use, for `Catalog.add_alias`; never shown to a model."""
