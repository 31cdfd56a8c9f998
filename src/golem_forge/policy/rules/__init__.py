"""Rules: what a person has decided once, so that nobody asks again, or never lets through.

Everything is loaded when first used: a session without rules files pays for none of the parsing.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from golem_forge.policy.rules.book import RuleBook, RuleLine, RuleSet
    from golem_forge.policy.rules.choosing import Choice, Keeps, choices
    from golem_forge.policy.rules.load import make_rule, parse_rules
    from golem_forge.policy.rules.model import Hit, Kind, Origin, Rule, RuleFile, Scope
    from golem_forge.policy.rules.outcome import NO_RULES, RuleOutcome
    from golem_forge.policy.rules.remembered import remember, revoke, revoke_all
    from golem_forge.policy.rules.sources import RulesUnusable

_HOMES = {
    "book": ("RuleBook", "RuleLine", "RuleSet"),
    "choosing": ("Choice", "Keeps", "choices"),
    "load": ("make_rule", "parse_rules"),
    "model": ("Hit", "Kind", "Origin", "Rule", "RuleFile", "Scope"),
    "outcome": ("NO_RULES", "RuleOutcome"),
    "remembered": ("remember", "revoke", "revoke_all"),
    "sources": ("RulesUnusable",),
}
_HOME_OF = {name: module for module, exported in _HOMES.items() for name in exported}

__all__ = [
    "NO_RULES",
    "Choice",
    "Hit",
    "Keeps",
    "Kind",
    "Origin",
    "Rule",
    "RuleBook",
    "RuleFile",
    "RuleLine",
    "RuleOutcome",
    "RuleSet",
    "RulesUnusable",
    "Scope",
    "choices",
    "make_rule",
    "parse_rules",
    "remember",
    "revoke",
    "revoke_all",
]


def __getattr__(name: str) -> Any:
    if name not in _HOME_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(f"{__name__}.{_HOME_OF[name]}"), name)
    globals()[name] = value
    return value
