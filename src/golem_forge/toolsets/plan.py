"""The `plan` toolset: `update_plan` replaces the plan of the calling worker and tells the UIs.

A plan lives with its session and belongs to one worker. The tool touches nothing, so it needs no approval.
"""

from __future__ import annotations

from typing import Annotated, Any, Final, Literal

from golem_forge.core.lazy_module import pydantic, pydantic_core
from golem_forge.core.results import ToolResult
from golem_forge.sandbox.sandbox import Sandbox
from golem_forge.tools.context import ToolContext
from golem_forge.tools.factory import ToolsetContext, native_tool
from golem_forge.tools.tool import NeedsApproval, Tool

PlanStep = dict[str, str]
"""A step as `{step, status}`."""
_MAX_STEPS: Final = 50
_MAX_STEP_LENGTH: Final = 500
_MAX_EXPLANATION: Final = 2000
_DESCRIPTION: Final = (
    "Keep a plan of the work in steps, and show it. Send the whole plan each time; at most one step is `in_progress`."
)


class SessionPlans:
    def __init__(self) -> None:
        self._by_worker: dict[str, list[PlanStep]] = {}

    def get(self, worker: str) -> list[PlanStep]:
        return [dict(step) for step in self._by_worker.get(worker, ())]

    def replace(self, worker: str, steps: list[PlanStep]) -> None:
        self._by_worker[worker] = [dict(step) for step in steps]


def plan_as_task(steps: list[PlanStep]) -> str:
    """Returns the message for the model when the person lets it start."""
    if not steps:
        return "Go: plan mode is over. Carry out what you proposed; write its steps down with update_plan first."
    listed = "\n".join(f"{number}. {step['step']}" for number, step in enumerate(steps, 1))
    return f"Go: plan mode is over. Carry out this plan, and keep it up to date with update_plan:\n{listed}"


class PlanToolset:
    name = "plan"
    config = None

    def get_tools(self, ctx: ToolsetContext | None = None) -> list[Tool]:
        return [create_update_plan_tool()]


def create_update_plan_tool(sandbox: Sandbox | None = None, needs_approval: NeedsApproval | None = None) -> Tool:
    """`sandbox` is not used; every `create_<tool>_tool` has it."""
    return native_tool(
        "update_plan",
        _DESCRIPTION,
        input_schema=_arguments,
        execute=_update,
        needs_approval=needs_approval,
        label="Update plan",
        category="Plan",
        effects=(),
        inline=True,
    )


def _arguments() -> type[pydantic.BaseModel]:
    def at_most_one_in_progress(plan: list[Any]) -> list[Any]:
        doing = [str(number) for number, step in enumerate(plan, 1) if step.status == "in_progress"]
        if len(doing) > 1:
            found = ", ".join(doing)
            raise pydantic_core.PydanticCustomError(
                "plan", "only one step may be in_progress, not {steps}", {"steps": found}
            )
        return plan

    statuses: Any = Literal["pending", "in_progress", "completed"]
    step: Any = pydantic.create_model(
        "step",
        __config__=pydantic.ConfigDict(extra="forbid"),
        step=(str, pydantic.Field(min_length=1, max_length=_MAX_STEP_LENGTH, description="What is to be done.")),
        status=(statuses, pydantic.Field(description="How far it is.")),
    )
    plan = pydantic.Field(min_length=1, max_length=_MAX_STEPS, description="Every step, in order.")
    explanation = pydantic.Field(default="", max_length=_MAX_EXPLANATION, description="Why the plan changed.")
    return pydantic.create_model(
        "update_plan",
        plan=(Annotated[list[step], pydantic.AfterValidator(at_most_one_in_progress)], plan),
        explanation=(str, explanation),
    )


def _update(args: dict[str, Any], ctx: ToolContext) -> ToolResult:
    given = (step if isinstance(step, dict) else step.model_dump() for step in args["plan"])  # an embedder's are dicts
    steps = [{"step": step["step"], "status": step["status"]} for step in given]
    explanation = args.get("explanation", "")
    ctx.parts.get(SessionPlans).replace(ctx.worker, steps)
    update: dict[str, Any] = {"plan": steps}
    if explanation:
        update["explanation"] = explanation
    ctx.show("planUpdated", update)
    done = sum(step["status"] == "completed" for step in steps)
    return ToolResult(value={"kind": "plan.update", **update}, text=f"Plan updated: {done} of {len(steps)} done.")
