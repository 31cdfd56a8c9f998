"""Lists are asked for again once a server has stopped saying that they changed."""

from __future__ import annotations

import asyncio
import time

import pytest

from golem_forge.mcp.client.connecting import quiet as subject
from golem_forge.mcp.client.connecting.quiet import Quiet


@pytest.fixture(autouse=True)
def _quicker(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(subject, "QUIET", 0.1)
    monkeypatch.setattr(subject, "LONGEST", 0.5)


class Fetches:
    def __init__(self, lasts: float = 0.0) -> None:
        self.at: list[float] = []
        self._lasts = lasts

    async def __call__(self) -> None:
        self.at.append(time.monotonic())
        await asyncio.sleep(self._lasts)


async def test_many_notices_close_together_are_one_refetch_after_the_last() -> None:
    fetches = Fetches()
    quiet = Quiet(fetches)
    for _ in range(10):
        quiet.notice()
        await asyncio.sleep(0.02)
    last = time.monotonic()
    await asyncio.sleep(0.25)
    assert len(fetches.at) == 1
    assert fetches.at[0] - last >= 0.07


async def test_a_flood_can_neither_starve_nor_multiply_it() -> None:
    fetches = Fetches()
    quiet = Quiet(fetches)
    end = time.monotonic() + 1.6
    while time.monotonic() < end:
        for _ in range(1000):
            quiet.notice()
        await asyncio.sleep(0)
    quiet.stop()
    assert 2 <= len(fetches.at) <= 4
    assert min(after - before for before, after in zip(fetches.at, fetches.at[1:], strict=False)) >= 0.1


async def test_a_notice_during_a_refetch_is_answered_by_another_one() -> None:
    fetches = Fetches(lasts=0.2)
    quiet = Quiet(fetches)
    quiet.notice()
    await asyncio.sleep(0.2)
    quiet.notice()
    await asyncio.sleep(0.6)
    assert len(fetches.at) == 2
    assert fetches.at[1] - fetches.at[0] >= 0.29


async def test_after_stop_nothing_is_fetched() -> None:
    fetches = Fetches()
    quiet = Quiet(fetches)
    quiet.notice()
    quiet.stop()
    quiet.notice()
    await asyncio.sleep(0.2)
    assert fetches.at == []


async def test_who_looked_through_a_long_list_rests_ten_times_as_long() -> None:
    """A server with thousands of other tools at each notice would leave nobody else a turn."""
    fetched: list[float] = []

    async def refetch() -> None:
        fetched.append(time.monotonic())
        quiet.cost(0.06)
        quiet.notice()

    quiet = Quiet(refetch)
    quiet.notice()
    await asyncio.sleep(1.0)
    quiet.stop()
    assert len(fetched) == 2 and fetched[1] - fetched[0] >= 0.55
