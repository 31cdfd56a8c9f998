"""`forge projects`: the programs of the store as projects, who has which role in each, and groups of people."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from golem_forge.cli.args import read_args
from golem_forge.cli.format import print_columns, print_json
from golem_forge.cli.team import fail_with, open_store, own_store
from golem_forge.config.program import program_root
from golem_forge.core.text import one_line
from golem_forge.team.database import TeamError
from golem_forge.team.people import Role, TeamStore
from golem_forge.team.projects import GROUP_MARK, Project
from golem_forge.team.rows import program_id

HELP: Final = """usage: forge projects list [--json]
       forge projects add DIR
       forge projects rename PROJECT NAME
       forge projects grant PROJECT WHO --role none|viewer|operator|admin
       forge projects groups [--json]
       forge projects join GROUP PERSON
       forge projects leave GROUP PERSON

A project is a program of the store: a directory on a machine. It is there once a session was started in it.

  list    the projects that you may see; with who has a role in them, for their admins
  add     the program of a directory on this machine, before its first session; needs the database itself
  rename  another name for it
  grant   gives a person, or a group written @NAME, a role in one project; `none` takes it back. The role of
          `forge people add` counts in all projects; the highest one counts
  groups  the groups, with their people
  join    puts a person into a group, and makes the group where there is none
  leave   takes a person out of a group

      --role R   viewer: sees its sessions and questions; operator: also starts, answers, sends and stops there;
                 admin: also gives roles in it, makes rules for it and reads its whole journals
      --json     for programs"""
_WORDS: Final = {"list": 0, "groups": 0, "add": 1, "rename": 2, "grant": 2, "join": 2, "leave": 2}
"""How many words follow each verb."""


def run_projects(words: list[str]) -> int:
    declared = ("VERB", "rest:WORD*", f"--role {'|'.join(Role)}", "--json")
    given = read_args("projects", HELP, words, *declared)
    fits = _WORDS.get(given.verb) == len(given.rest) and (given.verb == "grant") == (given.role is not None)
    if not fits:
        print(HELP, file=sys.stderr)
        return 2
    try:
        if given.verb == "add":
            return _add(Path(given.rest[0]))
        return _act(open_store(), given)
    except TeamError as error:
        return fail_with("projects", error)


def _act(store: TeamStore, given: Any) -> int:
    rest = [one_line(each) for each in given.rest]
    if given.verb == "list":
        _list(store, store.projects(), given.json)
    elif given.verb == "groups":
        _groups(store.groups(), given.json)
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


def _list(store: TeamStore, projects: list[Project], as_json: bool) -> None:
    person = store.person
    if as_json:
        rows = [{"id": each.id, "name": each.name, "role": person.role_in(each.id).value} for each in projects]
        print_json([row | {"roles": dict(each.roles)} for row, each in zip(rows, projects, strict=True)])
        return
    if not projects:
        print("no projects yet; one is there after its first session, or after `forge projects add DIR`")
        return

    def table() -> Iterator[tuple[str, ...]]:
        yield ("PROJECT", "YOU ARE", "ROLES IN IT")
        for each in projects:
            roles = ", ".join(f"{one_line(who)} {role}" for who, role in each.roles.items())
            yield (one_line(each.name), person.role_in(each.id).value, roles or "-")

    print_columns(table)


def _groups(groups: dict[str, list[str]], as_json: bool) -> None:
    if as_json:
        print_json([{"name": name, "people": people} for name, people in groups.items()])
    elif not groups:
        print("no groups yet; `forge projects join GROUP PERSON` makes one")
    else:
        print("\n".join(f"{GROUP_MARK}{one_line(name)}: {', '.join(map(one_line, of))}" for name, of in groups.items()))
