"""The catalog of a session: the native tools under their names and aliases, then whatever else was given.

Small on purpose: listing tools must not load what running them needs.
"""

from __future__ import annotations

from collections.abc import Iterable

from golem_forge.tools.catalog import Catalog
from golem_forge.tools.tool import Tool
from golem_forge.toolsets import ALIASES, TOOL_LIST


def build_catalog(tools: Iterable[Tool] = ()) -> Catalog:
    catalog = Catalog(TOOL_LIST)
    for alias, name in ALIASES.items():
        catalog.add_alias(alias, name)
    for tool in tools:
        catalog.add(tool)
    return catalog
