"""plan: the tool resolves its targets, states its effects and computes its diff, before anybody is asked.

Takes validated arguments, gives a Plan that holds its targets open. Refuses with `sandbox_denied`, or with the
error the tool would have run into. Nothing is changed by planning. What was planned may be stale once it is the call's
turn: `still_as_judged` looks again.
"""

from __future__ import annotations

import asyncio
import inspect
from typing import Any, cast

from golem_forge.core.decisions import AnsweredBy
from golem_forge.core.errors import ForgeError
from golem_forge.core.json import copy_json
from golem_forge.orchestrator.call_state import CallState
from golem_forge.orchestrator.run import CallLimits, is_coroutine_function, run_with_limits
from golem_forge.orchestrator.schedule import Gate
from golem_forge.policy.evaluate import Judge
from golem_forge.sandbox.walls.model import Level
from golem_forge.tools.context import Plan, ToolContext
from golem_forge.tools.threads import run_in_thread
from golem_forge.tools.tool import Tool


async def make_plan(state: CallState, ctx: ToolContext, gate: Gate) -> Plan:
    planner = state.tool.planner
    assert planner is not None
    state.planned_at = gate.generation
    values = copy_json(state.arguments.values)  # the plan may be made again, from what was judged
    limits = CallLimits(state.waiting, state.tool.timeout)
    if is_coroutine_function(planner):
        planned: Any = planner(values, ctx)
    else:
        if ctx.contains:
            await run_with_limits(look_up_coverage(state.tool, ctx), limits)
        future: asyncio.Future[Any] = run_in_thread(lambda: planner(values, ctx))
        try:
            planned = await run_with_limits(_shielded(future), limits)
        except BaseException:
            future.add_done_callback(_close_unused_plan)
            raise
    return cast(Plan, await run_with_limits(planned, limits) if inspect.iscoroutine(planned) else planned)


async def look_up_coverage(tool: Tool, ctx: ToolContext) -> None:
    """Stores in the context what of the zones could not be undone; a planner runs in a thread and cannot await it."""
    if ctx.contains and ctx.walls is not None and not tool.read_only:
        ctx.coverage = await ctx.walls.coverage() if await ctx.walls.level() is Level.FULL else None


async def still_as_judged(state: CallState, ctx: ToolContext, gate: Gate, judge: Judge) -> bool:
    """Whether the targets are still those that were judged. False means: evaluate again, and perhaps ask again.

    A writer that passed the gate since makes the plan stale, so it is made anew. After a person was asked the paths are
    resolved again: another real path is another call, another inode is `PATH_CHANGED`.
    """
    overtaken = state.planned_at != gate.generation
    if not overtaken and not state.asked:
        return True
    judged = state.plan
    assert judged is not None
    if overtaken and state.asked and judged.recheck is not None:
        try:
            judged.recheck()
        except ForgeError:  # what was shown has changed, so it is shown again
            state.approved_as = ""
            return False
    try:
        fresh = await make_plan(state, ctx, gate)
    except ForgeError:
        if not overtaken and judged.recheck is not None:
            judged.recheck()  # raises "it changed", which is why it cannot be planned
        raise
    same = judge.keys(state.tool, state.arguments, fresh, ctx.worker)[0] == state.judged_as
    if state.decision is not None and state.decision.answered_by is AnsweredBy.CONTAINED:
        same = same and fresh.effects == judged.effects  # what can be undone may be other than it was
    if same and not overtaken:
        fresh.release()
        if judged.recheck is not None:
            judged.recheck()
        return True
    judged.release()
    state.plan = fresh
    if same and fresh.diff == judged.diff:
        return True
    state.approved_as = ""
    return False


async def _shielded(future: asyncio.Future[Any]) -> Any:
    return await asyncio.shield(future)


def _close_unused_plan(future: asyncio.Future[Any]) -> None:
    """Closes the descriptors of a plan that nothing will use."""
    if not future.cancelled() and future.exception() is None:
        plan = future.result()
        if isinstance(plan, Plan) and plan.close is not None:
            plan.close()
