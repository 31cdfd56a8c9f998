"""The catalog of a session: the native tools under their names and aliases, then whatever else was given.

Small on purpose: listing tools must not load what running them needs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from golem_forge.tools.catalog import Catalog
from golem_forge.tools.decorator import tool
from golem_forge.tools.tool import Tool
from golem_forge.toolsets import ALIASES, TOOL_LIST


def build_catalog(tools: Iterable[Tool | Callable[..., Any]] = ()) -> Catalog:
    catalog = Catalog(TOOL_LIST)
    for alias, name in ALIASES.items():
        catalog.add_alias(alias, name)
    for given in tools:
        catalog.add_checked(given if isinstance(given, Tool) else tool(given))
    return catalog
