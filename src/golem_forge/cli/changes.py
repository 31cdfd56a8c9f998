"""`forge changes`: what a session changed, by turn and call, with diffs. `named_changes` reads what a person named, for
`forge undo` too."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from golem_forge.agent.session_changes import (
    NOTHING_CHANGED,
    ChangeSelection,
    change_json,
    changes_text,
    newest_changed_session,
    read_changes,
    select_call,
    select_paths,
    select_turn,
)
from golem_forge.cli.args import FAILED, NOT_FOUND, USAGE, read_args
from golem_forge.cli.format import fail, print_json
from golem_forge.cli.journal import ID_SHOWN, found_session, home_with_sessions, root_here
from golem_forge.core.changes import ChangeSet
from golem_forge.core.errors import ForgeError
from golem_forge.core.lazy_dataclass import dataclass
from golem_forge.core.regex import regex
from golem_forge.core.text import escape_control_chars
from golem_forge.events.index import SessionIndex, SessionSummary
from golem_forge.sandbox.undo.log import taken_back
from golem_forge.storage.home import ForgeHome, forge_home

HELP: Final = """usage: forge changes [SESSION] [--turn N | --call ID] [--stat | --diff] [--json] [PATH…]

Shows what a session changed in the zones: by turn and call, the files with their lines, and by which tool.

  SESSION   its id, the beginning of it, or `last`; without it the newest session of this directory that changed
            something
  PATH      only these files, and what lies below these directories
  --turn N  only what message N of the person led to
  --call ID only this call, by its id or the beginning of it
  --stat    the list (this is the default)
  --diff    what changed in each file, too
  --json    all of it for programs; with --diff the diffs too

Exit: 0 shown, 1 nothing changed there, 2 usage, 4 no such session."""
_SESSION_ID: Final = regex(r"[0-9a-f]{4,}")


@dataclass(frozen=True, slots=True, kw_only=True)
class NamedChanges:
    home: ForgeHome
    session: SessionSummary
    every: tuple[ChangeSet, ...]
    selected: ChangeSelection


def run(words: list[str]) -> int:
    declared = ("names:NAME*", "--turn N", "--call ID", "--stat", "--diff", "--json")
    given = read_args("changes", HELP, words, *declared)
    if given.stat and given.diff:
        return fail("changes", "give --stat or --diff, not both.", USAGE)
    named = named_changes("changes", given)
    if isinstance(named, int):
        return named
    home, found = named.home.path, named.selected.of(named.every)
    if given.json:
        undone = taken_back(named.every)
        print_json([change_json(each, undone, diffs=home if given.diff else None) for each in found])
    else:
        print(escape_control_chars(changes_text(found, diffs=home if given.diff else None, every=named.every)))
    return 0


def named_changes(verb: str, given: Any) -> NamedChanges | int:
    """What the words name, or the exit code after the reason was said."""
    if given.turn is not None and given.call:
        return fail(verb, "give --turn or --call, not both.", USAGE)
    home, names = forge_home(), list(given.names)
    session: SessionSummary | None = None
    if names and (names[0] == "last" or _SESSION_ID.fullmatch(names[0])):
        if (found := found_session(names.pop(0), to_change=True)) is None:
            return NOT_FOUND
        session = found[1]
    else:
        id = newest_changed_session(home.path, root_here()) if home_with_sessions() is not None else ""
        session = next(iter(SessionIndex(home.path).sessions(prefix=id, limit=1)), None) if id else None
    if session is None:
        return fail(verb, "no session of this directory changed a file; `forge sessions list` shows all.", FAILED)
    every = read_changes(home.path, session.id)
    if not every:
        return fail(verb, f"session {session.id[:ID_SHOWN]}: {NOTHING_CHANGED[0].lower()}{NOTHING_CHANGED[1:]}", FAILED)
    try:
        selected = _selection(every, given, names)
    except ForgeError as error:
        return fail(verb, error.message, FAILED)
    return NamedChanges(home=home, session=session, every=every, selected=selected)


def _selection(every: Sequence[ChangeSet], given: Any, paths: Sequence[str]) -> ChangeSelection:
    selected = ChangeSelection()
    if given.turn is not None:
        selected = select_turn(every, given.turn)
    elif given.call:
        selected = select_call(every, given.call)
    if paths:
        named = select_paths(selected.of(every), paths).paths
        selected = ChangeSelection(turn=selected.turn, call=selected.call, paths=named)
    return selected
