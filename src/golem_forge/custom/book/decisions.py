"""What was decided about exact bytes: built, tested, failed, trusted, denied; and a name's retirement.

Statements over one connection. Everything here belongs to a name and a digest, so that another byte is another tool;
trust in a digest is never taken back by an edit, and a denial is only counted.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from golem_forge.custom.book.records import UNKNOWN, Standing, Trust
from golem_forge.custom.diagnostic import Code
from golem_forge.events.clock import iso_now

if TYPE_CHECKING:
    import sqlite3

_LONGEST_MESSAGE: Final = 8 * 1024
_LONGEST_WHO: Final = 200
_ROW: Final = "INSERT OR IGNORE INTO digests (name, digest) VALUES (?, ?)"
_BUILT: Final = Standing(built=True)
_TESTED: Final = Standing(built=True, tested=True)
_CODES: Final[Mapping[str | None, Code]] = {code.value: code for code in Code}


def trust(connection: sqlite3.Connection, name: str, digest: str, who: str, *, shadow: bool) -> None:
    """Agreement to replace a built-in tool, once given for these bytes, stays when trust is given again."""
    connection.execute(_ROW, (name, digest))
    connection.execute(
        "UPDATE digests SET trusted_at = ?, trusted_by = ?, shadow = max(shadow, ?), denials = 0, "
        "trust_order = (SELECT 1 + coalesce(max(trust_order), 0) FROM digests) WHERE name = ? AND digest = ?",
        (iso_now(), who[:_LONGEST_WHO], shadow, name, digest),
    )
    _bring_creation_up(connection, name, digest)
    _stamp(connection)


def trusted(connection: sqlite3.Connection, name: str, digest: str) -> Trust | None:
    row = connection.execute(
        "SELECT trusted_by, trusted_at, shadow FROM digests WHERE name = ? AND digest = ? AND trusted_at IS NOT NULL",
        (name, digest),
    ).fetchone()
    return Trust(who=row[0], at=row[1], shadow=bool(row[2])) if row else None


def last_trusted(connection: sqlite3.Connection, name: str) -> str:
    row = connection.execute(
        "SELECT digest FROM digests WHERE name = ? AND trusted_at IS NOT NULL ORDER BY trust_order DESC LIMIT 1",
        (name,),
    ).fetchone()
    return row[0] if row else ""


def all_trusted(connection: sqlite3.Connection, name: str) -> frozenset[str]:
    rows = connection.execute("SELECT digest FROM digests WHERE name = ? AND trusted_at IS NOT NULL", (name,))
    return frozenset(digest for (digest,) in rows)


def denied(connection: sqlite3.Connection, name: str, digest: str) -> None:
    connection.execute(_ROW, (name, digest))
    connection.execute("UPDATE digests SET denials = denials + 1 WHERE name = ? AND digest = ?", (name, digest))


def denials(connection: sqlite3.Connection, name: str, digest: str) -> int:
    row = connection.execute("SELECT denials FROM digests WHERE name = ? AND digest = ?", (name, digest)).fetchone()
    return row[0] if row else 0


def mark_built(connection: sqlite3.Connection, name: str, digest: str) -> None:
    """Failed tests stay failed until tests pass."""
    connection.execute(_ROW, (name, digest))
    connection.execute(
        "UPDATE digests SET built = 1, "
        "failure_message = CASE failure_code WHEN :tests THEN failure_message END, "
        "failure_code = CASE failure_code WHEN :tests THEN failure_code END WHERE name = :name AND digest = :digest",
        {"tests": Code.TESTS_FAILED.value, "name": name, "digest": digest},
    )
    _bring_creation_up(connection, name, digest)
    _stamp(connection)


def mark_tested(connection: sqlite3.Connection, name: str, digest: str) -> None:
    connection.execute(_ROW, (name, digest))
    connection.execute(
        "UPDATE digests SET built = 1, tested = 1, failure_code = NULL, failure_message = NULL "
        "WHERE name = ? AND digest = ?",
        (name, digest),
    )
    _bring_creation_up(connection, name, digest)
    _stamp(connection)


def mark_failed(connection: sqlite3.Connection, name: str, digest: str, code: Code, message: str) -> None:
    """Failed tests undo `tested`. Any other failure is one of building: the passed tests count again once it builds."""
    connection.execute(_ROW, (name, digest))
    lost = "tested" if code is Code.TESTS_FAILED else "built"
    connection.execute(
        f"UPDATE digests SET {lost} = 0, failure_code = ?, failure_message = ? WHERE name = ? AND digest = ?",  # noqa: S608
        (code.value, message[:_LONGEST_MESSAGE].encode("utf-8", "replace").decode(), name, digest),
    )
    _stamp(connection)


def standing(connection: sqlite3.Connection, name: str, digest: str) -> Standing:
    row = connection.execute(
        "SELECT built, tested, failure_code, failure_message FROM digests WHERE name = ? AND digest = ?",
        (name, digest),
    ).fetchone()
    return UNKNOWN if row is None else standing_from(*row)


def standing_from(built: int | None, tested: int | None, code: str | None, message: str | None) -> Standing:
    """Of the columns of those names."""
    if code not in _CODES:
        return _TESTED if built and tested else _BUILT if built else UNKNOWN
    return Standing(built=bool(built), tested=bool(built and tested), failure=(_CODES[code], message or ""))


def retire(connection: sqlite3.Connection, name: str) -> None:
    connection.execute("INSERT OR IGNORE INTO tools (name) VALUES (?)", (name,))
    connection.execute("UPDATE tools SET retired_at = coalesce(retired_at, ?) WHERE name = ?", (iso_now(), name))
    _stamp(connection)


def restore(connection: sqlite3.Connection, name: str) -> bool:
    """Only the retirement goes: what its bytes had reached is still there."""
    changed = connection.execute(
        "UPDATE tools SET retired_at = NULL WHERE name = ? AND retired_at IS NOT NULL", (name,)
    ).rowcount
    _stamp(connection)
    return changed > 0


def retired(connection: sqlite3.Connection, name: str) -> bool:
    row = connection.execute("SELECT retired_at FROM tools WHERE name = ?", (name,)).fetchone()
    return row is not None and row[0] is not None


def stamp(connection: sqlite3.Connection) -> int:
    (number,) = connection.execute("SELECT n FROM stamp").fetchone()
    return int(number)


def _stamp(connection: sqlite3.Connection) -> None:
    connection.execute("UPDATE stamp SET n = n + 1")


def _bring_creation_up(connection: sqlite3.Connection, name: str, digest: str) -> None:
    """How far the last creation of that name ever came, for the rates of §13."""
    reached = connection.execute(
        "SELECT built, tested, tested AND trusted_at IS NOT NULL FROM digests WHERE name = ? AND digest = ?",
        (name, digest),
    ).fetchone()
    connection.execute(
        "UPDATE creations SET built = max(built, ?), tested = max(tested, ?), activated = max(activated, ?) "
        "WHERE id = (SELECT max(id) FROM creations WHERE name = ?)",
        (*reached, name),
    )
