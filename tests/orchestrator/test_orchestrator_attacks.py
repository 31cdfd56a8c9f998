"""Attacks on approvals, the gate and the prompt that once worked, each with the smallest code that shows it."""

from __future__ import annotations

import asyncio
import os
import threading
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel, Field, SecretStr, field_validator
from tests import descriptors
from tests.deadlines import PATIENCE, within

from golem_forge import Tool, ToolCall, ToolContext, ToolResult, open_session, tool
from golem_forge.config.trust import TrustStore
from golem_forge.core.calls import Caller
from golem_forge.core.effects import Effect, Verb
from golem_forge.core.errors import ConfigError
from golem_forge.storage.home import forge_home
from golem_forge.tools.context import Plan

SECRET = "canary-5522-ccdd"


async def answered(work: Any) -> Any:
    """Nobody hangs."""
    return await asyncio.wait_for(work, PATIENCE)


@tool(needs_approval=False)
async def nap(seconds: float = 0.05) -> str:
    await asyncio.sleep(seconds)
    return "rested"


async def test_an_interrupt_in_the_tick_of_admission_does_not_close_the_gate_for_good(make_path: Any) -> None:
    path = make_path(nap)
    for delay in (0.0, 0.01, 0.03, 0.05, 0.05, 0.05):
        first = asyncio.ensure_future(path.call(ToolCall("nap", {})))
        queued = [asyncio.ensure_future(path.call(ToolCall("nap", {}))) for _ in range(3)]
        await asyncio.sleep(delay)
        if delay == 0.05:
            await first
        path.signal.interrupt()
        await answered(asyncio.gather(first, *queued))
        path.signal.reset()
        assert (await answered(path.call(ToolCall("nap", {})))).ok


async def test_cancelling_one_in_the_queue_leaves_the_gate_usable(make_path: Any) -> None:
    path = make_path(nap)
    first = asyncio.ensure_future(path.call(ToolCall("nap", {})))
    second = asyncio.ensure_future(path.call(ToolCall("nap", {})))
    await asyncio.sleep(0.01)
    first.add_done_callback(lambda _: second.cancel())
    outcome = await answered(first)
    assert outcome.ok
    with pytest.raises(asyncio.CancelledError):
        await answered(second)
    assert (await answered(path.call(ToolCall("nap", {})))).ok


async def test_an_interrupt_between_the_answer_and_the_run_is_seen(make_path: Any) -> None:
    runs: list[int] = []

    @tool
    async def act() -> str:
        runs.append(1)
        return "acted"

    def answer(request: Any) -> dict[str, Any]:
        path.signal.interrupt()
        return {"approved": True}

    path = make_path(act, ask=answer)
    outcome = await answered(path.call(ToolCall("act", {})))
    assert (outcome.status, runs) == ("interrupted", [])


async def test_an_interrupt_from_another_thread_wakes_a_waiting_prompt(make_path: Any) -> None:
    async def never(request: Any) -> Any:
        await asyncio.sleep(30)

    @tool
    async def act() -> str:
        return "acted"

    path = make_path(act, ask=never)
    threading.Timer(0.2, path.signal.interrupt).start()
    with within(1.2):
        assert (await answered(path.call(ToolCall("act", {})))).status == "interrupted"


@pytest.mark.parametrize("error", [asyncio.CancelledError(), TimeoutError(), KeyboardInterrupt(), SystemExit(1)])
async def test_whatever_a_callback_raises_denies_and_nobody_hangs(make_path: Any, error: BaseException) -> None:
    async def broken(request: Any) -> Any:
        raise error

    @tool
    async def act() -> str:
        raise AssertionError("ran")

    path = make_path(act, nap, ask=broken)
    outcome = await answered(path.call(ToolCall("act", {})))
    assert (outcome.status, outcome.executed) == ("approval_denied", False)
    assert (await answered(path.call(ToolCall("nap", {})))).ok


async def test_a_validator_that_breaks_on_an_edit_does_not_hang_the_call(make_path: Any, asked: Any) -> None:
    class Input(BaseModel):
        n: int

        @field_validator("n")
        @classmethod
        def picky(cls, value: int) -> int:
            return {1: 1}[value]

    act = Tool("act", "Acts.", input_schema=Input, execute=lambda args: "ran")
    path = make_path(act, ask=asked({"approved": True, "args": {"n": 2}}, {"approved": True}))
    assert (await answered(path.call(ToolCall("act", {"n": 1})))).ok


async def test_a_tool_that_lets_a_cancellation_escape_is_one_failed_call(make_path: Any) -> None:
    @tool(needs_approval=False)
    async def careless() -> str:
        task = asyncio.ensure_future(asyncio.sleep(5))
        task.cancel()
        await task
        return "never"

    path = make_path(careless, nap)
    outcomes = await answered(path.batch([ToolCall("careless", {}), ToolCall("nap", {})]))
    assert [o.status for o in outcomes] == ["execution_failed", "success"]


class Hidden(BaseModel):
    target: str = Field(default="staging", exclude=True)
    password: SecretStr = SecretStr("x")


@pytest.mark.parametrize(
    ("first", "second"),
    [({"target": "staging"}, {"target": "prod"}), ({"password": "one"}, {"password": "two"})],
    ids=["excluded", "secret"],
)
async def test_an_argument_that_hides_itself_is_still_part_of_what_is_approved(
    make_path: Any, asked: Any, first: dict[str, Any], second: dict[str, Any]
) -> None:
    seen: list[Any] = []
    act = Tool("act", "Acts.", input_schema=Hidden, execute=lambda args: seen.append(args) or "ran")
    ask = asked({"approved": True, "remember": "session"})
    path = make_path(act, ask=ask)
    one = await path.call(ToolCall("act", first))
    two = await path.call(ToolCall("act", second))
    assert len(ask) == 2, "another value is another call"
    assert one.decision.fingerprint != two.decision.fingerprint
    assert "one" not in str(ask[0].to_wire()) and "two" not in str(ask[1].to_wire())


async def test_editing_true_into_one_is_a_change(make_path: Any, asked: Any) -> None:
    seen: list[Any] = []
    act = Tool("act", "Acts.", input_schema={"type": "object"}, execute=lambda args: seen.append(args["flag"]) or "ran")
    path = make_path(act, ask=asked({"approved": True, "args": {"flag": True}}))
    outcome = await path.call(ToolCall("act", {"flag": 1}))
    assert seen == [True] and seen[0] is True
    assert outcome.notes == ("The user changed: flag 1 → true.",)


async def test_remember_in_short_never_outlives_the_session(project: Path, asked: Any, own_home: Path) -> None:
    @tool
    async def deploy(target: str) -> str:
        return target

    ask = asked({"approved": True, "remember": "always"})
    async with open_session(project, tools=[deploy], approval_callback=ask) as session:
        await session.call("deploy", {"target": "staging"})
        await session.call("deploy", {"target": "production"})
    assert len(ask) == 2
    assert not (own_home / ".forge" / "remembered.yaml").exists()


async def test_a_tools_word_counts_as_it_is_now(make_path: Any) -> None:
    path = make_path(nap)
    assert (await path.call(ToolCall("nap", {}))).ok
    try:
        nap.needs_approval = "blocked"
        assert (await path.call(ToolCall("nap", {}))).status == "policy_denied"
    finally:
        nap.needs_approval = False


def test_closures_of_one_factory_are_different_tools() -> None:
    def make(target: str) -> Any:
        @tool
        def deploy() -> str:
            return target

        return deploy

    assert make("staging").definition.digest == make("staging").definition.digest
    assert make("staging").definition.digest != make("prod").definition.digest


async def test_a_write_shown_with_another_diff_is_another_card(project: Path) -> None:
    (project / "f").write_text("scratch\n")
    shown: list[str] = []
    once, twice = asyncio.Event(), asyncio.Event()

    async def answer(request: Any) -> dict[str, bool]:
        shown.append(request.diff)
        (once if len(shown) == 1 else twice).set()
        with suppress(TimeoutError):
            await asyncio.wait_for(twice.wait(), PATIENCE)
        return {"approved": len(shown) == 1}

    async with open_session(project, approval_callback=answer) as session:
        args = {"path": "f", "content": "X\n"}
        one = asyncio.ensure_future(session.call("write_file", args))
        await answered(once.wait())
        (project / "f").write_text("precious\n")
        two = asyncio.ensure_future(session.call("write_file", args))
        outcomes = await asyncio.gather(one, two)
    assert len(shown) == 2 and shown[0] != shown[1]
    assert not any(outcome.ok for outcome in outcomes)
    assert (project / "f").read_text() == "precious\n"


async def test_an_approved_delete_does_not_hit_what_was_put_there_since(project: Path) -> None:
    (project / "x").write_text("old")
    asked: list[Any] = []

    async def answer(request: Any) -> dict[str, bool]:
        if request.tool == "delete_file":
            asked.append(request)
            if len(asked) == 1:
                (project / "y").write_text("new")
                os.replace(project / "y", project / "x")
                await session.call("write_file", {"path": "other", "content": "z"})
                return {"approved": True}
            return {"approved": False}
        return {"approved": True}

    async with open_session(project, approval_callback=answer) as session:
        outcome = await session.call("delete_file", {"path": "x"})
    assert not outcome.ok
    assert (project / "x").read_text() == "new"


async def test_overwriting_a_secret_does_not_show_it(project: Path, asked: Any) -> None:
    (project / ".env").write_text("TOKEN=canary-99f1\n")
    ask = asked()
    async with open_session(project, approval_callback=ask) as session:
        outcome = await session.call("write_file", {"path": ".env", "content": "X=1\n"})
        read = await session.call("read_file", {"path": ".env"})
        assert session.journal is not None
    assert outcome.ok and read.ok
    texts = (str(outcome.result), str(ask[0].to_wire()), session.journal.path.read_text())
    assert not any("canary-99f1" in text for text in texts)


async def test_what_is_read_from_a_secret_file_is_not_recorded(project: Path, asked: Any) -> None:
    (project / ".env").write_text("TOKEN=canary-77aa\n")
    async with open_session(project, approval_callback=asked()) as session:
        outcome = await session.call("read_file", {"path": ".env"})
        assert session.journal is not None
    assert "canary-77aa" in outcome.text, "the caller it was approved for reads it"
    assert "canary-77aa" not in session.journal.path.read_text()


async def test_file_content_keeps_its_paths(project: Path) -> None:
    (project / "run.sh").write_text(f"cd {project}/x\n")
    async with open_session(project) as session:
        outcome = await session.call("read_file", {"path": "run.sh"})
    assert outcome.result is not None
    assert outcome.result.value["content"] == f"cd {project}/x\n"


async def test_a_secret_inside_any_kind_of_result_is_taken_out(make_path: Any) -> None:
    from dataclasses import dataclass

    from golem_forge.events.redaction import Redactor

    @dataclass
    class Box:
        content: str

    secret = "canary-4411-aabb"

    @tool(needs_approval=False)
    async def leak() -> ToolResult:
        value = {"kind": "x.box", "data": Box(secret), "more": bytearray(secret.encode())}
        return ToolResult(value, "ok", meta={"m": secret})

    @tool(needs_approval=False)
    async def fail() -> str:
        raise ValueError("A" * 988 + secret + "B" * 3000)

    @tool(needs_approval=False)
    async def cancelled() -> str:
        raise asyncio.CancelledError(f"gave up on {secret}")

    redactor = Redactor()
    redactor.add_secret("S", secret)
    path = make_path(leak, fail, cancelled, redactor=redactor)
    assert secret not in str((await path.call(ToolCall("leak", {}))).result)
    error = (await path.call(ToolCall("fail", {}))).error
    assert secret[:8] not in error and len(error) < 3000
    error = (await path.call(ToolCall("cancelled", {}))).error
    assert "gave up" in error and secret not in error


@pytest.mark.parametrize(
    "more",
    [
        {"meta": {"m": SECRET}},
        {"meta": {SECRET: 1}},
        {"content": ({"type": "text", "text": SECRET},)},
        {"structured": {"deep": [{"a": SECRET}]}},
        {"value": {"kind": "json", "data": [SECRET]}},
    ],
)
async def test_a_short_text_hides_no_secret_beside_it(make_path: Any, more: dict[str, Any]) -> None:
    from golem_forge.events.redaction import Redactor

    @tool(needs_approval=False)
    async def leak() -> ToolResult:
        return ToolResult(**({"value": {"kind": "text", "content": "ok"}, "text": "ok"} | more))

    redactor = Redactor()
    redactor.add_secret("S", SECRET)
    outcome = await make_path(leak, redactor=redactor).call(ToolCall("leak", {}))
    assert outcome.text == "ok" and SECRET not in str(outcome.result)


@pytest.mark.parametrize(
    ("value", "becomes"),
    [
        (float("nan"), "NaN"),
        ("half \ud800", "half \\ud800"),
        (b"bytes", "bytes"),
        ({1: "x"}, {"1": "x"}),
        ((1, 2), [1, 2]),
        ({"plain": [1, None, True, 0.5]}, {"plain": [1, None, True, 0.5]}),
    ],
)
async def test_a_small_result_is_pure_json_all_the_same(make_path: Any, value: Any, becomes: Any) -> None:
    @tool(needs_approval=False)
    async def odd() -> ToolResult:
        return ToolResult({"kind": "json", "data": value}, text="ok", structured={"data": value})

    outcome = await make_path(odd).call(ToolCall("odd", {}))
    assert outcome.result is not None
    assert outcome.result.structured == {"data": becomes} and outcome.result.value["data"] == becomes


async def test_blocking_calls_on_the_loop_are_refused(make_path: Any) -> None:
    @tool(needs_approval=False)
    async def freeze(*, ctx: ToolContext) -> str:
        return ctx.call_blocking("nap", {}).text

    outcome = await answered(make_path(nap, freeze).call(ToolCall("freeze", {})))
    assert outcome.status == "execution_failed"
    assert "await ctx.call" in outcome.error


async def test_a_home_that_cannot_be_searched_is_not_a_home_without_rules(
    make_path: Any, own_home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = own_home / ".forge"
    home.mkdir()
    (home / "rules.yaml").write_text("rules:\n  - {tool: nap, verdict: blocked, reason: never}\n")
    path = make_path(nap)
    assert (await path.call(ToolCall("nap", {}))).status == "policy_denied"
    real = os.lstat

    def refused(path: Any, **how: Any) -> Any:
        if "rules.yaml" in str(path):
            raise PermissionError(13, "Permission denied")
        return real(path, **how)

    monkeypatch.setattr(os, "lstat", refused)
    monkeypatch.setattr("golem_forge.policy.rules.files.read_bytes", _unreadable)
    await asyncio.sleep(0.03)
    assert (await path.call(ToolCall("nap", {}))).status == "policy_denied"


def _unreadable(path: Any, name: str) -> bytes:
    raise ConfigError(f"{name}: cannot be read (Permission denied)")


async def test_an_untrusted_program_loosens_nothing(project: Path, own_home: Path) -> None:
    home = own_home / ".forge"
    home.mkdir()
    (home / "config.yaml").write_text(
        f"sandbox: {{zones: {{workspace: {{path: {project}, mode: rw, approval: {{write: blocked}}}}}}}}\n"
        "approval: {timeout: 7}\n"
    )
    (home / "rules.yaml").write_text('rules:\n  - {path: "/scratch/**", access: [write], verdict: preApproved}\n')
    (project / "forge.yaml").write_text(
        "sandbox: {zones: {workspace: {path: a}, scratch: {path: b}}}\napproval: {timeout: 1}\n"
    )
    for name in ("a", "b"):
        (project / name).mkdir()
    async with open_session(project) as session:
        assert session.program.approval.timeout is not None and session.program.approval.timeout.value == 7
        blocked = await session.call("write_file", {"path": "/workspace/x", "content": "x"})
        asks = await session.call("write_file", {"path": "/scratch/x", "content": "x"})
    assert (blocked.status, asks.status) == ("policy_denied", "approval_denied")


async def test_rules_kept_inside_a_zone_are_refused(project: Path, own_home: Path) -> None:
    home = own_home / ".forge"
    home.mkdir()
    (project / "rules.yaml").write_text("rules: []\n")
    (home / "rules.yaml").symlink_to(project / "rules.yaml")
    with pytest.raises(ConfigError, match="link into zone 'workspace'"):
        open_session(project)


async def test_a_trusted_zone_cannot_be_moved_by_a_link(project: Path, tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    victim.mkdir()
    (project / "data").mkdir()
    (project / "forge.yaml").write_text("sandbox: {zones: {data: {path: data, approval: {write: preApproved}}}}\n")
    TrustStore(forge_home()).give(project)
    open_session(project).close()
    (project / "data").rmdir()
    (project / "data").symlink_to(victim)
    with pytest.raises(ConfigError, match="leads outside the program"):
        open_session(project)


def test_trust_is_for_the_bytes_that_were_parsed(project: Path) -> None:
    (project / "forge.yaml").write_text("approval: {default: ask}\n")
    store = TrustStore(forge_home())
    store.give(project)
    assert store.trusted_with(project, {"forge.yaml": b"approval: {default: ask}\n"})
    assert not store.trusted_with(project, {"forge.yaml": b"approval: {default: preApproved}\n"})


async def test_a_zone_inside_git_is_still_inside_git(project: Path, asked: Any) -> None:
    paths = ("hooks/pre-commit", "config", "commondir", "worktrees/w/gitdir", "modules/m/commondir")
    (project / ".git").mkdir()
    (project / "forge.yaml").write_text("sandbox: {zones: {g: {path: .git, approval: {write: preApproved}}}}\n")
    TrustStore(forge_home()).give(project)
    ask = asked({"approved": False})
    async with open_session(project, approval_callback=ask) as session:
        for path in paths:
            await session.call("write_file", {"path": f"/g/{path}", "content": "x"})
    assert [(request.args["path"], request.risk) for request in ask] == [(f"/g/{path}", "critical") for path in paths]


async def test_names_that_other_programs_obey_ask_whatever_the_zone_says(project: Path, asked: Any) -> None:
    risks = {
        ".claude/settings.json": "critical",
        "sub/app.code-workspace": "critical",
        ".npmrc": "critical",
        ".github/workflows/ci.yml": "high",
        ".pdbrc": "high",
        "src/x.pth": "high",
        "golem_forge/__init__.py": "high",
    }
    (project / "forge.yaml").write_text("sandbox: {zones: {workspace: {path: ., approval: {write: preApproved}}}}\n")
    TrustStore(forge_home()).give(project)
    ask = asked({"approved": False})
    async with open_session(project, approval_callback=ask) as session:
        for path in (*risks, "AGENTS.md", "README.md"):
            await session.call("write_file", {"path": path, "content": "x"})
            assert (project / path).exists() is (path not in risks)
    assert {request.args["path"]: request.risk for request in ask} == risks and len(ask) == len(risks)


async def test_refused_reads_hold_no_descriptors(project: Path) -> None:
    deep = project
    for level in range(30):
        deep = deep / f"d{level}"
    deep.mkdir(parents=True)
    (deep / "out").symlink_to("/etc/passwd")
    name = str((deep / "out").relative_to(project))
    async with open_session(project) as session:
        await session.call("read_file", {"path": name})
        before = descriptors.held()
        for _ in range(40):
            assert (await session.call("read_file", {"path": name})).status == "sandbox_denied"
        assert descriptors.no_more_than(before + 5)


@pytest.mark.parametrize(
    ("says", "status"), [(True, "approval_denied"), ("blocked", "policy_denied"), (None, "execution_failed")]
)
async def test_an_embedders_word_on_a_native_tool_counts_although_it_touches_nothing(
    make_path: Any, says: Any, status: str
) -> None:
    from golem_forge.toolsets import create_read_output_tool

    path = make_path(create_read_output_tool(needs_approval=says))
    outcome = await path.call(ToolCall("read_output", {"handle": "out_000000000000"}))
    assert outcome.status == status


@pytest.mark.parametrize("moved", [False, True])
async def test_a_call_that_is_planned_anew_after_the_wait_runs_only_as_the_one_that_was_approved(
    make_path: Any, moved: bool
) -> None:
    """A writer went first, so what was judged is no more than a guess."""
    leads_to, cards, ran = "/zone/a", [], []

    def plan(args: dict[str, Any], ctx: ToolContext) -> Plan:
        there = leads_to
        effects = (Effect(verb=Verb.WRITE, target="/zone/link", real=there),)
        return Plan(run=lambda: ran.append(there), effects=effects)

    async def ask(request: Any) -> dict[str, bool]:
        nonlocal leads_to
        cards.append(request)
        if len(cards) == 1:
            leads_to = "/zone/b" if moved else leads_to
            assert (await path.call(ToolCall("nap", {}))).ok
        return {"approved": len(cards) == 1}

    save = Tool("save", "Saves.", input_schema={}, planner=plan, needs_approval=True)
    path = make_path(save, nap, ask=ask)
    outcome = await answered(path.call(ToolCall("save", {})))
    expected = ("approval_denied", 2, []) if moved else ("success", 1, ["/zone/a"])
    assert (outcome.status, len(cards), ran) == expected


@pytest.mark.parametrize(
    ("needs_approval", "fails", "status"),
    [
        (False, False, "success"),
        (False, True, "execution_failed"),
        (True, False, "approval_denied"),
        ("blocked", False, "policy_denied"),
    ],
)
async def test_what_a_plan_holds_is_given_back_once_however_the_call_ends(
    make_path: Any, asked: Any, needs_approval: Any, fails: bool, status: str
) -> None:
    held: list[str] = []

    def run() -> str:
        assert held == ["open"]
        if fails:
            raise ValueError("no")
        return "ran"

    def plan(args: dict[str, Any], ctx: ToolContext) -> Plan:
        held.append("open")
        return Plan(run=run, effects=(), close=lambda: held.append("closed"))

    holds = Tool("holds", "Holds.", input_schema={}, planner=plan, needs_approval=needs_approval)
    outcome = await answered(make_path(holds, ask=asked(False)).call(ToolCall("holds", {})))
    assert (outcome.status, held) == (status, ["open", "closed"])


@pytest.mark.parametrize(("there", "status"), [(True, "success"), (False, "tool_not_found")])
async def test_an_unknown_name_waits_for_its_server_once(make_path: Any, there: bool, status: str) -> None:
    waited: list[str] = []

    async def wait_for_server(name: str, caller: Caller) -> bool:
        waited.append(name)
        if there:
            path.catalog.add(nap)
        return there

    path = make_path()
    path.resolve_stage.on_unknown_tool = wait_for_server
    assert (await answered(path.call(ToolCall("nap", {})))).status == status
    assert waited == ["nap"]


async def test_a_tool_that_a_writer_made_anew_while_its_card_waited_is_shown_as_it_is_now(make_path: Any) -> None:
    def made(says: str) -> Tool:
        greet: Tool = tool(name="greet", needs_approval=True)(lambda: says)
        greet.made_from = ("/tools/greet",)
        return greet

    cards: list[Any] = []

    async def ask(request: Any) -> dict[str, bool]:
        cards.append(request)
        if len(cards) == 1:
            path.catalog.add(made("new"), replace=True)
            assert (await path.call(ToolCall("nap", {}))).ok
        return {"approved": True}

    path = make_path(made("old"), nap, ask=ask)
    assert (await answered(path.call(ToolCall("greet", {})))).text == "new"
    assert len(cards) == 2


async def test_a_nested_call_is_looked_at_again_after_the_wait_too(project: Path) -> None:
    (project / "a.txt").write_text("old")

    @tool(needs_approval=False)
    async def outer(*, ctx: ToolContext) -> str:
        return (await ctx.call("write_file", {"path": "a.txt", "content": "changed"})).code

    def replace_then_approve(request: Any) -> dict[str, bool]:
        (project / "new").write_text("somebody else's")
        os.replace(project / "new", project / "a.txt")
        return {"approved": True}

    async with open_session(project, tools=[outer], approval_callback=replace_then_approve) as session:
        assert (await session.call("outer", {})).text == "PATH_CHANGED"
    assert (project / "a.txt").read_text() == "somebody else's"


async def test_what_is_blocked_while_a_person_looks_does_not_run_on_their_yes(project: Path) -> None:
    runs: list[str] = []

    @tool
    def deploy() -> str:
        runs.append("ran")
        return "done"

    async def block_then_agree(_: Any) -> dict[str, bool]:
        rules = forge_home().rules
        rules.parent.mkdir(parents=True, exist_ok=True)
        rules.write_text("rules:\n  - {tool: deploy, verdict: blocked, reason: not today}\n")
        await asyncio.sleep(0.1)
        return {"approved": True}

    async with open_session(project, tools=[deploy], approval_callback=block_then_agree) as session:
        outcome = await answered(session.call("deploy", {}))
    assert (outcome.status, runs) == ("policy_denied", [])
    assert "not today" in outcome.error and outcome.decision is not None and outcome.decision.verdict == "blocked"
