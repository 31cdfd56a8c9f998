"""Shared by `log`, `sessions`, `rules` and `tools`: sessions by a typed id, status words, local time.

A session is found by its id, the beginning of it, or `last`. One that is not in this home is looked for in the store of
background sessions: a copy of its journal is then read like one of this home. Looking creates nothing else.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from golem_forge.cli.format import print_error
from golem_forge.config.program import program_root
from golem_forge.core.decisions import AnsweredBy, Status
from golem_forge.core.errors import ConfigError
from golem_forge.core.text import one_line, shorten
from golem_forge.events.index import LAST, CallSummary, SessionIndex, SessionSummary, find_session
from golem_forge.events.journal_files import (
    SessionAmbiguous,
    SessionNotFound,
    is_locked,
    journal_path,
    sessions_dir,
)
from golem_forge.events.journal_records import CallRecord, RecordedState
from golem_forge.events.recovery import MAY_HAVE_RUN
from golem_forge.storage.home import forge_home

if TYPE_CHECKING:
    from golem_forge.team.people import TeamStore

ALL_SESSIONS: Final = "all"
STORE_SESSIONS: Final = 200
"""So many of the store, the newest, are looked at by `--store`."""
ID_SHOWN: Final = 12
"""So many digits of an id are printed; they are enough to find it again."""


class IdNotFound(Exception):
    """Nothing, or several things, match what was typed; the text says what to do."""


def home_with_sessions() -> Path | None:
    """None while nothing was ever recorded: looking must not create anything."""
    home = forge_home().path
    return home if sessions_dir(home).is_dir() else None


def home_of_session(typed: str) -> Path | None:
    """Where a session that was named is read: this home, or the copies of the store's. None: nothing was recorded."""
    home = home_with_sessions()
    if not typed or typed in (LAST, ALL_SESSIONS) or (home is not None and is_recorded(home, typed)):
        return home
    try:
        with opened_store() as found:
            if found is None:
                return home
            from golem_forge.team.mirror import mirrored

            store, address = found
            return mirrored(store, forge_home().path, store.find(typed), address)
    except NoSuchSession as error:
        raise IdNotFound(str(error)) from None


def is_recorded(home: Path, typed: str) -> bool:
    """Whether this home has a session of that name, or several."""
    try:
        find_session(home, typed)
    except SessionAmbiguous:
        return True
    except SessionNotFound:
        return False
    return True


class NoSuchSession(Exception):
    """The store has none of that name."""


@contextmanager
def opened_store() -> Iterator[tuple[TeamStore, str] | None]:
    """(the store of background sessions, its address), None while there is none. Raises ConfigError where it cannot be
    asked or this person may not read it."""
    from golem_forge.cli.team import open_store, store_settings
    from golem_forge.team.database import SQLITE, TeamError

    settings = store_settings()
    if settings.address() == SQLITE and not (forge_home().path / "state" / "sessions.db").exists():
        yield None
        return
    try:
        store = open_store(settings, create=False)
        try:
            yield store, settings.address()
        finally:
            store.close()
    except TeamError as error:
        if error.code == "SESSION_NOT_FOUND":
            raise NoSuchSession(error.message) from None
        raise ConfigError(error.message) from None


def home_of_store() -> Path | None:
    """Copies of the newest sessions of the store. None: there is no store."""
    with opened_store() as found:
        if found is None:
            return None
        from golem_forge.team.mirror import mirror_all

        store, address = found
        return mirror_all(store, forge_home().path, store.sessions(limit=STORE_SESSIONS), address)


def copies_of_stores() -> list[Path]:
    """Where the sessions of stores are read that were looked at from this home."""
    if not (forge_home().path / "state" / "shared").is_dir():
        return []
    from golem_forge.team.mirror import mirror_homes

    return mirror_homes(forge_home().path)


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
WAITS: Final = "waits"
OPEN_WORDS: Final = (RUNNING, WAITS, MAY_HAVE_RUN_WORD, NEVER_STARTED)
DENIED_WORD: Final = "denied"
"""Any of the denials, whoever denied."""
DENIALS: Final = (Status.APPROVAL_DENIED.value, Status.POLICY_DENIED.value, Status.SANDBOX_DENIED.value)
STATUS_WORDS: Final = (*(status.value for status in Status), DENIED_WORD, *OPEN_WORDS)


class LiveSessions:
    """Which sessions of a home, or of the copies of a store's, have not ended: their open calls are simply not over."""

    def __init__(self, home: Path) -> None:
        self._home = home
        self._of_store: dict[str, str] | None = None if home != forge_home().path else {}

    def word(self, session_id: str) -> str:
        """RUNNING, WAITS (for a person, or for a runner after that), or empty."""
        if is_locked(journal_path(self._home, session_id)):
            return RUNNING
        if self._of_store is None:
            self._of_store = _live_in_store()
        return self._of_store.get(session_id, "")

    def status(self, call: CallRecord | CallSummary, session_id: str) -> str:
        if call.state is RecordedState.FINISHED:
            return MAY_HAVE_RUN_WORD if call.error == MAY_HAVE_RUN else call.status
        live = self.word(session_id)
        if call.state is RecordedState.AMBIGUOUS:
            return RUNNING if live else MAY_HAVE_RUN_WORD
        return live or NEVER_STARTED


def _live_in_store() -> dict[str, str]:
    """Of the store's sessions those that a runner holds, or that are parked. None where it cannot be asked now."""
    with suppress(ConfigError), opened_store() as found:
        if found is None:
            return {}
        store, now = found[0], found[0].now()
        rows = store.sessions(states=("running", "waiting"))
        words = {"running": RUNNING, "waiting": WAITS}
        return {row.id: words[row.state] for row in rows if row.lease_until > now or not row.runner}
    return {}


def display_status(word: str) -> str:
    return word.replace("_", " ") if word in OPEN_WORDS else word


def answerer(decision: dict[str, Any]) -> str:
    """`person`, or who it was: `bob (page)`, `door:program`, `reviewer NAME`."""
    if name := decision.get("answeredAs"):
        if decision["answeredBy"] == REVIEWER:
            return f"{REVIEWER} {name}"
        door = decision.get("door", "")
        return str(name) if str(name).startswith(f"{door}:") else f"{name} ({door})"
    return str(decision["answeredBy"])


def describe_decision(decision: dict[str, Any] | None, most: int = 0) -> str:
    """Who decided and why: `ask by base write: zone /workspace says ask for write; answered by person`.

    `most`: cuts the reason so that the text has about so many characters. Who answered is never cut.
    """
    if decision is None:
        return ""
    words = str(decision["verdict"])
    if by := decision["decidedBy"]:
        named = " ".join(part for part in (by["source"], by["id"]) if part)
        words += f" by {named}" + (f": {by['reason']}" if by["reason"] else "")
    answered = decision["answeredBy"] not in ("", "nobody")
    answer = f"; answered by {answerer(decision)}" if answered else ""
    return (shorten(one_line(words), max(most - len(answer), _LEAST_REASON)) if most else words) + answer


_LEAST_REASON: Final = 20
REVIEWER: Final = AnsweredBy.REVIEWER.value


def root_here() -> str:
    """Of the program around this directory; empty where the directory is gone."""
    try:
        return str(program_root(Path.cwd()))
    except FileNotFoundError:
        return ""


def found_session(typed: str, *, to_change: bool = False) -> tuple[Path, SessionSummary] | None:
    """`to_change`: only one of this home; what the store has is not changed by its copy."""
    try:
        home = (None if to_change else home_of_session(typed)) or forge_home().path
        return home, find_session(home, typed, root=root_here())
    except (SessionNotFound, SessionAmbiguous, IdNotFound) as error:
        print_error("sessions", str(error))
        return None
