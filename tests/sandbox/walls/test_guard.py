"""A guarded file that is replaced from outside while a command runs: the mount on it is gone, so the command is too."""

from __future__ import annotations

import asyncio
import subprocess
from pathlib import Path
from typing import Any

import pytest
from tests import descriptors

from golem_forge.sandbox.processes.ending import Ending
from golem_forge.sandbox.walls.guard import AT_A_LOOK, Guard, guarded
from golem_forge.sandbox.walls.job import Job
from golem_forge.sandbox.walls.plan import Restriction, Why
from golem_forge.sandbox.walls.restrictions import ZoneRestrictions
from golem_forge.sandbox.zones import ZoneSpec
from golem_forge.toolsets.exec.text import standing_of

from .conftest import House

SAID = "Ended: a guarded file was replaced from outside while the command ran"


def replaced(path: Path, text: str) -> None:
    """As editors save."""
    fresh = path.with_name(path.name + "~")
    fresh.write_text(text)
    fresh.rename(path)


async def meanwhile(house: House, script: str, change: Any, **job: Any) -> tuple[Ending, str]:
    """`change` is made once the script says that it runs."""
    child = (await house.walls().start(Job(argv=("bash", "-c", f"echo runs; {script}"), **job))).child
    try:
        assert await child.output.more(0, 30)
        change()
        ending = await child.wait(30)
    finally:
        await child.end()
    assert ending is not None
    return ending, child.output.read().decode()


@pytest.mark.parametrize("reads_only", [False, True])
def test_a_secret_saved_over_ends_the_command(house: House, reads_only: bool) -> None:
    secret = house.workspace / ".env"
    secret.write_text("CANARY-OLD")
    script = "sleep 15; cat .env; sleep 60"
    ending, text = asyncio.run(meanwhile(house, script, lambda: replaced(secret, "CANARY-NEW"), reads_only=reads_only))
    assert ending.code == "WALLS_CHANGED"
    assert "CANARY" not in text
    assert standing_of(ending, session=1, timeout_s=1).line == SAID
    assert standing_of(ending, session=1, timeout_s=1).code == "WALLS_CHANGED"


def test_a_secret_removed_and_written_again_ends_the_command(house: House) -> None:
    """The new file may well get the number of the old one."""
    secret = house.workspace / ".env"
    secret.write_text("CANARY-OLD")

    def change() -> None:
        secret.unlink()
        secret.write_text("CANARY-NEW")

    ending, text = asyncio.run(meanwhile(house, "sleep 15; cat .env; sleep 60", change))
    assert ending.code == "WALLS_CHANGED"
    assert "CANARY" not in text


def test_nothing_stays_open_after_the_end(house: House) -> None:
    (house.workspace / ".env").write_text("CANARY-OLD")
    walls = house.walls()

    async def let_go() -> bool:
        before = descriptors.held()
        walled = await walls.start(Job(argv=("sleep", "0.1")))
        assert await walled.child.wait(30) is not None
        return descriptors.no_more_than(before)

    assert asyncio.run(let_go())


def test_git_config_of_the_person_ends_the_command(house: House) -> None:
    subprocess.run(["git", "init", "-q", house.workspace], check=True)
    setting = ["git", "-C", str(house.workspace), "config", "user.name", "me"]
    script = "sleep 15; echo '#evil' >> .git/config; sleep 60"
    ending, _ = asyncio.run(meanwhile(house, script, lambda: subprocess.run(setting, check=True)))
    assert ending.code == "WALLS_CHANGED"
    assert "evil" not in (house.workspace / ".git" / "config").read_text()


def test_written_in_place_everything_goes_on(house: House) -> None:
    secret = house.workspace / ".env"
    secret.write_text("CANARY-OLD")
    (house.workspace / "plain").write_text("old")

    def change() -> None:
        secret.write_text("CANARY-NEW")
        replaced(house.workspace / "plain", "new")
        (house.workspace / "go").touch()

    script = "until [ -e go ]; do sleep 0.02; done; sleep 0.4; cat .env; cat plain"
    ending, text = asyncio.run(meanwhile(house, script, change))
    assert (ending.code, ending.exit_code) == ("", 0)
    assert text.endswith("new")
    assert "CANARY" not in text


def test_a_directory_that_the_command_itself_would_move_is_no_reason(house: House) -> None:
    (house.workspace / "sub").mkdir()
    (house.workspace / "sub" / ".env").write_text("CANARY-OLD")
    ran = house.run("mv sub other; sleep 0.3; cat other/.env sub/.env")
    assert ran.ending.code == ""
    assert "CANARY" not in ran.text


def test_a_repository_made_in_the_place_of_a_placeholder_ends_the_command(house: House) -> None:
    place = house.workspace / ".git"

    def change() -> None:
        place.rmdir()
        place.mkdir()

    ending = asyncio.run(_later(house, change))
    assert ending.code == "WALLS_CHANGED"


async def _later(house: House, change: Any) -> Ending:
    """After the first look, which learns what the walls themselves made."""
    child = (await house.walls().start(Job(argv=("sleep", "60")))).child
    try:
        async with asyncio.timeout(30):
            while child._watcher is None or child._watcher._looks < 2:
                await asyncio.sleep(0.02)
        change()
        ending = await child.wait(30)
    finally:
        await child.end()
    assert ending is not None
    return ending


def test_more_paths_than_one_look_asks_for_have_their_turn(house: House) -> None:
    names = [f"f{number:04}" for number in range(AT_A_LOOK + 50)]
    for name in names:
        (house.workspace / name).write_text("x")
    zone = house.sandbox(ZoneSpec(name="workspace", path=house.workspace)).zones["workspace"]
    found = tuple(Restriction(parts=(name,), why=Why.RULE, masked=True) for name in names)
    look = Guard(guarded([zone], {"workspace": ZoneRestrictions(writable=True, found=found)}, (), ()))
    assert [look(), look(), look()] == [True, True, True]
    replaced(house.workspace / names[-1], "y")
    assert False in (look(), look())


def test_a_masked_path_outside_of_zones_is_guarded_too(house: House, tmp_path: Path) -> None:
    zone = house.sandbox(ZoneSpec(name="workspace", path=house.workspace)).zones["workspace"]
    token = tmp_path / "token"
    token.write_text("x")
    look = Guard(guarded([zone], {"workspace": ZoneRestrictions(writable=True)}, (), (str(token),)))
    assert look()
    replaced(token, "y")
    assert not look()


def test_what_was_replaced_between_two_looks_is_found_at_the_end(house: House) -> None:
    """A child that waits for the moment is quicker than any look; its call does not pass for a success."""
    env = house.workspace / ".env"
    env.write_text("old")

    def change() -> None:
        replaced(env, "new")
        (house.workspace / "go").touch()

    ending, _ = asyncio.run(meanwhile(house, "until [ -e go ]; do sleep 0.001; done", change))
    assert ending.code == "WALLS_CHANGED"
