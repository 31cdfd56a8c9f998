"""`forge sessions list`: the conversations that were recorded, newest last."""

from __future__ import annotations

from typing import Any

from golem_forge.cli.log.finding import home_with_sessions
from golem_forge.cli.plain import columns, complain, parser, print_json
from golem_forge.cli.sessions import HELP
from golem_forge.cli.sessions.finding import root_here
from golem_forge.events.index import SessionSummary
from golem_forge.workers.session_list import MOST, listed_sessions, session_row, session_state, session_table


def run_list(words: list[str]) -> int:
    reader = parser("sessions list", HELP)
    reader.add_argument("--all", action="store_true")
    reader.add_argument("--limit", type=int, default=MOST)
    reader.add_argument("--json", action="store_true")
    asked = reader.parse_args(words)
    home = home_with_sessions()
    found: list[tuple[SessionSummary, str]] = []
    if home is not None:
        sessions = listed_sessions(home, everything=asked.all, limit=max(asked.limit, 0))
        found = [(each, session_state(home, each)) for each in sessions]
    if asked.json:
        print_json([_as_json(session, state) for session, state in found])
    elif found:
        root = root_here()
        print(columns(session_table(session_row(session, state, root) for session, state in found)))
    else:
        complain("sessions", "no session yet." if asked.all else "no conversation yet; `--all` lists single calls too.")
    return 0


def _as_json(session: SessionSummary, state: str) -> dict[str, Any]:
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
