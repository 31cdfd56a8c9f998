"""Real zones on a real disk; `call`: one tool call, validated and executed; `benches`: tools on the one path."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from tests.deadlines import PATIENCE

from golem_forge.core.calls import Outcome, ToolCall
from golem_forge.core.decisions import Verdict
from golem_forge.core.results import ToolResult
from golem_forge.orchestrator.orchestrator import Orchestrator
from golem_forge.sandbox.sandbox import Sandbox, open_sandbox
from golem_forge.sandbox.walls.model import Level, ProbeReport
from golem_forge.sandbox.walls.walls import Walls, WallsHost
from golem_forge.sandbox.zones import AccessMode, ZoneSpec
from golem_forge.storage.home import ForgeHome
from golem_forge.tools.context import ToolContext
from golem_forge.tools.validation import Ok
from golem_forge.toolsets import TOOLKIT, create_read_output_tool
from golem_forge.toolsets.exec import create_exec_command_tool, create_write_stdin_tool

Call = Callable[..., Awaitable[ToolResult]]


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    path = tmp_path / "host-workspace"
    path.mkdir()
    return path


@pytest.fixture
def sandbox(tmp_path: Path, workspace: Path) -> Sandbox:
    """workspace rw (asks), scratch rw (write preApproved, delete blocked), docs ro."""
    for name in ("host-scratch", "host-docs", "forge_home", "home"):
        (tmp_path / name).mkdir()
    specs = (
        ZoneSpec(name="workspace", path=workspace),
        ZoneSpec(name="scratch", path=tmp_path / "host-scratch", write=Verdict.PRE_APPROVED, delete=Verdict.BLOCKED),
        ZoneSpec(name="docs", path=tmp_path / "host-docs", mode=AccessMode.RO),
    )
    return open_sandbox(specs, forge_home=tmp_path / "forge_home", home=tmp_path / "home")


@pytest.fixture
def ctx(sandbox: Sandbox) -> ToolContext:
    return ToolContext(sandbox=sandbox)


@pytest.fixture
def call(ctx: ToolContext) -> Call:
    async def made(name: str, **args: Any) -> ToolResult:
        tool = TOOLKIT[name]
        checked = tool.validate_input(args)
        assert isinstance(checked, Ok), checked
        return await tool.execute(checked.data, ctx)

    return made


class Bench:
    """Calls of one worker; `cmd` and `stdin` are exec_command and write_stdin."""

    def __init__(self, path: Orchestrator) -> None:
        self.path = path
        self._first: dict[int, str] = {}
        """What sessions said before their first call returned; on a busy machine that can be all they say."""

    async def call(self, name: str, **args: Any) -> Outcome:
        return await self.path.call(ToolCall(name, args))

    async def cmd(self, cmd: str, **args: Any) -> Outcome:
        return await self.call("exec_command", cmd=cmd, **args)

    async def stdin(self, session: int, chars: str = "", **args: Any) -> Outcome:
        return await self.call("write_stdin", session_id=session, chars=chars, **args)

    async def session(self, cmd: str, **args: Any) -> int:
        """A command that goes on as a session."""
        outcome = await self.cmd(cmd, **{"yield_time_ms": 50, **args})
        assert outcome.result is not None, outcome.text
        number: int = outcome.result.value["session_id"]
        self._first[number] = outcome.result.value["output"]
        return number

    async def until(self, session: int, wanted: str, seconds: float = PATIENCE, *, after: str = "") -> str:
        """Types `after`, then reads the session until the text turns up in what it said meanwhile, or, where nothing is
        typed, in what it said before the first read."""
        first, end = self._first.pop(session, ""), time.monotonic() + seconds
        said = "" if after else first
        while wanted not in said:
            assert time.monotonic() < end, said
            outcome = await self.stdin(session, after, yield_time_ms=50)
            after = ""
            assert outcome.result is not None, outcome.text
            said += outcome.result.value["output"]
            if "session_id" not in outcome.result.value:
                assert wanted in said, said
        return said


@pytest.fixture
async def benches(
    make_path: Callable[..., Orchestrator], sandbox: Sandbox, tmp_path: Path
) -> AsyncIterator[Callable[..., Bench]]:
    """Makes benches in real walls: `benches(ask=…)`, or `mode=…`; `approve_all` if neither is given."""
    made: list[Orchestrator] = []

    def make(*tools: Any, level: Level = Level.FULL, **options: Any) -> Bench:
        if "ask" not in options:
            options.setdefault("mode", "approve_all")
        tools = tools or (create_exec_command_tool(), create_write_stdin_tool())
        path = make_path(*tools, create_read_output_tool(), sandbox=sandbox, home=ForgeHome(tmp_path), **options)
        if path.walls is None:
            report = ProbeReport(level=level)  # probing has tests of its own
            path.scope.walls = Walls(
                sandbox, forge_home=tmp_path / "forge_home", rules=path.path_rules, host=WallsHost(report=report)
            )
        made.append(path)
        return Bench(path)

    yield make
    for path in made:
        await path.parts.close()
