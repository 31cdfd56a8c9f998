"""What programs save and cost: the same calls once as turns of a model, once as one `run_code`.

Twenty file tasks are replayed, with their calls known beforehand: no model is needed, and nothing depends on one. A
local server plays the provider and counts what the request bodies carry. Bytes are counted, not tokens: an encoding of
tokens is not part of any package and would have to be fetched. `turns` asks for one call a turn, as most models do
where a result decides about the next call; `batched` asks for all calls that do not depend on each other at once. Of a
program the model reads what it prints, as a model would write it.

A call inside a program is compared with the same call by a model, both judged and journalled; the start of a program
with a bare Python in the same walls. The peers (`peers/code_mode.py`) have neither walls nor a path that judges: their
rows are for information.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import AsyncExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.wire.server import WireCall, WireServer, WireTurn

from benchmarks.harness import Block, Pace, race_blocks
from benchmarks.ours import project_and_home
from benchmarks.peers.code_mode import program_peers
from benchmarks.rows import Row, at_most, row
from golem_forge.agent.runtime import WorkerRuntime
from golem_forge.agent.session import open_session
from golem_forge.sandbox.walls.model import Job, Streams
from golem_forge.storage.home import ForgeHome
from golem_forge.usertools.build.languages import own_interpreter

RUN_CODE = "run_code"
CALLS = 100
STARTS = 3
MANY = 5
"""Calls of a task that counts as one of many calls."""
FILE_LINES = 40

Call = tuple[str, dict[str, Any]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    name: str
    phases: tuple[tuple[Call, ...], ...]
    """What is asked at once where a model asks for all that does not depend on each other."""
    program: str

    @property
    def calls(self) -> tuple[Call, ...]:
        return tuple(call for phase in self.phases for call in phase)


def file_tasks() -> list[Task]:
    """Reading, comparing, searching and rewriting between 2 and 24 files."""
    tasks: list[Task] = []
    for size in (2, 4, 6, 8, 12):
        paths = [f"/workspace/src/m{number}.txt" for number in range(size)]
        reads = tuple(("read_file", {"path": path}) for path in paths)
        names = f"[f'/workspace/src/m{{n}}.txt' for n in range({size})]"
        tasks += [
            Task(
                name=f"count lines of {size} files",
                phases=((("list_files", {"path": "/workspace/src"}),), reads),
                program=f"from forge_tools import list_files, read_file\nlist_files(path='/workspace/src')\n"
                f"print(sum(read_file(path=p).count('\\n') for p in {names}))",
            ),
            Task(
                name=f"the largest of {size} files",
                phases=(tuple(("file_info", {"path": path}) for path in paths),),
                program=f"from forge_tools import file_info\n"
                f"print(max((file_info(path=p).get('size', 0), p) for p in {names}))",
            ),
            Task(
                name=f"copy {size} files in capitals",
                phases=(reads, tuple(("write_file", {"path": _copy(path), "content": TEXT.upper()}) for path in paths)),
                program=f"from forge_tools import read_file, write_file\nfor p in {names}:\n"
                "    write_file(path=p.replace('/src/', '/out/'), content=read_file(path=p).upper())\nprint('done')",
            ),
            Task(
                name=f"search, then read {size} files",
                phases=((("grep_files", {"pattern": "line 7", "path": "/workspace/src", "mode": "files"}),), reads),
                program="from forge_tools import grep_files, read_file\n"
                "grep_files(pattern='line 7', path='/workspace/src', mode='files')\n"
                f"print([p for p in {names} if 'line 7' in read_file(path=p)])",
            ),
        ]
    return tasks


TEXT = "".join(f"line {number} of a file that somebody keeps in a project\n" for number in range(FILE_LINES))


def _copy(path: str) -> str:
    return path.replace("/src/", "/out/")


async def rows(pace: Pace) -> list[Row]:
    tasks = file_tasks()
    tasks = tasks[:: max(1, round(1 / pace.scale))] if pace.scale < 1 else tasks
    many = [task for task in tasks if len(task.calls) >= MANY]
    sent = {kind: [await replay(task, kind) for task in many] for kind in ("turns", "batched", "program")}
    total = {kind: (sum(each[0] for each in of), sum(each[1] for each in of)) for kind, of in sent.items()}
    found = f"{len(many)} tasks of {MANY} calls and more"
    kib = {kind: sums[0] / 1024 for kind, sums in total.items()}
    bytes_sent, requests = f"request bodies, {found} (KiB)", f"requests, {found}"
    return [
        row(bytes_sent, kib["program"], peer=kib["turns"], peer_name="turns", goal=at_most(0.35)),
        row(requests, total["program"][1], peer=total["turns"][1], peer_name="turns", goal=at_most(0.35)),
        row(bytes_sent, kib["program"], peer=kib["batched"], peer_name="batched turns"),
        row(requests, total["program"][1], peer=total["batched"][1], peer_name="batched turns"),
        *await _costs(pace),
    ]


async def replay(task: Task, kind: str) -> tuple[int, int]:
    """(bytes of all request bodies, number of requests) of one task in a session of its own."""
    if kind == "program":
        turns: list[Sequence[Call]] = [((RUN_CODE, {"code": task.program}),)]
    elif kind == "batched":
        turns = list(task.phases)
    else:
        turns = [(call,) for call in task.calls]
    script = [WireTurn(calls=tuple(WireCall(name=name, args=args) for name, args in calls)) for calls in turns]
    with _project() as (project, home), WireServer([*script, WireTurn(say="Done.")]) as server:
        home.mkdir(parents=True)
        address = server.base_url("openai")
        (home / "config.yaml").write_text(f"models: {{openai-compatible: {{base_url: '{address}'}}}}\n")
        async with WorkerRuntime(
            directory=project, home=home, model="openai-compatible:wire", approval_mode="approve_all"
        ) as runtime:
            result = await runtime.turn(f"Please do this: {task.name}.")
            assert result.response == "Done.", result
        return sum(len(json.dumps(request.body)) for request in server.requests), len(server.requests)


@contextmanager
def _project() -> Iterator[tuple[Path, Path]]:
    with project_and_home() as (project, home):
        (project / "src").mkdir()
        for number in range(12):
            (project / "src" / f"m{number}.txt").write_text(TEXT)
        yield project, home


async def _costs(pace: Pace) -> list[Row]:
    async with AsyncExitStack() as stack:
        project, home = stack.enter_context(_project())
        session = await stack.enter_async_context(
            open_session(project, home=ForgeHome(home), approval="auto_deny", journal=True)
        )
        walls = session.path.walls
        assert walls is not None
        python = own_interpreter(home)
        bare_python = Job(
            argv=(python.path, "-I", "-c", "pass"), reads_only=True, streams=Streams.APART, shown=python.shown
        )
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="bench-programs-"))
        probe = {"path": "src/m0.txt"}
        loop = f"from forge_tools import file_exists\nfor _ in range({CALLS}): file_exists(path='src/m0.txt')"

        def program(code: str, times: int = 1) -> Block:
            async def run(_: Any) -> None:
                for _number in range(times):
                    outcome = await session.call(RUN_CODE, {"code": code})
                    assert outcome.ok, outcome.text

            return Block(run=run)

        async def by_model(_: Any) -> None:
            for _number in range(CALLS):
                assert (await session.call("file_exists", probe)).ok

        async def bare(_: Any) -> None:
            for _number in range(STARTS):
                started = await walls.start(bare_python)
                await started.child.wait()

        peers = await program_peers(stack, Path(folder))
        blocks = {
            "inside": program(loop),
            "import": program("from forge_tools import file_exists"),
            "model": Block(run=by_model),
            "start": program("pass", STARTS),
            "bare": Block(run=bare),
        }
        for peer in peers:
            blocks[f"{peer.name} calls"] = Block(run=peer.run(peer.loop.format(CALLS), 1))
            blocks[f"{peer.name} start"] = Block(run=peer.run(peer.nothing, STARTS))
        for block in blocks.values():
            if (waiting := block.run(None)) is not None:
                await waiting  # type: ignore[misc]
        seconds = await race_blocks(blocks, rounds=pace.rounds)
    inside = (seconds["inside"] - seconds["import"]) / CALLS * 1e6
    start_ms, bare_ms = seconds["start"] / STARTS * 1e3, seconds["bare"] / STARTS * 1e3
    call, start = "one call inside a program, path and journal on (µs)", "start of a program (ms)"
    rows = [
        row(call, inside, peer=seconds["model"] / CALLS * 1e6, peer_name="the same call by a model", goal=at_most(3)),
        row(start, start_ms, peer=bare_ms, peer_name="python -I -c pass, same walls", goal=at_most(2)),
    ]
    for peer in peers:
        begun = seconds[f"{peer.name} start"] / STARTS
        rows.append(row(call, inside, peer=(seconds[f"{peer.name} calls"] - begun) / CALLS * 1e6, peer_name=peer.name))
        rows.append(row(start, start_ms, peer=begun * 1e3, peer_name=peer.name))
    return rows
