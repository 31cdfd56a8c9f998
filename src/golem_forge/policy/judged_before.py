"""JudgedBefore: how the last call of a server's tool was judged, so that the next one like it is not weighed anew.

Only for tools whose effects are the very same object each time, as those of servers are, and only for what ran unasked
on what the tool is, with no rule in it. Threat: an answer that outlives its reason. So everything about the tool
and the call that went into it is compared; for what the Judge itself goes by (mode, grants, rules) the Judge answers.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from golem_forge.core.decision import AnsweredBy
from golem_forge.core.effects import Effect
from golem_forge.core.verdict import Verdict
from golem_forge.policy.facts import CallFacts
from golem_forge.policy.judged import Judged
from golem_forge.tools.tool import SourceKind, Tool


@dataclass(slots=True)
class _Before:
    """A judged call, and all that another call must have in common with it."""

    judged: Judged
    needs_approval: Any
    effects: tuple[Effect, ...]
    worker: str


class JudgedBefore:
    def __init__(self) -> None:
        self._by_tool: dict[Tool, _Before] = {}

    def recall(self, tool: Tool, facts: CallFacts) -> Judged | None:
        before = self._by_tool.get(tool)
        if before is None or before.effects is not facts.effects or before.worker != facts.worker:
            return None
        if facts.handed or facts.command is not None or before.needs_approval is not tool.needs_approval:
            return None
        return before.judged if tool.definition_approved else None

    def remember(self, tool: Tool, judged: Judged) -> None:
        decision, facts, outcome = judged.decision, judged.facts, judged.outcome
        unasked = decision.verdict is Verdict.PRE_APPROVED and decision.answered_by is AnsweredBy.NOBODY
        if not unasked or decision.risk_reasons:
            return
        if tool.source is not SourceKind.MCP or not facts.effects or facts.handed or callable(tool.needs_approval):
            return
        if outcome is None or not outcome.matched:
            self._by_tool[tool] = _Before(judged, tool.needs_approval, facts.effects, facts.worker)

    def forget(self) -> None:
        self._by_tool.clear()
