"""Raw pipes to a child, and the end that is kept of a long standard error."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator

import pytest
from tests.deadlines import PATIENCE

from golem_forge.sandbox.errors import SandboxError
from golem_forge.sandbox.process.child import Child, start_process
from golem_forge.sandbox.process.launch import TAIL_BYTES, TailBuffer, TreeRoot
from golem_forge.sandbox.walls.model import Streams

from .launches import Plain, launch_of


async def until_read(descriptor: int, size: int) -> bytes:
    found = b""
    while len(found) < size:
        try:
            data = os.read(descriptor, 1 << 16)
        except BlockingIOError:
            await asyncio.sleep(0.005)
            continue
        if not data:
            break
        found += data
    return found


@pytest.fixture
def pipes() -> Iterator[dict[str, int]]:
    ends: dict[str, int] = {}
    ends["theirs in"], ends["in"] = os.pipe()
    ends["out"], ends["theirs out"] = os.pipe()
    os.set_blocking(ends["out"], False)
    yield ends
    for descriptor in ends.values():
        os.close(descriptor)


async def begun(root: TreeRoot, script: str, pipes: dict[str, int]) -> Child:
    ends = {"stdin": pipes["theirs in"], "stdout": pipes["theirs out"]}
    child = await start_process(launch_of(root, "bash", "-c", script), Streams.MERGED, filter=Plain, **ends)
    for name in ("theirs in", "theirs out"):
        os.close(pipes.pop(name))
    return child


async def test_bytes_pass_both_ways_unchanged(root, pipes):
    child = await begun(root, "echo wrong >&2; exec cat", pipes)
    every = bytes(range(256)) * 10
    assert os.write(pipes["in"], every) == len(every)
    assert await asyncio.wait_for(until_read(pipes["out"], len(every)), PATIENCE) == every
    os.close(pipes.pop("in"))
    ending = await child.wait(PATIENCE)
    assert ending is not None and ending.exit_code == 0
    assert child.tail is not None and child.tail.lines(20) == ("wrong",)
    assert await until_read(pipes["out"], 1) == b""


async def test_what_was_written_before_the_end_can_be_read_after_it(root, pipes):
    child = await begun(root, "echo last words", pipes)
    assert await child.wait(PATIENCE) is not None
    assert await asyncio.wait_for(until_read(pipes["out"], 100), PATIENCE) == b"last words\n"


async def test_a_start_that_fails_says_why_and_keeps_nothing(root, pipes):
    launch = launch_of(root, "true")
    launch.argv = ("/bin/sh", "-c", "echo the reason >&2; exit 1")
    ends = {"stdin": pipes["theirs in"], "stdout": pipes["theirs out"]}
    with pytest.raises(SandboxError, match="the reason"):
        await start_process(launch, Streams.MERGED, filter=Plain, **ends)
    os.close(pipes.pop("theirs out"))
    assert os.read(pipes["out"], 1) == b""  # nobody else holds its other end


def test_a_tail_is_short_however_much_comes():
    tail = TailBuffer()
    for number in range(20_000):
        tail.append(f"line {number} ä\n")
    assert len(tail.text().encode()) <= TAIL_BYTES
    assert tail.lines(2) == ("line 19998 ä", "line 19999 ä")
    assert tail.text().startswith("line ")  # no half line
    tail.append("x" * (3 * TAIL_BYTES))
    assert tail.text() == "x" * TAIL_BYTES


def test_a_tail_of_little_is_all_of_it():
    tail = TailBuffer()
    assert tail.text() == "" and tail.lines(20) == ()
    tail.append("first\n\n  \nsecond")
    assert tail.lines(20) == ("first", "second") and tail.lines(1) == ("second",)
