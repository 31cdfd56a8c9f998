"""A server that asks without end and reads no answer waits itself; nothing piles up here."""

from __future__ import annotations

import asyncio

import pytest
from tests.deadlines import within
from tests.mcp.conftest import Ground
from tests.mcp.pools import pooled

from golem_forge.core.decisions import Status

PATIENCE = 0.7


@pytest.mark.parametrize("method", ["ping", pytest.param("made/up", marks=pytest.mark.long)])
async def test_questions_of_a_deaf_server_do_not_pile_up(ground: Ground, method: str) -> None:
    spec = ground.spec("deaf", "deaf.py", method, protocol="legacy", idle_timeout=PATIENCE)
    async with pooled(ground, spec) as rig:
        await rig.pool.wait_connected("deaf")
        most = 0

        async def watch() -> None:
            nonlocal most
            while True:
                most = max(most, len(asyncio.all_tasks()))
                await asyncio.sleep(0.02)

        watching = asyncio.create_task(watch())
        with within(PATIENCE):
            finished = await rig.call("deaf", "act")
        watching.cancel()
    assert finished.status is Status.TIMEOUT
    assert most < 300, "an answer that nobody takes is a task that waits"


async def test_a_server_that_listens_gets_all_its_answers(ground: Ground) -> None:
    async with pooled(ground, ground.hostile("asks", protocol="legacy")) as rig:
        finished = await rig.call("bad", "roots", times=50)
        assert finished.result.text.count('"roots"') == 50
