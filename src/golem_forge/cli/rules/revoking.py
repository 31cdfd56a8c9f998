"""`forge rules revoke`: removes "always" answers. What a person wrote by hand is pointed to, never rewritten."""

from __future__ import annotations

import os
from pathlib import Path

from golem_forge.cli.plain import complain, parser
from golem_forge.cli.rules import HELP
from golem_forge.config.home import ForgeHome, forge_home
from golem_forge.core.nearest import nearest
from golem_forge.policy.rules import Origin, Rule, revoke, revoke_all
from golem_forge.workers.approvals_in_force import open_book


def run_revoke(words: list[str]) -> int:
    reader = parser("rules revoke", HELP)
    reader.add_argument("ids", metavar="ID", nargs="*")
    reader.add_argument("--remembered", action="store_true")
    asked = reader.parse_args(words)
    if bool(asked.ids) == asked.remembered:
        complain("rules revoke", "give the IDs of rules, or --remembered for all remembered ones.")
        return 2
    home = forge_home()
    if asked.remembered:
        count = revoke_all(home) if os.path.lexists(home.remembered) else 0
        print(f"revoked {count} remembered {'rule' if count == 1 else 'rules'}.")
        return 0
    return _revoke(home, list(dict.fromkeys(asked.ids)))


def _revoke(home: ForgeHome, ids: list[str]) -> int:
    removed = revoke(home, ids) if os.path.lexists(home.remembered) else ()
    for id_ in removed:
        print(f"revoked {id_}.")
    if len(removed) == len(ids):
        return 0  # taking a permission back works whatever state the other files are in
    rules = [line.rule for line in open_book(home, Path.cwd()).list()]
    left = [rule for rule in rules if rule.id in ids]
    for rule in left:
        complain("rules revoke", _by_hand(rule, home))
    unknown = [id_ for id_ in ids if id_ not in removed and all(rule.id != id_ for rule in left)]
    for id_ in unknown:
        close = nearest(id_, (rule.id for rule in rules))
        hint = f" (did you mean {close}?)" if close else ""
        complain("rules revoke", f"no rule {id_}{hint}. `forge rules list` shows them.")
    return 1 if left or unknown else 0


def _by_hand(rule: Rule, home: ForgeHome) -> str:
    if rule.origin is Origin.BUILTIN:
        return f"{rule.id} is builtin; to drop it write `builtin_off: [{rule.id}]` in {home.shown(home.rules)}."
    return f"{rule.file}:{rule.line}: {rule.id} was written by hand; remove it there."
