"""Judge: may this call run? Combines every source into one verdict and keeps each of them in the Decision.

    lifted  = base                        no rule matches
            = strictest(base, rules)      rules say ask or blocked
            = preApproved                 rules say preApproved, cover the whole call, and base is not blocked
    verdict = strictest(lifted, config, floors, parents, plan mode)

In the mode `contained`, what asks and is contained by all that its effects say needs no answer: the Decision says so
(`answered_by`), else why not (`not_contained`). In the mode `plan`, what does more than read is blocked for everybody
but the person who calls a tool by hand.

Takes the validated call and its plan; gives an Evaluation: the Decision and what it was made from. Refuses by raising
(a failed predicate, unusable rules files). A `blocked` verdict is a Decision like the others; the caller ends the call
with it. What blocks a worker's callers blocks the worker too (ParentPolicy); nothing else is inherited.

The DecisionCache keeps the last evaluation of a server's tool that ran unasked and met no rule. Threat: a cached answer
that outlives its reason. So everything about the tool and the call that went into it is compared; the Judge itself
checks that mode, grants and rules have not changed.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Container, Iterator
from functools import partial
from typing import Any, Final

from golem_forge.config.run_block import ApprovalMode
from golem_forge.core.calls import Caller
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
from golem_forge.core.effects import AtMost, Effect, Mark, Verb
from golem_forge.core.errors import ForgeError
from golem_forge.core.lazy_dataclass import dataclass, replace
from golem_forge.core.regex import regex
from golem_forge.policy.base import (
    ApprovalBlocks,
    configured_base,
    constant_base,
    decides_for_itself,
    predicate_base,
    who_decides,
)
from golem_forge.policy.facts import CallFacts, CommandFacts, McpName, SandboxWorld
from golem_forge.policy.fingerprint import DirectoryNames, both_keys, targets_of
from golem_forge.policy.hooks import SOURCE as HOOK_SOURCE
from golem_forge.policy.risk import (
    ANY_WALLED,
    EffectVerdict,
    base_verdict,
    floors_of,
    grant_of,
    leaves_of,
    risk_of_all,
    stays_inside,
)
from golem_forge.policy.rules.book import RuleBook
from golem_forge.policy.rules.load import SHELL_TOOLS
from golem_forge.policy.rules.match import RuleOutcome, in_scope, uncovered_effects, unmentioned_effects
from golem_forge.policy.rules.model import Hit, Rule, RuleOrigin
from golem_forge.sandbox.sandbox import Sandbox
from golem_forge.tools.context import Plan, ToolContext
from golem_forge.tools.inputs import Arguments
from golem_forge.tools.tool import SourceKind, Tool

_STRICT: Final = VerdictSource(
    source="mode", verdict=Verdict.ASK, id="strict", reason="strict mode asks before every effect"
)

_PLAN: Final = VerdictSource(
    source="mode",
    verdict=Verdict.BLOCKED,
    id="plan",
    reason="the session is in plan mode: read, then propose; nothing is changed until the person says `go`",
)
_UNDO: Final = VerdictSource(source="floor", verdict=Verdict.ASK, id="undo", reason="an undo first shows every file")
"""An undo always asks. Rules, grants and memory about its paths allow an agent to write, not to undo."""
_LONG_EVALUATION: Final = (ApprovalMode.STRICT, ApprovalMode.PLAN)
"""Modes in which no decision is made by a tool's definition alone, and none is used again."""


_UNKNOWN: Final = object()
"""Stands for the value of an argument that nobody has given yet: no test of a rule matches it, not even `absent`."""
_MOST_BY_ARGUMENT: Final = 5


@dataclass(slots=True)
class _FixedDecision:
    """The decision on a tool whose verdict depends on nothing but its definition and the config."""

    sources: tuple[VerdictSource, ...]
    risk: Risk
    made_for: Any
    """The tool's `needs_approval` that it was made from; with another one it does not hold."""


class Judge:
    def __init__(
        self,
        blocks: ApprovalBlocks | None = None,
        rules: RuleBook | None = None,
        mode: ApprovalMode = ApprovalMode.INTERACTIVE,
        project: str = "",
        strange_zones: frozenset[str] = frozenset(),
        parents: tuple[ParentPolicy, ...] = (),
        grants: dict[str, set[str]] | None = None,
    ) -> None:
        self.parents = parents
        """The workers above, root first: what is blocked for one of them is blocked here."""
        self.strange_zones = strange_zones
        """Zones that an untrusted program named: a rule about a path was not written for them."""
        self.blocks = blocks or ApprovalBlocks()
        self.rules = rules
        self.mode = mode
        self.project = project
        self._grants = {} if grants is None else grants
        """Worker → what a person allowed it for the session beyond single calls (`any command inside the walls`).
        Shared by the judges of a session: the same worker may run twice."""
        self.directory_names: DirectoryNames = {}
        """Of directories that lie elsewhere on each machine of the session."""
        self._fixed_decisions: dict[Tool, _FixedDecision | None] = {}
        self._cache = DecisionCache()

    def quick_decision(self, tool: Tool, keys: ComputeKeys) -> Decision | None:
        """The Decision where the arguments need not be examined: preApproved whatever they are, and there is no rule.
        Most calls end here. None means only that the call needs the long evaluation."""
        try:
            fixed = self._fixed_decisions[tool]
        except KeyError:
            fixed = self._fixed_decisions[tool] = self._fixed_decision(tool)
        if fixed is None or fixed.made_for is not tool.needs_approval or self._has_rules():
            return None
        return Decision(Verdict.PRE_APPROVED, fixed.sources, fixed.sources[0], fixed.risk, compute_keys=keys)

    def set_blocks(self, blocks: ApprovalBlocks) -> None:
        """Replaces the approval blocks from the next call on."""
        self.blocks = blocks
        self.switch(self.mode)

    def switch(self, mode: ApprovalMode) -> None:
        """Another mode holds from the next call on; no decision made before is used again."""
        self.mode = mode
        self._fixed_decisions.clear()
        self._cache.clear()

    def _expire_rules(self) -> None:
        """Threat: a rule that a person wrote just now would not hold for a call with effects that follows at once."""
        if self.rules is not None:
            self.rules.expire()

    def _has_rules(self) -> bool:
        return self.rules is not None and not self.rules.is_empty()

    def _fixed_decision(self, tool: Tool) -> _FixedDecision | None:
        if self.parents or self.mode in _LONG_EVALUATION:
            return None
        if tool.planner is not None or tool.effects or tool.has_own_definition:
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

    def keys(self, tool: Tool, arguments: Arguments, plan: Plan | None, worker: str) -> tuple[str, str]:
        """Returns (fingerprint, args_key) of a call."""
        return call_keys(tool, arguments, plan, worker, self.directory_names)

    async def judge(
        self,
        tool: Tool,
        arguments: Arguments,
        plan: Plan | None,
        ctx: ToolContext,
        handed: tuple[VerdictSource, ...] = (),
    ) -> Evaluation:
        self._expire_rules()
        keys = partial(self.keys, tool, arguments, plan, ctx.worker)
        effects = tool.effects if plan is None else plan.effects
        if self.mode is ApprovalMode.PLAN and ctx.caller is not Caller.HUMAN and not _only_reads(tool, plan, effects):
            handed = (*handed, _PLAN)
        if plan is not None and plan.undoes_in:
            handed = (*handed, _UNDO)
        facts = CallFacts(
            tool=tool.name,
            source=tool.source,
            args=arguments.plain,
            worker=ctx.worker,
            effects=effects,
            command=plan.command if plan else None,
            mcp=_mcp_name(tool),
            handed=handed,
            project=self.project,
            rule_args=plan.rule_args if plan else (),
        )
        if (before := self._cache.get(tool, facts)) is not None and self._cache_is_valid(facts.worker):
            return before.for_call(facts, keys)
        base = await self._base(tool, arguments, facts, ctx)
        judged = self.evaluate(tool, facts, base, keys)
        if plan is not None and not self.parents and self.mode not in _LONG_EVALUATION:
            self._cache.put(tool, judged)
        return judged

    def _cache_is_valid(self, worker: str) -> bool:
        """Whether mode, grants and rules are still those of the cached decisions."""
        return not (self._grants.get(worker) or self.mode in _LONG_EVALUATION or self._has_rules())

    def grant(self, worker: str, what: str) -> None:
        """A person allowed this worker `what` (see `facts.grant_of`) until the session ends."""
        self._grants.setdefault(worker, set()).add(what)

    def grants(self) -> dict[str, frozenset[str]]:
        """Returns the session grants so far, by worker."""
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
        own_base = base
        if self.mode is ApprovalMode.STRICT and facts.effects != () and base.verdict is Verdict.PRE_APPROVED:
            base = _STRICT
        bases = tuple(EffectVerdict(effect=each, base=self._effect_base(each, granted)) for each in effects)
        outcome = self._rule_outcome(facts, bases, extra)
        base = _naming_uncovered(tool, base, bases, outcome, granted)
        sources = [base]
        lifted = base.verdict
        lifting: VerdictSource | None = None
        if outcome is not None and outcome.verdict is not None:
            rules = rule_sources(outcome)
            sources += rules
            if outcome.verdict is not Verdict.PRE_APPROVED:
                lifted = strictest((base.verdict, outcome.verdict))
            elif base.verdict is not Verdict.BLOCKED and self._may_lift(tool, outcome):
                lifted = Verdict.PRE_APPROVED
                lifting = rules[0]
        config = self.blocks.named(tool.name) if decides_for_itself(tool) else []
        config = [source for source in config if source.verdict is not Verdict.PRE_APPROVED]
        floors = floor_sources(tool, effects, outcome.accepted if outcome else frozenset(), granted)
        stricter = (*config, *facts.handed, *self._blocked_by_parents(facts, bases), *floors)
        sources += stricter
        verdict = strictest((lifted, *(source.verdict for source in stricter)))
        answered_by = AnsweredBy.RULE if lifting and verdict is Verdict.PRE_APPROVED else AnsweredBy.NOBODY
        asks_because: tuple[str, ...] = ()
        if self.mode is ApprovalMode.CONTAINED and verdict is Verdict.ASK:
            asks_because = tuple(dict.fromkeys(_not_contained(tool, facts, sources)))
            answered_by = AnsweredBy.NOBODY if asks_because else AnsweredBy.CONTAINED
        decision = Decision(
            verdict=verdict,
            sources=tuple(sources),
            decided_by=deciding_source(verdict, sources, lifting),
            risk=risk_of_all(facts.effects),
            risk_reasons=tuple(dict.fromkeys(floor.reason for floor in floors)),
            answered_by=answered_by,
            not_contained=asks_because,
            only_a_person=any(Mark.OUTSIDE_WALLS in effect.marks for effect in effects),
            compute_keys=keys,
        )
        return Evaluation(decision, facts, bases, own_base, outcome, granted)

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
        return Verdict.ASK if self.mode is ApprovalMode.STRICT and base is Verdict.PRE_APPROVED else base

    def _may_lift(self, tool: Tool, outcome: RuleOutcome) -> bool:
        """A rule for a built-in tool, or for a zone of the person's, was not written for what replaces it here."""
        touched = (hit.effect.target for hit in outcome.hits if hit.effect is not None)
        strange = any(target.startswith("/") and target.split("/")[1] in self.strange_zones for target in touched)
        return outcome.covers and not tool.shadows and not strange

    def _rule_outcome(
        self, facts: CallFacts, bases: tuple[EffectVerdict, ...], extra: tuple[Rule, ...]
    ) -> RuleOutcome | None:
        if self.rules is None:
            return None
        if self.mode is ApprovalMode.STRICT:
            return self.rules.evaluate_session_only(facts, bases, extra)
        return self.rules.evaluate(facts, bases, extra)

    def _blocked_by_parents(self, facts: CallFacts, bases: tuple[EffectVerdict, ...]) -> Iterator[VerdictSource]:
        """Yields the verdicts that block a parent worker; they block this worker too."""
        for parent in self.parents:
            outcome = self._rule_outcome(replace(facts, worker=parent.worker), bases, ())
            sources = parent.blocks.for_tool(facts.tool)
            if outcome is not None and outcome.verdict is Verdict.BLOCKED:
                sources += rule_sources(outcome)
            for source in sources:
                if source.verdict is Verdict.BLOCKED:
                    reason = source.reason or f"{parent.worker}, which called this worker, may not"
                    yield replace(source, reason=reason)

    def redirect_sources(self, worker: str, tool: Tool, args: dict[str, Any]) -> tuple[VerdictSource, ...]:
        """Returns the verdicts on a tool that hands its call over to another tool: an `ask` there is added to the call,
        a `blocked` raises.
        """
        self._expire_rules()
        facts = CallFacts(
            tool=tool.name,
            source=tool.source,
            args=args,
            worker=worker,
            effects=(),
            command=_redirected_command(tool, args),
            mcp=_mcp_name(tool),
            project=self.project,
        )
        outcome = self._rule_outcome(facts, (), ())
        rules = rule_sources(outcome) if outcome is not None else ()
        sources = (*self.blocks.named(tool.name), *rules, *self._blocked_by_parents(facts, ()))
        for source in sources:
            if source.verdict is Verdict.BLOCKED:
                blocked = Decision(Verdict.BLOCKED, (source,), source)
                raise ForgeError(refusal_message(tool.name, blocked), status=Status.POLICY_DENIED, code="BLOCKED")
        return tuple(source for source in sources if source.verdict is Verdict.ASK)

    def who_decides(self, tool: Tool, worker: str, effects: tuple[Effect, ...] | None = None) -> str:
        """Describes in one sentence what decides about this tool's calls: mode, blocks and rules. `effects` are those
        that each of its calls has. Raises RulesUnusable.
        """
        said = who_decides(tool, self.blocks)
        if not decides_for_itself(tool):
            judged = self.evaluate_by_name(tool, worker, effects)
            decision, by = judged.decision, judged.decision.decided_by
            matched = judged.outcome is not None and judged.outcome.verdict is not None
            if by is not None and (matched or decision.verdict is not judged.base.verdict):
                said = f"{decision.verdict.value} ({by.describe()})"
        elif (outcome := self._rule_outcome(self._facts_by_name(tool, worker, ()), (), ())) is not None:
            for source in rule_sources(outcome)[:1]:
                said += f"; {source.verdict.value} by {source.describe()}"
        for rule in self._rules_by_argument(tool, worker)[:_MOST_BY_ARGUMENT]:
            [source] = rule_sources(RuleOutcome(verdict=rule.verdict, matched=(rule,)))
            said += f"; with some arguments {rule.verdict.value} by {source.describe()}"
        return said

    def evaluate_by_name(self, tool: Tool, worker: str, effects: tuple[Effect, ...] | None = None) -> Evaluation:
        """Evaluates a tool that does not decide for itself, without arguments. A rule that tests an argument does not
        match.
        """
        base = configured_base(tool.name, self.blocks)
        return self.evaluate(tool, self._facts_by_name(tool, worker, effects), base, lambda: ("", ""))

    def _facts_by_name(self, tool: Tool, worker: str, effects: tuple[Effect, ...] | None) -> CallFacts:
        rules = self._rules_by_argument(tool, worker)
        return CallFacts(
            tool=tool.name,
            source=tool.source,
            args={test.name: _UNKNOWN for rule in rules for test in rule.args},
            worker=worker,
            effects=effects,
            mcp=_mcp_name(tool),
            project=self.project,
        )

    def _rules_by_argument(self, tool: Tool, worker: str) -> list[Rule]:
        """Rules in force that speak of this tool with certain arguments only."""
        facts = CallFacts(
            tool=tool.name, source=tool.source, args={}, worker=worker, effects=None, project=self.project
        )
        strict = self.mode is ApprovalMode.STRICT
        return [
            rule
            for rule in (self.rules.current().rules if self.rules is not None else ())
            if rule.tool == tool.name and rule.args and in_scope(rule, facts)
            if not strict or rule.verdict is not Verdict.PRE_APPROVED or rule.origin is RuleOrigin.SESSION
        ]

    def count(self, judged: Evaluation) -> None:
        """The call is about to run: the rules that spoke about it were used."""
        if self.rules is not None and judged.outcome is not None and judged.outcome.matched:
            self.rules.count(judged.outcome)


ComputeKeys = Callable[[], tuple[str, str]]
"""Computes (fingerprint, args_key) of the call."""


@dataclass(slots=True)
class Evaluation:
    decision: Decision
    facts: CallFacts
    bases: tuple[EffectVerdict, ...]
    base: VerdictSource
    outcome: RuleOutcome | None
    granted: Container[str] = ()
    """Session grants that a person gave this worker."""

    @property
    def uncovered(self) -> tuple[int, ...]:
        """The effects, by index, that no rule covers, whatever its verdict; empty where a rule can only cover the call
        as a whole."""
        if not self.facts.native:
            return ()
        return unmentioned_effects(self._hits, self.bases)

    @property
    def left_to_allow(self) -> tuple[EffectVerdict, ...]:
        """The bases, where an effect that a rule covers is as good as one that runs by itself."""
        if not self.facts.native:
            return self.bases
        left = uncovered_effects(self._hits, self.bases)
        return tuple(
            each if index in left else replace(each, base=Verdict.PRE_APPROVED) for index, each in enumerate(self.bases)
        )

    @property
    def _hits(self) -> tuple[Hit, ...]:
        return self.outcome.hits if self.outcome is not None else ()

    def for_call(self, facts: CallFacts, keys: ComputeKeys) -> Evaluation:
        """Returns this evaluation for another call."""
        same = self.decision
        decision = Decision(same.verdict, same.sources, same.decided_by, same.risk, compute_keys=keys)
        return Evaluation(decision, facts, self.bases, self.base, self.outcome)


def _only_reads(tool: Tool, plan: Plan | None, effects: tuple[Effect, ...] | None) -> bool:
    """Whether a call provably changes nothing; a claim is not enough. A sub-worker may start, because its calls are
    judged in the same mode. A native tool that only reads may read from the network; it asks as in every mode.
    """
    if effects is None:
        return False
    reaches = tool.source is SourceKind.NATIVE and plan is not None and plan.read_only
    return all(
        effect.verb in (Verb.READ, Verb.SPAWN)
        or effect.proven
        or effect.at_most is AtMost.READS
        or (effect.verb is Verb.NET and reaches)
        for effect in effects
    )


def _mcp_name(tool: Tool) -> McpName | None:
    if (remote := tool.remote) is None:
        return None
    return McpName(server=remote.server, tool=remote.tool, pinned=tool.definition_approved)


def _redirected_command(tool: Tool, args: dict[str, Any]) -> CommandFacts | None:
    """A command that is handed over before it is planned, for rules that block: they read nothing but its text."""
    text = args.get("cmd")
    if tool.name not in SHELL_TOOLS or not isinstance(text, str):
        return None
    return CommandFacts(text=text, parsed=None, world=SandboxWorld(Sandbox(has_block=False)), cwd="/")


def call_keys(
    tool: Tool, arguments: Arguments, plan: Plan | None, worker: str, names: DirectoryNames | None = None
) -> tuple[str, str]:
    """(fingerprint, args_key) of one call, from what was validated and planned."""
    args: dict[str, Any] = arguments.plain
    effects, further = (tool.effects, ()) if plan is None else (plan.effects, plan.targets)
    if plan is not None and plan.fingerprint_args is not None:
        args = plan.fingerprint_args
    return both_keys(
        tool=tool.name if tool.remote is None else f"{tool.remote.server}/{tool.remote.tool}",
        definition=tool.definition_digest,
        args=args,
        worker=worker,
        targets=targets_of(effects or (), further, names) if effects or further else (),
    )


class DecisionCache:
    def __init__(self) -> None:
        self._by_tool: dict[Tool, tuple[Evaluation, Any]] = {}
        """An evaluated call, and the tool's `needs_approval` that it was made with."""

    def get(self, tool: Tool, facts: CallFacts) -> Evaluation | None:
        if (found := self._by_tool.get(tool)) is None:
            return None
        before, needs_approval = found
        if before.facts.effects is not facts.effects or before.facts.worker != facts.worker:
            return None
        if facts.handed or facts.command is not None or needs_approval is not tool.needs_approval:
            return None
        return before if tool.definition_approved else None

    def put(self, tool: Tool, judged: Evaluation) -> None:
        decision, facts, outcome = judged.decision, judged.facts, judged.outcome
        unasked = decision.verdict is Verdict.PRE_APPROVED and decision.answered_by is AnsweredBy.NOBODY
        if not unasked or decision.risk_reasons:
            return
        if tool.source is not SourceKind.MCP or not facts.effects or facts.handed or callable(tool.needs_approval):
            return
        if outcome is None or not outcome.matched:
            self._by_tool[tool] = judged, tool.needs_approval

    def clear(self) -> None:
        self._by_tool.clear()


_DECIDING_ORDER: Final = ("floor", HOOK_SOURCE, "config", "rules", "mode", "base")


def computed_base(
    effects: tuple[Effect, ...], granted: Container[str] = (), *, of_several: bool = False
) -> VerdictSource:
    """`of_several`: the call has other effects, which decide nothing here."""
    worst: VerdictSource | None = None
    for effect in effects:
        verdict = base_verdict(effect, granted)
        if worst is None or is_stricter(verdict, worst.verdict):
            reason = _effect_reason(effect, verdict)
            if effect.zone_verdict is Verdict.ASK and (of_several or len(effects) > 1):
                reason = f"{reason} of {effect.quoted}"
            worst = VerdictSource(source="base", verdict=verdict, id=str(effect.verb), reason=reason)
    return worst or VerdictSource(source="base", verdict=Verdict.PRE_APPROVED, reason="it touches nothing")


def _naming_uncovered(
    tool: Tool,
    base: VerdictSource,
    bases: tuple[EffectVerdict, ...],
    outcome: RuleOutcome | None,
    granted: Container[str],
) -> VerdictSource:
    """Returns the same verdict, with the reason of an effect that no rule covers, where rules cover other effects of
    the call.

    Otherwise the card would name a part that the person's own rule allows.
    """
    if outcome is None or not outcome.hits or base.verdict is not Verdict.ASK or tool.source is not SourceKind.NATIVE:
        return base
    unmentioned = unmentioned_effects(outcome.hits, bases)
    left = [bases[index].effect for index in unmentioned or uncovered_effects(outcome.hits, bases)]
    if not left or len(left) == len(bases):
        return base
    if base is _STRICT and unmentioned:
        return replace(base, reason=f"{base.reason}; no rule covers {left[0].verb.value} {left[0].quoted}")
    if base is _STRICT or tool.needs_approval is not None:
        return base
    named = computed_base(tuple(left), granted, of_several=True)
    return named if named.verdict is base.verdict else base


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
    return f"{effect.verb.value} {effect.quoted} asks unless a rule allows it"


_DOING: Final = {"read": "Reading", "write": "Writing", "delete": "Deleting", "exec": "Running", "net": "Reaching"}
_ZONE_ASKS: Final = regex(r"zone (\S+) says ask for (read|write|delete)(?: of (.+))?")
_PART_ASKS: Final = regex(r"(exec|net) (.+ asks unless a rule allows it)", re.DOTALL)


def plain_reason(source: VerdictSource) -> str:
    """Returns the reason as a person reads it: `Writing in /workspace asks.` Journal and log keep the source and its
    own words.
    """
    if source.source == "floor":
        return source.reason
    return asking_words(source.source, source.reason) or source.describe()


def asking_words(source: str, reason: str) -> str:
    """`Writing in /workspace asks.`, `Running make asks unless a rule allows it.`; empty: it is something else that
    asks."""
    if source != "base":
        return ""
    if part := _PART_ASKS.fullmatch(reason):
        return f"{_DOING[part[1]]} {part[2]}."
    found = _ZONE_ASKS.fullmatch(reason)
    if found is None:
        return ""
    zone, verb, path = found.groups()
    return f"{_DOING[verb]} {path or f'in {zone}'} asks."


def rule_sources(outcome: RuleOutcome) -> list[VerdictSource]:
    """The strictest rules first: they are the ones that decide."""
    return [
        VerdictSource(
            source="rules", verdict=rule.verdict, id=rule.id, reason=rule.reason, file=rule.file, line=rule.line
        )
        for rule in sorted(outcome.matched, key=lambda rule: rule.verdict is not outcome.verdict)
    ]


def _not_contained(tool: Tool, facts: CallFacts, sources: list[VerdictSource]) -> Iterator[str]:
    """Why a call that asks is not one that the mode `contained` lets run; nothing: it is. What a person wrote by hand
    beats the mode, defaults do not."""
    if tool.source is SourceKind.MCP:
        yield f"'{tool.name}' is a tool of a server"
    if facts.effects is None:
        yield f"nobody knows what '{tool.name}' touches"
    elif not facts.native and all(effect.leaves is None for effect in facts.effects):
        yield f"'{tool.name}' only claims what it touches"
    for source in sources:
        if source.verdict is not Verdict.ASK:
            continue
        if source.source == "base" and tool.needs_approval is not None:
            yield source.reason
        elif source.source in ("config", "rules", HOOK_SOURCE):
            yield f"{source.describe()} says ask"
        elif source.source == "floor" and not stays_inside(source.id):
            yield source.reason
    for effect in facts.effects or ():
        yield from leaves_of(effect)


def floor_sources(
    tool: Tool, effects: tuple[Effect, ...], accepted: frozenset[str], granted: Container[str] = ()
) -> list[VerdictSource]:
    floors = [
        (id_, why)
        for effect in effects
        for id_, why in floors_of(effect, granted)
        if id_.removeprefix("danger:") not in accepted
    ]
    if not tool.definition_approved:
        floors.append(("definition_changed", f"this definition of '{tool.name}' was never approved"))
    return [VerdictSource(source="floor", verdict=Verdict.ASK, id=id_, reason=why) for id_, why in floors]


def deciding_source(
    verdict: Verdict, sources: list[VerdictSource], lifting: VerdictSource | None
) -> VerdictSource | None:
    if verdict is Verdict.PRE_APPROVED and lifting is not None:
        return lifting
    ordered = (source for kind in _DECIDING_ORDER for source in sources if source.source == kind)
    return next((source for source in ordered if source.verdict is verdict), sources[0])


def refusal_message(tool: str, decision: Decision) -> str:
    """Returns the error text for the caller if the verdict is `blocked`."""
    by = decision.decided_by
    if by is None or not by.reason:
        where = f" ({by.describe()})" if by else ""
        return f"'{tool}' is blocked by policy{where}."
    decided_by = " ".join(part for part in (by.source, by.id) if part)
    return f"'{tool}' is blocked: {by.reason} [{decided_by}{', ' + by.place if by.file else ''}]"


@dataclass(frozen=True, slots=True, kw_only=True)
class ParentPolicy:
    worker: str
    """The path of a parent worker, e.g. `main`."""
    blocks: ApprovalBlocks


def always_refused(judge: Judge, tool: Tool, sandbox: Sandbox | None) -> bool:
    own = tool.needs_approval
    if own == Verdict.BLOCKED.value:
        return True
    if any(source.verdict is Verdict.BLOCKED for source in judge.blocks.named(tool.name)):
        return True
    if judge.mode is not ApprovalMode.AUTO_DENY or (judge.rules is not None and not judge.rules.is_empty()):
        return False  # a rule may let some of its calls through
    if own is not None:
        return own is True or own in (Verdict.ASK, Verdict.BLOCKED)
    if tool.source is not SourceKind.NATIVE:
        return configured_base(tool.name, judge.blocks).verdict is not Verdict.PRE_APPROVED
    if tool.always is None or sandbox is None:
        return False
    return all(zone.verdict(tool.always) is not Verdict.PRE_APPROVED for zone in sandbox.zones.values())
