"""Real zones, a real ripgrep, and a tree with everything that makes searching difficult."""

from __future__ import annotations

import asyncio
import shutil
import sys
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from golem_forge.sandbox.process.launch import Capture
from golem_forge.sandbox.process.monitor import ExitStatus
from golem_forge.sandbox.sandbox import Sandbox, open_sandbox
from golem_forge.sandbox.walls.model import Job, Level
from golem_forge.sandbox.zones import AccessMode, ZoneSpec
from golem_forge.tools.context import ToolContext

RG = shutil.which("rg", path=str(Path(sys.executable).parent)) or shutil.which("rg")


class BareChild:
    """A process without walls, with the face of the real one."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process
        self.output, self.errors = Capture(), Capture()
        self.killed = False
        self._done = asyncio.create_task(self._collect())

    async def _collect(self) -> ExitStatus:
        async def pour(stream: Any, capture: Capture) -> None:
            while data := await stream.read(65536):
                capture.append(data.decode("utf-8", "replace"))
            capture.finish()

        await asyncio.gather(pour(self._process.stdout, self.output), pour(self._process.stderr, self.errors))
        return ExitStatus(exit_code=await self._process.wait())

    async def wait(self, seconds: float | None = None) -> ExitStatus | None:
        done, _ = await asyncio.wait([self._done], timeout=seconds)
        return self._done.result() if done else None

    def kill(self) -> None:
        self.killed = True
        if self._process.returncode is None:
            self._process.kill()


class BareWalls:
    """Starts jobs on the host itself: for what an engine asks and answers, not for what walls hold."""

    def __init__(self, sandbox: Sandbox, program: str) -> None:
        self._sandbox = sandbox
        self._program = program
        self.jobs: list[Job] = []
        self.children: list[BareChild] = []

    async def level(self) -> Level:
        return Level.FULL

    async def start(self, job: Job) -> Any:
        self.jobs.append(job)
        process = await asyncio.create_subprocess_exec(
            *(self._program, *job.argv[1:]),
            cwd=self._sandbox.zones[job.cwd[1:]].host,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            env={},
        )
        self.children.append(BareChild(process))

        class Started:
            child = self.children[-1]

        return Started


@pytest.fixture
def docs(tmp_path: Path) -> Path:
    path = tmp_path / "host-docs"
    path.mkdir()
    return path


@pytest.fixture
def sandbox(tmp_path: Path, workspace: Path, docs: Path) -> Sandbox:
    specs = (ZoneSpec(name="workspace", path=workspace), ZoneSpec(name="docs", path=docs, mode=AccessMode.RO))
    return open_sandbox(specs, forge_home=tmp_path / "forge_home", home=tmp_path / "home")


@pytest_asyncio.fixture
async def bare_walls(sandbox: Sandbox) -> AsyncIterator[Callable[..., Any]]:
    """Makes walls that are none, around ripgrep or another program. None of its processes outlives the test: who
    searches kills one that has said enough, and does not wait for it."""
    if RG is None:
        pytest.skip("ripgrep is not installed")
    made: list[BareWalls] = []

    def make(program: str = RG) -> BareWalls:
        made.append(BareWalls(sandbox, program))
        return made[-1]

    yield make
    for child in [each for walls in made for each in walls.children]:
        child.kill()
        await child.wait()


@pytest.fixture(params=["rg", "python"])
def engine(request: pytest.FixtureRequest, ctx: ToolContext) -> str:
    """Every test that takes it runs with both engines."""
    if request.param == "rg":
        ctx.walls = request.getfixturevalue("bare_walls")()
    return str(request.param)
