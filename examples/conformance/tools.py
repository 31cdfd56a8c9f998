"""The tools that the MCP conformance suite expects of a server, as its own texts describe them, one function each.

Those that ask a person are in asking.py. Those about features that Forge does not serve (prompts, completion, logging,
sampling by the server) are nowhere; see baseline.yaml.
"""

from __future__ import annotations

import json
import time
from typing import Any

from golem_forge import Tool, ToolContext, ToolResult, tool

_PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mP8z8DwHwAFBQIAX8jx0gAAAABJRU5ErkJggg=="
"""A PNG of one red pixel."""
_SILENCE = "UklGRiQAAABXQVZFZm10IBAAAAABAAEAQB8AAEAfAAABAAgAZGF0YQAAAAA="
"""A WAV without a sample."""


def _shown(text: str, *blocks: dict[str, Any]) -> ToolResult:
    return ToolResult({"kind": "text", "content": text}, text=text, content=blocks)


@tool(read_only=True)
def test_simple_text() -> str:
    """Return a simple text."""
    return "This is a simple text response for testing."


@tool(read_only=True)
def test_image_content() -> ToolResult:
    """Return an image."""
    return _shown("", {"type": "image", "data": _PIXEL, "mimeType": "image/png"})


@tool(read_only=True)
def test_audio_content() -> ToolResult:
    """Return a sound."""
    return _shown("", {"type": "audio", "data": _SILENCE, "mimeType": "audio/wav"})


@tool(read_only=True)
def test_embedded_resource() -> ToolResult:
    """Return an embedded resource."""
    text = "This is an embedded resource content."
    resource = {"uri": "test://embedded-resource", "mimeType": "text/plain", "text": text}
    return _shown(text, {"type": "resource", "resource": resource})


@tool(read_only=True)
def test_multiple_content_types() -> ToolResult:
    """Return a text, an image and a resource."""
    text = "Multiple content types test:"
    data = json.dumps({"test": "data", "value": 123})
    resource = {"uri": "test://mixed-content-resource", "mimeType": "application/json", "text": data}
    return _shown(
        text,
        {"type": "text", "text": text},
        {"type": "image", "data": _PIXEL, "mimeType": "image/png"},
        {"type": "resource", "resource": resource},
    )


@tool(read_only=True)
def test_error_handling() -> str:
    """Always fail."""
    raise RuntimeError("This tool intentionally returns an error for testing")


@tool(read_only=True)
def test_tool_with_progress(*, ctx: ToolContext) -> str:
    """Report progress in three steps."""
    for done in (0, 50, 100):
        ctx.report_progress(done, 100)
        time.sleep(0.05)
    return "done"


@tool(read_only=True)
def test_logging_tool() -> str:
    """Write no log: none is sent to clients."""
    return "done"


def _accepted(args: dict[str, Any]) -> str:
    return f"accepted {len(args)}"


json_schema_2020_12_tool = Tool(
    "json_schema_2020_12_tool",
    "Tool with JSON Schema 2020-12 features",
    input_schema={
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "type": "object",
        "$defs": {
            "address": {
                "$anchor": "addressDef",
                "type": "object",
                "properties": {"street": {"type": "string"}, "city": {"type": "string"}},
            }
        },
        "properties": {
            "name": {"type": "string"},
            "address": {"$ref": "#/$defs/address"},
            "contactMethod": {"type": "string", "enum": ["phone", "email"]},
            "phone": {"type": "string"},
            "email": {"type": "string"},
        },
        "allOf": [{"anyOf": [{"required": ["phone"]}, {"required": ["email"]}]}],
        "if": {"properties": {"contactMethod": {"const": "phone"}}, "required": ["contactMethod"]},
        "then": {"required": ["phone"]},
        "else": {"required": ["email"]},
        "additionalProperties": False,
    },
    execute=_accepted,
)
