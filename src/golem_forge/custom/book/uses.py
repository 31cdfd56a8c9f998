"""Uses, ratings and refresh times in the book. Statements over one connection; quick enough for every call.

Nothing grows without end: of each tool the last 2,000 uses are kept one by one, older ones as sums; 200 ratings; 1,000
refreshes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from golem_forge.core.visible import visible
from golem_forge.custom.book.records import Ratings, Use
from golem_forge.events.clock import iso_now

if TYPE_CHECKING:
    import sqlite3

MOST_USES: Final = 2_000
_FOLD_EVERY: Final = 500
_MOST_RATINGS: Final = 200
_MOST_NOTES: Final = 20
_LONGEST_NOTE: Final = 500
_MOST_REFRESHES: Final = 1_000
_RUNS_BEFORE_RATING: Final = 3


def used(connection: sqlite3.Connection, use: Use) -> None:
    number = connection.execute(
        "INSERT INTO uses (name, digest, status, ran, duration_ms, session, call, at) VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
        (use.name, use.digest, str(use.status), use.ran, float(use.duration_ms), use.session, use.call, use.at),
    ).lastrowid
    connection.execute(
        "INSERT INTO tools (name, runs, first_session) VALUES (:name, :ran, :session) ON CONFLICT (name) DO UPDATE SET "
        "runs = runs + :ran, first_session = coalesce(first_session, :session), "
        "reused = reused OR (first_session IS NOT NULL AND first_session <> :session)",
        {"name": use.name, "ran": use.ran, "session": use.session},
    )
    if number is not None and number % _FOLD_EVERY == 0:
        _fold_old_ones(connection)


def rate(connection: sqlite3.Connection, name: str, *, good: bool, note: str) -> None:
    """Whoever has rated a tool is not asked to any more."""
    connection.execute(
        "INSERT INTO ratings (name, at, good, note) VALUES (?, ?, ?, ?)",
        (name, iso_now(), good, visible(note[:_LONGEST_NOTE])),
    )
    connection.execute(
        "DELETE FROM ratings WHERE name = ? AND id NOT IN "
        "(SELECT id FROM ratings WHERE name = ? ORDER BY id DESC LIMIT ?)",
        (name, name, _MOST_RATINGS),
    )
    connection.execute(
        "INSERT INTO tools (name, rating_offered) VALUES (?, 1) ON CONFLICT (name) DO UPDATE SET rating_offered = 1",
        (name,),
    )


def ratings(connection: sqlite3.Connection, name: str) -> Ratings:
    rows = connection.execute("SELECT good, note FROM ratings WHERE name = ? ORDER BY id DESC", (name,)).fetchall()
    good = sum(1 for value, _ in rows if value)
    notes = tuple(note for _, note in rows if note)[:_MOST_NOTES]
    return Ratings(good=good, bad=len(rows) - good, notes=notes)


def offers_rating(connection: sqlite3.Connection, name: str) -> bool:
    changed = connection.execute(
        "UPDATE tools SET rating_offered = 1 WHERE name = ? AND runs >= ? AND rating_offered = 0",
        (name, _RUNS_BEFORE_RATING),
    ).rowcount
    return changed > 0


def refreshes_took(connection: sqlite3.Connection, took: Sequence[float]) -> None:
    connection.executemany("INSERT INTO refreshes (ms) VALUES (?)", [(ms,) for ms in took])
    connection.execute("DELETE FROM refreshes WHERE id <= (SELECT max(id) FROM refreshes) - ?", (_MOST_REFRESHES,))


def _fold_old_ones(connection: sqlite3.Connection) -> None:
    """Of every tool that has too many: a quick one may have had all of the last hundreds, or none."""
    full = connection.execute("SELECT name FROM uses GROUP BY name HAVING count(*) > ?", (MOST_USES,)).fetchall()
    for (name,) in full:
        (oldest,) = connection.execute(
            "SELECT id FROM uses WHERE name = ? ORDER BY id DESC LIMIT 1 OFFSET ?", (name, MOST_USES - 1)
        ).fetchone()
        connection.execute(
            "INSERT INTO tallies (name, digest, status, ran, calls, total_ms, last_at) "
            "SELECT name, digest, status, ran, count(*), sum(duration_ms), max(at) FROM uses "
            "WHERE name = ? AND id < ? GROUP BY digest, status, ran "
            "ON CONFLICT (name, digest, status, ran) DO UPDATE SET calls = calls + excluded.calls, "
            "total_ms = total_ms + excluded.total_ms, last_at = max(last_at, excluded.last_at)",
            (name, oldest),
        )
        connection.execute("DELETE FROM uses WHERE name = ? AND id < ?", (name, oldest))
