"""A program on disk with a tool module, real full walls around real hosts, and the one path over its tools."""

from __future__ import annotations

import asyncio
import textwrap
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from tests.agent.conftest import put
from tests.deadlines import PATIENCE

from golem_forge.agent.files.toolset_blocks import approval_of
from golem_forge.agent.files.worker import Worker
from golem_forge.agent.modules.module_tools import ModuleTools
from golem_forge.config.program import Program, load_program
from golem_forge.core.calls import Caller, Outcome, ToolCall
from golem_forge.events.redaction import Redactor
from golem_forge.orchestrator.orchestrator import Orchestrator
from golem_forge.policy.base import ApprovalBlocks
from golem_forge.policy.controller import ApprovalController
from golem_forge.sandbox.sandbox import Sandbox, open_sandbox
from golem_forge.sandbox.walls.bubblewrap import find_bwrap
from golem_forge.sandbox.walls.model import Level, ProbeReport
from golem_forge.sandbox.walls.walls import Walls, WallsHost
from golem_forge.sandbox.zones import ZoneSpec
from golem_forge.storage.home import ForgeHome
from golem_forge.tools.tool import Tool


@dataclass
class Place:
    """One worker's modules; everything it starts is ended with the test."""

    root: Path
    home: ForgeHome
    sandbox: Sandbox
    redactor: Redactor = field(default_factory=Redactor)
    is_trusted: bool = True
    made: list[ModuleTools] = field(default_factory=list)

    @property
    def program(self) -> Program:
        return load_program(self.root, self.home, trusted=lambda _: True)

    def write(self, name: str, text: str) -> Path:
        return put(self.root, name, textwrap.dedent(text))

    def walls(self, level: Level = Level.FULL) -> Walls:
        return Walls(
            self.sandbox,
            forge_home=self.home.path,
            redactor=self.redactor,
            host=WallsHost(report=ProbeReport(level=level)),
        )

    def worker(self, **toolsets: Any) -> Worker:
        return Worker(name="main", toolsets=toolsets, path=self.root / "main.worker", shown_path="main.worker")

    def modules(self, worker: Worker, level: Level = Level.FULL) -> ModuleTools:
        modules = ModuleTools(
            worker=worker,
            program=self.program,
            home=self.home,
            walls=self.walls(level),
            redactor=self.redactor,
            trusted=lambda _: self.is_trusted,
        )
        self.made.append(modules)
        return modules

    def custom(self, *tools: str, level: Level = Level.FULL, **block: Any) -> ModuleTools:
        return self.modules(self.worker(custom={"module": "./tools.py", "tools": list(tools), **block}), level)

    def path(self, tools: list[Tool], *, ask: Any = None, blocks: ApprovalBlocks | None = None) -> Orchestrator:
        controller = ApprovalController("interactive" if ask is not None else "approve_all", ask)
        return Orchestrator(tools, approval=controller, sandbox=self.sandbox, blocks=blocks, redactor=self.redactor)

    async def opened(self, *tools: str, ask: Any = None, **block: Any) -> Orchestrator:
        """The one path over the tools of ./tools.py."""
        worker = self.worker(custom={"module": "./tools.py", "tools": list(tools), **block})
        modules = self.modules(worker)
        loaded = await modules.load()
        blocks = ApprovalBlocks(blocks=approval_of(worker, modules.exposed()))
        return self.path(loaded, ask=ask, blocks=blocks)


async def called(path: Orchestrator, tool: str, /, **args: Any) -> Outcome:
    return await path.call(ToolCall(tool, args, Caller.LLM))


async def until(what: Callable[[], object], seconds: float = PATIENCE) -> None:
    deadline = time.monotonic() + seconds
    while not what():
        assert time.monotonic() < deadline, "it did not come to pass"
        await asyncio.sleep(0.01)


@pytest.fixture
async def place(tmp_path: Path) -> AsyncIterator[Place]:
    if find_bwrap() is None:
        pytest.skip("full walls need bubblewrap")
    for name in ("program/data", "forge"):
        (tmp_path / name).mkdir(parents=True)
    home = ForgeHome(tmp_path / "forge")
    sandbox = open_sandbox([ZoneSpec(name="data", path=tmp_path / "program" / "data")], forge_home=home.path)
    made = Place(tmp_path / "program", home, sandbox)
    yield made
    for modules in made.made:
        await modules.aclose()
    sandbox.close()


@pytest.fixture
def call() -> Callable[..., Any]:
    return called
