"""Sessions: real terminals, numbers, owners, limits, and the end of all of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from tests.deadlines import within

from golem_forge.core.decisions import Status
from golem_forge.toolsets.exec import sessions


async def test_t19_a_question_is_answered_in_a_terminal(bench: Any) -> None:
    started = await bench.cmd("read x; echo got $x", tty=True, yield_time_ms=50)
    assert "\nRunning: session 1\n" in started.text and started.status is Status.SUCCESS
    outcome = await bench.stdin(1, "ok\n", yield_time_ms=20000)
    assert "got ok" in outcome.text and "\nExited: code 0\n" in outcome.text


async def test_t20_it_is_a_real_terminal(bench: Any) -> None:
    assert "tty" in (await bench.cmd("test -t 0 && echo tty", tty=True)).text
    assert "40 120" in (await bench.cmd("stty size", tty=True)).text
    assert "said" in (await bench.cmd("echo said > /dev/tty", tty=True)).text


async def test_t20_job_control(bench: Any, runs: Callable[..., Any]) -> None:
    number = await bench.session("bash --norc -i", tty=True, yield_time_ms=0)
    await bench.stdin(number, "sleep 61.27\n", yield_time_ms=0)
    await runs("sleep\x0061.27")  # Ctrl+Z throws away what is typed and not read yet
    assert "Stopped" in await bench.until(number, "Stopped", after="\x1a")
    assert "Stopped" in await bench.until(number, "that is all", after="jobs; echo th''at is all\n")
    await bench.stdin(number, signal="KILL")


async def test_t21_without_a_terminal_input_is_empty(bench: Any) -> None:
    assert "\nExited: code 0\nOutput (0 bytes):" in (await bench.cmd("cat")).text
    number = await bench.session("sleep 60")
    outcome = await bench.stdin(number, "x")
    assert (outcome.status, outcome.text) == (
        Status.EXECUTION_FAILED,
        f"Session {number} has no terminal; start it with tty=true.",
    )


async def test_a_later_call_returns_only_what_is_new(bench: Any) -> None:
    started = await bench.cmd("echo one; read x; echo two", tty=True, yield_time_ms=50)
    number = started.result.value["session_id"]
    if "one" not in started.result.value["output"]:
        await bench.until(number, "one")
    outcome = await bench.stdin(number, "\n", yield_time_ms=20000)
    assert "one" not in outcome.text and "two" in outcome.text
    again = await bench.stdin(number, "late", yield_time_ms=0)
    assert "\nExited: code 0\n" in again.text and "ignored" in again.text
    assert again.text.endswith("Output (0 bytes):")


async def test_t25_a_session_belongs_to_its_worker(benches: Callable[..., Any]) -> None:
    one = benches(worker="main/a")
    other = benches(worker="main/b", parts=one.path.parts)
    assert (await one.stdin(999)).text == "Session 999 not found."
    number = await one.session("sleep 60")
    assert (await other.stdin(number)).text == f"Session {number} not found."
    assert (await other.stdin(0)).text == "Session 0 not found."


async def test_t24_at_most_64_run_and_none_is_ended_for_another(bench: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    assert sessions.MAX_RUNNING == 64
    monkeypatch.setattr(sessions, "MAX_RUNNING", 4)
    assert [await bench.session("sleep 60", yield_time_ms=0) for _ in range(4)] == [1, 2, 3, 4]

    refused = await bench.cmd("echo one more")

    assert (refused.status, refused.text) == (Status.EXECUTION_FAILED, "too many running sessions (4); end one first")
    for number in (1, 4):
        assert f"Running: session {number}" in (await bench.stdin(number, yield_time_ms=0)).text
    ended = await bench.stdin(1, signal="KILL", yield_time_ms=20000)
    assert "Ended by signal: SIGKILL (9)" in ended.text
    assert await bench.session("sleep 60", yield_time_ms=0) == 5


async def test_t28_interrupting(bench: Any, runs: Callable[..., Any]) -> None:
    """By Ctrl-C in a terminal, by a signal there, by a signal without one."""
    ways = ((True, {"chars": "\x03"}, "61.33"), (True, {"signal": "INT"}, "61.34"), (False, {"signal": "INT"}, "61.35"))
    for tty, how, seconds in ways:
        number = await bench.session(f"sleep {seconds}", tty=tty)
        await runs(f"sleep\0{seconds}")

        outcome = await bench.stdin(number, **how, yield_time_ms=20000)

        assert "Ended by signal: SIGINT (2)" in outcome.text, how


async def test_all_end_with_the_forge_session(bench: Any, gone: Callable[..., Any]) -> None:
    await bench.session("sleep 61.31")
    await bench.session("trap '' TERM HUP; sleep 61.31; sleep 61.31", tty=True)
    with within(3):
        await bench.path.parts.close()
    await gone("61.31")


async def test_ctrl_d_ends_the_input(bench: Any) -> None:
    number = await bench.session("cat; echo done", tty=True)
    outcome = await bench.stdin(number, "\x04", yield_time_ms=20000)
    assert "done" in outcome.text and "Exited: code 0" in outcome.text
