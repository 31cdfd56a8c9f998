"""`forge people`: who may use the team's page and API, with which role; a token is shown once."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from typing import Any, Final

from golem_forge.cli.args import read_args
from golem_forge.cli.format import print_columns, print_json
from golem_forge.cli.team import fail_with, open_store
from golem_forge.core.text import one_line
from golem_forge.team.database import TeamError
from golem_forge.team.people import Role, TeamStore
from golem_forge.team.rows import QUEUED, RUNNING, WAITING
from golem_forge.team.shared_rules import rule_in_words

_ALL: Final = 1_000_000
HELP: Final = """usage: forge people add NAME --role none|viewer|operator|admin
       forge people list [--json]
       forge people remove NAME
       forge people refusals [--json]

  add       prints the token of a new person, once; only its hash is kept
  list      everybody, with their role
  remove    the token stops working at once, open pages included
  refusals  who tried what their role does not allow

      --role R   in all projects: viewer (default): sees sessions and questions; operator: also starts, answers, sends
                 and stops; admin: also manages people and the store's rules; none: nothing, but where
                 `forge projects grant` gives them a role
      --json     for programs"""


def run_people(words: list[str]) -> int:
    given = read_args("people", HELP, words, "VERB", "NAME?", f"--role {'|'.join(Role)}", "--json")
    if given.verb not in ("add", "list", "remove", "refusals") or (given.verb in ("add", "remove")) != bool(given.name):
        print(HELP, file=sys.stderr)
        return 2
    try:
        store = open_store()
        if given.verb == "list":
            _list(store.people(), given.json)
        elif given.verb == "refusals":
            _list_refusals(store.refusals(), given.json)
        elif given.verb == "remove":
            _remove(store, given.name)
        else:
            _add(store, given.name, Role(given.role or Role.VIEWER), given.json)
    except TeamError as error:
        return fail_with("people", error)
    return 0


def _add(store: TeamStore, name: str, role: Role, as_json: bool) -> None:
    token = store.new_person(name, role)
    if as_json:
        print_json({"name": name, "role": role.value, "token": token})
        return
    is_what = f"is {role.value}" if role is not Role.NONE else "has no role yet (`forge projects grant` gives one)"
    print(f"{name} {is_what}. Their token, shown only now:\n\n  {token}\n")
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
        print_json([{"name": each["name"], "role": each["role"], "createdAt": each["created"]} for each in people])
    elif not people:
        print("nobody yet; `forge people add NAME --role operator` adds somebody")
    else:
        rows = [(each["name"], each["role"], _day(each["created"])) for each in people]
        _print_table(("NAME", "ROLE", "SINCE"), rows)
        print("\nA viewer sees sessions and questions. An operator also starts, answers, sends, stops and schedules.")
        print("An admin also manages people and rules, and reads whole journals.")


def _list_refusals(refusals: list[dict[str, Any]], as_json: bool) -> None:
    if as_json:
        print_json(refusals)
    elif not refusals:
        print("nothing was refused")
    else:
        rows = [
            (_moment(each["at"]), each["person"], each["door"], each["action"], one_line(each["what"]))
            for each in refusals
        ]
        _print_table(("WHEN", "PERSON", "DOOR", "REFUSED", "WHAT"), rows)


def list_rules(*, as_json: bool) -> int:
    """`forge rules list --store`"""
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
    """`forge rules revoke ID… --store`"""
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


def _day(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).date().isoformat()


def _moment(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat(sep=" ", timespec="seconds").removesuffix("+00:00")
