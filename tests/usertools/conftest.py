"""A FORGE_HOME of the test's own."""

from __future__ import annotations

from pathlib import Path

import pytest

from golem_forge.storage.home import ForgeHome


@pytest.fixture
def home(tmp_path: Path) -> ForgeHome:
    return ForgeHome(tmp_path / "home")
