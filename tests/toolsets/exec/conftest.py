"""`bench`: exec tools on the one path, in real walls around a real workspace; all of it ends with the test."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from golem_forge.core.calls import Outcome, ToolCall
from golem_forge.orchestrator.orchestrator import Orchestrator
from golem_forge.sandbox.sandbox import Sandbox
from golem_forge.sandbox.walls.model import Level, ProbeReport
from golem_forge.sandbox.walls.walls import Walls
from golem_forge.storage.home import ForgeHome
from golem_forge.toolsets.exec import create_exec_command_tool, create_write_stdin_tool
from golem_forge.toolsets.output import create_read_output_tool


class Bench:
    """Calls of one worker; `cmd` and `stdin` are exec_command and write_stdin."""

    def __init__(self, path: Orchestrator) -> None:
        self.path = path

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
        return number

    async def until(self, session: int, wanted: str, seconds: float = 20, *, after: str = "") -> str:
        """Types `after`, then reads the session until the text turns up in what it said meanwhile."""
        said, end = "", time.monotonic() + seconds
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
    """Makes benches: `benches(ask=…)`, or `mode=…`; `approve_all` if neither is given."""
    made: list[Orchestrator] = []

    def make(*tools: Any, **options: Any) -> Bench:
        if "ask" not in options:
            options.setdefault("mode", "approve_all")
        tools = tools or (create_exec_command_tool(), create_write_stdin_tool())
        path = make_path(*tools, create_read_output_tool(), sandbox=sandbox, home=ForgeHome(tmp_path), **options)
        if path.walls is None:
            report = ProbeReport(level=Level.FULL)  # probing has tests of its own
            path.walls = Walls(sandbox, forge_home=tmp_path / "forge_home", rules=path.path_rules, report=report)
        made.append(path)
        return Bench(path)

    yield make
    for path in made:
        await path.parts.close()


@pytest.fixture
def bench(benches: Callable[..., Bench]) -> Bench:
    return benches()


def processes_with(mark: str) -> list[int]:
    """Processes of this machine that have the text on their command line."""
    found = []
    for entry in os.listdir("/proc"):
        if entry.isdigit() and int(entry) != os.getpid():
            try:
                if mark.encode() in Path(f"/proc/{entry}/cmdline").read_bytes():
                    found.append(int(entry))
            except OSError:
                continue
    return found


@pytest.fixture
def runs() -> Callable[..., Any]:
    async def until_it_runs(mark: str, seconds: float = 20) -> None:
        end = time.monotonic() + seconds
        while not processes_with(mark):
            assert time.monotonic() < end, f"nobody runs {mark!r}"
            await asyncio.sleep(0.02)

    return until_it_runs


@pytest.fixture
def gone() -> Callable[..., Any]:
    async def until_gone(mark: str, seconds: float = 20) -> None:
        end = time.monotonic() + seconds
        while left := processes_with(mark):
            assert time.monotonic() < end, left
            await asyncio.sleep(0.02)

    return until_gone
