"""Timeouts and interruption: the Outcome comes within a second, whatever the tool does."""

from __future__ import annotations

import asyncio
import gc
import threading
import time
import weakref
from collections.abc import AsyncIterator
from contextlib import suppress
from typing import Any

import pytest
from tests.deadlines import LONG, PATIENCE, within

from golem_forge import Tool, ToolCall, ToolContext, tool
from golem_forge.tools.context import Plan

over = threading.Event()
"""A test has seen all it wanted, so what it left behind need not be waited for."""


@pytest.fixture(autouse=True)
async def nothing_is_waited_for() -> AsyncIterator[None]:
    over.clear()
    yield
    over.set()


async def call(path: Any, name: str) -> Any:
    return await path.call(ToolCall(name, {}))


@tool(needs_approval=False, timeout=0.2)
async def sleeps() -> str:
    await asyncio.sleep(LONG)
    return "late"


@tool(needs_approval=False, timeout=0.2)
def blocks() -> str:
    over.wait(LONG)
    return "late"


@tool(needs_approval=False, timeout=0.2)
async def ignores_cancel() -> str:
    while not over.is_set():
        try:
            await asyncio.sleep(1)
        except asyncio.CancelledError:
            continue
    return "late"


@pytest.mark.parametrize("name", ["sleeps", "blocks", "ignores_cancel"])
async def test_a_timeout_returns_within_a_second(make_path: Any, name: str) -> None:
    path = make_path(sleeps, blocks, ignores_cancel)
    with within(1.2):
        outcome = await call(path, name)
    assert outcome.status == "timeout"
    assert "timed out after 0.2 s" in outcome.error
    assert asyncio.current_task().cancelling() == 0, "the caller's task is unharmed"  # type: ignore[union-attr]


async def test_what_was_left_behind_is_said(make_path: Any) -> None:
    path = make_path(blocks, ignores_cancel)
    assert "left to finish alone" in (await call(path, "blocks")).error
    assert "left behind" in (await call(path, "ignores_cancel")).error


async def test_what_was_left_behind_lives_until_it_ends_by_itself(make_path: Any) -> None:
    waits_for: list[weakref.ref[asyncio.Future[None]]] = []
    ended = asyncio.Event()

    @tool(needs_approval=False, timeout=0.05)
    async def stubborn() -> None:
        for _ in range(2):
            with suppress(asyncio.CancelledError):
                await asyncio.sleep(LONG)
        future = asyncio.get_running_loop().create_future()
        waits_for.append(weakref.ref(future))
        await future  # nobody else holds it, nor who waits for it
        ended.set()

    assert "left behind" in (await call(make_path(stubborn), "stubborn")).error
    while not waits_for:
        await asyncio.sleep(0.01)
    gc.collect()
    future = waits_for[0]()
    assert future is not None
    future.set_result(None)
    await asyncio.wait_for(ended.wait(), LONG)


@pytest.mark.parametrize("name", ["sleeps", "blocks", "ignores_cancel"])
async def test_an_interrupt_returns_within_a_second(make_path: Any, name: str) -> None:
    path = make_path(sleeps, blocks, ignores_cancel)
    for one in path.catalog:
        one.timeout = LONG
    try:
        asyncio.get_running_loop().call_later(0.1, path.signal.interrupt)
        with within(1.2):
            outcome = await call(path, name)
    finally:
        for one in path.catalog:
            one.timeout = 0.2
    assert outcome.status == "interrupted"
    path.signal.reset()


async def test_an_idle_timeout_is_reset_by_progress(make_path: Any) -> None:
    @tool(needs_approval=False, idle_timeout=0.3)
    async def busy(*, ctx: ToolContext) -> str:
        end = time.monotonic() + 0.7
        while time.monotonic() < end:
            # No clock of ours in between: it has its turn before the idle clock, however late the machine is.
            ctx.report_progress(1)
            await asyncio.sleep(0)
        return "done"

    @tool(needs_approval=False, idle_timeout=0.3)
    async def silent() -> str:
        await asyncio.sleep(LONG)
        return "late"

    path = make_path(busy, silent)
    assert (await call(path, "busy")).status == "success"
    with within(1.3):
        outcome = await call(path, "silent")
    assert outcome.status == "timeout"
    assert "no progress for 0.3 s" in outcome.error


async def test_after_an_interrupt_nothing_starts_until_it_is_reset(make_path: Any) -> None:
    runs = 0

    @tool(needs_approval=False)
    def count() -> int:
        nonlocal runs
        runs += 1
        return runs

    path = make_path(count)
    path.signal.interrupt()
    assert (await call(path, "count")).status == "interrupted"
    assert runs == 0
    path.signal.reset()
    assert (await call(path, "count")).status == "success"


async def test_cancelling_the_caller_cancels_the_call_and_is_passed_on(make_path: Any) -> None:
    begun, ended = asyncio.Event(), asyncio.Event()

    @tool(needs_approval=False)
    async def waits() -> str:
        begun.set()
        try:
            await asyncio.sleep(LONG)
        finally:
            ended.set()
        return "late"

    path = make_path(waits)
    task = asyncio.ensure_future(path.call(ToolCall("waits", {})))
    await asyncio.wait_for(begun.wait(), PATIENCE)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert ended.is_set()


async def test_a_tools_own_timeout_inside_works(make_path: Any) -> None:
    @tool(needs_approval=False, timeout=LONG)
    async def inner_timeout() -> str:
        try:
            async with asyncio.timeout(0.05):
                await asyncio.sleep(LONG)
        except TimeoutError:
            return "own timeout"
        return "late"

    outcome = await call(make_path(inner_timeout), "inner_timeout")
    assert outcome.text == "own timeout"


async def test_a_tool_that_interrupts_its_own_session_ends_cleanly(make_path: Any) -> None:
    @tool(needs_approval=False)
    async def stops(*, ctx: ToolContext) -> str:
        ctx.cancel.interrupt()
        return "said"

    path = make_path(stops)
    outcome = await call(path, "stops")
    assert outcome.status in ("success", "interrupted")
    path.signal.reset()
    await asyncio.sleep(0.05)  # nothing may hit a later await of this task


async def test_sync_tools_run_off_the_loop_and_keep_their_context(make_path: Any) -> None:
    import contextvars

    marker = contextvars.ContextVar("marker", default="none")

    @tool(needs_approval=False)
    def thread_name() -> str:
        return f"{threading.current_thread().name} {marker.get()}"

    marker.set("here")
    outcome = await call(make_path(thread_name), "thread_name")
    assert outcome.text == "forge-tool here"


async def test_too_many_stuck_threads_is_an_outcome_not_a_hang(make_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    from golem_forge.tools import threads

    monkeypatch.setattr(threads, "MAX_THREADS", threads._alive + 1)
    monkeypatch.setattr(threads, "_idle", [])
    release = threading.Event()

    @tool(needs_approval=False, timeout=0.1, read_only=True)
    def stuck() -> str:
        release.wait(LONG)
        return "late"

    async def run() -> str:
        return "ran"

    async def plan(args: dict[str, Any], ctx: ToolContext) -> Plan:
        return Plan(run=run, effects=())

    planned = Tool("planned", "Needs no thread.", input_schema={}, planner=plan, needs_approval=False)
    path = make_path(stuck, planned)
    first = await call(path, "stuck")
    second = await call(path, "stuck")
    assert (await call(path, "planned")).text == "ran"
    release.set()
    assert first.status == "timeout"
    assert second.status == "execution_failed"
    assert "no further sync tool can start" in second.error
