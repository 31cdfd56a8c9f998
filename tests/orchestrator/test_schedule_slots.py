"""A tool that only waits for calls which pass the gate themselves takes no slot there (workers.md §9)."""

from __future__ import annotations

import asyncio
from typing import Any

from tests.deadlines import PATIENCE

from golem_forge import ToolCall, ToolContext, tool
from golem_forge.orchestrator.gate import Gate
from golem_forge.tools.tool import Tool

EMPTY = {"type": "object", "properties": {}}


def delegate(child: Any, name: str = "delegate", calls: str = "write") -> Tool:
    async def run(args: dict[str, Any]) -> str:
        return str((await child.call(ToolCall(calls, {}))).text)

    return Tool(name, "Delegates.", input_schema=EMPTY, execute=run, needs_approval=False, gated=False)


class Writer:
    """A writing tool that notices whether it was ever beside another."""

    def __init__(self) -> None:
        self.inside = self.most = self.runs = 0

    def tool(self) -> Any:
        @tool(name="write", needs_approval=False)
        async def write() -> str:
            self.inside += 1
            self.runs += 1
            self.most = max(self.most, self.inside)
            await asyncio.sleep(0.02)
            self.inside -= 1
            return "written"

        return write


async def test_calls_below_pass_the_gate_while_the_delegation_waits(make_path: Any) -> None:
    gate, writer = Gate(), Writer()
    child = make_path(writer.tool(), gate=gate)
    root = make_path(delegate(child), writer.tool(), gate=gate)
    batch = [ToolCall("delegate", {}), ToolCall("delegate", {}), ToolCall("write", {})]
    outcomes = await asyncio.wait_for(root.batch(batch), PATIENCE)
    assert [outcome.text for outcome in outcomes] == ["written"] * 3
    assert (writer.most, writer.runs) == (1, 3)


async def test_delegations_of_a_batch_run_together(make_path: Any) -> None:
    started = asyncio.Event()

    async def first(args: dict[str, Any]) -> str:
        await started.wait()
        return "first"

    async def second(args: dict[str, Any]) -> str:
        started.set()
        return "second"

    tools = [
        Tool(run.__name__, "Waits.", input_schema=EMPTY, execute=run, needs_approval=False, gated=False)
        for run in (first, second)
    ]
    outcomes = await asyncio.wait_for(
        make_path(*tools).batch([ToolCall("first", {}), ToolCall("second", {})]), PATIENCE
    )
    assert [outcome.text for outcome in outcomes] == ["first", "second"]


async def test_what_a_slotless_tool_calls_itself_takes_its_own_slot(make_path: Any) -> None:
    writer = Writer()

    async def both(args: dict[str, Any], ctx: ToolContext) -> str:
        outcomes = await asyncio.gather(ctx.call("write", {}), ctx.call("write", {}))
        return ", ".join(outcome.status for outcome in outcomes)

    outer = Tool("both", "Calls twice.", input_schema=EMPTY, execute=both, needs_approval=False, gated=False)
    outcome = await asyncio.wait_for(make_path(outer, writer.tool()).call(ToolCall("both", {})), PATIENCE)
    assert (outcome.text, writer.most) == ("success, success", 1)


async def test_a_tool_that_holds_a_slot_cannot_wait_for_others_that_need_one(make_path: Any) -> None:
    gate, writer = Gate(), Writer()
    child = make_path(writer.tool(), gate=gate)

    @tool(needs_approval=False)
    async def outer(ctx: ToolContext) -> str:
        outcome = await ctx.call("delegate", {})
        return f"{outcome.status}: {outcome.error}"

    path = make_path(outer, delegate(child), gate=gate)
    outcome = await asyncio.wait_for(path.call(ToolCall("outer", {})), PATIENCE)
    assert outcome.text == "policy_denied: 'delegate' cannot be called from inside another tool ('outer')."
    assert writer.runs == 0
