"""`forge sessions delete ID`: everything that is kept of one session, gone. Refused while a process uses it."""

from __future__ import annotations

from golem_forge.cli.log.finding import ID_SHOWN
from golem_forge.cli.plain import complain, parser
from golem_forge.cli.sessions import HELP
from golem_forge.cli.sessions.finding import NO_SUCH, found_session
from golem_forge.core.errors import ForgeError


def run_delete(words: list[str]) -> int:
    reader = parser("sessions delete", HELP)
    reader.add_argument("id", metavar="ID")
    asked = reader.parse_args(words)
    found = found_session(asked.id)
    if found is None:
        return NO_SUCH
    from golem_forge.workers.session_removal import delete_session

    home, session = found
    try:
        delete_session(home, session.id)
    except ForgeError as error:
        complain("sessions", error.message)
        return 1
    print(f"deleted session {session.id[:ID_SHOWN]}")
    return 0
