"""The tables of custom.db and every statement over them. Each function takes one connection.

`user_version` names the schema; a higher one belongs to a newer Forge.

Decisions belong to a name and a digest, so that another byte is another tool: built, tested, failed, trusted, denied;
and a name's retirement. An edit never takes trust in a digest back. `version_status` reads all that decides whether a
tool is offered in one query, for one tool or for all.

Versions and authors: an agent's authorship is never lost. It is recorded before the version it leads to is seen, kept
when old versions are pruned, and bytes that come back (undo, a reverted edit) keep the author they had.

Uses, ratings and refresh times are bounded: per tool the last 2,000 uses one by one and older ones as sums, 200
ratings; 1,000 refreshes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from golem_forge.core.text import escape_control_chars
from golem_forge.events.serialization import iso_now
from golem_forge.usertools.diagnostics import DiagnosticCode
from golem_forge.usertools.store.records import (
    MANUAL_AUTHOR,
    NOT_BUILT,
    Author,
    AuthorKind,
    BuildStatus,
    Ratings,
    TrustRecord,
    UseRecord,
    VersionRecord,
    VersionStatus,
    author_from_row,
)

if TYPE_CHECKING:
    import sqlite3

SCHEMA_VERSION: Final = 1

_TABLES: Final = (
    # One row a name. kind…source: who brought it into being; agent: whether an agent ever made or wrote to it;
    # next_*: who is known to have written what will be seen as its next version.
    """CREATE TABLE tools (
        name TEXT PRIMARY KEY,
        kind TEXT, session TEXT, worker TEXT, source TEXT,
        agent INTEGER NOT NULL DEFAULT 0,
        next_kind TEXT, next_session TEXT, next_worker TEXT, next_source TEXT,
        retired_at TEXT,
        runs INTEGER NOT NULL DEFAULT 0,
        first_session TEXT, reused INTEGER NOT NULL DEFAULT 0,
        rating_offered INTEGER NOT NULL DEFAULT 0
    ) WITHOUT ROWID""",
    """CREATE TABLE versions (
        id INTEGER PRIMARY KEY AUTOINCREMENT, name TEXT NOT NULL, digest TEXT NOT NULL, at TEXT NOT NULL,
        kind TEXT NOT NULL, session TEXT NOT NULL, worker TEXT NOT NULL, source TEXT NOT NULL
    )""",
    "CREATE INDEX versions_of ON versions (name, id)",
    "CREATE INDEX versions_with ON versions (digest, name)",
    # What is known of exactly these bytes under this name. trust_order: which was trusted last, whatever clocks do.
    """CREATE TABLE digests (
        name TEXT NOT NULL, digest TEXT NOT NULL,
        built INTEGER NOT NULL DEFAULT 0, tested INTEGER NOT NULL DEFAULT 0,
        failure_code TEXT, failure_message TEXT,
        denials INTEGER NOT NULL DEFAULT 0,
        trusted_at TEXT, trusted_by TEXT, shadow INTEGER NOT NULL DEFAULT 0, trust_order INTEGER,
        PRIMARY KEY (name, digest)
    ) WITHOUT ROWID""",
    # declared: told by who made it; otherwise a folder that appeared.
    """CREATE TABLE creations (
        id INTEGER PRIMARY KEY AUTOINCREMENT, name TEXT NOT NULL, at TEXT NOT NULL, kind TEXT NOT NULL,
        declared INTEGER NOT NULL, suggestion TEXT NOT NULL DEFAULT '', sequence_ms REAL NOT NULL DEFAULT 0,
        built INTEGER NOT NULL DEFAULT 0, tested INTEGER NOT NULL DEFAULT 0, activated INTEGER NOT NULL DEFAULT 0
    )""",
    "CREATE INDEX creations_of ON creations (name, id)",
    """CREATE TABLE uses (
        id INTEGER PRIMARY KEY AUTOINCREMENT, name TEXT NOT NULL, digest TEXT NOT NULL, status TEXT NOT NULL,
        ran INTEGER NOT NULL, duration_ms REAL NOT NULL, session TEXT NOT NULL, call TEXT NOT NULL, at TEXT NOT NULL
    )""",
    "CREATE INDEX uses_of ON uses (name, id)",
    # What became of uses that were too many to keep one by one.
    """CREATE TABLE tallies (
        name TEXT NOT NULL, digest TEXT NOT NULL, status TEXT NOT NULL, ran INTEGER NOT NULL,
        calls INTEGER NOT NULL, total_ms REAL NOT NULL, last_at TEXT NOT NULL,
        PRIMARY KEY (name, digest, status, ran)
    ) WITHOUT ROWID""",
    """CREATE TABLE ratings (
        id INTEGER PRIMARY KEY AUTOINCREMENT, name TEXT NOT NULL, at TEXT NOT NULL, good INTEGER NOT NULL,
        note TEXT NOT NULL
    )""",
    "CREATE INDEX ratings_of ON ratings (name, id)",
    "CREATE TABLE refreshes (id INTEGER PRIMARY KEY AUTOINCREMENT, ms REAL NOT NULL)",
    "CREATE TABLE stamp (n INTEGER NOT NULL)",
    "INSERT INTO stamp VALUES (0)",
)


def create_tables(connection: sqlite3.Connection) -> None:
    """Run it in a transaction. Fails where tables of another program stand."""
    for statement in _TABLES:
        connection.execute(statement)
    connection.execute(f"PRAGMA user_version = {SCHEMA_VERSION}")


_LONGEST_MESSAGE: Final = 8 * 1024
_LONGEST_WHO: Final = 200
_INSERT_DIGEST: Final = "INSERT OR IGNORE INTO digests (name, digest) VALUES (?, ?)"
_BUILT: Final = BuildStatus(built=True)
_TESTED: Final = BuildStatus(built=True, tested=True)
_CODES: Final[Mapping[str | None, DiagnosticCode]] = {code.value: code for code in DiagnosticCode}


def record_trust(connection: sqlite3.Connection, name: str, digest: str, who: str, *, shadow: bool) -> None:
    """Agreement to replace a built-in tool, once given for these bytes, stays when trust is given again."""
    connection.execute(_INSERT_DIGEST, (name, digest))
    connection.execute(
        "UPDATE digests SET trusted_at = ?, trusted_by = ?, shadow = max(shadow, ?), denials = 0, "
        "trust_order = (SELECT 1 + coalesce(max(trust_order), 0) FROM digests) WHERE name = ? AND digest = ?",
        (iso_now(), who[:_LONGEST_WHO], shadow, name, digest),
    )
    _update_creation(connection, name, digest)
    _bump_stamp(connection)


def find_trust(connection: sqlite3.Connection, name: str, digest: str) -> TrustRecord | None:
    row = connection.execute(
        "SELECT trusted_by, trusted_at, shadow FROM digests WHERE name = ? AND digest = ? AND trusted_at IS NOT NULL",
        (name, digest),
    ).fetchone()
    return TrustRecord(who=row[0], at=row[1], shadow=bool(row[2])) if row else None


def last_trusted(connection: sqlite3.Connection, name: str) -> str:
    """The digest that was trusted last; empty if none was."""
    found: str = (connection.execute(_LAST_TRUSTED, (name,)).fetchone() or _NEVER_TRUSTED)[0]
    return found


def all_trusted(connection: sqlite3.Connection, name: str) -> frozenset[str]:
    rows = connection.execute("SELECT digest FROM digests WHERE name = ? AND trusted_at IS NOT NULL", (name,))
    return frozenset(digest for (digest,) in rows)


def add_denial(connection: sqlite3.Connection, name: str, digest: str) -> None:
    connection.execute(_INSERT_DIGEST, (name, digest))
    connection.execute("UPDATE digests SET denials = denials + 1 WHERE name = ? AND digest = ?", (name, digest))


def denials(connection: sqlite3.Connection, name: str, digest: str) -> int:
    """Since these bytes were last trusted."""
    row = connection.execute("SELECT denials FROM digests WHERE name = ? AND digest = ?", (name, digest)).fetchone()
    return row[0] if row else 0


def mark_built(connection: sqlite3.Connection, name: str, digest: str) -> None:
    """Failed tests stay failed until tests pass."""
    connection.execute(_INSERT_DIGEST, (name, digest))
    connection.execute(
        "UPDATE digests SET built = 1, "
        "failure_message = CASE failure_code WHEN :tests THEN failure_message END, "
        "failure_code = CASE failure_code WHEN :tests THEN failure_code END WHERE name = :name AND digest = :digest",
        {"tests": DiagnosticCode.TESTS_FAILED.value, "name": name, "digest": digest},
    )
    _update_creation(connection, name, digest)
    _bump_stamp(connection)


def mark_tested(connection: sqlite3.Connection, name: str, digest: str) -> None:
    connection.execute(_INSERT_DIGEST, (name, digest))
    connection.execute(
        "UPDATE digests SET built = 1, tested = 1, failure_code = NULL, failure_message = NULL "
        "WHERE name = ? AND digest = ?",
        (name, digest),
    )
    _update_creation(connection, name, digest)
    _bump_stamp(connection)


def mark_failed(connection: sqlite3.Connection, name: str, digest: str, code: DiagnosticCode, message: str) -> None:
    """Failed tests undo `tested`. Any other failure is one of building: the passed tests count again once it builds."""
    connection.execute(_INSERT_DIGEST, (name, digest))
    lost = "tested" if code is DiagnosticCode.TESTS_FAILED else "built"
    connection.execute(
        f"UPDATE digests SET {lost} = 0, failure_code = ?, failure_message = ? WHERE name = ? AND digest = ?",  # noqa: S608
        (code.value, message[:_LONGEST_MESSAGE].encode("utf-8", "replace").decode(), name, digest),
    )
    _bump_stamp(connection)


def build_status(connection: sqlite3.Connection, name: str, digest: str) -> BuildStatus:
    row = connection.execute(
        "SELECT built, tested, failure_code, failure_message FROM digests WHERE name = ? AND digest = ?",
        (name, digest),
    ).fetchone()
    return NOT_BUILT if row is None else build_status_from_row(*row)


def build_status_from_row(built: int | None, tested: int | None, code: str | None, message: str | None) -> BuildStatus:
    if code not in _CODES:
        return _TESTED if built and tested else _BUILT if built else NOT_BUILT
    return BuildStatus(built=bool(built), tested=bool(built and tested), failure=(_CODES[code], message or ""))


def retire(connection: sqlite3.Connection, name: str) -> None:
    connection.execute("INSERT OR IGNORE INTO tools (name) VALUES (?)", (name,))
    connection.execute("UPDATE tools SET retired_at = coalesce(retired_at, ?) WHERE name = ?", (iso_now(), name))
    _bump_stamp(connection)


def restore(connection: sqlite3.Connection, name: str) -> bool:
    """False if it was not retired. What it had reached before, it has again."""
    changed = connection.execute(
        "UPDATE tools SET retired_at = NULL WHERE name = ? AND retired_at IS NOT NULL", (name,)
    ).rowcount
    _bump_stamp(connection)
    return changed > 0


def is_retired(connection: sqlite3.Connection, name: str) -> bool:
    row = connection.execute("SELECT retired_at FROM tools WHERE name = ?", (name,)).fetchone()
    return row is not None and row[0] is not None


def stamp(connection: sqlite3.Connection) -> int:
    (number,) = connection.execute("SELECT n FROM stamp").fetchone()
    return int(number)


def _bump_stamp(connection: sqlite3.Connection) -> None:
    connection.execute("UPDATE stamp SET n = n + 1")


def _update_creation(connection: sqlite3.Connection, name: str, digest: str) -> None:
    """How far the last creation of that name ever came, for the statistics of creations."""
    reached = connection.execute(
        "SELECT built, tested, tested AND trusted_at IS NOT NULL FROM digests WHERE name = ? AND digest = ?",
        (name, digest),
    ).fetchone()
    connection.execute(
        "UPDATE creations SET built = max(built, ?), tested = max(tested, ?), activated = max(activated, ?) "
        "WHERE id = (SELECT max(id) FROM creations WHERE name = ?)",
        (*reached, name),
    )


_MOST_SINGLE_QUERIES: Final = 50
"""So many are looked up one by one; for more, one pass over the whole table is quicker."""
_STATUS_COLUMNS: Final = "trusted_at IS NOT NULL, shadow, built, tested, failure_code, failure_message"
_NO_ROW: Final = (0, 0, 0, 0, None, None)
_NEVER_TRUSTED: Final = ("", 0)
_ONE_STATUS: Final = (
    f"SELECT {_STATUS_COLUMNS}, (SELECT retired_at FROM tools WHERE name = ?1) "  # noqa: S608
    "FROM digests WHERE name = ?1 AND digest = ?2"
)
_ALL_STATUSES: Final = f"SELECT name, digest, {_STATUS_COLUMNS} FROM digests"  # noqa: S608
_LAST_TRUSTED: Final = (
    "SELECT digest, shadow FROM digests WHERE name = ? AND trusted_at IS NOT NULL ORDER BY trust_order DESC LIMIT 1"
)
_ALL_LAST_TRUSTED: Final = "SELECT name, digest, shadow FROM digests WHERE trusted_at IS NOT NULL ORDER BY trust_order"
_ALL_RETIRED: Final = "SELECT name FROM tools WHERE retired_at IS NOT NULL"


def version_status(connection: sqlite3.Connection, name: str, digest: str) -> VersionStatus:
    """Trust, build status and retirement at once, as every call needs them."""
    row = connection.execute(_ONE_STATUS, (name, digest)).fetchone()
    own, retired = (row[:-1], row[-1] is not None) if row else (_NO_ROW, is_retired(connection, name))
    return _make_version_status(
        own, retired, lambda: connection.execute(_LAST_TRUSTED, (name,)).fetchone() or _NEVER_TRUSTED
    )


def version_statuses(connection: sqlite3.Connection, digests: Mapping[str, str]) -> dict[str, VersionStatus]:
    if len(digests) <= _MOST_SINGLE_QUERIES:
        return {name: version_status(connection, name, digest) for name, digest in digests.items()}
    retired = {name for (name,) in connection.execute(_ALL_RETIRED)}
    own = {row[0]: row[2:] for row in connection.execute(_ALL_STATUSES) if digests.get(row[0]) == row[1]}
    last = {row[0]: row[1:] for row in connection.execute(_ALL_LAST_TRUSTED)}

    def status(name: str) -> VersionStatus:
        return _make_version_status(own.get(name, _NO_ROW), name in retired, lambda: last.get(name, _NEVER_TRUSTED))

    return {name: status(name) for name in digests}


def _make_version_status(own: tuple[Any, ...], retired: bool, last: Callable[[], tuple[str, int]]) -> VersionStatus:
    trusted, shadow, *reached = own
    standing = build_status_from_row(*reached)
    if trusted and standing.tested:
        return VersionStatus(True, bool(shadow), standing, retired)
    before, may_replace = last()
    return VersionStatus(bool(trusted), bool(trusted and shadow), standing, retired, before, bool(may_replace))


_LONGEST_TEXT: Final = 2048


def newest_digest(connection: sqlite3.Connection, name: str) -> str:
    row = connection.execute("SELECT digest FROM versions WHERE name = ? ORDER BY id DESC LIMIT 1", (name,)).fetchone()
    return row[0] if row else ""


def present_digest(connection: sqlite3.Connection, name: str) -> str:
    """`newest`, unless the tool was forgotten since."""
    row = connection.execute(
        "SELECT digest FROM versions JOIN tools USING (name) WHERE name = ? AND tools.kind IS NOT NULL "
        "ORDER BY versions.id DESC LIMIT 1",
        (name,),
    ).fetchone()
    return row[0] if row else ""


def record_version(connection: sqlite3.Connection, name: str, digest: str, author: Author | None) -> bool:
    """Whether it is a version of its own: other bytes than the newest one."""
    before = _author(connection, _AUTHOR_OF_BYTES, name, digest)
    original = _author(connection, _ORIGINAL_AUTHOR, name)
    if newest_digest(connection, name) == digest:
        if before is not None and original is None:
            _set_original_author(connection, name, before)
        return False
    author = author or _author(connection, _NEXT_AUTHOR, name) or before or MANUAL_AUTHOR
    connection.execute(
        "INSERT INTO versions (name, digest, at, kind, session, worker, source) VALUES (?, ?, ?, ?, ?, ?, ?)",
        (name, digest, iso_now(), *_author_columns(author)),
    )
    if original is None:
        _set_original_author(connection, name, author)
        if before is None:
            connection.execute(
                "INSERT INTO creations (name, at, kind, declared) VALUES (?, ?, ?, 0)",
                (name, iso_now(), author.kind.value),
            )
    _set_next_author(connection, name, None)
    if author.kind is AuthorKind.AGENT:
        connection.execute("UPDATE tools SET agent = 1 WHERE name = ?", (name,))
    return True


def versions(connection: sqlite3.Connection, name: str) -> tuple[VersionRecord, ...]:
    """Newest first."""
    rows = connection.execute(
        "SELECT digest, at, kind, session, worker, source FROM versions WHERE name = ? ORDER BY id DESC", (name,)
    )
    return tuple(VersionRecord(digest=digest, at=at, author=author_from_row(*author)) for digest, at, *author in rows)


def record_creation(
    connection: sqlite3.Connection, name: str, author: Author, suggestion: str, sequence_ms: float
) -> bool:
    """A folder that another process saw a moment before it was announced is that same creation. Always True."""
    connection.execute(
        "DELETE FROM creations WHERE declared = 0 AND name = ? AND (SELECT count(*) FROM versions WHERE name = ?) <= 1",
        (name, name),
    )
    connection.execute(
        "INSERT INTO creations (name, at, kind, declared, suggestion, sequence_ms) VALUES (?, ?, ?, 1, ?, ?)",
        (name, iso_now(), author.kind.value, _bounded_text(suggestion), float(sequence_ms)),
    )
    _set_original_author(connection, name, author)
    _set_next_author(connection, name, author)
    if author.kind is AuthorKind.AGENT:
        connection.execute("UPDATE tools SET agent = 1 WHERE name = ?", (name,))
    return True


def record_agent_edit(connection: sqlite3.Connection, name: str, session: str, worker: str) -> bool:
    """Always True."""
    connection.execute(
        "INSERT INTO tools (name, agent) VALUES (?, 1) ON CONFLICT (name) DO UPDATE SET agent = 1", (name,)
    )
    _set_next_author(connection, name, Author(AuthorKind.AGENT, session, worker))
    return True


def is_agent_made(connection: sqlite3.Connection, name: str) -> bool:
    row = connection.execute("SELECT agent FROM tools WHERE name = ?", (name,)).fetchone()
    return bool(row and row[0])


def provenance(connection: sqlite3.Connection, name: str) -> Author:
    """An agent or an import that wrote the newest bytes; behind a person's own edits, who brought the tool here."""
    latest = _author(connection, _NEXT_AUTHOR, name) or _author(
        connection, _AUTHOR_OF_BYTES, name, newest_digest(connection, name)
    )
    if latest is not None and latest.kind is not AuthorKind.MANUAL:
        return latest
    return _author(connection, _ORIGINAL_AUTHOR, name) or latest or MANUAL_AUTHOR


def forget(connection: sqlite3.Connection, name: str) -> None:
    """The folder was removed; the next tool of that name begins anew. Versions, trust in exact bytes, uses and an
    agent's authorship stay."""
    connection.execute(
        "UPDATE tools SET kind = NULL, session = NULL, worker = NULL, source = NULL, next_kind = NULL, "
        "retired_at = NULL WHERE name = ?",
        (name,),
    )


_PRUNABLE: Final = (
    "SELECT old.digest, old.id FROM versions AS old WHERE old.name = :name AND old.id NOT IN "
    "(SELECT id FROM versions WHERE name = :name ORDER BY id DESC LIMIT :keep) AND (NOT EXISTS "
    "(SELECT 1 FROM digests WHERE name = old.name AND digest = old.digest AND trusted_at IS NOT NULL) OR EXISTS "
    "(SELECT 1 FROM versions AS later WHERE later.name = old.name AND later.digest = old.digest AND later.id > old.id))"
)
"""Beyond the newest, unless trusted; of bytes that came back the newest row is enough."""
_VERSIONS_WITH_DIGEST: Final = "SELECT id FROM versions WHERE digest = ?"


def prunable_versions(connection: sqlite3.Connection, name: str, keep: int) -> tuple[tuple[int, ...], tuple[str, ...]]:
    """Rows that need not be kept, and the digests that no other row of any tool names."""
    rows = connection.execute(_PRUNABLE, {"name": name, "keep": keep}).fetchall()
    ids = {number for _, number in rows}

    def unused(digest: str) -> bool:
        return all(number in ids for (number,) in connection.execute(_VERSIONS_WITH_DIGEST, (digest,)))

    return tuple(sorted(ids)), tuple(filter(unused, dict.fromkeys(digest for digest, _ in rows)))


def drop_versions(connection: sqlite3.Connection, name: str, ids: Iterable[int]) -> None:
    connection.executemany("DELETE FROM versions WHERE id = ?", [(number,) for number in ids])
    connection.execute(
        "DELETE FROM digests WHERE name = ? AND trusted_at IS NULL "
        "AND digest NOT IN (SELECT digest FROM versions WHERE name = ?)",
        (name, name),
    )


_AUTHOR_OF_BYTES: Final = (
    "SELECT kind, session, worker, source FROM versions WHERE name = ? AND digest = ? ORDER BY id DESC LIMIT 1"
)
_ORIGINAL_AUTHOR: Final = "SELECT kind, session, worker, source FROM tools WHERE name = ? AND kind IS NOT NULL"
_NEXT_AUTHOR: Final = (
    "SELECT next_kind, next_session, next_worker, next_source FROM tools WHERE name = ? AND next_kind IS NOT NULL"
)


def _author(connection: sqlite3.Connection, statement: str, *values: str) -> Author | None:
    row = connection.execute(statement, values).fetchone()
    return author_from_row(*row) if row else None


def _set_original_author(connection: sqlite3.Connection, name: str, author: Author) -> None:
    connection.execute("INSERT OR IGNORE INTO tools (name) VALUES (?)", (name,))
    connection.execute(
        "UPDATE tools SET kind = ?, session = ?, worker = ?, source = ? WHERE name = ?",
        (*_author_columns(author), name),
    )


def _set_next_author(connection: sqlite3.Connection, name: str, author: Author | None) -> None:
    columns = _author_columns(author) if author else (None, None, None, None)
    connection.execute(
        "UPDATE tools SET next_kind = ?, next_session = ?, next_worker = ?, next_source = ? WHERE name = ?",
        (*columns, name),
    )


def _author_columns(author: Author) -> tuple[str, str, str, str]:
    return author.kind.value, _bounded_text(author.session), _bounded_text(author.worker), _bounded_text(author.source)


def _bounded_text(text: str) -> str:
    """Bounded, and text that SQLite can hold: a source from a command line may be no UTF-8."""
    return text[:_LONGEST_TEXT].encode("utf-8", "replace").decode()


MOST_USES: Final = 2_000
_FOLD_EVERY: Final = 500
_MOST_RATINGS: Final = 200
_MOST_NOTES: Final = 20
_LONGEST_NOTE: Final = 500
_MOST_REFRESHES: Final = 1_000
_RUNS_BEFORE_RATING: Final = 3


def record_use(connection: sqlite3.Connection, use: UseRecord) -> None:
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
        _fold_old_uses(connection)


def rate(connection: sqlite3.Connection, name: str, good: bool, note: str = "") -> None:
    """Whoever has rated a tool is not asked to any more."""
    connection.execute(
        "INSERT INTO ratings (name, at, good, note) VALUES (?, ?, ?, ?)",
        (name, iso_now(), good, escape_control_chars(note[:_LONGEST_NOTE])),
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


def claim_rating_offer(connection: sqlite3.Connection, name: str) -> bool:
    """True exactly once for each tool, after its third run."""
    changed = connection.execute(
        "UPDATE tools SET rating_offered = 1 WHERE name = ? AND runs >= ? AND rating_offered = 0",
        (name, _RUNS_BEFORE_RATING),
    ).rowcount
    return changed > 0


def record_refreshes(connection: sqlite3.Connection, took: Sequence[float]) -> None:
    connection.executemany("INSERT INTO refreshes (ms) VALUES (?)", [(ms,) for ms in took])
    connection.execute("DELETE FROM refreshes WHERE id <= (SELECT max(id) FROM refreshes) - ?", (_MOST_REFRESHES,))


def _fold_old_uses(connection: sqlite3.Connection) -> None:
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
