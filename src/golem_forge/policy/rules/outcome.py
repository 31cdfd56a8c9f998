"""What all rules together say of one call: the strictest verdict, whether the consent covers the whole call, and which
floors the person accepted for it.

Cover: one matching preApproved `tool` or `mcp` rule; or, for native tools, a matching preApproved `command`, `path` or
`host` rule, or a base of preApproved, for every single effect. One uncovered effect, and nothing is lifted.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from golem_forge.core.effects import Effect, Mark, Verb
from golem_forge.core.verdict import Verdict, is_stricter, strictest
from golem_forge.policy.facts import CallFacts, EffectVerdict
from golem_forge.policy.rules.match import CallView, hits_of
from golem_forge.policy.rules.model import OBEYED_PATH, SECRET_PATH, Hit, Kind, Origin, Rule


@dataclass(frozen=True, slots=True)
class RuleOutcome:
    verdict: Verdict | None = None
    """None: no rule matched."""
    matched: tuple[Rule, ...] = ()
    """The strictest first."""
    covers: bool = False
    accepted: frozenset[str] = frozenset()
    """Danger ids, `secret_path` and `obeyed_path`, each only if accepted for every effect that carries it."""
    hits: tuple[Hit, ...] = ()

    @property
    def deciding(self) -> Rule | None:
        return self.matched[0] if self.matched else None


NO_RULES: Final = RuleOutcome()


def weigh_rules(rules: Iterable[Rule], facts: CallFacts, bases: tuple[EffectVerdict, ...]) -> RuleOutcome:
    view = CallView(facts)
    hits = tuple(hit for rule in rules for hit in hits_of(rule, view))
    if not hits:
        return NO_RULES
    verdict = strictest(hit.rule.verdict for hit in hits)
    allowing = [hit for hit in hits if hit.rule.verdict is Verdict.PRE_APPROVED]
    return RuleOutcome(
        verdict=verdict,
        matched=_strictest_first(hits),
        covers=_covers(allowing, view, bases),
        accepted=_accepted(allowing, facts.effects or ()),
        hits=hits,
    )


def _strictest_first(hits: tuple[Hit, ...]) -> tuple[Rule, ...]:
    ordered: list[Rule] = []
    for rule in dict.fromkeys(hit.rule for hit in hits):
        place = next((i for i, other in enumerate(ordered) if is_stricter(rule.verdict, other.verdict)), len(ordered))
        ordered.insert(place, rule)
    return tuple(ordered)


def _covers(allowing: list[Hit], view: CallView, bases: tuple[EffectVerdict, ...]) -> bool:
    if any(hit.rule.kind in (Kind.TOOL, Kind.MCP) for hit in allowing):
        return True
    facts = view.facts
    if not allowing or not facts.native or not facts.effects or len(bases) != len(facts.effects):
        return False
    if facts.command is not None and not view.segments:  # opaque, or effects that do not belong to its segments
        return False
    covered = {hit.index for hit in allowing}
    return all(index in covered or said.base is Verdict.PRE_APPROVED for index, said in enumerate(bases))


def _accepted(allowing: list[Hit], effects: tuple[Effect, ...]) -> frozenset[str]:
    """Only the person's own file can accept. An id stays a floor while one effect carries it unaccepted."""
    given: dict[int, set[str]] = {}
    for hit in allowing:
        if hit.rule.accept and hit.rule.origin is Origin.USER:
            given.setdefault(hit.index, set()).update(hit.rule.accept)
    if not given:
        return frozenset()
    carried: dict[str, list[int]] = {}
    for index, effect in enumerate(effects):
        for danger in effect.dangers:
            carried.setdefault(danger, []).append(index)
        if Mark.SECRET_PATH in effect.marks and effect.verb is Verb.READ:
            carried.setdefault(SECRET_PATH, []).append(index)
        if Mark.OBEYED_PATH in effect.marks:
            carried.setdefault(OBEYED_PATH, []).append(index)
    return frozenset(id_ for id_, indexes in carried.items() if all(id_ in given.get(index, ()) for index in indexes))
