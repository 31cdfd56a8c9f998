"""The program and the fixtures of the acceptance tests, for tests of what an editor is sent."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from tests.acceptance.conftest import desk as desk
from tests.ui.acp.editor import FILES


@pytest.fixture
def program(desk: Callable[..., Any]) -> Any:
    made = desk(FILES)
    made.trust()
    made.know_walls()
    return made
