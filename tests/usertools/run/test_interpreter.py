"""Interpreters inside real walls: started ahead, used once, never looser than those started now, and none left over."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import multiprocessing
import os
import signal
import time
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest
from tests.deadlines import PATIENCE, ever_longer, within

from golem_forge.config.sandbox_block import MIB, ResourceLimits
from golem_forge.events.redaction import Redactor
from golem_forge.sandbox.process.monitor import MEMORY_LIMIT, TIMEOUT
from golem_forge.sandbox.walls.model import HostDirectory, HostGrant, Job, Level, ProbeReport
from golem_forge.sandbox.walls.walls import Walls
from golem_forge.sandbox.zones import AccessMode
from golem_forge.usertools.run.interpreter import (
    CALL_DIRECTORY,
    MOST_IDLE,
    InterpreterPool,
    WaitingInterpreter,
    python_job,
)

from .conftest import House, ran


async def _settled(interpreters: InterpreterPool) -> None:
    """Whatever was being started waits now."""
    while interpreters._starting:
        await asyncio.wait([entry.task for entry in interpreters._starting])
        await asyncio.sleep(0)


async def _waiting(interpreters: InterpreterPool, walls: Walls, job: Job) -> WaitingInterpreter:
    """The one that was started ahead for this job."""
    interpreters.prepare(walls, job)
    await _settled(interpreters)
    (waiting,) = interpreters._idle
    return waiting


@pytest.fixture
async def interpreters() -> AsyncIterator[InterpreterPool]:
    async with contextlib.aclosing(InterpreterPool()) as pool:
        yield pool


def _lives(pid: int) -> bool:
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    return False


async def test_one_started_now_runs_the_tool_inside_walls(house: House, interpreters: InterpreterPool) -> None:
    house.script(
        "import os, sys\nprint(sys.argv, sys.path[0], input(), os.environ['FORGE_CALL_ID'], os.getcwd())\n"
        "print(sorted(os.listdir('/forge')), os.listdir('/forge/inside'), sorted(os.listdir('/proc/self/fd')))\n"
        "try: open('/forge/inside/start.py', 'a')\nexcept OSError as error: print(error.strerror)\n"
    )
    job = replace(house.job(), env={"FORGE_CALL_ID": "c1"})
    done = await ran(await interpreters.take(house.walls(), job), argv=("--n=1",), stdin=b"hello")
    assert done.errors == ""
    lines = done.output.splitlines()
    assert lines[0] == "['/forge/tool/tool.py', '--n=1'] /forge/tool hello c1 /workspace"
    assert lines[1] == "['inside', 'tool'] ['start.py'] ['0', '1', '2', '3']"
    assert lines[2] == "Read-only file system"


async def test_one_started_ahead_is_given_to_the_next_equal_call_and_only_once(
    house: House, interpreters: InterpreterPool
) -> None:
    house.script("import os; print(os.environ['A'], os.environ.get('B'))")
    walls, job = house.walls(), house.job()
    waiting = await _waiting(interpreters, walls, replace(job, env={"A": "of another call", "B": "canary"}))
    environ = Path(f"/proc/{waiting.walled.child.pid}/environ").read_bytes()
    assert b"canary" not in environ
    taken = await interpreters.take(walls, replace(job, env={"A": "mine"}, limits=ResourceLimits(timeout_s=40)))
    assert taken is waiting
    assert interpreters.waiting == 0
    assert (await ran(taken)).output == "mine None\n"
    with pytest.raises(RuntimeError, match="once"):
        await taken.run("/forge/tool/tool.py")


async def test_a_call_that_comes_while_one_is_starting_gets_that_one(
    house: House, interpreters: InterpreterPool
) -> None:
    walls, job = house.walls(), house.job()
    interpreters.prepare(walls, job)
    interpreters.prepare(walls, job)
    (entry,) = interpreters._starting
    first, second = await asyncio.gather(interpreters.take(walls, job), interpreters.take(walls, job))
    assert first is entry.task.result()
    assert second is not first


async def test_other_walls_another_job_or_changed_walls_get_a_new_one(
    house: House, interpreters: InterpreterPool
) -> None:
    walls, job = house.walls(), house.job()
    waiting = await _waiting(interpreters, walls, job)
    assert await interpreters.take(house.walls(), job) is not waiting
    assert await interpreters.take(walls, replace(job, reads_only=False)) is not waiting
    assert await interpreters.take(walls, replace(job, limits=ResourceLimits(memory=100 * MIB))) is not waiting
    assert await interpreters.take(walls, replace(job, env={"LC_ALL": "C"})) is not waiting
    (house.workspace / ".env").write_text("KEY=canary")  # a secret that its walls do not mask yet
    house.script("print(open('/workspace/.env').read())")
    taken = await interpreters.take(walls, job)
    assert taken is not waiting
    done = await ran(taken)
    assert "canary" not in done.output
    assert "PermissionError" in done.errors
    assert await waiting.walled.child.wait(PATIENCE) is not None


async def test_a_secret_learned_meanwhile_is_kept_out_of_output(house: House, interpreters: InterpreterPool) -> None:
    house.script("print('it is canary-value')")
    redactor = Redactor()
    walls, job = house.walls(redactor=redactor), house.job()
    waiting = await _waiting(interpreters, walls, job)
    redactor.add_secret("KEY", "canary-value")
    taken = await interpreters.take(walls, job)
    assert taken is not waiting
    assert (await ran(taken)).output == "it is [secret KEY]\n"
    waiting = await _waiting(interpreters, walls, job)
    assert await interpreters.take(walls, job) is waiting


async def test_a_zone_that_was_exchanged_is_what_a_start_refuses(house: House, interpreters: InterpreterPool) -> None:
    walls, job = house.walls(), house.job()
    await _waiting(interpreters, walls, job)
    house.workspace.rename(house.root / "moved")
    house.workspace.mkdir()
    with pytest.raises(Exception, match="another directory was put in the place of zone"):
        await interpreters.take(walls, job)


async def test_one_that_died_while_waiting_is_not_given(house: House, interpreters: InterpreterPool) -> None:
    walls, job = house.walls(), house.job()
    waiting = await _waiting(interpreters, walls, job)
    os.kill(waiting.walled.child.pid, signal.SIGKILL)
    await waiting.walled.child.wait(PATIENCE)
    taken = await interpreters.take(walls, job)
    assert taken is not waiting
    assert taken.alive


async def test_never_more_than_four_wait_and_the_oldest_goes_first(house: House, interpreters: InterpreterPool) -> None:
    walls = house.walls()
    jobs = [house.job(limits=ResourceLimits(open_files=200 + number)) for number in range(MOST_IDLE + 2)]
    for job in jobs:
        interpreters.prepare(walls, job)
        await _settled(interpreters)
        assert interpreters.waiting <= MOST_IDLE
    kept = [one for one in interpreters._idle if any(one.fits(walls, job) for job in jobs[2:])]
    assert len(kept) == MOST_IDLE
    for job in jobs * 3:  # all at once
        interpreters.prepare(walls, job)
    assert interpreters.waiting <= MOST_IDLE


async def test_what_waits_too_long_goes(house: House) -> None:
    walls, job = house.walls(), house.job()
    async with contextlib.aclosing(InterpreterPool(idle_s=0.5)) as interpreters:
        interpreters.prepare(walls, job)
        (entry,) = interpreters._starting
        waiting = await entry.task
        assert waiting is not None
        assert await waiting.walled.child.wait(PATIENCE) is not None
        assert interpreters.waiting == 0


async def test_nothing_waits_with_a_way_out(house: House, interpreters: InterpreterPool) -> None:
    walls, job = house.walls(), house.job()
    call = HostDirectory(str(house.workspace), CALL_DIRECTORY)
    interpreters.prepare(walls, replace(job, hosts=(HostGrant("example.test"),)))
    interpreters.prepare(walls, replace(job, shown=(*job.shown, call)))
    if hasattr(job, "shares_network"):
        interpreters.prepare(walls, replace(job, shares_network=True))
    assert interpreters.waiting == 0


async def test_preparing_never_raises(house: House) -> None:
    missing = HostDirectory(str(house.root / "nowhere"), "/forge/nowhere")
    walls, job = house.walls(), house.job()
    async with contextlib.aclosing(InterpreterPool()) as interpreters:
        interpreters.prepare(walls, replace(job, shown=(*job.shown, missing)))
        await _settled(interpreters)
        assert interpreters.waiting == 0
    interpreters.prepare(walls, job)
    assert interpreters.waiting == 0


async def test_time_counts_from_the_order_and_limits_hold(house: House, interpreters: InterpreterPool) -> None:
    for seconds in ever_longer(0.5):
        house.script("import time\nprint('on', flush=True)\ntime.sleep(60)")
        walls, job = house.walls(), house.job(limits=ResourceLimits(timeout_s=seconds, memory=200 * MIB))
        await _waiting(interpreters, walls, job)
        await asyncio.sleep(1.2 * seconds)
        interpreter = await interpreters.take(walls, job)
        began = time.monotonic()
        with within(seconds):
            done = await ran(interpreter)
        assert time.monotonic() - began > 0.8 * seconds
        if done.output:
            break
    assert (done.ending.code, done.output) == (TIMEOUT, "on\n")
    house.script(
        "import time\nbig = bytearray(400 << 20)\nfor i in range(0, len(big), 4096): big[i] = 1\ntime.sleep(60)"
    )
    hungry = await interpreters.take(walls, replace(job, limits=ResourceLimits(timeout_s=40, memory=200 * MIB)))
    assert (await ran(hungry)).ending.code == MEMORY_LIMIT


async def test_processor_time_is_limited(house: House, interpreters: InterpreterPool) -> None:
    house.script("print(open('/proc/self/limits').read())")
    walls, job = house.walls(), house.job(limits=ResourceLimits(timeout_s=50, cpu_s=7))
    done = await ran(await interpreters.take(walls, job))
    assert done.output.partition("Max cpu time")[2].split()[0] == "7"


async def test_a_large_payload_arrives_whole(house: House, interpreters: InterpreterPool) -> None:
    house.script("import sys, hashlib; print(hashlib.sha256(sys.stdin.buffer.read()).hexdigest())")
    payload = os.urandom(5 << 20)
    done = await ran(await interpreters.take(house.walls(), house.job()), stdin=payload)
    assert done.output.strip() == hashlib.sha256(payload).hexdigest()


async def test_closing_ends_those_that_wait_start_and_run(house: House) -> None:
    house.script("import time; time.sleep(60)")
    walls, job = house.walls(), house.job()
    interpreters = InterpreterPool()
    running = await interpreters.take(walls, job)
    await running.run("/forge/tool/tool.py")
    interpreters.prepare(walls, job)
    await _settled(interpreters)
    interpreters.prepare(walls, replace(job, limits=ResourceLimits(open_files=99)))
    await asyncio.sleep(0)
    (waiting,) = interpreters._idle
    pids = [one.walled.child.pid for one in (running, waiting)]
    assert all(map(_lives, pids))
    with within(1):
        await interpreters.aclose()
    assert not any(map(_lives, pids))
    with pytest.raises(RuntimeError, match="ended"):
        await interpreters.take(walls, job)


async def test_a_cancelled_take_leaves_nothing(house: House, interpreters: InterpreterPool) -> None:
    walls, job = house.walls(), house.job()
    interpreters.prepare(walls, job)
    (entry,) = interpreters._starting
    taking = asyncio.create_task(interpreters.take(walls, job))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    taking.cancel()
    await asyncio.wait([taking, entry.task])
    one = entry.task.result()
    assert one is not None
    assert await one.walled.child.wait(PATIENCE) is not None
    assert interpreters.waiting == 0


async def test_without_walls_the_starting_program_stands_in_its_own_place(house: House) -> None:
    script = house.script("import sys; print(sys.argv[0], sys.path[0])")
    walls = house.walls(report=ProbeReport(level=Level.OFF))
    interpreter = await WaitingInterpreter.start(walls, house.job(Level.OFF))
    done = await ran(interpreter, str(script))
    assert done.output == f"{script} {script.parent}\n"


async def test_a_writer_started_ahead_writes(house: House, interpreters: InterpreterPool) -> None:
    house.script("open('/workspace/made', 'w').write('x')")
    walls: Walls = house.walls(AccessMode.RW)
    job = replace(house.job(), reads_only=False)
    await _waiting(interpreters, walls, job)
    done = await ran(await interpreters.take(walls, job))
    assert done.errors == ""
    assert (house.workspace / "made").read_text() == "x"


def test_what_the_program_shows_is_shown_once(house: House) -> None:
    program = house.program()
    job = python_job(Job(argv=("x",), shown=program.shown), program, Level.FULL)
    assert job.argv == (*program.argv, "/forge/inside/start.py")
    assert len(job.shown) == len(program.shown) + 1


def test_a_killed_forge_leaves_no_interpreter(house: House) -> None:
    forks = multiprocessing.get_context("fork")
    ours, theirs = forks.Pipe()

    async def wait_with_one() -> None:
        interpreters = InterpreterPool()
        waiting = await _waiting(interpreters, house.walls(), house.job())
        theirs.send(waiting.walled.child.pid)
        await asyncio.sleep(60)

    forge = forks.Process(target=lambda: asyncio.run(wait_with_one()))
    forge.start()
    pid = ours.recv()
    assert _lives(pid)
    forge.kill()
    forge.join()
    until = time.monotonic() + PATIENCE
    while _lives(pid) and time.monotonic() < until:
        time.sleep(0.01)
    assert not _lives(pid)
