"""The scan: what it finds, what it does not enter, and that it looks again exactly when something changed."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from golem_forge.sandbox.access import best_opener
from golem_forge.sandbox.walls import scan as module
from golem_forge.sandbox.walls.deeper import nothing_secret_below
from golem_forge.sandbox.walls.scan import ZoneScan
from golem_forge.sandbox.zones import ZoneSpec, open_zone


def _found(scan: ZoneScan) -> set[str]:
    return {"/".join(finding.parts) for finding in scan.findings}


def _make(root: Path, *names: str) -> None:
    for name in names:
        path = root / name
        if name.endswith("/"):
            path.mkdir(parents=True, exist_ok=True)
        else:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.touch()


def test_protected_and_secret_names_down_to_depth_four(tmp_path: Path) -> None:
    _make(tmp_path, ".git/hooks/", ".git/config", ".git/HEAD", "a/.env", "a/b/c/.bashrc", "a/b/c/.git/hooks/")
    _make(tmp_path, "a/b/c/d/e/f/.env", "main.worker", "plain.py", ".config/fish/", ".Config/fish/", "a/X.PEM")
    scan = ZoneScan(str(tmp_path))

    scan.refresh()

    assert _found(scan) == {
        *(".git/hooks", ".git/config", "a/.env", "a/b/c/.bashrc", "a/b/c/.git/hooks"),
        *("main.worker", ".config/fish", ".Config/fish", "a/X.PEM"),
    }


def test_what_is_not_entered(tmp_path: Path) -> None:
    _make(tmp_path, "node_modules/x/.env", ".venv/pyvenv.cfg", ".venv/lib/python3.12/site-packages/cacert.pem")
    _make(tmp_path, ".git/objects/x.pem")
    _make(tmp_path, ".git/refs/heads/x.key", "link/.env")
    (tmp_path / "outside").symlink_to("/etc")
    scan = ZoneScan(str(tmp_path))

    scan.refresh()

    assert _found(scan) == {"link/.env"}


def test_submodules_and_worktrees(tmp_path: Path) -> None:
    _make(tmp_path, ".git/modules/libs/one/config", ".git/modules/libs/one/hooks/", ".git/worktrees/t/gitdir")
    _make(tmp_path, ".git/modules/libs/one/objects/x.key", "libs/one/.git")
    _make(tmp_path, ".git/modules/libs/one/HEAD")
    scan = ZoneScan(str(tmp_path))

    scan.refresh()

    assert _found(scan) == {
        *(".git/modules/libs/one/config", ".git/modules/libs/one/hooks", ".git/worktrees/t/gitdir", "libs/one/.git"),
    }


@pytest.fixture
def settled(tmp_path: Path) -> ZoneScan:
    _make(tmp_path, "a/b/x", "c/y", "top")
    scan = ZoneScan(str(tmp_path))
    scan.refresh()
    time.sleep(0.15)
    scan.refresh()
    return scan


def test_an_unchanged_tree_is_not_listed_again(settled: ZoneScan, monkeypatch: pytest.MonkeyPatch) -> None:
    def never(*_: object) -> None:
        raise AssertionError("listed again")

    monkeypatch.setattr(module.os, "scandir", never)

    assert settled.refresh() is False


@pytest.mark.parametrize("name", ["a/b/.env", "new/.env", "c/deep/er/.env", ".env"])
def test_a_new_name_is_found(settled: ZoneScan, tmp_path: Path, name: str) -> None:
    _make(tmp_path, name)

    assert settled.refresh() is True
    assert _found(settled) == {name}


def test_a_name_that_went_is_forgotten_with_all_below(settled: ZoneScan, tmp_path: Path) -> None:
    _make(tmp_path, "a/b/.env", "a/.git/hooks/")
    settled.refresh()

    (tmp_path / "a").rename(tmp_path / "z")

    assert settled.refresh() is True
    assert _found(settled) == {"z/b/.env", "z/.git/hooks"}


def test_a_directory_exchanged_for_another_is_noticed(settled: ZoneScan, tmp_path: Path) -> None:
    _make(tmp_path, "other/b/.env")
    settled.refresh()
    (tmp_path / "a").rename(tmp_path / "away")
    (tmp_path / "other").rename(tmp_path / "a")

    settled.refresh()

    assert _found(settled) == {"a/b/.env"}


def test_times_set_back_hide_nothing(settled: ZoneScan, tmp_path: Path) -> None:
    before = (tmp_path / "c").stat()
    _make(tmp_path, "c/.env")
    os.utime(tmp_path / "c", ns=(before.st_atime_ns, before.st_mtime_ns))

    assert settled.refresh() is True
    assert _found(settled) == {"c/.env"}


def test_a_change_in_the_tick_of_the_listing_is_found(tmp_path: Path) -> None:
    scan = ZoneScan(str(tmp_path))
    for index in range(50):
        scan.refresh()
        _make(tmp_path, f"{index}.key")
        scan.refresh()
        assert f"{index}.key" in _found(scan)


def test_a_closed_directory_is_an_empty_one(tmp_path: Path) -> None:
    _make(tmp_path, "closed/.env")
    (tmp_path / "closed").chmod(0)
    scan = ZoneScan(str(tmp_path))
    try:
        scan.refresh()
        assert _found(scan) <= {"closed/.env"}  # root may look
        assert scan.refresh() in (True, False)
    finally:
        (tmp_path / "closed").chmod(0o700)
    scan.refresh()
    assert _found(scan) == {"closed/.env"}


class TestComplete:
    def _complete(self, root: Path, path: str = "") -> bool:
        scan = ZoneScan(str(root))
        scan.refresh()
        return scan.complete(tuple(path.split("/")) if path else ())

    def test_where_every_name_was_seen(self, tmp_path: Path) -> None:
        _make(tmp_path, ".git/objects/aa/x", ".git/HEAD", ".git/refs/heads/main", "a/b/c/d/x", "top")

        assert self._complete(tmp_path) and self._complete(tmp_path, "a/b") and self._complete(tmp_path, "top")
        assert not self._complete(tmp_path, "missing")

    @pytest.mark.parametrize(
        ("name", "above"), [("a/b/c/d/e/x", "a/b"), ("a/node_modules/x", "a"), ("a/.git/own/x", "a/.git")]
    )
    def test_where_something_was_left_out(self, tmp_path: Path, name: str, above: str) -> None:
        _make(tmp_path, name, "other/x")

        assert not self._complete(tmp_path) and not self._complete(tmp_path, above)
        assert not self._complete(tmp_path, name)
        assert self._complete(tmp_path, "other")


def test_a_whole_look_goes_as_deep_as_a_program_would(tmp_path: Path) -> None:
    deep = tmp_path / "src" / "main" / "java" / "com" / "acme" / "app"
    deep.mkdir(parents=True)
    (deep / "App.java").write_text("x")
    (tmp_path / ".venv" / "lib" / "certifi").mkdir(parents=True)
    (tmp_path / ".venv" / "lib" / "certifi" / "cacert.pem").write_text("x")
    zone = open_zone(ZoneSpec(name="workspace", path=tmp_path), best_opener())
    assert nothing_secret_below(zone, ("src",), set(), hidden=True)
    assert nothing_secret_below(zone, (), set(), hidden=False)
    assert not nothing_secret_below(zone, (), set(), hidden=True)
    (deep / "prod.key").write_text("x")
    assert not nothing_secret_below(zone, ("src",), set(), hidden=False)
    parts = ("src", "main", "java", "com", "acme", "app", "prod.key")
    assert nothing_secret_below(zone, ("src",), {parts}, hidden=False), "what walls mask is no secret any more"
