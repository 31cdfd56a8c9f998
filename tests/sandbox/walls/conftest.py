"""Real full walls around real commands, on zones of a test's own."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from golem_forge.sandbox.sandbox import open_sandbox
from golem_forge.sandbox.walls.bubblewrap import find_bwrap
from golem_forge.sandbox.zones import Zone, ZoneSpec

from .house import House, Person, ran


@pytest.fixture
def house(tmp_path: Path) -> Iterator[House]:
    if find_bwrap() is None:
        pytest.skip("full walls need bubblewrap")
    made = House(tmp_path)
    yield made
    for sandbox in made.sandboxes:
        sandbox.close()


@pytest.fixture
def run_in() -> Callable[..., Any]:
    """`await run_in(walls, script, **job)`, for tests that have a loop of their own."""
    return ran


@pytest.fixture
def person(house: House) -> Person:
    return Person(house)


@pytest.fixture
def place(tmp_path: Path) -> Path:
    for name in ("workspace", "home", "forge"):
        (tmp_path / name).mkdir()
    return tmp_path / "workspace"


@pytest.fixture
def zone(place: Path) -> Iterator[Zone]:
    """The workspace at `place`, without walls."""
    opened = open_sandbox(
        [ZoneSpec(name="workspace", path=place)], forge_home=place.parent / "forge", home=place.parent / "home"
    )
    yield opened.zones["workspace"]
    opened.close()
