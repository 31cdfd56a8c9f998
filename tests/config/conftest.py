"""An empty directory for a program, and a FORGE_HOME beside it."""

from __future__ import annotations

from pathlib import Path

import pytest

from golem_forge.storage.home import ForgeHome


@pytest.fixture
def home(tmp_path: Path) -> ForgeHome:
    home = ForgeHome(tmp_path / "home")
    home.ensure()
    return home


@pytest.fixture
def root(tmp_path: Path) -> Path:
    root = tmp_path / "app"
    root.mkdir()
    return root
