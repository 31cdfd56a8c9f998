"""What a look at all user tools costs when nothing changed, as before every model request.

Beside it: a bare os.stat of each folder and file, which is the least that could notice a change, and reading every
manifest again, which is what a registry without marks would do. Then a start with and without the registry's memory,
and what one change among many costs until a session's catalog has it.
"""

from __future__ import annotations

import itertools
import os
import shutil
import tempfile
import time
from pathlib import Path
from typing import Any

from benchmarks.harness import Block, Pace, race_blocks
from benchmarks.rows import Row, at_most, row
from golem_forge.agent.session import open_session
from golem_forge.storage.home import ForgeHome
from golem_forge.usertools.manifest.tool_yaml import read_manifest
from golem_forge.usertools.registry import Registry

SIZES = (50, 1_000, 10_000)
STARTED = 1_000
AT_REST_S = 0.05
"""A file that was written in this very tick is read twice, by a registry that waits until it is over."""
OURS = "ours"
UNCHANGED = "nothing changed"
STAT = "os.stat of each"
READING = "reading every tool.yaml"
MANIFEST = """\
name: {name}
description: Summarise the commits of a repository, number {number}
version: 1.0.0
entrypoint: run.sh
parameters:
  - name: format
    type: string
    description: How each commit is written
    enum: [oneline, full]
  - name: count
    type: integer
    description: How many commits
    min: 1
    max: 100
  - name: since
    type: string
    description: The first day that counts
"""


async def rows(pace: Pace) -> list[Row]:
    found: list[Row] = []
    with tempfile.TemporaryDirectory(prefix="bench-registry-") as folder:
        for size in SIZES:
            home = make_home(Path(folder) / str(size), pace.amount(size) if size > STARTED else size)
            found += await _refreshing(home, pace)
        found += await _starting(ForgeHome(Path(folder) / str(STARTED)))
        found += await _changing(ForgeHome(Path(folder) / str(STARTED)), pace)
    return found


def make_home(path: Path, count: int) -> ForgeHome:
    for number in range(count):
        name = f"tool-{number:05}"
        folder = path / "tools" / name
        folder.mkdir(parents=True)
        (folder / "tool.yaml").write_text(MANIFEST.format(name=name, number=number))
        (folder / "run.sh").write_text(f"#!/bin/sh\necho {number}\n")
    return ForgeHome(path)


async def _refreshing(home: ForgeHome, pace: Pace) -> list[Row]:
    registry = Registry(home)
    registry.refresh()
    registry.refresh()
    count = len(registry.entries)
    manifests = [entry.folder / "tool.yaml" for entry in registry.entries.values()]
    tools = home.path / "tools"
    paths = [str(path) for path in (tools, *tools.iterdir(), *tools.glob("*/*"))]

    def ours(_: Any) -> None:
        assert registry.refresh() is None

    def bare(_: Any) -> None:
        stat = os.stat
        for path in paths:
            stat(path)

    def reading(_: Any) -> None:
        for path in manifests:
            read_manifest(path.read_bytes(), folder=path.parent.name)

    seconds = await race_blocks({OURS: Block(run=ours), STAT: Block(run=bare)}, rounds=pace.rounds)
    again = await race_blocks({READING: Block(run=reading)}, rounds=1)
    name = f"refresh, {count:,} unchanged tools (ms)"
    mine = seconds[OURS] * 1e3
    return [
        row(name, mine, peer=seconds[STAT] * 1e3, peer_name=STAT, goal=at_most(2)),
        row(name, mine, peer=again[READING] * 1e3, peer_name=READING),
    ]


async def _starting(home: ForgeHome) -> list[Row]:
    def forget() -> None:
        shutil.rmtree(home.path / "cache", ignore_errors=True)

    def start(_: Any) -> None:
        assert Registry(home).refresh() is not None

    first = await race_blocks({OURS: Block(run=start, prepare=forget)}, rounds=1)
    later = await race_blocks({OURS: Block(run=start)}, rounds=3)
    return [
        row(
            f"first refresh of a start, {STARTED:,} tools remembered (ms)",
            later[OURS] * 1e3,
            peer=first[OURS] * 1e3,
            peer_name="nothing remembered",
            goal=at_most(0.5),
        )
    ]


async def _changing(home: ForgeHome, pace: Pace) -> list[Row]:
    """The folders' tools are drafts, but that makes no difference: their standing is looked up all the same."""
    numbers = itertools.count()
    with tempfile.TemporaryDirectory(prefix="bench-project-") as project:
        async with open_session(project, home=home, journal=False) as session:
            tools = session.user_tools
            assert tools is not None

            def change() -> None:
                number = next(numbers)
                (home.path / "tools" / f"tool-{number:05}" / "run.sh").write_text(f"echo changed {number}\n")
                time.sleep(AT_REST_S)

            def changed(_: Any) -> None:
                tools.refresh()

            def unchanged(_: Any) -> None:
                assert tools.refresh() is None

            blocks = {OURS: Block(run=changed, prepare=change), UNCHANGED: Block(run=unchanged)}
            seconds = await race_blocks(blocks, rounds=pace.rounds)
    name = f"refresh of a session, one of {STARTED:,} tools changed (ms)"
    ms = {each: value * 1e3 for each, value in seconds.items()}
    return [row(name, ms[OURS], peer=ms[UNCHANGED], peer_name=UNCHANGED)]
