"""Ending: nobody of a tree is left, whatever its members do about it, and nobody waits longer than a second."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import textwrap
from pathlib import Path

import pytest
from tests.deadlines import LONG, within

from golem_forge.sandbox.processes import tree
from golem_forge.sandbox.processes.launch import Root
from golem_forge.sandbox.processes.start import start
from golem_forge.sandbox.walls.job import Streams

from .conftest import BOTH, Plain, gone_within, launch_of, living, until_output

DOUBLE_FORK = "(setsid sh -c 'sleep 61 & sleep 62 &' &);"
SHAPES = {
    "background": "sleep 60 & sleep 60 &",
    "setsid": "setsid sleep 60 & setsid setsid sleep 61 &",
    "double fork": DOUBLE_FORK,
    "ignores TERM": "trap '' TERM; (trap '' TERM; sleep 60) & setsid sh -c 'trap \"\" TERM HUP; sleep 60' &",
    "holds stdout": "setsid sh -c 'trap \"\" TERM; sleep 60; echo late' & ",
    "stopped": "sleep 60 & kill -STOP $!;",
}


@pytest.fixture(params=SHAPES, ids=lambda name: name.replace(" ", "-"))
def shape(request: pytest.FixtureRequest) -> str:
    return SHAPES[request.param]


async def test_end_leaves_nobody(run, shape, marker):
    child = await run(f"{shape} echo there; sleep 60")
    await until_output(child, "there")
    with within(1):
        ending = await child.end()
    assert living(marker) == []
    assert ending.code == "ENDED"
    assert ending.signal in (signal.SIGTERM, signal.SIGKILL)
    assert child.output.read() == b"there\n"
    assert await child.end() is ending
    assert await child.wait() is ending


async def test_what_a_command_leaves_ends_with_it(run, shape, marker):
    child = await run(f"{shape} echo there; exit 5")
    await until_output(child, "there")
    with within(1):
        ending = await child.wait(30)
    assert living(marker) == []
    assert (ending.exit_code, ending.signal, ending.code) == (5, None, "")
    assert child.output.read() == b"there\n"


async def test_timeout_keeps_what_came(run, marker):
    with within(2):
        child = await run("echo partial; trap '' TERM; setsid sleep 60 & sleep 60", timeout_s=1)
        ending = await child.wait()
    assert living(marker) == []
    assert ending.code == "TIMEOUT"
    assert child.output.read() == b"partial\n"
    assert ending.seconds >= 1


async def test_term_gives_time_for_a_goodbye(run, monkeypatch):
    monkeypatch.setattr("golem_forge.sandbox.processes.child.GRACE_S", LONG)
    child = await run("trap 'echo bye; exit 7' TERM; echo there; while :; do sleep 0.05; done")
    await until_output(child, "there")
    ending = await child.end("TIMEOUT")
    assert (ending.code, ending.exit_code) == ("TIMEOUT", 7)
    assert child.output.read().endswith(b"bye\n")


async def test_the_first_reason_counts_and_a_lost_waiter_stops_nothing(run, marker):
    child = await run("trap '' TERM; echo there; sleep 60")
    await until_output(child, "there")
    waiting = asyncio.create_task(child.end("TIMEOUT"))
    await asyncio.sleep(0.05)
    waiting.cancel()
    assert (await child.wait(30)).code == "TIMEOUT"
    assert (await child.end("ENDED")).code == "TIMEOUT"
    assert living(marker) == []


async def test_wait_gives_up_and_goes_on(run):
    child = await run("trap 'exit 4' USR1; echo there; while :; do sleep 0.05; done")
    await until_output(child, "there")
    assert await child.wait(0.02) is None
    assert child.ending is None
    child.signal(signal.SIGUSR1)
    assert (await child.wait(30)).exit_code == 4


async def test_signal_goes_to_the_commands_group(run):
    child = await run("trap 'echo int' INT; trap 'echo hup' HUP; (trap - INT; echo there; sleep 60); echo on; sleep 60")
    await until_output(child, "there")
    child.signal(signal.SIGINT)
    await until_output(child, "on")
    assert b"int" in child.output.read()
    child.signal(signal.SIGKILL)
    ending = await child.wait(30)
    assert (ending.signal, ending.code) == (signal.SIGKILL, "")
    child.signal(signal.SIGKILL)  # nobody there any more


async def test_afterwards_comes_once_and_last(root, marker):
    seen = []
    launch = launch_of(root, "sh", "-c", "sleep 60 & exit 0", env={"MARKER": marker})
    launch.afterwards = lambda: seen.append(living(marker))
    child = await start(launch, Streams.MERGED, stdin=None, filter=Plain)
    await child.wait()
    await child.end()
    assert seen == [[]]


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSTOP], ids=["killed", "stopped"])
async def test_a_launcher_that_cannot_do_its_work(marker, number):
    launch = launch_of(Root.LAUNCHER, "sh", "-c", "sleep 60 & sleep 61 & echo there; sleep 60", env={"MARKER": marker})
    child = await start(launch, Streams.MERGED, stdin=None, filter=Plain)
    await until_output(child, "there")
    os.kill(child.pid, number)
    with within(1.5):
        if number == signal.SIGSTOP:
            await child.end()
        else:
            assert (await child.wait(30)).signal == signal.SIGKILL
        gone_within(marker, 30)


async def test_the_outer_program_killed_from_outside(marker):
    launch = launch_of(Root.NAMESPACE, "sh", "-c", f"{DOUBLE_FORK} echo there; sleep 60", env={"MARKER": marker})
    child = await start(launch, Streams.MERGED, stdin=None, filter=Plain)
    await until_output(child, "there")
    os.kill(tree.stat(child.pid).parent, signal.SIGKILL)
    ending = await child.wait(30)
    assert ending.signal == signal.SIGKILL
    assert living(marker) == []


FORGE = """
    import asyncio, sys
    sys.path[:0] = [sys.argv[1]]
    import conftest
    from golem_forge.sandbox.processes.launch import Root
    from golem_forge.sandbox.processes.start import start
    from golem_forge.sandbox.walls.job import Streams

    async def main():
        for streams in Streams:
            launch = conftest.launch_of(
                Root(sys.argv[2]), "bash", "-c", sys.argv[3], env={"MARKER": sys.argv[4]},
                terminal=streams is Streams.TERMINAL,
            )
            child = await start(launch, streams, stdin=None, filter=conftest.Plain)
            await child.output.more(0, 10)
        print("running", flush=True)
        await child.wait()

    asyncio.run(main())
"""


@pytest.mark.parametrize("kind", BOTH, ids=lambda kind: kind.value)
async def test_forge_killed(kind, marker):
    script = f"trap '' TERM HUP; {DOUBLE_FORK} setsid sleep 60 & echo there; sleep 60"
    forge = await asyncio.create_subprocess_exec(
        sys.executable,
        "-c",
        textwrap.dedent(FORGE),
        str(Path(__file__).parent),
        kind.value,
        script,
        marker,
        stdout=asyncio.subprocess.PIPE,
    )
    assert await asyncio.wait_for(forge.stdout.readline(), 40) == b"running\n"
    assert len(living(marker)) >= 9
    forge.kill()
    with within(1):
        gone_within(marker, 30)
    await forge.wait()


KILLED_WHILE_STARTING = """
    import asyncio, os, signal, sys, threading, time
    sys.path[:0] = [sys.argv[1]]
    import conftest
    from golem_forge.sandbox.processes import start as starting
    from golem_forge.sandbox.processes.launch import Root
    from golem_forge.sandbox.walls.job import Streams

    spawn = starting.spawn

    def killed_soon_after(*given):
        pid = spawn(*given)
        time.sleep(float(sys.argv[4]))
        os.kill(os.getpid(), signal.SIGKILL)
        return pid

    starting.spawn = killed_soon_after
    launch = conftest.launch_of(Root(sys.argv[2]), "sleep", "60", env={"MARKER": sys.argv[3]})
    asyncio.run(starting.start(launch, Streams.MERGED, stdin=None, filter=conftest.Plain))
"""


@pytest.mark.parametrize("kind", BOTH, ids=lambda kind: kind.value)
@pytest.mark.parametrize("after", [0, 0.001, 0.002, 0.004])
async def test_forge_killed_while_it_starts_somebody(kind, after, marker):
    forge = await asyncio.create_subprocess_exec(
        sys.executable,
        *("-c", textwrap.dedent(KILLED_WHILE_STARTING), str(Path(__file__).parent), kind.value, marker, str(after)),
        stderr=asyncio.subprocess.DEVNULL,
    )
    assert await asyncio.wait_for(forge.wait(), 40) == -signal.SIGKILL
    gone_within(marker, 10)
