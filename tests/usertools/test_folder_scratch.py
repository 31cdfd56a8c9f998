"""Rooms are real walls around a private directory: everything here runs real commands in them."""

from __future__ import annotations

import asyncio
import contextlib
import multiprocessing
import os
import threading
import time
from pathlib import Path

import pytest
from tests.deadlines import PATIENCE

from golem_forge.config.sandbox_block import WallSettings
from golem_forge.sandbox.errors import SandboxError
from golem_forge.sandbox.walls.bubblewrap import find_bwrap
from golem_forge.sandbox.walls.model import Job, Level, LevelResult, ProbeReport
from golem_forge.sandbox.walls.walls import Walls
from golem_forge.storage.home import ForgeHome
from golem_forge.usertools import folder
from golem_forge.usertools.folder import private_directory, program_directory, remove_tree, scratch_walls

FULL = ProbeReport(level=Level.FULL)
needs_bwrap = pytest.mark.skipif(find_bwrap() is None, reason="full walls need bubblewrap")


async def said(walls: Walls, script: str) -> str:
    walled = await walls.start(Job(argv=("sh", "-c", f"exec 2>&1; {script}")))
    try:
        await walled.child.wait(PATIENCE)
    finally:
        await walled.child.end()
    return walled.child.output.read().decode()


@needs_bwrap
async def test_the_directory_is_all_that_is_there_empty_and_writable(home: ForgeHome) -> None:
    """No network, no host path, nothing of FORGE_HOME."""
    (home.ensure() / "canary").write_text("canary-4711")
    with private_directory(home, "tests") as directory:
        walls = scratch_walls(directory, zone="workspace", home=home, report=FULL)
        own = "tail -n +3 /proc/net/dev | grep -v '^ *lo:'; pwd; ls -A; echo kept > a; cat a"
        text = await said(walls, f"{own}; cat {home.path}/canary; ls {home.path}; grep workspace /proc/mounts")
        assert text.startswith("/workspace\nkept\n")
        assert "canary-4711" not in text and str(directory) not in text
        assert (directory / "a").read_text() == "kept\n"
        assert os.listdir(directory) == ["a"]


@needs_bwrap
async def test_names_that_are_protected_elsewhere_can_be_written_here(home: ForgeHome) -> None:
    with private_directory(home, "tests") as directory:
        walls = scratch_walls(directory, zone="build", home=home, report=FULL)
        assert await said(walls, "mkdir -p .git/hooks .vscode; echo x > .git/hooks/y; cat .git/hooks/y") == "x\n"


@needs_bwrap
async def test_walls_that_were_switched_off_stand_here_all_the_same(home: ForgeHome) -> None:
    with private_directory(home, "tests") as directory:
        walls = scratch_walls(
            directory, zone="build", home=home, settings=WallSettings(off=True), report=ProbeReport(level=Level.OFF)
        )
        assert await said(walls, "echo pid $$; test -e /etc/shadow || echo hidden") in (
            "pid 2\nhidden\n",
            "pid 3\nhidden\n",
        )
        assert await walls.level() is Level.FULL


@pytest.mark.parametrize("level", [Level.NONE, Level.LANDLOCK])
async def test_without_full_walls_nothing_starts(home: ForgeHome, level: Level) -> None:
    tried = LevelResult(level=Level.FULL, cause="user namespaces are off", fix="Switch them on.")
    with private_directory(home, "tests") as directory:
        walls = scratch_walls(directory, zone="build", home=home, report=ProbeReport(level=level, tried=(tried,)))
        with pytest.raises(SandboxError) as refused:
            await walls.start(Job(argv=("touch", "/build/x")))
        assert refused.value.code == "WALLS_UNAVAILABLE"
        assert not (directory / "x").exists()


def test_a_private_directory_is_for_its_owner_alone_and_gone_afterwards(home: ForgeHome) -> None:
    with private_directory(home, "tests") as directory:
        assert directory.stat().st_mode & 0o777 == 0o700
        (directory / "locked").mkdir()
        (directory / "locked" / "file").write_text("x")
        (directory / "locked").chmod(0)
    assert not directory.exists()


def test_removing_does_not_follow_links(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "kept").write_text("kept")
    outside.chmod(0o500)
    inside = tmp_path / "inside"
    inside.mkdir()
    (inside / "link").symlink_to(outside)
    remove_tree(inside)
    assert not inside.exists()
    assert (outside / "kept").read_text() == "kept"
    assert outside.stat().st_mode & 0o777 == 0o500


def test_what_a_killed_forge_left_is_removed_and_what_another_uses_is_not(home: ForgeHome) -> None:
    parent = home.ensure("cache", "tests")
    forgotten, used = parent / "forgotten", parent / "used"
    for directory in (forgotten, used):
        directory.mkdir()
        (directory / "file").write_text("x")
    long_ago = time.time() - 30 * 24 * 3600
    os.utime(forgotten, (long_ago, long_ago))
    with private_directory(home, "tests"):
        assert not forgotten.exists()
        assert (used / "file").exists()


def test_a_tree_deeper_than_any_recursion_is_removed(home: ForgeHome) -> None:
    with private_directory(home, "tests") as directory:
        with contextlib.chdir(directory):
            for _ in range(1500):
                os.mkdir("d")
                os.chdir("d")
        (directory / "d").chmod(0)
    assert os.listdir(home.path / "cache" / "tests") == []


def test_what_a_killed_forge_had_in_use_goes_soon_and_what_lives_keeps_its_own(home: ForgeHome) -> None:
    parent = home.ensure("cache", "tests")
    forks = multiprocessing.get_context("fork")
    in_use = forks.Event()

    def use() -> None:
        with private_directory(home, "tests"):
            in_use.set()
            time.sleep(PATIENCE)

    other = forks.Process(target=use)
    other.start()
    assert in_use.wait(PATIENCE)
    (theirs,) = parent.iterdir()
    a_while_ago = time.time() - 300
    os.utime(theirs, (a_while_ago, a_while_ago))
    with private_directory(home, "tests") as directory:
        assert theirs.exists() and directory.exists()
    other.kill()
    other.join()
    with private_directory(home, "tests"):
        assert not theirs.exists()


async def test_whatever_was_left_in_it_the_session_goes_on_and_a_cancel_does_not_wait(
    home: ForgeHome, monkeypatch: pytest.MonkeyPatch
) -> None:
    may_go, let_go = threading.Event(), []

    def slowly(directory: Path) -> None:
        let_go.append(may_go.wait(PATIENCE))
        remove_tree(directory)

    monkeypatch.setattr(folder, "remove_tree", slowly)
    asyncio.get_running_loop().call_later(0.1, may_go.set)
    async with program_directory(home, "tests") as directory:
        (directory / "file").write_text("x")
    assert let_go == [True], "the loop had its turn meanwhile"
    assert not directory.exists()
    may_go.clear()
    with pytest.raises(asyncio.CancelledError):
        async with program_directory(home, "tests") as directory:
            raise asyncio.CancelledError
    assert directory.exists()
    may_go.set()
    async with asyncio.timeout(PATIENCE):
        while directory.exists():
            await asyncio.sleep(0.02)
