"""fastmcp: the tool object by itself, and a client that talks to a server in the same process."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AsyncExitStack

from fastmcp import Client, FastMCP
from fastmcp.tools import Tool

from benchmarks.harness import Call
from benchmarks.subject import ARGS, Function


async def tool_run(function: Function, stack: AsyncExitStack) -> Call:
    tool = Tool.from_function(function, name="add")

    async def call() -> object:
        return await tool.run(ARGS)

    return call


async def client(function: Function, stack: AsyncExitStack) -> Call:
    server = FastMCP("bench")
    server.add_tool(Tool.from_function(function, name="add"))
    connected = await stack.enter_async_context(Client(server))

    async def call() -> object:
        return await connected.call_tool("add", ARGS)

    return call


def define(functions: Sequence[Function]) -> object:
    return [Tool.from_function(function) for function in functions]
