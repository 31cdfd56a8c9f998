"""mcp: MCPServer, called in process and without a transport."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AsyncExitStack

from mcp.server import MCPServer

from benchmarks.harness import Call
from benchmarks.subject import ARGS, Function


async def server(function: Function, stack: AsyncExitStack) -> Call:
    server = MCPServer("bench")
    server.add_tool(function, name="add")

    async def call() -> object:
        return await server.call_tool("add", ARGS)

    return call


def define(functions: Sequence[Function]) -> object:
    server = MCPServer("bench")
    for function in functions:
        server.add_tool(function)
    return server
