"""Trees of both kinds, and whoever is left of them."""

from __future__ import annotations

import asyncio
import os
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.deadlines import PATIENCE

from golem_forge.config.sandbox_block import ResourceLimits
from golem_forge.sandbox.process.child import Child, start_process
from golem_forge.sandbox.process.launch import TreeRoot
from golem_forge.sandbox.walls.model import Streams

from .launches import Plain, launch_of


@pytest.fixture(params=TreeRoot, ids=str)
def root(request: pytest.FixtureRequest) -> TreeRoot:
    return request.param


@pytest.fixture(autouse=True)
def ends_are_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever was killed is given up only when no machine, however busy, would take so long to be rid of it."""
    monkeypatch.setattr("golem_forge.sandbox.process.child.GIVE_UP_S", PATIENCE)


@pytest.fixture
def marker() -> Iterator[str]:
    """In the environment of everything a test starts; afterwards nothing with it may be left."""
    value = f"forge-test-{uuid.uuid4().hex}"
    yield value
    gone_within(value, PATIENCE)


@pytest.fixture
async def run(root: TreeRoot, marker: str) -> Any:
    """Starts `bash -c script` (or a command) in the tree of this test's kind."""
    children: list[Child] = []

    async def started(
        *command: str, streams: Streams = Streams.MERGED, stdin: bytes | None = None, **more: Any
    ) -> Child:
        if len(command) == 1:
            command = ("/bin/bash", "-c", command[0])
        launch = launch_of(
            root,
            *command,
            limits=ResourceLimits(**more),
            terminal=streams is Streams.TERMINAL,
            env={"MARKER": marker},
        )
        child = await start_process(launch, streams, stdin=stdin, filter=Plain)
        children.append(child)
        return child

    yield started
    for child in children:
        await child.end()


def living(marker: str) -> list[str]:
    """Whoever runs with this marker in its environment, by command line; the dead have neither."""
    found = []
    for place in Path("/proc").glob("[0-9]*"):
        try:
            if place.name != str(os.getpid()) and marker.encode() in (place / "environ").read_bytes():
                found.append((place / "cmdline").read_bytes().replace(b"\0", b" ").decode())
        except OSError:
            continue
    return found


def gone_within(marker: str, seconds: float) -> None:
    until = time.monotonic() + seconds
    while left := living(marker):
        assert time.monotonic() < until, f"still running: {left}"
        time.sleep(0.02)


async def until_output(child: Child, text: str, seconds: float = PATIENCE) -> None:
    """Waits for what the program writes when it is where the test wants it."""
    loop = asyncio.get_running_loop()
    until = loop.time() + seconds
    while text.encode() not in child.output.read():
        assert loop.time() < until, f"no {text!r} in {child.output.read()!r}"
        assert child.ending is None, child.output.read()
        await child.output.more(child.output.size, 0.5)
