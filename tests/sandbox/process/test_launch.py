"""Starting: what a child gets, what refuses it, and that nothing is left of a start that failed."""

from __future__ import annotations

import asyncio
import os
import resource
import time
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

import anyio
import pytest
from tests import descriptors
from tests.deadlines import LONG, PATIENCE, within
from tests.tables import table

from golem_forge.sandbox.errors import SandboxError
from golem_forge.sandbox.process import child as starting
from golem_forge.sandbox.process import monitor, tree
from golem_forge.sandbox.process.child import Child, start_process
from golem_forge.sandbox.process.launch import ChildFd, Launch, TreeRoot
from golem_forge.sandbox.walls.model import Streams

from .conftest import living, until_output
from .launches import ENV, Plain, content, launch_of, refused


async def let_go(before: int) -> bool:
    """Whether no more descriptors are held than before; what ends a start may take some turns of the loop."""
    end = time.monotonic() + PATIENCE
    while descriptors.now() > before and descriptors.held() > before:
        if time.monotonic() > end:
            return False
        await asyncio.sleep(0.02)
    return True


async def test_output_exit_code_and_time(run):
    child = await run("echo out; echo err >&2; exit 3")
    ending = await child.wait()
    assert (ending.exit_code, ending.signal, ending.code) == (3, None, "")
    assert child.output.read() == b"out\nerr\n"
    assert child.errors is None
    assert 0 < ending.seconds < 10
    assert child.ending is ending


async def test_streams_apart(run):
    child = await run("echo out; echo err >&2", streams=Streams.APART)
    await child.wait()
    assert child.output.read() == b"out\n"
    assert child.errors.read() == b"err\n"


@table("stdin", [None, b"", b"hello\n", b"x" * 300_000])
async def test_standard_input(run, stdin):
    child = await run("wc -c", stdin=stdin)
    await child.wait()
    assert int(child.output.read()) == len(stdin or b"")


@table(
    ("script", "end"),
    [
        *(("kill -SEGV $$", (None, 11)), ("kill -KILL $$", (None, 9)), ("kill -TERM $$", (None, 15))),
        ("exit 255", (255, None)),
    ],
)
async def test_death_by_signal_is_told_and_no_unusual_exit_code_is_one(run, script, end):
    ending = await (await run(script)).wait()
    assert (ending.exit_code, ending.signal, ending.code) == (*end, "")


async def test_the_pid_is_the_roots(run, root):
    child = await run("sleep 600")
    name = Path(f"/proc/{child.pid}/comm").read_text().strip()
    assert name == "bwrap" if root is TreeRoot.NAMESPACE else "python" in name


async def test_no_descriptor_and_no_ignored_signal_is_inherited(run):
    kept = os.open("/etc/hostname", os.O_RDONLY)
    os.set_inheritable(kept, True)
    high = os.dup2(kept, 250, inheritable=True)
    try:
        child = await run("ls /proc/self/fd; grep SigIgn /proc/self/status")
    finally:
        os.close(kept)
        os.close(high)
    await child.wait()
    *numbers, _, ignored = child.output.read().split()
    assert [int(each) for each in numbers] == [0, 1, 2, 3]  # 3: what `ls` reads
    # XFSZ is the inner stage's; 32 and 33 belong to the C library, which lets nobody change them.
    assert int(ignored, 16) & ~(1 << 24 | 1 << 31 | 1 << 32) == 0


async def test_a_pipe_behaves_as_in_a_shell(run):
    child = await run("yes | head -1; echo ${PIPESTATUS[0]}")
    await child.wait()
    assert child.output.read() == b"y\n141\n"


async def test_nothing_leaks(root):
    async def all_kinds() -> None:
        for streams in Streams:
            terminal = streams is Streams.TERMINAL
            launch = launch_of(root, "true", terminal=terminal)
            child = await start_process(launch, streams, stdin=None if terminal else b"x", filter=Plain)
            await child.wait()
            for program, why in (("/no/such/program", "No such file"), ("/bin/false", None)):
                launch = launch_of(root, "true", terminal=terminal)
                launch.argv = (program,)
                with pytest.raises(SandboxError, match=why):
                    await start_process(launch, streams, stdin=None, filter=Plain)

    await all_kinds()
    before = descriptors.held()
    for _ in range(2):
        await all_kinds()
    assert await let_go(before)


async def test_no_descriptor_left_to_start_with(root):
    descriptors.held()
    for room in range(12):
        launch = launch_of(root, "true")
        before = descriptors.now()
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        highest = max(int(each) for each in os.listdir("/proc/self/fd") if os.path.exists(f"/proc/self/fd/{each}"))
        # Copies are made from 100 on; a limit around there fails each step in turn.
        resource.setrlimit(resource.RLIMIT_NOFILE, (max(highest + 1, 99) + room, hard))
        try:
            child = await start_process(launch, Streams.MERGED, stdin=None, filter=Plain)
        except SandboxError:
            pass
        else:
            await child.wait()
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        assert await let_go(before - 1)  # the launch's own was closed in any case


@pytest.mark.parametrize(
    "script",
    [
        "echo 'Permission denied' >&2; exit 1",
        "exit 0",
        "kill -KILL $$",
        "exec 9>&-; echo 'Permission denied' >&2; sleep 600",
    ],
)
async def test_without_ready_it_was_not_run(script):
    after = []
    launch = Launch(
        argv=("/bin/sh", "-c", script),
        env=ENV,
        root=TreeRoot.NAMESPACE,
        make_error=refused,
        on_exit=lambda: after.append(1),
    )
    with pytest.raises(SandboxError) as caught:
        await start_process(launch, Streams.MERGED, stdin=None, filter=Plain)
    assert caught.value.code == "WALLS_UNAVAILABLE"
    assert after == [1]
    if "denied" in script:
        assert "Permission denied" in str(caught.value)


async def test_ready_alone_does_not_hold_a_tree_together(monkeypatch):
    monkeypatch.setattr(starting, "_NOTICED_WITHIN_S", 0.1)  # it never ends by itself
    launch = Launch(
        argv=("/bin/sh", "-c", "echo 1 >&9; sleep 600"), env=ENV, root=TreeRoot.NAMESPACE, make_error=refused
    )
    with pytest.raises(SandboxError):
        await start_process(launch, Streams.MERGED, stdin=None, filter=Plain)


async def test_bwraps_own_words_reach_the_refusal():
    launch = launch_of(TreeRoot.NAMESPACE, "true")
    launch.descriptors = {3: content(b"--ro-bind\0/no/such/source\0/x\0")}
    with pytest.raises(SandboxError, match="source"):
        await start_process(launch, Streams.MERGED, stdin=None, filter=Plain)


def launch_that_waits(*command: str, **options: Any) -> Launch:
    launch = launch_of(TreeRoot.NAMESPACE, *command, **options)
    stage = list(launch.argv)
    stage[6] = stage[6].replace("exec ", f"read -r _ <&{ChildFd.GO}; exec 8<&-; exec ")
    launch.argv = tuple(stage)
    return launch


async def test_the_command_waits_for_go():
    seen = []

    async def before_go(pid: int) -> None:
        seen.append(os.readlink(f"/proc/{pid}/ns/net"))
        await asyncio.sleep(0.05)
        seen.append("done")

    launch = launch_that_waits("readlink", "/proc/self/ns/net")
    launch.before_go = before_go
    child = await start_process(launch, Streams.MERGED, stdin=None, filter=Plain)
    assert seen[-1] == "done"
    await child.wait()
    assert child.output.read().decode().strip() == seen[0] != os.readlink("/proc/self/ns/net")


async def test_a_failing_before_go_leaves_nothing(marker):
    async def before_go(pid: int) -> None:
        raise RuntimeError("no proxy")

    after = []
    launch = launch_that_waits("sleep", "60", env={"MARKER": marker})
    launch.before_go, launch.on_exit = before_go, lambda: after.append(1)
    with pytest.raises(RuntimeError, match="no proxy"):
        await start_process(launch, Streams.MERGED, stdin=None, filter=Plain)
    assert after == [1]


async def test_cancelled_while_starting(root, marker):
    before = descriptors.held()
    for delay in (0, 0.001, 0.002, 0.004, 0.05):
        launch = launch_of(root, "sleep", "60", env={"MARKER": marker})
        starting = asyncio.create_task(start_process(launch, Streams.MERGED, stdin=None, filter=Plain))
        await asyncio.sleep(delay)
        starting.cancel()
        try:
            child = await starting
        except asyncio.CancelledError:
            # Cancelled before its first step it never had the launch in hand.
            for descriptor in launch.descriptors.values():
                os.close(descriptor)
        else:
            await child.end()
        assert living(marker) == []
    assert await let_go(before)


async def _again_and_again(task: asyncio.Task[object]) -> None:
    while not task.done():
        task.cancel()
        await asyncio.sleep(0)


async def _in_a_scope(work: Coroutine[object, object, object], delay: float) -> None:
    """A scope of anyio cancels what runs in it at every turn of the loop."""
    with anyio.CancelScope() as scope:
        asyncio.get_running_loop().call_later(delay, scope.cancel)
        await work
        await asyncio.sleep(LONG)


async def _cancelled_by_a_task(work: Coroutine[object, object, object], delay: float) -> None:
    async def starting() -> None:
        await work
        await asyncio.sleep(LONG)

    task = asyncio.create_task(starting())
    await asyncio.sleep(delay)
    await _again_and_again(task)
    with pytest.raises(asyncio.CancelledError):
        await task


@pytest.mark.parametrize("cancelled", [_in_a_scope, _cancelled_by_a_task], ids=["scope", "task"])
async def test_a_start_that_is_cancelled_again_and_again_leaves_nobody(root, marker, cancelled, is_long):
    before = descriptors.held()
    for moment in range(0, 20, 1 if is_long else 7):
        launch = launch_of(root, "sleep", "60", env={"MARKER": marker})
        started: list[Child] = []

        async def starting(launch: Launch = launch, started: list[Child] = started) -> None:
            child = await start_process(launch, Streams.MERGED, stdin=None, filter=Plain)
            started.append(child)

        await cancelled(starting(), moment * 0.001)
        if started:
            await started[0].end()
        assert living(marker) == []
        for descriptor in launch.descriptors.values():  # cancelled before its first step
            os.close(descriptor)
    assert await let_go(before)


@pytest.mark.parametrize("cancelled", [_in_a_scope, _cancelled_by_a_task], ids=["scope", "task"])
async def test_an_end_that_is_cancelled_again_and_again_leaves_nobody(run, marker, cancelled):
    child = await run("trap '' TERM; setsid sleep 600 & echo there; sleep 600")
    await until_output(child, "there")
    await cancelled(child.end(), 0.01)
    assert living(marker) == []


async def test_many_at_once(root, marker, is_long):
    async def one(number: int) -> bytes:
        launch = launch_of(root, "sh", "-c", f"sleep 0.1; echo {number}", env={"MARKER": marker})
        child = await start_process(launch, Streams.MERGED, stdin=None, filter=Plain)
        await child.wait()
        return child.output.read()

    before = descriptors.held()
    count = 64 if is_long else 8
    said = await asyncio.gather(*map(one, range(count)))
    assert said == [f"{number}\n".encode() for number in range(count)]
    assert await let_go(before)


async def test_output_can_be_followed(run):
    child = await run("echo one; sleep 0.3; echo two")
    await until_output(child, "one")
    seen = len("one\n")
    with within(1):
        assert await child.output.more(seen, LONG)
    assert child.output.read(seen) == b"two\n"
    with within(1):
        assert not await child.output.more(child.output.size, LONG)  # the end answers too
    assert (await child.wait()).exit_code == 0


async def test_a_command_that_is_over_before_anybody_looks_has_run(marker, monkeypatch):
    """What comes after its end takes long."""
    monkeypatch.setattr(starting, "_NOTICED_WITHIN_S", 0.5)
    over, afterwards = asyncio.Event(), asyncio.Event()

    def find_late(holder) -> bool:
        until = time.monotonic() + PATIENCE
        while (found := monitor.process_stat(holder._outer.pid)) and found.alive and time.monotonic() < until:
            time.sleep(0.005)
        return False

    async def long_work() -> None:
        over.set()
        await afterwards.wait()

    monkeypatch.setattr(tree.ProcessTree, "find_root", find_late)
    launch = launch_of(TreeRoot.NAMESPACE, "sh", "-c", "echo there", env={"MARKER": marker})
    launch.on_exit = long_work
    child = await start_process(launch, Streams.MERGED, stdin=None, filter=Plain)
    assert over.is_set() and child.ending is None
    afterwards.set()
    assert (await child.wait(PATIENCE)).exit_code == 0
    assert child.output.read() == b"there\n"
