"""`forge rules list`: every rule there is, where it comes from, and whether it acts."""

from __future__ import annotations

from itertools import chain
from pathlib import Path
from typing import Any, Final

from golem_forge.cli.log.states import local_time
from golem_forge.cli.plain import complain, parser, print_columns, print_json_list
from golem_forge.cli.rules import HELP
from golem_forge.config.home import forge_home
from golem_forge.policy.rules import RuleLine
from golem_forge.policy.rules.usage import Usage, rule_usage
from golem_forge.workers.approvals_in_force import open_book

_HEAD: Final = ("ID", "SOURCE", "VERDICT", "HITS", "LAST USED", "MATCHES", "SCOPE", "")
_NEVER: Final = Usage()


def run_list(words: list[str]) -> int:
    reader = parser("rules list", HELP)
    reader.add_argument("--json", action="store_true")
    asked = reader.parse_args(words)
    home = forge_home()
    book = open_book(home, Path.cwd())
    used = rule_usage(home.path)
    if asked.json:
        print_json_list(_as_json(line, used.get(line.rule.id, _NEVER)) for line in book.lines())
        return 0
    print_columns(lambda: chain([_HEAD], (_row(line, used.get(line.rule.id, _NEVER)) for line in book.lines())))
    for notice in book.notices:
        complain("rules", notice)
    return 0


def _row(line: RuleLine, usage: Usage) -> tuple[str, ...]:
    rule = line.rule
    return (
        rule.id,
        rule.origin.value,
        rule.verdict.value,
        str(usage.hits),
        local_time(usage.last) if usage.last else "never",
        rule.describe(),
        rule.scope.describe(),
        f"inactive: {line.inactive}" if line.inactive else "",
    )


def _as_json(line: RuleLine, usage: Usage) -> dict[str, Any]:
    return line.to_json() | {"hits": usage.hits, "lastUsed": usage.last or None, "rule": line.rule.to_yaml()}
