"""Real full walls around real commands, on zones of a test's own."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from golem_forge.sandbox.process.monitor import ExitStatus
from golem_forge.sandbox.sandbox import Sandbox, open_sandbox
from golem_forge.sandbox.walls.bubblewrap import find_bwrap
from golem_forge.sandbox.walls.model import Job, Level, ProbeReport
from golem_forge.sandbox.walls.walls import Aftermath, Walls
from golem_forge.sandbox.zones import ZoneSpec


@dataclass
class Ran:
    ending: ExitStatus
    text: str
    after: Aftermath

    @property
    def code(self) -> int | None:
        return self.ending.exit_code


@dataclass
class House:
    """A person's home, FORGE_HOME and a workspace, and walls on zones in them."""

    root: Path
    path: str = "/usr/local/bin:/usr/bin:/bin"
    sandboxes: list[Sandbox] = field(default_factory=list)

    def __post_init__(self) -> None:
        for name in ("workspace", "home", "forge"):
            (self.root / name).mkdir()

    @property
    def workspace(self) -> Path:
        return self.root / "workspace"

    def sandbox(self, *specs: ZoneSpec) -> Sandbox:
        chosen = specs or (ZoneSpec(name="workspace", path=self.workspace),)
        made = open_sandbox(chosen, forge_home=self.root / "forge", home=self.root / "home")
        self.sandboxes.append(made)
        return made

    def walls(self, *specs: ZoneSpec, sandbox: Sandbox | None = None, **options: Any) -> Walls:
        options = {"environ": {"PATH": self.path}, "report": ProbeReport(level=Level.FULL), **options}
        return Walls(
            sandbox or self.sandbox(*specs), forge_home=self.root / "forge", home=self.root / "home", **options
        )

    def run(self, script: str, walls: Walls | None = None, **job: Any) -> Ran:
        return asyncio.run(ran(walls or self.walls(), script, **job))


async def ran(walls: Walls, script: str, **job: Any) -> Ran:
    walled = await walls.start(Job(argv=("bash", "-c", script), **job))
    try:
        ending = await walled.child.wait(50)
    finally:
        await walled.child.end()
    assert ending is not None
    return Ran(ending, walled.child.output.read().decode(), walled.aftermath())


@pytest.fixture
def house(tmp_path: Path) -> Iterator[House]:
    if find_bwrap() is None:
        pytest.skip("full walls need bubblewrap")
    made = House(tmp_path)
    yield made
    for sandbox in made.sandboxes:
        sandbox.close()


@pytest.fixture
def run_in() -> Callable[..., Any]:
    """`await run_in(walls, script, **job)`, for tests that have a loop of their own."""
    return ran
