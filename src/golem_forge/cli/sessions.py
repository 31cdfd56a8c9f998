"""`forge sessions`: recorded conversations: list, show, export, delete. Only `delete` writes.

`show` prints a session again as text: no model, no call, no new record. `export` prints its events, one JSON envelope a
line in ASCII. `delete` removes everything that is kept of a session and is refused while a process uses it.
"""

from __future__ import annotations

import sys
from typing import Any, Final

from golem_forge.agent.recorded_sessions import (
    MAX_LISTED,
    delete_session,
    listed_sessions,
    replay,
    session_row,
    session_state,
    session_table,
)
from golem_forge.cli.args import NOT_FOUND, read_args
from golem_forge.cli.format import fail, print_error, print_json
from golem_forge.cli.journal import ID_SHOWN, found_session, home_with_sessions, root_here
from golem_forge.core.errors import ForgeError
from golem_forge.core.table import columns
from golem_forge.core.text import nearest_remark, one_line
from golem_forge.events.index import SessionSummary
from golem_forge.ui.render.lines import plain_text
from golem_forge.ui.trace import TraceLevel, create_trace_formatter, json_line

HELP: Final = """usage: forge sessions list [--all] [--limit N] [--json]
       forge sessions show ID [--trace quiet|summary|normal|debug]
       forge sessions export ID
       forge sessions delete ID

  list    the conversations there are, newest last: id, when, state, worker, model, where (`.`: here), and how it began
  show    one of them again, as text: nothing is asked, called or recorded
  export  its events, one JSON object a line
  delete  all that is kept of it: journal, attachments, stored outputs, its lines in the index

  ID       its id, the beginning of it, or `last`: the latest of the program in this directory, else the latest at all
  --all    also single calls (`forge call`), and starts in which no model was asked anything
  --limit  how many at most (20)

`forge run --resume ID` goes on with one. Single calls: `forge log`.
Exit: 0 done, 1 it failed (the session is in use), 2 usage, 4 no such session."""


def run(words: list[str]) -> int:
    if {"-h", "--help"} & set(words):
        print(HELP)
        return 0
    verb, rest = (words[0], words[1:]) if words and not words[0].startswith("-") else ("list", words)
    verbs = {"list": run_list, "show": run_show, "export": run_export, "delete": run_delete}
    if verb in verbs:
        return verbs[verb](rest)
    hint = nearest_remark(verb, verbs)
    return fail("sessions", f"no verb '{one_line(verb)}'{hint}. `forge sessions --help` lists them.", 2)


def run_list(words: list[str]) -> int:
    asked = read_args("sessions list", HELP, words, "--all", "--limit N", "--json", limit=MAX_LISTED)
    home = home_with_sessions()
    found: list[tuple[SessionSummary, str]] = []
    if home is not None:
        sessions = listed_sessions(home, everything=asked.all, limit=max(asked.limit, 0))
        found = [(each, session_state(home, each)) for each in sessions]
    if asked.json:
        print_json([_session_json(session, state) for session, state in found])
    elif found:
        root = root_here()
        print(columns(session_table(session_row(session, state, root) for session, state in found)))
    else:
        nothing = "no session yet." if asked.all else "no conversation yet; `--all` lists single calls too."
        print_error("sessions", nothing)
    return 0


def _session_json(session: SessionSummary, state: str) -> dict[str, Any]:
    return {
        "id": session.id,
        "created": session.created,
        "updated": session.updated,
        "state": state.replace(" ", "_"),
        "worker": session.worker,
        "model": session.model,
        "directory": session.root,
        "input": session.input,
        "calls": session.calls,
        "lines": session.lines,
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
    found = found_session(read_args("sessions export", HELP, words, "ID").id)
    if found is None:
        return NOT_FOUND
    home, session = found
    for event in replay(session.id, home=home):
        sys.stdout.write(json_line(event))
    return 0


def run_delete(words: list[str]) -> int:
    found = found_session(read_args("sessions delete", HELP, words, "ID").id)
    if found is None:
        return NOT_FOUND
    home, session = found
    try:
        delete_session(home, session.id)
    except ForgeError as error:
        return fail("sessions", error.message, 1)
    print(f"deleted session {session.id[:ID_SHOWN]}")
    return 0
