"""What a child takes of inotify is bounded by the walls' own user namespace: the person's programs keep theirs."""

from __future__ import annotations

import asyncio
import ctypes
import os
from pathlib import Path

from golem_forge.sandbox.walls.model import Job

from .house import House, ran

TAKES = """
import ctypes, time
libc = ctypes.CDLL(None, use_errno=True)
count = 0
while count < 10_000 and libc.inotify_init1(0) >= 0:
    count += 1
print("took", count, "error", ctypes.get_errno(), flush=True)
{then}
"""
TOO_MANY = 24


def _limit(name: str) -> int:
    return int(Path(f"/proc/sys/fs/inotify/max_user_{name}").read_text())


def _can_watch() -> bool:
    libc = ctypes.CDLL(None, use_errno=True)
    descriptor = libc.inotify_init1(0)
    if descriptor >= 0:
        os.close(descriptor)
    return descriptor >= 0


async def test_a_child_that_opens_10000_instances_leaves_the_person_theirs(house: House) -> None:
    (house.workspace / "takes.py").write_text(TAKES.format(then="time.sleep(600)"))
    walled = await house.walls().start(Job(argv=("python3", "takes.py")))
    try:
        while b"took" not in walled.child.output.read():
            assert walled.child.ending is None
            await asyncio.sleep(0.02)
        assert _can_watch(), "while the child has all that it can get"
        said = walled.child.output.read().decode()
        assert said == f"took {_limit('instances') // 8} error {TOO_MANY}\n"
    finally:
        await walled.child.end()


async def test_seven_children_at_once_leave_the_person_some(house: House) -> None:
    (house.workspace / "takes.py").write_text(TAKES.format(then="time.sleep(2)"))
    walls = house.walls()
    await walls.report()

    running = [asyncio.create_task(ran(walls, "python3 takes.py")) for _ in range(7)]
    done, could = set(), []
    while len(done) < 7:
        done = {each for each in running if each.done()}
        could.append(_can_watch())
        await asyncio.sleep(0.05)
    assert all(could) and all("took" in each.result().text for each in running)


def test_a_child_can_watch_and_cannot_raise_its_limits(house: House) -> None:
    (house.workspace / "takes.py").write_text(TAKES.format(then=""))
    ran = house.run(
        "echo 99999 > /proc/sys/user/max_inotify_instances; python3 takes.py; unshare -U true; python3 takes.py"
    )
    assert ran.text.count(f"took {_limit('instances') // 8} error {TOO_MANY}") == 2
    assert "Read-only file system" in ran.text or "Permission denied" in ran.text
