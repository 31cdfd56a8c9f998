"""`forge sessions`: recorded conversations: list, show, export, rename, delete. Only the last two write in FORGE_HOME.

`show` prints a session again as text: no model, no call, no new record. `export` prints its events, one JSON envelope a
line in ASCII, or the session as one Markdown or JSON text; `-o` writes a new file. `delete` asks on a terminal, removes
everything that is kept of a session, and is refused while a process uses it.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final

from golem_forge.agent.recorded_sessions import (
    FORMATS,
    MAX_LISTED,
    SUFFIXES,
    delete_session,
    export_session,
    format_of,
    listed_sessions,
    rename_session,
    replay,
    session_row,
    session_state,
    session_table,
    session_title,
    session_titles,
)
from golem_forge.agent.session_state import known_secrets
from golem_forge.cli.args import DENIED, FAILED, NOT_FOUND, read_args
from golem_forge.cli.format import fail, print_error, print_json
from golem_forge.cli.journal import ID_SHOWN, found_session, home_with_sessions, root_here
from golem_forge.core.errors import ForgeError
from golem_forge.core.text import columns, escape_control_chars, nearest_remark, one_line, shorten_prose
from golem_forge.events.index import SessionSummary
from golem_forge.events.journal_files import SessionInUse
from golem_forge.storage.home import forge_home
from golem_forge.storage.private_file import create_private
from golem_forge.ui.line_terminal import ask_yes, can_ask
from golem_forge.ui.render.lines import plain_text
from golem_forge.ui.trace import TraceLevel, create_trace_formatter, json_line

HELP: Final = """usage: forge sessions list [--all] [--limit N] [--json]
       forge sessions show ID [--trace quiet|summary|normal|debug]
       forge sessions export ID [--format events|markdown|json] [-o FILE]
       forge sessions rename ID TITLE
       forge sessions delete ID [--yes]

  list    the conversations, newest last: id, when, state, worker, model, where (`.`: here), and the title
  show    prints a session again as text; it asks, calls and records nothing
  export  its events, one JSON object a line; `markdown` and `json` write the whole session as one text
  rename  gives it a title; `""` removes the title. Without one the first words of the first message are the title
  delete  removes everything of it: journal, attachments, stored outputs, its lines in the index; on a terminal it asks
          first

  ID        its id, the beginning of it, or `last`: the latest of the program in this directory, else the latest of all
  --all     also single calls (`forge call`), and starts in which no model was asked anything
  --limit   how many at most (20)
  --format  `events` (one JSON object a line), `markdown`, `json`; without it the suffix of FILE decides
  -o        writes a new file instead of standard output; an existing file is not replaced
  --yes     deletes without a question

`forge run --resume ID` goes on with one. Single calls: `forge log`.
Exit: 0 done, 1 it failed (the session is in use), 2 usage, 3 not agreed, 4 no such session."""
_EVENTS: Final = "events"
_TITLE_IN_QUESTION: Final = 60


def run(words: list[str]) -> int:
    if {"-h", "--help"} & set(words):
        print(HELP)
        return 0
    verb, rest = (words[0], words[1:]) if words and not words[0].startswith("-") else ("list", words)
    verbs = {"list": run_list, "show": run_show, "export": run_export, "rename": run_rename, "delete": run_delete}
    if verb in verbs:
        return verbs[verb](rest)
    hint = nearest_remark(verb, verbs)
    return fail("sessions", f"no verb '{one_line(verb)}'{hint}. `forge sessions --help` lists them.", 2)


def run_list(words: list[str]) -> int:
    asked = read_args("sessions list", HELP, words, "--all", "--limit N", "--json", limit=MAX_LISTED)
    home = home_with_sessions()
    found: list[tuple[SessionSummary, str]] = []
    titles: dict[str, str] = {}
    if home is not None:
        titles = session_titles(home)
        sessions = listed_sessions(home, everything=asked.all, limit=max(asked.limit, 0))
        found = [(each, session_state(home, each)) for each in sessions]
    if asked.json:
        print_json([_session_json(session, state, session_title(session, titles)) for session, state in found])
    elif found:
        root = root_here()
        rows = [session_row(session, state, root, session_title(session, titles)) for session, state in found]
        print(columns(session_table(rows)))
    else:
        nothing = "no session yet." if asked.all else "no conversation yet; `--all` lists single calls too."
        print_error("sessions", nothing)
    return 0


def _session_json(session: SessionSummary, state: str, title: str) -> dict[str, Any]:
    return {
        "id": session.id,
        "title": title,
        "created": session.created,
        "updated": session.updated,
        "state": state.replace(" ", "_"),
        "worker": session.worker,
        "model": session.model,
        "directory": session.root,
        "input": session.input,
        "calls": session.calls,
        "lines": session.lines,
        "cost": session.cost,
    }


def run_show(words: list[str]) -> int:
    level = f"-t,--trace {'|'.join(TraceLevel)}"
    asked = read_args("sessions show", HELP, words, "ID", level, trace=TraceLevel.NORMAL.value)
    found = found_session(asked.id)
    if found is None:
        return NOT_FOUND
    home, session = found
    formatter = create_trace_formatter(asked.trace)
    for event in replay(session.id, home=home):
        sys.stdout.write(plain_text(formatter.format(event)))
    return 0


def run_export(words: list[str]) -> int:
    declared = ("ID", f"--format {'|'.join((_EVENTS, *FORMATS))}", "-o,--output FILE")
    asked = read_args("sessions export", HELP, words, *declared)
    found = found_session(asked.id)
    if found is None:
        return NOT_FOUND
    home, session = found
    format = asked.format or (_format_of_file(asked.output) if asked.output else _EVENTS)
    events = replay(session.id, home=home)
    if format == _EVENTS:
        pieces: Iterable[str] = map(json_line, events)
    else:
        title = session_title(session, session_titles(home))
        pieces = export_session(session, title, events, format, known_secrets(forge_home()).text)
    if not asked.output:
        for piece in pieces:
            sys.stdout.write(piece)
        return 0
    return _write_new(asked.output, pieces)


def _format_of_file(name: str) -> str:
    return format_of(name) if Path(name).suffix.lower() in SUFFIXES else _EVENTS


def _write_new(name: str, pieces: Iterable[str]) -> int:
    try:
        with create_private(name) as file:
            for piece in pieces:
                file.write(piece.encode())
    except FileExistsError:
        return fail("sessions export", f"{one_line(name)} exists already; choose another name, or remove it.", FAILED)
    except OSError as error:
        return fail("sessions export", f"{one_line(name)} could not be written: {error.strerror}", FAILED)
    print(f"wrote {one_line(name)}")
    return 0


def run_rename(words: list[str]) -> int:
    asked = read_args("sessions rename", HELP, words, "ID", "title:TITLE+")
    found = found_session(asked.id, to_change=True)
    if found is None:
        return NOT_FOUND
    home, session = found
    try:
        title = rename_session(home, session.id, " ".join(asked.title))
    except OSError as error:
        return fail("sessions rename", f"the title could not be saved: {error.strerror}", FAILED)
    shown = f"is now called: {title}" if title else f"has its first words as title again: {one_line(session.input)}"
    print(f"session {session.id[:ID_SHOWN]} {shown}")
    return 0


def run_delete(words: list[str]) -> int:
    asked = read_args("sessions delete", HELP, words, "ID", "--yes")
    found = found_session(asked.id, to_change=True)
    if found is None:
        return NOT_FOUND
    home, session = found
    if session_state(home, session) == "running":
        return fail("sessions", SessionInUse(session.id).message, FAILED)
    if not asked.yes and not _agreed_to_delete(session, session_title(session, session_titles(home))):
        return DENIED
    try:
        delete_session(home, session.id)
    except ForgeError as error:
        return fail("sessions", error.message, FAILED)
    print(f"deleted session {session.id[:ID_SHOWN]}")
    return 0


def _agreed_to_delete(session: SessionSummary, title: str) -> bool:
    """A person is asked; a script that names the session has said what it wants."""
    if not can_ask():
        return True
    id = session.id[:ID_SHOWN]
    called = f" ({shorten_prose(title, _TITLE_IN_QUESTION)})" if title else ""
    if ask_yes(escape_control_chars(f"Delete session {id}{called}? It cannot be brought back. [y/N] ")):
        return True
    print_error("sessions delete", "nothing was deleted.")
    return False
