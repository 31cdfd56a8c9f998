"""Any order of events, at any time: calls, interrupts, reconnects, edits, ends at random, on servers that also die."""

from __future__ import annotations

import asyncio
import random
import time
from dataclasses import replace
from typing import Any

import pytest
from tests.deadlines import PATIENCE, within
from tests.mcp.conftest import Ground
from tests.mcp.pools import Rig, living, marked, notes, pooled, until

from golem_forge.core.calls import ToolCompletion
from golem_forge.core.decisions import Status
from golem_forge.core.errors import ForgeError
from golem_forge.core.signals import InterruptSignal
from golem_forge.mcp.client import connection
from golem_forge.tools.context import ToolContext

EXPECTED = {Status.SUCCESS, Status.EXECUTION_FAILED, Status.INTERRUPTED, Status.TIMEOUT}


class Chaos:
    def __init__(self, rig: Rig, chance: random.Random) -> None:
        self.rig, self.chance = rig, chance
        self.results: list[Any] = []

    async def act(self) -> None:
        for _ in range(12):
            await asyncio.sleep(self.chance.random() * 0.08)
            self.results.append(await self.chance.choice([self.call, self.call, self.cancelled, self.interrupted])())

    async def call(self, ctx: ToolContext | None = None) -> Any:
        server, tool, args = self.chance.choice(
            [
                ("echo", "echo", {"text": "x"}),
                ("echo", "sleep", {"seconds": 0.1}),
                ("bad", "quick", {}),
                ("bad", "act", {}),
            ]
        )
        try:
            return await self.rig.call(server, tool, ctx, **args)
        except ForgeError as error:
            return error

    async def cancelled(self) -> Any:
        task = asyncio.create_task(self.call())
        await asyncio.sleep(self.chance.random() * 0.1)
        task.cancel()
        return (await asyncio.gather(task, return_exceptions=True))[0]

    async def interrupted(self) -> Any:
        signal = InterruptSignal()
        task = asyncio.create_task(self.call(ToolContext(cancel=signal)))
        await asyncio.sleep(self.chance.random() * 0.1)
        signal.interrupt()
        return await task

    async def trouble(self) -> None:
        for _ in range(2):
            await asyncio.sleep(self.chance.random() * 0.25)
            name = self.chance.choice(["echo", "bad"])
            try:
                if self.chance.random() < 0.7:
                    await self.rig.pool.reconnect(name)
                else:
                    specs = dict(self.rig.pool.specs)
                    specs[name] = replace(specs[name], idle_timeout=specs[name].idle_timeout + 1)
                    await self.rig.pool.replace(specs)
            except ForgeError as error:
                self.results.append(error)


@pytest.mark.usefixtures("quick_tries")
@pytest.mark.parametrize("seed", range(2))
async def test_in_any_order_every_call_has_one_end_and_nothing_is_left(ground: Ground, seed: int) -> None:
    specs = [ground.spec(close_after=0.2), ground.hostile("dies")]
    tasks_before = asyncio.all_tasks()
    async with pooled(ground, *(marked(ground, spec) for spec in specs)) as rig:
        chaos = Chaos(rig, random.Random(seed))
        rig.pool.begin()
        work = asyncio.gather(chaos.act(), chaos.act(), chaos.act(), chaos.trouble())
        if seed % 2:
            await asyncio.wait([work], timeout=0.6)
        else:
            await asyncio.wait_for(work, PATIENCE)
        with within(1):
            await rig.pool.aclose()
        await until(lambda: not living(ground))
        await asyncio.wait_for(work, PATIENCE)
    assert len(chaos.results) >= 36
    for result in chaos.results:
        assert isinstance(result, ToolCompletion | ForgeError | asyncio.CancelledError), result
        assert not isinstance(result, ToolCompletion) or result.status in EXPECTED
    assert len(notes(ground, "ran")) <= len(chaos.results)
    await until(lambda: asyncio.all_tasks() <= tasks_before)


async def test_a_pool_closed_while_servers_start_leaves_nobody(ground: Ground, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "START_GRACE_S", 0)
    specs = [marked(ground, ground.spec(name)) for name in ("one", "two")]
    for moment in range(0, 12, 3):
        async with pooled(ground, *specs) as rig:
            rig.pool.begin()
            await asyncio.sleep(moment * 0.006)
            with within(1):
                await rig.pool.aclose()
            await until(lambda: not living(ground))


async def test_a_machine_that_stands_still_while_a_pool_closes_leaves_nobody(ground: Ground) -> None:
    async with pooled(ground, marked(ground, ground.hostile("forks"))) as rig:
        rig.pool.begin()
        await rig.pool.wait_connected("bad")
        closing = asyncio.create_task(rig.pool.aclose())
        await asyncio.sleep(0.05)
        time.sleep(3)  # longer than any step of the end takes
        await closing
        await until(lambda: not living(ground))
