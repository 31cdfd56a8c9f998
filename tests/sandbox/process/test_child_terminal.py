"""A real terminal: job control, Ctrl-C and Ctrl-D as bytes, its size, and input nobody reads."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import time
from pathlib import Path

import pytest
from tests.deadlines import PATIENCE

from golem_forge.sandbox.errors import SandboxError
from golem_forge.sandbox.process.child import Child
from golem_forge.sandbox.walls.model import Streams

from .conftest import until_output

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
