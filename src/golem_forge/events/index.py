"""SessionIndex: finds sessions and calls quickly. SQLite at `FORGE_HOME/index.db`, rebuilt at any time from the
journals.

The journals are the truth. A database that is missing or corrupt is made anew; one that cannot be used (locked, disk
full, read-only) is bypassed, with a warning, by an index in memory, built from the files for that one query. Nothing
here can fail a session.

A refresh reads only files whose size or time changed, and of those only what is new: what was read before is still
valid if the last known line is still in its place, with its hash; else the file is read from its beginning. Rows of
deleted journals are deleted.

`find_session` finds a session by its id, a prefix of it, or `last`: the conversation with the latest record, of the
given program if that has one, else of all. Sessions in which no model was asked (`forge call`, a failed start) are
never `last`. Raises SessionNotFound or SessionAmbiguous.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from json.encoder import encode_basestring_ascii as quoted
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

from golem_forge.core.lazy_dataclass import dataclass
from golem_forge.events.journal_files import (
    CHAIN_START,
    Anchor,
    SessionAmbiguous,
    SessionNotFound,
    is_locked,
    journal_path,
    list_journals,
    sessions_dir,
    unseal_line,
)
from golem_forge.events.journal_records import CallRecord, CallRecords, RecordedState, parse_body, read_between
from golem_forge.storage.home import make_private_dir, touch_private

if TYPE_CHECKING:
    import sqlite3

_log = logging.getLogger(__name__)
_BUSY_TIMEOUT_S = 0.25
_PAGE_ROWS: Final = 500
"""Maximum rows of a long list in memory."""
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
    """The first words of the person."""
    talked: bool
    """Whether there is a history; a start that failed before anything was asked of a model left none."""
    cost: float | None = None
    """Cost in USD; None if unknown."""
    prices: str = ""
    """The source of the prices, if they are not the person's own."""


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
    """Offset of the call's first record in the journal."""
    last: int
    """Offset of the call's latest record in the journal."""

    @property
    def state(self) -> RecordedState:
        if self.status:
            return RecordedState.FINISHED
        return RecordedState.AMBIGUOUS if self.started else RecordedState.NEVER_STARTED


CallFilter = Callable[[CallSummary], bool]
_SESSION_COLUMNS = (
    "id, created, updated, lines, (SELECT count(*) FROM calls WHERE session_id = sessions.id), closed, worker, model, "
    "root, input, talked, cost, prices"
)
_CALL_COLUMNS = (
    "id, session_id, tool, status, caller, worker, parent, proposed_at, duration_ms, error, started, first, last"
)
_CALL_FILTER = "substr(session_id, 1, ?) = ? AND (? = '' OR tool = ?) AND (? = '' OR status = ?) AND proposed_at >= ?"
_CALL_ORDER = "proposed_at, first, session_id, id"


class SessionIndex:
    def __init__(self, home: Path) -> None:
        self._home = home

    def refresh(self) -> None:
        self._ask(lambda connection: None)

    def sessions(self, *, prefix: str = "", limit: int = 100) -> list[SessionSummary]:
        """Returns the sessions whose id starts with `prefix`, newest activity first."""
        return self._sessions("substr(id, 1, ?) = ?", (len(prefix), prefix, limit))

    def conversations(self, *, root: str = "", limit: int = 100) -> list[SessionSummary]:
        """Returns the sessions in which a model was asked something, newest activity first; `root` limits them to one
        program.
        """
        return self._sessions("worker <> '' AND talked AND (? = '' OR root = ?)", (root, root, limit))

    def _sessions(self, where: str, values: tuple[Any, ...]) -> list[SessionSummary]:
        order = "updated DESC, mtime_ns DESC, id DESC"
        rows = self._rows(f"SELECT {_SESSION_COLUMNS} FROM sessions WHERE {where} ORDER BY {order} LIMIT ?", values)  # noqa: S608
        return [_summary(SessionSummary, row) for row in rows]

    def calls(
        self, *, session: str = "", tool: str = "", status: str = "", since: str = "", limit: int = 100
    ) -> list[CallSummary]:
        """Newest first. `session` may be a prefix; `since` is an ISO time."""
        rows = self._rows(
            f"SELECT {_CALL_COLUMNS} FROM calls WHERE {_CALL_FILTER} "  # noqa: S608
            "ORDER BY proposed_at DESC, first DESC LIMIT ?",
            (len(session), session, tool, tool, status, status, since, limit),
        )
        return [_summary(CallSummary, row) for row in rows]

    def latest_calls(
        self, *, session: str = "", tool: str = "", status: str = "", fits: CallFilter | None = None, limit: int = 100
    ) -> Iterator[CallSummary]:
        """The latest `limit` of those that fit, oldest of them first, read a page at a time: the database is not
        locked between two pages, and memory does not grow with their number."""
        values = (len(session), session, tool, tool, status, status, "")
        where = f"{_CALL_FILTER} AND fits({_CALL_COLUMNS})"

        def found(connection: sqlite3.Connection) -> tuple[sqlite3.Connection, tuple[Any, ...]]:
            test = (lambda *row: fits(_summary(CallSummary, row))) if fits is not None else (lambda *row: True)
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
                    (*values, *start, min(limit, _PAGE_ROWS)),
                ).fetchall()
                for row in rows:
                    last = _summary(CallSummary, row)
                    yield last
                if len(rows) < _PAGE_ROWS:
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
        return _summary(CallSummary, exact[0]) if exact else None

    def call(self, prefix: str) -> CallRecord | None:
        """Returns the record of the call whose id starts with `prefix`; None if there is none. Raises ValueError if
        there are several.
        """
        found = self.find_call(prefix)
        return self.record_of(found) if found is not None else None

    def record_of(self, call: CallSummary) -> CallRecord | None:
        """Returns the whole record of a call; reads the journal only from the call's first to its last record."""
        path = journal_path(self._home, call.session_id)
        named = f'"call":{quoted(call.id)}'.encode()
        records = read_between(path, call.first, call.last, naming=named)
        return CallRecords.from_records(each for each in records if each.get("call") == call.id).calls.get(call.id)

    def anchors(self) -> dict[str, Anchor]:
        """Returns by session the greatest known length of its finished journal, for `verify`."""
        rows = self._rows("SELECT id, top_lines, top_hash FROM sessions WHERE top_lines > 0", ())
        return {id: Anchor(lines, hash) for id, lines, hash in rows}

    def anchor(self, session_id: str) -> Anchor | None:
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
        touch_private(self._path)  # SQLite would make it readable by others
        connection = sqlite3.connect(self._path, timeout=_BUSY_TIMEOUT_S)
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
        known = {row[1] for row in connection.execute("PRAGMA table_info(sessions)")}
        added = [f"ALTER TABLE sessions ADD COLUMN {each};" for each in _ADDED_COLUMNS if each.split()[0] not in known]
        connection.executescript(SCHEMA + ("".join(added) if known else "") + MARK_ALL_UNREAD)
    return connection


def _summary(kind: type[_T], row: tuple[Any, ...]) -> _T:
    """The columns stand in the order of the fields; SQLite has no booleans."""
    columns = zip(kind.__annotations__.items(), row, strict=True)
    return kind(**{name: bool(value) if type == "bool" else value for (name, type), value in columns})


SCHEMA_VERSION: Final = 5
SCHEMA: Final = f"""
BEGIN;
DROP TABLE IF EXISTS calls;
CREATE TABLE IF NOT EXISTS sessions (
    id TEXT PRIMARY KEY, size INTEGER, mtime_ns INTEGER, lines INTEGER, hash TEXT, created TEXT, updated TEXT,
    closed INTEGER, worker TEXT, model TEXT, root TEXT, input TEXT, talked INTEGER, top_lines INTEGER, top_hash TEXT,
    cost REAL, prices TEXT
);
CREATE TABLE calls (
    id TEXT, session_id TEXT, tool TEXT, status TEXT, caller TEXT, worker TEXT, parent TEXT,
    proposed_at TEXT, duration_ms REAL, error TEXT, started INTEGER, first INTEGER, last INTEGER,
    PRIMARY KEY (session_id, id)
);
CREATE INDEX calls_by_time ON calls (proposed_at, first, session_id, id);
CREATE INDEX calls_by_id ON calls (id);
PRAGMA user_version = {SCHEMA_VERSION};
"""
"""`first` and `last`: where in its journal the first and the last record of a call begin. `sessions` outlives a new
version, because the longest length that a journal ever had cannot be read from the journals again; versions 3 and 4 had
the same columns but the last two."""
MARK_ALL_UNREAD: Final = "UPDATE sessions SET size = 0, mtime_ns = 0; COMMIT;"
"""The end of the transaction that SCHEMA begins: every journal is read again."""
_ADDED_COLUMNS: Final = ("cost REAL", "prices TEXT")
_MAX_LINE_BYTES: Final = 16 * 1024 * 1024
_MAX_INPUT_CHARS: Final = 200
_HISTORY_TYPES: Final = ("history", "historySet")
"""Records that put something into a conversation's history; a long one is written in parts `of` it."""
_SURROGATE_ESCAPE: Final = rb"\ud"
"""The start of an escaped lone surrogate in a JSON line."""


def refresh(connection: sqlite3.Connection, home: Path) -> None:
    known = {row[0]: row[1:] for row in connection.execute("SELECT id, size, mtime_ns, lines, hash FROM sessions")}
    changed = []
    present = set()
    for path in list_journals(home):
        present.add(path.stem)
        try:
            stat = path.stat()
        except FileNotFoundError:
            continue
        if known.get(path.stem, ())[:2] != (stat.st_size, stat.st_mtime_ns):
            changed.append((path, stat.st_mtime_ns))
    gone = known.keys() - present
    if not changed and not gone:
        return
    with connection:
        connection.execute("BEGIN IMMEDIATE")
        for session_id in gone:
            connection.execute("DELETE FROM calls WHERE session_id = ?", (session_id,))
            connection.execute("DELETE FROM sessions WHERE id = ?", (session_id,))
        for path, mtime_ns in changed:
            _read_journal(connection, path, mtime_ns, known.get(path.stem))


def _read_journal(connection: sqlite3.Connection, path: Path, mtime_ns: int, known: tuple[Any, ...] | None) -> None:
    session_id = path.stem
    size, lines, hash = (known[0], known[2], known[3]) if known else (0, 0, CHAIN_START)
    if not known or not _still_there(path, size, hash):
        size, lines, hash = 0, 0, CHAIN_START
        connection.execute("DELETE FROM calls WHERE session_id = ?", (session_id,))
        connection.execute(
            "INSERT INTO sessions VALUES (?, 0, 0, 0, '', '', '', 0, '', '', '', '', 0, 0, '', NULL, '') "
            "ON CONFLICT (id) DO UPDATE SET size = 0, lines = 0, hash = '', created = '', updated = '', closed = 0, "
            "worker = '', model = '', root = '', input = '', talked = 0, cost = NULL, prices = ''",
            (session_id,),
        )
    last: Mapping[str, Any] = {}
    with path.open("rb") as file:
        file.seek(size)
        while (line := file.readline(_MAX_LINE_BYTES)).endswith(b"\n"):
            start = size
            size += len(line)
            lines += 1
            parts = unseal_line(line[:-1])
            record = parse_body(parts[0]) if parts else None
            if parts is None or record is None:
                continue
            hash = parts[1]
            last = record
            shown = _whole_characters(record) if _SURROGATE_ESCAPE in line else record
            _apply_record(connection, session_id, shown, start)
    if last:
        connection.execute(
            "UPDATE sessions SET updated = ?, closed = ? WHERE id = ?",
            (str(last.get("ts", "")), last.get("type") == "closed", session_id),
        )
    # The size as read, not as it is: a torn or still growing last line makes the next refresh look again.
    connection.execute(
        "UPDATE sessions SET size = ?, mtime_ns = ?, lines = ?, hash = ? WHERE id = ?",
        (size, mtime_ns, lines, hash, session_id),
    )
    if not is_locked(path):  # a writer may still take back lines that a full disk cut short
        connection.execute(
            "UPDATE sessions SET top_lines = ?, top_hash = ? WHERE id = ? AND top_lines <= ?",
            (lines, hash, session_id, lines),
        )


def _whole_characters(record: Mapping[str, Any]) -> dict[str, Any]:
    """Threat: JSON can write half a character, SQLite cannot, and one such record would close the index to all."""
    cleaned: dict[str, Any] = json.loads(json.dumps(record, ensure_ascii=False).encode("utf-8", "replace"))
    return cleaned


def _still_there(path: Path, size: int, hash: str) -> bool:
    """Whether the line that ended at `size` is still the one with this hash."""
    ending = f'"hash":"{hash}"}}\n'.encode()
    if size < len(ending):
        return False
    with path.open("rb") as file:
        file.seek(size - len(ending))
        return file.read(len(ending)) == ending


def _apply_record(connection: sqlite3.Connection, session_id: str, record: Mapping[str, Any], start: int) -> None:
    """`start`: where the record begins in its file."""
    kind, call_id = record.get("type"), record.get("call")
    if kind in ("proposed", "begun", "done"):
        said = [record.get(name, "") for name in ("caller", "worker", "parent")]
        values = (call_id, session_id, record.get("tool"), *said, str(record.get("ts", "")), kind != "proposed")
        connection.execute(
            "INSERT OR REPLACE INTO calls VALUES (?, ?, ?, '', ?, ?, ?, ?, 0, '', ?, ?, ?)", (*values, start, start)
        )
    if kind == "decided":
        connection.execute("UPDATE calls SET last = ? WHERE session_id = ? AND id = ?", (start, session_id, call_id))
    elif kind == "started":
        connection.execute(
            "UPDATE calls SET tool = ?, status = '', duration_ms = 0, error = '', started = 1, last = ? "
            "WHERE session_id = ? AND id = ?",
            (record.get("tool"), start, session_id, call_id),
        )
    elif kind in ("finished", "done"):
        error = str(record.get("error", ""))
        connection.execute(
            "UPDATE calls SET status = ?, duration_ms = ?, error = ?, last = ? WHERE session_id = ? AND id = ?",
            (record.get("status", ""), record.get("ms", 0.0), error, start, session_id, call_id),
        )
    elif kind == "session":
        connection.execute("UPDATE sessions SET created = ? WHERE id = ?", (record.get("created", ""), session_id))
    elif kind == "run":
        _set_worker(connection, session_id, record.get("name"), record.get("model"))
        root = record.get("root")
        connection.execute(
            "UPDATE sessions SET root = ? WHERE id = ?", (root if isinstance(root, str) else "", session_id)
        )
    elif kind == "event" and record.get("event") == "sessionStarted":
        data = record.get("data", {})
        _set_worker(connection, session_id, data.get("worker"), data.get("model"))
    elif kind == "event" and record.get("event") == "usageUpdated":
        _set_cost(connection, session_id, record.get("data", {}).get("session"))
    if kind in _HISTORY_TYPES or record.get("of") in _HISTORY_TYPES:
        connection.execute("UPDATE sessions SET talked = 1 WHERE id = ?", (session_id,))
    if words := _first_words(record):
        connection.execute("UPDATE sessions SET input = ? WHERE id = ? AND input = ''", (words, session_id))


def _set_worker(connection: sqlite3.Connection, session_id: str, worker: Any, model: Any) -> None:
    connection.execute(
        "UPDATE sessions SET worker = ?, model = ? WHERE id = ?", (str(worker or ""), str(model or ""), session_id)
    )


def _set_cost(connection: sqlite3.Connection, session_id: str, sums: Any) -> None:
    """The sums of a session stand in each of its events about usage; the last one counts."""
    said = sums if isinstance(sums, dict) else {}
    cost, prices = said.get("cost"), said.get("prices")
    known = cost if isinstance(cost, int | float) else None
    shown = prices if isinstance(prices, str) else ""
    connection.execute("UPDATE sessions SET cost = ?, prices = ? WHERE id = ?", (known, shown, session_id))


def _first_words(record: Mapping[str, Any]) -> str:
    """Returns the first words of what a person said in this record; empty if the record is about something else."""
    if record.get("type") == "history":
        message = record.get("message")
        said = message.get("text") if isinstance(message, dict) and message.get("kind") == "input" else ""
    elif record.get("event") == "message":
        message = record.get("data", {}).get("message")
        said = message.get("content") if isinstance(message, dict) and message.get("role") == "user" else ""
    else:
        return ""
    return " ".join(said[: 10 * _MAX_INPUT_CHARS].split())[:_MAX_INPUT_CHARS] if isinstance(said, str) else ""


LAST: Final = "last"


def find_session(home: Path, typed: str, *, root: Path | str = "") -> SessionSummary:
    """`root`: the program whose `last` is meant. Looking creates nothing."""
    if not typed or not sessions_dir(home).is_dir():
        raise SessionNotFound(typed)
    index = SessionIndex(home)
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
