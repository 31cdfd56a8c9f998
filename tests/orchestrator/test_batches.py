"""Batches: readers together, writers alone, every call answered once and in order."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import pytest
from tests.deadlines import LONG, within

from golem_forge import Tool, ToolCall, tool
from golem_forge.core.errors import ForgeError
from golem_forge.tools.plan import Plan

events: list[tuple[str, str, float]] = []


def recording(name: str, *, read_only: bool, fails: bool = False, seconds: float = 0.05, in_pairs: bool = False) -> Any:
    async def body(tag: str = "") -> str:
        events.append((name + tag, "start", time.monotonic()))
        await asyncio.sleep(seconds)
        async with asyncio.timeout(15):  # of a pair, each goes on once the other runs too
            while in_pairs and len([who for who, kind, _ in events if kind == "start" and name in who]) % 2:
                await asyncio.sleep(0.01)
        events.append((name + tag, "end", time.monotonic()))
        if fails:
            raise ValueError("no")
        return name + tag

    return tool(name=name, needs_approval=False, read_only=read_only)(body)


@pytest.fixture(autouse=True)
def _fresh() -> None:
    events.clear()


def span(name: str) -> tuple[float, float]:
    times = {kind: at for who, kind, at in events if who == name}
    return times["start"], times["end"]


def overlap(one: str, other: str) -> bool:
    (a, b), (c, d) = span(one), span(other)
    return a < d and c < b


def calls(*names: str) -> list[ToolCall]:
    return [ToolCall(name.split(":")[0], {"tag": f":{name.split(':')[1]}"}) for name in names]


async def test_readers_overlap_and_a_writer_is_alone(make_path: Any) -> None:
    path = make_path(recording("read", read_only=True, in_pairs=True), recording("write", read_only=False))
    outcomes = await path.batch(calls("read:1", "read:2", "write:3", "read:4", "read:5"))
    assert [o.text for o in outcomes] == ["read:1", "read:2", "write:3", "read:4", "read:5"]
    assert overlap("read:1", "read:2") and overlap("read:4", "read:5")
    for reader in ("read:1", "read:2"):
        assert span(reader)[1] <= span("write:3")[0]
    for reader in ("read:4", "read:5"):
        assert span("write:3")[1] <= span(reader)[0]


async def test_sequential_runs_one_by_one(make_path: Any) -> None:
    path = make_path(recording("read", read_only=True))
    await path.batch(calls("read:1", "read:2"), mode="sequential")
    assert not overlap("read:1", "read:2")


@pytest.mark.parametrize("mode", ["sequential", "parallel"])
async def test_fail_fast_starts_nothing_further(make_path: Any, mode: str) -> None:
    path = make_path(recording("write", read_only=False), recording("bad", read_only=False, fails=True))
    outcomes = await path.batch(calls("write:1", "bad:2", "write:3", "write:4"), mode=mode, on_failure="fail_fast")
    assert [o.status for o in outcomes] == ["success", "execution_failed", "skipped", "skipped"]
    assert not [who for who, *_ in events if who in ("write:3", "write:4")]
    everything = await path.batch(calls("write:1", "bad:2", "write:3"), mode=mode)
    assert [o.status for o in everything] == ["success", "execution_failed", "success"]


async def test_fail_fast_reports_running_calls_as_what_they_were(make_path: Any) -> None:
    path = make_path(
        recording("slow", read_only=True, seconds=0.2), recording("bad", read_only=True, fails=True, seconds=0.02)
    )
    outcomes = await path.batch(calls("slow:1", "bad:2"), on_failure="fail_fast")
    assert [o.status for o in outcomes] == ["success", "execution_failed"]


async def test_an_interrupt_settles_the_whole_batch(make_path: Any) -> None:
    path = make_path(recording("write", read_only=False, seconds=LONG))

    async def interrupt_once_it_runs() -> None:
        while not events:
            await asyncio.sleep(0.01)
        path.signal.interrupt()

    interrupting = asyncio.ensure_future(interrupt_once_it_runs())
    with within(1.2):
        outcomes = await path.batch(calls("write:1", "write:2", "write:3"))
    await interrupting
    assert [o.status for o in outcomes] == ["interrupted"] * 3
    assert [o.executed for o in outcomes] == [True, False, False]
    assert {who for who, *_ in events} == {"write:1"}


async def test_one_denial_leaves_the_others(make_path: Any, asked: Any) -> None:
    @tool
    def risky(tag: str = "") -> str:
        return "ran"

    path = make_path(risky, recording("read", read_only=True), ask=asked({"approved": False, "reason": "not now"}))
    outcomes = await path.batch(calls("read:1", "risky:2", "read:3"))
    assert [o.status for o in outcomes] == ["success", "approval_denied", "success"]
    assert outcomes[1].error == "Denied by the user: not now"


@pytest.mark.parametrize("mode", ["sequential", "parallel"])
async def test_stop_denies_and_skips_the_rest(make_path: Any, asked: Any, mode: str) -> None:
    @tool
    def risky(tag: str = "") -> str:
        return "ran"

    stop = asked({"approved": False, "stop": True})
    path = make_path(risky, recording("write", read_only=False), ask=stop)
    outcomes = await path.batch(calls("risky:1", "write:2", "write:3"), mode=mode)
    assert [o.status for o in outcomes] == ["approval_denied", "skipped", "skipped"]
    assert not events


async def test_a_thousand_calls_are_answered_once_each_in_order(make_path: Any) -> None:
    @tool(needs_approval=False, read_only=True)
    async def echo(n: int) -> int:
        await asyncio.sleep(0)
        return n

    path = make_path(echo)
    outcomes = await path.batch([ToolCall("echo", {"n": n}) for n in range(1000)])
    assert [o.result.value["data"] for o in outcomes] == list(range(1000))


async def test_writers_of_two_batches_never_overlap(make_path: Any) -> None:
    path = make_path(recording("write", read_only=False, seconds=0.03))
    await asyncio.gather(path.batch(calls("write:1", "write:2")), path.batch(calls("write:3", "write:4")))
    names = ["write:1", "write:2", "write:3", "write:4"]
    assert not any(overlap(a, b) for i, a in enumerate(names) for b in names[i + 1 :])


async def test_a_plan_that_fails_while_the_call_before_it_ends_is_made_again(make_path: Any) -> None:
    """It looked before the other had made what it needs, and says so after: that is no answer yet."""
    made, looked = asyncio.Event(), asyncio.Event()

    @tool(name="make", needs_approval=False)
    async def make() -> str:
        await looked.wait()
        made.set()
        return "made"

    async def take(args: dict[str, Any], ctx: Any) -> Plan:
        is_there = made.is_set()
        looked.set()
        if not is_there:
            await made.wait()
            await asyncio.sleep(0.1)  # the other ends meanwhile
            raise ForgeError("not there")
        return Plan(run=lambda: "taken")

    taking = Tool("take", "Takes what was made.", input_schema={"type": "object"}, planner=take, needs_approval=False)
    outcomes = await make_path(make, taking).batch([ToolCall("make", {}), ToolCall("take", {})])
    assert [(outcome.text, outcome.ok) for outcome in outcomes] == [("made", True), ("taken", True)]
