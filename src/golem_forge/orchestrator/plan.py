"""plan: the tool resolves its targets, states its effects and computes its diff, before anybody is asked.

Takes validated arguments, gives a Plan that holds its targets open. Refuses with `sandbox_denied`, or with the
error the tool would have run into. Nothing is changed by planning.
"""

from __future__ import annotations

import asyncio
import inspect
from typing import Any, cast

from golem_forge.orchestrator.driver import Watch, drive
from golem_forge.orchestrator.gate import Gate
from golem_forge.orchestrator.travel import Travel
from golem_forge.tools.context import ToolContext
from golem_forge.tools.plan import Plan
from golem_forge.tools.threads import run_in_thread


async def make_plan(travel: Travel, ctx: ToolContext, gate: Gate) -> Plan:
    planner = travel.tool.planner
    assert planner is not None
    travel.planned_at = gate.generation
    values = travel.arguments.values
    watch = Watch(travel.waiting, travel.tool.timeout, None)
    if inspect.iscoroutinefunction(planner):
        return cast(Plan, await drive(planner(values, ctx), watch))
    future: asyncio.Future[Any] = run_in_thread(lambda: planner(values, ctx))
    try:
        planned = await drive(_wait(future), watch)
    except BaseException:
        future.add_done_callback(_close_late)
        raise
    return cast(Plan, await drive(planned, watch) if inspect.iscoroutine(planned) else planned)


async def _wait(future: asyncio.Future[Any]) -> Any:
    return await asyncio.shield(future)


def _close_late(future: asyncio.Future[Any]) -> None:
    """A plan that nobody waits for any more must not keep its descriptors."""
    if not future.cancelled() and future.exception() is None:
        plan = future.result()
        if isinstance(plan, Plan) and plan.close is not None:
            plan.close()
