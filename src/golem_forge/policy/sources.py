"""What each source of a Decision says, and which of them decided. Pure.

Takes effects, a tool, the outcome of the rules; gives Sources with the reason in words. `Judge.weigh` combines them.
"""

from __future__ import annotations

from collections.abc import Container
from typing import Final

from golem_forge.core.decision import Decision, Source
from golem_forge.core.effects import Effect, Verb
from golem_forge.core.verdict import Verdict, is_stricter
from golem_forge.policy.effects import ANY_WALLED, base_verdict, floors_of, grant_of
from golem_forge.policy.rules import RuleOutcome
from golem_forge.tools.tool import Tool

_SPOKEN_FIRST: Final = ("floor", "config", "rules", "mode", "base")


def computed_base(effects: tuple[Effect, ...], granted: Container[str] = ()) -> Source:
    worst: Source | None = None
    for effect in effects:
        verdict = base_verdict(effect, granted)
        if worst is None or is_stricter(verdict, worst.verdict):
            worst = Source(source="base", verdict=verdict, id=str(effect.verb), reason=_why(effect, verdict))
    return worst or Source(source="base", verdict=Verdict.PRE_APPROVED, reason="it touches nothing")


def _why(effect: Effect, verdict: Verdict) -> str:
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


def rule_sources(outcome: RuleOutcome) -> list[Source]:
    """The strictest rules first: they are the ones that decide."""
    rules = [rule for rule in outcome.matched if rule.verdict is outcome.verdict]
    rules += [rule for rule in outcome.matched if rule.verdict is not outcome.verdict]
    return [
        Source(source="rules", verdict=rule.verdict, id=rule.id, reason=rule.reason, file=rule.file, line=rule.line)
        for rule in rules
    ]


def floors_under(
    tool: Tool, effects: tuple[Effect, ...], accepted: frozenset[str]
) -> tuple[list[Source], tuple[str, ...]]:
    floors: list[Source] = []
    for effect in effects:
        for id_, why in floors_of(effect):
            if id_.removeprefix("danger:") not in accepted:
                floors.append(Source(source="floor", verdict=Verdict.ASK, id=id_, reason=why))
    if not tool.definition_approved:
        floors.append(
            Source(
                source="floor",
                verdict=Verdict.ASK,
                id="definition_changed",
                reason=f"this definition of '{tool.name}' was never approved",
            )
        )
    return floors, tuple(dict.fromkeys(floor.reason for floor in floors))


def deciding_source(verdict: Verdict, sources: list[Source], lifting: Source | None) -> Source | None:
    if verdict is Verdict.PRE_APPROVED and lifting is not None:
        return lifting
    for kind in _SPOKEN_FIRST:
        for source in sources:
            if source.source == kind and source.verdict is verdict:
                return source
    return sources[0]


def refusal(tool: str, decision: Decision) -> str:
    """What the caller reads when the verdict is `blocked`."""
    by = decision.decided_by
    if by is None or not by.reason:
        where = f" ({by.describe()})" if by else ""
        return f"'{tool}' is blocked by policy{where}."
    said_by = " ".join(part for part in (by.source, by.id) if part)
    return f"'{tool}' is blocked: {by.reason} [{said_by}{', ' + by.place if by.file else ''}]"
