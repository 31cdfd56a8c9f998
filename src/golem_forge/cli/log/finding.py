"""Finding sessions and calls by what a person types: the beginning of an id, or `last`."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from golem_forge.config.home import forge_home
from golem_forge.events.index import Index
from golem_forge.events.session_files import sessions_dir

ID_SHOWN: Final = 12
"""So many digits of an id are printed; they are enough to find it again."""


class NotFound(Exception):
    """Nothing, or more than one thing, goes by what was typed; the text says what to do."""


def home_with_sessions() -> Path | None:
    """None while nothing was ever recorded: looking must not create anything."""
    home = forge_home().path
    return home if sessions_dir(home).is_dir() else None


def session_id(index: Index, typed: str) -> str:
    found = index.sessions(prefix="" if typed == "last" else typed, limit=1 if typed == "last" else 2)
    exact = [session.id for session in found if session.id == typed] or [session.id for session in found]
    if not exact:
        raise NotFound(f"no session {typed!r}. `forge log sessions` lists them.")
    if len(exact) > 1:
        raise NotFound(f"several sessions start with {typed!r}; type more of the id. `forge log sessions` lists them.")
    return exact[0]
