"""From facts to consent: the base verdict, the risk and the floors of one effect.

A floor is something that always needs a person. Only `danger:<id>`, `secret_path` and `obeyed_path` can be accepted by
a rule, and only by name in the person's own rules file.
"""

from __future__ import annotations

from collections.abc import Container, Iterator
from typing import Final

from golem_forge.core.effects import AtMost, Effect, Mark, Verb, Walled
from golem_forge.core.verdict import Risk, Verdict, highest
from golem_forge.policy.shell import Opaque, parse_strict

_CRITICAL: Final = frozenset({Mark.PROTECTED_PATH, Mark.SECRET_PATH, Mark.OUTSIDE_ZONE, Mark.DANGER, Mark.NO_WALLS})
_RISK: Final = {
    Verb.READ: Risk.LOW,
    Verb.WRITE: Risk.MEDIUM,
    Verb.DELETE: Risk.HIGH,
    Verb.EXEC: Risk.HIGH,
    Verb.NET: Risk.HIGH,
    Verb.SPAWN: Risk.MEDIUM,
}
_LIMITED: Final = {AtMost.READS: Risk.LOW, AtMost.WRITES: Risk.MEDIUM}
_HIGH: Final = frozenset({Mark.OBEYED_PATH, Mark.OPAQUE, Mark.DESTRUCTIVE})

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
    """How bad it could be: what is marked, then what limits it, then what such a thing could do at worst."""
    if not _CRITICAL.isdisjoint(effect.marks):
        return Risk.CRITICAL
    if not _HIGH.isdisjoint(effect.marks):
        return Risk.HIGH
    if effect.proven and effect.verb is Verb.EXEC:
        return Risk.LOW  # its reads are effects of their own
    return _RISK[effect.verb] if effect.at_most is None else _LIMITED[effect.at_most]


def risk_of_all(effects: tuple[Effect, ...] | None) -> Risk:
    """None: nobody knows what the call touches."""
    return Risk.HIGH if effects is None else highest(risk_of(effect) for effect in effects)


def floors_of(effect: Effect) -> Iterator[tuple[str, str]]:
    """(floor id, why) for each fact that always needs a person."""
    for mark in effect.marks:
        if mark is Mark.DANGER:
            for danger in effect.dangers:
                yield f"danger:{danger}", f"{effect.target!r} is on the danger list ({danger})"
        elif mark is Mark.PROTECTED_PATH:
            yield mark.value, f"{effect.target} is protected: other programs run or obey what is in it"
        elif mark is Mark.SECRET_PATH:
            yield mark.value, f"{effect.target} looks like a secret"
        elif mark is Mark.OBEYED_PATH:
            yield mark.value, f"other programs obey {effect.target} without being told to"
        elif mark is Mark.OUTSIDE_ZONE:
            reaches = "reaches" if effect.verb is Verb.EXEC else "is"
            yield mark.value, f"{effect.target} {reaches} outside every zone"
        elif mark is Mark.OPAQUE:
            yield mark.value, f"the command cannot be checked: {_unreadable(effect.target)}"
        elif mark is Mark.DESTRUCTIVE:
            yield mark.value, f"{effect.target} says that this tool destroys or overwrites"
        elif mark is Mark.NO_WALLS:
            yield mark.value, "NO WALLS: the command would run without isolation"


def _unreadable(command: str) -> str:
    parsed = parse_strict(command)
    if not isinstance(parsed, Opaque):
        return "what it stands for is not known"
    return f"it has {parsed.reason}"
