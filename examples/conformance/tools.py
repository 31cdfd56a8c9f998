"""What the MCP conformance suite expects of a server, as its own texts describe it, one function each: tools, prompts,
resources. Those that ask their client are in asking.py and sampling.py.
"""

from __future__ import annotations

import base64
import json
import time
from typing import Any

from golem_forge import Tool, ToolContext, ToolResult, prompt, resource, tool

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
def test_tool_with_logging(*, ctx: ToolContext) -> str:
    """Write three lines of log."""
    for line in ("Tool execution started", "Tool processing data", "Tool execution completed"):
        ctx.log_blocking("info", line)
        time.sleep(0.05)
    return "done"


@tool(read_only=True)
def test_logging_tool(*, ctx: ToolContext) -> str:
    """Write a line of log at each level."""
    for level in ("debug", "info", "warning", "error"):
        ctx.log_blocking(level, f"a line at {level}")
    return "done"


@prompt
def test_simple_prompt() -> str:
    """A simple prompt without arguments."""
    return "This is a simple prompt for testing."


@prompt(complete={"arg1": ["test", "testing", "paris"], "arg2": lambda typed: [f"{typed}!"]})
def test_prompt_with_arguments(arg1: str, arg2: str) -> str:
    """A prompt with two arguments."""
    return f"Prompt with arguments: arg1='{arg1}', arg2='{arg2}'"


@prompt
def test_prompt_with_embedded_resource(resourceUri: str) -> list[Any]:
    """A prompt that embeds a resource."""
    text = "Embedded resource content for testing."
    return [
        {"type": "resource", "resource": {"uri": resourceUri, "mimeType": "text/plain", "text": text}},
        "Please process the embedded resource above.",
    ]


@prompt
def test_prompt_with_image() -> list[Any]:
    """A prompt with an image."""
    return [{"type": "image", "data": _PIXEL, "mimeType": "image/png"}, "Please analyze the image above."]


@resource("test://static-text", mime_type="text/plain")
def static_text() -> str:
    """A text."""
    return "This is the content of the static text resource."


@resource("test://static-binary", mime_type="image/png")
def static_binary() -> bytes:
    """A picture of one pixel."""
    return base64.b64decode(_PIXEL)


@resource("test://template/{id}/data", mime_type="application/json")
def template_data(id: str) -> dict[str, Any]:
    """What a template says of an id."""
    return {"id": id, "templateTest": True, "data": f"Data for ID: {id}"}


@resource("test://watched-resource", mime_type="text/plain")
def watched_resource() -> str:
    """A text that clients may subscribe to."""
    return "watched"


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
