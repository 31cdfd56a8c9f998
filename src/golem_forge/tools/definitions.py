"""Tool definitions the way models and clients want to read them: Anthropic, OpenAI and MCP shapes.

Keys come in one fixed order and schemas as the tool declares them, so that equal tools give equal bytes: a changed
byte costs a model's prompt cache. Raises ToolDefinitionError for a tool that cannot be offered.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from enum import StrEnum
from typing import Any, Final

from golem_forge.tools.tool import Tool


class Shape(StrEnum):
    ANTHROPIC = "anthropic"
    OPENAI = "openai"
    MCP = "mcp"


def definition(tool: Tool, shape: Shape | str) -> dict[str, Any]:
    return _WRITERS[Shape(shape)](tool)


def definitions(tools: Iterable[Tool], shape: Shape | str) -> tuple[dict[str, Any], ...]:
    write = _WRITERS[Shape(shape)]
    return tuple(write(tool) for tool in tools)


def _anthropic(tool: Tool) -> dict[str, Any]:
    return {"name": tool.name, "description": tool.description, "input_schema": tool.input_schema}


def _openai(tool: Tool) -> dict[str, Any]:
    function = {"name": tool.name, "description": tool.description, "parameters": tool.input_schema}
    return {"type": "function", "function": function}


def _mcp(tool: Tool) -> dict[str, Any]:
    shaped: dict[str, Any] = {"name": tool.name}
    if tool.label:
        shaped["title"] = tool.label
    shaped["description"] = tool.description
    shaped["inputSchema"] = tool.input_schema
    output = tool.output_schema
    if output is not None and output.get("type") == "object":  # MCP knows structured content as objects only
        shaped["outputSchema"] = output
    if tool.annotations:
        shaped["annotations"] = tool.annotations
    return shaped


_WRITERS: Final[dict[Shape, Callable[[Tool], dict[str, Any]]]] = {
    Shape.ANTHROPIC: _anthropic,
    Shape.OPENAI: _openai,
    Shape.MCP: _mcp,
}
