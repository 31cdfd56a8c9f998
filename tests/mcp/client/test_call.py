"""One call: its limits, its end, its result, and never twice what may have run."""

from __future__ import annotations

import asyncio
import resource
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from tests.deadlines import LONG, within
from tests.mcp.conftest import Ground
from tests.mcp.loop_time import LoopTime
from tests.mcp.pools import LOG, logged, notes, pooled, timed, until

from golem_forge.core.decisions import Status
from golem_forge.core.results import to_mcp
from golem_forge.core.signals import InterruptSignal
from golem_forge.mcp.client.active_calls import ActiveCall
from golem_forge.mcp.client.model import ServerState
from golem_forge.mcp.client.transport import ResponseLost, ServerLink, Unprocessed
from golem_forge.tools.context import ToolContext


def calls_sent(ground: Ground) -> int:
    return sum(message["method"] == "tools/call" for message in logged(ground))


# Limits


async def test_silence_ends_in_a_timeout_that_names_the_idle_limit_and_the_server_is_told(ground: Ground) -> None:
    async with pooled(ground, ground.hostile("silent", idle_timeout=0.3)) as rig:
        await rig.pool.wait_connected("bad")
        with within(0.3):
            finished, took = await timed(rig.call("bad", "act"))
        assert finished.status is Status.TIMEOUT
        assert finished.error == "no progress from bad for 0.3 seconds"
        assert took >= 0.3
        await until(lambda: notes(ground, "cancelled"))


async def test_eight_at_a_time_the_rest_waits_its_turn_and_who_is_cancelled_frees_one(ground: Ground) -> None:
    async with pooled(ground, ground.hostile("silent")) as rig:
        await rig.pool.wait_connected("bad")
        tool = rig.tool("bad", "act")
        calls = [asyncio.create_task(rig.pool.call(tool, {}, ToolContext())) for _ in range(12)]
        await until(lambda: len(notes(ground, "ran")) >= 8)
        await asyncio.sleep(0.2)
        assert len(notes(ground, "ran")) == 8

        for call in calls[:8]:
            call.cancel()
        await asyncio.gather(*calls[:8], return_exceptions=True)

        assert all(call.cancelled() for call in calls[:8])
        await until(lambda: len(notes(ground, "cancelled")) == 8)
        await until(lambda: len(notes(ground, "ran")) == 12)
        for call in calls[8:]:
            call.cancel()


async def test_hostile_progress_is_bounded_and_harmless(ground: Ground) -> None:
    seen: list[tuple[float, float | None, str]] = []
    ctx = ToolContext(progress=lambda *said: seen.append(said))
    async with pooled(ground, ground.hostile("progress")) as rig:
        assert (await rig.call("bad", "act", ctx)).result.text == "progressed"
        assert seen[0] == (5.0, 10.0, "half")
        assert seen[-1][0] == 8.0
        assert len(seen[-1][2]) < 3000
        assert "\x1b" not in seen[-1][2]


async def test_a_flood_of_notices_costs_no_memory_and_the_answer_still_comes(ground: Ground) -> None:
    seen: list[Any] = []
    ctx = ToolContext(progress=lambda *said: seen.append(said))
    async with pooled(ground, ground.hostile("flood", "2000")) as rig:
        await rig.pool.wait_connected("bad")
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        finished, took = await timed(rig.call("bad", "act", ctx))
        assert finished.result.text == "flooded"
        assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 50_000
        assert len(seen) <= took / 0.05 + 3


# Interrupts


async def test_an_answer_that_comes_after_the_interrupt_does_no_harm(ground: Ground) -> None:
    signal = InterruptSignal()
    async with pooled(ground, ground.hostile("late", idle_timeout=LONG)) as rig:
        await rig.pool.wait_connected("bad")
        calling = asyncio.create_task(rig.call("bad", "act", ToolContext(cancel=signal)))
        await until(lambda: notes(ground, "ran"))
        signal.interrupt()
        with within(1):
            assert (await calling).status is Status.INTERRUPTED

        await until(lambda: notes(ground, "cancelled"))
        assert (await rig.call("bad", "act", quick=True)).result.text == "quick"
        await until(lambda: notes(ground, "late"))
        assert (await rig.call("bad", "act", quick=True)).result.text == "quick"
        assert rig.states("bad") == [ServerState.CONNECTING, ServerState.READY]


async def test_an_interrupted_context_sends_nothing(ground: Ground) -> None:
    signal = InterruptSignal()
    signal.interrupt()
    async with pooled(ground, ground.spec(env=LOG)) as rig:
        finished = await rig.call("echo", "echo", ToolContext(cancel=signal), text="x")
        assert finished.status is Status.INTERRUPTED
        assert calls_sent(ground) == 0


async def test_a_server_that_reads_nothing_cannot_hold_an_interrupted_caller(ground: Ground) -> None:
    signal = InterruptSignal()
    async with pooled(ground, ground.hostile("hangs")) as rig:
        await rig.pool.wait_connected("bad")
        tool = rig.tool("bad", "act")
        big = {"x": "y" * 400_000}
        calls = [asyncio.create_task(rig.pool.call(tool, big, ToolContext(cancel=signal))) for _ in range(4)]
        await asyncio.sleep(0.3)
        signal.interrupt()
        with within(1):
            results = await asyncio.gather(*calls)
        assert {finished.status for finished in results} == {Status.INTERRUPTED}
        with within(1):
            await rig.pool.aclose()


async def test_an_interrupt_while_it_connects_ends_the_call_and_not_the_connect(ground: Ground) -> None:
    (ground.workspace / "gate").touch()
    async with pooled(ground, ground.spec(env={"ECHO_GATE": "/workspace/gate"})) as rig:
        await rig.pool.wait_connected("echo")
        tool = rig.tool("echo", "echo")
        (ground.workspace / "gate").unlink()
        again = asyncio.create_task(rig.pool.reconnect("echo"))
        await until(lambda: rig.pool.status("echo").state is ServerState.CONNECTING)
        signal = InterruptSignal()
        calling = asyncio.create_task(rig.pool.call(tool, {"text": "x"}, ToolContext(cancel=signal)))
        await asyncio.sleep(0.01)
        signal.interrupt()
        assert (await calling).status is Status.INTERRUPTED
        (ground.workspace / "gate").touch()
        await again
        assert rig.pool.status("echo").state is ServerState.READY


# Lost connections


async def test_a_server_that_closed_its_output_and_lives_on_has_its_limits_too(
    ground: Ground, loop_time: LoopTime
) -> None:
    """The walls hold the other end of its output open, so nobody can see that; silence is seen."""
    async with pooled(ground, ground.hostile("closes", idle_timeout=LONG)) as rig:
        calling = asyncio.create_task(rig.call("bad", "act"))
        await until(lambda: notes(ground, "ran"))
        loop_time.skip(LONG)
        finished = await calling
        assert finished.status is Status.TIMEOUT or "may have run" in finished.error
        with within(1):
            await rig.pool.aclose()
        assert notes(ground, "ran") == ["act"]


async def test_a_line_without_end_ends_the_connection(ground: Ground) -> None:
    async with pooled(ground, ground.hostile("endless")) as rig:
        finished = await rig.call("bad", "act")
        assert "the call may have run (the server wrote a line of more than 16 MiB)" in finished.error
        await until(lambda: rig.pool.status("bad").state is ServerState.KNOWN)


async def test_a_reconnect_during_a_call_ends_it_with_may_have_run(ground: Ground) -> None:
    async with pooled(ground, ground.spec(env=LOG)) as rig:
        await rig.pool.wait_connected("echo")
        calling = asyncio.create_task(rig.call("echo", "sleep", seconds=LONG))
        await until(lambda: calls_sent(ground) == 1)
        await rig.pool.reconnect("echo")
        with within(1):
            finished = await calling
        assert finished.error.startswith("connection to echo was lost; the call may have run")


async def test_closing_the_pool_ends_every_call(ground: Ground) -> None:
    async with pooled(ground, ground.spec(env=LOG)) as rig:
        await rig.pool.wait_connected("echo")
        calls = [asyncio.create_task(rig.call("echo", "sleep", seconds=LONG)) for _ in range(10)]
        await until(lambda: calls_sent(ground) == 8)
        with within(1):
            await rig.pool.aclose()
            results = await asyncio.gather(*calls)
        assert {finished.status for finished in results} == {Status.EXECUTION_FAILED}
        assert sum("may have run" in finished.error for finished in results) == 8


async def test_what_certainly_did_not_run_is_sent_once_more_on_a_new_connection(ground: Ground) -> None:
    links: list[ServerLink] = []

    def fails_with(error: Exception, times: int) -> Callable[[ServerLink], Awaitable[str]]:
        async def job(link: ServerLink) -> str:
            links.append(link)
            if len(links) <= times:
                raise error
            return str((await link.request("tools/call", {"name": "pid", "arguments": {}}))["content"][0]["text"])

        links.clear()
        return job

    async with pooled(ground, ground.spec(env=LOG)) as rig:
        await rig.pool.wait_connected("echo")

        async def run(job: Callable[[ServerLink], Awaitable[str]]) -> str:
            return await rig.pool._owners["echo"].run_with_link(ActiveCall(ToolContext(), "x"), job)

        assert await run(fails_with(Unprocessed(None), times=1))
        assert len(links) == 2 and links[0] is not links[1]

        with pytest.raises(Unprocessed):
            await run(fails_with(Unprocessed(None), times=2))
        assert len(links) == 2

        with pytest.raises(ResponseLost):
            await run(fails_with(ResponseLost(None), times=2))
        assert len(links) == 1


async def test_a_server_that_died_unnoticed_gets_the_call_on_a_new_process(ground: Ground) -> None:
    """Killed from outside while idle: whether or not its end was seen yet, the call is answered once."""
    async with pooled(ground, ground.spec(env=LOG)) as rig:
        for _ in range(3):
            await rig.pool.wait_connected("echo")
            connection = rig.pool._owners["echo"]._connection
            assert connection is not None
            connection._opened.transport._child.kill()  # type: ignore[attr-defined]
            finished = await rig.pool.call(rig.tool("echo", "echo"), {"text": "x"}, ToolContext())
            assert finished.result.text == "x" or "may have run" in finished.error


# Results


async def test_results_that_are_not_mcp_are_failures_or_kept_and_never_raise(ground: Ground) -> None:
    async with pooled(ground, ground.hostile("misshapen")) as rig:
        expected = {
            "nothing": Status.EXECUTION_FAILED,
            "content_text": Status.EXECUTION_FAILED,
            "unknown_kind": Status.SUCCESS,
            "no_kind": Status.SUCCESS,
            "bad_image": Status.SUCCESS,
            "structured_list": Status.SUCCESS,
            "error_text": Status.SUCCESS,
        }
        for name, status in expected.items():
            finished = await rig.call("bad", name)
            assert (name, finished.status) == (name, status)
        kept = to_mcp((await rig.call("bad", "unknown_kind")).result)
        assert kept["content"] == [{"type": "hologram", "data": "?"}]


async def test_a_result_that_is_no_object_ends_the_call(ground: Ground) -> None:
    async with pooled(ground, ground.hostile("misshapen", idle_timeout=1)) as rig:
        ended = await asyncio.gather(rig.call("bad", "a_list"), rig.call("bad", "a_string"))
        assert {finished.status for finished in ended} <= {Status.EXECUTION_FAILED, Status.TIMEOUT}
