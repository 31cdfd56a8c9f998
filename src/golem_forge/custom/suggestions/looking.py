"""Looking for suggestions: journals in, Suggestions out. What `forge tools suggest` and every session's start do.

It reads files and takes a moment, so a session does it off its loop. Sequences for which a tool was made, or that the
person dismissed, are left out, and so are their parts: they are mined first.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path
from typing import Any

from golem_forge.config.home import ForgeHome
from golem_forge.custom.book import Book
from golem_forge.custom.suggestions.kept import DAY_S, DAYS, Session
from golem_forge.custom.suggestions.memory import dismissed
from golem_forge.custom.suggestions.mining import Seen, mine
from golem_forge.custom.suggestions.reading import JournalTail
from golem_forge.custom.suggestions.suggestion import Redact, Suggestion, suggestion_of
from golem_forge.events.call_states import CallStates
from golem_forge.events.clock import iso
from golem_forge.events.session_files import journal_path


def look(
    home: ForgeHome,
    book: Book,
    sessions: Iterable[Session],
    *,
    native: Collection[str] = (),
    redact: Redact = lambda value: value,
    now: float | None = None,
) -> tuple[Suggestion, ...]:
    """`native`: names of built-in tools, which stay what they are where a user tool replaces one."""
    since = iso((time.time() if now is None else now) - DAYS * DAY_S)
    own = {str(name) for (name,) in book.rows("SELECT name FROM tools")}
    settled = {*made(book), *dismissed(home)}
    found = [each for each in mine(sessions, own=own - set(native), since=since) if each.key not in settled]
    return tuple(
        suggestion_of(each, lambda seen: arguments_of(home.path, seen), redact, {*own, *native}) for each in found
    )


def made(book: Book) -> frozenset[str]:
    """Keys of the sequences that became tools."""
    rows = book.rows("SELECT DISTINCT suggestion FROM creations WHERE suggestion <> ''")
    return frozenset(str(key) for (key,) in rows)


def arguments_of(home: Path, seen: Seen) -> Mapping[str, Mapping[str, Any]]:
    """From the journal, for it alone holds them. Whatever cannot be read is left out."""
    wanted = {step.call for step in seen.steps}
    states = CallStates()
    try:
        for record in JournalTail(journal_path(home, seen.session)).records():
            if record.get("call") in wanted and states.add(record) is not None:
                states.calls[record["call"]].value = None
    except (OSError, ValueError):
        return {}
    return {id: call.args for id, call in states.calls.items() if isinstance(call.args, dict)}
