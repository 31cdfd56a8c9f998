"""pydantic-ai: the bare toolset (validator, then the function) and ToolManager, which an agent run goes through."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AsyncExitStack
from typing import Any

from pydantic_ai import RunContext
from pydantic_ai.messages import ToolCallPart
from pydantic_ai.models.test import TestModel
from pydantic_ai.tool_manager import ToolManager
from pydantic_ai.toolsets import FunctionToolset
from pydantic_ai.usage import RunUsage

from benchmarks.harness import Call
from benchmarks.subject import ARGS, Function


async def function_toolset(function: Function, stack: AsyncExitStack) -> Call:
    toolset, context = _toolset(function), _context()
    tool = (await toolset.get_tools(context))["add"]
    validate = tool.args_validator.validate_python

    async def call() -> object:
        return await toolset.call_tool("add", validate(ARGS), context, tool)

    return call


async def tool_manager(function: Function, stack: AsyncExitStack) -> Call:
    manager = await ToolManager(_toolset(function)).for_run_step(_context())

    async def call() -> object:
        return await manager.handle_call(ToolCallPart("add", ARGS, tool_call_id="1"))

    return call


async def batch(function: Function, count: int) -> Callable[[object], Awaitable[object]]:
    """All calls of one model response at once, as an agent run starts them."""
    manager = await ToolManager(_toolset(function)).for_run_step(_context())

    async def run(_material: object) -> object:
        parts = [ToolCallPart("add", ARGS, tool_call_id=str(number)) for number in range(count)]
        return await asyncio.gather(*(manager.handle_call(part) for part in parts))

    return run


def define(functions: Sequence[Function]) -> object:
    toolset: Any = FunctionToolset()
    for function in functions:
        toolset.add_function(function)
    return toolset


def _toolset(function: Function) -> Any:
    toolset: Any = FunctionToolset()
    toolset.add_function(function, name="add")
    return toolset


def _context() -> Any:
    return RunContext(deps=None, model=TestModel(), usage=RunUsage())
