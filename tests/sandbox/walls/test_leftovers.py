"""Placeholders that a killed Forge left: removed by the next walls, never shown, and nobody else's touched."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import subprocess
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from tests.deadlines import PATIENCE

from golem_forge.core.effects import Verb
from golem_forge.sandbox import files
from golem_forge.sandbox.errors import SandboxError
from golem_forge.sandbox.files import write_atomic
from golem_forge.sandbox.walls.model import Job
from golem_forge.sandbox.walls.zone_lease import remove_stale_placeholders
from golem_forge.sandbox.zones import PlaceholderNote, PlaceholderNotes, ZoneRequest, ZoneSpec

from .house import House

SLEEPS = f"60.{os.getpid():09}"
"""An argument that no other process has."""


def killed_forge(house: House) -> None:
    """Gone with everything it had started: until then the zone is in use."""
    with house.another_forge(f"echo done; sleep {SLEEPS}") as forge:
        forge.kill()
    until = time.monotonic() + PATIENCE
    while _sleepers() and time.monotonic() < until:
        time.sleep(0.01)


def _sleepers() -> list[str]:
    found = []
    for name in filter(str.isdecimal, os.listdir("/proc")):
        with contextlib.suppress(OSError):
            if SLEEPS.encode() in Path(f"/proc/{name}/cmdline").read_bytes().split(b"\0"):
                found.append(name)
    return found


def left_behind(house: House) -> PlaceholderNotes:
    """What a killed Forge leaves: placeholders and the notes of them, and nobody whose they are."""
    notes = PlaceholderNotes(house.root / "forge")
    parent = os.open(house.workspace, os.O_RDONLY)
    try:
        for name in (".git", "HEAD"):
            notes.make(str(house.workspace), (name,), parent)
    finally:
        os.close(parent)
    return notes


def notes_of(house: House) -> Path:
    return Path(house.root / "forge" / "placeholders")


@pytest.fixture
async def standing(house: House) -> AsyncIterator[Any]:
    """Walls of this process on the workspace, and the sandbox they are of."""
    box = house.sandbox()
    walled = await house.walls(sandbox=box).start(Job(argv=("sleep", "60")))
    yield box
    await walled.child.end()


def names(box: Any, path: str = "/workspace") -> list[str]:
    with box.target(path, Verb.READ) as target:
        return [entry.name for entry in files.list_dir(target)]


def test_what_a_killed_forge_left_goes_with_the_next_walls(house: House) -> None:
    killed_forge(house)
    assert sorted(os.listdir(house.workspace)) == [".git", "HEAD"]
    assert names(house.sandbox()) == []  # not shown either, as long as it is there

    assert house.run("ls -A", reads_only=True).text == ""

    assert os.listdir(house.workspace) == [] and os.listdir(notes_of(house)) == []


def test_walls_on_any_other_zone_do_it_too(house: House) -> None:
    left_behind(house)
    (house.root / "other").mkdir()

    house.run("true", house.walls(ZoneSpec(name="other", path=house.root / "other")), reads_only=True)

    assert os.listdir(house.workspace) == []


def test_hooks_of_a_repository_are_left_and_removed_alike(house: House) -> None:
    subprocess.run(["git", "init", "-q", "--template=", str(house.workspace / "lib")], check=True)
    killed_forge(house)
    assert (house.workspace / "lib/.git/hooks").is_dir()
    assert "hooks" not in names(house.sandbox(), "/workspace/lib/.git")

    house.run("true", reads_only=True)

    assert not (house.workspace / "lib/.git/hooks").exists() and (house.workspace / "lib/.git/HEAD").exists()


def test_what_a_living_forge_made_stays(house: House) -> None:
    with house.another_forge("echo done; sleep 60"):
        box = house.sandbox()
        house.run("true", house.walls(sandbox=box), reads_only=True)
        assert (house.workspace / ".git").is_dir()
        assert names(box) == []


@pytest.mark.parametrize("change", ["filled", "changed", "made anew"])
def test_what_a_person_did_to_it_makes_it_theirs(house: House, change: str) -> None:
    left_behind(house)
    git = house.workspace / ".git"
    if change == "filled":
        (git / "HEAD").touch()
    elif change == "changed":
        git.chmod(0o700)
    else:
        git.rmdir()
        git.mkdir()
    assert ".git" in names(house.sandbox())

    house.run("true", reads_only=True)

    assert git.is_dir() and os.listdir(notes_of(house)) == []


def test_an_empty_repository_of_a_person_s_is_not_taken_for_ours(house: House) -> None:
    (house.workspace / ".git").mkdir()
    assert names(house.sandbox()) == [".git"]

    house.run("true", reads_only=True)

    assert (house.workspace / ".git").is_dir()


def test_killed_between_the_note_and_its_directory(house: House) -> None:
    """What was about to be made is ours if it was made right then, and not if it was there before."""
    notes = left_behind(house)
    (file,) = notes_of(house).iterdir()
    about, made, *_ = [json.loads(line) for line in file.read_text().splitlines()]
    assert about["inode"] == 0 and made["inode"] == (house.workspace / ".git").stat().st_ino

    file.write_text(json.dumps({**about, "changed": about["changed"] + 10**10}) + "\n")
    remove_stale_placeholders(notes)
    assert (house.workspace / ".git").is_dir() and not file.exists()

    file.write_text(json.dumps(about) + '\n{"zone": "cut o')
    remove_stale_placeholders(notes)
    assert not (house.workspace / ".git").exists() and not file.exists()


def test_notes_of_a_zone_that_is_gone_are_forgotten(house: House) -> None:
    notes = left_behind(house)
    house.workspace.rename(house.root / "moved")
    remove_stale_placeholders(notes)
    assert os.listdir(notes_of(house)) == [] and sorted(os.listdir(house.root / "moved")) == [".git", "HEAD"]


def test_a_file_is_never_a_placeholder(tmp_path: Path) -> None:
    (tmp_path / ".git").touch()
    info = (tmp_path / ".git").stat()
    assert not PlaceholderNote(zone="/", parts=(".git",), inode=info.st_ino, changed=info.st_ctime_ns).is_about(info)


def test_a_home_that_cannot_be_written_costs_only_the_note(house: House) -> None:
    notes_of(house).write_text("no directory")

    ran = house.run("mkdir .git/x; touch ok")

    assert "Read-only" in ran.text and os.listdir(house.workspace) == ["ok"]


async def test_while_walls_stand_nothing_of_them_is_listed(house: House, standing: Any) -> None:
    (house.workspace / "mine").touch()
    assert os.path.isdir(house.workspace / ".git")
    assert names(standing) == ["mine"]
    (house.workspace / "sub").mkdir()
    narrower = standing.restricted("inner", "main", [ZoneRequest(name="workspace")])
    assert names(narrower) == ["mine", "sub"]


async def test_a_name_that_walls_stand_on_is_no_file_and_cannot_become_one(standing: Any) -> None:
    with standing.target(".git", Verb.READ) as target, pytest.raises(SandboxError) as absent:
        target.must_be_file()
    with pytest.raises(SandboxError) as gone:
        standing.target(".git", Verb.DELETE)
    assert absent.value.code == gone.value.code == "NOT_FOUND"
    with pytest.raises(SandboxError, match=r"Nothing can be created at '/workspace/\.git' while commands run"):
        standing.target(".git", Verb.WRITE)


async def test_a_file_made_below_it_stays_and_is_shown(house: House) -> None:
    box = house.sandbox()
    script = "until [ -e go ]; do sleep 0.01; done; ls -A .git; touch .git/x"
    walled = await house.walls(sandbox=box).start(Job(argv=("bash", "-c", script)))
    with box.target(".git/description", Verb.WRITE) as target:
        write_atomic(target, b"mine")
    assert names(box) == [".git"] and names(box, "/workspace/.git") == ["description"]
    (house.workspace / "go").touch()
    await walled.child.wait(PATIENCE)

    said = walled.child.output.read()
    assert b"Read-only" in said and b"description" not in said
    assert os.listdir(house.workspace / ".git") == ["description"] and os.listdir(notes_of(house)) == []


async def test_who_leaves_last_removes_what_others_made(house: House) -> None:
    """Also if its own walls had no use for a placeholder."""
    free = ZoneSpec(name="workspace", path=house.workspace, unprotect=(".git/hooks", ".git/config"))
    last = await house.walls(free).start(Job(argv=("sleep", "60")))
    first = await house.walls().start(Job(argv=("sleep", "60")))
    await first.child.end()
    assert (house.workspace / ".git").is_dir()

    await last.child.end()

    deadline = time.monotonic() + PATIENCE
    while os.listdir(house.workspace) and time.monotonic() < deadline:
        await asyncio.sleep(0.01)
    assert os.listdir(house.workspace) == [] and os.listdir(notes_of(house)) == []
