"""Other people's servers start inside our walls, as `foreign` says, and introduce themselves."""

from __future__ import annotations

import asyncio
import json
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from golem_forge.sandbox.sandbox import open_sandbox
from golem_forge.sandbox.walls.bubblewrap import find_bwrap
from golem_forge.sandbox.walls.model import Job
from golem_forge.sandbox.walls.walls import Walls
from golem_forge.sandbox.zones import ZoneSpec

from . import foreign

HELLO = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "test", "version": "1"}}
SERVERS: dict[str, tuple[Callable[[], list[str]], str]] = {
    "everything": (foreign.everything, "mcp-servers/everything"),
    "filesystem": (lambda: foreign.filesystem("/workspace"), "secure-filesystem-server"),
    "memory": (foreign.memory, "memory-server"),
    "git": (foreign.mcp_server_git, "mcp-git"),
    "time": (foreign.mcp_server_time, "mcp-time"),
}


def test_node_is_new_enough() -> None:
    said = subprocess.run([*foreign.node(), "--version"], capture_output=True, text=True, check=True).stdout
    assert int(said.removeprefix("v").split(".")[0]) >= 22


def test_the_clients_are_installed() -> None:
    """To import them takes seconds; tests/acceptance/test_mcp_serving.py does, and calls tools with each."""
    look = "from importlib.util import find_spec; print(*map(bool, map(find_spec, ('mcp', 'fastmcp', 'pydantic_ai'))))"
    done = subprocess.run([*foreign.python(), "-c", look], capture_output=True, text=True)
    assert done.stdout.split() == ["True"] * 3, done.stderr


@pytest.mark.parametrize("name", SERVERS)
async def test_a_server_introduces_itself_inside_walls(name: str, tmp_path: Path) -> None:
    if find_bwrap() is None:
        pytest.skip("walls need bubblewrap")
    argv, expected = SERVERS[name]
    command = argv()
    for place in ("workspace", "person", "home"):
        (tmp_path / place).mkdir()
    (tmp_path / "workspace" / "hello").write_text(
        json.dumps({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": HELLO}) + "\n"
    )
    zones = (ZoneSpec(name="workspace", path=tmp_path / "workspace"),)
    sandbox = open_sandbox(zones, forge_home=tmp_path / "home", home=tmp_path / "person")
    walls = Walls(sandbox, forge_home=tmp_path / "home", home=tmp_path / "person", environ=foreign.environ())
    try:
        script = '(cat /workspace/hello; sleep 20) | "$0" "$@"'
        started = await walls.start(Job(argv=("bash", "-c", script, *command)))
        try:
            said = ""
            async with asyncio.timeout(30):
                while '"serverInfo"' not in said and await started.child.wait(0.05) is None:
                    said = started.child.output.read().decode()
        finally:
            await started.child.end()
    finally:
        sandbox.close()
    assert f'"name":"{expected}"' in said.replace(" ", ""), said
