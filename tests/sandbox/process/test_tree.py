"""Ending: nobody of a tree is left, whatever its members do about it, and nobody waits longer than a second."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
from pathlib import Path
from typing import Any

import pytest
from tests import descriptors
from tests.deadlines import LONG, PATIENCE, ever_longer, within

from golem_forge.sandbox.process import launcher, monitor, watchdog_child
from golem_forge.sandbox.process import tree as watchdogs
from golem_forge.sandbox.process.child import start_process
from golem_forge.sandbox.process.launch import TreeRoot
from golem_forge.sandbox.process.watchdog_child import FORGE as FORGE_HANDLE
from golem_forge.sandbox.walls.model import Streams

from .conftest import gone_within, living, until_output
from .launches import Plain, launch_of

DOUBLE_FORK = "(setsid sh -c 'sleep 601 & sleep 602 &' &);"
SHAPES = {
    "background": "sleep 600 & sleep 600 &",
    "setsid": "setsid sleep 600 & setsid setsid sleep 601 &",
    "double fork": DOUBLE_FORK,
    "ignores TERM": "trap '' TERM; (trap '' TERM; sleep 600) & setsid sh -c 'trap \"\" TERM HUP; sleep 600' &",
    "holds stdout": "setsid sh -c 'trap \"\" TERM; sleep 600; echo late' & ",
    "stopped": "sleep 600 & kill -STOP $!;",
}
EVERY_SHAPE = " ".join(SHAPES.values())


async def test_end_leaves_nobody(run, marker):
    child = await run(f"{EVERY_SHAPE} echo there; sleep 600")
    await until_output(child, "there")
    with within(1):
        ending = await child.end()
    assert living(marker) == []
    assert ending.code == "ENDED"
    assert ending.signal in (signal.SIGTERM, signal.SIGKILL)
    assert child.output.read() == b"there\n"
    assert await child.end() is ending
    assert await child.wait() is ending


async def test_what_a_command_leaves_ends_with_it(run, marker):
    child = await run(f"{EVERY_SHAPE} echo there; exit 5")
    await until_output(child, "there")
    with within(1):
        ending = await child.wait(PATIENCE)
    assert living(marker) == []
    assert (ending.exit_code, ending.signal, ending.code) == (5, None, "")
    assert child.output.read() == b"there\n"


async def test_timeout_keeps_what_came(run, marker):
    for seconds in ever_longer(0.3):  # until it came
        with within(seconds + 1):
            child = await run("echo partial; trap '' TERM; setsid sleep 600 & sleep 600", timeout_s=seconds)
            ending = await child.wait()
        assert living(marker) == []
        assert ending.code == "TIMEOUT"
        assert ending.seconds >= seconds
        if child.output.size:
            break
    assert child.output.read() == b"partial\n"


async def test_term_gives_time_for_a_goodbye(run, monkeypatch):
    monkeypatch.setattr("golem_forge.sandbox.process.child.GRACE_S", LONG)
    child = await run("trap 'echo bye; exit 7' TERM; echo there; while :; do sleep 0.05; done")
    await until_output(child, "there")
    ending = await child.end("TIMEOUT")
    assert (ending.code, ending.exit_code) == ("TIMEOUT", 7)
    assert child.output.read().endswith(b"bye\n")


async def test_the_first_reason_counts_and_a_lost_waiter_stops_nothing(run, marker):
    child = await run("trap '' TERM; echo there; sleep 600")
    await until_output(child, "there")
    waiting = asyncio.create_task(child.end("TIMEOUT"))
    await asyncio.sleep(0.05)
    waiting.cancel()
    assert (await child.wait(PATIENCE)).code == "TIMEOUT"
    assert (await child.end("ENDED")).code == "TIMEOUT"
    assert living(marker) == []


async def test_wait_gives_up_and_goes_on(run):
    child = await run("trap 'exit 4' USR1; echo there; while :; do sleep 0.05; done")
    await until_output(child, "there")
    assert await child.wait(0.02) is None
    assert child.ending is None
    child.signal(signal.SIGUSR1)
    assert (await child.wait(PATIENCE)).exit_code == 4


async def test_signal_goes_to_the_commands_group(run):
    child = await run(
        "trap 'echo int' INT; trap 'echo hup' HUP; (trap - INT; echo there; sleep 600); echo on; sleep 600"
    )
    await until_output(child, "there")
    child.signal(signal.SIGINT)
    await until_output(child, "on")
    assert b"int" in child.output.read()
    child.signal(signal.SIGKILL)
    ending = await child.wait(PATIENCE)
    assert (ending.signal, ending.code) == (signal.SIGKILL, "")
    child.signal(signal.SIGKILL)  # nobody there any more


async def test_afterwards_comes_once_and_last(root, marker):
    seen = []
    launch = launch_of(root, "sh", "-c", "sleep 600 & exit 0", env={"MARKER": marker})
    launch.on_exit = lambda: seen.append(living(marker))
    child = await start_process(launch, Streams.MERGED, stdin=None, filter=Plain)
    await child.wait()
    await child.end()
    assert seen == [[]]


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSTOP], ids=["killed", "stopped"])
async def test_a_launcher_that_cannot_do_its_work(marker, number):
    launch = launch_of(
        TreeRoot.LAUNCHER, "sh", "-c", "sleep 600 & sleep 601 & echo there; sleep 600", env={"MARKER": marker}
    )
    child = await start_process(launch, Streams.MERGED, stdin=None, filter=Plain)
    await until_output(child, "there")
    os.kill(child.pid, number)
    with within(1.5):
        if number == signal.SIGSTOP:
            await child.end()
        else:
            assert (await child.wait(PATIENCE)).signal == signal.SIGKILL
        gone_within(marker, PATIENCE)


async def test_the_outer_program_killed_from_outside(marker):
    launch = launch_of(TreeRoot.NAMESPACE, "sh", "-c", f"{DOUBLE_FORK} echo there; sleep 600", env={"MARKER": marker})
    child = await start_process(launch, Streams.MERGED, stdin=None, filter=Plain)
    await until_output(child, "there")
    os.kill(monitor.process_stat(child.pid).parent, signal.SIGKILL)
    ending = await child.wait(PATIENCE)
    assert ending.signal == signal.SIGKILL
    assert living(marker) == []


PRELUDE = """
import asyncio, os, signal, sys, threading, time
sys.path[:0] = [sys.argv[1]]
import launches
from golem_forge.sandbox.process import child as starting
from golem_forge.sandbox.process.launch import TreeRoot as Root
from golem_forge.sandbox.walls.model import Streams

async def start(root, *command, streams=Streams.MERGED):
    terminal = streams is Streams.TERMINAL
    launch = launches.launch_of(root, *command, env={"MARKER": sys.argv[2]}, terminal=terminal)
    return await starting.start_process(launch, streams, stdin=None, filter=launches.Plain)

def each_is_killed(cases, work):
    for case in cases:
        forge = os.fork()
        if forge == 0:
            asyncio.run(work(case))
            os._exit(1)
        assert os.waitstatus_to_exitcode(os.waitpid(forge, 0)[1]) == -signal.SIGKILL, case
"""


async def another_forge(program: str, marker: str, *words: str, **options: Any) -> asyncio.subprocess.Process:
    """The program has `words` from `sys.argv[3]` on, and `start` for what has the marker."""
    command = ("-c", PRELUDE + program, str(Path(__file__).parent), marker, *words)
    return await asyncio.create_subprocess_exec(sys.executable, *command, **options)


STUBBORN = f"trap '' TERM HUP; {DOUBLE_FORK} setsid sleep 600 & echo there; sleep 600"
EVERY_KIND_OF_STREAMS = """
async def main():
    for streams in Streams:
        child = await start(Root(sys.argv[3]), "bash", "-c", sys.argv[4], streams=streams)
        await child.output.more(0, 90)
    print("running", flush=True)
    await child.wait()

asyncio.run(main())
"""


async def test_forge_killed(root, marker):
    forge = await another_forge(EVERY_KIND_OF_STREAMS, marker, root.value, STUBBORN, stdout=asyncio.subprocess.PIPE)
    assert await asyncio.wait_for(forge.stdout.readline(), PATIENCE) == b"running\n"
    assert len(living(marker)) >= 9

    forge.kill()

    with within(1):
        gone_within(marker, PATIENCE)
    await forge.wait()


TAKEN_OVER = """
launches.WALLS.remove("--die-with-parent")  # as if a child had taken its death signal from process 1

async def one():
    child = await start(Root.NAMESPACE, "bash", "-c", sys.argv[3])
    await child.output.more(0, 90)
    return child

async def several(done):
    short = await one()
    children = [await one() for _ in range(3)]
    await short.end()
    done()
    await asyncio.gather(*(child.wait() for child in children))

ready = threading.Barrier(2)

def other_loop():
    asyncio.run(several(ready.wait))

async def main():
    threading.Thread(target=other_loop, daemon=True).start()

    def done():
        ready.wait()
        if os.fork() == 0:  # a fork has the same descriptors, and keeps them open
            os.execv("/bin/sleep", ["sleep", "60"]) if sys.argv[4] == "exec" else os.read(0, 1)
            os._exit(0)
        print("running", flush=True)

    await several(done)

asyncio.run(main())
"""


@pytest.mark.parametrize("fork", ["kept", pytest.param("exec", marks=pytest.mark.long)])
async def test_forge_killed_although_the_first_process_was_taken_over(fork, marker):
    """Trees of two loops whose roots would live on by themselves."""
    pipes = {"stdin": asyncio.subprocess.PIPE, "stdout": asyncio.subprocess.PIPE}
    forge = await another_forge(TAKEN_OVER, marker, STUBBORN, fork, **pipes, start_new_session=True)
    try:
        assert await asyncio.wait_for(forge.stdout.readline(), PATIENCE) == b"running\n"
        assert len(living(marker)) >= 18
        forge.kill()
        with within(1):
            gone_within(marker, PATIENCE)
        await until(lambda: not watchdogs_of(forge.pid))
    finally:
        os.killpg(forge.pid, signal.SIGKILL)
        await forge.wait()


KILLED_AT_ONCE = """
launches.WALLS.remove("--die-with-parent")

async def work(number):
    for _ in range(number):
        await start(Root.NAMESPACE, "sleep", "600")
    os.kill(os.getpid(), signal.SIGKILL)

each_is_killed((1, 2), work)
"""


async def test_forge_killed_before_its_watchdog_has_begun(marker):
    forge = await another_forge(KILLED_AT_ONCE, marker)

    assert await asyncio.wait_for(forge.wait(), PATIENCE) == 0
    with within(1):
        gone_within(marker, PATIENCE)


KILLED_WHILE_STARTING = """
spawn = starting.spawn

async def work(after):
    def killed_soon_after(*given):
        pid = spawn(*given)
        time.sleep(after)
        os.kill(os.getpid(), signal.SIGKILL)
        return pid

    starting.spawn = killed_soon_after
    await start(Root(sys.argv[3]), "sleep", "600")

each_is_killed((0, 0.001, 0.004), work)
"""


async def test_forge_killed_while_it_starts_somebody(root, marker):
    forge = await another_forge(KILLED_WHILE_STARTING, marker, root.value)

    assert await asyncio.wait_for(forge.wait(), PATIENCE) == 0
    gone_within(marker, PATIENCE)


KILLED_BEFORE_THE_INNER_PROCESS_GOES_ON = """
from golem_forge.sandbox.process import monitor

spawn, memfd_create = starting.spawn, os.memfd_create

def full_pipe(name, *flags):
    if name != "noted":
        return memfd_create(name, *flags)
    reads, writes = os.pipe()
    os.set_blocking(writes, False)
    try:
        while os.write(writes, b" " * 65536):
            pass
    except BlockingIOError:
        os.set_blocking(writes, True)
    return writes

async def work(_):
    def killed_when_bwrap_waits(*given):
        pid = spawn(*given)
        while not (monitor.children(pid) and monitor.process_stat(pid).state == "S"):
            time.sleep(0.001)
        os.kill(os.getpid(), signal.SIGKILL)

    os.memfd_create, starting.spawn = full_pipe, killed_when_bwrap_waits
    await start(Root.NAMESPACE, "sleep", "600")

each_is_killed((1,), work)
"""


async def test_forge_killed_while_bwrap_holds_its_inner_process_back(marker):
    """bwrap dies with Forge, and its inner process would wait for its word for ever."""
    forge = await another_forge(KILLED_BEFORE_THE_INNER_PROCESS_GOES_ON, marker)

    assert await asyncio.wait_for(forge.wait(), PATIENCE) == 0
    gone_within(marker, PATIENCE)


def watchdogs_of(pid: int) -> list[int]:
    """Processes outside all walls that wait for the end of this one."""
    found = []
    for place in Path("/proc").glob("[0-9]*"):
        try:
            words, handle = (place / "cmdline").read_bytes(), place / "fdinfo" / str(FORGE_HANDLE)
            # Not the shell that leaves it alone, which has its words too, and is there twice for a moment.
            by_shell = words.startswith(b"/bin/sh\0")
            if b"watchdog_child" in words and not by_shell and f"Pid:\t{pid}\n" in handle.read_text():
                found.append(int(place.name))
        except OSError:
            continue
    return found


def ignored(pid: int) -> int:
    """A bit for each signal."""
    line = next(line for line in Path(f"/proc/{pid}/status").read_text().splitlines() if line.startswith("SigIgn"))
    return int(line.split()[1], 16)


def handles_of(pid: int) -> int:
    links = []
    for each in Path(f"/proc/{pid}/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):
            links.append(os.readlink(each))
    return sum("pidfd" in link for link in links)


async def until(true):
    async with asyncio.timeout(PATIENCE):
        while not (found := true()):
            await asyncio.sleep(0.02)
    return found


@pytest.fixture
def fresh_watchdog(monkeypatch):
    made = watchdogs.Watchdog()
    for module in ("tree", "child"):  # each has it by name; the common one would be started beside this
        monkeypatch.setattr(f"golem_forge.sandbox.process.{module}.watchdog", made)
    monkeypatch.setattr(watchdogs, "LINGERS_S", 0.05)
    return made


@pytest.mark.parametrize("root", [TreeRoot.NAMESPACE], indirect=True)  # a launcher sees to it itself
async def test_one_watchdog_for_all_which_leaves_with_the_last(fresh_watchdog, run):
    before, held = set(watchdogs_of(os.getpid())), descriptors.held()
    children = [await run("sleep 600") for _ in range(3)]
    (dog,) = await until(lambda: set(watchdogs_of(os.getpid())) - before)
    assert os.readlink(f"/proc/{dog}/cwd") == "/"
    assert Path(f"/proc/{dog}/environ").read_bytes() == b""
    assert monitor.process_stat(dog).session != os.getsid(0) and monitor.process_stat(dog).parent != os.getpid()
    deaf_to = (signal.SIGTERM, signal.SIGHUP, signal.SIGINT, signal.SIGUSR1, signal.SIGPIPE, signal.SIGALRM)
    await until(lambda: all(ignored(dog) >> (number - 1) & 1 for number in deaf_to))
    for number in deaf_to:
        os.kill(dog, number)
    await children[0].end()
    assert dog in watchdogs_of(os.getpid())
    os.kill(dog, signal.SIGKILL)
    await until(lambda: dog not in watchdogs_of(os.getpid()))
    children.append(await run("sleep 600"))
    (other,) = await until(lambda: set(watchdogs_of(os.getpid())) - before)
    await until(lambda: handles_of(other) == 1 + 3)  # Forge's, and those of the trees that live
    for child in children:
        await child.end()
    await until(lambda: other not in watchdogs_of(os.getpid()))
    await until(lambda: descriptors.now() <= held)


async def test_without_a_watchdog_nothing_else_changes(fresh_watchdog, run, monkeypatch):
    monkeypatch.setattr(watchdogs, "_PROGRAM", "/no/such/program")
    for _ in range(3):
        child = await run("echo there; exit 3")
        assert (await child.wait(PATIENCE)).exit_code == 3


async def test_a_forge_that_is_silent_loses_its_trees(fresh_watchdog, run, marker):
    """It was stopped, or its lease ran out: others go on in its place, and nobody of a tree goes on beside them."""
    assert watchdog_child.END_ALL == launcher.END_ALL
    fresh_watchdog.beat(int(PATIENCE))
    child = await run(f"{EVERY_SHAPE} echo there; sleep 600")
    await until_output(child, "there")
    fresh_watchdog.beat(1)
    gone_within(marker, PATIENCE)
    ending = await child.wait(PATIENCE)
    assert ending.exit_code != 0


async def test_a_forge_that_needs_no_beats_any_more_keeps_its_trees(fresh_watchdog, run):
    """A runner has ended, and its process goes on. The watchdog gets both beats at once, on a slow machine too."""
    child = await run("sleep 2; echo there")
    await until(lambda: fresh_watchdog._wire is None or watchdogs_of(os.getpid()))  # a launcher has none
    dogs = watchdogs_of(os.getpid())
    for dog in dogs:
        os.kill(dog, signal.SIGSTOP)
    fresh_watchdog.beat(1)
    fresh_watchdog.beat(0)
    for dog in dogs:
        os.kill(dog, signal.SIGCONT)
    assert (await child.wait(PATIENCE)).exit_code == 0
