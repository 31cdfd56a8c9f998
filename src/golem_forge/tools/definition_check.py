"""Can this tool be offered? Its name and its schemas, tried before a model or a client sees them."""

from __future__ import annotations

import re
from typing import Final

from golem_forge.core.errors import error_name
from golem_forge.tools.schema_refs import read_schema
from golem_forge.tools.tool import SourceKind, Tool
from golem_forge.tools.validation import ToolDefinitionError

_NAME: Final = re.compile(r"[A-Za-z][A-Za-z0-9_-]{0,63}")
_SERVER_NAME: Final = re.compile(r"(?=.{1,128}\Z)[A-Za-z0-9_-]+?__[A-Za-z0-9_-]+")


def definition_problem(tool: Tool) -> str:
    """Why a tool cannot be in a catalog, or nothing: its name, then its schemas."""
    if tool.source is SourceKind.MCP and _SERVER_NAME.fullmatch(tool.name):
        return schema_problem(tool)
    if not _NAME.fullmatch(tool.name) or "__" in tool.name:
        return (
            f"entry_invalid: invalid tool name {tool.name[:100]!r}: use letters, digits, '-' and '_', "
            "starting with a letter, at most 64, no '__'"
        )
    return schema_problem(tool)


def schema_problem(tool: Tool) -> str:
    """Why a tool's schemas cannot be offered, or nothing. Builds them."""
    try:
        schema = tool.input_schema
        tool.output  # noqa: B018 - building it is the test
    except ToolDefinitionError as error:
        return f"schema_invalid: {error}"
    except Exception as error:  # a foreign annotation or model may raise anything when it is first read
        return f"schema_invalid: {error_name(error)}: {str(error)[:300]}"
    kind = (read_schema(schema, schema).schema if "$ref" in schema else schema).get("type")
    if kind != "object":
        return f"schema_invalid: the input schema must have type object, not {kind!r}"
    return ""
