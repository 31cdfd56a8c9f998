"""plan: the tool resolves its targets, states its effects and computes its diff, before anybody is asked.

Takes validated arguments, gives a Plan that holds its targets open. Refuses with `sandbox_denied`, or with the
error the tool would have run into. Nothing is changed by planning. What was planned may be stale once it is the call's
turn: `still_as_judged` looks again.
"""

from __future__ import annotations

import asyncio
import inspect
from typing import Any, cast

from golem_forge.core.copying import own_copy
from golem_forge.core.coroutine_functions import is_coroutine_function
from golem_forge.core.errors import ForgeError
from golem_forge.orchestrator.driver import Watch, drive, drive_within
from golem_forge.orchestrator.gate import Gate
from golem_forge.orchestrator.travel import Travel
from golem_forge.policy.judged import call_keys
from golem_forge.tools.context import ToolContext
from golem_forge.tools.plan import Plan
from golem_forge.tools.threads import run_in_thread


async def make_plan(travel: Travel, ctx: ToolContext, gate: Gate) -> Plan:
    planner = travel.tool.planner
    assert planner is not None
    travel.planned_at = gate.generation
    values = own_copy(travel.arguments.values)  # the plan may be made again, from what was judged
    if is_coroutine_function(planner):
        work: Any = planner(values, ctx)
        plan: Plan = await drive_within(work, travel.waiting, travel.tool.timeout)
        return plan
    watch = Watch(travel.waiting, travel.tool.timeout, None)
    future: asyncio.Future[Any] = run_in_thread(lambda: planner(values, ctx))
    try:
        planned = await drive(_wait(future), watch)
    except BaseException:
        future.add_done_callback(_close_late)
        raise
    return cast(Plan, await drive(planned, watch) if inspect.iscoroutine(planned) else planned)


async def still_as_judged(travel: Travel, ctx: ToolContext, gate: Gate) -> bool:
    """False: judge and perhaps ask again, because the targets are no longer those that were judged.

    A writer of ours that passed the gate makes a plan stale: it is made anew. After a person was asked the names
    are walked again: another real path is another call, another inode is `PATH_CHANGED`.
    """
    overtaken = travel.planned_at != gate.generation
    if not overtaken and not travel.asked:
        return True
    judged = travel.plan
    assert judged is not None
    if overtaken and travel.asked and judged.recheck is not None:
        try:
            judged.recheck()
        except ForgeError:  # ours or somebody else's change: what was shown is no more, so it is shown again
            travel.approved_as = ""
            return False
    try:
        fresh = await make_plan(travel, ctx, gate)
    except ForgeError:
        if not overtaken and judged.recheck is not None:
            judged.recheck()  # "it changed" is the truth, whatever cannot be planned because of it
        raise
    same = call_keys(travel.tool, travel.arguments, fresh, ctx.worker)[0] == travel.judged_as
    if same and not overtaken:
        fresh.release()
        if judged.recheck is not None:
            judged.recheck()
        return True
    judged.release()
    travel.plan = fresh
    if same and fresh.diff == judged.diff:
        return True
    travel.approved_as = ""
    return False


async def _wait(future: asyncio.Future[Any]) -> Any:
    return await asyncio.shield(future)


def _close_late(future: asyncio.Future[Any]) -> None:
    """A plan that nobody waits for any more must not keep its descriptors."""
    if not future.cancelled() and future.exception() is None:
        plan = future.result()
        if isinstance(plan, Plan) and plan.close is not None:
            plan.close()
