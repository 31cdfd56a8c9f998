"""A model, or whoever speaks for it, that means harm: nothing it sends ends a session, fills a disk or buys more than
the budget allows. Invariants 1, 6 and 8."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from tests.agent.conftest import calls
from tests.agent.test_delegation import FILES, ZONE, cast, may_call, program
from tests.deadlines import PATIENCE, within

from golem_forge import WorkerRuntime, tool
from golem_forge.agent.model.interface import (
    MAX_CALLS,
    AssistantMessage,
    Request,
    RequestedCall,
    TokenUsage,
    storable_message,
)
from golem_forge.agent.model.scripted import FunctionScript, Turn, TurnCall, TurnFailure
from golem_forge.agent.resume import NothingToResume, resume
from golem_forge.agent.root_worker import StartInterrupted
from golem_forge.agent.run_result import RunStatus

Play = Any


def counting() -> tuple[list[int], Any]:
    ran: list[int] = []

    @tool(needs_approval=False)
    async def count(n: int = 0, x: Any = None) -> int:
        """Counts."""
        ran.append(n)
        return n

    return ran, count


def nested(levels: int) -> dict[str, Any]:
    value: dict[str, Any] = {}
    for _ in range(levels):
        value = {"a": value}
    return value


@pytest.mark.parametrize(
    ("asked", "status"),
    [
        (TurnCall(tool="count", args=nested(3000)), "input_invalid"),
        (TurnCall(tool="count", args={"x": 10**5000}), "input_invalid"),
        (TurnCall(tool="count", args={"x": float("nan")}), "input_invalid"),
        (TurnCall(tool="count", args={"x": "\udfff"}), "input_invalid"),
        (TurnCall(tool="count", args='{"x": "\ud800"}'), "input_invalid"),
        (TurnCall(tool="co\ud800unt", args={}), "tool_not_found"),
        (TurnCall(tool="x" * 1_000_000, args={}), "tool_not_found"),
        (TurnCall(tool="count", args={}, id="\ud800"), "success"),
        (TurnCall(tool="count", args={}, id="x" * 1_000_000), "success"),
        (TurnCall(tool="count", args={}, id="a\x1b[2J\n"), "success"),
    ],
    ids=["deep", "integer", "nan", "half", "half-text", "half-name", "long-name", "half-id", "long-id", "steering-id"],
)
async def test_whatever_a_call_is_made_of_it_has_one_result_and_the_session_can_be_found_again(
    play: Play, asked: TurnCall, status: str
) -> None:
    ran, count = counting()
    played = await play([Turn(say="\ud83d I count", calls=(asked,)), "fine"], tools=[count])
    result = await played.runtime.run("go \udcff")
    assert result.response == "fine"
    assert [each[0] for each in played.script.results()] == [status]
    assert len(ran) == (status == "success")
    (call,) = played.runtime.history.messages[1].calls
    assert len(call.id) < 300 and call.id.isprintable() and len(call.name) < 300
    for message in played.runtime.history.messages[:2]:
        message.text.encode()  # half a character would make every later request fail
    assert played.runtime.journal.path.stat().st_size < 100_000
    home, session = played.runtime.home.path, played.runtime.session_id
    await played.runtime.aclose()
    back = resume(home, session)
    assert len(back.history) == 4
    back.journal.close()


async def test_more_calls_than_anybody_needs_run_not_at_all(play: Play) -> None:
    ran, count = counting()
    many = Turn(calls=tuple(TurnCall(tool="count", args={"n": n}) for n in range(MAX_CALLS + 1)))
    played = await play([many, "fine"], tools=[count])
    result = await played.runtime.run("go")
    assert result.status is RunStatus.FAILED and "1001 calls" in result.error
    assert ran == []
    assert (await played.runtime.run("again")).response == "fine"


async def test_an_answer_without_end_is_cut_off_and_leaves_nothing_behind(play: Play) -> None:
    ran, count = counting()
    endless = Turn(say="z" * (33 * 1024 * 1024), chunks=300, calls=(TurnCall(tool="count"),))
    played = await play([endless, "fine"], tools=[count])
    result = await played.runtime.run("go")
    assert result.status is RunStatus.FAILED and "more than 32 MiB" in result.error
    assert ran == [] and len(played.script.requests) == 1, "not tried again"
    assert (await played.runtime.run("again")).response == "fine"
    assert played.runtime.journal.path.stat().st_size < 1_000_000


async def test_many_small_pieces_take_time_in_proportion(play: Play, is_long: bool) -> None:
    chunks = 25_000 if is_long else 12_000
    played = await play([Turn(say="words of eight " * 2 * chunks, chunks=chunks)])
    with within(5):
        assert len((await played.runtime.run("go")).response) == 30 * chunks


def test_two_calls_of_one_response_never_share_an_id() -> None:
    twice = RequestedCall(id="a", name="count", args={})
    taken = {"b"}
    kept = storable_message(AssistantMessage(calls=(twice, twice, RequestedCall(id="b", name="x", args={}))), taken)
    ids = [call.id for call in kept.calls]
    assert ids[0] == "a" and len({*ids, "b"}) == 4 and taken == {*ids, "b"}


async def test_a_server_that_counts_below_zero_gives_nothing_back_to_the_budget(play: Play, tmp_path: Path) -> None:
    folder = program(tmp_path / "p", main=f"budget: {{max_tokens: 6000}}\n{FILES}{ZONE}")
    turn = Turn(calls=(TurnCall(tool="list_files", args={}),))
    below = Turn(calls=turn.calls, usage=TokenUsage(input=-(10**9), output=-5, cached=-3))
    beyond = Turn(say="much", calls=turn.calls, usage=TokenUsage(input=10**400))
    played = await play([below, beyond, "never"], worker="main", directory=folder, facts={"max_output_tokens": 100})
    result = await played.runtime.run("go")
    assert result.status is RunStatus.LIMIT
    assert (result.usage.input, result.usage.output) == (10**12, 0)


async def test_a_failed_try_may_use_up_the_budget_of_the_next_one(play: Play, tmp_path: Path) -> None:
    folder = program(tmp_path / "p", main=f"budget: {{max_tokens: 8300}}\n{FILES}{ZONE}")
    failing = Turn(say="a", usage=TokenUsage(input=4000), fail=TurnFailure(status=429, retry_after=0))
    played = await play([failing] * 4, worker="main", directory=folder, facts={"max_output_tokens": 100})
    result = await played.runtime.run("go")
    assert result.status is RunStatus.LIMIT and result.error == "budget exceeded: max_tokens 8300 (used 8000)"
    assert len(played.script.requests) == 2


async def test_a_failed_summary_is_paid_for(play: Play, tmp_path: Path) -> None:
    """Compaction asks the model too, and its tries fail like others."""
    failing = Turn(say="x", usage=TokenUsage(input=777), fail=TurnFailure(status=400))

    def turn(request: Request) -> Turn | str:
        return failing if "to be summarised" in request.messages[0].text else f"answer {'word ' * 500}"  # type: ignore[union-attr]

    played = await play([turn] * 30, facts={"context_window": 6000, "max_output_tokens": 100})
    result = None
    for _ in range(14):
        result = await played.runtime.turn("and " * 40)
        if result.status is not RunStatus.COMPLETED:
            break
    assert result is not None and result.status is RunStatus.MODEL_UNAVAILABLE
    counted = [event.wire["input"] for event in played.seen("usageUpdated")]
    assert counted[-1] == 777


async def test_a_workers_own_budget_outlives_the_process(play: Play, tmp_path: Path) -> None:
    """W19 over a resume: what was spent before counts against the worker's limits, not only the program's."""
    folder = program(tmp_path / "p", main=f"budget: {{max_tokens: 5000}}\n{FILES}{ZONE}")
    facts = {"max_output_tokens": 100}
    first = await play(
        [Turn(say="a", usage=TokenUsage(input=4000, output=500))], worker="main", directory=folder, facts=facts
    )
    assert (await first.runtime.run("x")).status is RunStatus.COMPLETED
    await first.runtime.aclose()
    again = await play([], worker="main", directory=folder, facts=facts, resume=first.runtime.bus.session_id)
    result = await again.runtime.run("more")
    assert result.error == "budget exceeded: max_tokens 5000 (used 4500)"


async def test_after_a_resume_no_id_of_a_childs_or_a_compacted_call_comes_again(play: Play, tmp_path: Path) -> None:
    folder = program(tmp_path / "p", main=may_call("a", more=", filesystem: "), a=f"{FILES}{ZONE}")
    mine = Turn(calls=(TurnCall(tool="list_files", args={}, id="same"),))
    first = await play(
        cast(main=[calls(("a", {"input": "x"})), "ok"], a=[mine, "done"]), run="go", worker="main", directory=folder
    )
    await first.runtime.aclose()
    again = await play([mine, "ok"], run="go on", worker="main", directory=folder, resume=first.runtime.bus.session_id)
    (call,) = again.runtime.history.messages[-3].calls
    assert call.id != "same"
    finished = [event.wire["toolCallId"] for event in again.seen("toolResult")]
    assert finished == [call.id]


async def test_an_approval_of_a_worker_ends_with_its_file(play: Play, tmp_path: Path, asked: Any) -> None:
    """Invariant 4: a sub-worker that may do more than the one that was approved is another tool."""
    folder = program(tmp_path / "p", main=may_call("a"), a=ZONE)
    ask = asked({"approved": True, "remember": "session"})

    async def once(**more: Any) -> Any:
        turns = [calls(("a", {"input": "x"})), "the child is done", "ok"]
        played = await play(
            turns, run="go", worker="main", directory=folder, approval=None, approval_callback=ask, **more
        )
        await played.runtime.aclose()
        return played.runtime.bus.session_id

    session = await once()
    await once(resume=session)
    assert len(ask) == 1, "the same file: the approval holds"
    (folder / "workers" / "a.worker").write_text(f"---\nname: a\n{FILES}{ZONE}---\nI am a.\n")
    await once(resume=session)
    assert len(ask) == 2


@pytest.mark.parametrize(("reason", "code"), [("interrupted", "START_INTERRUPTED"), ("terminated", "START_TERMINATED")])
async def test_w41_an_interrupt_at_the_card_that_asks_for_trust(tmp_path: Path, reason: str, code: str) -> None:
    front = f"toolsets: {{custom: {{module: ./tools.py, tools: [f]}}}}\n{ZONE}"
    folder = program(tmp_path / "p", main=front)
    (folder / "tools.py").write_text("def f() -> int:\n    '''F.'''\n    return 1\n")
    runtime = WorkerRuntime("main", directory=folder, model=FunctionScript(lambda request: "x"), home=tmp_path / "home")
    seen: list[str] = []
    runtime.bus.on("*", lambda event: seen.append(event.type))
    runtime.ui.attach("test")
    runtime.bus.on("approvalRequired", lambda event: asyncio.get_running_loop().call_soon(runtime.interrupt, reason))
    with within(5), pytest.raises(StartInterrupted) as stopped:
        await asyncio.wait_for(runtime.initialize(), PATIENCE)
    assert stopped.value.code == code
    assert seen == ["approvalRequired", "approvalResolved"]
    await runtime.aclose()
    with pytest.raises(NothingToResume):
        resume(tmp_path / "home", runtime.bus.session_id)
