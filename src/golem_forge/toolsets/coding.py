"""The bundle `coding`: what an agent needs to work in a directory, under one name.

`coding: {exec: {walled: preApproved}}` hands a member its own keys; a member that is not named gets an empty block.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

from golem_forge.tools.tool import Tool
from golem_forge.tools.toolset import Toolset, ToolsetContext
from golem_forge.toolsets.filesystem import create_read_file_tool

if TYPE_CHECKING:
    from pydantic import BaseModel


class CodingToolset:
    name = "coding"

    def __init__(self, members: Iterable[Toolset]) -> None:
        self._members = tuple(members)

    def with_member(self, member: Toolset, *, after: str) -> CodingToolset:
        """The bundle with one more, which stands behind the one named `after`."""
        at = 1 + next(index for index, each in enumerate(self._members) if each.name == after)
        return CodingToolset((*self._members[:at], member, *self._members[at:]))

    @cached_property
    def config(self) -> type[BaseModel]:
        from pydantic import ConfigDict, Field, create_model

        closed = ConfigDict(extra="forbid")
        nothing = create_model("nothing", __config__=closed)
        blocks: dict[str, Any] = {
            member.name: (member.config or nothing, Field(default=None)) for member in self._members
        }
        return create_model("coding", __config__=closed, **blocks)

    def get_tools(self, ctx: ToolsetContext) -> Sequence[Tool]:
        from dataclasses import replace

        tools = [create_read_file_tool(ctx.sandbox)]
        for member in self._members:
            block = getattr(ctx.config, member.name, None) if ctx.config is not None else None
            tools += member.get_tools(replace(ctx, config=block))
        return tools
