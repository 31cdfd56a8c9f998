"""FORGE_HOME: its folders are made for their owner, and a file in their place is said to be one."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest

from golem_forge.storage.home import ForgeHome


def test_folders_are_made_for_their_owner_alone(tmp_path: Path) -> None:
    made = ForgeHome(tmp_path / "home").ensure("a", "b")
    assert made == tmp_path / "home/a/b"
    assert {stat.S_IMODE(each.stat().st_mode) for each in (made, made.parent, made.parent.parent)} == {0o700}
    assert ForgeHome(tmp_path / "home").ensure("a", "b") == made


@pytest.mark.parametrize("place", ["home", "home/a"])
def test_a_file_in_the_place_of_a_folder_is_no_folder_that_is_there_already(tmp_path: Path, place: str) -> None:
    (tmp_path / place).parent.mkdir(exist_ok=True)
    (tmp_path / place).touch()
    with pytest.raises(NotADirectoryError):
        ForgeHome(tmp_path / "home").ensure("a", "b")
