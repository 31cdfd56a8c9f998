"""Real children: how they start, what they are given, and what is kept of their output."""

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

from golem_forge.events.redaction import Redactor, StreamRedactor
from golem_forge.sandbox.errors import SandboxError
from golem_forge.sandbox.process import child as starting
from golem_forge.sandbox.process import monitor, tree
from golem_forge.sandbox.process.child import Child, start_process
from golem_forge.sandbox.process.launch import IN_MEMORY, Capture, ChildFd, Launch, OutputBudget, OutputReader, TreeRoot
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


async def test_a_character_in_two_writes(run):
    child = await run(r"printf '\xe4\xbd'; sleep 0.2; printf '\xa0'")
    await child.wait()
    assert child.output.read().decode() == "你"


async def test_bytes_that_are_no_text(run):
    child = await run(r"printf 'a\xff\xfeb\xe4\xbd'")
    await child.wait()
    assert child.output.read() == b"a\xff\xfeb\xe4\xbd"
    assert child.output.read().decode("utf-8", "replace") == "a\ufffd\ufffdb\ufffd"


async def test_a_cut_by_the_budget_divides_no_character():
    left = OutputBudget(7, lambda: None)
    assert left.fit("a\udcff") == "a\udcff"  # two bytes
    assert left.fit("éé" + "é") == "éé"  # four of the five that are left
    assert left.over


def redacting(name: str = "TOKEN", value: str = "canary-4711-secret") -> StreamRedactor:
    redactor = Redactor()
    redactor.add_secret(name, value)
    return StreamRedactor(redactor)


async def test_a_secret_in_two_writes(root):
    launch = launch_of(root, "sh", "-c", "printf 'is canary-47'; sleep 0.2; printf '11-secret.'")
    child = await start_process(launch, Streams.MERGED, stdin=None, filter=redacting)
    await child.wait()
    text = child.output.read().decode()
    assert text.startswith("is ") and text.endswith(".")
    assert "canary" not in text and "4711" not in text


def filled(text: str, times: int) -> Capture:
    capture = Capture()
    for _ in range(times):
        capture.append(text)
    return capture


@pytest.mark.parametrize("times", [100, 40_000], ids=["memory", "file"])
def test_no_read_divides_a_character(times):
    text = "aé你🙂" * 4
    capture = filled(text, times)
    whole = (text * times).encode()
    assert capture.size == len(whole)
    assert capture.read() == whole
    for first in range(24):
        for last in range(first, 24):
            capture.read(first, last).decode()
        assert capture.read(0, first) + capture.read(first, 40) == capture.read(0, 40)
    assert capture.read(capture.size) == b""
    assert capture.read(-5, capture.size + 5) == whole
    pieces = list(capture.pieces(1))
    assert b"".join(pieces) == whole[1:]
    for piece in pieces:
        piece.decode()
    capture.close()


def test_past_a_mebibyte_nothing_stays_in_memory_and_no_descriptor_is_left():
    before = descriptors.held()
    capture = filled("x" * 65536, IN_MEMORY // 65536)
    assert capture._file is None and descriptors.no_more_than(before)
    capture.append("y")
    assert not capture._memory
    assert capture._file is not None and os.fstat(capture._file).st_size == capture.size
    assert capture.read(IN_MEMORY - 1) == b"xy"
    del capture
    assert descriptors.no_more_than(before)


async def test_more_answers_everyone_who_waits():
    capture = Capture()
    waiting = [asyncio.create_task(capture.more(0, PATIENCE)) for _ in range(3)]
    late = asyncio.create_task(capture.more(3, PATIENCE))
    await asyncio.sleep(0)
    capture.append("abc")
    assert await asyncio.gather(*waiting) == [True] * 3
    assert not late.done()
    capture.finish()
    assert await late is False
    assert await capture.more(0, PATIENCE) is True
    assert await Capture().more(0, 0.01) is False


async def test_no_room_for_the_temporary_file(monkeypatch):
    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("golem_forge.sandbox.process.launch.tempfile.TemporaryFile", full)
    told = []
    ours, theirs = os.pipe()
    os.set_blocking(ours, False)
    reader = OutputReader(ours, Plain(), OutputBudget(1 << 30, lambda: told.append(1)))
    for _ in range(20):
        os.write(theirs, b"x" * 65536)
        await asyncio.sleep(0.005)
    reader.finish()
    os.close(theirs)
    assert told == [1]
    assert reader.capture.read() == b"x" * IN_MEMORY


async def read_all(data: bytes, limit: int, text_filter) -> tuple[str, list[int]]:
    told: list[int] = []
    ours, theirs = os.pipe()
    os.set_blocking(ours, False)
    reader = OutputReader(ours, text_filter, OutputBudget(limit, lambda: told.append(1)))
    os.write(theirs, data)
    os.close(theirs)
    reader.finish()
    return reader.capture.read().decode("utf-8", "replace"), told


@pytest.mark.parametrize("shown", [1, 4, 17])
async def test_a_secret_cut_by_the_limit_is_not_kept(shown):
    data = b"x" * 99 + b" canary-4711-secret and more"
    text, told = await read_all(data, 100 + shown, redacting())
    assert (text, told) == ("x" * 99 + " ", [1])


async def test_an_end_like_a_secret_is_kept_when_nothing_was_cut():
    assert await read_all(b"a canary", 8, redacting()) == ("a canary", [])


async def test_the_limit_holds_for_what_is_kept():
    text, told = await read_all(b"a" + b"\xff" * 2000, 1500, Plain())
    assert (text, told) == ("a" + "\ufffd" * 1499, [1])
    text, told = await read_all(b"1c0f" * 500, 3000, redacting("A_NAME_THAT_IS_LONGER_THAN_ITS_VALUE", "1c0f"))
    assert len(text) == 3000 and told == [1] and "1c0f" not in text
