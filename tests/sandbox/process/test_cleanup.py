"""Removing a directory of a child's own, whatever the child made of it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from tests import descriptors

from golem_forge.sandbox.process.cleanup import remove_tree


def deep(place: Path, levels: int) -> None:
    """Deeper than a path can be long, and than Python recurses."""
    here = os.open(place, os.O_RDONLY)
    for _ in range(levels):
        os.mkdir("directory", dir_fd=here)
        inner = os.open("directory", os.O_RDONLY, dir_fd=here)
        os.close(here)
        here = inner
    os.close(os.open("file", os.O_CREAT | os.O_WRONLY, dir_fd=here))
    os.close(here)


def test_however_deep(tmp_path: Path) -> None:
    made = tmp_path / "made"
    made.mkdir()
    deep(made, 1200)
    before = descriptors.held()
    remove_tree(str(made))
    assert not made.exists()
    assert descriptors.no_more_than(before)


def test_links_lead_nowhere_and_names_may_be_taken(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir(mode=0o755)
    (outside / "kept").write_text("x")
    made = tmp_path / "made"
    for name in ("0/0/0", "1/0/1", "2"):
        (made / name).mkdir(parents=True)
    (made / "1" / "link").symlink_to(outside)
    (made / "link").symlink_to(outside)
    os.mkfifo(made / "2" / "pipe")
    os.link(outside / "kept", made / "2" / "kept")
    remove_tree(os.fsencode(made))
    assert not made.exists()
    assert (outside / "kept").read_text() == "x"
    assert outside.stat().st_mode & 0o777 == 0o755


@pytest.mark.skipif(os.geteuid() == 0, reason="root enters everything")
def test_without_permission_to_enter(tmp_path: Path) -> None:
    (tmp_path / "made" / "a" / "b").mkdir(parents=True)
    (tmp_path / "made" / "a" / "b").chmod(0)
    (tmp_path / "made" / "a").chmod(0)
    remove_tree(str(tmp_path / "made"))
    assert not (tmp_path / "made").exists()


def test_nothing_there_is_nothing_to_do(tmp_path: Path) -> None:
    remove_tree(str(tmp_path / "none"))
    (tmp_path / "link").symlink_to(tmp_path)
    remove_tree(str(tmp_path / "link"))
    assert (tmp_path / "link").is_symlink()
