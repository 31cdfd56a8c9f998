"""Real walls around a real Python, on a workspace of the test's own."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from tests.deadlines import PATIENCE

from golem_forge.events.redaction import Redactor
from golem_forge.sandbox.process.monitor import ExitStatus
from golem_forge.sandbox.sandbox import Sandbox, open_sandbox
from golem_forge.sandbox.walls.bubblewrap import find_bwrap
from golem_forge.sandbox.walls.model import HostDirectory, Job, Level, ProbeReport, Streams
from golem_forge.sandbox.walls.toolchains import in_system
from golem_forge.sandbox.walls.walls import Walls, WallsHost
from golem_forge.sandbox.zones import AccessMode, ZoneSpec
from golem_forge.usertools.folder import TOOL_DIR, ProgramKind, ToolProgram
from golem_forge.usertools.run.interpreter import WaitingInterpreter, python_job

PYTHON = os.path.realpath(getattr(sys, "_base_executable", "") or sys.executable)
FLAGS = ("-E", "-s", "-S", "-B", "-X", "pycache_prefix=/forge/none")


@dataclass
class Ran:
    ending: ExitStatus
    output: str
    errors: str


@dataclass
class House:
    """A workspace, a home, FORGE_HOME, and a folder with one tool's files."""

    root: Path
    sandboxes: list[Sandbox] = field(default_factory=list)

    def __post_init__(self) -> None:
        for name in ("workspace", "home", "forge", "tool"):
            (self.root / name).mkdir()

    @property
    def workspace(self) -> Path:
        return self.root / "workspace"

    @property
    def forge(self) -> Path:
        return self.root / "forge"

    def walls(self, mode: AccessMode = AccessMode.RO, *, redactor: Redactor | None = None, **host: Any) -> Walls:
        """`host`: of WallsHost."""
        spec = ZoneSpec(name="workspace", path=self.workspace, mode=mode)
        sandbox = open_sandbox((spec,), forge_home=self.forge, home=self.root / "home")
        self.sandboxes.append(sandbox)
        known = {
            "environ": {"PATH": "/usr/bin:/bin"},
            "report": ProbeReport(level=Level.FULL),
            "home": self.root / "home",
        }
        return Walls(sandbox, forge_home=self.forge, redactor=redactor, host=WallsHost(**known | host))

    def script(self, text: str, name: str = "tool.py") -> Path:
        path = self.root / "tool" / name
        path.write_text(text)
        return path

    def program(self, level: Level = Level.FULL) -> ToolProgram:
        prefix = os.path.realpath(sys.base_prefix)
        tool = str((self.root / "tool").resolve())
        shown = (HostDirectory(tool, TOOL_DIR), *(() if in_system(prefix) else (HostDirectory(prefix, prefix),)))
        folder = TOOL_DIR if level is Level.FULL else tool
        argv = (PYTHON, *FLAGS)
        return ToolProgram(kind=ProgramKind.PYTHON, argv=argv, script=f"{folder}/tool.py", tool_dir=folder, shown=shown)

    def job(self, level: Level = Level.FULL, **more: Any) -> Job:
        return python_job(Job(argv=(), streams=Streams.APART, reads_only=True, **more), self.program(level), level)


async def ran(interpreter: WaitingInterpreter, script: str = "/forge/tool/tool.py", **order: Any) -> Ran:
    child = interpreter.walled.child
    try:
        await interpreter.run(script, **order)
        ending = await child.wait(PATIENCE)
    finally:
        await interpreter.end()
    assert ending is not None
    assert child.errors is not None
    return Ran(ending, child.output.read().decode(), child.errors.read().decode())


@pytest.fixture
def house(tmp_path: Path) -> Iterator[House]:
    if find_bwrap() is None:
        pytest.skip("full walls need bubblewrap")
    made = House(tmp_path)
    yield made
    for sandbox in made.sandboxes:
        sandbox.close()
