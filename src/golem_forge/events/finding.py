"""Finding a session by what a person types: its id, the beginning of it, or `last`.

`last` is the conversation with the latest record: of the program it is asked for, where that had one, else of all.
Sessions in which no model was asked anything (`forge call`, a start that failed) have ids but no turn there.
Refuses with SessionNotFound or SessionAmbiguous.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from golem_forge.events.index import Index, SessionSummary
from golem_forge.events.journal_errors import SessionAmbiguous, SessionNotFound
from golem_forge.events.session_files import sessions_dir

LAST: Final = "last"


def find_session(home: Path, typed: str, *, root: Path | str = "") -> SessionSummary:
    """`root`: the program whose `last` is meant. Looking creates nothing."""
    if not typed or not sessions_dir(home).is_dir():
        raise SessionNotFound(typed)
    index = Index(home)
    if typed == LAST:
        found = index.conversations(root=str(root), limit=1) or index.conversations(limit=1)
    else:
        found = index.sessions(prefix=typed, limit=2)
    exact = [session for session in found if session.id == typed] or found
    if not exact:
        raise SessionNotFound(typed)
    if len(exact) > 1:
        raise SessionAmbiguous(typed)
    return exact[0]
