"""Replay: the events of a session as they were recorded, for a UI that shows it again. Reads, and does nothing else.

    for event in replay("last"):
        print(event.type, event.data)
    bus.replay(replay(runtime))

No call, no event and no record comes of it; the session may be closed, crashed or still running. Refuses with
SessionNotFound or SessionAmbiguous, and with ForgeError at a record that is no event any more.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from golem_forge.config.home import ForgeHome, forge_home
from golem_forge.core.errors import ForgeError
from golem_forge.events.envelope import Event
from golem_forge.events.finding import find_session
from golem_forge.events.journal_errors import SessionNotFound
from golem_forge.events.journal_reader import events_after
from golem_forge.events.session_files import journal_path


def replay(
    session: Any, *, home: ForgeHome | Path | str | None = None, after: int = 0, limit: int | None = None
) -> Iterator[Event]:
    """The events with a number above `after`, in order; at most `limit`.

    `session`: the path of a journal, an id or the beginning of one, `last`, or a Session or WorkerRuntime that runs.
    `home`: where ids are looked for, instead of FORGE_HOME.
    """
    return _events(_journal_of(session, home), after, limit)


def _journal_of(session: Any, home: ForgeHome | Path | str | None) -> Path:
    """TypeError for what names no session."""
    if (book := getattr(session, "journal", None)) is not None:
        book.flush()
        session = book.path
    if not isinstance(session, (str, Path)):
        raise TypeError(
            f"replay takes the path of a journal, a session's id or a session with a journal, not {session!r}"
        )
    if isinstance(session, Path) or session.endswith(".jsonl"):
        path = Path(session)
        if not path.is_file():
            raise SessionNotFound(str(session))
        return path
    folder = home.path if isinstance(home, ForgeHome) else Path(home) if home is not None else forge_home().path
    path = journal_path(folder, session)
    return path if path.is_file() else journal_path(folder, find_session(folder, session).id)


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
