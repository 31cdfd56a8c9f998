"""Judge: may this call run? Combines every source into one verdict and keeps each of them in the Decision.

    lifted  = base                        no rule matches
            = strictest(base, rules)      rules say ask or blocked
            = preApproved                 rules say preApproved, cover the whole call, and base is not blocked
    verdict = strictest(lifted, config, floors)

Takes the validated call and its plan. Refuses by raising (a broken predicate, unusable rules files); a `blocked`
verdict is a Decision like the others, and the caller ends the call with it.
"""

from __future__ import annotations

from collections.abc import Container
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from golem_forge.config.modes import ApprovalMode
from golem_forge.core.decision import AnsweredBy, Decision, Source
from golem_forge.core.effects import Effect
from golem_forge.core.errors import ForgeError
from golem_forge.core.verdict import Risk, Status, Verdict, strictest
from golem_forge.policy.base import ApprovalBlocks, configured_base, constant_base, decides_for_itself, own_base
from golem_forge.policy.ceilings import Ceiling, blocked_above
from golem_forge.policy.effects import base_verdict, risk_of_all
from golem_forge.policy.facts import CallFacts, EffectVerdict
from golem_forge.policy.judged import Judged, Keys, call_keys, command_handed_on, facts_of, mcp_name
from golem_forge.policy.judged_before import JudgedBefore
from golem_forge.policy.rules import Rule, RuleBook, RuleOutcome
from golem_forge.policy.sources import computed_base, deciding_source, floors_under, refusal, rule_sources
from golem_forge.tools.context import ToolContext
from golem_forge.tools.inputs import Arguments
from golem_forge.tools.plan import Plan
from golem_forge.tools.tool import SourceKind, Tool

_STRICT: Final = Source(source="mode", verdict=Verdict.ASK, id="strict", reason="strict mode asks before every effect")


@dataclass(slots=True)
class _Standing:
    """What is always said of a tool whose verdict depends on nothing but its definition and the config."""

    sources: tuple[Source, ...]
    risk: Risk
    made_for: Any
    """The tool's `needs_approval` it was worked out from; another one is another standing."""


class Judge:
    def __init__(
        self,
        blocks: ApprovalBlocks | None = None,
        rules: RuleBook | None = None,
        mode: ApprovalMode = ApprovalMode.INTERACTIVE,
        project: str = "",
        strange_zones: frozenset[str] = frozenset(),
        ceilings: tuple[Ceiling, ...] = (),
        grants: dict[str, set[str]] | None = None,
    ) -> None:
        self.ceilings = ceilings
        """The workers above, root first: what is blocked for one of them is blocked here."""
        self.strange_zones = strange_zones
        """Zones that an untrusted program named: a rule about a path was not written for them."""
        self.blocks = blocks or ApprovalBlocks()
        self.rules = rules
        self.mode = mode
        self.project = project
        self._grants = {} if grants is None else grants
        """Worker → what a person allowed it for the session beyond single calls (`any command inside the walls`).

        Shared by the judges of a session: the same worker may run twice.
        """
        self._standings: dict[Tool, _Standing | None] = {}
        self._before = JudgedBefore()

    def at_once(self, tool: Tool, keys: Keys) -> Decision | None:
        """The Decision where nothing has to be looked at: preApproved as it stands, and no rule says anything.

        Most calls end here. None means only: judge it properly.
        """
        try:
            standing = self._standings[tool]
        except KeyError:
            standing = self._standings[tool] = self._standing(tool)
        if standing is None or standing.made_for is not tool.needs_approval:
            return None
        if self.rules is not None and not self.rules.silent():
            return None
        decision = Decision(Verdict.PRE_APPROVED, standing.sources, standing.sources[0], standing.risk)
        decision.compute_keys = keys
        return decision

    def speak(self, blocks: ApprovalBlocks) -> None:
        """Other blocks hold from the next call on."""
        self.blocks = blocks
        self._standings.clear()
        self._before.forget()

    def switch(self, mode: ApprovalMode) -> None:
        """Another mode holds from the next call on."""
        self.mode = mode
        self._standings.clear()
        self._before.forget()

    def _standing(self, tool: Tool) -> _Standing | None:
        if self.ceilings:
            return None
        if tool.planner is not None or tool.effects or tool.has_own_definition or self.mode is ApprovalMode.STRICT:
            return None
        if decides_for_itself(tool) and self.blocks.named(tool.name):
            return None
        if tool.needs_approval is not None:
            if not isinstance(tool.needs_approval, (bool, str)):
                return None
            base = constant_base(tool)
        elif tool.source is SourceKind.NATIVE and tool.effects == ():
            base = computed_base(())
        else:
            base = configured_base(tool.name, self.blocks)
        if base.verdict is not Verdict.PRE_APPROVED:
            return None
        return _Standing((base,), Risk.HIGH if tool.effects is None else Risk.LOW, tool.needs_approval)

    async def judge(
        self,
        tool: Tool,
        arguments: Arguments,
        plan: Plan | None,
        ctx: ToolContext,
        keys: Keys | None = None,
        handed: tuple[Source, ...] = (),
    ) -> Judged:
        keys = keys or partial(call_keys, tool, arguments, plan, ctx.worker)
        facts = facts_of(tool, arguments, plan, ctx.worker, self.project)
        facts.handed = handed
        if (before := self._before.recall(tool, facts)) is not None and self._speaks_as_before(facts.worker):
            return before.again(facts, keys)
        base = await self._base(tool, arguments, facts, ctx)
        judged = self.weigh(tool, facts, base, keys)
        if plan is not None and not self.ceilings and self.mode is not ApprovalMode.STRICT:
            self._before.remember(tool, judged)
        return judged

    def _speaks_as_before(self, worker: str) -> bool:
        """Whether all that may have changed since the last call says nothing: the mode, grants, rules."""
        if self._grants.get(worker) or self.mode is ApprovalMode.STRICT:
            return False
        return self.rules is None or self.rules.silent()

    def grant(self, worker: str, what: str) -> None:
        """A person allowed this worker `what` (the words of `effects.grant_of`) until the session ends."""
        self._grants.setdefault(worker, set()).add(what)

    def grants(self) -> dict[str, frozenset[str]]:
        """What was granted so far, by worker."""
        return {worker: frozenset(granted) for worker, granted in self._grants.items() if granted}

    def take_back(self, worker: str, what: str) -> None:
        self._grants.get(worker, set()).discard(what)

    def weigh(
        self,
        tool: Tool,
        facts: CallFacts,
        base: Source,
        keys: Keys,
        *,
        extra: tuple[Rule, ...] = (),
        extra_grant: str = "",
    ) -> Judged:
        """The combination itself; pure but for reading the rules. The extras try what does not exist yet."""
        effects = facts.effects or ()
        granted = self._grants.get(facts.worker, frozenset()) | {extra_grant}
        if granted != {""} and tool.source is SourceKind.NATIVE and tool.needs_approval is None and effects:
            base = computed_base(effects, granted)  # a grant may have been given since it was worked out
        said_by_tool = base
        if self.mode is ApprovalMode.STRICT and facts.effects != () and base.verdict is Verdict.PRE_APPROVED:
            base = _STRICT
        bases = tuple(EffectVerdict(effect=each, base=self._effect_base(each, granted)) for each in effects)
        outcome = self._rules_say(facts, bases, extra)
        sources = [base]
        lifted = base.verdict
        lifting: Source | None = None
        if outcome is not None and outcome.verdict is not None:
            said = rule_sources(outcome)
            sources += said
            if outcome.verdict is not Verdict.PRE_APPROVED:
                lifted = strictest((base.verdict, outcome.verdict))
            elif base.verdict is not Verdict.BLOCKED and self._may_lift(tool, outcome):
                lifted = Verdict.PRE_APPROVED
                lifting = said[0]
        config = self.blocks.named(tool.name) if decides_for_itself(tool) else []
        config = [source for source in config if source.verdict is not Verdict.PRE_APPROVED]
        floors, reasons = floors_under(tool, effects, outcome.accepted if outcome else frozenset())
        above = list(blocked_above(self.ceilings, facts, partial(self._blocking_rules, bases))) if self.ceilings else []
        stricter = (*config, *facts.handed, *above, *floors)
        sources += stricter
        verdict = strictest((lifted, *(source.verdict for source in stricter)))
        decision = Decision(
            verdict=verdict,
            sources=tuple(sources),
            decided_by=deciding_source(verdict, sources, lifting),
            risk=risk_of_all(facts.effects),
            risk_reasons=reasons,
            answered_by=AnsweredBy.RULE if lifting and verdict is Verdict.PRE_APPROVED else AnsweredBy.NOBODY,
            compute_keys=keys,
        )
        return Judged(decision, facts, bases, said_by_tool, outcome)

    async def _base(self, tool: Tool, arguments: Arguments, facts: CallFacts, ctx: ToolContext) -> Source:
        if tool.source is not SourceKind.NATIVE or facts.effects is None:
            if tool.needs_approval is None:
                return configured_base(tool.name, self.blocks)
            return await own_base(tool, arguments.values, ctx)
        computed = computed_base(facts.effects, self._grants.get(facts.worker, ()))
        if tool.needs_approval is None or computed.verdict is Verdict.BLOCKED:
            return computed
        return await own_base(tool, arguments.values, ctx)  # an embedder's override replaces a zone's `ask`

    def _effect_base(self, effect: Effect, granted: Container[str]) -> Verdict:
        base = base_verdict(effect, granted)
        if self.mode is ApprovalMode.STRICT and base is Verdict.PRE_APPROVED:
            return Verdict.ASK
        return base

    def _may_lift(self, tool: Tool, outcome: RuleOutcome) -> bool:
        """A rule that names a built-in tool was not written for what stands in its place."""
        return outcome.covers and not tool.shadows and not self._by_a_strange_name(outcome)

    def _by_a_strange_name(self, outcome: RuleOutcome) -> bool:
        touched = (hit.effect.target for hit in outcome.hits if hit.effect is not None)
        return any(target.startswith("/") and target.split("/")[1] in self.strange_zones for target in touched)

    def _rules_say(
        self, facts: CallFacts, bases: tuple[EffectVerdict, ...], extra: tuple[Rule, ...]
    ) -> RuleOutcome | None:
        if self.rules is None:
            return None
        if self.mode is ApprovalMode.STRICT:
            return self.rules.evaluate_session_only(facts, bases, extra)
        return self.rules.evaluate(facts, bases, extra)

    def _blocking_rules(self, bases: tuple[EffectVerdict, ...], facts: CallFacts) -> list[Source]:
        outcome = self._rules_say(facts, bases, ())
        blocked = outcome is not None and outcome.verdict is Verdict.BLOCKED
        return rule_sources(outcome) if outcome is not None and blocked else []

    def said_of_handover(self, worker: str, tool: Tool, args: dict[str, Any]) -> tuple[Source, ...]:
        """Of a tool that hands its call on to another one: what asks there asks here, what blocks there raises."""
        said = self._said_by_name(worker, tool, args)
        for source in said:
            if source.verdict is Verdict.BLOCKED:
                blocked = Decision(Verdict.BLOCKED, (source,), source)
                raise ForgeError(refusal(tool.name, blocked), status=Status.POLICY_DENIED, code="BLOCKED")
        return tuple(source for source in said if source.verdict is Verdict.ASK)

    def _said_by_name(self, worker: str, tool: Tool, args: dict[str, Any]) -> tuple[Source, ...]:
        facts = CallFacts(
            tool=tool.name,
            source=tool.source,
            args=args,
            worker=worker,
            effects=(),
            command=command_handed_on(tool, args),
            mcp=mcp_name(tool),
            project=self.project,
        )
        outcome = self._rules_say(facts, (), ())
        own = (*self.blocks.named(tool.name), *(rule_sources(outcome) if outcome is not None else ()))
        return (*own, *(blocked_above(self.ceilings, facts, partial(self._blocking_rules, ()))))

    def count(self, judged: Judged) -> None:
        """The call is about to run: the rules that spoke about it were used."""
        if self.rules is not None and judged.outcome is not None and judged.outcome.matched:
            self.rules.count(judged.outcome)
