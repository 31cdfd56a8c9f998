"""Batches: several calls of one turn, answered exactly once each, in request order.

`parallel` starts them together as the gate allows; `sequential` one after the other. `fail_fast` starts nothing
further after the first Outcome that is not a success; what was already running is reported as what it was.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from enum import StrEnum
from typing import Protocol

from golem_forge.core.call import Outcome, ToolCall
from golem_forge.core.signal import InterruptSignal
from golem_forge.core.verdict import Status
from golem_forge.orchestrator.order import BatchOrder
from golem_forge.orchestrator.travel import Travel


class BatchMode(StrEnum):
    PARALLEL = "parallel"
    SEQUENTIAL = "sequential"


class OnFailure(StrEnum):
    COLLECT_ALL = "collect_all"
    FAIL_FAST = "fail_fast"


class Path(Protocol):
    """What a batch needs of the one path."""

    signal: InterruptSignal

    def propose(self, calls: Sequence[ToolCall], waiting: InterruptSignal) -> list[Travel]: ...
    def skip(self, travel: Travel, why: str) -> Outcome: ...
    async def step(self, travel: Travel, *, order: BatchOrder | None = None, index: int = 0) -> Outcome: ...


async def run_batch(
    path: Path,
    calls: Sequence[ToolCall],
    *,
    mode: BatchMode | str = BatchMode.PARALLEL,
    on_failure: OnFailure | str = OnFailure.COLLECT_ALL,
) -> list[Outcome]:
    fail_fast = OnFailure(on_failure) is OnFailure.FAIL_FAST
    run = _one_by_one if BatchMode(mode) is BatchMode.SEQUENTIAL else _together
    return await run(path, calls, fail_fast)


async def _one_by_one(path: Path, calls: Sequence[ToolCall], fail_fast: bool) -> list[Outcome]:
    outcomes: list[Outcome] = []
    why = ""
    for travel in path.propose(calls, path.signal):
        outcome = path.skip(travel, why) if why else await path.step(travel)
        outcomes.append(outcome)
        why = why or _stops(outcome, fail_fast)
    return outcomes


async def _together(path: Path, calls: Sequence[ToolCall], fail_fast: bool) -> list[Outcome]:
    order = BatchOrder(len(calls), path.signal)

    async def one(index: int, travel: Travel) -> Outcome:
        outcome = await path.step(travel, order=order, index=index)
        if why := _stops(outcome, fail_fast):
            order.stop(why)
        return outcome

    tasks = [asyncio.ensure_future(one(*each)) for each in enumerate(path.propose(calls, order.waiting))]
    try:
        return list(await asyncio.gather(*tasks))
    except asyncio.CancelledError:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        raise
    finally:
        order.close()


def _stops(outcome: Outcome, fail_fast: bool) -> str:
    """Why nothing further may start after this Outcome; empty if the batch goes on."""
    if outcome.stop_turn:
        return "Skipped: the user ended the turn."
    if fail_fast and outcome.status is not Status.SUCCESS:
        return f"Skipped: '{outcome.tool}' before it ended with {outcome.status.value}."
    return ""
