"""A process that serves ends when it is told to, and outlives its terminal where somebody wanted that."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Iterator

import pytest
from tests.deadlines import PATIENCE

from golem_forge.core.signals import stop_on_termination, termination_signals


@pytest.fixture
def nohup() -> Iterator[None]:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    yield
    signal.signal(signal.SIGHUP, before)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
async def test_each_of_them_is_heard_once_and_no_longer_than_needed(number: signal.Signals) -> None:
    before = signal.getsignal(number)
    told = asyncio.Event()
    with stop_on_termination(told.set):
        os.kill(os.getpid(), number)
        async with asyncio.timeout(PATIENCE):
            await told.wait()
    assert signal.getsignal(number) in (before, signal.default_int_handler)


async def test_under_nohup_the_end_of_the_terminal_is_not_heard(nohup: None) -> None:
    told = asyncio.Event()
    with stop_on_termination(told.set):
        os.kill(os.getpid(), signal.SIGHUP)
        await asyncio.sleep(0.05)
        assert not told.is_set()
    assert termination_signals() == (signal.SIGINT, signal.SIGTERM)
    assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN, "and what it starts does not hear it either"
