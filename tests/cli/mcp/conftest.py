"""A project with a server program in it; the walls of this machine are known, so that nothing tries them anew."""

from __future__ import annotations

import json
import os
import shutil
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from tests import known_walls

from golem_forge.sandbox.walls.bubblewrap import find_bwrap

PROGRAMS = Path(__file__).parents[2] / "mcp" / "programs"
PYTHON = os.path.realpath(sys.executable)


@dataclass(frozen=True)
class Servers:
    """`servers("list")` is `forge mcp list` in the project."""

    shell: Any

    def __call__(self, *words: str, **how: Any) -> Any:
        return self.shell("mcp", *words, **how)

    @property
    def project(self) -> Path:
        return Path(self.shell.project)

    def command(self, program: str = "echo.py", *args: str) -> list[str]:
        """The words after NAME and options that make a program of tests/mcp/programs a server."""
        shutil.copy(PROGRAMS / program, self.project / program)
        return ["--", PYTHON, "-S", program, *args]

    def add(self, name: str = "echo", *options: str, program: str = "echo.py", args: tuple[str, ...] = ()) -> Any:
        return self("add", name, "--zone", "workspace", *options, *self.command(program, *args))

    def changing(self, *tools: dict[str, Any]) -> None:
        """What the server `changing` offers from now on."""
        entries = [{"description": "d", "inputSchema": {"type": "object"}, **tool} for tool in tools]
        (self.project / "tools.json").write_text(json.dumps(entries))

    def shown(self, name: str) -> Any:
        return self("show", name, "--json").json

    def states(self) -> dict[str, str]:
        return {each["name"]: each["state"] for each in self("list", "--json").json["servers"]}


@pytest.fixture
def servers(in_process: Any, tried_walls: Path) -> Servers:
    known_walls.put(tried_walls, in_process.forge_home)
    return Servers(in_process)


@pytest.fixture
def walled(servers: Servers) -> Servers:
    """Where servers can be started."""
    if find_bwrap() is None:
        pytest.skip("walls around servers need bubblewrap")
    return servers
