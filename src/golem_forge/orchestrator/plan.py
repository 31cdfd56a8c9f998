"""plan and judge: what would this call do, and may it?

A plan resolves the tool's targets, states its effects and computes its diff, before anybody is asked. Takes validated
arguments, gives a Plan that holds its targets open. Refuses with `sandbox_denied`, or with the error the tool would
have run into. Nothing is changed by planning. The judge takes call and plan and gives an Evaluation with its Decision;
hooks may make it stricter.

What was planned may be stale once it is the call's turn: `PlanStage.is_as_judged` looks again. In a batch a plan may
need what a call before it is about to make; then it is made after that one.
"""

from __future__ import annotations

import asyncio
import contextlib
import inspect
from functools import partial
from typing import Any, cast

from golem_forge.core.decisions import AnsweredBy, Status
from golem_forge.core.errors import ForgeError
from golem_forge.core.json import copy_json
from golem_forge.orchestrator.call_state import CallScope, CallState
from golem_forge.orchestrator.contexts import ToolContexts
from golem_forge.orchestrator.gate import Gate, OpenCalls
from golem_forge.orchestrator.hooks import CallHooks
from golem_forge.orchestrator.limits import CallLimits, run_with_limits
from golem_forge.orchestrator.resolve import ResolveStage
from golem_forge.orchestrator.run import is_coroutine_function
from golem_forge.policy.evaluate import Evaluation, Judge
from golem_forge.sandbox.walls.model import Level
from golem_forge.tools.context import Plan, ToolContext
from golem_forge.tools.threads import run_in_thread
from golem_forge.tools.tool import Tool


class PlanStage:
    def __init__(
        self,
        scope: CallScope,
        judge: Judge,
        hooks: CallHooks,
        contexts: ToolContexts,
        resolve_stage: ResolveStage,
        open_calls: OpenCalls,
    ) -> None:
        self._worker = scope.worker
        self._gate = scope.services.gate
        self._judge = judge
        self._hooks = hooks
        self._contexts = contexts
        self._resolve_stage = resolve_stage
        self._open_calls = open_calls

    async def decide(self, state: CallState) -> None:
        """Gives the call its decision: at once, where the tool alone tells it, else from its plan."""
        state.place.announce_tool(state)
        if state.tool.planner is None and not state.handover_sources and not self._hooks.before(state):
            keys = partial(self._judge.keys, state.tool, state.arguments, None, self._worker)
            state.decision = self._judge.quick_decision(state.tool, keys)
            if state.decision is not None:
                return
        if state.tool.planner is not None:
            await self._plan_in_order(state)
        slow = callable(state.tool.needs_approval) or bool(self._hooks.before(state))
        with state.place.checking() if slow else contextlib.nullcontext():
            await self._evaluate(state)

    async def decide_again(self, state: CallState) -> None:
        """Plans and judges the call's present arguments, which a person has edited."""
        if state.tool.planner is not None:
            await self._plan(state)
        await self._evaluate(state)

    async def is_as_judged(self, state: CallState) -> bool:
        """Whether the tool and plan are still those that were judged, now that it is the call's turn. False means:
        decide again, and perhaps ask again.
        """
        if self._resolve_stage.found_another_tool(state):
            state.approved_as = ""
            return False
        return state.plan is None or await self._plan_is_as_judged(state)

    async def _plan_in_order(self, state: CallState) -> None:
        """A plan may need what a call before it in the batch is about to make. Then, and if it fails, it is made after
        that one has ended. What refuses the call is not asked again: not a check, not a rule."""
        place = state.place
        first = place.is_next  # asked first: the call before may end while this one is planned
        try:
            await self._plan(state)
        except ForgeError as error:
            if first or error.status is Status.POLICY_DENIED:
                raise
            read_only = state.tool.read_only or not state.tool.gated
            await self._open_calls.wait(state, place.wait_turn(read_only))
        else:
            place.announce_plan(state)
            if first:
                return
            waited = await self._open_calls.wait(state, place.wait_for_writers(state))
            if not waited and state.planned_at == self._gate.generation:
                return
        if state.tool.made_from:
            self._resolve_stage.look_up(state)
        await self._plan(state)
        place.announce_plan(state)

    async def _plan(self, state: CallState) -> None:
        state.close()
        state.plan = await make_plan(state, self._contexts.of(state), self._gate)

    async def _evaluate(self, state: CallState) -> None:
        # a check must not outlive an interrupt
        state.judged = await run_with_limits(self._evaluated(state), CallLimits(state.waiting))
        state.decision = state.judged.decision
        state.decision.edited = state.edited

    async def _evaluated(self, state: CallState) -> Evaluation:
        judged = await self._judge.judge(
            state.tool, state.arguments, state.plan, self._contexts.of(state), state.handover_sources
        )
        return await self._hooks.tighten(state, judged)

    async def _plan_is_as_judged(self, state: CallState) -> bool:
        """A writer that passed the gate since makes the plan stale, so it is made anew. After a person was asked the
        paths are resolved again: another real path is another call, another inode is `PATH_CHANGED`.
        """
        overtaken = state.planned_at != self._gate.generation
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
            fresh = await make_plan(state, self._contexts.of(state), self._gate)
        except ForgeError:
            if not overtaken and judged.recheck is not None:
                judged.recheck()  # raises "it changed", which is why it cannot be planned
            raise
        same = self._judge.keys(state.tool, state.arguments, fresh, self._worker)[0] == state.judged_as
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


async def _shielded(future: asyncio.Future[Any]) -> Any:
    return await asyncio.shield(future)


def _close_unused_plan(future: asyncio.Future[Any]) -> None:
    """Closes the descriptors of a plan that nothing will use."""
    if not future.cancelled() and future.exception() is None:
        plan = future.result()
        if isinstance(plan, Plan) and plan.close is not None:
            plan.close()
