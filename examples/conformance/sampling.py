"""The tools of the conformance suite that ask their client themselves: its model, its roots, a form.

They are a module of their own: a client of the suite leaves calls of asking.py waiting, and a module has four hosts.
"""

from __future__ import annotations

import asyncio

from golem_forge import ToolContext, prompt, tool

_NAME = {"name": {"type": "string"}}


@tool(read_only=True)
def test_sampling(prompt: str, *, ctx: ToolContext) -> str:
    """Ask the client's model."""
    return f"LLM response: {ctx.sample_blocking(prompt, max_tokens=100).text}"


@tool(read_only=True)
def test_missing_capability(*, ctx: ToolContext) -> str:
    """Ask the client's model, whether it has one or not."""
    return ctx.sample_blocking("Hello").text


@tool(read_only=True)
def test_input_required_result_sampling(*, ctx: ToolContext) -> str:
    """Ask the client's model for a capital."""
    return ctx.sample_blocking("What is the capital of France?", max_tokens=100, key="capital_question").text


@tool(read_only=True)
def test_input_required_result_list_roots(*, ctx: ToolContext) -> str:
    """Name the client's roots."""
    return "\n".join(root.uri for root in ctx.roots_blocking(key="client_roots"))


@tool(read_only=True)
async def test_input_required_result_multiple_inputs(*, ctx: ToolContext) -> str:
    """Ask for a form, the client's model and its roots at once."""
    schema = {"type": "object", "properties": _NAME, "required": ["name"]}
    name, greeting, roots = await asyncio.gather(
        ctx.ask("What is your name?", schema, key="user_name"),
        ctx.sample("Generate a greeting", max_tokens=50, key="greeting"),
        ctx.roots(key="client_roots"),
    )
    return f"{greeting.text} {name.values.get('name')} at {len(roots)} roots"


@tool(read_only=True)
def test_input_required_result_capabilities(*, ctx: ToolContext) -> str:
    """Ask what the client can be asked: a form, else its model."""
    try:
        return str(ctx.ask_blocking("What is your name?", {"type": "object", "properties": _NAME}).values)
    except Exception:
        return ctx.sample_blocking("Generate a name").text


@prompt
def test_input_required_result_prompt(*, ctx: ToolContext) -> str:
    """A prompt that asks for its context first."""
    schema = {"type": "object", "properties": {"context": {"type": "string"}}, "required": ["context"]}
    return f"The context: {ctx.ask_blocking('What context?', schema, key='user_context').values.get('context')}"
