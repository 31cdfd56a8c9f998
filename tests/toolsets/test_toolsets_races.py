"""Links and directories swapped in a race against every file tool, over the whole path, as root and as a plain user.

Outside the zone stands a canary. Whatever the swapper does, no tool may read it, change it, delete it or list it.
"""

from __future__ import annotations

import asyncio
import os
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from tests.deadlines import PATIENCE
from tests.sandbox.conftest import PLAIN_USER, in_child

from golem_forge import open_session

CANARY = "canary outside every zone"
TOOLS: dict[str, dict[str, Any]] = {
    "read_file": {"path": "swap/secret.txt"},
    "list_files": {"path": "swap"},
    "file_exists": {"path": "swap/secret.txt"},
    "file_info": {"path": "swap/secret.txt"},
    "write_file": {"path": "swap/secret.txt", "content": "ours"},
    "delete_file": {"path": "swap/secret.txt"},
}
SECONDS = 0.1


def swapping(project: Path, outside: Path, stop: threading.Event) -> None:
    """The name `swap` is a directory of the zone, then a link to the outside, then nothing, as fast as it goes."""
    swap, kept, link = project / "swap", project / "kept", project / "link"
    while not stop.is_set():
        for step in (
            lambda: os.rename(swap, kept),
            lambda: os.symlink(outside, link),
            lambda: os.rename(link, swap),
            lambda: os.unlink(swap),
            lambda: os.rename(kept, swap),
        ):
            try:
                step()
            except OSError:
                continue


async def attack(project: Path, outside: Path, home: Path) -> list[str]:
    """Every escape that was seen."""
    stop = threading.Event()
    swapper = threading.Thread(target=swapping, args=(project, outside, stop), daemon=True)
    swapper.start()
    escapes: list[str] = []
    async with open_session(project, approval="approve_all", home=home, journal=False) as session:
        for name, args in TOOLS.items():
            end = time.monotonic() + SECONDS
            while time.monotonic() < end:
                outcome = await session.call(name, args)
                if CANARY in str(outcome) or "only-outside" in str(outcome):
                    escapes.append(f"{name}: {outcome.text}")
    stop.set()
    swapper.join(PATIENCE)
    return escapes


def scene(tmp_path: Path) -> tuple[Path, Path, Path]:
    project, outside, home = tmp_path / "project", tmp_path / "outside", tmp_path / "forge-home"
    (project / "swap").mkdir(parents=True)
    outside.mkdir()
    home.mkdir()
    (project / "swap" / "secret.txt").write_text("inside")
    (outside / "secret.txt").write_text(CANARY)
    (outside / "only-outside").write_text("x")
    return project, outside, home


@pytest.mark.parametrize("user", [0, PLAIN_USER], ids=["root", "plain user"])
def test_no_tool_follows_a_swap_out_of_its_zone(tmp_path: Path, user: int) -> None:
    if os.getuid() != 0 and user != os.getuid():
        pytest.skip("another user can only be tried by root")
    project, outside, home = scene(tmp_path)
    if user:
        asyncio.run(_warm_up(tmp_path))  # everything is imported before the child may no longer read it
        for path in (project, project / "swap", project / "swap" / "secret.txt", outside, home):
            os.chown(path, user, user)
        for folder in (tmp_path, *tmp_path.parents):
            if folder.stat().st_uid == os.getuid() and str(folder).startswith("/tmp/"):
                folder.chmod(folder.stat().st_mode | 0o011)
        escapes = in_child(lambda: asyncio.run(attack(project, outside, home)))
    else:
        escapes = asyncio.run(attack(project, outside, home))
    assert escapes == []
    assert (outside / "secret.txt").read_text() == CANARY
    assert sorted(os.listdir(outside)) == ["only-outside", "secret.txt"]


async def _warm_up(tmp_path: Path) -> None:
    folder = tmp_path / "warm"
    folder.mkdir()
    async with open_session(folder, approval="approve_all", home=tmp_path / "warm-home") as session:
        for name, args in TOOLS.items():
            await session.call(name, {**args, "path": "x"} if "path" in args else args)
