"""The tools a person may run, in the order UIs list them: their own first, native and MCP ones last."""

from __future__ import annotations

from typing import Any, Final

from golem_forge.core.call import Caller
from golem_forge.tools.catalog import Catalog
from golem_forge.tools.fields import derive_fields
from golem_forge.tools.tool import SourceKind, Tool

_PLACES: Final = {SourceKind.CUSTOM: 0, SourceKind.NATIVE: 1, SourceKind.MCP: 2}


def manual_tools(catalog: Catalog) -> list[Tool]:
    return sorted(catalog.offered(Caller.HUMAN), key=lambda tool: _PLACES[tool.source])


def manual_tools_event(catalog: Catalog) -> dict[str, Any]:
    """The data of `manualToolsAvailable`; `source` lets a UI fold away what is not the person's own."""
    return {"tools": [described_tool(tool) for tool in manual_tools(catalog)]}


def described_tool(tool: Tool) -> dict[str, Any]:
    described: dict[str, Any] = {
        "name": tool.name,
        "label": tool.label or tool.name,
        "description": tool.description,
        "fields": derive_fields(tool.input_schema),
        "source": tool.source.value,
    }
    if tool.category:
        described["category"] = tool.category
    return described
