"""Native tools. A new toolset is one file here and one line in `_REGISTERED`; nothing else changes.

Importing this builds no schema and imports nothing heavy: names and descriptions are there at once.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from golem_forge.tools.tool import Tool
from golem_forge.tools.toolset import Toolset, ToolsetContext
from golem_forge.toolsets.filesystem import (
    FilesystemToolset,
    create_delete_file_tool,
    create_file_exists_tool,
    create_file_info_tool,
    create_list_files_tool,
    create_read_file_tool,
    create_write_file_tool,
)
from golem_forge.toolsets.output import create_read_output_tool

__all__ = [
    "ALIASES",
    "TOOLKIT",
    "TOOLSETS",
    "TOOL_LIST",
    "FilesystemToolset",
    "create_delete_file_tool",
    "create_file_exists_tool",
    "create_file_info_tool",
    "create_list_files_tool",
    "create_read_file_tool",
    "create_read_output_tool",
    "create_write_file_tool",
]

_REGISTERED: Final[tuple[Toolset, ...]] = (FilesystemToolset(),)

TOOLSETS: Final[Mapping[str, Toolset]] = MappingProxyType({toolset.name: toolset for toolset in _REGISTERED})
"""By the name a worker file uses."""

TOOL_LIST: Final[tuple[Tool, ...]] = (
    *(tool for toolset in _REGISTERED for tool in toolset.get_tools(ToolsetContext())),
    create_read_output_tool(),
)
"""Every native Tool, working in the sandbox of each call's context; `read_output` is in every catalog."""

TOOLKIT: Final[Mapping[str, Tool]] = MappingProxyType({tool.name: tool for tool in TOOL_LIST})

ALIASES: Final[Mapping[str, str]] = MappingProxyType({"read": "read_file"})
"""Other names a call may use, for `Catalog.add_alias`; never shown to a model."""
