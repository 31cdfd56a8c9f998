"""The same walls for a plain user: a forked process gives up root and runs the main roads."""

from __future__ import annotations

import os
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.sandbox.conftest import PLAIN_USER, in_child

from golem_forge.sandbox.errors import SandboxError
from golem_forge.sandbox.process import child as _start  # noqa: F401 - loaded while it can be read
from golem_forge.sandbox.walls import landlock, probe, walls  # noqa: F401
from golem_forge.sandbox.walls.bubblewrap import find_bwrap, ripgrep_path
from golem_forge.sandbox.zones import ZoneSpec

from .house import House, init

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="needs root to become somebody else")


def theirs(place: Path) -> None:
    subprocess.run(["chown", "-R", f"{PLAIN_USER}:{PLAIN_USER}", str(place)], check=True)


@pytest.fixture
def house() -> Iterator[House]:
    """Below /tmp itself: what pytest makes is closed to others."""
    if find_bwrap() is None:
        pytest.skip("full walls need bubblewrap")
    ripgrep_path()
    with tempfile.TemporaryDirectory() as made:
        os.chmod(made, 0o755)
        yield House(Path(made), path="/usr/bin:/bin")


def test_a_plain_user_has_full_walls(house: House) -> None:
    empty = house.root / "empty"
    empty.mkdir()
    init(house.workspace)
    (house.workspace / ".env").write_text("canary")
    (house.root / "home/.gitconfig").write_text("[user]\nname = Ada\nemail = a@b.test\n")
    theirs(house.root)
    script = (
        "id -u; whoami; pwd; grep CapEff /proc/self/status; touch a; cat .env; touch .git/hooks/x;"
        " touch .git/new; mv .git g; touch /usr/x; git add a; git commit -qm one; git log --format=%an"
    )

    def scene() -> list[Any]:
        first = house.run(script)
        second = house.run(script, house.walls(ZoneSpec(name="workspace", path=empty)))
        return [first.text, second.text, list(second.after.protected_created)]

    first, second, created = in_child(scene)

    head = f"{PLAIN_USER}\nforge\n/workspace\nCapEff:\t0000000000000000\n"
    assert first.startswith(head) and second.startswith(head)
    assert "canary" not in first and first.endswith("Ada\n")
    assert not (house.workspace / ".git/hooks/x").exists() and not (house.workspace / ".git/new").exists()
    assert sorted(os.listdir(house.workspace)) == [".env", ".git", "a"]
    assert os.listdir(empty) == ["a"] and created == []
    assert "Read-only file system" in second


def test_a_directory_that_only_others_can_write_needs_no_placeholder(house: House) -> None:
    (house.workspace / "a").write_text("content")

    def scene() -> list[Any]:
        ran = house.run("cat a; mkdir .git; chmod 777 .")
        return [ran.code, ran.text]

    code, text = in_child(scene)

    assert code != 0 and text.startswith("content") and os.listdir(house.workspace) == ["a"]


def test_what_cannot_be_listed_is_masked_whole(house: House) -> None:
    zone = house.workspace
    for name in ("sub", "flat/deep"):
        (zone / name).mkdir(parents=True)
    for name in (".", "nested"):
        init(zone / name)
    (zone / "sub/.env").write_text("canary")
    theirs(house.root)

    def scene() -> list[Any]:
        inside = house.walls()
        scripts = (
            "chmod 311 sub nested && chmod 000 .git && touch flat/.env && chmod 644 flat",
            "chmod 755 sub nested .git; cat sub/.env; touch nested/.git/hooks/x .git/hooks/x; mv sub s; mv nested n;"
            " ls flat",
            "chmod 311 .",
        )
        said = [house.run(script, inside).text for script in scripts]
        read = f"cat {zone}/sub/.env {zone}/.git/config; ls {zone}"
        try:
            return [*said, house.run(read, inside, cwd="/", reads_only=True).text]
        except SandboxError as refused:
            return [*said, refused.message]

    _, second, _, last = said = in_child(scene)

    assert "/workspace cannot be searched for secret names: it cannot be listed (Permission denied)" in last
    assert "canary" not in "".join(said) and "[core]" not in "".join(said)
    assert "Read-only file system" in second and "busy" in second
    assert not (zone / ".git/hooks/x").exists() and not (zone / "nested/.git/hooks/x").exists()
    assert sorted(os.listdir(zone)) == [".git", "flat", "nested", "sub"]
