"""Shared by `log`, `sessions`, `rules` and `tools`: sessions by a typed id, status words, local time.

A session is found by its id, the beginning of it, or `last`. Looking never creates anything.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

from golem_forge.cli.format import print_error
from golem_forge.config.program import program_root
from golem_forge.core.decisions import Status
from golem_forge.events.index import LAST, CallSummary, SessionIndex, SessionSummary, find_session
from golem_forge.events.journal_files import SessionAmbiguous, SessionNotFound, sessions_dir
from golem_forge.events.journal_records import CallRecord, RecordedState
from golem_forge.events.recovery import MAY_HAVE_RUN
from golem_forge.storage.home import forge_home

ID_SHOWN: Final = 12
"""So many digits of an id are printed; they are enough to find it again."""


class IdNotFound(Exception):
    """Nothing, or several things, match what was typed; the text says what to do."""


def home_with_sessions() -> Path | None:
    """None while nothing was ever recorded: looking must not create anything."""
    home = forge_home().path
    return home if sessions_dir(home).is_dir() else None


def session_id(home: Path, typed: str) -> str:
    """`last` is the session with the latest record, a single call too; everything else is found as by `sessions`."""
    if typed == LAST and (latest := SessionIndex(home).sessions(limit=1)):
        return latest[0].id
    try:
        return find_session(home, typed).id
    except SessionNotFound:
        raise IdNotFound(f"no session {typed!r}. `forge log sessions` lists them.") from None
    except SessionAmbiguous:
        again = "type more of the id. `forge log sessions` lists them."
        raise IdNotFound(f"several sessions start with {typed!r}; {again}") from None


RUNNING: Final = "running"
MAY_HAVE_RUN_WORD: Final = "may_have_run"
NEVER_STARTED: Final = "never_started"
OPEN_WORDS: Final = (RUNNING, MAY_HAVE_RUN_WORD, NEVER_STARTED)
STATUS_WORDS: Final = (*(status.value for status in Status), *OPEN_WORDS)


def status_word(call: CallRecord | CallSummary, *, alive: bool) -> str:
    """`alive`: a process still writes this session's journal, so an open call is simply not over."""
    if call.state is RecordedState.FINISHED:
        return MAY_HAVE_RUN_WORD if call.error == MAY_HAVE_RUN else call.status
    if alive:
        return RUNNING
    return MAY_HAVE_RUN_WORD if call.state is RecordedState.AMBIGUOUS else NEVER_STARTED


def display_status(word: str) -> str:
    return word.replace("_", " ") if word in OPEN_WORDS else word


def describe_decision(decision: dict[str, Any] | None) -> str:
    """Who decided and why: `ask by base write: zone /workspace says ask for write; answered by person`."""
    if decision is None:
        return ""
    words = str(decision["verdict"])
    if by := decision["decidedBy"]:
        named = " ".join(part for part in (by["source"], by["id"]) if part)
        words += f" by {named}" + (f": {by['reason']}" if by["reason"] else "")
    if decision["answeredBy"] not in ("", "nobody"):
        words += f"; answered by {decision['answeredBy']}"
    return words


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
        print_error("sessions", error.message)
        return None
