"""Bringing the index up to date: only files whose size or time changed are read, and of those only what is new.

What was read before still stands if the last line known is still where it was, with its hash; else the file is read
from its beginning. Rows of deleted journals go.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from golem_forge.events.chain import START, unseal
from golem_forge.events.journal_reader import parse_body
from golem_forge.events.session_files import is_held, list_journals

if TYPE_CHECKING:
    import sqlite3

SCHEMA_VERSION: Final = 4
SCHEMA: Final = f"""
BEGIN;
DROP TABLE IF EXISTS calls;
CREATE TABLE IF NOT EXISTS sessions (
    id TEXT PRIMARY KEY, size INTEGER, mtime_ns INTEGER, lines INTEGER, hash TEXT, created TEXT, updated TEXT,
    closed INTEGER, worker TEXT, model TEXT, root TEXT, input TEXT, talked INTEGER, top_lines INTEGER, top_hash TEXT
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
ALL_UNREAD: Final = "UPDATE sessions SET size = 0, mtime_ns = 0; COMMIT;"
"""`first` and `last`: where in its journal the first and the last record of a call begin. `sessions` outlives a new
version, because the longest length that a journal ever had cannot be read from the journals again; version 3 had the
same columns."""
_BIGGEST_TAIL: Final = 16 * 1024 * 1024
_INPUT_KEPT: Final = 200
_HISTORY: Final = ("history", "historySet")
"""Records that put something into a conversation's history; a long one is written in parts `of` it."""
_ESCAPE: Final = rb"\ud"
"""How a lone surrogate stands in a line."""


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
            _read_in(connection, path, mtime_ns, known.get(path.stem))


def _read_in(connection: sqlite3.Connection, path: Path, mtime_ns: int, known: tuple[Any, ...] | None) -> None:
    session_id = path.stem
    size, lines, hash = (known[0], known[2], known[3]) if known else (0, 0, START)
    if not known or not _still_there(path, size, hash):
        size, lines, hash = 0, 0, START
        connection.execute("DELETE FROM calls WHERE session_id = ?", (session_id,))
        connection.execute(
            "INSERT INTO sessions VALUES (?, 0, 0, 0, '', '', '', 0, '', '', '', '', 0, 0, '') "
            "ON CONFLICT (id) DO UPDATE SET size = 0, lines = 0, hash = '', created = '', updated = '', closed = 0, "
            "worker = '', model = '', root = '', input = '', talked = 0",
            (session_id,),
        )
    last: Mapping[str, Any] = {}
    for line in _new_lines(path, size):
        start = size
        size += len(line)
        lines += 1
        parts = unseal(line[:-1])
        record = parse_body(parts[0]) if parts else None
        if parts is None or record is None:
            continue
        hash = parts[1]
        last = record
        _take_in(connection, session_id, _whole_characters(record) if _ESCAPE in line else record, start)
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
    if not is_held(path):  # a writer may still take back lines that a full disk cut short
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


def _new_lines(path: Path, size: int) -> Iterator[bytes]:
    with path.open("rb") as file:
        file.seek(size)
        while (line := file.readline(_BIGGEST_TAIL)).endswith(b"\n"):
            yield line


def _take_in(connection: sqlite3.Connection, session_id: str, record: Mapping[str, Any], start: int) -> None:
    """`start`: where the record begins in its file."""
    kind, call_id = record.get("type"), record.get("call")
    if kind in ("proposed", "begun", "done"):
        connection.execute(
            "INSERT OR REPLACE INTO calls VALUES (?, ?, ?, '', ?, ?, ?, ?, 0, '', ?, ?, ?)",
            (
                call_id,
                session_id,
                record.get("tool"),
                record.get("caller", ""),
                record.get("worker", ""),
                record.get("parent", ""),
                str(record.get("ts", "")),
                kind != "proposed",
                start,
                start,
            ),
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
        _took_part(connection, session_id, record.get("name"), record.get("model"))
        root = record.get("root")
        connection.execute(
            "UPDATE sessions SET root = ? WHERE id = ?", (root if isinstance(root, str) else "", session_id)
        )
    elif kind == "event" and record.get("event") == "sessionStarted":
        data = record.get("data", {})
        _took_part(connection, session_id, data.get("worker"), data.get("model"))
    if kind in _HISTORY or record.get("of") in _HISTORY:
        connection.execute("UPDATE sessions SET talked = 1 WHERE id = ?", (session_id,))
    if words := _first_words(record):
        connection.execute("UPDATE sessions SET input = ? WHERE id = ? AND input = ''", (words, session_id))


def _took_part(connection: sqlite3.Connection, session_id: str, worker: Any, model: Any) -> None:
    connection.execute(
        "UPDATE sessions SET worker = ?, model = ? WHERE id = ?", (str(worker or ""), str(model or ""), session_id)
    )


def _first_words(record: Mapping[str, Any]) -> str:
    """Of what a person said to the worker, where this record is about that."""
    if record.get("type") == "history":
        message = record.get("message")
        said = message.get("text") if isinstance(message, dict) and message.get("kind") == "input" else ""
    elif record.get("event") == "message":
        message = record.get("data", {}).get("message")
        said = message.get("content") if isinstance(message, dict) and message.get("role") == "user" else ""
    else:
        return ""
    return " ".join(said[: 10 * _INPUT_KEPT].split())[:_INPUT_KEPT] if isinstance(said, str) else ""
