"""Lists are asked for again once a server has stopped saying that they changed."""

from __future__ import annotations

import asyncio

import pytest
from tests.mcp.loop_time import LoopTime

from golem_forge.mcp.client.manifest import DEBOUNCE_MAX_S, DEBOUNCE_S, RefetchDebounce


@pytest.fixture(autouse=True)
async def clock(loop_time: LoopTime) -> LoopTime:
    loop_time.never_wait()
    return loop_time


class Fetches:
    def __init__(self, clock: LoopTime, lasts: float = 0.0) -> None:
        self.at: list[float] = []
        """In seconds after the beginning."""
        self._clock, self._began = clock, clock.now()
        self._lasts = lasts

    async def __call__(self) -> None:
        self.at.append(self._clock.now() - self._began)
        await asyncio.sleep(self._lasts)


async def test_many_notices_close_together_are_one_refetch_after_the_last(clock: LoopTime) -> None:
    fetches = Fetches(clock)
    quiet = RefetchDebounce(fetches)
    for _ in range(10):
        quiet.changed()
        await asyncio.sleep(0.1)
    await asyncio.sleep(60)
    assert fetches.at == [pytest.approx(0.9 + DEBOUNCE_S)]


async def test_a_flood_can_neither_starve_nor_multiply_it(clock: LoopTime) -> None:
    fetches = Fetches(clock)
    quiet = RefetchDebounce(fetches)
    for _ in range(1600):
        for _ in range(100):
            quiet.changed()
        await asyncio.sleep(0.01)
    quiet.stop()
    assert fetches.at == pytest.approx([DEBOUNCE_MAX_S, 2 * DEBOUNCE_MAX_S, 3 * DEBOUNCE_MAX_S], abs=0.1)


async def test_a_notice_during_a_refetch_is_answered_by_another_one(clock: LoopTime) -> None:
    fetches = Fetches(clock, lasts=0.2)
    quiet = RefetchDebounce(fetches)
    quiet.changed()
    await asyncio.sleep(DEBOUNCE_S + 0.1)
    quiet.changed()
    await asyncio.sleep(60)
    assert fetches.at == pytest.approx([DEBOUNCE_S, DEBOUNCE_S + 0.2 + DEBOUNCE_S])


async def test_after_stop_nothing_is_fetched(clock: LoopTime) -> None:
    fetches = Fetches(clock)
    quiet = RefetchDebounce(fetches)
    quiet.changed()
    quiet.stop()
    quiet.changed()
    await asyncio.sleep(60)
    assert fetches.at == []


async def test_who_looked_through_a_long_list_rests_ten_times_as_long(clock: LoopTime) -> None:
    """A server with thousands of other tools at each notice would leave nobody else a turn."""
    fetches = Fetches(clock)

    async def refetch() -> None:
        await fetches()
        quiet.note_cost(2)
        quiet.changed()

    quiet = RefetchDebounce(refetch)
    quiet.changed()
    await asyncio.sleep(45)
    quiet.stop()
    assert fetches.at == pytest.approx([DEBOUNCE_S, DEBOUNCE_S + 20, DEBOUNCE_S + 40])
