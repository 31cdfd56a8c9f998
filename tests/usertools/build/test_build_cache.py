"""The cache of builds: finished or not there, read-only, and nothing of it followed elsewhere."""

from __future__ import annotations

import asyncio
import os
import stat
import subprocess
import sys
import time
from pathlib import Path

import pytest
from tests.deadlines import PATIENCE

from golem_forge.storage.home import ForgeHome
from golem_forge.usertools.build import BuildCache, build_key

KEY = build_key(a=1)


@pytest.fixture
def cache(tmp_path: Path) -> BuildCache:
    return BuildCache(ForgeHome(tmp_path / "home"))


async def keep(cache: BuildCache, key: str = KEY) -> Path:
    async with cache.lock(key), cache.work() as work:
        (work / "out").mkdir()
        (work / "out" / "file").write_text("made")
        (work / "out" / "link").symlink_to("/etc/hostname")
        cache.store(key, work)
    return Path(cache.out(key))


async def test_a_result_is_read_only_and_links_are_left_alone(cache: BuildCache) -> None:
    before = os.stat("/etc/hostname").st_mode
    assert cache.find(KEY) is None
    out = await keep(cache)
    assert cache.find(KEY) is not None
    assert stat.S_IMODE(os.stat(out).st_mode) == 0o500
    assert stat.S_IMODE(os.stat(out / "file").st_mode) == 0o400
    assert stat.S_IMODE(os.stat(out.parent).st_mode) == 0o700
    assert os.stat("/etc/hostname").st_mode == before
    assert sorted(each.name for each in out.parent.parent.iterdir()) == sorted([".locks", KEY])


async def test_a_failed_build_leaves_nothing(cache: BuildCache, tmp_path: Path) -> None:
    async def failing() -> None:
        async with cache.lock(KEY), cache.work() as work:
            (work / "out").mkdir()
            raise RuntimeError

    with pytest.raises(RuntimeError):
        await failing()
    assert [each.name for each in (tmp_path / "home" / "cache" / "build").iterdir()] == [".locks"]


async def test_what_is_not_whole_is_made_again(cache: BuildCache) -> None:
    out = await keep(cache)
    (out.parent / "made.json").unlink()
    assert cache.find(KEY) is None
    assert (await keep(cache) / "file").read_text() == "made"
    (out.parent / "made.json").write_text('{"key": "another"}')
    assert cache.find(KEY) is None


async def test_working_directories_of_a_killed_forge_are_removed(cache: BuildCache, tmp_path: Path) -> None:
    left = tmp_path / "home" / "cache" / "build" / ".work-left"
    left.mkdir(parents=True)
    old = time.time() - 7 * 3600
    os.utime(left, (old, old))
    async with cache.work():
        assert not left.exists()


async def test_another_process_is_waited_for_also_when_it_is_killed(cache: BuildCache, tmp_path: Path) -> None:
    lock = tmp_path / "home" / "cache" / "build" / ".locks" / KEY[:2]
    lock.parent.mkdir(parents=True)
    hold = (
        f"import fcntl, sys, time\nf = open({str(lock)!r}, 'w')\nfcntl.flock(f, 2)\nprint(flush=True)\ntime.sleep(60)\n"
    )
    holder = subprocess.Popen([sys.executable, "-c", hold], stdout=subprocess.PIPE)
    try:
        assert holder.stdout is not None
        holder.stdout.readline()
        waiting = asyncio.create_task(keep(cache))
        await asyncio.sleep(0.2)
        assert not waiting.done()
    finally:
        holder.kill()
        holder.wait()
    await asyncio.wait_for(waiting, PATIENCE)
    assert cache.find(KEY) is not None
