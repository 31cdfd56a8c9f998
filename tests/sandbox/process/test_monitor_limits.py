"""Limits of a whole tree: output, memory, processes, CPU time."""

from __future__ import annotations

import resource
import signal

import pytest
from tests.deadlines import PATIENCE, within

from golem_forge.config.sandbox_block import MIB, ResourceLimits
from golem_forge.sandbox.process import monitor
from golem_forge.sandbox.process.launch import TreeRoot
from golem_forge.sandbox.walls.model import Streams

from .conftest import living

ALLOCATE = (
    "import time; kept = [bytearray(b'x' * (1 << 20)) for _ in range(%d)]; print('held', flush=True); time.sleep(60)"
)
IN_ONE_TREE = pytest.mark.parametrize(
    "root", [TreeRoot.NAMESPACE, pytest.param(TreeRoot.LAUNCHER, marks=pytest.mark.long)], indirect=True, ids=str
)
"""For rules that are the same for both kinds of trees: the tests without it are of both."""


@IN_ONE_TREE
async def test_output_without_end(run, marker):
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with within(30):
        child = await run("head -c 30M /dev/zero | tr '\\0' 'x'; echo never; sleep 600", output=24 * MIB)
        ending = await child.wait()

    assert ending.code == "OUTPUT_LIMIT"
    assert child.output.size == 24 * MIB
    assert all(piece.count(b"x") == len(piece) for piece in child.output.pieces())
    assert sum(map(len, child.output.pieces())) == 24 * MIB
    grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * 1024
    assert grown < 12 * MIB
    assert living(marker) == []
    assert ResourceLimits().output == 64 * MIB


async def test_output_of_both_streams_counts_together(run):
    child = await run(
        "head -c 600000 /dev/zero; head -c 600000 /dev/zero >&2; sleep 600", streams=Streams.APART, output=MIB
    )
    ending = await child.wait()
    assert ending.code == "OUTPUT_LIMIT"
    assert child.output.size + child.errors.size == MIB


async def test_exactly_the_limit_is_allowed_and_no_character_is_cut(run):
    child = await run("printf 'ab你'", output=5)
    assert (await child.wait()).code == ""
    assert child.output.read().decode() == "ab你"
    child = await run("printf 'ab你'; sleep 600", output=4)
    assert (await child.wait()).code == "OUTPUT_LIMIT"
    assert child.output.read().decode() == "ab"


FILL = """
import mmap, os, sys, time
def fill(mib):
    made = os.memfd_create("hoard")
    for _ in range(mib): os.write(made, bytes(1 << 20))
    return made
def rest(seconds):
    print("whole", flush=True)
    time.sleep(seconds)
"""
PAGE_TABLES = """
import ctypes
libc = ctypes.CDLL(None)
libc.mmap.restype = ctypes.c_void_p
libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long]
libc.madvise.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
size = 80 << 30
at = libc.mmap(None, size, 1, 0x4022, -1, 0)  # to read, private, without a file, not reserved
libc.madvise(at, size, 15)  # no huge pages
for place in range(0, size, 2 << 20):
    ctypes.c_char.from_address(at + place).value
rest(60)
"""


@IN_ONE_TREE
@pytest.mark.parametrize(
    "script",
    [
        "m = mmap.mmap(-1, 160 << 20); [m.__setitem__(i, 1) for i in range(0, 160 << 20, 4096)]; rest(60)",
        "kept = fill(160); rest(60)",
        "kept = [fill(20) for _ in range(8)]; rest(60)",
        "held = bytearray(b'x' * (80 << 20)); kept = fill(80); rest(60)",
        "os.fork() or (fill(160) and time.sleep(60)); rest(60)",
        "kept = os.memfd_create('x'); os.posix_fallocate(kept, 0, 160 << 20); rest(60)",
        PAGE_TABLES,
    ],
    ids=[
        *("shared", "file-nobody-maps", "many-files", "file-beside-its-own", "file-in-a-child", "file-reserved"),
        "page-tables",
    ],
)
async def test_memory_of_every_kind_counts(run, marker, script):
    child = await run("python3", "-c", FILL + script, memory=128 * MIB)

    assert (await child.wait(PATIENCE)).code == "MEMORY_LIMIT"
    assert living(marker) == []


async def test_memory_of_the_whole_tree(run, marker):
    one = f'python3 -c "{ALLOCATE % 120}"'
    child = await run(f"{one} & setsid {one} & {one}", memory=256 * MIB)

    ending = await child.wait(PATIENCE)

    assert (ending.code, ending.signal) == ("MEMORY_LIMIT", signal.SIGKILL)
    assert living(marker) == []


SHARED_BY_PROCESSES = """
shared = mmap.mmap(-1, 60 << 20)
for _ in range(4):
    if os.fork() == 0:
        for at in range(0, 60 << 20, 4096): shared[at] = 1
        time.sleep(0.5)
        os._exit(0)
for _ in range(4): os.wait()
rest(0)
"""
SHARED_WITH_FORKS = """
kept = bytearray(b'x' * (120 << 20))
[time.sleep(0.5) or os._exit(0) for _ in range(4) if os.fork() == 0]
[os.wait() for _ in range(4)]
rest(0)
"""


@IN_ONE_TREE
@pytest.mark.parametrize(
    ("script", "memory"),
    [
        (SHARED_BY_PROCESSES, 160),
        (SHARED_WITH_FORKS, 256),
        ("kept = fill(60); os.dup(kept); [os.fork() for _ in range(2)]; rest(0.5)", 160),
        ("kept = fill(90); seen = mmap.mmap(kept, 0); sum(seen[::4096]); rest(0.5)", 160),
        ("[os.close(fill(60)) for _ in range(6)]; rest(0.5)", 160),
    ],
    ids=["shared-by-processes", "shared-with-forks", "file-shared-by-forks", "file-mapped-as-well", "file-closed"],
)
async def test_what_is_shared_counts_once(run, script, memory):
    child = await run("python3", "-c", FILL + script, memory=memory * MIB)

    ending = await child.wait(PATIENCE)

    assert (ending.code, ending.exit_code) == ("", 0)
    assert child.output.read().startswith(b"whole\n")


BOMB = 'b() { [ "$1" -gt 6 ] && { sleep 60; return; }; b $(($1+1)) | b $(($1+1)) & }; b 0; sleep 600'
"""Stops by itself after more than a hundred: what a broken limit costs must not be the machine."""


@pytest.mark.parametrize(
    "bomb",
    [pytest.param(BOMB, marks=pytest.mark.long), BOMB.replace("sleep 60;", "setsid sleep 60;")],
    ids=["one-group", "own-sessions"],
)
async def test_fork_bomb(run, marker, bomb):
    child = await run(bomb, processes=32)

    # Without a pid namespace the bomb is hunted down, and takes the processor from the hunter meanwhile.
    assert (await child.wait(PATIENCE)).code == "PROCESS_LIMIT"
    assert living(marker) == []


async def test_many_quiet_processes(run):
    child = await run("for i in $(seq 40); do setsid sleep 600 & done; sleep 600", processes=30)
    assert (await child.wait(PATIENCE)).code == "PROCESS_LIMIT"
    child = await run("for i in $(seq 20); do sleep 0.3 & done; wait; echo fine", processes=30)
    assert (await child.wait(PATIENCE)).exit_code == 0
    assert child.output.read() == b"fine\n"


@pytest.mark.parametrize(
    ("root", "before", "ended_by"),
    [
        pytest.param(TreeRoot.LAUNCHER, "", signal.SIGXCPU, id="obeys"),
        pytest.param(TreeRoot.NAMESPACE, "", signal.SIGXCPU, id="obeys in a namespace", marks=pytest.mark.long),
        pytest.param(TreeRoot.LAUNCHER, "trap '' XCPU;", signal.SIGKILL, id="ignores", marks=pytest.mark.long),
        pytest.param(TreeRoot.NAMESPACE, "trap '' XCPU;", signal.SIGKILL, id="ignores in a namespace"),
    ],
    indirect=["root"],
)
async def test_cpu_time(run, before, ended_by):
    child = await run(f"{before} while :; do :; done", cpu_s=1)

    ending = await child.wait(PATIENCE)

    assert (ending.code, ending.signal) == ("CPU_LIMIT", ended_by)


async def test_the_walk_by_parents_finds_the_same(run, monkeypatch):
    child = await run("sleep 600 & (sleep 601 & setsid sleep 602 &) ; echo there; wait")
    assert await child.output.more(0, PATIENCE)
    quick = monitor.descendants(child.pid)
    monkeypatch.setattr(monitor, "_kernel_lists_children", lambda: False)
    assert set(monitor.descendants(child.pid)) == set(quick)
    assert monitor.children(child.pid)[0] == quick[0]
    assert len(quick) >= 4
    assert len(monitor.descendants(child.pid, 1)) >= 2


THREADS = """
import threading, time
threading.stack_size(262144)
for _ in range(%d):
    threading.Thread(target=time.sleep, args=(60,), daemon=True).start()
print('held', flush=True)
time.sleep(%s)
"""


async def test_threads_without_end(run, marker):
    child = await run("python3", "-c", THREADS % (600, 60), processes=4)

    assert (await child.wait(PATIENCE)).code == "PROCESS_LIMIT"
    assert living(marker) == []


async def test_the_threads_of_an_ordinary_program_are_not_too_many(run, monkeypatch):
    monkeypatch.setattr(monitor, "INTERVAL_S", 0.01)
    child = await run("python3", "-c", THREADS % (120, 0.3), processes=2)

    assert (await child.wait(PATIENCE)).code == ""
