"""`bench`: exec tools on the one path, in real walls around a real workspace; `shells`: the shell tool of a block.
All of it ends with the test."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.deadlines import PATIENCE
from tests.toolsets.conftest import Bench

from golem_forge.core.calls import Outcome
from golem_forge.tools.factory import ToolsetContext
from golem_forge.toolsets.exec.shell import ShellToolset


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
    async def until_it_runs(mark: str, seconds: float = PATIENCE) -> None:
        end = time.monotonic() + seconds
        while not processes_with(mark):
            assert time.monotonic() < end, f"nobody runs {mark!r}"
            await asyncio.sleep(0.02)

    return until_it_runs


@pytest.fixture
def gone() -> Callable[..., Any]:
    async def until_gone(mark: str, seconds: float = PATIENCE) -> None:
        end = time.monotonic() + seconds
        while left := processes_with(mark):
            assert time.monotonic() < end, left
            await asyncio.sleep(0.02)

    return until_gone


class Shell(Bench):
    async def __call__(self, command: str, **args: Any) -> Outcome:
        return await self.call("shell", command=command, **args)


@pytest.fixture
def shells(benches: Callable[..., Bench]) -> Callable[..., Shell]:
    """`shells(block)`: calls go by its rules; `ask=…` or `mode=…` as for a path."""

    def make(block: dict[str, Any], **options: Any) -> Shell:
        toolset = ShellToolset()
        (tool,) = toolset.get_tools(ToolsetContext(config=toolset.config.model_validate(block)))
        return Shell(benches(tool, **{"mode": "", **options}).path)

    return make


@pytest.fixture
def shell(shells: Callable[..., Shell]) -> Shell:
    """Runs anything that no floor stops."""
    return shells({"default": {"approval": "preApproved"}}, mode="approve_all")
