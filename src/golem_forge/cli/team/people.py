"""`forge people`: who may use the team's page and API, with which role; a token is shown once."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Final

from golem_forge.cli.args import read_args
from golem_forge.cli.format import fail, print_columns, print_json
from golem_forge.cli.team import fail_with, open_store
from golem_forge.config.schema import time_span
from golem_forge.core.text import one_line
from golem_forge.team.database import TeamError
from golem_forge.team.people import TOKEN_LASTS_S, Role, TeamStore
from golem_forge.team.rows import QUEUED, RUNNING, WAITING
from golem_forge.team.shared_rules import rule_in_words

_ALL: Final = 1_000_000
HELP: Final = """usage: forge people add NAME --role none|viewer|operator|admin [--expires 90d]
       forge people rotate NAME [--expires 90d]
       forge people list [--json]
       forge people remove | restore NAME
       forge people refusals [--json]

  add       prints the token of a new person, once; only its hash is kept
  rotate    prints a new token of theirs; the old one stops working at once, open pages included
  list      everybody, with their role and the day on which their token expires
  remove    the token stops working at once, open pages included; somebody who signs in with OpenID Connect is not let
            in any more
  restore   lets somebody in again who signs in with OpenID Connect and was removed
  refusals  who tried what they may not: a role, a token that is not valid (any more)

      --role R     in all projects: viewer (default): sees sessions and questions; operator: also starts, answers,
                   sends and stops; admin: also manages people and the store's rules; none: nothing, but where
                   `forge projects grant` gives them a role
      --expires T  add, rotate: after this time the token stops working, e.g. 12h or 30d (default: 90d), or never
      --json       for programs"""
_VERBS: Final = {"add": True, "rotate": True, "remove": True, "restore": True, "list": False, "refusals": False}
"""Verb → whether it is about one person."""


def run_people(words: list[str]) -> int:
    declared = ("VERB", "NAME?", f"--role {'|'.join(Role)}", "--expires T", "--json")
    given = read_args("people", HELP, words, *declared)
    if _VERBS.get(given.verb) is not bool(given.name):
        print(HELP, file=sys.stderr)
        return 2
    expires_in = _expiry(given.expires)
    if expires_in is None:
        return fail("people", f"--expires {one_line(given.expires)[:40]}: write a time like 12h or 90d, or never", 2)
    try:
        store = open_store()
        if given.verb == "list":
            _list(store.people(), given.json)
        elif given.verb == "refusals":
            _list_refusals(store.refusals(), given.json)
        elif given.verb == "remove":
            _remove(store, given.name)
        elif given.verb == "restore":
            store.restore_person(given.name)
            print(f"{given.name} can sign in again; the groups of the provider say with which role")
        elif given.verb == "rotate":
            _print_token(given.name, "", store.rotate_token(given.name, expires_in), given.json)
        else:
            role = Role(given.role or Role.VIEWER)
            _print_token(given.name, role.value, store.new_person(given.name, role, expires_in), given.json)
    except TeamError as error:
        return fail_with("people", error)
    return 0


def _expiry(given: str | None) -> float | None:
    """Returns seconds; 0 means never, None means that it is no time."""
    if given is None:
        return TOKEN_LASTS_S
    return 0.0 if given == "never" else time_span(given)


def _print_token(name: str, role: str, token: str, as_json: bool) -> None:
    if as_json:
        print_json({"name": name} | ({"role": role} if role else {}) | {"token": token})
        return
    is_what = "has no role yet (`forge projects grant` gives one)" if role == Role.NONE else f"is {role}"
    what = f"{name} {is_what}. Their token" if role else f"The old token of {name} does not work any more. The new one"
    print(f"{what}, shown only now:\n\n  {token}\n")
    print("They type it on the team's page (`forge web --team`), or set FORGE_TEAM_TOKEN for `forge ps`, `inbox` …")


def _remove(store: TeamStore, name: str) -> None:
    # Counted first: whoever removes themselves sees nothing afterwards.
    sessions = sum(row.person == name for row in store.sessions(states=(QUEUED, RUNNING, WAITING), limit=_ALL))
    schedules = sum(row.person == name and bool(row.by_role) for row in store.schedules())
    store.remove_person(name)
    print(f"{name} is removed; their token does not work any more")
    if sessions or schedules:
        print(f"{name}'s sessions go on ({sessions} open); their schedules start nothing any more ({schedules})")


def _list(people: list[dict[str, Any]], as_json: bool) -> None:
    if as_json:
        names = {"name": "name", "role": "role", "createdAt": "created", "expiresAt": "expires", "issuer": "issuer"}
        print_json([{shown: each[name] for shown, name in names.items()} for each in people])
    elif not people:
        print("nobody yet; `forge people add NAME --role operator` adds somebody")
    else:
        rows = [(each["name"], each["role"], _day(each["created"]), _ends(each)) for each in people]
        _print_table(("NAME", "ROLE", "SINCE", "TOKEN EXPIRES"), rows)
        print("\nA viewer sees sessions and questions. An operator also starts, answers, sends, stops and schedules.")
        print("An admin also manages people and rules, and reads whole journals.")


def _list_refusals(refusals: list[dict[str, Any]], as_json: bool) -> None:
    if as_json:
        print_json(refusals)
    elif not refusals:
        print("nothing was refused")
    else:
        rows = [
            (_moment(each["at"]), each["person"] or "-", each["door"], each["action"], one_line(each["what"]))
            for each in refusals
        ]
        _print_table(("WHEN", "PERSON", "DOOR", "REFUSED", "WHAT"), rows)


def list_rules(*, as_json: bool) -> int:
    """Runs `forge rules list --store`."""
    try:
        rules = open_store().rules()
    except TeamError as error:
        return fail_with("rules", error)
    if as_json:
        print_json(rules)
    elif not rules:
        print("the store has no rules; an admin makes one by an answer that is remembered always")
    else:
        rows = [
            (each["id"], each["person"] or "-", _day(each["created"]), rule_in_words(each["rule"])) for each in rules
        ]
        _print_table(("ID", "MADE BY", "SINCE", "RULE"), rows)
    return 0


def revoke_rules(ids: Sequence[str]) -> int:
    """Runs `forge rules revoke ID… --store`."""
    try:
        store = open_store()
        for each in dict.fromkeys(ids):
            store.remove_rule(each)
            print(f"revoked {one_line(each)}: Forge asks again, on every runner")
    except TeamError as error:
        return fail_with("rules", error)
    return 0


def _print_table(head: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> None:
    def table() -> Iterator[tuple[str, ...]]:
        yield head
        yield from rows

    print_columns(table)


def _ends(person: Mapping[str, Any]) -> str:
    if person["issuer"]:
        return f"signs in at {one_line(person['issuer'])}"
    return _day(person["expires"]) if person["expires"] else "never"


def _day(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).date().isoformat()


def _moment(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat(sep=" ", timespec="seconds").removesuffix("+00:00")
