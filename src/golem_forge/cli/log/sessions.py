"""`forge log sessions`: the sessions that were recorded, newest last."""

from __future__ import annotations

from typing import Any, Final

from golem_forge.cli.log import HELP
from golem_forge.cli.log.finding import ID_SHOWN, home_with_sessions
from golem_forge.cli.log.states import local_time
from golem_forge.cli.plain import columns, complain, parser, print_json
from golem_forge.events.index import Index, SessionSummary
from golem_forge.events.session_files import is_held, journal_path

_HEAD: Final = ("SESSION", "STARTED", "LAST RECORD", "CALLS", "STATE")


def run_sessions(words: list[str]) -> int:
    reader = parser("log sessions", HELP)
    reader.add_argument("--limit", type=int, default=20)
    reader.add_argument("--json", action="store_true")
    asked = reader.parse_args(words)
    home = home_with_sessions()
    found = Index(home).sessions(limit=max(asked.limit, 0))[::-1] if home else []
    states = {each.id: _state(each, alive=is_held(journal_path(home, each.id))) for each in found} if home else {}
    if asked.json:
        print_json([_as_json(each, states[each.id]) for each in found])
    elif found:
        rows = [
            (each.id[:ID_SHOWN], local_time(each.created), local_time(each.updated), str(each.calls), states[each.id])
            for each in found
        ]
        print(columns([_HEAD, *rows]))
    else:
        complain("log", "no session was recorded yet.")
    return 0


def _state(session: SessionSummary, *, alive: bool) -> str:
    if alive:
        return "running"
    return "closed" if session.closed else "not closed (it crashed, or lines are missing)"


def _as_json(session: SessionSummary, state: str) -> dict[str, Any]:
    return {
        "id": session.id,
        "created": session.created,
        "updated": session.updated,
        "calls": session.calls,
        "lines": session.lines,
        "state": state.partition(" (")[0].replace(" ", "_"),
        "worker": session.worker,
    }
