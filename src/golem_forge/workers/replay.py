"""Replay: the events of a session as they were recorded, for a UI that shows it again. Reads, and does nothing else.

No call, no event and no record comes of it; the session may be closed, crashed or still running. Refuses with
SessionNotFound, and with ForgeError at a record that is no event any more.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from golem_forge.core.errors import ForgeError
from golem_forge.events.envelope import Event
from golem_forge.events.journal_errors import SessionNotFound
from golem_forge.events.journal_reader import events_after
from golem_forge.events.session_files import journal_path


def replay(home: Path, session_id: str, *, after: int = 0, limit: int | None = None) -> Iterator[Event]:
    """Those with a number above `after`, in order; at most `limit`."""
    path = journal_path(home, session_id)
    if not path.is_file():
        raise SessionNotFound(session_id)
    return _events(path, after, limit)


def _events(path: Path, after: int, limit: int | None) -> Iterator[Event]:
    seen = after
    try:
        for event in events_after(path, after, limit):
            seen = event.seq
            yield event
    except (KeyError, TypeError, AttributeError):
        raise ForgeError(
            f"session {path.stem}: what follows event {seen} is no record of Forge's; "
            f"`forge log verify {path.stem[:12]}` names the line",
            code="JOURNAL_DAMAGED",
        ) from None
