"""1,000 calls handed over at once, as a model's turn would, beside as many handed to pydantic-ai's ToolManager."""

from __future__ import annotations

from contextlib import AsyncExitStack

from benchmarks.harness import Block, Pace, race_blocks
from benchmarks.ours import session_with
from benchmarks.peers import TOOL_MANAGER, pydantic_ai
from benchmarks.rows import Row, row
from benchmarks.subject import ARGS, KINDS
from golem_forge.core.calls import ToolCall
from golem_forge.tools.factory import tool

COUNT = 1_000
JOURNAL_OFF = "journal off"
JOURNAL_ON = "journal on"


async def rows(pace: Pace) -> list[Row]:
    count = pace.amount(COUNT)
    async with AsyncExitStack() as stack:
        blocks = {
            JOURNAL_OFF: our_batch(stack, count, journal=False),
            JOURNAL_ON: our_batch(stack, count, journal=True),
            TOOL_MANAGER: Block(run=await pydantic_ai.batch(KINDS["async"], count)),
        }
        seconds = await race_blocks(blocks, rounds=pace.rounds)
    return [
        row(
            f"a batch of {count:,} calls, {journal} (ms)",
            seconds[journal] * 1e3,
            peer=seconds[TOOL_MANAGER] * 1e3,
            peer_name=TOOL_MANAGER,
        )
        for journal in (JOURNAL_OFF, JOURNAL_ON)
    ]


def our_batch(stack: AsyncExitStack, count: int, *, journal: bool) -> Block:
    add = tool(name="add", needs_approval=False)(KINDS["async"])
    path = stack.enter_context(session_with([add], journal=journal)).path

    async def run(_material: object) -> None:
        outcomes = await path.batch([ToolCall("add", ARGS) for _ in range(count)])
        assert all(outcome.ok for outcome in outcomes)

    return Block(run=run)
