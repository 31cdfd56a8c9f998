"""What walls cost: a walled `exec_command true` beside the same bwrap by hand and beside a bare spawn.

By hand means the same mounts and the same filter, given to bwrap by a program that does nothing else: no start report,
no inner stage with limits, nobody watching, no output kept. What it reads from descriptors is laid ready before the
clock starts. Our plan of the mounts is cached, as in a session that works. One row has the same command in a directory
of 50,000 files beside an empty one: once scanned, it is watched, and costs what the empty one does.

The last rows are a commit in a repository, beside the same commit in a clone of it in a plain bwrap that shows
everything: ours goes on to carry the commit over to the person's repository, where git verifies it.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import tempfile
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.harness import Block, Pace, race_blocks
from benchmarks.ours import session_in
from benchmarks.rows import Row, at_most, at_most_more, row
from golem_forge.sandbox.process.launch import ChildFd, Launch
from golem_forge.sandbox.walls.model import Job
from golem_forge.sandbox.walls.walls import Walls

BARE = "asyncio spawn"
BY_HAND = "bwrap by hand"
COMMAND = ("bash", "--noprofile", "--norc", "-c", "make_nothing() { :; }; make_nothing")
REPEATS = 5
PACKAGES = 500
DIRECTORIES_EACH = 10
FILES_EACH = 10


async def rows(pace: Pace) -> list[Row]:
    async with AsyncExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="bench-walls-"))
        session = await stack.enter_async_context(session_in(Path(folder)))
        walls = session.path.walls
        assert walls is not None

        async def whole_call(_: Any) -> None:
            for _number in range(REPEATS):
                outcome = await session.call("exec_command", {"cmd": COMMAND[-1]})
                assert outcome.ok, outcome.text

        async def walls_alone(_: Any) -> None:
            for _number in range(REPEATS):
                ending = await (await walls.start(Job(argv=COMMAND))).child.wait()
                assert ending is not None
                assert ending.exit_code == 0

        async def by_hand(ready: list[Launch]) -> None:
            for launch in ready:
                words, descriptors = _by_hand(launch)
                await _spawned([launch.argv[0], *words, "--", *COMMAND], launch.env, descriptors)

        async def bare(_: Any) -> None:
            for _number in range(REPEATS):
                await _spawned(["/bin/bash", *COMMAND[1:]], {"PATH": os.defpath}, ())

        large = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="bench-walls-large-")))
        _fill(large)
        beside = await stack.enter_async_context(session_in(large))
        in_large = beside.path.walls
        assert in_large is not None

        async def in_a_large_zone(_: Any) -> None:
            for _number in range(REPEATS):
                ending = await (await in_large.start(Job(argv=COMMAND))).child.wait()
                assert ending is not None
                assert ending.exit_code == 0

        commits: dict[str, Block] = {}
        for name, files in (("small", 50), ("many", 50_000)):
            where = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix=f"bench-git-{name}-")))
            _make_repositories(where / "ours", where / "plain", files)
            session_there = await stack.enter_async_context(session_in(where / "ours"))
            assert session_there.path.walls is not None
            inside = partial(_commit_inside, session_there.path.walls)
            by_bwrap = partial(_commit_by_hand, where / "plain")
            commits |= {name: Block(run=inside), f"{name} by hand": Block(run=by_bwrap)}
            await inside(None)
            await by_bwrap(None)

        blocks = {
            **commits,
            "whole": Block(run=whole_call),
            "large": Block(run=in_a_large_zone),
            "walls": Block(run=walls_alone),
            BY_HAND: Block(
                run=by_hand, prepare=lambda: [walls.prepare_launch(Job(argv=COMMAND)) for _ in range(REPEATS)]
            ),
            BARE: Block(run=bare),
        }
        await whole_call(None)
        await in_a_large_zone(None)
        seconds = await race_blocks(blocks, rounds=pace.rounds)
    ms = {name: value / REPEATS * 1e3 for name, value in seconds.items()}
    whole = "exec_command, the whole path (ms)"
    return [
        row("walls alone (ms)", ms["walls"], peer=ms[BY_HAND], peer_name=BY_HAND, goal=at_most(1.4)),
        row(whole, ms["whole"], peer=ms[BY_HAND], peer_name=BY_HAND),
        row(whole, ms["whole"], peer=ms[BARE], peer_name=BARE),
        row("walls in 50,000 files (ms)", ms["large"], peer=ms["walls"], peer_name="an empty zone", goal=at_most(1.1)),
        row(
            "git commit (ms)",
            seconds["small"] * 1e3,
            peer=seconds["small by hand"] * 1e3,
            peer_name="plain bwrap",
            goal=at_most_more(60),
        ),
        row(
            "git commit in 50,000 files (ms)",
            seconds["many"] * 1e3,
            peer=seconds["many by hand"] * 1e3,
            peer_name="plain bwrap",
            goal=at_most(2),
        ),
    ]


COMMIT = "echo $RANDOM >> d0/f0 && git -c user.name=n -c user.email=e commit -qam x"


async def _commit_inside(walls: Walls, _: Any) -> None:
    ending = await (await walls.start(Job(argv=("bash", "-c", COMMIT)))).child.wait()
    assert ending is not None
    assert ending.exit_code == 0


async def _commit_by_hand(where: Path, _: Any) -> None:
    words = ["/usr/bin/bwrap", "--unshare-all", "--dev-bind", "/", "/", "--chdir", str(where)]
    await _spawned([*words, "bash", "-c", COMMIT], {"PATH": os.defpath}, ())


def _make_repositories(root: Path, clone: Path, count: int) -> None:
    for number in range(count):
        directory = root / f"d{number // 100}"
        directory.mkdir(parents=True, exist_ok=True)
        (directory / f"f{number}").write_text(f"{number}\n")
    identity = ("-c", "user.name=n", "-c", "user.email=e", "-c", "gc.auto=0")
    for words in (("init", "-q"), ("add", "."), (*identity, "commit", "-qm", "all"), ("gc", "-q"), ("status",)):
        subprocess.run(["git", *words], cwd=root, check=True, stdout=subprocess.DEVNULL)
    subprocess.run(["git", "clone", "-q", root, clone], check=True)


def _fill(root: Path) -> None:
    """Half of it where a scan keeps all names, half below `node_modules`."""
    for package in range(PACKAGES):
        above = root / ("node_modules" if package % 2 else "packages") / f"p{package}"
        for number in range(DIRECTORIES_EACH):
            directory = above / f"d{number}"
            directory.mkdir(parents=True)
            for file in range(FILES_EACH):
                (directory / f"f{file}.py").touch()


def _by_hand(launch: Launch) -> tuple[list[str], tuple[int, ...]]:
    """The words our walls hand over by descriptor, with the numbers the descriptors have here."""
    given = dict(launch.descriptors)
    with os.fdopen(given.pop(ChildFd.ARGUMENTS), "rb") as file:
        words = [word.decode() for word in file.read().split(b"\0")[:-1]]
    at = words.index("--info-fd")
    assert words[at + 1] == str(ChildFd.INFO)
    del words[at : at + 2]
    for place, word in enumerate(words[:-1]):
        if word in ("--file", "--ro-bind-data", "--bind-fd", "--ro-bind-fd", "--seccomp"):
            words[place + 1] = str(given[int(words[place + 1])])
    assert ChildFd.FILTER in given
    return words, tuple(given.values())


async def _spawned(argv: list[str], env: dict[str, str], descriptors: tuple[int, ...]) -> None:
    child = await asyncio.create_subprocess_exec(
        *argv,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
        env=env,
        start_new_session=True,
        pass_fds=descriptors,
    )
    for descriptor in descriptors:
        os.close(descriptor)
    output, _ = await child.communicate()
    assert child.returncode == 0, output
