"""What starting ahead saves: a Python tool in an interpreter that waits in its walls, beside one that starts now.

The tool is the smallest there is: it reads an argument and prints. Both run in full walls of the same kind and are
timed from the call to the end of the whole process tree. Between two calls the next interpreter gets the time to come
up that a model gives it many times over.
"""

from __future__ import annotations

import asyncio
import os
import sys
import tempfile
from collections.abc import Awaitable, Callable
from contextlib import aclosing
from pathlib import Path
from statistics import median
from time import perf_counter

from benchmarks.harness import Pace, frozen_heap
from benchmarks.ours import session_in
from benchmarks.rows import Row, at_most, row
from golem_forge.sandbox.walls.model import HostDirectory, Job, Level, Streams
from golem_forge.sandbox.walls.toolchains import in_system
from golem_forge.sandbox.walls.walls import Walls
from golem_forge.usertools.folder import TOOL_DIR, ProgramKind, ToolProgram
from golem_forge.usertools.run.interpreter import InterpreterPool, WaitingInterpreter, python_job

COLD = "started now, same walls"
WARM = "started ahead"
BARE = "python -S, no walls"
SCRIPT = "import sys\nprint('hello', sys.argv[1])\n"
ARGV = ("--name=Ada",)
COMES_UP_S = 0.06


async def rows(pace: Pace) -> list[Row]:
    with tempfile.TemporaryDirectory(prefix="bench-warm-") as folder:
        tool, workspace = _places(folder)
        async with session_in(workspace) as session, aclosing(InterpreterPool()) as interpreters:
            walls = session.path.walls
            assert walls is not None
            seconds = await _raced(walls, interpreters, tool, pace.rounds)
    ms = {name: value * 1e3 for name, value in seconds.items()}
    return [
        row("Python tool, whole run (ms)", ms[WARM], peer=ms[COLD], peer_name=COLD),
        row("Python tool, whole run (ms)", ms[WARM], peer=ms[BARE], peer_name=BARE, goal=at_most(0.5)),
    ]


async def _raced(walls: Walls, interpreters: InterpreterPool, tool: Path, rounds: int) -> dict[str, float]:
    program = _program(tool)
    job = python_job(Job(argv=(), streams=Streams.APART, reads_only=True), program, Level.FULL)

    async def cold() -> None:
        await _ran(await WaitingInterpreter.start(walls, job))

    async def warm() -> None:
        await _ran(await interpreters.take(walls, job))

    async def bare() -> None:
        child = await asyncio.create_subprocess_exec(
            *program.argv,
            tool / "tool.py",
            *ARGV,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
        )
        output, _ = await child.communicate()
        assert output == b"hello --name=Ada\n"

    contestants: dict[str, Callable[[], Awaitable[None]]] = {COLD: cold, WARM: warm, BARE: bare}
    times: dict[str, list[float]] = {name: [] for name in contestants}
    with frozen_heap():
        for number in range(rounds + 1):
            for name in list(contestants)[:: 1 if number % 2 else -1]:
                if name == WARM:
                    interpreters.prepare(walls, job)
                await asyncio.sleep(COMES_UP_S)
                began = perf_counter()
                await contestants[name]()
                times[name].append(perf_counter() - began)
    return {name: median(values[1:]) for name, values in times.items()}


async def _ran(interpreter: WaitingInterpreter) -> None:
    await interpreter.run(f"{TOOL_DIR}/tool.py", ARGV)
    ending = await interpreter.walled.child.wait()
    assert ending is not None
    assert ending.exit_code == 0
    assert interpreter.walled.child.output.read() == b"hello --name=Ada\n"


def _places(folder: str) -> tuple[Path, Path]:
    tool, workspace = Path(folder).resolve() / "tool", Path(folder).resolve() / "workspace"
    tool.mkdir()
    workspace.mkdir()
    (tool / "tool.py").write_text(SCRIPT)
    return tool, workspace


def _program(tool: Path) -> ToolProgram:
    prefix = os.path.realpath(sys.base_prefix)
    python = os.path.realpath(getattr(sys, "_base_executable", "") or sys.executable)
    shown = (HostDirectory(str(tool), TOOL_DIR), *(() if in_system(prefix) else (HostDirectory(prefix, prefix),)))
    return ToolProgram(
        kind=ProgramKind.PYTHON, argv=(python, "-E", "-s", "-S", "-B"), script=f"{TOOL_DIR}/tool.py", shown=shown
    )
