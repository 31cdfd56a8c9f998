"""The session behind `forge mcp serve`: what a client's first list waits for, and what it does not."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest
from tests.acceptance.mcp_bench import McpBench
from tests.deadlines import LONG, within

from golem_forge.core.errors import ForgeError
from golem_forge.workers.mcp import serving as module
from golem_forge.workers.mcp.serving import serving


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
    monkeypatch.setattr(module, "FIRST_LIST_SECONDS", LONG)
    bench.yaml({"echo": bench.ours("echo.py"), "absent": {"command": "/no/such/binary"}})
    bench.approve()
    async with serving(bench.workspace) as host:
        await host.gathered()
        assert "echo__echo" in names(host)
    assert bench.nobody_left()


async def test_a_server_that_says_nothing_delays_one_list_and_only_a_moment(
    bench: McpBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "FIRST_LIST_SECONDS", 0.3)
    bench.yaml({"mute": bench.ours("hostile.py", "silent-start"), "waiting": bench.ours("echo.py")})
    bench.approve("mute")
    async with serving(bench.workspace) as host:
        began = time.monotonic()
        with within(0.3):
            await host.gathered()
        assert time.monotonic() - began > 0.2
        monkeypatch.setattr(module, "FIRST_LIST_SECONDS", LONG)
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
        async with serving(bench.workspace):
            pass
