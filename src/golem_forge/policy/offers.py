"""Offers: what a person may choose to have remembered, one line each: this rule, for this long, in this file."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final

from golem_forge.policy.rules import Choice, Keeps, Rule

MOST_OFFERS: Final = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Offer:
    id: str
    label: str
    scope: str
    """`session` or `always`."""
    exact: bool
    """True: this exact call is kept by its fingerprint, no rule is made."""
    rules: tuple[Rule, ...] = ()
    grant: str = ""
    """What the worker may do from now on in this session; no rule is made."""
    file: str = ""
    rule: str = ""
    """The rules in words, for people."""

    def to_wire(self) -> dict[str, Any]:
        wire: dict[str, Any] = {"id": self.id, "label": self.label, "scope": self.scope}
        if self.rule:
            wire["rule"] = self.rule
        if self.file:
            wire["file"] = self.file
        return wire


def offers_from(choices: Iterable[Choice]) -> tuple[Offer, ...]:
    """Narrow to wide; a choice that can be kept for the session or for good becomes two offers, if there is room.

    Every choice is offered once before one is offered twice. For good, a rule comes before an exact command, which is
    seldom given again word for word.
    """
    wanted = [(choice, lifetime) for choice in choices for lifetime in choice.lifetimes]
    by_worth = sorted(wanted, key=lambda each: _worth(*each))[:MOST_OFFERS]
    return tuple(_offer(choice, lifetime) for choice, lifetime in wanted if (choice, lifetime) in by_worth)


def _worth(choice: Choice, lifetime: str) -> tuple[bool, bool]:
    second = lifetime != choice.lifetimes[0]
    return second, second and choice.keeps is Keeps.FINGERPRINT


def _offer(choice: Choice, lifetime: str) -> Offer:
    rules = choice.kept(lifetime)
    return Offer(
        id=f"{choice.id}:{lifetime}",
        label=choice.label,
        scope=lifetime,
        exact=choice.keeps is Keeps.FINGERPRINT and lifetime == "session",
        rules=rules,
        grant=choice.grant,
        file=choice.file if lifetime == "always" else "",
        rule="; ".join(rule.describe() for rule in rules),
    )
