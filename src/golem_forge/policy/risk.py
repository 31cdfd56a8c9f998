"""Risk: of each effect of a call its base verdict, its risk, its floors, and whether walls and undo contain it.

A floor is something that always needs a person. Only `danger:<id>`, `secret_path` and `obeyed_path` can be accepted by
a rule, and only by name in the person's own rules file.
"""

from __future__ import annotations

from collections.abc import Container, Iterator
from itertools import zip_longest
from typing import Final

from golem_forge.core.decisions import Risk, Verdict, highest_risk
from golem_forge.core.effects import AtMost, Effect, Mark, Verb, Walled
from golem_forge.core.lazy_dataclass import dataclass
from golem_forge.policy.shell.dangers import DANGER_SIDES, Side
from golem_forge.policy.shell.strict import (
    Opaque,
    parse_strict,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class EffectVerdict:
    effect: Effect
    base: Verdict


_CRITICAL_MARKS: Final = frozenset(
    {Mark.PROTECTED_PATH, Mark.SECRET_PATH, Mark.OUTSIDE_ZONE, Mark.DANGER, Mark.NO_WALLS}
)


_VERB_RISK: Final = {
    Verb.READ: Risk.LOW,
    Verb.WRITE: Risk.MEDIUM,
    Verb.DELETE: Risk.HIGH,
    Verb.EXEC: Risk.HIGH,
    Verb.NET: Risk.HIGH,
    Verb.SPAWN: Risk.MEDIUM,
}


_LIMITED_RISK: Final = {AtMost.READS: Risk.LOW, AtMost.WRITES: Risk.MEDIUM}


_HIGH_MARKS: Final = frozenset({Mark.OBEYED_PATH, Mark.OPAQUE, Mark.DESTRUCTIVE})


_FLOOR_REASONS: Final = {
    Mark.PROTECTED_PATH: "{target} is protected: other programs run or obey what is in it",
    Mark.SECRET_PATH: "{target} looks like a secret",
    Mark.OBEYED_PATH: "other programs read {target} and obey it on their own",
    Mark.OUTSIDE_ZONE: "{target} {does} outside every zone",
    Mark.DESTRUCTIVE: "{target} says that this tool destroys or overwrites",
    Mark.NO_WALLS: "NO WALLS: {because}",
}


_SWITCHED_OFF: Final = "the command would run without isolation"


ANY_WALLED: Final = "any command inside the walls"


"""The session grant that covers every effect with `Walled.OFFERED`."""


def base_verdict(effect: Effect, granted: Container[str] = ()) -> Verdict:
    """`granted`: what a person allowed this worker for the session, in the words of the choice they made."""
    if effect.zone_verdict is not None:
        return effect.zone_verdict
    if effect.said is not None:
        return effect.said
    if effect.walled is Walled.GIVEN or (grant_of(effect) and grant_of(effect) in granted):
        return Verdict.PRE_APPROVED
    if effect.verb is Verb.READ or effect.proven:
        return Verdict.PRE_APPROVED
    return Verdict.ASK


def grant_of(effect: Effect) -> str:
    """The session grant that would cover this effect; empty if there is none."""
    return ANY_WALLED if effect.walled is Walled.OFFERED else effect.grant


def risk_of(effect: Effect) -> Risk:
    """Returns the risk of an effect: by its marks, then by its declared limit, then by the worst that
    its verb can do.
    """
    if not _CRITICAL_MARKS.isdisjoint(effect.marks):
        return Risk.CRITICAL
    if not _HIGH_MARKS.isdisjoint(effect.marks) and not _is_contained_text(effect):
        return Risk.HIGH
    if effect.proven and effect.verb is Verb.EXEC:
        return Risk.LOW  # its reads are effects of their own
    return _VERB_RISK[effect.verb] if effect.at_most is None else _LIMITED_RISK[effect.at_most]


def risk_of_all(effects: tuple[Effect, ...] | None) -> Risk:
    """Returns the highest risk of the effects; HIGH if they are unknown (None)."""
    return Risk.HIGH if effects is None else highest_risk(risk_of(effect) for effect in effects)


def leaves_of(effect: Effect) -> tuple[str, ...]:
    """Why this effect is not contained; empty: it is. What only reads inside the zones is, whoever looked."""
    if effect.leaves is not None:
        return effect.leaves
    reads = effect.verb is Verb.READ and effect.zone_verdict is Verdict.PRE_APPROVED
    if reads or effect.proven or effect.at_most is AtMost.READS:
        return ()
    if effect.verb is Verb.NET:
        return (f"it reaches {effect.quoted}",)
    return (f"this mode does not cover {effect.verb.value} {effect.quoted}",)


def stays_inside(floor: str) -> bool:
    """Whether full walls and undo protect against what this floor is about."""
    return floor == Mark.OPAQUE or DANGER_SIDES.get(floor.removeprefix("danger:")) is Side.INSIDE


def _is_contained_text(effect: Effect) -> bool:
    """A text that nobody can read, in walls that nothing leaves, over zones that can be brought back."""
    return effect.leaves == () and effect.verb is Verb.EXEC and effect.marks == (Mark.OPAQUE,)


def floors_of(effect: Effect, granted: Container[str] = ()) -> Iterator[tuple[str, str]]:
    """(floor id, why) for each fact that needs a person. A text that cannot be read needs none where it is contained,
    or where a person allowed this worker any command inside the walls."""
    readable = _is_contained_text(effect) or (effect.walled is Walled.OFFERED and ANY_WALLED in granted)
    for mark in effect.marks:
        if mark is Mark.OPAQUE and readable:
            continue
        if mark is Mark.DANGER:
            for danger, part in zip_longest(effect.dangers, effect.danger_parts[: len(effect.dangers)]):
                yield f"danger:{danger}", f"{part or effect.quoted!r} is on the danger list ({danger})"
        elif mark is Mark.OPAQUE:
            parsed = parse_strict(effect.target)
            why = f"it has {parsed.reason}" if isinstance(parsed, Opaque) else "what it stands for is not known"
            yield mark.value, f"the command cannot be checked: {why}"
        elif mark in _FLOOR_REASONS:
            does = "reaches" if effect.verb is Verb.EXEC else "is"
            because = effect.no_walls_because or _SWITCHED_OFF
            yield mark.value, _FLOOR_REASONS[mark].format(target=effect.quoted, does=does, because=because)
