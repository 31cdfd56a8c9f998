"""The house, the person and the zone of the tests of walls, for tests of git inside them."""

from __future__ import annotations

from tests.sandbox.walls.conftest import house as house
from tests.sandbox.walls.conftest import person as person
from tests.sandbox.walls.conftest import place as place
from tests.sandbox.walls.conftest import zone as zone
