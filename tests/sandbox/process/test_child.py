"""Children that Forge talks to: their pipes, and what is typed into their terminal."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.deadlines import PATIENCE

from golem_forge.sandbox.errors import SandboxError
from golem_forge.sandbox.process.child import Child, start_process
from golem_forge.sandbox.process.launch import TAIL_BYTES, TailBuffer, TreeRoot
from golem_forge.sandbox.walls.model import Streams

from .conftest import until_output
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


TTY = {"streams": Streams.TERMINAL}


async def test_it_is_a_terminal_of_forty_by_one_hundred_and_twenty(run):
    child = await run("test -t 0 && test -t 1 && test -t 2 && stty size && echo hello >/dev/tty", **TTY)
    assert (await child.wait(PATIENCE)).exit_code == 0
    assert child.output.read() == b"40 120\r\nhello\r\n"


async def test_typing_and_the_end_of_input(run):
    child = await run("cat; echo over", **TTY)
    await child.write("你好\n".encode())
    await until_output(child, "你好\r\n你好\r\n")  # the terminal's echo, then the program's
    await child.write(b"\x04")
    assert (await child.wait(PATIENCE)).exit_code == 0
    assert child.output.read().endswith(b"over\r\n")
    await child.write(b"late")  # ignored


async def test_ctrl_c_is_a_byte(run):
    child = await run("trap 'echo caught; exit 9' INT; echo there; while :; do sleep 0.05; done", **TTY)
    await until_output(child, "there")
    await child.write(b"\x03")
    assert (await child.wait(PATIENCE)).exit_code == 9
    assert b"caught" in child.output.read()


async def foreground(child: Child, name: str) -> int:
    """Waits until a program of this name reads from the terminal: what is typed before may be thrown away."""
    until = time.monotonic() + PATIENCE
    while True:
        group = child._terminal.foreground()
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):  # it ended meanwhile
            if group is not None and Path(f"/proc/{group}/comm").read_text().strip() == name:
                return group
        assert time.monotonic() < until, child.output.read()
        await asyncio.sleep(0.02)


async def test_job_control(run):
    child = await run("/bin/bash", "--norc", "--noprofile", "-i", **TTY)
    await child.write(b"PS1='> '; echo re''ady\n")
    await until_output(child, "ready\r\n> ")
    shell = await foreground(child, "bash")
    await child.write(b"sleep 600\n")
    sleep = await foreground(child, "sleep")
    await child.write(b"\x1a")
    await until_output(child, "Stopped")
    assert await foreground(child, "bash") == shell
    await child.write(b"fg\n")
    assert await foreground(child, "sleep") == sleep
    await child.write(b"\x03")
    assert await foreground(child, "bash") == shell
    await child.write(b"exit 3\n")
    ending = await child.wait(PATIENCE)
    assert ending.exit_code == 3
    assert b"no job control" not in child.output.read()


async def test_a_signal_goes_to_the_foreground(run):
    child = await run("/bin/bash", "--norc", "--noprofile", "-i", **TTY)
    await child.write(
        b"PS1='> '; sh -c \"trap 'echo got''it; exit' INT; echo th''ere; while :; do sleep 0.05; done\"\n"
    )
    await until_output(child, "there")
    child.signal(signal.SIGINT)
    await until_output(child, "gotit")
    await child.write(b"echo still h''ere\n")
    await until_output(child, "still here")
    ending = await child.end()
    assert ending.signal == signal.SIGKILL  # an interactive shell ignores TERM
    assert ending.code == "ENDED"


async def test_input_nobody_reads_is_bounded(run):
    child = await run("stty raw -echo; echo there; sleep 600", **TTY)
    await until_output(child, "there")

    async def type_on() -> None:
        for _ in range(100):
            await child.write(b"x" * 8192)

    with pytest.raises(SandboxError, match="does not read its input"):
        await type_on()
    await child.end()


async def test_waiting_input_arrives_in_order(run):
    child = await run("stty raw -echo; echo there; sleep 0.3; head -c 56000 | cksum; exit", **TTY)
    await until_output(child, "there")
    data = b"".join(b"%07d\n" % number for number in range(7000))
    for place in range(0, len(data), 8000):
        await child.write(data[place : place + 8000])
    assert (await child.wait(PATIENCE)).exit_code == 0
    assert b" 56000" in child.output.read()


async def test_no_terminal(run):
    child = await run("sleep 600")
    with pytest.raises(SandboxError, match="no terminal"):
        await child.write(b"x")
