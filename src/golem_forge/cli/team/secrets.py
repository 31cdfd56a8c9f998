"""`forge secrets`: secrets of a project, sealed here for the runners; the team's page and database cannot open them."""

from __future__ import annotations

import getpass
import sys
from typing import Final

from golem_forge.cli.args import USAGE, read_args
from golem_forge.cli.format import fail, print_columns, print_json
from golem_forge.cli.team import account_name, fail_with, open_store, own_store
from golem_forge.core.text import one_line
from golem_forge.storage.home import forge_home
from golem_forge.team.audit import Actor
from golem_forge.team.database import TeamError
from golem_forge.team.people import TeamStore
from golem_forge.team.project_secrets import fingerprint, make_key, seal, secret_name

HELP: Final = """usage: forge secrets set NAME --project P
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
_WORDS: Final = {"set": 1, "remove": 1, "list": 0, "key": 0}


def run_secrets(words: list[str]) -> int:
    given = read_args("secrets", HELP, words, "VERB", "rest:WORD*", "--project P", "--json")
    if _WORDS.get(given.verb) != len(given.rest) or (given.verb in ("set", "remove")) != bool(given.project):
        print(HELP, file=sys.stderr)
        return USAGE
    try:
        if given.verb == "key":
            return _key()
        store = open_store()
        if given.verb == "list":
            _list(store, given.json)
        elif given.verb == "set":
            _set(store, given.rest[0], given.project)
        else:
            store.remove_secret(given.project, given.rest[0])
            print(f"{one_line(given.rest[0])} of {one_line(given.project)} is removed")
    except TeamError as error:
        return fail_with("secrets", error)
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


def _list(store: TeamStore, as_json: bool) -> None:
    found = store.secrets()
    if as_json:
        print_json(found)
    elif not found:
        print("no secrets; `forge secrets set NAME --project P` makes one")
    else:
        columns = ("project", "name", "person")
        rows = [tuple(one_line(each[column]) for column in columns) for each in found]
        print_columns(lambda: iter([("PROJECT", "NAME", "SET BY"), *rows]))
