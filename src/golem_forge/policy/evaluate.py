"""Judge: may this call run? Combines every source into one verdict and keeps each of them in the Decision.

    lifted  = base                        no rule matches
            = strictest(base, rules)      rules say ask or blocked
            = preApproved                 rules say preApproved, cover the whole call, and base is not blocked
    verdict = strictest(lifted, config, floors, parents)

Takes the validated call and its plan; gives an Evaluation: the Decision and what it was made from. Refuses by raising
(a failed predicate, unusable rules files). A `blocked` verdict is a Decision like the others; the caller ends the call
with it. What blocks a worker's callers blocks the worker too (ParentPolicy); nothing else is inherited.

The DecisionCache keeps the last evaluation of a server's tool that ran unasked and met no rule. Threat: a cached answer
that outlives its reason. So everything about the tool and the call that went into it is compared; the Judge itself
checks that mode, grants and rules have not changed.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Iterator
from functools import partial
from typing import Any, Final

from golem_forge.config.approval_modes import ApprovalMode
from golem_forge.core.decisions import (
    AnsweredBy,
    Decision,
    Risk,
    Status,
    Verdict,
    VerdictSource,
    is_stricter,
    strictest,
)
from golem_forge.core.effects import Effect, Verb
from golem_forge.core.errors import ForgeError
from golem_forge.core.lazy_dataclass import dataclass, replace
from golem_forge.policy.base import ApprovalBlocks, configured_base, constant_base, decides_for_itself, predicate_base
from golem_forge.policy.commands import SandboxWorld
from golem_forge.policy.facts import (
    ANY_WALLED,
    CallFacts,
    CommandFacts,
    EffectVerdict,
    McpName,
    base_verdict,
    floors_of,
    grant_of,
    risk_of_all,
)
from golem_forge.policy.fingerprint import both_keys, targets_of
from golem_forge.policy.rules.book import RuleBook
from golem_forge.policy.rules.load import SHELL_TOOLS
from golem_forge.policy.rules.match import RuleOutcome
from golem_forge.policy.rules.model import Rule
from golem_forge.sandbox.sandbox import Sandbox
from golem_forge.tools.context import Plan, ToolContext
from golem_forge.tools.inputs import Arguments
from golem_forge.tools.tool import SourceKind, Tool

_STRICT: Final = VerdictSource(
    source="mode", verdict=Verdict.ASK, id="strict", reason="strict mode asks before every effect"
)


@dataclass(slots=True)
class _FixedDecision:
    """What is always said of a tool whose verdict depends on nothing but its definition and the config."""

    sources: tuple[VerdictSource, ...]
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
        ceilings: tuple[ParentPolicy, ...] = (),
        grants: dict[str, set[str]] | None = None,
    ) -> None:
        self.parents = ceilings
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
        self._fixed_decisions: dict[Tool, _FixedDecision | None] = {}
        self._cache = DecisionCache()

    def quick_decision(self, tool: Tool, keys: ComputeKeys) -> Decision | None:
        """The Decision where nothing has to be looked at: preApproved as it stands, and no rule says anything.

        Most calls end here. None means only: judge it properly.
        """
        try:
            standing = self._fixed_decisions[tool]
        except KeyError:
            standing = self._fixed_decisions[tool] = self._fixed_decision(tool)
        if standing is None or standing.made_for is not tool.needs_approval:
            return None
        if self.rules is not None and not self.rules.is_empty():
            return None
        decision = Decision(Verdict.PRE_APPROVED, standing.sources, standing.sources[0], standing.risk)
        decision.compute_keys = keys
        return decision

    def set_blocks(self, blocks: ApprovalBlocks) -> None:
        """Other blocks hold from the next call on."""
        self.blocks = blocks
        self._fixed_decisions.clear()
        self._cache.clear()

    def switch(self, mode: ApprovalMode) -> None:
        """Another mode holds from the next call on."""
        self.mode = mode
        self._fixed_decisions.clear()
        self._cache.clear()

    def _fixed_decision(self, tool: Tool) -> _FixedDecision | None:
        if self.parents:
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
        return _FixedDecision((base,), Risk.HIGH if tool.effects is None else Risk.LOW, tool.needs_approval)

    async def judge(
        self,
        tool: Tool,
        arguments: Arguments,
        plan: Plan | None,
        ctx: ToolContext,
        keys: ComputeKeys | None = None,
        handed: tuple[VerdictSource, ...] = (),
    ) -> Evaluation:
        keys = keys or partial(call_keys, tool, arguments, plan, ctx.worker)
        facts = facts_of(tool, arguments, plan, ctx.worker, self.project)
        facts.handed = handed
        if (before := self._cache.get(tool, facts)) is not None and self._cache_is_valid(facts.worker):
            return before.for_call(facts, keys)
        base = await self._base(tool, arguments, facts, ctx)
        judged = self.evaluate(tool, facts, base, keys)
        if plan is not None and not self.parents and self.mode is not ApprovalMode.STRICT:
            self._cache.put(tool, judged)
        return judged

    def _cache_is_valid(self, worker: str) -> bool:
        """Whether all that may have changed since the last call says nothing: the mode, grants, rules."""
        if self._grants.get(worker) or self.mode is ApprovalMode.STRICT:
            return False
        return self.rules is None or self.rules.is_empty()

    def grant(self, worker: str, what: str) -> None:
        """A person allowed this worker `what` (the words of `effects.grant_of`) until the session ends."""
        self._grants.setdefault(worker, set()).add(what)

    def grants(self) -> dict[str, frozenset[str]]:
        """What was granted so far, by worker."""
        return {worker: frozenset(granted) for worker, granted in self._grants.items() if granted}

    def revoke_grant(self, worker: str, what: str) -> None:
        self._grants.get(worker, set()).discard(what)

    def evaluate(
        self,
        tool: Tool,
        facts: CallFacts,
        base: VerdictSource,
        keys: ComputeKeys,
        *,
        extra: tuple[Rule, ...] = (),
        extra_grant: str = "",
    ) -> Evaluation:
        """The combination itself; pure but for reading the rules. The extras try what does not exist yet."""
        effects = facts.effects or ()
        granted = self._grants.get(facts.worker, frozenset()) | {extra_grant}
        if granted != {""} and tool.source is SourceKind.NATIVE and tool.needs_approval is None and effects:
            base = computed_base(effects, granted)  # a grant may have been given since it was worked out
        said_by_tool = base
        if self.mode is ApprovalMode.STRICT and facts.effects != () and base.verdict is Verdict.PRE_APPROVED:
            base = _STRICT
        bases = tuple(EffectVerdict(effect=each, base=self._effect_base(each, granted)) for each in effects)
        outcome = self._rule_outcome(facts, bases, extra)
        sources = [base]
        lifted = base.verdict
        lifting: VerdictSource | None = None
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
        floors, reasons = floor_sources(tool, effects, outcome.accepted if outcome else frozenset())
        above = (
            list(blocked_by_parents(self.parents, facts, partial(self._blocking_rules, bases))) if self.parents else []
        )
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
        return Evaluation(decision, facts, bases, said_by_tool, outcome)

    async def _base(self, tool: Tool, arguments: Arguments, facts: CallFacts, ctx: ToolContext) -> VerdictSource:
        if tool.source is not SourceKind.NATIVE or facts.effects is None:
            if tool.needs_approval is None:
                return configured_base(tool.name, self.blocks)
            return await predicate_base(tool, arguments.values, ctx)
        computed = computed_base(facts.effects, self._grants.get(facts.worker, ()))
        if tool.needs_approval is None or computed.verdict is Verdict.BLOCKED:
            return computed
        return await predicate_base(tool, arguments.values, ctx)  # an embedder's override replaces a zone's `ask`

    def _effect_base(self, effect: Effect, granted: Container[str]) -> Verdict:
        base = base_verdict(effect, granted)
        if self.mode is ApprovalMode.STRICT and base is Verdict.PRE_APPROVED:
            return Verdict.ASK
        return base

    def _may_lift(self, tool: Tool, outcome: RuleOutcome) -> bool:
        """A rule that names a built-in tool was not written for what stands in its place."""
        return outcome.covers and not tool.shadows and not self._touches_strange_zone(outcome)

    def _touches_strange_zone(self, outcome: RuleOutcome) -> bool:
        touched = (hit.effect.target for hit in outcome.hits if hit.effect is not None)
        return any(target.startswith("/") and target.split("/")[1] in self.strange_zones for target in touched)

    def _rule_outcome(
        self, facts: CallFacts, bases: tuple[EffectVerdict, ...], extra: tuple[Rule, ...]
    ) -> RuleOutcome | None:
        if self.rules is None:
            return None
        if self.mode is ApprovalMode.STRICT:
            return self.rules.evaluate_session_only(facts, bases, extra)
        return self.rules.evaluate(facts, bases, extra)

    def _blocking_rules(self, bases: tuple[EffectVerdict, ...], facts: CallFacts) -> list[VerdictSource]:
        outcome = self._rule_outcome(facts, bases, ())
        blocked = outcome is not None and outcome.verdict is Verdict.BLOCKED
        return rule_sources(outcome) if outcome is not None and blocked else []

    def redirect_sources(self, worker: str, tool: Tool, args: dict[str, Any]) -> tuple[VerdictSource, ...]:
        """Of a tool that hands its call on to another one: what asks there asks here, what blocks there raises."""
        said = self._sources_by_name(worker, tool, args)
        for source in said:
            if source.verdict is Verdict.BLOCKED:
                blocked = Decision(Verdict.BLOCKED, (source,), source)
                raise ForgeError(refusal_message(tool.name, blocked), status=Status.POLICY_DENIED, code="BLOCKED")
        return tuple(source for source in said if source.verdict is Verdict.ASK)

    def _sources_by_name(self, worker: str, tool: Tool, args: dict[str, Any]) -> tuple[VerdictSource, ...]:
        facts = CallFacts(
            tool=tool.name,
            source=tool.source,
            args=args,
            worker=worker,
            effects=(),
            command=redirected_command(tool, args),
            mcp=mcp_name(tool),
            project=self.project,
        )
        outcome = self._rule_outcome(facts, (), ())
        own = (*self.blocks.named(tool.name), *(rule_sources(outcome) if outcome is not None else ()))
        return (*own, *(blocked_by_parents(self.parents, facts, partial(self._blocking_rules, ()))))

    def count(self, judged: Evaluation) -> None:
        """The call is about to run: the rules that spoke about it were used."""
        if self.rules is not None and judged.outcome is not None and judged.outcome.matched:
            self.rules.count(judged.outcome)


ComputeKeys = Callable[[], tuple[str, str]]
"""Computes (fingerprint, args_key) of the call."""


@dataclass(slots=True)
class Evaluation:
    """Choices can be tried against the same facts."""

    decision: Decision
    facts: CallFacts
    bases: tuple[EffectVerdict, ...]
    base: VerdictSource
    outcome: RuleOutcome | None

    def for_call(self, facts: CallFacts, keys: ComputeKeys) -> Evaluation:
        """The same said of another call."""
        said = self.decision
        decision = Decision(said.verdict, said.sources, said.decided_by, said.risk, compute_keys=keys)
        return Evaluation(decision, facts, self.bases, self.base, self.outcome)


def facts_of(tool: Tool, arguments: Arguments, plan: Plan | None, worker: str, project: str) -> CallFacts:
    return CallFacts(
        tool=tool.name,
        source=tool.source,
        args=arguments.plain,
        worker=worker,
        effects=tool.effects if plan is None else plan.effects,
        command=plan.command if plan else None,
        mcp=mcp_name(tool),
        project=project,
    )


def mcp_name(tool: Tool) -> McpName | None:
    remote = tool.remote
    if remote is None:
        return None
    return McpName(server=remote.server, tool=remote.tool, pinned=tool.definition_approved)


def redirected_command(tool: Tool, args: dict[str, Any]) -> CommandFacts | None:
    """A command that is handed on before it is planned, for rules that block: they read nothing but its text."""
    text = args.get("cmd")
    if tool.name not in SHELL_TOOLS or not isinstance(text, str):
        return None
    return CommandFacts(text=text, parsed=None, world=SandboxWorld(Sandbox(has_block=False)), cwd="/")


def call_keys(tool: Tool, arguments: Arguments, plan: Plan | None, worker: str) -> tuple[str, str]:
    """(fingerprint, args_key) of one call, from what was validated and planned."""
    args: dict[str, Any] = arguments.plain
    effects = tool.effects
    further: tuple[str, ...] = ()
    if plan is not None:
        args = args if plan.fingerprint_args is None else plan.fingerprint_args
        effects, further = plan.effects, plan.targets
    return both_keys(
        tool=tool.name if tool.remote is None else f"{tool.remote.server}/{tool.remote.tool}",
        definition=tool.definition_digest,
        args=args,
        worker=worker,
        targets=targets_of(effects or (), further) if effects or further else (),
    )


@dataclass(slots=True)
class _CachedDecision:
    """A judged call, and all that another call must have in common with it."""

    judged: Evaluation
    needs_approval: Any
    effects: tuple[Effect, ...]
    worker: str


class DecisionCache:
    def __init__(self) -> None:
        self._by_tool: dict[Tool, _CachedDecision] = {}

    def get(self, tool: Tool, facts: CallFacts) -> Evaluation | None:
        before = self._by_tool.get(tool)
        if before is None or before.effects is not facts.effects or before.worker != facts.worker:
            return None
        if facts.handed or facts.command is not None or before.needs_approval is not tool.needs_approval:
            return None
        return before.judged if tool.definition_approved else None

    def put(self, tool: Tool, judged: Evaluation) -> None:
        decision, facts, outcome = judged.decision, judged.facts, judged.outcome
        unasked = decision.verdict is Verdict.PRE_APPROVED and decision.answered_by is AnsweredBy.NOBODY
        if not unasked or decision.risk_reasons:
            return
        if tool.source is not SourceKind.MCP or not facts.effects or facts.handed or callable(tool.needs_approval):
            return
        if outcome is None or not outcome.matched:
            self._by_tool[tool] = _CachedDecision(judged, tool.needs_approval, facts.effects, facts.worker)

    def clear(self) -> None:
        self._by_tool.clear()


_DECIDING_ORDER: Final = ("floor", "config", "rules", "mode", "base")


def computed_base(effects: tuple[Effect, ...], granted: Container[str] = ()) -> VerdictSource:
    worst: VerdictSource | None = None
    for effect in effects:
        verdict = base_verdict(effect, granted)
        if worst is None or is_stricter(verdict, worst.verdict):
            worst = VerdictSource(
                source="base", verdict=verdict, id=str(effect.verb), reason=_effect_reason(effect, verdict)
            )
    return worst or VerdictSource(source="base", verdict=Verdict.PRE_APPROVED, reason="it touches nothing")


def _effect_reason(effect: Effect, verdict: Verdict) -> str:
    if effect.zone_verdict is not None:
        zone = "/" + effect.target.lstrip("/").split("/", 1)[0]
        return f"zone {zone} says {verdict.value} for {effect.verb.value}"
    if effect.said is not None:
        return effect.said_by or f"the tool says {verdict.value}"
    if verdict is Verdict.PRE_APPROVED and effect.verb is Verb.EXEC and not effect.proven:
        return f"{grant_of(effect) or ANY_WALLED} is allowed here"
    if verdict is Verdict.PRE_APPROVED:
        return "proven read-only" if effect.proven else f"{effect.verb.value} inside the zones"
    return f"{effect.describe()} asks unless a rule allows it"


def rule_sources(outcome: RuleOutcome) -> list[VerdictSource]:
    """The strictest rules first: they are the ones that decide."""
    rules = [rule for rule in outcome.matched if rule.verdict is outcome.verdict]
    rules += [rule for rule in outcome.matched if rule.verdict is not outcome.verdict]
    return [
        VerdictSource(
            source="rules", verdict=rule.verdict, id=rule.id, reason=rule.reason, file=rule.file, line=rule.line
        )
        for rule in rules
    ]


def floor_sources(
    tool: Tool, effects: tuple[Effect, ...], accepted: frozenset[str]
) -> tuple[list[VerdictSource], tuple[str, ...]]:
    floors: list[VerdictSource] = []
    for effect in effects:
        for id_, why in floors_of(effect):
            if id_.removeprefix("danger:") not in accepted:
                floors.append(VerdictSource(source="floor", verdict=Verdict.ASK, id=id_, reason=why))
    if not tool.definition_approved:
        floors.append(
            VerdictSource(
                source="floor",
                verdict=Verdict.ASK,
                id="definition_changed",
                reason=f"this definition of '{tool.name}' was never approved",
            )
        )
    return floors, tuple(dict.fromkeys(floor.reason for floor in floors))


def deciding_source(
    verdict: Verdict, sources: list[VerdictSource], lifting: VerdictSource | None
) -> VerdictSource | None:
    if verdict is Verdict.PRE_APPROVED and lifting is not None:
        return lifting
    for kind in _DECIDING_ORDER:
        for source in sources:
            if source.source == kind and source.verdict is verdict:
                return source
    return sources[0]


def refusal_message(tool: str, decision: Decision) -> str:
    """What the caller reads when the verdict is `blocked`."""
    by = decision.decided_by
    if by is None or not by.reason:
        where = f" ({by.describe()})" if by else ""
        return f"'{tool}' is blocked by policy{where}."
    said_by = " ".join(part for part in (by.source, by.id) if part)
    return f"'{tool}' is blocked: {by.reason} [{said_by}{', ' + by.place if by.file else ''}]"


@dataclass(frozen=True, slots=True, kw_only=True)
class ParentPolicy:
    worker: str
    """The path of a worker above, `main`."""
    blocks: ApprovalBlocks


RuleSources = Callable[[CallFacts], Iterable[VerdictSource]]
"""What rules say of a call, as sources."""


def blocked_by_parents(
    ceilings: Iterable[ParentPolicy], facts: CallFacts, rules_say: RuleSources
) -> Iterator[VerdictSource]:
    for ceiling in ceilings:
        said = (*ceiling.blocks.for_tool(facts.tool), *rules_say(replace(facts, worker=ceiling.worker)))
        for source in said:
            if source.verdict is Verdict.BLOCKED:
                yield replace(source, reason=source.reason or f"{ceiling.worker}, which called this worker, may not")


def always_refused(judge: Judge, tool: Tool, sandbox: Sandbox | None) -> bool:
    if tool.needs_approval == Verdict.BLOCKED.value:
        return True
    if any(said.verdict is Verdict.BLOCKED for said in judge.blocks.named(tool.name)):
        return True
    if judge.mode is not ApprovalMode.AUTO_DENY or (judge.rules is not None and not judge.rules.is_empty()):
        return False  # a rule may let some of its calls through
    own = tool.needs_approval
    if own is not None:
        return own is True or own in (Verdict.ASK, Verdict.BLOCKED)
    if tool.source is not SourceKind.NATIVE:
        return configured_base(tool.name, judge.blocks).verdict is not Verdict.PRE_APPROVED
    if tool.always is None or sandbox is None:
        return False
    return all(zone.verdict(tool.always) is not Verdict.PRE_APPROVED for zone in sandbox.zones.values())
