"""Book: what is known of user tools beyond their folders. States, trust, authors, versions, uses; kept in custom.db.

Takes names, digests and decisions; answers from the file each time, so that two Forge processes agree. A book that is
lost or unreadable answers as an empty one: every tool is untrusted. Refuses (BookError) only where a decision a person
relies upon could not be kept: `trust`, `retire`, `restore`, `forget`; the caller then must not go on.

Trust belongs to (name, digest) and outlives edits, `forget` and undo: bytes that a person read once and agreed to are
the same bytes when they come back. A denial is counted and changes nothing else.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from golem_forge.config.home import ForgeHome
from golem_forge.custom.book import decisions as book_decisions
from golem_forge.custom.book import glance as book_glance
from golem_forge.custom.book import uses as book_uses
from golem_forge.custom.book import versions as book_versions
from golem_forge.custom.book.file import BookError, BookFile
from golem_forge.custom.book.records import (
    MANUAL,
    NOTHING_KNOWN,
    UNKNOWN,
    Author,
    AuthorKind,
    Glance,
    Ratings,
    Standing,
    Trust,
    Use,
    Version,
)
from golem_forge.custom.diagnostic import Code
from golem_forge.custom.names import NAME

if TYPE_CHECKING:
    import sqlite3

__all__ = ["Author", "AuthorKind", "Book", "BookError", "Glance", "Ratings", "Standing", "Trust", "Use", "Version"]

_REFRESHES_TOGETHER: Final = 20


class Book:
    def __init__(self, home: ForgeHome) -> None:
        self._file = BookFile(home)
        self._unwritten: dict[str, Author] = {}
        """Agents whose hand could not be noted: for this process they count all the same."""
        self._refreshes: list[float] = []
        """Times that are not written yet: of every turn there is one, and no turn should wait for a disk."""

    def close(self) -> None:
        """It opens itself again when it is used."""
        self._write_refreshes()
        self._file.close()

    # versions and authors

    def saw(self, name: str, digest: str, author: Author | None = None) -> bool:
        """True if it is a new version. Without an author: the agent that was noted, else a person."""
        if self._file.read(lambda connection: book_versions.present(connection, name), "") == digest:
            return False
        known = author or self._unwritten.get(name)
        recorded = self._file.note(lambda connection: book_versions.saw(connection, name, digest, known), None)
        if recorded:
            self._unwritten.pop(name, None)
        return bool(recorded)

    def versions(self, name: str) -> tuple[Version, ...]:
        """Newest first."""
        return self._file.read(lambda connection: book_versions.versions(connection, name), ())

    def created(self, name: str, author: Author, *, suggestion: str = "", sequence_ms: float = 0.0) -> None:
        """Call it when the folder is in place. `sequence_ms`: the median time of the calls the suggestion replaces."""

        def write(connection: sqlite3.Connection) -> bool:
            book_versions.created(connection, name, author, suggestion, sequence_ms)
            return True

        if not self._file.note(write, False) and author.kind is AuthorKind.AGENT:
            self._unwritten[name] = author

    def agent_wrote(self, name: str, session: str, worker: str) -> None:
        """Call it before the bytes change: another process may see them at once. No tool can have an odd name."""
        if not NAME.match(name):
            return

        def write(connection: sqlite3.Connection) -> bool:
            book_versions.agent_wrote(connection, name, session, worker)
            return True

        if not self._file.note(write, False):
            self._unwritten[name] = Author(AuthorKind.AGENT, session, worker)

    def agent_made(self, name: str) -> bool:
        """An agent created it or wrote to it, ever."""
        return name in self._unwritten or self._file.read(
            lambda connection: book_versions.agent_made(connection, name), False
        )

    def provenance(self, name: str) -> Author:
        return self._unwritten.get(name) or self._file.read(
            lambda connection: book_versions.provenance(connection, name), MANUAL
        )

    def forget(self, name: str) -> None:
        """The folder was removed. Versions stay for undo, and so does trust in their exact bytes."""
        self._file.decide(lambda connection: book_versions.forget(connection, name))

    def dispensable(self, name: str, keep: int) -> tuple[tuple[int, ...], tuple[str, ...]]:
        """For `history.prune`: (rows, digests that nothing else names)."""
        nothing: tuple[tuple[int, ...], tuple[str, ...]] = ((), ())
        return self._file.read(lambda connection: book_versions.dispensable(connection, name, keep), nothing)

    def drop(self, name: str, rows: tuple[int, ...]) -> None:
        self._file.note(lambda connection: book_versions.drop(connection, name, rows), None)

    # decisions

    def trust(self, name: str, digest: str, *, who: str, shadow: bool = False) -> None:
        """A person agreed to exactly these bytes. BookError: that was not kept, so nothing may run because of it."""
        if not name or not digest:
            raise ValueError("trust is for one tool and one digest")
        self._file.decide(lambda connection: book_decisions.trust(connection, name, digest, who, shadow=shadow))

    def trusted(self, name: str, digest: str) -> Trust | None:
        return self._file.read(lambda connection: book_decisions.trusted(connection, name, digest), None)

    def glance(self, name: str, digest: str) -> Glance:
        """Trust, standing and retirement at once, as every call needs them."""
        return self._file.read(lambda connection: book_glance.glance(connection, name, digest), NOTHING_KNOWN)

    def glances(self, digests: Mapping[str, str]) -> Mapping[str, Glance]:
        """Name → what is known of that digest of it."""
        nothing = dict.fromkeys(digests, NOTHING_KNOWN)
        return self._file.read(lambda connection: book_glance.glances(connection, digests), nothing)

    def last_trusted(self, name: str) -> str:
        """The digest that was trusted last; empty if none was."""
        return self._file.read(lambda connection: book_decisions.last_trusted(connection, name), "")

    def all_trusted(self, name: str) -> frozenset[str]:
        return self._file.read(lambda connection: book_decisions.all_trusted(connection, name), frozenset())

    def denied(self, name: str, digest: str) -> None:
        self._file.note(lambda connection: book_decisions.denied(connection, name, digest), None)

    def denials(self, name: str, digest: str) -> int:
        """Since these bytes were last trusted."""
        return self._file.read(lambda connection: book_decisions.denials(connection, name, digest), 0)

    def mark_built(self, name: str, digest: str) -> None:
        """Said before every run, so what is known already is not written again."""
        known = self.standing(name, digest)
        if not known.built or (known.failure is not None and known.failure[0] is not Code.TESTS_FAILED):
            self._file.note(lambda connection: book_decisions.mark_built(connection, name, digest), None)

    def mark_tested(self, name: str, digest: str) -> None:
        self._file.note(lambda connection: book_decisions.mark_tested(connection, name, digest), None)

    def mark_failed(self, name: str, digest: str, code: Code, message: str) -> None:
        self._file.note(lambda connection: book_decisions.mark_failed(connection, name, digest, code, message), None)

    def standing(self, name: str, digest: str) -> Standing:
        return self._file.read(lambda connection: book_decisions.standing(connection, name, digest), UNKNOWN)

    def retire(self, name: str) -> None:
        self._file.decide(lambda connection: book_decisions.retire(connection, name))

    def restore(self, name: str) -> bool:
        """False if it was not retired. What it had reached before, it has again."""
        return self._file.decide(lambda connection: book_decisions.restore(connection, name))

    def retired(self, name: str) -> bool:
        return self._file.read(lambda connection: book_decisions.retired(connection, name), False)

    def stamp(self) -> object:
        """Differs whenever trust, standing or retirement changed, by whichever process; uses do not change it."""
        number = self._file.read(book_decisions.stamp, -1)
        return self._file.identity, number

    # uses

    def used(self, use: Use) -> None:
        self._file.note(lambda connection: book_uses.used(connection, use), None)

    def rate(self, name: str, good: bool, note: str = "") -> None:
        self._file.note(lambda connection: book_uses.rate(connection, name, good=good, note=note), None)

    def ratings(self, name: str) -> Ratings:
        return self._file.read(lambda connection: book_uses.ratings(connection, name), Ratings())

    def offers_rating(self, name: str) -> bool:
        """True exactly once for each tool, after its third run."""
        return self._file.note(lambda connection: book_uses.offers_rating(connection, name), False)

    def refresh_took(self, ms: float) -> None:
        """Written with others, or when the book is closed or asked for them."""
        self._refreshes.append(float(ms))
        if len(self._refreshes) >= _REFRESHES_TOGETHER:
            self._write_refreshes()

    def _write_refreshes(self) -> None:
        took, self._refreshes = self._refreshes, []
        if took:
            self._file.note(lambda connection: book_uses.refreshes_took(connection, took), None)

    def rows(self, statement: str, values: dict[str, Any] | None = None) -> list[tuple[Any, ...]]:
        """For statistics: a SELECT of constant text; nothing where the book cannot be read."""
        self._write_refreshes()
        return self._file.read(lambda connection: connection.execute(statement, values or {}).fetchall(), [])
