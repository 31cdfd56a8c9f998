"""Batches: readers together, writers alone, every call answered once and in order."""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from tests.deadlines import LONG, PATIENCE, within

from golem_forge import BlockedError, Tool, ToolCall, open_session, tool
from golem_forge.core.effects import Effect, Verb
from golem_forge.core.errors import ForgeError
from golem_forge.events.bus import EventBus
from golem_forge.orchestrator.call_state import CallState
from golem_forge.orchestrator.resolve import validate
from golem_forge.tools.context import Plan

events: list[tuple[str, str, float]] = []


def recording(name: str, *, read_only: bool, fails: bool = False, seconds: float = 0.05, in_pairs: bool = False) -> Any:
    async def body(tag: str = "") -> str:
        events.append((name + tag, "start", time.monotonic()))
        await asyncio.sleep(seconds)
        async with asyncio.timeout(PATIENCE):  # of a pair, each goes on once the other runs too
            while in_pairs and len([who for who, kind, _ in events if kind == "start" and name in who]) % 2:
                await asyncio.sleep(0.01)
        events.append((name + tag, "end", time.monotonic()))
        if fails:
            raise ValueError("no")
        return name + tag

    return tool(name=name, needs_approval=False, read_only=read_only)(body)


@pytest.fixture(autouse=True)
def _fresh(monkeypatch: pytest.MonkeyPatch) -> None:
    """A check that waits for a gate has the time that the gate takes."""
    events.clear()
    monkeypatch.setattr("golem_forge.policy.base.PREDICATE_SECONDS", PATIENCE)


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


# ---- refusals are final, and a slow check holds nobody up


class _Gone(BaseException):
    """No Exception: a check may raise this too."""


def _refusals() -> dict[str, Any]:
    async def never(args: dict[str, Any]) -> bool:
        await asyncio.sleep(LONG)
        return False

    return {
        "raises": ValueError("no"),
        "blocks": BlockedError("not on my watch"),
        "ends": SystemExit(3),
        "is_gone": _Gone(),
        "cancels": asyncio.CancelledError(),
        "says_nothing": None,
        "never_answers": never,
    }


@pytest.mark.parametrize("kind", list(_refusals()))
@pytest.mark.parametrize("is_async", [False, True], ids=["sync", "async"])
async def test_what_a_check_refused_is_not_judged_again_at_the_calls_turn(
    make_path: Any, monkeypatch: pytest.MonkeyPatch, kind: str, is_async: bool
) -> None:
    """The second time it would have said yes."""
    if kind == "never_answers":
        monkeypatch.setattr("golem_forge.policy.base.PREDICATE_SECONDS", 0.2)
    refusal, asked, ran = _refusals()[kind], [], []
    refused = asyncio.Event()
    loop = asyncio.get_running_loop()

    def said(args: dict[str, Any]) -> Any:
        asked.append(args)
        loop.call_soon_threadsafe(refused.set)
        if len(asked) > 1:
            return False
        if isinstance(refusal, BaseException):
            raise refusal
        return refusal(args) if callable(refusal) else refusal

    async def said_later(args: dict[str, Any]) -> Any:
        answer = said(args)
        return await answer if asyncio.iscoroutine(answer) else answer

    @tool(name="first", needs_approval=False)
    async def first() -> str:
        await refused.wait()
        return "done"

    @tool(name="refused", needs_approval=said_later if is_async else said)
    async def run() -> str:
        ran.append(1)
        return "ran"

    outcomes = await make_path(first, run).batch([ToolCall("first", {}), ToolCall("refused", {})])
    assert [o.status for o in outcomes] == ["success", "policy_denied"]
    assert (len(asked), ran) == (1, [])
    expected = {"blocks": "not on my watch"}.get(kind, "Approval check of 'refused' failed (")
    assert outcomes[1].error.startswith(expected)


async def test_a_planner_that_blocks_is_not_asked_again(make_path: Any) -> None:
    planned: list[int] = []

    async def plan(args: dict[str, Any], ctx: Any) -> Plan:
        planned.append(1)
        if len(planned) == 1:
            raise BlockedError("never")
        return Plan(run=lambda: "ran")

    blocking = Tool("blocking", "Blocks.", input_schema={"type": "object"}, planner=plan, needs_approval=False)
    path = make_path(recording("write", read_only=False), blocking)
    outcomes = await path.batch([*calls("write:1"), ToolCall("blocking", {})])
    assert [(o.status, o.executed) for o in outcomes] == [("success", True), ("policy_denied", False)]
    assert len(planned) == 1


@pytest.mark.parametrize("is_async", [False, True], ids=["sync", "async"])
async def test_a_slow_check_holds_up_neither_readers_nor_prompts(make_path: Any, asked: Any, is_async: bool) -> None:
    """The check of the first call answers only when the others have been asked about and have run."""
    others, loop = asyncio.Event(), asyncio.get_running_loop()
    quick = [0]

    def slow(args: dict[str, Any]) -> bool:
        asyncio.run_coroutine_threadsafe(others.wait(), loop).result(LONG)
        return False

    async def slow_async(args: dict[str, Any]) -> bool:
        await others.wait()
        return False

    @tool(name="slow", needs_approval=slow_async if is_async else slow, read_only=True)
    async def slow_tool() -> str:
        return "slow"

    def body() -> str:
        quick[0] += 1
        if quick[0] == 3:
            others.set()
        return "quick"

    reader = tool(name="reader", needs_approval=False, read_only=True, inline=True)(body)
    prompted = tool(name="prompted", read_only=True, inline=True)(body)
    path = make_path(slow_tool, reader, prompted, ask=asked({"approved": True}))
    names = ("slow", "reader", "prompted", "reader")
    outcomes = await path.batch([ToolCall(name, {}) for name in names])
    assert [o.text for o in outcomes] == ["slow", "quick", "quick", "quick"]


async def test_a_writer_whose_check_does_not_answer_gives_up_its_place(
    make_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("golem_forge.orchestrator.schedule.MAX_CHECK_DELAY_S", 0.05)
    others, ran = asyncio.Event(), []

    async def slow(args: dict[str, Any]) -> bool:
        await others.wait()
        return False

    @tool(name="slow", needs_approval=slow)
    async def slow_tool() -> str:
        ran.append("slow")
        return "slow"

    @tool(name="quick", needs_approval=False)
    async def quick() -> str:
        ran.append("quick")
        others.set()
        return "quick"

    outcomes = await make_path(slow_tool, quick).batch([ToolCall("slow", {}), ToolCall("quick", {})])
    assert ran == ["quick", "slow"] and all(o.ok for o in outcomes)
    assert "ran first" in outcomes[0].notes[0] and not outcomes[1].notes


@pytest.mark.parametrize(("does", "then"), [(Verb.WRITE, Verb.WRITE), (Verb.WRITE, Verb.READ), (Verb.READ, Verb.WRITE)])
async def test_what_touches_the_same_waits_for_a_slow_check_all_the_same(
    make_path: Any, monkeypatch: pytest.MonkeyPatch, does: Verb, then: Verb
) -> None:
    monkeypatch.setattr("golem_forge.orchestrator.schedule.MAX_CHECK_DELAY_S", 0.01)
    ran: list[str] = []
    longest = 0.3  # enough for a call that does not wait
    other_ran = asyncio.Event()

    async def slow(args: dict[str, Any]) -> bool:
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(other_ran.wait(), longest)
        return False

    def planned(name: str, path: str, verb: Verb, check: Any = False) -> Tool:
        async def run() -> str:
            ran.append(name)
            if name == "other":
                other_ran.set()
            return name

        async def plan(args: dict[str, Any], ctx: Any) -> Plan:
            return Plan(run=run, effects=(Effect(verb=verb, target=path, real=path),))

        return Tool(name, "Touches.", input_schema={"type": "object"}, planner=plan, needs_approval=check)

    tools = (planned("slow", "/a/x", does, slow), planned("same", "/a/x/y", then), planned("other", "/b", then))
    path = make_path(*tools, mode="approve_all")
    await path.batch([ToolCall("slow", {}), ToolCall("same", {})])
    assert ran == ["slow", "same"]
    ran.clear()
    longest = PATIENCE
    await path.batch([ToolCall("slow", {}), ToolCall("other", {})])
    assert ran == ["other", "slow"]


@pytest.mark.parametrize("is_async", [False, True], ids=["sync", "async"])
async def test_an_interrupt_ends_a_check_that_never_returns(make_path: Any, is_async: bool) -> None:
    asking, loop = asyncio.Event(), asyncio.get_running_loop()
    over = threading.Event()

    def stuck(args: dict[str, Any]) -> bool:
        loop.call_soon_threadsafe(asking.set)
        over.wait(LONG)
        return False

    async def deaf(args: dict[str, Any]) -> bool:
        asking.set()
        while not over.is_set():
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.sleep(0.05)
        return False

    @tool(name="stuck", needs_approval=deaf if is_async else stuck)
    async def run() -> str:
        return "ran"

    path = make_path(run, recording("write", read_only=False))
    batch = asyncio.ensure_future(path.batch([ToolCall("stuck", {}), *calls("write:1")]))
    await asking.wait()
    path.signal.interrupt()
    with within(1.2):
        outcomes = await batch
    over.set()
    assert [(o.status, o.executed) for o in outcomes] == [("interrupted", False)] * 2


async def test_a_check_that_ignores_being_cancelled_is_refused_in_time(
    make_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("golem_forge.policy.base.PREDICATE_SECONDS", 0.1)
    over = asyncio.Event()

    async def deaf(args: dict[str, Any]) -> bool:
        while not over.is_set():
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.sleep(0.05)
        return False

    @tool(name="stuck", needs_approval=deaf)
    async def run() -> str:
        return "ran"

    with within(3):
        outcome = await make_path(run).call(ToolCall("stuck", {}))
    over.set()
    assert (outcome.status, outcome.executed) == ("policy_denied", False)
    assert "(TimeoutError)" in outcome.error


# ---- a call that depends on what one before it writes


async def test_a_plan_and_its_card_are_made_after_the_call_that_writes_what_it_reads(tmp_path: Path) -> None:
    """`apply_patch` after `write_file`, and one write after another: no card shows what is about to be replaced."""
    (tmp_path / "a.txt").write_text("old\n")
    (tmp_path / "b.txt").write_text("old\n")
    shown: list[tuple[str, str]] = []

    def ask(request: Any) -> dict[str, Any]:
        lines = (line for line in request.diff.splitlines() if line.startswith("-") and "---" not in line)
        shown.append((request.tool, next(lines, "")))
        return {"approved": True}

    patch = "*** Begin Patch\n*** Update File: /workspace/a.txt\n@@\n-new\n+newer\n*** End Patch"
    wanted = [
        ToolCall("write_file", {"path": "/workspace/a.txt", "content": "new\n"}),
        ToolCall("apply_patch", {"input": patch}),
        ToolCall("write_file", {"path": "/workspace/a.txt", "content": "newest\n"}),
        ToolCall("read_file", {"path": "/workspace/a.txt"}),
        ToolCall("write_file", {"path": "/workspace/b.txt", "content": "new\n"}),
        ToolCall("delete_file", {"path": "/workspace/a.txt"}),
    ]
    async with open_session(tmp_path, approval_callback=ask) as session:
        outcomes = await session.path.batch(wanted)
    assert [o.status for o in outcomes] == ["success"] * 6, [o.error for o in outcomes]
    assert "newest" in outcomes[3].text and not (tmp_path / "a.txt").exists()
    assert len(shown) == 5  # each was asked about once
    assert sorted(line for _, line in shown) == [
        "-new",
        "-newer",
        "-newest",
        "-old",
        "-old",
    ]  # what stood there by then


async def test_calls_that_have_nothing_to_do_with_each_other_are_asked_about_together(tmp_path: Path) -> None:
    waiting: list[str] = []
    all_four = asyncio.Event()

    async def ask(request: Any) -> dict[str, Any]:
        waiting.append(request.payload)
        if len(waiting) == 4:
            all_four.set()
        await all_four.wait()
        return {"approved": True}

    wanted = [ToolCall("write_file", {"path": f"/workspace/{n}", "content": n}) for n in "ab"]
    wanted += [ToolCall("exec_command", {"cmd": f"touch {n}"}) for n in "cd"]
    async with open_session(tmp_path, approval_callback=ask) as session:
        outcomes = await session.path.batch(wanted)
    assert [o.status for o in outcomes] == ["success"] * 4, [o.error for o in outcomes]
    assert sorted(each.name for each in tmp_path.iterdir()) == ["a", "b", "c", "d"]


async def test_a_card_is_shown_while_a_reader_before_it_still_runs(make_path: Any) -> None:
    shown = asyncio.Event()

    @tool(needs_approval=False, read_only=True)
    async def reads() -> str:
        await shown.wait()
        return "read"

    async def ask(request: Any) -> dict[str, Any]:
        shown.set()
        return {"approved": True}

    async def plan(args: dict[str, Any], ctx: Any) -> Plan:
        return Plan(run=lambda: "wrote", effects=(Effect(verb=Verb.WRITE, target="/a", real="/a"),))

    writes = Tool("writes", "Writes.", input_schema={}, planner=plan, needs_approval=True)
    outcomes = await asyncio.wait_for(
        make_path(reads, writes, ask=ask).batch([ToolCall("reads", {}), ToolCall("writes", {})]), LONG
    )
    assert [o.text for o in outcomes] == ["read", "wrote"], [o.error for o in outcomes]


async def test_a_program_that_the_call_before_writes_is_the_one_that_is_shown_and_run(tmp_path: Path) -> None:
    program = tmp_path / "run.sh"
    program.write_text("#!/bin/sh\necho old\n")
    program.chmod(0o755)
    cards: list[tuple[str, str]] = []

    def ask(request: Any) -> dict[str, Any]:
        cards.append((request.tool, program.read_text()))
        return {"approved": True}

    new = "#!/bin/sh\necho new\n"
    writes = ToolCall("write_file", {"path": "/workspace/run.sh", "content": new})
    async with open_session(tmp_path, approval_callback=ask) as session:
        outcomes = await session.path.batch([writes, ToolCall("exec_command", {"cmd": "./run.sh"})])
    assert [o.status for o in outcomes] == ["success"] * 2, [o.error for o in outcomes]
    assert "new" in outcomes[1].text
    assert [name for name, _ in cards] == ["write_file", "exec_command"] and cards[1][1] == new


_MANIFEST = "name: greet\ndescription: greets\nversion: 1.0.0\nentrypoint: greet.sh\n"
_TESTED = "tests: [{expect: {stdout_contains: ''}}]\n"
_TESTED_WITH_A_NAME = "tests: [{arguments: {who: me}, expect: {stdout_contains: me}}]\n"
_TAKES_A_NAME = "parameters: [{name: who, type: string, description: whom, required: true}]\n"


@pytest.mark.parametrize("by", ["run_custom_tool", "greet"])
@pytest.mark.parametrize("edited", ["write_file", "apply_patch", "says_nothing_of_it"])
async def test_a_user_tool_that_the_call_before_changes_runs_as_changed(tmp_path: Path, by: str, edited: str) -> None:
    """Whatever writes it and by whichever name it is called: never the old one, and never unseen."""
    folder = tmp_path / "home" / "tools" / "greet"
    folder.mkdir(parents=True)
    (tmp_path / "work").mkdir()
    (folder / "tool.yaml").write_text(_MANIFEST + _TESTED)
    (folder / "greet.sh").write_text("echo old\n")
    cards: list[Any] = []

    def ask(request: Any) -> dict[str, Any]:
        cards.append(request)
        return {"approved": True}

    @tool(needs_approval=True)
    async def says_nothing_of_it() -> str:
        (folder / "greet.sh").write_text("echo new\n")
        return "done"

    toolsets = {"coding": {}, "filesystem": {}, "user_tools": {}}
    target = "/user_tools/greet/greet.sh"
    patch = f"*** Begin Patch\n*** Update File: {target}\n@@\n-echo old\n+echo new\n*** End Patch"
    change = {
        "write_file": {"path": target, "content": "echo new\n"},
        "apply_patch": {"input": patch},
        "says_nothing_of_it": {},
    }[edited]
    call = ToolCall(by, {"tool_name": "greet"} if by == "run_custom_tool" else {})
    async with open_session(
        tmp_path / "work",
        home=tmp_path / "home",
        tools=[says_nothing_of_it],
        toolsets=toolsets,
        approval_callback=ask,
    ) as session:
        assert (await session.call("run_custom_tool", {"tool_name": "greet"})).text == "old\n"
        session.refresh()
        cards.clear()
        outcomes = await session.path.batch([ToolCall(edited, change), call])
    assert [o.status for o in outcomes] == ["success"] * 2, [o.error for o in outcomes]
    assert outcomes[1].text == "new\n"
    assert [card.tool for card in cards] == [edited, "greet"]
    assert "+echo new" in cards[1].changed


async def test_a_tool_is_made_and_run_in_one_batch_with_what_it_takes_now(tmp_path: Path) -> None:
    """It is not there when the batch begins, its arguments are checked as it is when it runs, and one that the batch
    takes away does not run."""
    (tmp_path / "work").mkdir()
    files = {"tool.yaml": _MANIFEST + _TESTED, "greet.sh": "echo hello\n"}
    made = [ToolCall("write_file", {"path": f"/user_tools/greet/{n}", "content": text}) for n, text in files.items()]
    more = {"tool.yaml": _MANIFEST + _TAKES_A_NAME + _TESTED_WITH_A_NAME, "greet.sh": 'echo "hello $1"\n'}
    again = [ToolCall("write_file", {"path": f"/user_tools/greet/{n}", "content": text}) for n, text in more.items()]
    toolsets = {"filesystem": {}, "user_tools": {}}
    async with open_session(
        tmp_path / "work", home=tmp_path / "home", toolsets=toolsets, approval="approve_all"
    ) as session:
        batch = session.path.batch
        outcomes = await batch([*made, ToolCall("run_custom_tool", {"tool_name": "greet"})])
        assert (outcomes[-1].status, outcomes[-1].text) == ("success", "hello\n"), outcomes[-1].error
        named = {"tool_name": "greet", "arguments": {"who": "you"}}
        outcomes = await batch([*again, ToolCall("run_custom_tool", named)])
        assert (outcomes[-1].status, outcomes[-1].text) == ("success", "hello --who=you\n"), outcomes[-1].error
        gone = ToolCall("delete_file", {"path": "/user_tools/greet/tool.yaml"})
        outcomes = await batch([gone, ToolCall("run_custom_tool", named)])
        assert [(o.status, o.executed) for o in outcomes] == [("success", True), ("tool_not_found", False)]


async def test_a_check_that_waits_holds_up_no_card_of_a_call_that_touches_files(tmp_path: Path) -> None:
    """The check of an undeclared writer answers once the person was asked about the file."""
    asked = asyncio.Event()

    async def slow(args: dict[str, Any]) -> bool:
        await asked.wait()
        return False

    @tool(needs_approval=slow)
    async def undeclared() -> str:
        return "ran"

    async def ask(request: Any) -> dict[str, Any]:
        asked.set()
        return {"approved": True}

    async with open_session(tmp_path, tools=[undeclared], approval_callback=ask) as session:
        wanted = [ToolCall("undeclared", {}), ToolCall("write_file", {"path": "/workspace/a", "content": "a"})]
        outcomes = await session.path.batch(wanted)
    assert [o.status for o in outcomes] == ["success"] * 2, [o.error for o in outcomes]


async def test_cards_of_one_turn_come_in_the_order_of_its_calls(
    make_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However long each takes to be planned and checked; one that waits for another call to end comes after that."""
    for limit in ("MAX_CHECK_DELAY_S", "MAX_CARD_DELAY_S", "MAX_CHECK_AHEAD_S"):
        monkeypatch.setattr(f"golem_forge.orchestrator.schedule.{limit}", LONG)
    asked: list[str] = []

    def planned(name: str, path: str, seconds: float, check: Any = None) -> Tool:
        async def plan(args: dict[str, Any], ctx: Any) -> Plan:
            await asyncio.sleep(seconds)
            return Plan(run=None, effects=(Effect(verb=Verb.WRITE, target=path, real=path),))

        return Tool(name, "Writes.", input_schema={"type": "object"}, planner=plan, needs_approval=check)

    async def check(args: dict[str, Any]) -> bool:
        await asyncio.sleep(0.1)
        return True

    async def ask(request: Any) -> dict[str, Any]:
        asked.append(request.tool)
        async with asyncio.timeout(LONG):  # until all that can be asked about was
            while len(asked) < 5:
                await asyncio.sleep(0.01)
        return {"approved": False}

    tools = (
        planned("slow", "/a/1", 0.3, True),
        planned("checked", "/a/2", 0.0, check),
        planned("same", "/a/1", 0.0, True),
        planned("quick", "/a/3", 0.0, True),
        planned("same_too", "/a/1/x", 0.0, True),
        planned("slower", "/a/4", 0.2, True),
        tool(name="plain", needs_approval=True, effects=())(lambda: "ran"),
    )
    path = make_path(*tools, ask=ask)
    with within(LONG):
        outcomes = await path.batch([ToolCall(each.name, {}) for each in tools])
    assert asked == ["slow", "checked", "quick", "slower", "plain", "same", "same_too"]
    assert [o.status for o in outcomes] == ["approval_denied"] * 7


async def test_an_interrupt_ends_the_wait_for_a_tool_that_is_not_there_yet(make_path: Any) -> None:
    path = make_path(recording("write", read_only=False, seconds=LONG))
    batch = asyncio.ensure_future(path.batch([*calls("write:1"), ToolCall("not_yet", {})]))
    while not events:
        await asyncio.sleep(0.01)
    path.signal.interrupt()
    with within(1.2):
        outcomes = await batch
    assert [(o.status, o.executed) for o in outcomes] == [("interrupted", True), ("interrupted", False)]


def _waits_for(what: asyncio.Event) -> Any:
    async def check(args: dict[str, Any]) -> bool:
        await what.wait()
        return False

    return check


async def test_a_reader_whose_check_does_not_answer_gives_up_its_place(
    make_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Writers pass it, and it is told; other readers always did."""
    monkeypatch.setattr("golem_forge.orchestrator.schedule.MAX_CHECK_DELAY_S", 0.05)
    wrote = asyncio.Event()

    @tool(needs_approval=_waits_for(wrote), read_only=True)
    async def slow() -> str:
        return "slow"

    @tool(needs_approval=False)
    async def write() -> str:
        wrote.set()
        return "wrote"

    path = make_path(slow, write)
    outcomes = await path.batch([ToolCall("slow", {}), ToolCall("write", {})])
    assert [o.status for o in outcomes] == ["success"] * 2, [o.error for o in outcomes]
    assert "ran first" in outcomes[0].notes[0] and not outcomes[1].notes


async def test_what_is_known_to_touch_other_things_does_not_wait_for_a_check(
    make_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However long a check keeps its place: it answers when all that is unrelated has run. What is not known to be
    unrelated keeps the order."""
    monkeypatch.setattr("golem_forge.orchestrator.schedule.MAX_CHECK_DELAY_S", LONG)
    unrelated, ran = asyncio.Event(), []

    def planned(name: str, verb: Verb, path: str, check: Any = False) -> Tool:
        async def run() -> str:
            ran.append(name)
            if len(ran) == 3:
                unrelated.set()
            return name

        async def plan(args: dict[str, Any], ctx: Any) -> Plan:
            return Plan(run=run, effects=(Effect(verb=verb, target=path, real=path),))

        return Tool(name, "Touches.", input_schema={"type": "object"}, planner=plan, needs_approval=check)

    @tool(needs_approval=False, effects=())
    async def pure() -> str:
        ran.append("pure")
        return "pure"

    @tool(needs_approval=False)
    async def undeclared() -> str:
        ran.append("undeclared")
        return "undeclared"

    tools = (
        planned("slow", Verb.WRITE, "/a/x", _waits_for(unrelated)),
        planned("reader", Verb.READ, "/b"),
        planned("writer", Verb.WRITE, "/a/y"),
        planned("same", Verb.READ, "/a/x/1"),
    )
    path = make_path(*tools, pure, undeclared, mode="approve_all")
    names = ("slow", "pure", "reader", "writer", "same", "undeclared")
    outcomes = await path.batch([ToolCall(name, {}) for name in names])
    assert all(o.ok for o in outcomes), [o.error for o in outcomes]
    assert set(ran[:3]) == {"pure", "reader", "writer"} and ran[3:] == ["slow", "same", "undeclared"]
    assert not any(o.notes for o in outcomes)


@pytest.mark.parametrize(
    ("by", "made"), [("run_custom_tool", "changed"), ("greet", "changed"), ("run_custom_tool", "new")]
)
async def test_a_tool_made_from_files_waits_for_the_slow_check_of_an_undeclared_writer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, by: str, made: str
) -> None:
    monkeypatch.setattr("golem_forge.orchestrator.schedule.MAX_CHECK_DELAY_S", 0.01)
    folder = tmp_path / "home" / "tools" / "greet"
    folder.mkdir(parents=True)
    (tmp_path / "work").mkdir()

    async def slow(args: dict[str, Any]) -> bool:
        await asyncio.sleep(0.3)
        return False

    @tool(needs_approval=slow)
    async def undeclared() -> str:
        (folder / "tool.yaml").write_text(_MANIFEST + _TESTED)
        (folder / "greet.sh").write_text("echo new\n")
        return "done"

    if made == "changed":
        (folder / "tool.yaml").write_text(_MANIFEST + _TESTED)
        (folder / "greet.sh").write_text("echo old\n")
    call = ToolCall(by, {"tool_name": "greet"} if by == "run_custom_tool" else {})
    toolsets = {"filesystem": {}, "user_tools": {}}
    async with open_session(
        tmp_path / "work",
        home=tmp_path / "home",
        tools=[undeclared],
        toolsets=toolsets,
        approval_callback=lambda request: {"approved": True},
    ) as session:
        if made == "changed":
            assert (await session.call("run_custom_tool", {"tool_name": "greet"})).text == "old\n"
            session.refresh()
        outcomes = await session.path.batch([ToolCall("undeclared", {}), call])
    assert (outcomes[1].status, outcomes[1].text) == ("success", "new\n"), outcomes[1].error


async def test_a_check_that_blocks_the_loop_for_too_long_is_refused(
    make_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("golem_forge.policy.base.PREDICATE_SECONDS", 0.05)

    async def blocks(args: dict[str, Any]) -> bool:
        time.sleep(0.1)
        return False

    @tool(needs_approval=blocks)
    async def run() -> str:
        return "ran"

    outcome = await make_path(run).call(ToolCall("run", {}))
    assert (outcome.status, outcome.executed) == ("policy_denied", False) and "TimeoutError" in outcome.error


async def test_who_hears_of_a_result_cannot_change_it(make_path: Any) -> None:
    def change(event: Any) -> None:
        event.wire["args"]["names"].append("EVIL")
        event.wire["value"]["data"]["names"].append("EVIL")

    @tool(needs_approval=False)
    async def echo(names: list[str]) -> dict[str, list[str]]:
        return {"names": names}

    bus = EventBus("s")
    heard = []
    bus.on("toolResult", change)
    bus.on("toolResult", heard.append)
    outcome = await make_path(echo, bus=bus).call(ToolCall("echo", {"names": ["a"]}))
    assert heard and outcome.args == {"names": ["a"]}
    assert outcome.result is not None and outcome.result.value["data"] == {"names": ["a"]}


async def test_a_tool_that_is_looked_up_again_keeps_what_a_person_wrote_on_the_card(make_path: Any) -> None:
    @tool(needs_approval=False)
    async def greet(who: str) -> str:
        return who

    path = make_path(greet)
    travel = CallState(ToolCall("greet", {"who": "model"}), path.signal, path.signal)
    path.resolve_stage.look_up(travel)
    travel.arguments, travel.edited = validate(travel.tool, {"who": "person"}), True
    path.resolve_stage.look_up(travel)
    assert travel.arguments.plain == {"who": "person"}
