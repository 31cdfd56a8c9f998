"""How long a call may say nothing, and how long it may take."""

from __future__ import annotations

import asyncio

import pytest
from tests.mcp.loop_time import LoopTime

from golem_forge.mcp.client.active_calls import CallTimers, TimeLimit


@pytest.fixture(autouse=True)
async def clock(loop_time: LoopTime) -> LoopTime:
    loop_time.never_wait()
    return loop_time


async def rung(clocks_made: list[CallTimers], idle: float, total: float) -> asyncio.Future[tuple[TimeLimit, float]]:
    loop = asyncio.get_running_loop()
    start = loop.time()
    future: asyncio.Future[tuple[TimeLimit, float]] = loop.create_future()
    clocks = CallTimers(idle, total, lambda limit: future.set_result((limit, loop.time() - start)))
    clocks_made.append(clocks)
    clocks.start()
    return future


async def test_silence_reaches_the_idle_limit() -> None:
    made: list[CallTimers] = []
    limit, after = await (await rung(made, 0.1, 5))
    assert limit is TimeLimit.IDLE
    assert after == pytest.approx(0.1)


async def test_progress_moves_the_idle_limit_and_never_the_total_one() -> None:
    made: list[CallTimers] = []
    future = await rung(made, 0.1, 0.35)
    while not future.done():
        made[0].note_progress()
        await asyncio.sleep(0.03)
    limit, after = future.result()
    assert limit is TimeLimit.TOTAL
    assert after == pytest.approx(0.35)


async def test_both_stand_still_while_a_person_is_asked() -> None:
    made: list[CallTimers] = []
    future = await rung(made, 0.1, 0.2)
    with made[0].paused():
        await asyncio.sleep(0.15)
        with made[0].paused():
            await asyncio.sleep(0.15)
        await asyncio.sleep(0.1)
        assert not future.done()
    limit, after = await future
    assert limit is TimeLimit.IDLE
    assert after == pytest.approx(0.5)


async def test_the_total_goes_on_where_it_stood() -> None:
    made: list[CallTimers] = []
    future = await rung(made, 5, 0.2)
    await asyncio.sleep(0.1)
    with made[0].paused():
        await asyncio.sleep(0.3)
    limit, after = await future
    assert limit is TimeLimit.TOTAL
    assert after == pytest.approx(0.5)


async def test_progress_during_a_pause_does_not_put_the_idle_clock_into_the_future() -> None:
    made: list[CallTimers] = []
    future = await rung(made, 0.1, 5)
    with made[0].paused():
        await asyncio.sleep(0.6)
        made[0].note_progress()
    _, after = await future
    assert after == pytest.approx(0.7), "in the future it would ring 0.6 s later"


async def test_after_the_end_nothing_rings() -> None:
    rings: list[TimeLimit] = []
    clocks = CallTimers(0.05, 0.05, rings.append)
    clocks.start()
    clocks.stop()
    with clocks.paused():
        pass
    await asyncio.sleep(0.12)
    assert rings == []
