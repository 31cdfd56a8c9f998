"""Offers: what a person may choose to have remembered, one line each: this rule, for this long, in this file."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from golem_forge.policy.rules import Choice, Keeps, Rule


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

    def to_wire(self) -> dict[str, Any]:
        wire: dict[str, Any] = {"id": self.id, "label": self.label, "scope": self.scope}
        if self.rules:
            wire["rule"] = "; ".join(rule.describe() for rule in self.rules)
        if self.file:
            wire["file"] = self.file
        return wire


def offers_from(choices: Iterable[Choice]) -> tuple[Offer, ...]:
    """Narrow to wide; a choice that can be kept for the session or for good becomes two offers."""
    return tuple(
        Offer(
            id=f"{choice.id}:{lifetime}",
            label=choice.label,
            scope=lifetime,
            exact=choice.keeps is Keeps.FINGERPRINT,
            rules=choice.kept(lifetime),
            grant=choice.grant,
            file=choice.file if lifetime == "always" else "",
        )
        for choice in choices
        for lifetime in choice.lifetimes
    )
