"""The catalog of a session: the native tools under their names and aliases, then whatever else was given.

Small on purpose: listing tools must not load what running them needs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from golem_forge.tools.catalog import Catalog
from golem_forge.tools.decorator import as_tools
from golem_forge.tools.tool import Tool
from golem_forge.tools.validation import ToolDefinitionError
from golem_forge.toolsets import ALIASES
from golem_forge.workers.native_toolsets import TOOL_LIST, TOOLKIT, TOOLSETS


def build_catalog(
    tools: Iterable[Tool | Callable[..., Any]] = (), toolsets: Mapping[str, Any] | None = None
) -> Catalog:
    """`toolsets`: the worker's blocks by name; None: every native tool as it is (the built-in worker). Raises
    ToolDefinitionError for one of `tools` that cannot be offered."""
    catalog = Catalog(TOOL_LIST if toolsets is None else _named(toolsets))
    for alias, name in ALIASES.items():
        if name in catalog:
            catalog.add_alias(alias, name)
    for tool in as_tools(tools):
        if (bad := catalog.add_checked(tool)) is not None:
            raise ToolDefinitionError(f"tool {bad.name!r} cannot be offered: {bad.reason.partition(': ')[2]}")
    return catalog


def _named(blocks: Mapping[str, Any]) -> list[Tool]:
    from golem_forge.workers.toolset_blocks import ALWAYS_THERE, tools_from_blocks

    tools = tools_from_blocks(blocks, TOOLSETS)
    always = TOOLKIT[ALWAYS_THERE]
    return tools if any(tool.name == always.name for tool in tools) else [*tools, always]
