"""Every native toolset by the name a worker file uses: those of `toolsets/`, and the one whose code is in `mcp/`.

`toolsets` and `mcp` know nothing of each other; here they meet. The order is that of the table people read.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Final

from golem_forge import toolsets
from golem_forge.mcp.client.resources.tools import McpResourcesToolset
from golem_forge.tools.tool import Tool
from golem_forge.tools.toolset import Toolset, ToolsetContext

_RESOURCES: Final = McpResourcesToolset()
_BEFORE: Final = "search"
"""The toolset that it follows, in the table and in the bundle."""


def _toolsets() -> Iterator[Toolset]:
    for name, toolset in toolsets.TOOLSETS.items():
        yield toolset.with_member(_RESOURCES, after=_BEFORE) if isinstance(toolset, toolsets.CodingToolset) else toolset
        if name == _BEFORE:
            yield _RESOURCES


def _tools() -> Iterator[Tool]:
    last = toolsets.TOOLSETS[_BEFORE].get_tools(ToolsetContext())[-1].name
    for tool in toolsets.TOOL_LIST:
        yield tool
        if tool.name == last:
            yield from _RESOURCES.get_tools()


TOOLSETS: Final[Mapping[str, Toolset]] = MappingProxyType({toolset.name: toolset for toolset in _toolsets()})

TOOL_LIST: Final[tuple[Tool, ...]] = tuple(_tools())
"""Every native Tool, working in the sandbox of each call's context; `read_output` is in every catalog."""

TOOLKIT: Final[Mapping[str, Tool]] = MappingProxyType({tool.name: tool for tool in TOOL_LIST})
