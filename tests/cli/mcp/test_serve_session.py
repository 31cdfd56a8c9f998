"""The session behind `forge mcp serve`: what a client's first list waits for, and what it does not."""

from __future__ import annotations

import asyncio
import json
import os
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from tests.acceptance.mcp_bench import McpBench
from tests.deadlines import LONG, within

from golem_forge.agent import mcp_servers
from golem_forge.cli.mcp import serve as module
from golem_forge.cli.mcp.serve import serve_session
from golem_forge.core.calls import LEFTOVERS, Outcome
from golem_forge.core.errors import ForgeError
from golem_forge.core.ids import new_id
from golem_forge.core.signals import InterruptSignal
from golem_forge.mcp.server.host import ClientFacts


@pytest.fixture
def bench(tmp_path: Path, tried_walls: Path, monkeypatch: pytest.MonkeyPatch) -> McpBench:
    made = McpBench(tmp_path, tried_walls, None)  # no command is run
    monkeypatch.setenv("FORGE_HOME", os.fspath(made.home.path))
    return made


def names(host: module.SessionHost) -> set[str]:
    return {tool.name for tool in host.offered()}


async def test_a_first_list_has_the_tools_of_a_server_that_was_never_asked_before(
    bench: McpBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mcp_servers, "FIRST_LIST_SECONDS", LONG)
    bench.yaml({"echo": bench.ours("echo.py"), "absent": {"command": "/no/such/binary"}})
    bench.approve()
    async with serve_session(bench.workspace) as host:
        await host.gathered()
        assert "echo__echo" in names(host)
    assert bench.nobody_left()


async def test_a_server_that_says_nothing_delays_one_list_and_only_a_moment(
    bench: McpBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mcp_servers, "FIRST_LIST_SECONDS", 0.3)
    bench.yaml({"mute": bench.ours("hostile.py", "silent-start"), "waiting": bench.ours("echo.py")})
    bench.approve("mute")
    async with serve_session(bench.workspace) as host:
        began = time.monotonic()
        with within(0.3):
            await host.gathered()
        assert time.monotonic() - began > 0.2
        monkeypatch.setattr(mcp_servers, "FIRST_LIST_SECONDS", LONG)
        with within(0.1):
            await host.gathered()
        assert "read_file" in names(host) and not [name for name in names(host) if "__" in name]
        assert host.session.servers is not None
        assert host.session.servers.pool.status("mute").state.value == "connecting", "it is not given up for that"
    assert bench.nobody_left()


async def test_a_required_server_that_cannot_be_had_ends_it_before_it_begins(bench: McpBench) -> None:
    bench.yaml({"absent": {"command": "/no/such/binary", "required": True}})
    bench.approve()
    with pytest.raises(ForgeError, match="required MCP server 'absent'"):
        async with serve_session(bench.workspace):
            pass


LATER = {"cmd": "echo started; until [ -e go ]; do sleep 0.05; done; touch .envrc", "yield_time_ms": 300}
CREATED = "Protected file created: /workspace/.envrc"


async def test_what_a_command_left_after_its_call_is_in_every_client_s_next_result(bench: McpBench) -> None:
    async with serve_session(bench.workspace, approval="approve_all") as host:
        one, other = host.admit(ClientFacts()), host.admit(ClientFacts())
        told = asyncio.Event()
        host.session.bus.on("status", lambda event: told.set() if event.wire.get("code") == LEFTOVERS else None)

        async def call(guest: module.SessionGuest, name: str, args: dict[str, Any]) -> Outcome:
            return await guest.call(
                name, args, call_id=new_id(), cancel=InterruptSignal(), progress=lambda done, of, text: None
            )

        started = await call(one, "exec_command", LATER)
        assert started.result is not None and "session_id" in started.result.value, started.text
        (bench.workspace / "go").touch()
        await asyncio.wait_for(told.wait(), LONG)
        for guest in (one, other):
            assert (await call(guest, "exec_command", {"cmd": "true"})).notes[:1] == (CREATED,)
            assert CREATED not in (await call(guest, "exec_command", {"cmd": "true"})).text
        read = await call(one, "write_stdin", {"session_id": started.result.value["session_id"]})
        assert read.text.count(CREATED) == 1


def test_it_is_on_the_server_s_own_stderr_at_once(bench: McpBench, ready_forge: Any) -> None:
    def message(method: str, params: dict[str, Any], **more: Any) -> bytes:
        return json.dumps({"jsonrpc": "2.0", "method": method, "params": params, **more}).encode() + b"\n"

    hello = {"protocolVersion": "2025-03-26", "capabilities": {}, "clientInfo": {"name": "x", "version": "1"}}
    command = ["forge", "mcp", "serve", "--approval", "approve_all"]
    with ready_forge.start_with_input(command, cwd=bench.workspace, env=os.environ) as server:
        server.stdin.write(message("initialize", hello, id=1) + message("notifications/initialized", {}))
        server.stdin.write(message("tools/call", {"name": "exec_command", "arguments": LATER}, id=2))
        server.stdin.flush()
        silent = threading.Timer(LONG, server.kill)
        silent.start()
        assert any(json.loads(line).get("id") == 2 for line in server.stdout), "the call has its result"
        (bench.workspace / "go").touch()
        assert any(line == f"forge: {CREATED}\n".encode() for line in server.stderr), "while it still serves"
        silent.cancel()
        assert server.poll() is None
        server.stdin.close()
        assert server.wait(LONG) == 0
