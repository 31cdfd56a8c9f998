"""All that decides whether a tool is offered, in one look at the book: of one tool for a call, of all for a refresh.

Statements over one connection; `book_decisions` is where each of these things is written.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final

from golem_forge.custom.book import decisions as book_decisions
from golem_forge.custom.book.records import Glance

if TYPE_CHECKING:
    import sqlite3

_FEW: Final = 50
"""So many are looked up one by one; for more, one pass over all of the book is quicker."""
_OWN: Final = "trusted_at IS NOT NULL, shadow, built, tested, failure_code, failure_message"
_NO_ROW: Final = (0, 0, 0, 0, None, None)
_NEVER: Final = ("", 0)
_ONE: Final = (
    f"SELECT {_OWN}, (SELECT retired_at FROM tools WHERE name = ?1) "  # noqa: S608
    "FROM digests WHERE name = ?1 AND digest = ?2"
)
_ALL: Final = f"SELECT name, digest, {_OWN} FROM digests"  # noqa: S608
_LAST: Final = (
    "SELECT digest, shadow FROM digests WHERE name = ? AND trusted_at IS NOT NULL ORDER BY trust_order DESC LIMIT 1"
)
_ALL_LAST: Final = "SELECT name, digest, shadow FROM digests WHERE trusted_at IS NOT NULL ORDER BY trust_order"
_RETIRED: Final = "SELECT name FROM tools WHERE retired_at IS NOT NULL"


def glance(connection: sqlite3.Connection, name: str, digest: str) -> Glance:
    row = connection.execute(_ONE, (name, digest)).fetchone()
    own, retired = (row[:-1], row[-1] is not None) if row else (_NO_ROW, book_decisions.retired(connection, name))
    return _glance(own, retired, lambda: connection.execute(_LAST, (name,)).fetchone() or _NEVER)


def glances(connection: sqlite3.Connection, digests: Mapping[str, str]) -> dict[str, Glance]:
    """Of each name with its digest."""
    if len(digests) <= _FEW:
        return {name: glance(connection, name, digest) for name, digest in digests.items()}
    retired = {name for (name,) in connection.execute(_RETIRED)}
    own = {row[0]: row[2:] for row in connection.execute(_ALL) if digests.get(row[0]) == row[1]}
    last = {row[0]: row[1:] for row in connection.execute(_ALL_LAST)}

    def of(name: str) -> Glance:
        return _glance(own.get(name, _NO_ROW), name in retired, lambda: last.get(name, _NEVER))

    return {name: of(name) for name in digests}


def _glance(own: tuple[Any, ...], retired: bool, last: Callable[[], tuple[str, int]]) -> Glance:
    trusted, shadow, *reached = own
    standing = book_decisions.standing_from(*reached)
    if trusted and standing.tested:
        return Glance(True, bool(shadow), standing, retired)
    before, may_replace = last()
    return Glance(bool(trusted), bool(trusted and shadow), standing, retired, before, bool(may_replace))
