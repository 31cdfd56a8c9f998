"""Calls of a tool on an MCP server: through a session (policy, journal, a listener) and through the pool alone, beside
the bare client of the official SDK, which checks the result and does none of the rest.

The server is the same program for everybody, written with the SDK as most are; ours runs inside walls. Over stdio each
client has a process of its own, over HTTP all of them talk to one.
"""

from __future__ import annotations

import asyncio
import os
import socket
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from dataclasses import replace
from pathlib import Path
from time import monotonic, sleep
from typing import Any
from unittest.mock import patch

from mcp.client import Client
from mcp.client.stdio import StdioServerParameters, stdio_client

from benchmarks.harness import Block, Call, Pace, race_blocks, race_calls
from benchmarks.ours import project_and_home
from benchmarks.rows import Row, at_most, row
from benchmarks.subject import ANSWER, ARGS
from golem_forge.agent.session import Session, open_session
from golem_forge.mcp.client.model import RemoteTool
from golem_forge.mcp.client.pool import Pool
from golem_forge.storage.home import ForgeHome
from golem_forge.tools.context import ToolContext

PROGRAM = Path(__file__).with_name("mcp_server.py")
SESSION, POOL, SDK = "session", "pool", "mcp Client"
ONE_BY_ONE = 1_000
CONNECTS = 5
"""Of a client that connects for every call: a handful is enough to know what one costs."""
AT_ONCE = 32
ALL_AT_ONCE = f"mcp Client, {AT_ONCE} at once"
CONNECT_PER_CALL = "mcp Client, a connection a call"
COMES_UP_S = 20.0


async def rows(pace: Pace) -> list[Row]:
    async with AsyncExitStack() as stack:
        path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        stack.enter_context(patch.dict(os.environ, PATH=path))  # so that walls show the interpreter's packages
        ours = await stack.enter_async_context(our_servers())
        stdio = await stack.enter_async_context(Client(_by_stdio()))
        http = await stack.enter_async_context(Client(ours.url))
        return [
            *await _one_call("stdio", ours, stdio, pace),
            *await _one_call("http", ours, http, pace),
            *await _many_calls(ours, pace),
            *await _at_once(ours, stdio, pace),
        ]


class Ours:
    """A session with the server twice: as a process in walls, and by its address."""

    def __init__(self, session: Session, pool: Pool, url: str) -> None:
        self.session = session
        self.pool = pool
        self.url = url

    def tool(self, server: str) -> RemoteTool:
        listing = self.pool.listing(server)
        assert listing is not None
        return next(tool for tool in listing.tools if tool.name == "add")

    async def through_session(self, server: str) -> str:
        return (await self.session.call(f"{server}__add", ARGS)).text

    async def through_pool(self, server: str, tool: RemoteTool) -> str:
        return (await self.pool.call(tool, ARGS, ToolContext())).result.text


@asynccontextmanager
async def our_servers() -> AsyncIterator[Ours]:
    port = _free_port()
    url = f"http://127.0.0.1:{port}/mcp"
    with project_and_home() as (project, home), _served(port):
        (project / PROGRAM.name).write_text(PROGRAM.read_text())
        home.mkdir()
        (home / "config.yaml").write_text(_config(url))
        async with open_session(project, home=ForgeHome(home), toolsets={"mcp": {"servers": ["*"]}}) as session:
            session.bus.on("*", lambda event: None)
            assert session.servers is not None
            pool = session.servers.pool
            session.servers.begin()
            for server in pool.names():
                pool.approve(server)
                await pool.wait_connected(server)
            yield Ours(session, pool, url)


def _config(url: str) -> str:
    """The person's own servers, whose calls that person does not want to be asked about."""
    return f"""\
mcp:
  servers:
    stdio:
      command: {sys.executable}
      args: ["${{zone:workspace}}/{PROGRAM.name}"]
      zones: {{workspace: ro}}
      approval: {{default: preApproved}}
    http:
      url: {url}
      approval: {{default: preApproved}}
"""


def _by_stdio() -> Any:
    return stdio_client(StdioServerParameters(command=sys.executable, args=[str(PROGRAM)]))


async def _sdk_call(client: Client) -> str:
    [block] = (await client.call_tool("add", ARGS)).content
    return str(getattr(block, "text", ""))


async def _one_call(server: str, ours: Ours, client: Client, pace: Pace) -> list[Row]:
    tool = ours.tool(server)
    calls: dict[str, Call] = {
        SESSION: lambda: ours.through_session(server),
        POOL: lambda: ours.through_pool(server, tool),
        SDK: lambda: _sdk_call(client),
    }
    for name, call in calls.items():
        assert await call() == ANSWER, f"{name} did not add"
    longer = replace(pace, slice_seconds=pace.slice_seconds * 4)  # a call takes milliseconds
    us = {name: seconds * 1e6 for name, seconds in (await race_calls(calls, longer)).items()}
    name = f"one call of a server's tool, {server}"
    return [
        row(f"{name}, policy and journal (µs)", us[SESSION], peer=us[SDK], peer_name=SDK, goal=at_most(1.2)),
        row(f"{name}, the pool alone (µs)", us[POOL], peer=us[SDK], peer_name=SDK),
    ]


async def _many_calls(ours: Ours, pace: Pace) -> list[Row]:
    """One after the other; a client that connects for each is timed over a few and multiplied."""
    count = pace.amount(ONE_BY_ONE)

    async def pooled(_: Any) -> None:
        for _number in range(count):
            assert await ours.through_session("stdio") == ANSWER

    async def connecting(_: Any) -> None:
        for _number in range(CONNECTS):
            async with Client(_by_stdio()) as client:
                assert await _sdk_call(client) == ANSWER

    seconds = await race_blocks({SESSION: Block(run=pooled), CONNECT_PER_CALL: Block(run=connecting)}, rounds=1)
    peer = seconds[CONNECT_PER_CALL] / CONNECTS * count
    name = f"{count:,} calls one by one, stdio, policy and journal (s)"
    return [row(name, seconds[SESSION], peer=peer, peer_name=CONNECT_PER_CALL, goal=at_most(0.05))]


async def _at_once(ours: Ours, client: Client, pace: Pace) -> list[Row]:
    """Eight of ours are in flight, the others wait for their turn."""
    tool = ours.tool("stdio")

    def block(call: Callable[[], Awaitable[str]]) -> Block:
        async def run(_: Any) -> None:
            assert await asyncio.gather(*(call() for _ in range(AT_ONCE))) == [ANSWER] * AT_ONCE

        return Block(run=run)

    blocks = {
        POOL: block(lambda: ours.through_pool("stdio", tool)),
        ALL_AT_ONCE: block(lambda: _sdk_call(client)),
    }
    ms = {name: value * 1e3 for name, value in (await race_blocks(blocks, rounds=pace.rounds)).items()}
    name = f"{AT_ONCE} calls at once, stdio, the pool alone (ms)"
    return [row(name, ms[POOL], peer=ms[ALL_AT_ONCE], peer_name=ALL_AT_ONCE, goal=at_most(1.2))]


@contextmanager
def _served(port: int) -> Iterator[None]:
    process = subprocess.Popen([sys.executable, PROGRAM, str(port)], stderr=subprocess.DEVNULL)
    try:
        end = monotonic() + COMES_UP_S
        while not _answers(port):
            assert monotonic() < end, "the server over HTTP did not come up"
            sleep(0.05)
        yield
    finally:
        process.terminate()
        process.wait(10)


def _answers(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), timeout=1).close()
    except OSError:
        return False
    return True


def _free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])
