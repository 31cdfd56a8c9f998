"""Rules: what a person has decided once, so that nobody asks again, or never lets through."""

from __future__ import annotations

from golem_forge.policy.rules.book import RuleBook, RuleLine, RuleSet
from golem_forge.policy.rules.choices import Choice, Keeps, choices
from golem_forge.policy.rules.load import RuleFile, make_rule, parse_rules
from golem_forge.policy.rules.model import Hit, Kind, Origin, Rule, Scope
from golem_forge.policy.rules.outcome import NO_RULES, RuleOutcome
from golem_forge.policy.rules.remembered import remember, revoke, revoke_all
from golem_forge.policy.rules.sources import RulesUnusable

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
