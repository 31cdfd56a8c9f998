"""The tool inventory without a session: native tools by name, the catalog to start from, the user's workshop.

`toolsets`, `usertools` and `mcp` know nothing of each other; their toolsets meet here. The order is that of the
documented table. `build_catalog` returns the native tools under their names and aliases, then whatever else was given.
`open_listing_workshop` returns a Workshop of user tools that starts nothing; the one that builds, tests and trusts is
in `agent.user_tools`.

Imports stay light: listing tools must not load what running them needs (no asyncio, no pydantic, of `usertools` only
the definition of `run_code` before it is used).
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

from golem_forge import toolsets
from golem_forge.mcp.client.resources import McpResourcesToolset
from golem_forge.sandbox.host import person_environ
from golem_forge.tools.catalog import Catalog
from golem_forge.tools.factory import GivenTool, Toolset, ToolsetContext, as_tools
from golem_forge.tools.tool import Tool
from golem_forge.tools.validation import ToolDefinitionError
from golem_forge.toolsets import ALIASES
from golem_forge.toolsets.client import client_tools
from golem_forge.toolsets.exec.ports import create_unpublish_port_tool
from golem_forge.toolsets.git import git_sign_tool
from golem_forge.toolsets.undo import create_undo_changes_tool
from golem_forge.usertools.native_tools import CodeToolset

if TYPE_CHECKING:
    from golem_forge.storage.home import ForgeHome
    from golem_forge.usertools.workshop import Workshop

_RESOURCES: Final = McpResourcesToolset()
_CODE: Final = CodeToolset()
_FOLLOWING: Final[Mapping[str, Toolset]] = {"search": _RESOURCES, "exec": _CODE}
"""Toolset → the one that follows it, in the table and in the bundle."""
_WHEN_NEEDED: Final = {"tool_search": "Finds tools that are not loaded.", "open_skill": "Opens a skill."}
"""Tools that a session makes when it needs them. Threat: a user tool of such a name would take their place."""


def _toolsets() -> Iterator[Toolset]:
    for name, toolset in toolsets.TOOLSETS.items():
        if isinstance(toolset, toolsets.CodingToolset):
            for after, member in _FOLLOWING.items():
                toolset = toolset.with_member(member, after=after)
        yield toolset
        if name in _FOLLOWING:
            yield _FOLLOWING[name]


def _tools() -> Iterator[Tool]:
    bare = ToolsetContext()
    last = {toolsets.TOOLSETS[name].get_tools(bare)[-1].name: after for name, after in _FOLLOWING.items()}
    for tool in toolsets.TOOL_LIST:
        yield tool
        if tool.name in last:
            yield from last[tool.name].get_tools(bare)


TOOLSETS: Final[Mapping[str, Toolset]] = MappingProxyType({toolset.name: toolset for toolset in _toolsets()})

TOOL_LIST: Final[tuple[Tool, ...]] = tuple(_tools())
"""Every native Tool, working in the sandbox of each call's context; `read_output` is in every catalog."""

TOOLKIT: Final[Mapping[str, Tool]] = MappingProxyType({tool.name: tool for tool in TOOL_LIST})


_BY_PEOPLE: Final = (create_undo_changes_tool(), create_unpublish_port_tool())
"""Tools behind /undo and /unpublish."""


def build_catalog(
    tools: Iterable[GivenTool] = (),
    toolsets: Mapping[str, Any] | None = None,
    off: Iterable[str] = (),
) -> Catalog:
    """`toolsets`: the worker's blocks by name; None: every native tool as it is (the built-in worker). `off`: native
    toolsets that are left out of either. Raises ToolDefinitionError for one of `tools` that cannot be offered."""
    native = TOOL_LIST if toolsets is None else _tools_of(toolsets)
    left_out = {tool.name for name in off for tool in TOOLSETS[name].get_tools(ToolsetContext())}
    catalog = Catalog(tool for tool in native if tool.name not in left_out)
    for alias, name in ALIASES.items():
        if name in catalog:
            catalog.add_alias(alias, name)
    for tool in (*client_tools(), git_sign_tool()):
        catalog.add(tool)
    for tool in _BY_PEOPLE:
        catalog.hide(tool, by_models=False)
    for tool in as_tools(tools):
        if (bad := catalog.add_checked(tool)) is not None:
            raise ToolDefinitionError(f"tool {bad.name!r} cannot be offered: {bad.reason.partition(': ')[2]}")
    return catalog


def _tools_of(blocks: Mapping[str, Any]) -> list[Tool]:
    from golem_forge.agent.files.toolset_blocks import ALWAYS_THERE, tools_from_blocks

    tools = tools_from_blocks(blocks, TOOLSETS)
    always = TOOLKIT[ALWAYS_THERE]
    return tools if any(tool.name == always.name for tool in tools) else [*tools, always]


def open_listing_workshop(home: ForgeHome) -> Workshop:
    """Opens a workshop for listings, which starts nothing and ignores the surrounding program."""
    from golem_forge.usertools.workshop import open_workshop

    return open_workshop(home, native=native_descriptions(), environ=person_environ())


def native_descriptions() -> Mapping[str, str]:
    """The first line of each native tool's description, by name."""
    return {tool.name: tool.description.partition("\n")[0] for tool in TOOL_LIST} | _WHEN_NEEDED


def has_tool_folder(home: ForgeHome, name: str) -> bool:
    from golem_forge.usertools.diagnostics import name_problem

    return not name_problem(name) and (home.path / "tools" / name).is_dir()


def has_tool_folders(home: ForgeHome) -> bool:
    try:
        with os.scandir(home.path / "tools") as found:
            return any(not each.name.startswith(".") for each in found)
    except FileNotFoundError:
        return False
    except OSError:  # it cannot be read, which is diagnosed
        return True
