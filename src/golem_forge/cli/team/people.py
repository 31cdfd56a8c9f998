"""`forge people`, `forge projects` and `forge secrets`: who belongs to a team, and what each project grants and holds.

`people`: who may use the team's page and API, with which role; a token is shown once. `projects`: the programs of the
store as projects, who has which role in each, and groups of people. `secrets`: secrets of a project, sealed here for
the runners; the team's page and database cannot open them. The store judges who may do what (`team/people.py`).
"""

from __future__ import annotations

import getpass
import sys
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from golem_forge.cli.command import USAGE, fail, print_json, read_args
from golem_forge.cli.team import account_name, fail_with, open_store, own_store
from golem_forge.config.program import program_root
from golem_forge.config.validation import time_span
from golem_forge.core.text import columns, one_line
from golem_forge.storage.home import forge_home
from golem_forge.team.accounts import rule_in_words
from golem_forge.team.audit import Actor
from golem_forge.team.database import TeamError
from golem_forge.team.people import ALL_PROJECTS, TOKEN_LASTS_S, Role, TeamStore
from golem_forge.team.project_secrets import fingerprint, make_key, seal, secret_name
from golem_forge.team.projects import GROUP_MARK, Project
from golem_forge.team.quotas import EACH, EVERYBODY, NO_LIMIT
from golem_forge.team.rows import QUEUED, RUNNING, WAITING, program_id

_ALL: Final = 1_000_000
PEOPLE_HELP: Final = """usage: forge people add NAME --role none|viewer|operator|admin [--expires 90d]
       forge people rotate NAME [--expires 90d]
       forge people list [--json]
       forge people remove | restore NAME
       forge people refusals [--json]

  add       prints the token of a new person, once; only its hash is kept
  rotate    prints a new token of theirs; the old one stops working at once, open pages included; somebody who signs in
            with OpenID Connect has it besides, for the command line
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
_PEOPLE_VERBS: Final = {"add": True, "rotate": True, "remove": True, "restore": True, "list": False, "refusals": False}
"""Verb → whether it is about one person."""


def run_people(words: list[str]) -> int:
    declared = ("VERB", "NAME?", f"--role {'|'.join(Role)}", "--expires T", "--json")
    given = read_args("people", PEOPLE_HELP, words, *declared)
    if _PEOPLE_VERBS.get(given.verb) is not bool(given.name):
        print(PEOPLE_HELP, file=sys.stderr)
        return 2
    expires_in = _expiry(given.expires)
    if expires_in is None:
        return fail("people", f"--expires {one_line(given.expires)[:40]}: write a time like 12h or 90d, or never", 2)
    store = open_store()
    if given.verb == "list":
        _list_people(store.people(), given.json)
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


def _list_people(people: list[dict[str, Any]], as_json: bool) -> None:
    if as_json:
        names = {"name": "name", "role": "role", "createdAt": "created", "expiresAt": "expires", "issuer": "issuer"}
        print_json([{shown: each[name] for shown, name in names.items()} for each in people])
    elif not people:
        print("nobody yet; `forge people add NAME --role operator` adds somebody")
    else:
        rows = ((each["name"], each["role"], _day(each["created"]), _ends(each)) for each in people)
        print(columns([("NAME", "ROLE", "SINCE", "TOKEN EXPIRES"), *rows]))
        print("\nA viewer sees sessions and questions. An operator also starts, answers, sends, stops and schedules.")
        print("An admin also manages people and rules, and reads whole journals.")


def _list_refusals(refusals: list[dict[str, Any]], as_json: bool) -> None:
    rows = [
        (_moment(each["at"]), each["person"] or "-", each["door"], each["action"], each["what"]) for each in refusals
    ]
    _show(refusals, "nothing was refused", ("WHEN", "PERSON", "DOOR", "REFUSED", "WHAT"), rows, as_json)


def list_rules(*, as_json: bool) -> int:
    """Runs `forge rules list --store`."""
    try:
        rules = open_store().rules()
    except TeamError as error:
        return fail_with("rules", error)
    nothing = "the store has no rules; an admin makes one by an answer that is remembered always"
    rows = [(each["id"], each["person"] or "-", _day(each["created"]), rule_in_words(each["rule"])) for each in rules]
    _show(rules, nothing, ("ID", "MADE BY", "SINCE", "RULE"), rows, as_json)
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


def _show(
    raw: list[dict[str, Any]], nothing: str, head: tuple[str, ...], rows: Sequence[tuple[str, ...]], as_json: bool
) -> None:
    """Prints a list as JSON (`raw`) or as a table; `nothing` says that it is empty, and how to begin."""
    if as_json:
        print_json(raw)
    elif not raw:
        print(nothing)
    else:
        print(columns([head, *rows]))


def _ends(person: Mapping[str, Any]) -> str:
    if person["issuer"]:
        token = f", token until {_day(person['expires'])}" if person["expires"] else ""
        return f"signs in at {one_line(person['issuer'])}{token}"
    return _day(person["expires"]) if person["expires"] else "never"


def _day(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).date().isoformat()


def _moment(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat(sep=" ", timespec="seconds").removesuffix("+00:00")


PROJECTS_HELP: Final = """usage: forge projects list [--json]
       forge projects add DIR
       forge projects rename PROJECT NAME
       forge projects grant PROJECT WHO --role none|viewer|operator|admin
       forge projects quotas [--json]
       forge projects quota PROJECT [WHO] [--cost USD] [--sessions N]
       forge projects groups [--json]
       forge projects join GROUP PERSON
       forge projects leave GROUP PERSON

A project is a program of the store: a directory on a machine. It is there once a session was started in it.

  list    the projects that you may see; with who has a role in them, for their admins
  add     the program of a directory on this machine, before its first session; needs the database itself
  rename  another name for it
  grant   gives a person, or a group written @NAME, a role in one project; `none` takes it back. The role of
          `forge people add` counts in all projects; the highest one counts
  quotas  what may be spent and started in a day (UTC), with what was used today
  quota   sets that for a project, or for `all` of them: for everybody together, for WHO, or with WHO `each` for every
          person; a session that would start, and a request that would spend beyond it, is refused. Without --cost
          and --sessions the quota is taken away
  groups  the groups, with their people
  join    puts a person into a group, and makes the group where there is none
  leave   takes a person out of a group

      --role R   viewer: sees its sessions and questions; operator: also starts, answers, sends and stops there;
                 admin: also gives roles in it, makes rules for it and reads its whole journals
      --json     for programs"""
_PROJECTS_WORDS: Final = {
    "list": (0,), "groups": (0,), "quotas": (0,), "add": (1,), "quota": (1, 2), "rename": (2,), "grant": (2,),
    "join": (2,), "leave": (2,),
}  # fmt: skip
"""Verb → how many words may follow."""
_MEANT: Final = {"all": ALL_PROJECTS, "each": EACH}


def run_projects(words: list[str]) -> int:
    declared = ("VERB", "rest:WORD*", f"--role {'|'.join(Role)}", "--cost DOLLARS", "--sessions N", "--json")
    given = read_args("projects", PROJECTS_HELP, words, *declared)
    fits = len(given.rest) in _PROJECTS_WORDS.get(given.verb, ()) and (given.verb == "grant") == (
        given.role is not None
    )
    fits = fits and (given.verb == "quota" or (given.cost, given.sessions) == (None, None))
    if not fits:
        print(PROJECTS_HELP, file=sys.stderr)
        return 2
    return _add(Path(given.rest[0])) if given.verb == "add" else _act(open_store(), given)


def _act(store: TeamStore, given: Any) -> int:
    rest = [one_line(each) for each in given.rest]
    if given.verb == "list":
        _list_projects(store, store.projects(), given.json)
    elif given.verb == "groups":
        _groups(store.groups(), given.json)
    elif given.verb == "quotas":
        _quotas(store.quotas(), given.json)
    elif given.verb == "quota":
        return _set_quota(store, given)
    elif given.verb == "rename":
        store.rename_project(*given.rest)
        print(f"{rest[0]} is called {rest[1]} now")
    elif given.verb == "grant":
        role = Role(given.role)
        store.grant(given.rest[0], given.rest[1], role)
        is_what = "has no role of their own" if role is Role.NONE else f"is {role.value}"
        print(f"{rest[1]} {is_what} in {rest[0]}")
    elif given.verb == "join":
        store.join(*given.rest)
        print(f"{rest[1]} is in {GROUP_MARK}{rest[0]}")
    else:
        store.leave(*given.rest)
        print(f"{rest[1]} is not in {GROUP_MARK}{rest[0]} any more")
    return 0


def _add(directory: Path) -> int:
    root = program_root(directory.absolute())
    if not root.is_dir():
        raise TeamError(f"no such directory: {one_line(str(directory))}", "STORE_DIRECTORY")
    name = own_store().projects.add(program_id(root), root.name).name
    print(f"{name} is a project; `forge projects grant {name} NAME --role operator` lets somebody work there")
    return 0


def _list_projects(store: TeamStore, projects: list[Project], as_json: bool) -> None:
    person = store.person
    raw, rows = [], []
    for each in projects:
        role = person.role_in(each.id).value
        raw.append({"id": each.id, "name": each.name, "role": role, "roles": dict(each.roles)})
        roles = ", ".join(f"{who} {role}" for who, role in each.roles.items())
        rows.append((each.name, role, roles or "-"))
    nothing = "no projects yet; one is there after its first session, or after `forge projects add DIR`"
    _show(raw, nothing, ("PROJECT", "YOU ARE", "ROLES IN IT"), rows, as_json)


def _groups(groups: dict[str, list[str]], as_json: bool) -> None:
    if as_json:
        print_json([{"name": name, "people": people} for name, people in groups.items()])
    elif not groups:
        print("no groups yet; `forge projects join GROUP PERSON` makes one")
    else:
        print("\n".join(f"{GROUP_MARK}{one_line(name)}: {', '.join(map(one_line, of))}" for name, of in groups.items()))


def _set_quota(store: TeamStore, given: Any) -> int:
    if min(given.cost or 0, given.sessions or 0) < 0:
        text = "--cost and --sessions take numbers from 0 on; without both the quota is taken away"
        return fail("projects", text, USAGE)
    project, who = (*given.rest, EVERYBODY)[:2]
    cost = NO_LIMIT if given.cost is None else given.cost
    sessions = NO_LIMIT if given.sessions is None else given.sessions
    store.set_quota(_MEANT.get(project, project), _MEANT.get(who, who), cost, sessions)
    print(f"{one_line(project)}, {one_line(who) or 'everybody together'}: {_limits(cost, sessions)}")
    return 0


def _limits(cost: float, sessions: float) -> str:
    found = [f"${cost:.2f} a day"] if cost != NO_LIMIT else []
    found += [f"{sessions:g} sessions a day"] if sessions != NO_LIMIT else []
    return ", ".join(found) or "no quota"


def _quotas(quotas: list[dict[str, Any]], as_json: bool) -> None:
    nothing = "no quotas; `forge projects quota PROJECT --cost 20 --sessions 100` makes one"
    words = {value: name for name, value in _MEANT.items()} | {EVERYBODY: "everybody together"}
    rows = []
    for each in quotas:
        used = "-" if each["person"] == EACH else _limits(each["used_cost"], each["used_sessions"])
        names = [words.get(each[name], each[name]) for name in ("project", "person")]
        rows.append((*names, _limits(each["cost"], each["sessions"]), used.replace(" a day", "")))
    _show(quotas, nothing, ("PROJECT", "WHO", "A DAY", "USED TODAY"), rows, as_json)


SECRETS_HELP: Final = """usage: forge secrets set NAME --project P
       forge secrets list [--json]
       forge secrets remove NAME --project P
       forge secrets key

  set      asks for the value, or reads its first line from standard input, and seals it for the runners. Sessions of
           that project can use it: `env: {secrets: {TOKEN: project:NAME}}`
  list     the secrets of the projects that you manage: names and dates, never a value
  remove   deletes one
  key      makes the key of the runners, as the account of a runner and with the owner's role, and publishes its public
           half; then copy FORGE_HOME/state/runner.key to the accounts of the other runners

Whoever may start sessions in the project can in effect read its secrets. For admins of the project."""
_SECRETS_WORDS: Final = {"set": 1, "remove": 1, "list": 0, "key": 0}


def run_secrets(words: list[str]) -> int:
    given = read_args("secrets", SECRETS_HELP, words, "VERB", "rest:WORD*", "--project P", "--json")
    if _SECRETS_WORDS.get(given.verb) != len(given.rest) or (given.verb in ("set", "remove")) != bool(given.project):
        print(SECRETS_HELP, file=sys.stderr)
        return USAGE
    try:
        if given.verb == "key":
            return _key()
        store = open_store()
        if given.verb == "list":
            _list_secrets(store, given.json)
        elif given.verb == "set":
            _set(store, given.rest[0], given.project)
        else:
            store.remove_secret(given.project, given.rest[0])
            print(f"{one_line(given.rest[0])} of {one_line(given.project)} is removed")
    except OSError as error:
        return fail("secrets", f"state/runner.key: {error.strerror or error}", USAGE)
    return 0


def _key() -> int:
    store = own_store()
    public = make_key(forge_home().path)
    store.secrets.publish(public, by=Actor(account_name(), "cli"))
    print(f"the runners' key is {fingerprint(public)}; copy state/runner.key to the accounts of the other runners")
    return 0


def _set(store: TeamStore, name: str, project: str) -> None:
    secret_name(name)
    public, id = store.secrets_key(project)
    if sys.stdin.isatty():
        value = getpass.getpass(f"{name} of {one_line(project)}: ")
    else:
        value = sys.stdin.readline().rstrip("\r\n")
    store.put_secret(project, name, seal(value, public, id, name))
    print(f"{name} of {one_line(project)} is set, sealed for the runners' key {fingerprint(public)}")


def _list_secrets(store: TeamStore, as_json: bool) -> None:
    found, nothing = store.secrets(), "no secrets; `forge secrets set NAME --project P` makes one"
    rows = [tuple(each[name] for name in ("project", "name", "person")) for each in found]
    _show(found, nothing, ("PROJECT", "NAME", "SET BY"), rows, as_json)
