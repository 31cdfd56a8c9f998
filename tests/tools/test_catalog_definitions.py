"""Tool definitions in the three shapes."""

from __future__ import annotations

import json
from typing import Annotated, Any, Literal

import pytest
from tests.tables import table

from golem_forge.tools.catalog import DefinitionFormat, tool_definition, tool_definitions
from golem_forge.tools.context import ToolContext
from golem_forge.tools.factory import tool
from golem_forge.tools.tool import Tool


@tool(label="Push to Remote", category="Git", annotations={"destructiveHint": True})
def git_push(
    branch: Annotated[str, "Target branch"],
    remote: Literal["origin", "upstream"] = "origin",
    force: bool = False,
    *,
    ctx: ToolContext,
) -> dict[str, int]:
    """Push commits to a remote repository."""
    return {}


SCHEMA = {
    "properties": {
        "branch": {"description": "Target branch", "type": "string"},
        "remote": {"default": "origin", "enum": ["origin", "upstream"], "type": "string"},
        "force": {"default": False, "type": "boolean"},
    },
    "required": ["branch"],
    "type": "object",
    "additionalProperties": False,
}
EXPECTED: dict[DefinitionFormat, dict[str, Any]] = {
    DefinitionFormat.ANTHROPIC: {
        "name": "git_push",
        "description": "Push commits to a remote repository.",
        "input_schema": SCHEMA,
    },
    DefinitionFormat.OPENAI: {
        "type": "function",
        "function": {
            "name": "git_push",
            "description": "Push commits to a remote repository.",
            "parameters": SCHEMA,
        },
    },
    DefinitionFormat.MCP: {
        "name": "git_push",
        "title": "Push to Remote",
        "description": "Push commits to a remote repository.",
        "inputSchema": SCHEMA,
        "outputSchema": {"additionalProperties": {"type": "integer"}, "type": "object"},
        "annotations": {"destructiveHint": True},
    },
}


@table("shape", list(DefinitionFormat))
def test_snapshot_with_keys_in_this_very_order(shape: DefinitionFormat) -> None:
    assert json.dumps(tool_definition(git_push, shape)) == json.dumps(EXPECTED[shape])
    assert tool_definitions([git_push], shape.value) == (EXPECTED[shape],)


def test_mcp_leaves_out_what_is_not_there() -> None:
    plain = Tool("x", "X.", input_schema={"type": "object"}, execute=lambda args: "")
    assert tool_definition(plain, "mcp") == {"name": "x", "description": "X.", "inputSchema": {"type": "object"}}


def test_mcp_offers_only_object_outputs() -> None:
    @tool
    def count() -> int:
        """Counts."""
        return 1

    assert count.output_schema == {"type": "integer"}
    assert "outputSchema" not in tool_definition(count, DefinitionFormat.MCP)


def test_an_unknown_shape_is_an_error() -> None:
    with pytest.raises(ValueError, match="gemini"):
        tool_definition(git_push, "gemini")
