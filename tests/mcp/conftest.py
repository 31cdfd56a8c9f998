"""Where servers of tests live: a workspace, a home, FORGE_HOME, and walls around what a spec names.

`ground.spec("echo")` is programs/echo.py as a server of that name; `ground.spec("bad", "hostile.py", "flood")` another.
The programs stand in a read-only zone, their notes go to the workspace (`/workspace` inside).
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from golem_forge.config.mcp_spec import ServerSpec
from golem_forge.config.sandbox_block import WallSettings
from golem_forge.events.redaction import Redactor
from golem_forge.mcp.client import connection
from golem_forge.mcp.client.model import Hooks
from golem_forge.sandbox.sandbox import Sandbox, open_sandbox
from golem_forge.sandbox.walls.bubblewrap import find_bwrap
from golem_forge.sandbox.walls.walls import Walls, WallsHost
from golem_forge.sandbox.zones import AccessMode, ZoneSpec
from golem_forge.storage.home import ForgeHome

from .loop_time import LoopTime

PROGRAMS = Path(__file__).parent / "programs"
PYTHON = os.path.realpath(sys.executable)
"""Without its environment: visible inside walls, and quicker than a version manager's shim."""


@dataclass
class Ground:
    root: Path
    environ: Mapping[str, str]
    """The person's own; `foreign.environ()` where a program of others is to be found."""
    sandboxes: list[Sandbox] = field(default_factory=list)

    def __post_init__(self) -> None:
        for place in (self.workspace, self.root / "person", self.home.path):
            place.mkdir(mode=0o700)

    @property
    def workspace(self) -> Path:
        return self.root / "workspace"

    @property
    def home(self) -> ForgeHome:
        return ForgeHome(self.root / "home")

    def spec(self, name: str = "echo", program: str = "echo.py", *args: str, **keys: Any) -> ServerSpec:
        own: dict[str, Any] = {
            "scope": "",
            "origin": "forge.yaml:1",
            "command": PYTHON,
            "args": ("-S", f"${{zone:programs}}/{program}", *args),
            "zones": {"workspace": "rw", "programs": "ro"},
        }
        return ServerSpec(name=name, **(own | keys))

    def hostile(self, mode: str, argument: str = "", **keys: Any) -> ServerSpec:
        """programs/hostile.py as the server `bad`; its notes are in the workspace."""
        return self.spec("bad", "hostile.py", mode, argument, **({"env": {"HOSTILE_NOTES": "/workspace"}} | keys))

    def walls(
        self,
        spec: ServerSpec,
        settings: WallSettings | None = None,
        redactor: Redactor | None = None,
        **host: Any,
    ) -> Walls:
        """As `Hooks.walls_for` gives them: around exactly the zones that the spec names. `host`: of WallsHost."""
        places = {"workspace": self.workspace, "programs": PROGRAMS}
        zones = [ZoneSpec(name=name, path=places[name], mode=AccessMode(mode)) for name, mode in spec.zones.items()]
        sandbox = open_sandbox(zones, forge_home=self.home.path, home=self.root / "person")
        self.sandboxes.append(sandbox)
        given = WallsHost(**({"environ": self.environ, "home": self.root / "person"} | host))
        return Walls(sandbox, settings, forge_home=self.home.path, redactor=redactor, host=given)

    def hooks(self, **more: Any) -> Hooks:
        return Hooks(**({"walls_for": self.walls} | more))


@pytest.fixture
def home(tmp_path: Path) -> ForgeHome:
    """One that nobody has written into."""
    return ForgeHome(tmp_path / "home")


@pytest_asyncio.fixture
async def loop_time(monkeypatch: pytest.MonkeyPatch) -> LoopTime:
    return LoopTime(monkeypatch)


@pytest.fixture
def quick_tries(monkeypatch: pytest.MonkeyPatch) -> None:
    """What fails to connect is tried again at once."""
    monkeypatch.setattr(connection, "BACKOFF_FIRST_S", 0.02)


@pytest.fixture
def ground(tmp_path: Path) -> Iterator[Ground]:
    if find_bwrap() is None:
        pytest.skip("walls around servers need bubblewrap")
    made = Ground(tmp_path, dict(os.environ))
    yield made
    for sandbox in made.sandboxes:
        sandbox.close()
