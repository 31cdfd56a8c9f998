"""Process 1 of full walls: a child cannot write, read, limit, schedule or stop it, as root and as another user."""

from __future__ import annotations

import asyncio
import json
import os
import shlex
import shutil
import tempfile
from pathlib import Path
from typing import Any

import pytest
from tests.deadlines import PATIENCE
from tests.sandbox.conftest import in_child

from golem_forge.sandbox.process import child as _start  # noqa: F401 - loaded while it can be read
from golem_forge.sandbox.walls.bubblewrap import find_bwrap, ripgrep_path
from golem_forge.sandbox.walls.model import Job
from golem_forge.sandbox.walls.seccomp import PROCESSORS

from .house import House
from .test_bubblewrap_plain_user import theirs

PYTHON = "/usr/bin/python3"

ATTACK = """
import ctypes, errno, json, os, resource, signal, sys, threading
numbers = json.loads(sys.argv[1])
libc = ctypes.CDLL(None, use_errno=True)
found = {}

def attempt(name, action, *arguments):
    try:
        action(*arguments)
        found[name] = "done"
    except OSError as error:
        found[name] = errno.errorcode.get(error.errno, "?")

def call(name, *arguments):
    number = numbers[name]
    if libc.syscall(ctypes.c_long(number), *(each if not isinstance(each, int) else ctypes.c_long(each)
                                             for each in arguments)) < 0:
        raise OSError(ctypes.get_errno(), name)

def opened(path, flags):
    os.close(os.open(path, flags))

def attack(how):
    places = ("/proc/1", "/proc/1/task/1", "/proc/self/task/../../1", "/proc/thread-self/../../../1",
              "/proc/self/root/proc/1", "/proc/2/cwd/../../../../../../../proc/1", "/proc/./1/../1")
    for place in places:
        for name in ("mem", "oom_score_adj", "comm", "coredump_filter", "clear_refs", "autogroup", "timerslack_ns",
                     "sched", "loginuid", "setgroups", "uid_map"):
            attempt(f"{how} write {place}/{name}", opened, f"{place}/{name}", os.O_WRONLY)
        for name in ("mem", "maps", "auxv", "syscall", "stack"):
            attempt(f"{how} read {place}/{name}", opened, f"{place}/{name}", os.O_RDONLY)
        attempt(f"{how} memory of {place}", opened, f"{place}/mem", os.O_RDWR)
        for name in ("fd", "fdinfo", "ns", "map_files", "root/", "cwd/"):
            attempt(f"{how} list {place}/{name}", os.listdir, f"{place}/{name}")
        attempt(f"{how} make in {place}", opened, f"{place}/made", os.O_WRONLY | os.O_CREAT)
    for link in ("self", "thread-self", "2"):
        attempt(f"{how} autogroup of {link}", opened, f"/proc/{link}/autogroup", os.O_WRONLY)
    buffer = ctypes.create_string_buffer(256)
    attempt(f"{how} prlimit", resource.prlimit, 1, resource.RLIMIT_NOFILE, (3, 3))
    attempt(f"{how} prlimit of a long number", call, "prlimit64", (1 << 32) | 1, 7, 0, 0)
    attempt(f"{how} affinity", os.sched_setaffinity, 1, {0})
    attempt(f"{how} scheduler", os.sched_setscheduler, 1, os.SCHED_IDLE, os.sched_param(0))
    attempt(f"{how} param", os.sched_setparam, 1, os.sched_param(0))
    attempt(f"{how} attr", call, "sched_setattr", 1, buffer, 0)
    attempt(f"{how} nice", os.setpriority, os.PRIO_PROCESS, 1, 19)
    attempt(f"{how} nice of the group", os.setpriority, os.PRIO_PGRP, 0, 19)
    attempt(f"{how} nice of group 1", os.setpriority, os.PRIO_PGRP, 1, 19)
    attempt(f"{how} nice of the user", os.setpriority, os.PRIO_USER, 0, 19)
    attempt(f"{how} nice of the user by number", os.setpriority, os.PRIO_USER, os.getuid(), 19)
    for which, who in ((1, 1), (2, 0), (2, 1), (3, 0), (3, os.getuid())):
        attempt(f"{how} disk priority {which} {who}", call, "ioprio_set", which, who, 3 << 13)
    attempt(f"{how} handle", os.pidfd_open, 1)
    attempt(f"{how} descriptor by handle", lambda: call("pidfd_getfd", os.pidfd_open(1), 0, 0))
    attempt(f"{how} pages", call, "migrate_pages", 1, 64, buffer, buffer)
    attempt(f"{how} some pages", call, "move_pages", 1, 0, 0, 0, 0, 2)
    attempt(f"{how} compare", call, "kcmp", 1, os.getpid(), 0, 0, 0)
    attempt(f"{how} trace", call, "ptrace", 16, 1, 0, 0)
    attempt(f"{how} memory by call", call, "process_vm_readv", 1, 0, 0, 0, 0, 0)
    attempt(f"{how} cores", call, "prctl", 62, 2, 1, 0, 0)

attack("command")
thread = threading.Thread(target=attack, args=("thread",))
thread.start()
thread.join()
if os.fork() == 0:
    os.setsid()
    attack("session")
    print(json.dumps(found), flush=True)
    os._exit(0)
os.wait()
for number in range(1, 65):
    try:
        os.kill(1, number)
    except OSError:
        pass
print("still here", flush=True)
sys.stdin.read()
"""


def facts(pid: int) -> dict[str, Any]:
    """What children must not have changed, as the host sees it."""
    place = Path(f"/proc/{pid}")
    stat = (place / "stat").read_text().rpartition(")")[2].split()
    group = place / "autogroup"
    return {
        "nice": os.getpriority(os.PRIO_PROCESS, pid),
        "affinity": os.sched_getaffinity(pid),
        "scheduler": os.sched_getscheduler(pid),
        "limits": (place / "limits").read_text(),
        "oom_score_adj": (place / "oom_score_adj").read_text(),
        "autogroup": group.read_text().partition("nice")[2] if group.exists() else "",
        "stopped": stat[0] in "Tt",
    }


async def attacked(walls: Any) -> tuple[dict[str, str], list[dict[str, Any]]]:
    numbers = PROCESSORS[os.uname().machine].numbers
    reader, writer = os.pipe()
    walled = await walls.start(Job(argv=(PYTHON, "-I", "-S", "-c", ATTACK, json.dumps(numbers)), stdin=reader))
    os.close(reader)
    child = walled.child
    before = facts(child.pid)
    try:
        while b"still here" not in child.output.read():
            assert child.ending is None, child.output.read()
            await child.output.more(child.output.size, PATIENCE)
        after = facts(child.pid)
    finally:
        os.close(writer)
        await child.end()
    lines = child.output.read().decode().splitlines()
    return json.loads(lines[0]), [before, after]


def succeeded(found: dict[str, str]) -> list[str]:
    return [name for name, end in found.items() if end == "done"]


def test_root_s_children_do_nothing_to_process_one(house: House) -> None:
    found, (before, after) = asyncio.run(attacked(house.walls()))
    assert len(found) > 300 and succeeded(found) == []
    assert after == before


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to become somebody else")
def test_another_user_s_children_do_nothing_to_process_one() -> None:
    if find_bwrap() is None:
        pytest.skip("full walls need bubblewrap")
    ripgrep_path()
    with tempfile.TemporaryDirectory() as made:
        os.chmod(made, 0o755)
        house = House(Path(made), path="/usr/bin:/bin")
        theirs(house.root)

        def scene() -> Any:
            found, states = asyncio.run(attacked(house.walls()))
            return found, [{name: str(value) for name, value in each.items()} for each in states]

        found, (before, after) = in_child(scene)
        assert len(found) > 300 and succeeded(found) == []
        assert after == before


ORDINARY = {
    # 19 is the nicest there is, and whoever started the tests may have been nice already.
    "nice": ("at=$(nice); [ $(nice -n 2 nice) = $(( at > 17 ? 19 : at + 2 )) ] && echo ok", "ok"),
    "renice": (
        "to=$(( $(nice) > 17 ? 19 : $(nice) + 2 )); renice -n $to -p $$ >/dev/null && [ $(nice) = $to ] && echo ok",
        "ok",
    ),
    "ionice": ("ionice -c 3 ionice", "idle"),
    "taskset": ("taskset -c 0 taskset -p $$ | grep -c mask", "1"),
    "chrt": ("chrt --idle 0 true && echo ok", "ok"),
    "prlimit": ("prlimit --nofile=100 sh -c 'ulimit -n'", "100"),
    "prlimit of a child": (
        "sleep 9 & prlimit --pid $! --nofile=50 && prlimit --pid $! --nofile --noheadings -o SOFT; kill $!",
        "50",
    ),
    "ps": ("ps -e -o args= | grep -c '^[p]s '", "1"),
    "environment of 1": ("tr '\\0' '\\n' </proc/1/environ | grep -c ^HOME=", "1"),
    "python": (
        "/usr/bin/python3 -I -c 'import os, resource; os.nice(1); os.sched_setaffinity(0, {0});"
        " os.sched_setaffinity(os.getpid(), {0}); resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64));"
        " resource.prlimit(os.getpid(), resource.RLIMIT_NOFILE, (32, 32)); os.close(os.pidfd_open(os.getpid()));"
        ' print("ok")\'',
        "ok",
    ),
    "asyncio": (
        "/usr/bin/python3 -I -c 'import asyncio;"
        ' print(asyncio.run(asyncio.create_subprocess_exec("true")).__class__.__name__)\'',
        "Process",
    ),
    "threads": (
        "/usr/bin/python3 -I -c 'import os, threading; t = threading.Thread(target=lambda:"
        ' os.sched_setaffinity(threading.get_native_id(), {0})); t.start(); t.join(); print("ok")\'',
        "ok",
    ),
    "standard streams by name": ("echo 1 > /dev/stdout; echo 2 > /proc/self/fd/1; cat <(echo 3)", "1\n2\n3"),
}


def test_ordinary_programs_do_as_before(house: House) -> None:
    scripts = ((name, shlex.quote(script)) for name, (script, _) in ORDINARY.items())

    ran = house.run("\n".join(f"echo '== {name}'; bash -c {script}; echo \"code $?\"" for name, script in scripts))

    said = dict(block.split("\n", 1) for block in ran.text.split("== ")[1:])
    assert {name: text.split() for name, text in said.items()} == {
        name: [*expected.split(), "code", "0"] for name, (_, expected) in ORDINARY.items()
    }


def test_node_starts(house: House) -> None:
    if shutil.which("node", path=house.path) is None:
        pytest.skip("needs node")
    ran = house.run("node -e 'os.setPriority(19); console.log(os.getPriority(), require(\"worker_threads\").threadId)'")

    assert (ran.code, ran.text) == (0, "19 0\n")
