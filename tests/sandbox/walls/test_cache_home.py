"""A HOME that stays: whose it is, what may stand in its place, and that links left there lead nobody anywhere."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest
from tests import descriptors

from golem_forge.sandbox.errors import SandboxError
from golem_forge.sandbox.sandbox import Sandbox
from golem_forge.sandbox.walls import layout
from golem_forge.sandbox.walls.cache import cache_directory, kept_home, write_gitconfig


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
