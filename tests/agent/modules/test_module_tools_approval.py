"""Verdicts of module tools: the tool's own word, then the block's; a broken check refuses (W9, W10)."""

from __future__ import annotations

from typing import Any

import pytest
from tests.deadlines import within

from golem_forge.agent.files.toolset_blocks import approval_of
from golem_forge.core.decisions import Status
from golem_forge.policy import base
from golem_forge.policy.base import ApprovalBlocks

OWN = """
    import time
    from golem_forge import BlockedError, tool

    def x() -> str:
        return "x"

    def y() -> str:
        return "y"

    @tool(needs_approval=False)
    def free() -> str:
        return "free"

    @tool(needs_approval=lambda args: args["force"])
    def push(force: bool = False) -> str:
        return f"pushed {force}"

    async def _never(args, ctx):
        raise BlockedError(f"not for {ctx.worker}")

    @tool(needs_approval=_never)
    def never() -> str:
        return "ran"

    @tool(needs_approval=lambda args: 1 / 0)
    def broken() -> str:
        return "ran"

    @tool(needs_approval=lambda args: 3)
    def silly() -> str:
        return "ran"

    @tool(needs_approval=lambda args: time.sleep(60))
    def slow() -> str:
        return "ran"
"""


async def test_w9_the_block_decides_where_the_tool_says_nothing_and_blocked_never_prompts(
    place: Any, call: Any, asked: Any
) -> None:
    place.write("tools.py", OWN)
    names = ("x", "y", "free", "push", "never")
    modules = place.custom(*names)
    tools = await modules.load()

    def path(approval: dict[str, Any], ask: Any) -> Any:
        worker = place.worker(custom={"module": "./tools.py", "tools": list(names), "approval": approval})
        return place.path(tools, ask=ask, blocks=ApprovalBlocks(blocks=approval_of(worker, modules.exposed())))

    ask = asked({"approved": True})
    said = path({"default": "preApproved", "tools": {"x": "ask"}}, ask)
    assert [(await call(said, name)).text for name in ("x", "y", "free")] == ["x", "y", "free"]
    assert [request.tool for request in ask] == ["x"]

    for answering in (ask, None):  # a person, and approve_all
        outcome = await call(path({"tools": {"x": "blocked"}}, answering), "x")
        assert (outcome.status, outcome.executed) == (Status.POLICY_DENIED, False)
    assert len(ask) == 1

    said = path({"default": "ask"}, ask)
    assert (await call(said, "free")).ok
    assert (await call(said, "push")).text == "pushed False"
    assert len(ask) == 1, "the tool's own word, asked for in its host"
    assert (await call(said, "push", force=True)).text == "pushed True"
    assert [request.tool for request in ask[1:]] == ["push"]
    never = await call(said, "never")
    assert (never.status, never.error, never.executed) == (Status.POLICY_DENIED, "not for main", False)


async def test_w10_a_broken_check_refuses_its_call_and_nothing_else(
    place: Any, call: Any, asked: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    place.write("tools.py", OWN)
    ask = asked({"approved": True})
    path = await place.opened("broken", "silly", "slow", "x", ask=ask)
    answers = [("broken", 30, "ZeroDivisionError"), ("silly", 30, "answered int"), ("slow", 0.7, "TimeoutError")]
    for name, seconds, why in answers:
        monkeypatch.setattr(base, "PREDICATE_SECONDS", seconds)
        with within(1.7):
            outcome = await call(path, name)
        assert (outcome.status, outcome.executed) == (Status.POLICY_DENIED, False)
        assert outcome.error == f"Approval check of '{name}' failed ({why}); the call was not run."
    assert (await call(path, "x")).text == "x"
    assert [request.tool for request in ask] == ["x"]


async def test_a_zone_that_is_gone_is_what_the_check_says(place: Any, call: Any, asked: Any) -> None:
    place.write("tools.py", OWN)
    path = await place.opened("push", ask=asked({"approved": True}))
    (place.root / "data").rename(place.root / "moved")
    outcome = await call(path, "push")
    assert (outcome.status, outcome.executed) == (Status.EXECUTION_FAILED, False), outcome.error
    assert "the directory of zone '/data' is gone" in outcome.error and "Put it back" in outcome.error


PLANNED = """
    from pathlib import Path
    from golem_forge import Effect, Plan, Tool

    def plan(args, ctx):
        path = Path(args["path"])
        old = path.read_text()
        diff = f"--- {args['path']}\\n+++ {args['path']}\\n@@ -1 +1 @@\\n-{old}\\n+{args['text']}\\n"

        def run():
            path.write_text(args["text"])
            return "wrote"

        return Plan(run=run, effects=(Effect(verb="write", target=args["path"]),), diff=diff)

    schema = {"type": "object", "properties": {"path": {"type": "string"}, "text": {"type": "string"}}}
    stamp = Tool("stamp", "Stamps a file.", input_schema=schema, planner=plan)
    wrong = Tool("wrong", "Plans nothing.", input_schema=schema, planner=lambda args, ctx: 3)
"""


async def test_a_module_tool_plans_in_its_host_and_its_card_shows_the_diff(place: Any, call: Any, asked: Any) -> None:
    place.write("tools.py", PLANNED)
    notes = place.root / "data" / "notes.txt"
    notes.write_text("old")

    def answer(request: Any) -> dict[str, bool]:
        if request.tool != "stamp":
            return {"approved": True}
        assert "-old" in request.diff and "+new" in request.diff
        assert [effect for effect in request.effects if "/notes.txt" in effect]
        if changed:
            notes.write_text("edited meanwhile")
            changed.clear()
        return {"approved": True}

    changed: list[bool] = []
    path = await place.opened("stamp", "wrong", ask=answer)
    given = {"path": "notes.txt", "text": "new"}
    assert (await call(path, "stamp", **given)).text == "wrote"
    assert notes.read_text() == "new"
    outside = await call(path, "stamp", path="/nowhere/x", text="new")
    assert outside.status is not Status.SUCCESS
    failed = await call(path, "wrong", path="x", text="y")
    assert failed.status is Status.EXECUTION_FAILED and "not a Plan" in failed.text
    notes.write_text("old")
    changed.append(True)
    stale = await call(path, "stamp", **given)
    assert stale.status is not Status.SUCCESS and notes.read_text() == "edited meanwhile", "shown is what runs"
