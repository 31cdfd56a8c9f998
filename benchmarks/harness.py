"""How things are timed: side by side, in alternating order, medians over rounds.

A shared machine changes speed from second to second, so no contestant is measured alone: in every round each one
gets a slice of time, in an order that is reversed from round to round, and what counts is the median of its slices.

Garbage collection stays on, because what a library leaves behind is part of its cost; but everything that was there
before the race is frozen, so that nobody pays for the heap of the others.
"""

from __future__ import annotations

import gc
import inspect
import shutil
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from statistics import median
from time import perf_counter
from typing import Any

Call = Callable[[], Awaitable[object]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Pace:
    """How much patience a run has."""

    rounds: int
    slice_seconds: float
    """How long one contestant of `race_calls` is timed in each round."""
    scale: float
    """The share of the full amount of work (tools defined, events sent) that is done."""

    def amount(self, full: int) -> int:
        return max(1, int(full * self.scale))


FULL = Pace(rounds=15, slice_seconds=0.06, scale=1.0)
QUICK = Pace(rounds=3, slice_seconds=0.02, scale=0.1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """A piece of work that is timed as a whole. `prepare` runs untimed before each round and feeds `run`."""

    run: Callable[[Any], object]
    prepare: Callable[[], Any] = lambda: None


async def race_calls(contestants: Mapping[str, Call], pace: Pace) -> dict[str, float]:
    """Median seconds of one call, for calls too short to be timed one by one."""
    repeats = {name: await _calibrate(call, pace.slice_seconds) for name, call in contestants.items()}
    slices: dict[str, list[float]] = {name: [] for name in contestants}
    with frozen_heap():
        for names in _orders(contestants, pace.rounds):
            for name in names:
                gc.collect()
                slices[name].append(await _seconds_per_call(contestants[name], repeats[name]))
    return {name: median(values) for name, values in slices.items()}


async def race_blocks(contestants: Mapping[str, Block], rounds: int) -> dict[str, float]:
    """Median seconds of one run of each block, sync or async; one more round goes first, to warm up."""
    times: dict[str, list[float]] = {name: [] for name in contestants}
    with frozen_heap():
        for names in _orders(contestants, rounds + 1):
            for name in names:
                times[name].append(await _seconds_of(contestants[name]))
    return {name: median(values[1:]) for name, values in times.items()}


@contextmanager
def frozen_heap() -> Iterator[None]:
    gc.collect()
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()


def _orders(contestants: Mapping[str, Any], rounds: int) -> Iterator[list[str]]:
    names = list(contestants)
    for number in range(rounds):
        yield names if number % 2 == 0 else names[::-1]


async def _calibrate(call: Call, slice_seconds: float) -> int:
    """Warms the contestant up and finds how many of its calls fill a slice."""
    await _seconds_per_call(call, 20)
    return max(1, int(slice_seconds / await _seconds_per_call(call, 50)))


async def _seconds_per_call(call: Call, repeats: int) -> float:
    start = perf_counter()
    for _ in range(repeats):
        await call()
    return (perf_counter() - start) / repeats


async def _seconds_of(block: Block) -> float:
    material = block.prepare()
    gc.collect()
    start = perf_counter()
    result = block.run(material)
    if inspect.isawaitable(result):
        await result
    return perf_counter() - start


def chromium_path() -> str | None:
    names = ("chromium", "chromium-browser", "chromium-headless-shell")
    return next(filter(None, map(shutil.which, names)), None)
