"""Base verdicts, modes and predicates: A1 to A13 of the approval specification, over the whole path."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel
from tests.deadlines import LONG, PATIENCE
from tests.tables import table

from golem_forge import (
    ApprovalController,
    BlockedError,
    Caller,
    FilesystemToolset,
    ToolCall,
    ToolContext,
    create_ui_event_bus,
    tool,
)
from golem_forge.config.validation import Setting
from golem_forge.core.decisions import Verdict
from golem_forge.events.journal import Journal
from golem_forge.policy.base import ApprovalBlock, ApprovalBlocks, check_block
from golem_forge.sandbox.sandbox import open_sandbox
from golem_forge.sandbox.zones import ZoneSpec


def blocks(default: str | None = None, **tools: str) -> ApprovalBlocks:
    def said(word: str) -> Setting[Verdict]:
        return Setting(Verdict(word), "forge.yaml:1")

    return ApprovalBlocks(
        program=ApprovalBlock(
            default=said(default) if default else None, tools={name: said(word) for name, word in tools.items()}
        )
    )


def counter(name: str, **options: Any) -> Any:
    def count() -> int:
        counter.runs[name] = counter.runs.get(name, 0) + 1  # type: ignore[attr-defined]
        return counter.runs[name]  # type: ignore[attr-defined]

    counter.runs = {}  # type: ignore[attr-defined]
    return tool(name=name, **options)(count)


def runs(name: str) -> int:
    return counter.runs.get(name, 0)  # type: ignore[attr-defined]


async def status_of(path: Any, name: str, args: dict[str, Any] | None = None) -> str:
    return str((await path.call(ToolCall(name, args or {}))).status)


@table(
    ("says", "cards"),
    [({}, 1), ({"effects": ()}, 1), ({"source": "native"}, 1), ({"source": "native", "effects": ()}, 0)],
)
async def test_a1_nothing_said_asks(make_path: Any, asked: Any, says: dict[str, Any], cards: int) -> None:
    """Only a tool of Forge's own that touches nothing needs no word."""
    ask = asked()
    assert await status_of(make_path(counter("x", **says), ask=ask), "x") == "success"
    assert len(ask) == cards


async def test_a2_the_named_verdict_beats_the_default(make_path: Any, asked: Any) -> None:
    ask = asked()
    path = make_path(counter("x"), counter("y"), ask=ask, blocks=blocks("preApproved", x="ask"))
    await status_of(path, "x")
    await status_of(path, "y")
    assert [request.tool for request in ask] == ["x"]


async def test_a3_a_tools_own_false_beats_a_default_of_ask(make_path: Any, asked: Any) -> None:
    ask = asked()
    path = make_path(counter("x", needs_approval=False), ask=ask, blocks=blocks("ask"))
    assert await status_of(path, "x") == "success"
    assert not ask


@table("mode", ["approve_all", "auto_deny", "interactive", "strict"])
@table("caller", list(Caller))
async def test_a4_blocked_never_runs_and_never_prompts(make_path: Any, asked: Any, mode: str, caller: Caller) -> None:
    ask = asked()
    path = make_path(counter("x", mode="both"), ask=ask, mode=mode, blocks=blocks(x="blocked"))
    outcome = await path.call(ToolCall("x", {}, caller))
    assert (outcome.status, runs("x"), len(ask)) == ("policy_denied", 0, 0)


@table("says", ["blocked", Verdict.BLOCKED])
async def test_a5_a_predicate_that_says_blocked_blocks(make_path: Any, asked: Any, says: str) -> None:
    ask = asked()
    path = make_path(counter("x", needs_approval=lambda args: says), ask=ask, mode="approve_all")
    assert (await status_of(path, "x"), runs("x"), len(ask)) == ("policy_denied", 0, 0)


async def test_a6_a_predicate_that_raises_refuses_only_that_call(make_path: Any) -> None:
    def broken(args: dict[str, Any]) -> bool:
        raise ZeroDivisionError("secret detail")

    path = make_path(counter("x", needs_approval=broken), counter("y", needs_approval=False), mode="approve_all")
    outcome = await path.call(ToolCall("x", {}))
    assert outcome.status == "policy_denied"
    assert outcome.error == "Approval check of 'x' failed (ZeroDivisionError); the call was not run."
    assert await status_of(path, "y") == "success"


@table("value", [None, 1, "maybe", [], object()])
async def test_a7_any_other_answer_refuses(make_path: Any, value: Any) -> None:
    path = make_path(counter("x", needs_approval=lambda args: value), mode="approve_all")
    assert (await status_of(path, "x"), runs("x")) == ("policy_denied", 0)


@pytest.mark.parametrize("how", ["sync", "async"])
async def test_a_predicate_that_hangs_refuses(make_path: Any, how: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("golem_forge.policy.base.PREDICATE_SECONDS", 0.2)
    release = threading.Event()

    async def hangs_async(args: dict[str, Any]) -> bool:
        await asyncio.sleep(LONG)
        return False

    def hangs(args: dict[str, Any]) -> bool:
        release.wait(LONG)
        return False

    path = make_path(counter("x", needs_approval=hangs_async if how == "async" else hangs), mode="approve_all")
    outcome = await path.call(ToolCall("x", {}))
    release.set()
    assert (outcome.status, runs("x")) == ("policy_denied", 0)
    assert "TimeoutError" in outcome.error


async def test_predicates_get_validated_arguments_and_may_take_the_context(make_path: Any, asked: Any) -> None:
    seen: list[Any] = []

    async def predicate(args: dict[str, Any], ctx: ToolContext) -> bool:
        seen.append((args, ctx.worker))
        return bool(args["force"])

    @tool(needs_approval=predicate)
    def push(force: bool = False) -> str:
        return "pushed"

    ask = asked()
    path = make_path(push, ask=ask)
    await path.call(ToolCall("push", {}))
    await path.call(ToolCall("push", {"force": "true"}))
    assert seen == [({"force": False}, "main"), ({"force": True}, "main")]
    assert len(ask) == 1


async def test_blocked_error_in_a_predicate_gives_its_reason(make_path: Any) -> None:
    def predicate(args: dict[str, Any]) -> bool:
        raise BlockedError("closed for the night")

    path = make_path(counter("x", needs_approval=predicate), mode="approve_all")
    outcome = await path.call(ToolCall("x", {}))
    assert (outcome.status, outcome.error) == ("policy_denied", "closed for the night")


def test_a8_pre_approving_a_tool_that_decides_for_itself_is_a_load_error() -> None:
    own = {
        "x": counter("x", needs_approval=lambda args: True),
        "yes": counter("yes", needs_approval=False),
        "plain": counter("plain"),
    }
    block = blocks(x="preApproved", yes="preApproved", plain="preApproved", plan="ask").program
    errors, unknown = check_block(block, own)
    assert errors == ["forge.yaml:1: approval.tools.x: preApproved has no effect, 'x' decides for itself"]
    assert unknown == ["forge.yaml:1: approval.tools.plan: no such tool; did you mean 'plain'?"]


async def test_config_may_tighten_a_self_deciding_tool(make_path: Any, asked: Any) -> None:
    ask = asked()
    path = make_path(counter("x", needs_approval=False), ask=ask, blocks=blocks(x="ask"))
    assert await status_of(path, "x") == "success"
    assert len(ask) == 1


@table("mode", ["interactive", "strict"])
def test_a9_a_mode_that_asks_needs_somebody_to_ask(mode: str) -> None:
    with pytest.raises(ValueError, match="'approve_all' or 'auto_deny'"):
        ApprovalController(mode)


def test_a_callback_that_nobody_can_call_is_refused_at_once() -> None:
    with pytest.raises(TypeError, match="approval_callback must be a function that takes the request, not 'yes'"):
        ApprovalController("interactive", "yes")  # type: ignore[arg-type]


async def test_the_check_of_a_cancelled_call_is_cancelled(make_path: Any) -> None:
    began, ended = asyncio.Event(), asyncio.Event()

    async def check(args: dict[str, Any]) -> bool:
        began.set()
        try:
            await asyncio.sleep(60)
        finally:
            ended.set()
        return False

    call = asyncio.ensure_future(status_of(make_path(counter("x", needs_approval=check)), "x"))
    await began.wait()
    call.cancel()

    await asyncio.wait_for(ended.wait(), PATIENCE)
    assert runs("x") == 0


async def test_a10_auto_deny_refuses_what_asks_and_runs_what_does_not(make_path: Any) -> None:
    path = make_path(counter("x"), counter("y", needs_approval=False), mode="auto_deny")
    outcome = await path.call(ToolCall("x", {}))
    assert (outcome.status, outcome.error) == ("approval_denied", "Auto-deny mode: x requires approval")
    assert await status_of(path, "y") == "success"


async def test_a11_strict_asks_unless_there_is_no_effect_at_all(make_path: Any, asked: Any) -> None:
    ask = asked()
    silent = counter("silent", needs_approval=False, effects=())
    loud = counter("loud", needs_approval=False)
    path = make_path(silent, loud, ask=ask, mode="strict")
    await status_of(path, "silent")
    await status_of(path, "loud")
    assert [request.tool for request in ask] == ["loud"]


async def test_a13_zones_decide_for_file_tools(make_path: Any, asked: Any, tmp_path: Path, own_home: Path) -> None:
    for name in ("scratch", "output"):
        (tmp_path / name).mkdir()
    sandbox = open_sandbox(
        [
            ZoneSpec(name="scratch", path=tmp_path / "scratch", write=Verdict.PRE_APPROVED),
            ZoneSpec(name="output", path=tmp_path / "output", write=Verdict.ASK, delete=Verdict.BLOCKED),
        ],
        forge_home=own_home / ".forge",
    )
    ask = asked()
    path = make_path(*FilesystemToolset(sandbox).get_tools(), ask=ask, sandbox=sandbox)
    assert await status_of(path, "write_file", {"path": "/scratch/a.txt", "content": "x"}) == "success"
    assert not ask
    assert await status_of(path, "write_file", {"path": "/output/r.md", "content": "x"}) == "success"
    assert len(ask) == 1
    assert ask[0].why and ask[0].diff
    assert await status_of(path, "delete_file", {"path": "/output/r.md"}) == "policy_denied"
    assert (tmp_path / "output" / "r.md").exists()
    outcome = await path.call(ToolCall("write_file", {"path": "/scratch/../output/r.md", "content": "y"}))
    assert outcome.ok
    assert len(ask) == 2
    assert any("/output/r.md" in effect for effect in ask[1].effects)


async def test_a_check_is_given_a_context_that_calls_nothing() -> None:
    from golem_forge.orchestrator.orchestrator import Orchestrator

    async def check(args: dict[str, Any], ctx: ToolContext) -> bool:
        await ctx.call("inner", {})
        return False

    inner, outer = counter("inner", needs_approval=False), counter("outer", needs_approval=check)
    path = Orchestrator([inner, outer], approval=ApprovalController("approve_all"))
    assert await status_of(path, "outer") == "policy_denied"
    assert runs("inner") == 0 and runs("outer") == 0


@pytest.mark.parametrize(("own", "expected"), [(None, "policy_denied"), ("ask", "success")])
async def test_the_default_of_the_callers_own_block_blocks_below(own: str | None, expected: str) -> None:
    """W38: what a caller's block blocks without naming it is blocked for its sub-workers too."""
    from golem_forge.orchestrator.orchestrator import Orchestrator
    from golem_forge.policy.evaluate import ParentPolicy

    said = {"x": Setting(Verdict(own), "main.worker:3")} if own else {}
    block = ApprovalBlock(default=Setting(Verdict.BLOCKED, "main.worker:2"), tools=said)
    above = ParentPolicy(worker="main", blocks=ApprovalBlocks(blocks={"x": block}))
    path = Orchestrator(
        [counter("x", needs_approval=False)], approval=ApprovalController("approve_all"), parents=(above,)
    )
    assert await status_of(path, "x") == expected


# ---- a check gets a copy of the arguments


class Note(BaseModel):
    tags: list[str]


@pytest.mark.parametrize("is_async", [False, True], ids=["sync", "async"])
@pytest.mark.parametrize("by", ["check", "callback", "listener"])
async def test_who_judges_or_watches_changes_nothing_of_what_runs(
    make_path: Any, own_home: Path, by: str, is_async: bool
) -> None:
    """Neither what runs nor its fingerprint nor the journal: the check, the callback and whoever hears of the start."""

    def spoil(args: Any) -> None:
        args["path"] = "/etc/passwd"
        tags = args["note"]["tags"] if isinstance(args["note"], dict) else args["note"].tags
        tags.append("spoiled")
        args["many"][0]["deep"].append("spoiled")

    def check(args: dict[str, Any]) -> bool:
        if by == "check":
            spoil(args)
        return True

    async def check_later(args: dict[str, Any]) -> bool:
        return check(args)

    def ask(request: Any) -> dict[str, Any]:
        if by == "callback":
            spoil(request.args)
        fingerprints.append(request.fingerprint)
        return {"approved": True}

    def heard(event: Any) -> None:
        if by == "listener":
            spoil(event.wire["args"])

    fingerprints: list[str] = []
    ran: list[Any] = []

    @tool(needs_approval=check_later if is_async else check)
    async def keep(path: str, note: Note, many: list[dict[str, list[str]]]) -> str:
        ran.append((path, note.tags, many))
        return "kept"

    journal, bus = Journal.create(own_home / ".forge"), create_ui_event_bus()
    bus.on("toolStarted", heard)
    path = make_path(keep, ask=ask, journal=journal, bus=bus)
    args = {"path": "/workspace/a", "note": {"tags": ["a"]}, "many": [{"deep": ["b"]}]}
    assert await status_of(path, "keep", args) == "success"
    journal.close()
    assert ran == [("/workspace/a", ["a"], [{"deep": ["b"]}])]
    plain = make_path(tool(needs_approval=True, name="keep")(keep.function), ask=ask)
    assert await status_of(plain, "keep", {**args, "note": {"tags": ["a"]}, "many": [{"deep": ["b"]}]}) == "success"
    assert fingerprints[0] == fingerprints[1]
    assert "spoiled" not in journal.path.read_text() and "/etc/passwd" not in journal.path.read_text()
