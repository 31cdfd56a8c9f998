"""Versions and authors in the book: which bytes a tool has had, and who wrote them. Statements over one connection.

An agent's hand is never lost: it is noted before the version it leads to is seen, kept when old versions are pruned,
and bytes that come back (undo, a reverted edit) come back with the author they had.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

from golem_forge.custom.book.records import MANUAL, Author, AuthorKind, Version, author_of
from golem_forge.events.clock import iso_now

if TYPE_CHECKING:
    import sqlite3

_LONGEST_TEXT: Final = 2048


def newest(connection: sqlite3.Connection, name: str) -> str:
    row = connection.execute("SELECT digest FROM versions WHERE name = ? ORDER BY id DESC LIMIT 1", (name,)).fetchone()
    return row[0] if row else ""


def present(connection: sqlite3.Connection, name: str) -> str:
    """`newest`, unless the tool was forgotten since."""
    row = connection.execute(
        "SELECT digest FROM versions JOIN tools USING (name) WHERE name = ? AND tools.kind IS NOT NULL "
        "ORDER BY versions.id DESC LIMIT 1",
        (name,),
    ).fetchone()
    return row[0] if row else ""


def saw(connection: sqlite3.Connection, name: str, digest: str, author: Author | None) -> bool:
    """Whether it is a version of its own: other bytes than the newest one."""
    before = _author_of_bytes(connection, name, digest)
    if newest(connection, name) == digest:
        if before is not None and _origin(connection, name) is None:
            _set_origin(connection, name, before)
        return False
    author = author or _next_author(connection, name) or before or MANUAL
    connection.execute(
        "INSERT INTO versions (name, digest, at, kind, session, worker, source) VALUES (?, ?, ?, ?, ?, ?, ?)",
        (name, digest, iso_now(), *_columns(author)),
    )
    if _origin(connection, name) is None:
        _set_origin(connection, name, author)
        if before is None:
            connection.execute(
                "INSERT INTO creations (name, at, kind, declared) VALUES (?, ?, ?, 0)",
                (name, iso_now(), author.kind.value),
            )
    _set_next(connection, name, None)
    if author.kind is AuthorKind.AGENT:
        connection.execute("UPDATE tools SET agent = 1 WHERE name = ?", (name,))
    return True


def versions(connection: sqlite3.Connection, name: str) -> tuple[Version, ...]:
    rows = connection.execute(
        "SELECT digest, at, kind, session, worker, source FROM versions WHERE name = ? ORDER BY id DESC", (name,)
    )
    return tuple(Version(digest=digest, at=at, author=author_of(*author)) for digest, at, *author in rows)


def created(connection: sqlite3.Connection, name: str, author: Author, suggestion: str, sequence_ms: float) -> None:
    """A folder that another process saw a moment before it was announced is that same creation."""
    connection.execute(
        "DELETE FROM creations WHERE declared = 0 AND name = ? AND (SELECT count(*) FROM versions WHERE name = ?) <= 1",
        (name, name),
    )
    connection.execute(
        "INSERT INTO creations (name, at, kind, declared, suggestion, sequence_ms) VALUES (?, ?, ?, 1, ?, ?)",
        (name, iso_now(), author.kind.value, _kept(suggestion), float(sequence_ms)),
    )
    _set_origin(connection, name, author)
    _set_next(connection, name, author)
    if author.kind is AuthorKind.AGENT:
        connection.execute("UPDATE tools SET agent = 1 WHERE name = ?", (name,))


def agent_wrote(connection: sqlite3.Connection, name: str, session: str, worker: str) -> None:
    connection.execute(
        "INSERT INTO tools (name, agent) VALUES (?, 1) ON CONFLICT (name) DO UPDATE SET agent = 1", (name,)
    )
    _set_next(connection, name, Author(AuthorKind.AGENT, session, worker))


def agent_made(connection: sqlite3.Connection, name: str) -> bool:
    row = connection.execute("SELECT agent FROM tools WHERE name = ?", (name,)).fetchone()
    return bool(row and row[0])


def provenance(connection: sqlite3.Connection, name: str) -> Author:
    """An agent or an import that wrote the newest bytes; behind a person's own edits, who brought the tool here."""
    latest = _next_author(connection, name) or _author_of_bytes(connection, name, newest(connection, name))
    if latest is not None and latest.kind is not AuthorKind.MANUAL:
        return latest
    return _origin(connection, name) or latest or MANUAL


def forget(connection: sqlite3.Connection, name: str) -> None:
    """The next tool of that name begins anew; versions, trust in exact bytes, uses and an agent's hand stay."""
    connection.execute(
        "UPDATE tools SET kind = NULL, session = NULL, worker = NULL, source = NULL, next_kind = NULL, "
        "retired_at = NULL WHERE name = ?",
        (name,),
    )


_DISPENSABLE: Final = (
    "SELECT old.digest, old.id FROM versions AS old WHERE old.name = :name AND old.id NOT IN "
    "(SELECT id FROM versions WHERE name = :name ORDER BY id DESC LIMIT :keep) AND (NOT EXISTS "
    "(SELECT 1 FROM digests WHERE name = old.name AND digest = old.digest AND trusted_at IS NOT NULL) OR EXISTS "
    "(SELECT 1 FROM versions AS later WHERE later.name = old.name AND later.digest = old.digest AND later.id > old.id))"
)
"""Beyond the newest, unless trusted; of bytes that came back the newest row is enough."""


def dispensable(connection: sqlite3.Connection, name: str, keep: int) -> tuple[tuple[int, ...], tuple[str, ...]]:
    """Rows that need not be kept, and the digests that no other row of any tool names."""
    rows = connection.execute(_DISPENSABLE, {"name": name, "keep": keep}).fetchall()
    ids = {number for _, number in rows}
    orphaned = [digest for digest in dict.fromkeys(digest for digest, _ in rows) if _only_in(connection, digest, ids)]
    return tuple(sorted(ids)), tuple(orphaned)


def drop(connection: sqlite3.Connection, name: str, ids: Iterable[int]) -> None:
    connection.executemany("DELETE FROM versions WHERE id = ?", [(number,) for number in ids])
    connection.execute(
        "DELETE FROM digests WHERE name = ? AND trusted_at IS NULL "
        "AND digest NOT IN (SELECT digest FROM versions WHERE name = ?)",
        (name, name),
    )


def _only_in(connection: sqlite3.Connection, digest: str, ids: set[int]) -> bool:
    return all(number in ids for (number,) in connection.execute("SELECT id FROM versions WHERE digest = ?", (digest,)))


def _author_of_bytes(connection: sqlite3.Connection, name: str, digest: str) -> Author | None:
    row = connection.execute(
        "SELECT kind, session, worker, source FROM versions WHERE name = ? AND digest = ? ORDER BY id DESC LIMIT 1",
        (name, digest),
    ).fetchone()
    return author_of(*row) if row else None


def _origin(connection: sqlite3.Connection, name: str) -> Author | None:
    row = connection.execute(
        "SELECT kind, session, worker, source FROM tools WHERE name = ? AND kind IS NOT NULL", (name,)
    ).fetchone()
    return author_of(*row) if row else None


def _set_origin(connection: sqlite3.Connection, name: str, author: Author) -> None:
    connection.execute("INSERT OR IGNORE INTO tools (name) VALUES (?)", (name,))
    connection.execute(
        "UPDATE tools SET kind = ?, session = ?, worker = ?, source = ? WHERE name = ?", (*_columns(author), name)
    )


def _next_author(connection: sqlite3.Connection, name: str) -> Author | None:
    row = connection.execute(
        "SELECT next_kind, next_session, next_worker, next_source FROM tools WHERE name = ? AND next_kind IS NOT NULL",
        (name,),
    ).fetchone()
    return author_of(*row) if row else None


def _set_next(connection: sqlite3.Connection, name: str, author: Author | None) -> None:
    columns = _columns(author) if author else (None, None, None, None)
    connection.execute(
        "UPDATE tools SET next_kind = ?, next_session = ?, next_worker = ?, next_source = ? WHERE name = ?",
        (*columns, name),
    )


def _columns(author: Author) -> tuple[str, str, str, str]:
    return author.kind.value, _kept(author.session), _kept(author.worker), _kept(author.source)


def _kept(text: str) -> str:
    """Bounded, and text that SQLite can hold: a source from a command line may be no UTF-8."""
    return text[:_LONGEST_TEXT].encode("utf-8", "replace").decode()
