"""The records of custom.db and every statement over it; its tables are in `schema.sql`. Functions take one connection.

`user_version` names the schema; a higher one belongs to a newer Forge.

Decisions belong to a name and a digest, so that another byte is another tool: built, tested, failed, trusted, denied;
and a name's retirement. An edit never takes trust in a digest back. `version_status` reads all that decides whether a
tool is offered.

Versions and authors: an agent's authorship is never lost. It is recorded before the version it leads to is seen, kept
when old versions are pruned, and bytes that come back (undo, a reverted edit) keep the author they had.

Uses, ratings and refresh times are bounded: per tool the last 2,000 uses one by one and older ones as sums, 200
ratings; 1,000 refreshes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from golem_forge.core.decisions import Status
from golem_forge.core.lazy_dataclass import dataclass, field
from golem_forge.core.text import escape_control_chars
from golem_forge.events.serialization import iso_now
from golem_forge.usertools.diagnostics import DiagnosticCode

if TYPE_CHECKING:
    import sqlite3


RUN_STATUSES: Final = frozenset({Status.SUCCESS, Status.EXECUTION_FAILED, Status.TIMEOUT, Status.INTERRUPTED})
"""Statuses of calls whose code was started; the others were refused before."""
_LONGEST_SHOWN: Final = 300


class AuthorKind(StrEnum):
    MANUAL = "manual"
    AGENT = "agent"
    IMPORT = "import"


@dataclass(frozen=True, slots=True)
class Author:
    """The author of one version. `session` and `worker` belong to an agent, `source` to an import."""

    kind: AuthorKind
    session: str = ""
    worker: str = ""
    source: str = ""

    def describe(self) -> str:
        """Describes the author for a card or a log; a source is a stranger's text, so control characters
        are escaped.
        """
        details: list[str] = []
        if self.kind is AuthorKind.AGENT:
            details += [f"session {self.session}"] if self.session else []
            details += [f"worker {self.worker}"] if self.worker else []
        elif self.kind is AuthorKind.IMPORT and self.source:
            details.append(self.source)
        shown = escape_control_chars(", ".join(details)[:_LONGEST_SHOWN]).replace("\n", " ")
        return f"{self.kind.value} ({shown})" if shown else self.kind.value

    def to_json(self) -> dict[str, str]:
        details = {"session": self.session, "worker": self.worker, "source": self.source}
        return {"kind": self.kind.value} | {key: value for key, value in details.items() if value}


MANUAL_AUTHOR: Final = Author(AuthorKind.MANUAL)


def author_from_row(kind: str, session: str, worker: str, source: str) -> Author:
    """Reads a stored author. An unknown kind counts as the least trusted one."""
    known = AuthorKind(kind) if kind in AuthorKind.__members__.values() else AuthorKind.AGENT
    return Author(known, session, worker, source)


@dataclass(frozen=True, slots=True, kw_only=True)
class VersionRecord:
    digest: str
    at: str
    author: Author


@dataclass(frozen=True, slots=True, kw_only=True)
class TrustRecord:
    who: str
    """Who gave the trust: `person`, `command line (--yes)`, …"""
    at: str
    shadow: bool
    """Whether the tool was also allowed to replace the built-in one of its name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BuildStatus:
    """The progress of one digest; `tested` includes `built`."""

    built: bool = False
    tested: bool = False
    failure: tuple[DiagnosticCode, str] | None = None


NOT_BUILT: Final = BuildStatus()


class VersionStatus(NamedTuple):
    """Everything that decides whether a version of a tool is offered."""

    trusted: bool = False
    may_replace: bool = False
    """Whether these bytes were also allowed to replace a built-in tool."""
    build_status: BuildStatus = NOT_BUILT
    retired: bool = False
    last_trusted: str = ""
    """The digest of this name that was trusted last; empty if none was. Not told of what is trusted and tested."""
    last_may_replace: bool = False
    """The same for the version that was trusted last."""


UNKNOWN_VERSION: Final = VersionStatus()


@dataclass(frozen=True, slots=True, kw_only=True)
class UseRecord:
    """The record of one call of a user tool."""

    name: str
    digest: str
    status: str
    duration_ms: float
    session: str
    call: str = ""
    at: str = field(default_factory=iso_now)
    executed: bool | None = None
    """Whether its code was entered (`Outcome.executed`); None: as its status lets suppose."""

    @property
    def ran(self) -> bool:
        return self.status in RUN_STATUSES if self.executed is None else self.executed


@dataclass(frozen=True, slots=True, kw_only=True)
class Ratings:
    good: int = 0
    bad: int = 0
    notes: tuple[str, ...] = ()
    """Notes, newest first, safe to show."""

    def to_json(self) -> dict[str, Any]:
        return {"good": self.good, "bad": self.bad, "notes": list(self.notes)}


SCHEMA_VERSION: Final = 1


def create_tables(connection: sqlite3.Connection) -> None:
    """Run it in a transaction. Fails where tables of another program stand."""
    for statement in (Path(__file__).parent / "schema.sql").read_text("utf-8").split(";")[:-1]:
        connection.execute(statement)
    connection.execute(f"PRAGMA user_version = {SCHEMA_VERSION}")


_LONGEST_MESSAGE: Final = 8 * 1024
_LONGEST_WHO: Final = 200
_BUILT: Final = BuildStatus(built=True)
_TESTED: Final = BuildStatus(built=True, tested=True)
_CODES: Final[Mapping[str | None, DiagnosticCode]] = {code.value: code for code in DiagnosticCode}


def _first(connection: sqlite3.Connection, statement: str, *values: Any) -> tuple[Any, ...] | None:
    row: tuple[Any, ...] | None = connection.execute(statement, values).fetchone()
    return row


def _digest_row(connection: sqlite3.Connection, columns: str, name: str, digest: str) -> tuple[Any, ...] | None:
    return _first(connection, f"SELECT {columns} FROM digests WHERE name = ? AND digest = ?", name, digest)  # noqa: S608


def _change_digest(connection: sqlite3.Connection, name: str, digest: str, change: str, **values: Any) -> None:
    """Changes what is stored about exactly these bytes under this name."""
    key = {"name": name, "digest": digest}
    connection.execute("INSERT OR IGNORE INTO digests (name, digest) VALUES (:name, :digest)", key)
    connection.execute(f"UPDATE digests SET {change} WHERE name = :name AND digest = :digest", values | key)  # noqa: S608


def _change_tool(connection: sqlite3.Connection, name: str, change: str, *values: Any) -> None:
    connection.execute("INSERT OR IGNORE INTO tools (name) VALUES (?)", (name,))
    connection.execute(f"UPDATE tools SET {change} WHERE name = ?", (*values, name))  # noqa: S608


def _change_status(connection: sqlite3.Connection, name: str, digest: str, change: str, **values: Any) -> None:
    """Changes what decides whether the tool is offered. Also records how far the last creation of that name came, for
    the statistics.
    """
    _change_digest(connection, name, digest, change, **values)
    reached = _digest_row(connection, "built, tested, tested AND trusted_at IS NOT NULL", name, digest) or ()
    connection.execute(
        "UPDATE creations SET built = max(built, ?), tested = max(tested, ?), activated = max(activated, ?) "
        "WHERE id = (SELECT max(id) FROM creations WHERE name = ?)",
        (*reached, name),
    )
    _bump_stamp(connection)


def record_trust(connection: sqlite3.Connection, name: str, digest: str, who: str, *, shadow: bool) -> None:
    """Agreement to replace a built-in tool, once given for these bytes, stays when trust is given again."""
    change = (
        "trusted_at = :at, trusted_by = :who, shadow = max(shadow, :shadow), denials = 0, "
        "trust_order = (SELECT 1 + coalesce(max(trust_order), 0) FROM digests)"
    )
    _change_status(connection, name, digest, change, at=iso_now(), who=who[:_LONGEST_WHO], shadow=shadow)


def find_trust(connection: sqlite3.Connection, name: str, digest: str) -> TrustRecord | None:
    row = _digest_row(connection, "trusted_by, trusted_at, shadow", name, digest)
    return TrustRecord(who=row[0], at=row[1], shadow=bool(row[2])) if row and row[1] is not None else None


def last_trusted(connection: sqlite3.Connection, name: str) -> str:
    """The digest that was trusted last; empty if none was."""
    return str((_first(connection, _LAST_TRUSTED, name) or _NEVER_TRUSTED)[0])


def all_trusted(connection: sqlite3.Connection, name: str) -> frozenset[str]:
    rows = connection.execute("SELECT digest FROM digests WHERE name = ? AND trusted_at IS NOT NULL", (name,))
    return frozenset(digest for (digest,) in rows)


def add_denial(connection: sqlite3.Connection, name: str, digest: str) -> None:
    _change_digest(connection, name, digest, "denials = denials + 1")


def denials(connection: sqlite3.Connection, name: str, digest: str) -> int:
    """Returns the number of denials since these bytes were last trusted."""
    return int((_digest_row(connection, "denials", name, digest) or (0,))[0])


def mark_built(connection: sqlite3.Connection, name: str, digest: str) -> None:
    """Marks a digest as built. Failed tests stay failed until tests pass."""
    change = (
        "built = 1, failure_message = CASE failure_code WHEN :tests THEN failure_message END, "
        "failure_code = CASE failure_code WHEN :tests THEN failure_code END"
    )
    _change_status(connection, name, digest, change, tests=DiagnosticCode.TESTS_FAILED.value)


def mark_tested(connection: sqlite3.Connection, name: str, digest: str) -> None:
    change = "built = 1, tested = 1, failure_code = NULL, failure_message = NULL"
    _change_status(connection, name, digest, change)


def mark_failed(connection: sqlite3.Connection, name: str, digest: str, code: DiagnosticCode, message: str) -> None:
    """Failed tests undo `tested`. Any other failure is one of building: the passed tests count again once it builds."""
    lost = "tested" if code is DiagnosticCode.TESTS_FAILED else "built"
    text = message[:_LONGEST_MESSAGE].encode("utf-8", "replace").decode()
    change = f"{lost} = 0, failure_code = :code, failure_message = :text"
    _change_digest(connection, name, digest, change, code=code.value, text=text)
    _bump_stamp(connection)


def build_status(connection: sqlite3.Connection, name: str, digest: str) -> BuildStatus:
    row = _digest_row(connection, "built, tested, failure_code, failure_message", name, digest)
    return NOT_BUILT if row is None else build_status_from_row(*row)


def build_status_from_row(built: int | None, tested: int | None, code: str | None, message: str | None) -> BuildStatus:
    if code not in _CODES:
        return _TESTED if built and tested else _BUILT if built else NOT_BUILT
    return BuildStatus(built=bool(built), tested=bool(built and tested), failure=(_CODES[code], message or ""))


def retire(connection: sqlite3.Connection, name: str) -> None:
    _change_tool(connection, name, "retired_at = coalesce(retired_at, ?)", iso_now())
    _bump_stamp(connection)


def restore(connection: sqlite3.Connection, name: str) -> bool:
    """Restores a retired tool with its earlier status. Returns False if it was not retired."""
    changed = connection.execute(
        "UPDATE tools SET retired_at = NULL WHERE name = ? AND retired_at IS NOT NULL", (name,)
    ).rowcount
    _bump_stamp(connection)
    return changed > 0


def is_retired(connection: sqlite3.Connection, name: str) -> bool:
    return _first(connection, "SELECT 1 FROM tools WHERE name = ? AND retired_at IS NOT NULL", name) is not None


def stamp(connection: sqlite3.Connection) -> int:
    (number,) = connection.execute("SELECT n FROM stamp").fetchone()
    return int(number)


def _bump_stamp(connection: sqlite3.Connection) -> None:
    connection.execute("UPDATE stamp SET n = n + 1")


_NEVER_TRUSTED: Final = ("", 0)
_STATUS: Final = (
    "SELECT trusted_at IS NOT NULL, shadow, retired_at IS NOT NULL, built, tested, failure_code, failure_message "
    "FROM (SELECT ? AS name, ? AS digest) LEFT JOIN digests USING (name, digest) LEFT JOIN tools USING (name)"
)
_LAST_TRUSTED: Final = (
    "SELECT digest, shadow FROM digests WHERE name = ? AND trusted_at IS NOT NULL ORDER BY trust_order DESC LIMIT 1"
)


def version_status(connection: sqlite3.Connection, name: str, digest: str) -> VersionStatus:
    """Trust, build status and retirement at once, as every call needs them."""
    trusted, shadow, retired, *reached = connection.execute(_STATUS, (name, digest)).fetchone()
    built, retired = build_status_from_row(*reached), bool(retired)
    if trusted and built.tested:
        return VersionStatus(True, bool(shadow), built, retired)
    before, may_replace = _first(connection, _LAST_TRUSTED, name) or _NEVER_TRUSTED
    return VersionStatus(bool(trusted), bool(trusted and shadow), built, retired, before, bool(may_replace))


def version_statuses(connection: sqlite3.Connection, digests: Mapping[str, str]) -> dict[str, VersionStatus]:
    return {name: version_status(connection, name, digest) for name, digest in digests.items()}


_LONGEST_TEXT: Final = 2048


def newest_digest(connection: sqlite3.Connection, name: str) -> str:
    row = _first(connection, "SELECT digest FROM versions WHERE name = ? ORDER BY id DESC LIMIT 1", name)
    return row[0] if row else ""


def present_digest(connection: sqlite3.Connection, name: str) -> str:
    """The newest one, unless the tool was forgotten since."""
    known = _first(connection, "SELECT 1 FROM tools WHERE name = ? AND kind IS NOT NULL", name)
    return newest_digest(connection, name) if known else ""


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
        _change_tool(connection, name, "agent = 1")
    return True


def versions(connection: sqlite3.Connection, name: str) -> tuple[VersionRecord, ...]:
    """Returns the versions of a tool, newest first."""
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
        _change_tool(connection, name, "agent = 1")
    return True


def record_agent_edit(connection: sqlite3.Connection, name: str, session: str, worker: str) -> bool:
    """Records an agent as the next author. Always returns True."""
    _change_tool(connection, name, "agent = 1")
    _set_next_author(connection, name, Author(AuthorKind.AGENT, session, worker))
    return True


def is_agent_made(connection: sqlite3.Connection, name: str) -> bool:
    return _first(connection, "SELECT 1 FROM tools WHERE name = ? AND agent", name) is not None


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
    row = _first(connection, statement, *values)
    return author_from_row(*row) if row else None


def _set_original_author(connection: sqlite3.Connection, name: str, author: Author) -> None:
    _change_tool(connection, name, "kind = ?, session = ?, worker = ?, source = ?", *_author_columns(author))


def _set_next_author(connection: sqlite3.Connection, name: str, author: Author | None) -> None:
    columns = _author_columns(author) if author else (None, None, None, None)
    _change_tool(connection, name, "next_kind = ?, next_session = ?, next_worker = ?, next_source = ?", *columns)


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
    """Stores a rating; a tool that was rated is not offered for rating again."""
    connection.execute(
        "INSERT INTO ratings (name, at, good, note) VALUES (?, ?, ?, ?)",
        (name, iso_now(), good, escape_control_chars(note[:_LONGEST_NOTE])),
    )
    connection.execute(
        "DELETE FROM ratings WHERE name = ? AND id NOT IN "
        "(SELECT id FROM ratings WHERE name = ? ORDER BY id DESC LIMIT ?)",
        (name, name, _MOST_RATINGS),
    )
    _change_tool(connection, name, "rating_offered = 1")


def ratings(connection: sqlite3.Connection, name: str) -> Ratings:
    rows = connection.execute("SELECT good, note FROM ratings WHERE name = ? ORDER BY id DESC", (name,)).fetchall()
    good = sum(1 for value, _ in rows if value)
    notes = tuple(note for _, note in rows if note)[:_MOST_NOTES]
    return Ratings(good=good, bad=len(rows) - good, notes=notes)


def claim_rating_offer(connection: sqlite3.Connection, name: str) -> bool:
    """Returns True exactly once for each tool, after its third run."""
    changed = connection.execute(
        "UPDATE tools SET rating_offered = 1 WHERE name = ? AND runs >= ? AND rating_offered = 0",
        (name, _RUNS_BEFORE_RATING),
    ).rowcount
    return changed > 0


def record_refreshes(connection: sqlite3.Connection, took: Sequence[float]) -> None:
    connection.executemany("INSERT INTO refreshes (ms) VALUES (?)", [(ms,) for ms in took])
    connection.execute("DELETE FROM refreshes WHERE id <= (SELECT max(id) FROM refreshes) - ?", (_MOST_REFRESHES,))


def _fold_old_uses(connection: sqlite3.Connection) -> None:
    """Sums up old uses of every tool that has too many."""
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
