"""`served`: a real server with little behind its door, see front.py."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from tests.ui.web.front import Front, front


@pytest.fixture
async def served() -> AsyncIterator[Front]:
    async with front() as made:
        yield made
