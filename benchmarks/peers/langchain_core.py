"""langchain-core: a StructuredTool."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from contextlib import AsyncExitStack

from langchain_core.tools import StructuredTool

from benchmarks.harness import Call
from benchmarks.subject import ARGS, Function


async def structured_tool(function: Function, stack: AsyncExitStack) -> Call:
    given = {"coroutine" if inspect.iscoroutinefunction(function) else "func": function}
    tool = StructuredTool.from_function(**given, name="add")

    async def call() -> object:
        return await tool.ainvoke(ARGS)

    return call


def define(functions: Sequence[Function]) -> object:
    return [StructuredTool.from_function(function) for function in functions]
