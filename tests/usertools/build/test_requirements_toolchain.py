"""Compilers are found where the person has them, and never where somebody else could have put one."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from golem_forge.usertools.build.requirements import GoToolchain, ToolchainFinder


@pytest.fixture
def elsewhere(tmp_path: Path) -> Path:
    """Something that looks like a Go toolchain, and a uv."""
    root = tmp_path / "sdk"
    (root / "src" / "runtime").mkdir(parents=True)
    (root / "bin").mkdir()
    for name in ("go", "uv"):
        shutil.copy(shutil.which("true") or "", root / "bin" / name)
    (root / "VERSION").write_text("go1.99.1\ntime now\n")
    return root


def find(tmp_path: Path, path: str, *kept_out: Path) -> ToolchainFinder:
    return ToolchainFinder({"PATH": path}, tmp_path / "home", [str(each) for each in kept_out])


def test_the_one_on_path_goes_first_by_its_real_place(elsewhere: Path, tmp_path: Path) -> None:
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "go").symlink_to(elsewhere / "bin" / "go")
    assert find(tmp_path, f"{tmp_path}/bin").go() == GoToolchain(root=str(elsewhere), version="go1.99.1")
    uv = find(tmp_path, f"{elsewhere}/bin").uv()
    assert uv is not None
    assert (uv.path, uv.inner) == (f"{elsewhere}/bin/uv", "/forge/uv/uv")


def test_beside_forge_it_is_the_real_program(tmp_path: Path) -> None:
    """What is on PATH there is a script that starts it."""
    import sys

    found = find(tmp_path, os.path.dirname(sys.executable)).go()
    assert found is not None
    assert found.root.endswith("site-packages/go")
    assert found.language
    assert found.inner == "/forge/go"


def test_nothing_is_taken_from_a_zone_or_a_relative_entry(
    elsewhere: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("golem_forge.usertools.build.requirements._package_directories", tuple)
    monkeypatch.setattr("golem_forge.usertools.build.requirements._program_directories", tuple)
    monkeypatch.chdir(elsewhere)
    for found in (find(tmp_path, f"{elsewhere}/bin", elsewhere), find(tmp_path, "bin:")):
        assert found.go() is None
        assert found.uv() is None
    assert find(tmp_path, f"{elsewhere}/bin").go() is not None


def test_a_directory_that_must_not_be_shown_is_passed_over(
    elsewhere: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("golem_forge.usertools.build.requirements._package_directories", tuple)
    (elsewhere / ".ssh").mkdir()
    assert find(tmp_path, f"{elsewhere}/bin").go() is None
