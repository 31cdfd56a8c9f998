"""What stays between commands: the cache of their HOME, bytecode, and what package managers keep."""

from __future__ import annotations

import json
import os
import shutil
import stat
from pathlib import Path
from typing import Any

import pytest
from tests import descriptors

from golem_forge.sandbox.errors import SandboxError
from golem_forge.sandbox.sandbox import Sandbox
from golem_forge.sandbox.walls import cache, layout
from golem_forge.sandbox.walls.cache import (
    cache_directory,
    cache_variables,
    is_look_due,
    kept_home,
    look_after,
    write_gitconfig,
)
from golem_forge.sandbox.walls.environment import show_certificates
from golem_forge.sandbox.walls.model import HostDirectory, HostGrant, Job, Level
from golem_forge.sandbox.walls.walls import Walls
from golem_forge.sandbox.zones import AccessMode, ZoneSpec
from golem_forge.storage.home import ForgeHome

from .house import House, Ran


def mode(path: str | Path) -> int:
    return stat.S_IMODE(os.stat(path).st_mode)


def test_the_cache_directory_is_where_the_person_has_it():
    home = Path("/home/ada")
    assert cache_directory({}, home) == home / ".cache"
    assert cache_directory({"XDG_CACHE_HOME": "/var/caches/ada"}, home) == Path("/var/caches/ada")
    assert cache_directory({"XDG_CACHE_HOME": "relative"}, home) == home / ".cache"


def test_it_is_made_for_its_owner_alone(tmp_path):
    os.umask(os.umask(0))
    made = kept_home(tmp_path / "cache", "golem-forge", "mcp", "docs-1")
    assert made == os.path.realpath(tmp_path / "cache/golem-forge/mcp/docs-1")
    assert mode(made) == mode(Path(made).parent) == 0o700
    Path(made).chmod(0o755)
    assert kept_home(tmp_path / "cache", "golem-forge", "mcp", "docs-1") == made
    assert mode(made) == 0o700


def test_links_above_it_are_the_persons_own_affair(tmp_path):
    (tmp_path / "disk").mkdir()
    (tmp_path / "cache").symlink_to(tmp_path / "disk")
    assert kept_home(tmp_path / "cache", "a") == os.path.realpath(tmp_path / "disk" / "a")


@pytest.mark.parametrize("where", ["golem-forge", "golem-forge/mcp", "golem-forge/mcp/docs"])
@pytest.mark.parametrize("what", ["link", "file"])
def test_something_else_in_its_place_is_refused(tmp_path, where, what):
    place = tmp_path / where
    place.parent.mkdir(parents=True, exist_ok=True)
    (tmp_path / "elsewhere").mkdir()
    if what == "link":
        place.symlink_to(tmp_path / "elsewhere")
    else:
        place.write_text("")
    before = descriptors.held()
    with pytest.raises(SandboxError, match="cannot be used") as caught:
        kept_home(tmp_path, "golem-forge", "mcp", "docs")
    assert caught.value.code == "WALLS_UNAVAILABLE" and str(tmp_path) not in caught.value.message
    assert descriptors.no_more_than(before)
    assert os.listdir(tmp_path / "elsewhere") == []


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can make a directory somebody else's")
def test_one_of_another_user_is_refused(tmp_path):
    made = kept_home(tmp_path, "docs")
    os.chown(made, 12345, 12345)
    with pytest.raises(SandboxError, match="another user"):
        kept_home(tmp_path, "docs")


def test_who_the_person_is_is_written_through_no_link(tmp_path):
    precious = tmp_path / "precious"
    precious.write_text("untouched")
    home = kept_home(tmp_path, "docs")
    file = Path(home) / ".gitconfig"
    file.symlink_to(precious)
    write_gitconfig(home, "[user]\n")
    assert precious.read_text() == "untouched"
    assert not file.is_symlink() and file.read_text() == "[user]\n" and mode(file) == 0o600
    written = file.stat().st_ino
    write_gitconfig(home, "[user]\n")
    assert file.stat().st_ino == written  # nothing to do
    os.unlink(file)
    os.mkfifo(file)
    write_gitconfig(home, "[user]\n")  # and nobody waits for a fifo
    assert file.is_file()
    write_gitconfig(home, "")
    assert file.read_text() == "[user]\n"


def test_what_it_keeps_is_there_the_next_time(house):
    home = kept_home(house.root / "cache", "docs")
    first = house.run("echo $HOME; pwd; echo kept > ~/x; mkdir ~/work 2>&1", home=home)
    assert first.text.splitlines()[0] == layout.HOME
    assert house.run("cat ~/x", home=home).text == "kept\n"
    assert (Path(home) / "x").read_text() == "kept\n"
    assert house.run("cat ~/x").code != 0  # another job's home is its own


def test_without_a_zone_it_starts_there(house):
    home = kept_home(house.root / "cache", "docs")
    walls = house.walls(sandbox=Sandbox(has_block=False))
    assert house.run("pwd", walls, home=home).text == f"{layout.HOME}\n"


def test_where_a_zone_stands_below_the_usual_home_it_stands_elsewhere(house, monkeypatch):
    """A person called forge: bubblewrap would make the zone's place in the kept home, through links left there."""
    monkeypatch.setattr(layout, "HOME", str(house.root))
    home = kept_home(house.root / "cache", "docs")
    (Path(home) / "workspace").symlink_to("/oldroot/etc")
    ran = house.run("echo $HOME; echo kept > ~/x; echo made > /workspace/made; ls -A ~", home=home)
    place, *inside = ran.text.split()
    assert place != layout.HOME and inside == ["workspace", "x"]
    assert sorted(os.listdir(home)) == ["workspace", "x"]
    assert (house.workspace / "made").read_text() == "made\n"


def test_its_place_is_free():
    assert layout.kept_home_mount_point(["/usr", "/workspace", "/home/forgetful/x"]) == layout.HOME
    assert layout.kept_home_mount_point(["/home/forge"]) != layout.HOME
    assert layout.kept_home_mount_point(["/home/forge/.local/bin"]) != layout.HOME


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
    made = walls.as_command(Job(argv=("bash", "-c", script), **job), Level.FULL)
    given = {name: getattr(made, name) for name in (*job, "env", "bytecode", "cache", "shown")}
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


PEM = "-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----\n"


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
