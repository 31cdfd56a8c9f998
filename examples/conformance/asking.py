"""The tools of the conformance suite that ask a person in the middle of a call.

They are a module of their own, and read-only: a client may leave one waiting for its answer, which then holds up
neither the tools of tools.py nor each other. Forms are asked by the server `fixtures`, passed on by Forge; what a tool
asks its client itself is in sampling.py.
"""

from __future__ import annotations

import json
from typing import Any

from golem_forge import ToolContext, tool

_NAME = {"name": {"type": "string"}}
_OK = {"ok": {"type": "boolean"}}


def _asked(ctx: ToolContext, message: str, properties: dict[str, Any], *required: str, key: str = "question") -> str:
    """What the person of the client did with a form: put by the server `fixtures`, passed on by Forge."""
    schema = {"type": "object", "properties": properties, "required": list(required)}
    outcome = ctx.call_blocking("fixtures__ask", {"message": message, "schema": schema, "key": key})
    if outcome.result is None or not outcome.ok:
        raise RuntimeError(outcome.error)
    said = outcome.result.structured or {}
    return f"action={said.get('action')}, content={json.dumps(said.get('content', {}))}"


@tool(read_only=True)
def test_elicitation(message: str, *, ctx: ToolContext) -> str:
    """Ask the person for a name and an address."""
    properties = {
        "username": {"type": "string", "description": "User's response"},
        "email": {"type": "string", "description": "User's email address"},
    }
    return f"User response: {_asked(ctx, message, properties, 'username', 'email')}"


@tool(read_only=True)
def test_elicitation_sep1034_defaults(*, ctx: ToolContext) -> str:
    """Ask with a default for every simple type."""
    properties = {
        "name": {"type": "string", "default": "John Doe"},
        "age": {"type": "integer", "default": 30},
        "score": {"type": "number", "default": 95.5},
        "status": {"type": "string", "enum": ["active", "inactive", "pending"], "default": "active"},
        "verified": {"type": "boolean", "default": True},
    }
    return f"Elicitation completed: {_asked(ctx, 'Check these', properties)}"


@tool(read_only=True)
def test_elicitation_sep1330_enums(*, ctx: ToolContext) -> str:
    """Ask with every way to write a choice."""
    plain = ["option1", "option2", "option3"]
    titled = [
        {"const": f"value{n}", "title": f"{word} Option"} for n, word in ((1, "First"), (2, "Second"), (3, "Third"))
    ]
    properties = {
        "untitledSingle": {"type": "string", "enum": plain},
        "titledSingle": {"type": "string", "oneOf": titled},
        "legacyEnum": {
            "type": "string",
            "enum": ["opt1", "opt2", "opt3"],
            "enumNames": ["Option One", "Option Two", "Option Three"],
        },
        "untitledMulti": {"type": "array", "items": {"type": "string", "enum": plain}},
        "titledMulti": {"type": "array", "items": {"anyOf": titled}},
    }
    return f"Elicitation completed: {_asked(ctx, 'Choose', properties)}"


@tool(read_only=True)
def test_streaming_elicitation(*, ctx: ToolContext) -> str:
    """Ask for a name."""
    return _asked(ctx, "What is your name?", _NAME, "name")


@tool(read_only=True)
def test_input_required_result_elicitation(*, ctx: ToolContext) -> str:
    """Ask for a name, and greet."""
    return f"Hello: {_asked(ctx, 'What is your name?', _NAME, 'name', key='user_name')}"


@tool(read_only=True)
def test_input_required_result_request_state(*, ctx: ToolContext) -> str:
    """Ask for a confirmation; that the call went on says that the state was found to be whole."""
    return f"state-ok: {_asked(ctx, 'Please confirm', _OK, 'ok', key='confirm')}"


@tool(read_only=True)
def test_input_required_result_tampered_state(*, ctx: ToolContext) -> str:
    """Ask for a confirmation."""
    return _asked(ctx, "Please confirm", _OK, "ok", key="confirm")


@tool(read_only=True)
def test_input_required_result_multi_round(*, ctx: ToolContext) -> str:
    """Ask twice, the second time for another thing."""
    name = _asked(ctx, "Step 1: What is your name?", _NAME, "name", key="step1")
    colour = {"color": {"type": "string"}}
    return f"{name} {_asked(ctx, 'Step 2: What is your favorite color?', colour, 'color', key='step2')}"
