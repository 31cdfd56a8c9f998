"""update_plan: one plan per session and worker, replaced whole, shown, and asked about by nobody."""

from __future__ import annotations

from typing import Any

from tests.tables import table

from golem_forge.core.calls import ToolCall
from golem_forge.core.decisions import Risk, Status, Verdict
from golem_forge.events.bus import EventBus
from golem_forge.tools.context import SessionParts, ToolContext
from golem_forge.toolsets.plan import PlanToolset, SessionPlans, create_update_plan_tool

STEPS = [
    {"step": "read", "status": "completed"},
    {"step": "write", "status": "in_progress"},
    {"step": "test", "status": "pending"},
    {"step": "ship", "status": "pending"},
]


async def test_t46_the_plan_is_kept_and_shown(make_path: Any) -> None:
    bus = EventBus("s")
    seen: list[Any] = []
    bus.on("planUpdated", lambda event: seen.append(event.data))
    path = make_path(create_update_plan_tool(), bus=bus, mode="strict", ask=lambda request: {"approved": False})
    outcome = await path.call(ToolCall("update_plan", {"plan": STEPS, "explanation": "so"}))
    assert outcome.status is Status.SUCCESS and outcome.result is not None
    assert outcome.result.text == "Plan updated: 1 of 4 done."
    assert outcome.result.value == {"kind": "plan.update", "plan": STEPS, "explanation": "so"}
    assert (outcome.decision.verdict, outcome.decision.risk) == (Verdict.PRE_APPROVED, Risk.LOW)
    assert [(data.plan, data.explanation) for data in seen] == [(STEPS, "so")]
    assert path.parts.get(SessionPlans).get(path.worker) == STEPS
    await path.call(ToolCall("update_plan", {"plan": STEPS[:1]}))
    assert path.parts.get(SessionPlans).get(path.worker) == STEPS[:1]
    assert seen[1].explanation is None


async def test_t46_plans_of_sessions_and_workers_are_independent() -> None:
    tool = PlanToolset().get_tools()[0]
    one, other = SessionParts(), SessionParts()
    await tool.execute({"plan": STEPS[:1]}, ToolContext(parts=one, worker="main"))
    await tool.execute({"plan": STEPS[:2]}, ToolContext(parts=one, worker="main/coder"))
    await tool.execute({"plan": STEPS[:3]}, ToolContext(parts=other, worker="main"))
    assert [len(one.get(SessionPlans).get(worker)) for worker in ("main", "main/coder", "nobody")] == [1, 2, 0]
    assert len(other.get(SessionPlans).get("main")) == 3


@table(
    ("args", "problem"),
    [
        ({"plan": [STEPS[1], STEPS[0], STEPS[1]]}, "update_plan: plan: only one step may be in_progress, not 1, 3"),
        ({"plan": []}, "update_plan: plan: "),
        ({"plan": [STEPS[0]] * 51}, "update_plan: plan: "),
        ({"plan": [{"step": "x" * 501, "status": "pending"}]}, "update_plan: plan[0].step: "),
        ({"plan": [{"step": "x", "status": "done"}]}, "update_plan: plan[0].status: "),
        ({"plan": [{"step": "x"}]}, "update_plan: plan[0].status: "),
        ({"plan": [{"step": "x", "status": "pending", "note": ""}]}, "update_plan: plan[0].note: "),
        ({"plan": STEPS, "explanation": "x" * 2001}, "update_plan: explanation: "),
        ({}, "update_plan: plan: "),
    ],
)
async def test_t46_what_is_no_plan(make_path: Any, args: dict[str, Any], problem: str) -> None:
    outcome = await make_path(create_update_plan_tool()).call(ToolCall("update_plan", args))
    assert outcome.status is Status.INPUT_INVALID
    assert outcome.error is not None and outcome.error.startswith(problem)
