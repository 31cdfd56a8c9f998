"""Python's bytecode: never in a zone, kept for the next command of the same zones, and bounded."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from golem_forge.sandbox.walls import cache
from golem_forge.sandbox.walls.model import HostDirectory, HostGrant, Job, Level
from golem_forge.sandbox.walls.walls import Walls
from golem_forge.sandbox.zones import AccessMode, ZoneSpec

from .house import House, Ran

IMPORT = "python3 -v -c 'import pkg; print(pkg.__cached__)' 2>&1 | grep -a -E '(matches|code object).*pkg|^/'"
ENVIRONMENT = "echo ${PYTHONPYCACHEPREFIX:-none} ${PYTHONDONTWRITEBYTECODE:-none}"


@pytest.fixture
def package(house: House) -> Path:
    made = house.workspace / "pkg"
    made.mkdir()
    (made / "__init__.py").write_text("x = 1\n")
    return made


def run(house: House, script: str, walls: Walls | None = None, **job: Any) -> Ran:
    """As commands are run."""
    walls = walls or house.walls()
    made = walls.keeping_bytecode(Job(argv=("bash", "-c", script), **job), Level.FULL)
    given = {name: getattr(made, name) for name in (*job, "env", "bytecode")}
    return house.run(script, walls, **given)


def trees(house: House) -> list[Path]:
    return sorted((house.root / "home/.cache/golem-forge/bytecode").glob("*/tree"))


def test_a_command_leaves_none_in_its_zone_and_the_next_one_finds_it(house: House, package: Path) -> None:
    first = run(house, IMPORT)
    assert "code object from /workspace/pkg/__init__.py" in first.text
    second = run(house, IMPORT)
    assert "code object from '/opt/forge/bytecode/workspace/pkg/" in second.text and "matches" in second.text
    assert os.listdir(package) == ["__init__.py"]
    [tree] = trees(house)
    assert [path.name for path in tree.rglob("*pkg*/*.pyc")] and tree.stat().st_mode & 0o777 == 0o700
    assert str(house.root) not in first.text + second.text


@pytest.mark.parametrize(
    "more",
    [
        {"hosts": (HostGrant("example.test"),)},
        {"lifted": frozenset({"/workspace/.env"})},
        {"shown": (HostDirectory("/usr/share", "/forge/share"),)},
    ],
)
def test_who_may_do_more_runs_no_bytecode_of_others_and_writes_none(house: House, package: Path, more: dict) -> None:
    (house.workspace / ".env").write_text("")
    ran = run(house, f"{ENVIRONMENT}; python3 -c 'import pkg'; ls /opt/forge/bytecode", **more)
    assert ran.text.startswith("none 1\n") and "No such file" in ran.text
    assert os.listdir(package) == ["__init__.py"] and trees(house) == []


def test_each_set_of_zones_and_each_kind_of_command_has_its_own(house: House, package: Path) -> None:
    scratch = house.root / "scratch"
    scratch.mkdir()
    zone = ZoneSpec(name="workspace", path=house.workspace)
    other = ZoneSpec(name="scratch", path=scratch)
    assert run(house, ENVIRONMENT).text == "/opt/forge/bytecode none\n"
    run(house, "true", house.walls(zone, other))
    run(house, "true", house.walls(zone, ZoneSpec(name="scratch", path=scratch, mode=AccessMode.RO)))
    run(house, "true", env={"TOKEN": "x"})
    assert len(trees(house)) == 4
    run(house, "true", env={"TOKEN": "y"})
    run(house, "true", reads_only=True)
    run(house, "true", house.walls(ZoneSpec(name="scratch", path=scratch, mode=AccessMode.RO)))
    run(house, "true", house.walls(ZoneSpec(name="workspace", path=house.workspace, at_host_path=False)))
    assert len(trees(house)) == 4


def test_it_is_no_reason_to_refuse_a_start(house: House, package: Path) -> None:
    inside = house.walls(environ={"PATH": house.path, "XDG_CACHE_HOME": str(house.workspace / "cache")})
    assert run(house, ENVIRONMENT, inside).text == "none 1\n"
    walls = house.walls()
    assert run(house, ENVIRONMENT, walls).text == "/opt/forge/bytecode none\n"
    [tree] = trees(house)
    tree.rmdir()
    assert run(house, ENVIRONMENT, walls).text == "/opt/forge/bytecode none\n"
    tree.rmdir()
    tree.symlink_to(house.workspace)
    assert run(house, f"{ENVIRONMENT}; python3 -c 'import pkg'").text == "none 1\n"
    assert os.listdir(package) == ["__init__.py"] and tree.is_symlink()


def test_other_kinds_of_children_have_the_environment_that_they_declare(house: House, package: Path) -> None:
    assert house.run(ENVIRONMENT).text == "none none\n" and trees(house) == []
    walls, job = house.walls(), Job(argv=("true",), env={"PYTHONPYCACHEPREFIX": "/tmp/mine"})
    assert walls.keeping_bytecode(job, Level.LANDLOCK) == job
    assert walls.keeping_bytecode(job, Level.FULL).env == job.env
    assert walls.keeping_bytecode(Job(argv=("true",)), Level.OFF).env == {"PYTHONDONTWRITEBYTECODE": "1"}
    reading = Job(argv=("true",), reads_only=True)
    assert walls.keeping_bytecode(reading, Level.FULL) == reading


def test_one_that_grew_too_large_is_emptied_and_old_ones_go(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    run(house, "true")
    [tree] = trees(house)
    outside = house.root / "precious"
    outside.mkdir()
    (outside / "a").write_text("x")
    deep = tree
    for _ in range(300):
        deep = deep / "d"
    deep.mkdir(parents=True)
    (deep / "f").write_text("x" * 10_000)
    (tree / "link").symlink_to(outside)
    (tree / "closed").mkdir()
    (tree / "closed/inner").mkdir()
    (tree / "closed").chmod(0)
    for number in range(40):
        (tree.parent.parent / f"old{number}/tree/x").mkdir(parents=True)
    run(house, "true")
    assert (tree / "link").is_symlink(), "one look a day"
    monkeypatch.setattr(cache, "_BYTECODE_LARGEST", 5_000)
    os.utime(tree.parent / "looked", (1, 1))
    walls: Walls = house.walls()
    assert run(house, "ls -A /opt/forge/bytecode", walls).text == ""
    assert (outside / "a").read_text() == "x"
    assert len(os.listdir(tree.parent.parent)) == 32 and tree.is_dir()
