"""The cache of commands: whose it is, that no other zone sees it, its bounds, and when it is removed."""

from __future__ import annotations

import json
import os
import shutil
import stat
from pathlib import Path
from typing import Any

import pytest

from golem_forge.sandbox.walls import cache, layout
from golem_forge.sandbox.walls.cache import cache_variables, is_look_due, look_after
from golem_forge.sandbox.walls.environment import show_certificates
from golem_forge.sandbox.walls.model import HostDirectory, HostGrant, Job, Level
from golem_forge.sandbox.walls.walls import Walls
from golem_forge.sandbox.zones import AccessMode, ZoneSpec
from golem_forge.storage.home import ForgeHome

from .house import House, Ran

PEM = "-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----\n"


def run(house: House, script: str, walls: Walls | None = None, **job: Any) -> Ran:
    """As commands are run."""
    walls = walls or house.walls()
    made = walls.as_command(Job(argv=("bash", "-c", script), **job), Level.FULL)
    given = {name: getattr(made, name) for name in (*job, "env", "bytecode", "cache", "shown")}
    return house.run(script, walls, **given)


def caches(house: House) -> list[Path]:
    return sorted((house.root / "forge/cache/commands").glob("*/tree"))


def test_what_one_command_keeps_the_next_one_finds(house: House) -> None:
    assert run(house, "mkdir ~/.cache/pip && echo kept > ~/.cache/pip/x; stat -c %a ~/.cache").text == "700\n"
    assert run(house, "cat ~/.cache/pip/x", house.walls()).text == "kept\n"
    [tree] = caches(house)
    assert (tree / "pip" / "x").read_text() == "kept\n"
    assert all(stat.S_IMODE(path.stat().st_mode) == 0o700 for path in (tree, tree.parent, tree.parent.parent))
    assert not (house.root / "home" / ".cache" / "pip").exists()
    assert run(house, "ls -A ~").text.split() == [".cache", "work"]  # the rest of the home is private, as ever


def test_another_zone_sees_nothing_of_it(house: House) -> None:
    """Also the same zone with fewer rights, with a further zone, or another directory at the same path."""
    run(house, "echo poison > ~/.cache/x")
    other = house.root / "other"
    other.mkdir()
    for specs in (
        (ZoneSpec(name="workspace", path=other),),
        (ZoneSpec(name="workspace", path=house.workspace, mode=AccessMode.RO), ZoneSpec(name="other", path=other)),
        (ZoneSpec(name="workspace", path=house.workspace), ZoneSpec(name="other", path=other)),
    ):
        assert run(house, "ls -A ~/.cache", house.walls(*specs)).text == ""
    house.workspace.rename(house.root / "moved")
    house.workspace.mkdir()
    assert run(house, "ls -A ~/.cache", house.walls()).text == ""
    assert len(caches(house)) == 2  # the others were of a zone that is gone


@pytest.mark.parametrize(
    "more",
    [{"lifted": frozenset({"/workspace/.env"})}, {"reads_only": True}, {"shares_network": True}, {"own_program": True}],
)
def test_a_job_that_may_do_more_or_changes_nothing_has_none(house: House, more: dict[str, Any]) -> None:
    assert house.walls().as_command(Job(argv=("true",), **more), Level.FULL).cache == ""


def test_a_worker_that_cannot_write_has_none(house: House) -> None:
    walls = house.walls(ZoneSpec(name="workspace", path=house.workspace, mode=AccessMode.RO))
    assert walls.as_command(Job(argv=("true",)), Level.FULL).cache == ""
    assert house.walls().as_command(Job(argv=("true",)), Level.LANDLOCK).cache == ""


def test_a_job_that_is_no_command_sees_none(house: House) -> None:
    """Builds, tools and servers are started as they are."""
    run(house, "echo poison > ~/.cache/x")
    assert house.run("ls -A ~/.cache").code != 0


def test_where_a_zone_stands_in_its_place_there_is_none(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(layout, "CACHE", str(house.root))
    assert house.walls().as_command(Job(argv=("true",)), Level.FULL).cache == ""


@pytest.mark.parametrize("what", ["link", "file"])
def test_something_else_in_its_place_is_not_used(house: House, what: str) -> None:
    walls = house.walls()
    [tree] = [Path(walls.as_command(Job(argv=("true",)), Level.FULL).cache)]
    tree.rmdir()
    precious = house.root / "precious"
    precious.mkdir()
    tree.symlink_to(precious) if what == "link" else tree.write_text("")
    assert run(house, "mkdir -p ~/.cache && echo x > ~/.cache/x && echo done", walls).text == "done\n"
    assert os.listdir(precious) == []


def fill(tree: Path, name: str, size: int, used: float) -> None:
    (tree / name).mkdir()
    (tree / name / "a").write_bytes(b"x" * size)
    os.utime(tree / name / "a", (used, used))


def test_the_oldest_go_when_there_is_too_much(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    """By what was used last, not by what somebody says of a time ahead; a whole program's at once."""
    tree = Path(house.walls().as_command(Job(argv=("true",)), Level.FULL).cache)
    for name in ("first", "second", "third"):
        fill(tree, name, 40_000, used=4_000_000_000.0)
    precious = house.root / "precious"
    precious.mkdir()
    (precious / "x").write_text("mine")
    (tree / "link").symlink_to(precious)
    (tree / "third" / "out").symlink_to(precious)
    monkeypatch.setattr(cache, "LARGEST", 150_000)
    look_after(str(tree))
    assert sorted(os.listdir(tree)) == ["first", "link", "second", "third"]
    assert not is_look_due(str(tree))
    monkeypatch.setattr(cache, "LARGEST", 100_000)
    look_after(str(tree))
    assert sorted(os.listdir(tree)) == ["link", "second", "third"]
    monkeypatch.setattr(cache, "MOST_FILES", 2)
    look_after(str(tree))
    assert "second" not in os.listdir(tree) and (precious / "x").read_text() == "mine"
    assert sorted(name for name in os.listdir(tree.parent) if name.startswith("removed")) == []


def test_what_is_closed_to_its_owner_goes_too(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    """As Go leaves its modules, or worse."""
    made = "mkdir -p ~/.cache/go/a ~/.cache/shut && echo x | tee ~/.cache/go/a/x ~/.cache/shut/x"
    run(house, f"{made} && chmod -R a-w ~/.cache/go; chmod 0 ~/.cache/shut")
    [tree] = caches(house)
    monkeypatch.setattr(cache, "LARGEST", 1)
    look_after(str(tree))
    assert os.listdir(tree) == []


def test_a_tree_that_cannot_be_looked_through_goes(house: House) -> None:
    """A path so deep that no name reaches its end."""
    script = "mkdir -p ~/.cache/deep; cd ~/.cache/deep; for i in $(seq 60); do mkdir -p $0 && cd $0; done; echo done"
    assert "done" in run(house, script.replace("$0", "d" * 200)).text
    [tree] = caches(house)
    look_after(str(tree))
    assert os.listdir(tree) == []


def test_those_of_zones_that_are_gone_are_removed(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    gone = house.root / "gone"
    gone.mkdir()
    run(house, "echo x > ~/.cache/x", house.walls(ZoneSpec(name="workspace", path=gone)))
    run(house, "echo x > ~/.cache/x")
    assert len(caches(house)) == 2
    shutil.rmtree(gone)
    kept = house.walls().as_command(Job(argv=("true",)), Level.FULL).cache
    look_after(kept)
    assert [str(each) for each in caches(house)] == [kept]
    for number in range(3):
        place = house.root / f"zone{number}"
        place.mkdir()
        walls = house.walls(ZoneSpec(name="workspace", path=place))
        used = Path(walls.as_command(Job(argv=("true",)), Level.FULL).cache).parent / "used"
        os.utime(used, (number, number))
    monkeypatch.setattr(cache, "MOST_KEPT", 2)
    look_after(kept)
    left = [json.loads((each.parent / "zones.json").read_text())[0][0] for each in caches(house)]
    assert sorted(left) == sorted([str(house.workspace), str(house.root / "zone2")])


def test_a_bound_is_looked_at_by_commands_themselves(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    run(house, "mkdir ~/.cache/a; head -c 100000 /dev/zero > ~/.cache/a/x")
    monkeypatch.setattr(cache, "LARGEST", 10_000)
    monkeypatch.setattr(cache, "LOOK_EVERY_S", 0)
    assert run(house, "ls -A ~/.cache").text == ""


def test_crates_and_modules_of_the_person_serve_until_a_command_may_fetch(tmp_path: Path) -> None:
    own = {"CARGO_HOME": "/home/ada/.cargo"}
    offline = cache_variables(str(tmp_path), own, hosts=False)
    assert "CARGO_HOME" not in offline and offline["GOMODCACHE"].startswith(layout.CACHE)
    assert cache_variables(str(tmp_path), own, hosts=True)["CARGO_HOME"] == f"{layout.CACHE}/cargo"
    (tmp_path / "cargo" / "registry").mkdir(parents=True)
    assert "CARGO_HOME" in cache_variables(str(tmp_path), own, hosts=False)


def test_certificates_of_the_person_reach_commands(house: House) -> None:
    """Without the key beside them, and without the variable of one that is not there."""
    bundle = house.root / "ca.pem"
    bundle.write_text(PEM + "-----BEGIN PRIVATE KEY-----\ncanary\n-----END PRIVATE KEY-----\n")
    named = {"SSL_CERT_FILE": str(bundle), "npm_config_cafile": str(bundle), "PIP_CERT": "/nowhere/ca.pem"}
    walls = house.walls(environ={"PATH": house.path, **named})
    done = run(house, "cat $SSL_CERT_FILE $npm_config_cafile; echo ${PIP_CERT:-none}", walls)
    assert done.text == PEM * 2 + "none\n"
    assert any("PIP_CERT names no certificate" in notice for notice in walls.notices)
    passed = run(house, "cat $SSL_CERT_FILE", walls, env={"SSL_CERT_FILE": str(bundle)})
    assert passed.text == PEM
    assert run(house, "echo ${SSL_CERT_FILE:-none}", walls, env={"SSL_CERT_FILE": "/other"}).text == "/other\n"
    system = "/usr/share/ca.pem"
    assert show_certificates({"SSL_CERT_FILE": system}, ForgeHome(house.root / "forge"), []).env == {}


def test_bytecode_is_kept_beside_certificates_and_mirrors(house: House) -> None:
    (house.root / "ca.pem").write_text(PEM)
    walls = house.walls(environ={"PATH": house.path, "SSL_CERT_FILE": str(house.root / "ca.pem")})
    made = walls.as_command(Job(argv=("true",)), Level.FULL)
    assert made.bytecode and made.shown and made.cache
    further = walls.as_command(Job(argv=("true",), hosts=(HostGrant("a.test"),)), Level.FULL)
    assert not further.bytecode and further.cache == made.cache
    own = HostDirectory("/usr/share", "/forge/share")
    assert not walls.as_command(Job(argv=("true",), shown=(own,)), Level.FULL).bytecode
