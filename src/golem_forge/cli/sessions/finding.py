"""The one session a verb is about, by what was typed; says so and gives None where there is none or several."""

from __future__ import annotations

from pathlib import Path

from golem_forge.cli.plain import complain
from golem_forge.config.home import forge_home
from golem_forge.config.program import program_root
from golem_forge.events.finding import find_session
from golem_forge.events.index import SessionSummary
from golem_forge.events.journal_errors import SessionAmbiguous, SessionNotFound

NO_SUCH: int = 4


def root_here() -> str:
    """Of the program around this directory; empty where the directory is gone."""
    try:
        return str(program_root(Path.cwd()))
    except FileNotFoundError:
        return ""


def found_session(typed: str) -> tuple[Path, SessionSummary] | None:
    home = forge_home().path
    try:
        return home, find_session(home, typed, root=root_here())
    except (SessionNotFound, SessionAmbiguous) as error:
        complain("sessions", error.message)
        return None
