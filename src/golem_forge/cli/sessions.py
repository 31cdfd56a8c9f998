"""`forge sessions`: recorded conversations: list, show, export, rename, delete. Only the last two write in FORGE_HOME.
Other verbs find a session here too.

`show` prints a session again as text: no model, no call, no new record. `export` prints its events, one JSON envelope a
line in ASCII, or the session as one Markdown or JSON text; `-o` writes a new file. `delete` asks on a terminal, removes
everything that is kept of a session, and is refused while a process uses it.

A session is found by its id, the beginning of it, or `last`. One that is not in this home is looked for in the store of
background sessions: a copy of its journal is then read like one of this home. Looking creates nothing else.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from golem_forge.agent.recorded_sessions import (
    FORMATS,
    MAX_LISTED,
    SUFFIXES,
    delete_session,
    export_session,
    format_of,
    listed_sessions,
    priced_sessions,
    rename_session,
    replay,
    session_row,
    session_state,
    session_table,
    session_title,
    session_titles,
)
from golem_forge.agent.session_state import known_secrets
from golem_forge.agent.trust import trust_store
from golem_forge.cli.command import DENIED, FAILED, NOT_FOUND, fail, print_error, print_json, read_args
from golem_forge.config.program import load_program, program_root
from golem_forge.config.run_block import RunSettings
from golem_forge.core.decisions import AnsweredBy, Status
from golem_forge.core.errors import ConfigError, ForgeError
from golem_forge.core.text import columns, escape_control_chars, nearest_remark, one_line, shorten, shorten_prose
from golem_forge.events.index import LAST, CallSummary, SessionIndex, SessionSummary, find_session
from golem_forge.events.journal import MAY_HAVE_RUN
from golem_forge.events.journal_files import (
    SessionAmbiguous,
    SessionInUse,
    SessionNotFound,
    is_locked,
    journal_path,
    sessions_dir,
)
from golem_forge.events.journal_records import CallRecord, RecordedState
from golem_forge.storage.home import create_private, forge_home
from golem_forge.ui.line_terminal import ask_yes, can_ask
from golem_forge.ui.render.lines import plain_text
from golem_forge.ui.trace import TraceLevel, create_trace_formatter, json_line

if TYPE_CHECKING:
    from golem_forge.team.people import TeamStore


HELP: Final = """usage: forge sessions list [--all] [--limit N] [--json]
       forge sessions show ID [--trace quiet|summary|normal|debug]
       forge sessions export ID [--format events|markdown|json] [-o FILE]
       forge sessions rename ID TITLE
       forge sessions delete ID [--yes]

  list    the conversations, newest last: id, when, state, worker, model, where (`.`: here), and the title
  show    prints a session again as text; it asks, calls and records nothing
  export  its events, one JSON object a line; `markdown` and `json` write the whole session as one text
  rename  gives it a title; `""` removes the title. Without one the first words of the first message are the title
  delete  removes everything of it: journal, attachments, stored outputs, its lines in the index; on a terminal it asks
          first

  ID        its id, the beginning of it, or `last`: the latest of the program in this directory, else the latest of all
  --all     also single calls (`forge call`), and starts in which no model was asked anything
  --limit   how many at most (20)
  --format  `events` (one JSON object a line), `markdown`, `json`; without it the suffix of FILE decides
  -o        writes a new file instead of standard output; an existing file is not replaced
  --yes     deletes without a question

`forge run --resume ID` goes on with one. Single calls: `forge log`.
Exit: 0 done, 1 it failed (the session is in use), 2 usage, 3 not agreed, 4 no such session."""
_EVENTS: Final = "events"
_TITLE_IN_QUESTION: Final = 60


def run(words: list[str]) -> int:
    if {"-h", "--help"} & set(words):
        print(HELP)
        return 0
    verb, rest = (words[0], words[1:]) if words and not words[0].startswith("-") else ("list", words)
    verbs = {"list": run_list, "show": run_show, "export": run_export, "rename": run_rename, "delete": run_delete}
    if verb in verbs:
        try:
            return verbs[verb](rest)
        except IdNotFound as error:
            return fail("sessions", str(error), NOT_FOUND)
    hint = nearest_remark(verb, verbs)
    return fail("sessions", f"no verb '{one_line(verb)}'{hint}. `forge sessions --help` lists them.", 2)


def run_list(words: list[str]) -> int:
    asked = read_args("sessions list", HELP, words, "--all", "--limit N", "--json", limit=MAX_LISTED)
    home = home_with_sessions()
    found: list[tuple[SessionSummary, str]] = []
    titles: dict[str, str] = {}
    if home is not None:
        titles = session_titles(home)
        sessions = listed_sessions(home, everything=asked.all, limit=max(asked.limit, 0))
        priced = priced_sessions(home, sessions, _settings_here)
        found = [(each, session_state(home, each)) for each in priced]
    if asked.json:
        print_json([_session_json(session, state, session_title(session, titles)) for session, state in found])
    elif found:
        root = root_here()
        rows = [session_row(session, state, root, session_title(session, titles)) for session, state in found]
        print(columns(session_table(rows)))
    else:
        nothing = "no session yet." if asked.all else "no conversation yet; `--all` lists single calls too."
        print_error("sessions", nothing)
    return 0


def _settings_here() -> RunSettings:
    home = forge_home()
    return load_program(Path.cwd(), home, trusted=trust_store(home).trusted).run


def _session_json(session: SessionSummary, state: str, title: str) -> dict[str, Any]:
    return {
        "id": session.id,
        "title": title,
        "created": session.created,
        "updated": session.updated,
        "state": state.replace(" ", "_"),
        "worker": session.worker,
        "model": session.model,
        "directory": session.root,
        "input": session.input,
        "calls": session.calls,
        "lines": session.lines,
        "cost": session.cost,
    }


def run_show(words: list[str]) -> int:
    level = f"-t,--trace {'|'.join(TraceLevel)}"
    asked = read_args("sessions show", HELP, words, "ID", level, trace=TraceLevel.NORMAL.value)
    home, session = found_session(asked.id)
    formatter = create_trace_formatter(asked.trace)
    for event in replay(session.id, home=home):
        sys.stdout.write(plain_text(formatter.format(event)))
    return 0


def run_export(words: list[str]) -> int:
    declared = ("ID", f"--format {'|'.join((_EVENTS, *FORMATS))}", "-o,--output FILE")
    asked = read_args("sessions export", HELP, words, *declared)
    home, session = found_session(asked.id)
    known_suffix = Path(asked.output or "").suffix.lower() in SUFFIXES
    format = asked.format or (format_of(asked.output) if known_suffix else _EVENTS)
    events = replay(session.id, home=home)
    if format == _EVENTS:
        pieces: Iterable[str] = map(json_line, events)
    else:
        title = session_title(session, session_titles(home))
        pieces = export_session(session, title, events, format, known_secrets(forge_home()).text)
    if not asked.output:
        for piece in pieces:
            sys.stdout.write(piece)
        return 0
    return _write_new(asked.output, pieces)


def _write_new(name: str, pieces: Iterable[str]) -> int:
    try:
        with create_private(name) as file:
            for piece in pieces:
                file.write(piece.encode())
    except FileExistsError:
        return fail("sessions export", f"{one_line(name)} exists already; choose another name, or remove it.", FAILED)
    except OSError as error:
        return fail("sessions export", f"{one_line(name)} could not be written: {error.strerror}", FAILED)
    print(f"wrote {one_line(name)}")
    return 0


def run_rename(words: list[str]) -> int:
    asked = read_args("sessions rename", HELP, words, "ID", "title:TITLE+")
    home, session = found_session(asked.id, to_change=True)
    try:
        title = rename_session(home, session.id, " ".join(asked.title))
    except OSError as error:
        return fail("sessions rename", f"the title could not be saved: {error.strerror}", FAILED)
    shown = f"is now called: {title}" if title else f"has its first words as title again: {one_line(session.input)}"
    print(f"session {session.id[:ID_SHOWN]} {shown}")
    return 0


def run_delete(words: list[str]) -> int:
    asked = read_args("sessions delete", HELP, words, "ID", "--yes")
    home, session = found_session(asked.id, to_change=True)
    if session_state(home, session) == "running":
        return fail("sessions", SessionInUse(session.id).message, FAILED)
    if not asked.yes and not _agreed_to_delete(session, session_title(session, session_titles(home))):
        return DENIED
    try:
        delete_session(home, session.id)
    except ForgeError as error:
        return fail("sessions", error.message, FAILED)
    print(f"deleted session {session.id[:ID_SHOWN]}")
    return 0


def _agreed_to_delete(session: SessionSummary, title: str) -> bool:
    """A person is asked; a script that names the session has said what it wants."""
    if not can_ask():
        return True
    id = session.id[:ID_SHOWN]
    called = f" ({shorten_prose(title, _TITLE_IN_QUESTION)})" if title else ""
    if ask_yes(escape_control_chars(f"Delete session {id}{called}? It cannot be brought back. [y/N] ")):
        return True
    print_error("sessions delete", "nothing was deleted.")
    return False


ALL_SESSIONS: Final = "all"
STORE_SESSIONS: Final = 200
"""Number of newest sessions of the store that `--store` looks at."""
ID_SHOWN: Final = 12
"""Number of printed digits of an id, enough to find it again."""


class IdNotFound(Exception):
    """Raised if nothing, or several things, match what was typed; the text says what to do."""


def home_with_sessions() -> Path | None:
    """Returns the home; None if nothing was ever recorded, because a listing must not create anything."""
    home = forge_home().path
    return home if sessions_dir(home).is_dir() else None


def home_of_session(typed: str) -> Path | None:
    """Returns where a named session is read: this home, or the copies of the store's. None if nothing was recorded."""
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
    """Raised if the store has no session of that name."""


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
    """Returns the local copies of stores' sessions that were read from this home."""
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
"""Matches every kind of denial."""
DENIALS: Final = (Status.APPROVAL_DENIED.value, Status.POLICY_DENIED.value, Status.SANDBOX_DENIED.value)
STATUS_WORDS: Final = (*(status.value for status in Status), DENIED_WORD, *OPEN_WORDS)


class LiveSessions:
    """Finds the sessions of a home, or of the copies of a store, that have not ended, so that their open calls are not
    reported as lost.
    """

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
    """Returns the store's sessions that a runner holds or that are parked; empty if it cannot be asked now."""
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
    """Describes who decided and why: `ask by base write: zone /workspace says ask for write; answered by person`.

    `most`: shortens the reason so that the text has about that many characters. Who answered is never cut.
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
    """Returns the root of the program around this directory; empty if the directory is gone."""
    try:
        return str(program_root(Path.cwd()))
    except FileNotFoundError:
        return ""


def found_session(typed: str, *, to_change: bool = False) -> tuple[Path, SessionSummary]:
    """`to_change`: only one of this home; what the store has is not changed by its copy. Raises IdNotFound."""
    try:
        home = (None if to_change else home_of_session(typed)) or forge_home().path
        return home, find_session(home, typed, root=root_here())
    except (SessionNotFound, SessionAmbiguous) as error:
        raise IdNotFound(str(error)) from None
