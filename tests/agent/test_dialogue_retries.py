"""Asking with retries, over a model whose failures are scripted."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
from tests.deadlines import PATIENCE, within

from golem_forge.agent.dialogue import DiscardedAttempt, ask_with_retries
from golem_forge.agent.model.interface import ModelError, Request, TextDelta, UserMessage
from golem_forge.agent.model.scripted import FunctionScript, Turn, TurnFailure

REQUEST = Request(system="", messages=(UserMessage(text="hi"),))


def failing(*failures: TurnFailure) -> FunctionScript:
    left = list(failures)
    return FunctionScript(lambda _: Turn(say="part", fail=left.pop(0)) if left else Turn(say="whole"))


async def waits_of(model: FunctionScript, random: float) -> list[float]:
    waits: list[float] = []

    async def sleep(seconds: float) -> None:
        waits.append(seconds)

    await ask_with_retries(model, REQUEST, show=lambda _: None, sleep=sleep, random=lambda: random)
    return waits


async def test_waits_are_1_2_4_seconds_give_or_take_half() -> None:
    lost = TurnFailure()
    assert await waits_of(failing(lost, lost, lost), 0.5) == [1.0, 2.0, 4.0]
    assert await waits_of(failing(lost, lost, lost), 0.0) == [0.5, 1.0, 2.0]
    assert await waits_of(failing(lost, lost, lost), 0.999) == pytest.approx([1.5, 3.0, 6.0], abs=0.01)


async def test_what_the_provider_asks_for_is_waited_for_up_to_a_minute() -> None:
    assert await waits_of(failing(TurnFailure(status=429, retry_after=60)), 0.5) == [60]
    with pytest.raises(ModelError, match="asks to wait 61 s, more than the 60 s"):
        await waits_of(failing(TurnFailure(status=429, retry_after=61)), 0.5)


async def test_text_of_the_last_failed_try_is_withdrawn_too() -> None:
    shown: list[Any] = []

    async def sleep(seconds: float) -> None:
        """No time passes."""

    with pytest.raises(ModelError, match="after 4 tries"):
        await ask_with_retries(failing(*[TurnFailure()] * 4), REQUEST, show=shown.append, sleep=sleep)
    kinds = [type(each) for each in shown if isinstance(each, (TextDelta, DiscardedAttempt))]
    assert kinds == [TextDelta, DiscardedAttempt] * 4
    assert shown[-1].wait is None and shown[-1].usage.input > 0


async def test_a_cancelled_wait_ends_at_once_and_asks_no_more() -> None:
    """W41, the retry wait."""
    tries: list[int] = []

    def turn(_: Request) -> Turn:
        tries.append(1)
        return Turn(fail=TurnFailure(status=500, retry_after=30))

    waiting = asyncio.Event()
    running = asyncio.create_task(
        ask_with_retries(
            FunctionScript(turn),
            REQUEST,
            show=lambda each: waiting.set() if isinstance(each, DiscardedAttempt) else None,
        )
    )
    await asyncio.wait_for(waiting.wait(), PATIENCE)
    running.cancel()
    with within(1), pytest.raises(asyncio.CancelledError):
        await asyncio.wait_for(running, PATIENCE)
    assert len(tries) == 1


async def test_a_stream_that_ends_without_its_end_is_a_failed_try() -> None:
    class Endless(FunctionScript):
        async def stream(self, request: Request) -> AsyncIterator[Any]:
            yield TextDelta("half")

    async def sleep(seconds: float) -> None:
        """No time passes."""

    with pytest.raises(ModelError, match="broke off before its end"):
        await ask_with_retries(Endless(lambda _: ""), REQUEST, show=lambda _: None, sleep=sleep)


async def test_a_cancelled_stream_is_closed_before_ask_returns() -> None:
    closed: list[bool] = []

    class Slow(FunctionScript):
        async def stream(self, request: Request) -> AsyncIterator[Any]:
            try:
                yield TextDelta("a")
                await asyncio.sleep(60)
            finally:
                closed.append(True)

    shown: list[Any] = []
    running = asyncio.create_task(ask_with_retries(Slow(lambda _: ""), REQUEST, show=shown.append))
    while not shown:
        await asyncio.sleep(0)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert closed == [True]
