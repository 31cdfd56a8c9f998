"""`forge sessions export ID`: the recorded events of a session, one envelope a line in ASCII, for other programs."""

from __future__ import annotations

import sys

from golem_forge.cli.plain import parser
from golem_forge.cli.sessions import HELP
from golem_forge.cli.sessions.finding import NO_SUCH, found_session


def run_export(words: list[str]) -> int:
    reader = parser("sessions export", HELP)
    reader.add_argument("id", metavar="ID")
    asked = reader.parse_args(words)
    found = found_session(asked.id)
    if found is None:
        return NO_SUCH
    from golem_forge.ui.output import json_line
    from golem_forge.workers.replay import replay

    home, session = found
    for event in replay(session.id, home=home):
        sys.stdout.write(json_line(event))
    return 0
