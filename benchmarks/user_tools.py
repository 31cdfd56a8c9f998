"""What Forge adds to a user tool: the smallest tools there are, called in a session, beside the same program by hand.

A call is the whole of it: the look at the tool folders, resolve, trust, judge, the journal on disk before it runs,
walls, the outcome recorded. By hand means the same Job started in the same walls and waited for: nobody judged,
nothing kept. The tools are active and a rule of the person's own lets them run, so nobody is asked. Between two calls
of the Python tool that only reads, the next interpreter gets the time to come up; the one that writes never has one
waiting for it.
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any, NamedTuple
from unittest.mock import patch

from benchmarks.harness import Pace, frozen_heap
from benchmarks.ours import project_and_home
from benchmarks.rows import Goal, Row, at_most, row
from golem_forge.agent.session import Session, open_session
from golem_forge.sandbox.walls.model import Job
from golem_forge.sandbox.walls.walls import WalledChild, Walls
from golem_forge.storage.home import ForgeHome
from golem_forge.usertools.build.requirements import ToolchainFinder
from golem_forge.usertools.folder import TOOL_DIR

BY_HAND = "the same job by hand"
SAID = b"hello\n"
COMES_UP_S = 0.08
TIMES = 3
"""Calls of each contestant in a round."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tool:
    name: str
    what: str
    entrypoint: str
    source: str
    goal: Goal
    more: str = ""
    """Lines of its manifest."""
    pause: float = 0.0
    """After each call of it."""

    @property
    def manifest(self) -> str:
        head = (
            f"name: {self.name}\ndescription: Says hello ({self.name})\nversion: 1.0.0\nentrypoint: {self.entrypoint}\n"
        )
        return f"{head}{self.more}"


PYTHON = "print('hello')\n"
GO = 'package main\n\nimport "fmt"\n\nfunc main() { fmt.Println("hello") }\n'
TOOLS = (
    Tool(name="hello-sh", what="sh", entrypoint="hello.sh", source="echo hello\n", goal=at_most(1.3)),
    Tool(name="hello-go", what="Go", entrypoint="hello.go", source=GO, goal=at_most(1.3)),
    Tool(
        name="hello-new",
        what="Python, started now",
        entrypoint="hello.py",
        source=PYTHON,
        goal=at_most(1.3),
        more="zones: {workspace: rw}\n",
    ),
    Tool(
        name="hello-py",
        what="Python, started ahead",
        entrypoint="hello.py",
        source=PYTHON,
        goal=at_most(0.5),
        pause=COMES_UP_S,
    ),
)


class Started(NamedTuple):
    walls: Walls
    job: Job


async def rows(pace: Pace) -> list[Row]:
    with project_and_home() as (project, home):
        tools = [tool for tool in TOOLS if tool.what != "Go" or _has_go(home)]
        _write(home, tools)
        asked: list[Any] = []

        def yes(card: Any) -> dict[str, Any]:
            asked.append(card)
            return {"approved": True}

        async with open_session(project, home=ForgeHome(home), approval_callback=yes) as session:
            found = []
            for tool in tools:
                started = await _promoted(session, tool)
                asked.clear()
                seconds = await _raced(session, tool, started, pace)
                assert not asked, "a call that asks measures the person"
                ours, by_hand = (seconds[name] * 1e3 for name in ("ours", BY_HAND))
                name = f"call of a user tool: {tool.what} (ms)"
                found.append(row(name, ours, peer=by_hand, peer_name=BY_HAND, goal=tool.goal))
    return found


async def _promoted(session: Session, tool: Tool) -> Started:
    """Active from here on, and what its runs start."""
    with _seen_starts() as starts:
        for _ in range(2):
            outcome = await session.call("run_custom_tool", {"tool_name": tool.name})
            assert outcome.ok, outcome.text
    assert tool.name in {each.name for each in session.catalog.list(source="custom")}
    walls, job = starts[-1]
    if tool.entrypoint.endswith(".py"):  # it was told by wire what to run
        job = replace(job, argv=(*job.argv[:-1], f"{TOOL_DIR}/{tool.entrypoint}"), stdin=None)
    return Started(walls, job)


async def _raced(session: Session, tool: Tool, started: Started, pace: Pace) -> dict[str, float]:
    async def call() -> None:
        outcome = await session.call(tool.name, {})
        assert outcome.text.encode() == SAID, outcome.text

    async def by_hand() -> None:
        child = (await started.walls.start(started.job)).child
        ending = await child.wait()
        assert ending is not None
        assert (ending.exit_code, child.output.read()) == (0, SAID)

    contestants: dict[str, Callable[[], Awaitable[None]]] = {"ours": call, BY_HAND: by_hand}
    times: dict[str, list[float]] = {name: [] for name in contestants}
    with frozen_heap():
        for number in range((pace.rounds + 1) * TIMES):
            for name in list(contestants)[:: 1 if number % 2 else -1]:
                began = perf_counter()
                await contestants[name]()
                times[name].append(perf_counter() - began)
                await asyncio.sleep(tool.pause)
    return {name: median(values[TIMES:]) for name, values in times.items()}


@contextmanager
def _seen_starts() -> Iterator[list[Started]]:
    starts: list[Started] = []
    start = Walls.start

    async def noted(walls: Walls, job: Job) -> WalledChild:
        starts.append(Started(walls, job))
        return await start(walls, job)

    with patch.object(Walls, "start", noted):
        yield starts


def _write(home: Path, tools: list[Tool]) -> None:
    for tool in tools:
        folder = home / "tools" / tool.name
        folder.mkdir(parents=True)
        (folder / "tool.yaml").write_text(tool.manifest)
        (folder / tool.entrypoint).write_text(tool.source)
    rules = "".join(f"  - {{tool: {tool.name}, verdict: preApproved}}\n" for tool in tools)
    zone = "  - {path: '/workspace/**', access: [read, write, delete], verdict: preApproved}\n"
    (home / "rules.yaml").write_text(f"rules:\n{rules}{zone}")


def _has_go(home: Path) -> bool:
    if ToolchainFinder(os.environ, home).go() is not None:
        return True
    print("no Go toolchain here: its row is left out", file=sys.stderr)
    return False
