"""`forge sessions show ID`: a session again, as text. Reads the journal; no model, no call, no new record."""

from __future__ import annotations

import sys

from golem_forge.cli.plain import parser
from golem_forge.cli.sessions import HELP
from golem_forge.cli.sessions.finding import NO_SUCH, found_session


def run_show(words: list[str]) -> int:
    from golem_forge.ui.rendering.lines import plain_text
    from golem_forge.ui.trace import TraceLevel, create_trace_formatter
    from golem_forge.workers.replay import replay

    reader = parser("sessions show", HELP)
    reader.add_argument("id", metavar="ID")
    reader.add_argument("-t", "--trace", default=TraceLevel.NORMAL.value, choices=list(TraceLevel), metavar="LEVEL")
    asked = reader.parse_args(words)
    found = found_session(asked.id)
    if found is None:
        return NO_SUCH
    home, session = found
    formatter = create_trace_formatter(asked.trace)
    for event in replay(session.id, home=home):
        sys.stdout.write(plain_text(formatter.format(event)))
    return 0
