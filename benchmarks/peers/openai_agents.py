"""openai-agents: a FunctionTool, which takes its arguments as JSON text and gets a context for each call."""

from __future__ import annotations

import json
from collections.abc import Sequence
from contextlib import AsyncExitStack

import agents
from agents.tool_context import ToolContext

from benchmarks.harness import Call
from benchmarks.subject import ARGS, Function


async def function_tool(function: Function, stack: AsyncExitStack) -> Call:
    tool = agents.function_tool(function, name_override="add")
    arguments = json.dumps(ARGS)

    async def call() -> object:
        context = ToolContext(context=None, tool_name="add", tool_call_id="1", tool_arguments=arguments)
        return await tool.on_invoke_tool(context, arguments)

    return call


def define(functions: Sequence[Function]) -> object:
    return [agents.function_tool(function) for function in functions]
