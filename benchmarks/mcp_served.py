"""`tools/list` of a server with 1,000 tools: `forge mcp serve` beside servers written with fastmcp and with the SDK.

The same functions, the same client, the same transport; each server is a process that has been asked before.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

from mcp.client import Client
from mcp.client.stdio import StdioServerParameters, stdio_client

from benchmarks.harness import Block, Pace, race_blocks
from benchmarks.ours import project_and_home
from benchmarks.rows import Row, below_peer, row
from benchmarks.subject import source_of

COUNT = 1_000
OURS, FASTMCP, SDK = "forge mcp serve", "fastmcp", "mcp MCPServer"
PROGRAM = Path(__file__).with_name("mcp_many_tools.py")
FORGE = Path(sys.executable).with_name("forge")
WORKER = """\
---
name: main
toolsets:
  custom:
    module: ./tools.py
    tools: [{names}]
---
Nobody is asked anything.
"""


async def rows(pace: Pace) -> list[Row]:
    count = pace.amount(COUNT)
    async with AsyncExitStack() as stack:
        clients = {OURS: await stack.enter_async_context(_served_by_us(count))}
        for name, library in ((FASTMCP, "fastmcp"), (SDK, "mcp")):
            words = [str(PROGRAM), library, str(count)]
            clients[name] = await stack.enter_async_context(_client(sys.executable, words))
        blocks = {name: Block(run=_listing(client, count)) for name, client in clients.items()}
        ms = {name: value * 1e3 for name, value in (await race_blocks(blocks, rounds=pace.rounds)).items()}
    name = f"tools/list of a server with {count:,} tools (ms)"
    return [
        row(name, ms[OURS], peer=ms[FASTMCP], peer_name=FASTMCP, goal=below_peer()),
        row(name, ms[OURS], peer=ms[SDK], peer_name=SDK, goal=below_peer()),
    ]


def _listing(client: Client, count: int) -> Any:
    async def run(_: Any) -> None:
        found, cursor = 0, None
        while True:
            page = await client.list_tools(cursor=cursor, cache_mode="bypass")
            found += sum(tool.name.startswith("tool_") for tool in page.tools)
            if (cursor := page.next_cursor) is None:
                break
        assert found == count

    return run


@asynccontextmanager
async def _served_by_us(count: int) -> AsyncIterator[Client]:
    with project_and_home() as (project, home):
        write_program(project, home, count)
        words = ["mcp", "serve", "-p", str(project)]
        async with _client(str(FORGE), words, env={"FORGE_HOME": str(home), "PATH": os.environ["PATH"]}) as client:
            yield client


def write_program(project: Path, home: Path, count: int) -> None:
    """Trusted: its code runs in a process of its own, inside walls."""
    (project / "tools.py").write_text("".join(source_of(number) for number in range(count)))
    names = ", ".join(f"tool_{number}" for number in range(count))
    (project / "main.worker").write_text(WORKER.format(names=names))
    environ = {**os.environ, "FORGE_HOME": str(home)}
    subprocess.run([FORGE, "trust", "--yes"], cwd=project, env=environ, check=True, capture_output=True)


@asynccontextmanager
async def _client(command: str, args: list[str], env: dict[str, str] | None = None) -> AsyncIterator[Client]:
    async with Client(stdio_client(StdioServerParameters(command=command, args=args, env=env))) as client:
        yield client
