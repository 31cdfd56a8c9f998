"""The public API as `mypy --strict` sees it; `make lint` checks this file, nothing runs it.

Each `type: ignore` stands where the checker must refuse: one that is not needed is an error itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import assert_type

from golem_forge import (
    ApprovalAnswer,
    ApprovalRequest,
    Tool,
    ToolContext,
    ToolsetContext,
    Turn,
    TurnCall,
    Worker,
    WorkerRuntime,
    open_session,
    tool,
)


@tool
def plain(text: str, count: int = 1) -> str:
    return text * count


@tool(needs_approval=lambda args: args["force"], mode="manual", label="Push", category="Git", timeout=5)
async def push(branch: str, force: bool = False, *, ctx: ToolContext) -> int:
    return len(branch)


@tool(needs_aproval=False)  # type: ignore[call-overload, untyped-decorator]
def misspelt() -> str:
    return ""


assert_type(plain("a", count=2), str)
plain(3)  # type: ignore[arg-type]
plain("a", cuont=2)  # type: ignore[call-arg]


async def called() -> None:
    assert_type(await push("main", ctx=ToolContext()), int)


class Ours:
    name = "ours"
    config = None

    def get_tools(self, ctx: ToolsetContext) -> Sequence[Tool]:
        return [plain]


class Plain:
    def get_tools(self) -> list[Tool]:
        return [push]


def answer(request: ApprovalRequest) -> ApprovalAnswer:
    return {"approved": request.risk != "critical", "reason": "no"}


async def answer_later(request: ApprovalRequest) -> ApprovalAnswer:
    return {"approved": True, "remember": "session", "args": {}}


def wrong(request: ApprovalRequest) -> ApprovalAnswer:
    return {"aproved": True}  # type: ignore[typeddict-unknown-key, typeddict-item]


Turn(say="I look.", calls=[TurnCall(tool="plain", args={"text": "a"})])
MANY = [plain, push]
open_session(".", tools=MANY)
open_session(".", tools=[plain, push, Ours(), Plain, len, {"name": "x", "execute": len}], approval_callback=answer)
WorkerRuntime(
    Worker(
        name="clerk",
        model=["anthropic:a", "openai:b"],
        budget={"max_tokens": 5},
        sandbox={"zones": [{"name": "workspace"}]},
        compatible_models=["anthropic:*"],
    ),
    tools=[Ours()],
    approval_callback=answer_later,
)
Worker(name="clerk", budgte={})  # type: ignore[call-arg]
