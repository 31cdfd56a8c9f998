"""Index: finds sessions and calls quickly. SQLite at `FORGE_HOME/index.db`, rebuilt at any time from the journals.

The journals are the truth. A database that is missing or corrupt is made anew; one that cannot be used (locked, disk
full, read-only) is bypassed with a warning by an index in memory, built from the files for that one query. Nothing
here can fail a session.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass
from json.encoder import encode_basestring_ascii as quoted
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

from golem_forge.events.anchors import Anchor
from golem_forge.events.call_states import CallRecord, CallState, CallStates
from golem_forge.events.index_refresh import ALL_UNREAD, SCHEMA, SCHEMA_VERSION, refresh
from golem_forge.events.journal_reader import read_between
from golem_forge.events.session_files import journal_path, make_private_dir

if TYPE_CHECKING:
    import sqlite3

_log = logging.getLogger(__name__)
_BUSY_S = 0.25
_PAGE: Final = 500
"""So many calls of a long list are held at once."""
_T = TypeVar("_T")


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionSummary:
    id: str
    created: str
    updated: str
    """The time of the last record."""
    lines: int
    calls: int
    closed: bool
    worker: str
    """Empty for a session that was no conversation (`forge call`)."""
    model: str
    root: str
    """The program's directory on this machine, where it goes on; empty where no worker ran."""
    input: str
    """The first words that a person said."""
    talked: bool
    """Whether there is a history; a start that failed before anything was asked of a model left none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CallSummary:
    id: str
    session_id: str
    tool: str
    status: str
    """Empty while the call is open."""
    caller: str
    worker: str
    parent: str
    proposed_at: str
    duration_ms: float
    error: str
    started: bool
    first: int
    """Where its first record begins in the journal."""
    last: int
    """Where its latest record begins."""

    @property
    def state(self) -> CallState:
        if self.status:
            return CallState.FINISHED
        return CallState.AMBIGUOUS if self.started else CallState.NEVER_STARTED


Fits = Callable[[CallSummary], bool]
_SESSION_COLUMNS = (
    "id, created, updated, lines, (SELECT count(*) FROM calls WHERE session_id = sessions.id), closed, worker, model, "
    "root, input, talked"
)
_CALL_COLUMNS = (
    "id, session_id, tool, status, caller, worker, parent, proposed_at, duration_ms, error, started, first, last"
)
_CALL_FILTER = "substr(session_id, 1, ?) = ? AND (? = '' OR tool = ?) AND (? = '' OR status = ?) AND proposed_at >= ?"
_CALL_ORDER = "proposed_at, first, session_id, id"


class Index:
    def __init__(self, home: Path) -> None:
        self._home = home

    def refresh(self) -> None:
        """Brings the database up to date with the journals."""
        self._ask(lambda connection: None)

    def sessions(self, *, prefix: str = "", limit: int = 100) -> list[SessionSummary]:
        """Newest activity first."""
        rows = self._rows(
            f"SELECT {_SESSION_COLUMNS} FROM sessions WHERE substr(id, 1, ?) = ? "  # noqa: S608
            "ORDER BY updated DESC, mtime_ns DESC, id DESC LIMIT ?",
            (len(prefix), prefix, limit),
        )
        return [_session_summary(row) for row in rows]

    def conversations(self, *, root: str = "", limit: int = 100) -> list[SessionSummary]:
        """Those in which a model was asked something, newest activity first; `root`: of that program alone."""
        rows = self._rows(
            f"SELECT {_SESSION_COLUMNS} FROM sessions WHERE worker <> '' AND talked AND (? = '' OR root = ?) "  # noqa: S608
            "ORDER BY updated DESC, mtime_ns DESC, id DESC LIMIT ?",
            (root, root, limit),
        )
        return [_session_summary(row) for row in rows]

    def calls(
        self, *, session: str = "", tool: str = "", status: str = "", since: str = "", limit: int = 100
    ) -> list[CallSummary]:
        """Newest first. `session` may be a prefix; `since` is an ISO time."""
        rows = self._rows(
            f"SELECT {_CALL_COLUMNS} FROM calls WHERE {_CALL_FILTER} "  # noqa: S608
            "ORDER BY proposed_at DESC, first DESC LIMIT ?",
            (len(session), session, tool, tool, status, status, since, limit),
        )
        return [_call_summary(row) for row in rows]

    def latest_calls(
        self, *, session: str = "", tool: str = "", status: str = "", fits: Fits | None = None, limit: int = 100
    ) -> Iterator[CallSummary]:
        """The latest `limit` of those that fit, oldest of them first, read a page at a time: the database is not
        locked between two pages, and memory does not grow with their number."""
        values = (len(session), session, tool, tool, status, status, "")
        where = f"{_CALL_FILTER} AND fits({_CALL_COLUMNS})"

        def found(connection: sqlite3.Connection) -> tuple[sqlite3.Connection, tuple[Any, ...]]:
            test = (lambda *row: fits(_call_summary(row))) if fits is not None else (lambda *row: True)
            connection.create_function("fits", len(_CALL_COLUMNS.split(",")), test)
            newest_first = ", ".join(f"{name} DESC" for name in _CALL_ORDER.split(", "))
            oldest = connection.execute(
                f"SELECT {_CALL_ORDER} FROM calls WHERE {where} ORDER BY {newest_first} LIMIT 1 OFFSET ?",  # noqa: S608
                (*values, limit - 1),
            ).fetchone()
            return connection, oldest or ("", 0, "", "")

        if limit < 1:
            return
        connection, start = self._ask(found, close=False)
        with closing(connection):
            compare = ">="
            while limit:
                rows = connection.execute(
                    f"SELECT {_CALL_COLUMNS} FROM calls WHERE {where} AND ({_CALL_ORDER}) {compare} (?, ?, ?, ?) "  # noqa: S608
                    f"ORDER BY {_CALL_ORDER} LIMIT ?",
                    (*values, *start, min(limit, _PAGE)),
                ).fetchall()
                for row in rows:
                    last = _call_summary(row)
                    yield last
                if len(rows) < _PAGE:
                    return
                limit -= len(rows)
                start, compare = (last.proposed_at, last.first, last.session_id, last.id), ">"

    def find_call(self, prefix: str) -> CallSummary | None:
        """The one call whose id starts so; None when there is none, ValueError when several."""
        rows = self._rows(
            f"SELECT {_CALL_COLUMNS} FROM calls WHERE substr(id, 1, ?) = ? LIMIT 3",  # noqa: S608
            (len(prefix), prefix),
        )
        exact = [row for row in rows if row[0] == prefix] or rows
        if len(exact) > 1:
            raise ValueError(f"several calls start with {prefix!r}: {', '.join(row[0] for row in exact)}")
        return _call_summary(exact[0]) if exact else None

    def call(self, prefix: str) -> CallRecord | None:
        """Everything about the one call whose id starts so; None when there is none, ValueError when several."""
        found = self.find_call(prefix)
        return self.record_of(found) if found is not None else None

    def record_of(self, call: CallSummary) -> CallRecord | None:
        """Everything about a call. Of its journal only the part from its first to its last record is read."""
        path = journal_path(self._home, call.session_id)
        named = f'"call":{quoted(call.id)}'.encode()
        records = read_between(path, call.first, call.last, naming=named)
        return CallStates.from_records(each for each in records if each.get("call") == call.id).calls.get(call.id)

    def anchors(self) -> dict[str, Anchor]:
        """By session: the longest that its finished journal was ever seen to be, for `verify`."""
        rows = self._rows("SELECT id, top_lines, top_hash FROM sessions WHERE top_lines > 0", ())
        return {id: Anchor(lines, hash) for id, lines, hash in rows}

    def anchor(self, session_id: str) -> Anchor | None:
        """The longest that this session's finished journal was ever seen to be, for `verify`."""
        rows = self._rows("SELECT top_lines, top_hash FROM sessions WHERE id = ? AND top_lines > 0", (session_id,))
        return Anchor(*rows[0]) if rows else None

    def _rows(self, sql: str, values: tuple[Any, ...]) -> list[tuple[Any, ...]]:
        return self._ask(lambda connection: connection.execute(sql, values).fetchall())

    def _ask(self, query: Callable[[sqlite3.Connection], _T], *, close: bool = True) -> _T:
        """Answers from the database; if it is spoilt, from a new one; if that fails too, from memory.

        Not `close`: the query hands the connection on, and whoever gets it closes it.
        """
        import sqlite3

        for attempt in (1, 2):
            try:
                return self._answer(self._open_file(), query, close)
            except (sqlite3.Error, OSError) as error:
                busy = isinstance(error, sqlite3.OperationalError) and "locked" in str(error)
                if attempt == 2 or busy or not self._remove_file():
                    _log.warning("the index cannot be used (%s); the journals are read instead", type(error).__name__)
                    break
                _log.warning("the index was unusable (%s) and is built anew", type(error).__name__)
        return self._answer(_with_schema(sqlite3.connect(":memory:")), query, close)

    def _answer(self, connection: sqlite3.Connection, query: Callable[[sqlite3.Connection], _T], close: bool) -> _T:
        try:
            refresh(connection, self._home)
            answer = query(connection)
        except BaseException:
            connection.close()
            raise
        if close:
            connection.close()
        return answer

    @property
    def _path(self) -> Path:
        return self._home / "index.db"

    def _open_file(self) -> sqlite3.Connection:
        import sqlite3

        make_private_dir(self._home)
        os.close(os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600))
        connection = sqlite3.connect(self._path, timeout=_BUSY_S)
        try:
            return _with_schema(connection)
        except BaseException:
            connection.close()
            raise

    def _remove_file(self) -> bool:
        try:
            for suffix in ("", "-journal", "-wal", "-shm"):
                Path(f"{self._path}{suffix}").unlink(missing_ok=True)
        except OSError:
            return False
        return True


def _with_schema(connection: sqlite3.Connection) -> sqlite3.Connection:
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    if version != SCHEMA_VERSION:
        connection.executescript(SCHEMA + ALL_UNREAD)
    return connection


def _session_summary(row: tuple[Any, ...]) -> SessionSummary:
    id, created, updated, lines, calls, closed, worker, model, root, input, talked = row
    return SessionSummary(
        id=id,
        created=created,
        updated=updated,
        lines=lines,
        calls=calls,
        closed=bool(closed),
        worker=worker,
        model=model,
        root=root,
        input=input,
        talked=bool(talked),
    )


def _call_summary(row: tuple[Any, ...]) -> CallSummary:
    id, session_id, tool, status, caller, worker, parent, proposed_at, duration_ms, error, started, first, last = row
    return CallSummary(
        id=id,
        session_id=session_id,
        tool=tool,
        status=status,
        caller=caller,
        worker=worker,
        parent=parent,
        proposed_at=proposed_at,
        duration_ms=duration_ms,
        error=error,
        started=bool(started),
        first=first,
        last=last,
    )
