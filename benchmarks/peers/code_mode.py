"""Programs that call a function, as peers run them: smolagents' local executor, pydantic-monty, fastmcp's code mode.

None of them has walls around the program, a policy that judges its calls, or a record of them. smolagents interprets
the program in our process; Monty is an interpreter of a part of Python in a process that waits; fastmcp's code mode
runs Monty behind a tool of a server, here with its client in memory.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any, NamedTuple

from fastmcp import Client, FastMCP
from fastmcp.experimental.transforms.code_mode import CodeMode
from pydantic_monty import AsyncMonty
from smolagents.local_python_executor import LocalPythonExecutor

Run = Callable[[str, int], Callable[[Any], Awaitable[None] | None]]
"""(program, how often) → a block of the harness."""


class ProgramPeer(NamedTuple):
    name: str
    run: Run
    loop: str
    """A program with so many calls: `.format(calls)`."""
    nothing: str


async def program_peers(stack: AsyncExitStack, folder: Path) -> list[ProgramPeer]:
    """Each with `file_exists` for the files of a folder."""

    def file_exists(path: str) -> bool:
        return (folder / path).exists()

    def smol(code: str, times: int) -> Callable[[Any], None]:
        executor = LocalPythonExecutor([])
        executor.send_tools({"file_exists": file_exists})

        def run(_: Any) -> None:
            for _number in range(times):
                executor(code)

        return run

    pool = await stack.enter_async_context(AsyncMonty())

    def monty(code: str, times: int) -> Callable[[Any], Awaitable[None]]:
        async def run(_: Any) -> None:
            for _number in range(times):
                async with pool.checkout() as session:
                    await session.feed_run(code, external_lookup={"file_exists": file_exists})

        return run

    server = FastMCP("bench", transforms=[CodeMode(max_tool_calls=None)])
    server.tool(file_exists)
    client = await stack.enter_async_context(Client(server))

    def code_mode(code: str, times: int) -> Callable[[Any], Awaitable[None]]:
        async def run(_: Any) -> None:
            for _number in range(times):
                result = await client.call_tool("execute", {"code": code})
                assert not result.is_error

        return run

    loop = "for _ in range({}):\n    "
    awaited = f"{loop}await call_tool('file_exists', {{{{'path': 'm0.txt'}}}})\nreturn 1"
    return [
        ProgramPeer("smolagents local executor", smol, f"{loop}file_exists('m0.txt')", "x = 1"),
        ProgramPeer("pydantic-monty", monty, f"{loop}file_exists('m0.txt')", "1"),
        ProgramPeer("fastmcp code mode", code_mode, awaited, "return 1"),
    ]
