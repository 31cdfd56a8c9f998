"""How servers live and end (mcp.md §17, cases 5–10 and 13): when one starts, what it costs to lose it, and that nobody
is left, however Forge itself ends."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests import descriptors
from tests.acceptance.mcp_bench import McpBench, offered, pool_of, settled, state
from tests.deadlines import LONG, within
from tests.mcp.client.test_pool_http import Office
from tests.mcp.pools import until
from tests.ready import Started

from golem_forge.core.calls import Caller, ToolCall
from golem_forge.core.errors import ForgeError
from golem_forge.mcp.client import connection

LOG = {"ECHO_LOG": "/workspace/log"}
NOTES = {"HOSTILE_NOTES": "/workspace"}
NO_SERVER = "/no/such/binary"


def aged(bench: McpBench, server: str, seconds: float) -> None:
    """The manifest that a session left is so old."""
    spec = bench.program().mcp.servers[server]
    found = bench.cache.load(spec, time.time())
    assert found is not None
    bench.cache.store(replace(found[0], fetched_at=time.time() - seconds))


async def known(bench: McpBench) -> None:
    """A session before, which leaves manifests."""
    async with bench.session() as session:
        await settled(session)
    (bench.workspace / "log").unlink(missing_ok=True)


def server_pids(bench: McpBench, program: str) -> list[int]:
    return [int(line.split()[0]) for line in bench.left() if program in line and "bwrap" not in line]


async def test_case_5_one_server_that_cannot_start_affects_no_other(
    mcp_bench: McpBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The session starts, two work, the third shows its error; and whatever fails is tried five times at most."""
    monkeypatch.setattr(connection, "BACKOFF_FIRST_S", 0.02)
    mcp_bench.yaml(
        {
            "a": mcp_bench.ours("echo.py"),
            "b": mcp_bench.ours("echo.py"),
            "broken": {"command": NO_SERVER},
            "dying": mcp_bench.ours("hostile.py", "dies-start", env=NOTES),
        }
    )
    mcp_bench.approve()
    async with mcp_bench.session() as session:
        await settled(session, "a", "b")
        for name in ("a", "b"):
            assert (await session.call(f"{name}__echo", {"text": name})).text == name
        await until(lambda: state(session, "broken") == "failed", "it gives up")
        assert NO_SERVER in pool_of(session).status("broken").error
        asked = await session.call("broken__anything", {})
        assert asked.status == "execution_failed" and NO_SERVER in asked.text
        with pytest.raises(ForgeError, match=r"server 'broken' failed: .*run: forge mcp reconnect broken"):
            await pool_of(session).wait_connected("broken")
        await until(lambda: state(session, "dying") == "failed", "it gives up")
        for _ in range(5):
            await session.call("dying__act", {})
        status = pool_of(session).status("dying")
        assert len(mcp_bench.lines("started")) <= 5
        assert "exit code 3" in status.error
        assert len(status.stderr) == 20 and status.stderr[-1] == "fatal: no database"
        assert "\x1b" not in "".join(status.stderr)
        assert state(session, "a") == state(session, "b") == "ready"


async def test_case_6_a_known_server_is_started_by_its_first_call_and_once(mcp_bench: McpBench) -> None:
    """With a manifest nothing runs at the start; twenty first calls at once start one process."""
    mcp_bench.yaml({"echo": mcp_bench.ours("echo.py", env=LOG, trust="trusted", approval={"default": "preApproved"})})
    mcp_bench.trust()
    mcp_bench.approve()
    await known(mcp_bench)
    async with mcp_bench.session() as session:
        assert state(session, "echo") == "known" and "echo__echo" in offered(session)
        await asyncio.sleep(0.3)
        assert mcp_bench.left() == [] and mcp_bench.starts() == 0
        calls = [ToolCall("echo__echo", {"text": str(number)}, Caller.LLM) for number in range(20)]
        outcomes = await session.batch(calls, mode="parallel")
        assert [outcome.text for outcome in outcomes] == [str(number) for number in range(20)]
        assert mcp_bench.starts() == 1
        assert len(server_pids(mcp_bench, "echo.py")) == 1
        assert not mcp_bench.cards


async def test_case_7_a_manifest_of_eleven_minutes_is_used_and_refreshed_in_the_background(
    mcp_bench: McpBench,
) -> None:
    """Other ages, and another configuration: tests/mcp/client/test_manifest_cache.py."""
    mcp_bench.yaml({"echo": mcp_bench.ours("echo.py", env=LOG)})
    mcp_bench.approve()
    await known(mcp_bench)
    aged(mcp_bench, "echo", 11 * 60)
    async with mcp_bench.session() as session:
        assert "echo__echo" in offered(session) and state(session, "echo") == "connecting"
        await settled(session)
        assert "echo__echo" in offered(session) and mcp_bench.starts() == 1
    found = mcp_bench.cache.load(mcp_bench.program().mcp.servers["echo"], time.time())
    assert found is not None and time.time() - found[0].fetched_at < 60, "refreshed"


async def test_case_8_any_task_may_end_what_another_began(mcp_bench: McpBench) -> None:
    """Opened in one task and closed in another, while a server is being connected to: no error, no child. (At every
    point of the way: tests/mcp/client/test_pool_event_orders.py.)"""
    mcp_bench.yaml({"echo": mcp_bench.ours("echo.py"), "slow": mcp_bench.ours("hostile.py", "silent-start")})
    mcp_bench.approve()
    problems: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: problems.append(context))
    opened: list[Any] = []

    async def begins() -> None:
        stack = contextlib.AsyncExitStack()
        session = await stack.enter_async_context(mcp_bench.session())
        await settled(session, "echo")
        assert (await session.call("echo__echo", {"text": "hi"})).ok
        opened.extend((stack, session))

    await asyncio.create_task(begins())
    stack, session = opened
    assert state(session, "slow") == "connecting"
    await until(lambda: server_pids(mcp_bench, "hostile.py"), "it is being connected to")
    with within(1):
        await asyncio.create_task(stack.aclose())
    assert mcp_bench.nobody_left() and problems == []


async def test_case_9_killed_during_a_call(mcp_bench: McpBench) -> None:
    """An Outcome within a second that says it may have run; the next call works on a new process."""
    mcp_bench.yaml({"echo": mcp_bench.ours("echo.py")})
    mcp_bench.approve()
    async with mcp_bench.session() as session:
        await settled(session)
        [before] = server_pids(mcp_bench, "echo.py")
        heard: list[Any] = []
        session.bus.on("toolProgress", heard.append)
        call = asyncio.create_task(session.call("echo__sleep", {"seconds": LONG, "progress": True}))
        await until(lambda: heard, "it works on it")
        with within(1):
            os.kill(before, signal.SIGKILL)
            lost = await call
        assert lost.status == "execution_failed"
        assert lost.text.endswith("connection to echo was lost; the call may have run")
        again = await session.call("echo__echo", {"text": "back"})
        assert again.ok and again.text == "back"
        assert before not in server_pids(mcp_bench, "echo.py")


async def test_case_9_an_effect_happens_at_most_once(mcp_bench: McpBench) -> None:
    """A server that dies after the effect and before the answer is not asked again."""
    mcp_bench.yaml({"bad": mcp_bench.ours("hostile.py", "dies", env=NOTES)})
    mcp_bench.approve()
    async with mcp_bench.session() as session:
        await settled(session)
        lost = await session.call("bad__act", {})
        assert lost.status == "execution_failed" and "the call may have run" in lost.text
        await until(lambda: state(session, "bad") == "known", "its end is seen")
        assert "exit code 3" in pool_of(session).status("bad").error
        assert (await session.call("bad__quick", {})).text == "quick ran"
    assert mcp_bench.lines("ran") == ["act", "quick"]


async def test_case_10_a_restarted_http_server_runs_the_call_once(mcp_bench: McpBench) -> None:
    """A legacy server that no longer knows the session (404) gets a new one, and the call exactly once."""
    office = Office()
    mcp_bench.yaml({"web": {"url": f"http://127.0.0.1:{office.port}/mcp", "protocol": "legacy"}})
    mcp_bench.approve()
    async with mcp_bench.session() as session:
        async with office.open():
            await settled(session)
            assert (await session.call("web__act", {})).ok
        sessions = {headers.get("mcp-session-id") for headers in office.headers} - {None}
        async with office.open():
            office.ran.clear()
            outcome = await session.call("web__act", {})
            assert (outcome.status, outcome.text) == ("success", "acted")
            assert office.ran == ["act"]
        assert len({headers.get("mcp-session-id") for headers in office.headers} - {None}) == len(sessions) + 1


# Case 13: the kill matrix

MAIN = """\
---
name: main
toolsets: {mcp: {servers: ["*"]}}
sandbox: {zones: [{name: workspace, mode: rw}]}
---
Do it.
"""
WAITS = {"tool": "plain__sleep", "args": {"seconds": LONG}}


def both_kinds(bench: McpBench) -> dict[str, Any]:
    """One that behaves, and one that ignores SIGTERM and has `setsid` children that do so too."""
    return {
        "plain": bench.ours("echo.py", env=LOG, required=True),
        "stubborn": bench.ours("hostile.py", "forks", "3", env=NOTES, required=True),
    }


def three_kinds(bench: McpBench) -> dict[str, Any]:
    """And one that is removed."""
    return both_kinds(bench) | {"removed": bench.ours("echo.py", "--removed", required=True)}


def all_run(bench: McpBench, *others: str) -> bool:
    """Ours, the three children, and these programs."""
    found = bench.left()
    return sum("hostile-child" in line for line in found) >= 3 and all(
        any(program in line and "bwrap" not in line for line in found) for program in ("echo.py", "hostile.py", *others)
    )


def by(number: int) -> Callable[[Started[str]], None]:
    return lambda process: os.kill(process.pid, number)


def twice(process: Started[str]) -> None:
    """Ctrl+C, and once more from somebody who is in a hurry."""
    os.killpg(process.pid, signal.SIGINT)
    time.sleep(0.1)
    with contextlib.suppress(ProcessLookupError):  # the first may have been enough
        os.killpg(process.pid, signal.SIGINT)


@pytest.mark.parametrize(
    ("end", "seconds"),
    [
        (None, 6.0),
        (twice, 3.0),
        pytest.param(by(signal.SIGTERM), 3.0, marks=pytest.mark.long),
        (by(signal.SIGKILL), 1.5),
    ],
    ids=["normal-exit", "ctrl-c", "sigterm", "sigkill"],
)
async def test_case_13_nobody_is_left_however_forge_ends(mcp_bench: McpBench, end: Any, seconds: float) -> None:
    mcp_bench.yaml(both_kinds(mcp_bench))
    (mcp_bench.workspace / "main.worker").write_text(MAIN)
    first = {"calls": [{"tool": "plain__echo", "args": {"text": "hi"}}]}
    turns = [first, {"calls": [WAITS]} if end else {"say": "Done.", "until": "go"}]
    (mcp_bench.workspace / "turns.yaml").write_text(json.dumps({"turns": turns}))
    mcp_bench.trust()
    mcp_bench.approve()
    process = mcp_bench.start("run", "-m", "scripted:turns.yaml", "-i", "go", "--approval", "approve_all")
    await until(lambda: all_run(mcp_bench) or process.poll() is not None, "all of them run")
    if end:
        await until(lambda: '"sleep"' in json.dumps(mcp_bench.log()), "it is in the call that waits")
    assert process.poll() is None
    with within(seconds):
        if end:
            end(process)
        (mcp_bench.workspace / "go").touch()
        process.wait(LONG)
        assert mcp_bench.nobody_left(), mcp_bench.left()


async def test_case_13_a_config_edit_leaves_nobody_of_the_old_and_the_end_of_a_session_nobody(
    mcp_bench: McpBench,
) -> None:
    """Changed and removed servers are gone; what was not touched goes on as it is, and ends with its children in less
    than a second when the session does."""
    blocks = three_kinds(mcp_bench)
    mcp_bench.yaml(blocks)
    mcp_bench.approve()
    async with contextlib.AsyncExitStack() as stack:
        session = await stack.enter_async_context(mcp_bench.session())
        await settled(session)
        await until(lambda: all_run(mcp_bench, "--removed"), "all of them run")
        [stubborn] = server_pids(mcp_bench, "hostile.py")
        before = {int(line.split()[0]) for line in mcp_bench.left()}
        del blocks["removed"]
        blocks["plain"]["args"].append("--more")
        mcp_bench.yaml(blocks)
        await session.look()
        now = {int(line.split()[0]) for line in mcp_bench.left()}
        assert stubborn in now and not server_pids(mcp_bench, "echo.py")
        assert now < before, "nothing new was started without a yes"
        with within(1):
            await stack.aclose()
    assert mcp_bench.left() == []


async def test_case_13_reconnects_leave_one_process(mcp_bench: McpBench, is_long: bool) -> None:
    """Each ends the process before it, the one that will not go included."""
    mcp_bench.yaml({"plain": mcp_bench.ours("echo.py"), "stubborn": mcp_bench.ours("hostile.py", "forks", env=NOTES)})
    mcp_bench.approve()
    before = descriptors.held()
    async with mcp_bench.session() as session:
        await settled(session)
        await pool_of(session).reconnect("stubborn")
        await until(lambda: sum("hostile-child" in line for line in mcp_bench.left()) == 3, "only the last one's")
        tasks = len(asyncio.all_tasks())
        for _ in range(46 if is_long else 2):
            await pool_of(session).reconnect("plain")
        await asyncio.gather(*(pool_of(session).reconnect("plain") for _ in range(3)))
        assert len(server_pids(mcp_bench, "echo.py")) == 1
        assert len(server_pids(mcp_bench, "hostile.py")) == 1
        assert (await session.call("plain__echo", {"text": "still"})).text == "still"
        await until(lambda: len(asyncio.all_tasks()) <= tasks, "no task of theirs is left")
    assert mcp_bench.nobody_left()
    assert descriptors.no_more_than(before + 5), "pipes and directories are closed too"
    assert Path(mcp_bench.workspace / "children").read_text().count("\n") == 6
