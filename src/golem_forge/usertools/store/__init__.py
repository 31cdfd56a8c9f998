"""ToolStore: what is known of user tools beyond their folders, kept in FORGE_HOME/state/custom.db.

Build status, trust, authors, versions, uses. Takes names, digests and decisions; answers from the file each time, so
that two Forge processes agree. A store that is lost or unreadable answers as an empty one: every tool is untrusted.
Raises ToolStoreError only where a decision a person relies upon could not be kept (`trust`, `retire`, `restore`,
`forget`); the caller must then stop.

Trust belongs to (name, digest) and outlives edits, `forget` and undo: bytes that a person agreed to once are the same
bytes when they come back. A denial is counted and changes nothing else.

`StoreDatabase` is the file: opened on first use, shared by several processes. `read` and `write` return a default when
the file cannot be used; `write_durable` is on disk when it returns, or raises. A file that is no database, a link,
unreadable or half a schema is moved beside (`custom.db.spoilt`) and a new one is begun, which trusts nothing. One that
a newer Forge wrote is left alone and not used.

Threats: two processes that replace the file at once, a file removed or replaced under an open connection, kill -9.
"""

from __future__ import annotations

import contextlib
import errno
import logging
import os
import stat
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Concatenate, Final, ParamSpec, TypeVar

from golem_forge.core.errors import ForgeError
from golem_forge.storage.home import HOME_ADVICE, ForgeHome, create_private, locked
from golem_forge.usertools.diagnostics import TOOL_NAME, DiagnosticCode
from golem_forge.usertools.store import queries
from golem_forge.usertools.store.queries import (
    MANUAL_AUTHOR,
    NOT_BUILT,
    UNKNOWN_VERSION,
    Author,
    AuthorKind,
    Ratings,
    VersionStatus,
)

if TYPE_CHECKING:
    import sqlite3

_REFRESH_BATCH: Final = 20
_P = ParamSpec("_P")
_T = TypeVar("_T")


def _reads(
    query: Callable[Concatenate[sqlite3.Connection, _P], _T], otherwise: _T
) -> Callable[Concatenate[ToolStore, _P], _T]:
    """A method of the store that runs a query of `queries`."""

    def method(self: ToolStore, /, *args: _P.args, **named: _P.kwargs) -> _T:
        return self._file.read(lambda connection: query(connection, *args, **named), otherwise)

    return method


def _writes(
    change: Callable[Concatenate[sqlite3.Connection, _P], _T], otherwise: _T
) -> Callable[Concatenate[ToolStore, _P], _T]:
    def method(self: ToolStore, /, *args: _P.args, **named: _P.kwargs) -> _T:
        return self._file.write(lambda connection: change(connection, *args, **named), otherwise)

    return method


def _decides(
    change: Callable[Concatenate[sqlite3.Connection, _P], _T],
) -> Callable[Concatenate[ToolStore, _P], _T]:
    """Raises ToolStoreError where the decision could not be kept."""

    def method(self: ToolStore, /, *args: _P.args, **named: _P.kwargs) -> _T:
        return self._file.write_durable(lambda connection: change(connection, *args, **named))

    return method


class ToolStore:
    def __init__(self, home: ForgeHome) -> None:
        self._file = StoreDatabase(home)
        self._unwritten: dict[str, Author] = {}
        """Agents whose authorship could not be written: in this process it counts all the same."""
        self._refreshes: list[float] = []
        """Times that are not written yet: there is one for every turn, and no turn should wait for a disk."""

    def close(self) -> None:
        """Closes the store; it opens again when it is used."""
        self._write_refreshes()
        self._file.close()

    # versions and authors

    _present_digest = _reads(queries.present_digest, "")
    _record_version = _writes(queries.record_version, False)
    _record_creation = _writes(queries.record_creation, False)
    _record_agent_edit = _writes(queries.record_agent_edit, False)
    _is_agent_made = _reads(queries.is_agent_made, False)
    _provenance = _reads(queries.provenance, MANUAL_AUTHOR)
    versions = _reads(queries.versions, ())
    forget = _decides(queries.forget)
    prunable_versions = _reads(queries.prunable_versions, ((), ()))
    drop_versions = _writes(queries.drop_versions, None)

    def record_version(self, name: str, digest: str, author: Author | None = None) -> bool:
        """Records a version. Returns True if it is new. Without an author: the agent that was recorded,
        else a person.
        """
        if self._present_digest(name) == digest:
            return False
        recorded = self._record_version(name, digest, author or self._unwritten.get(name))
        if recorded:
            self._unwritten.pop(name, None)
        return recorded

    def record_creation(self, name: str, author: Author, *, suggestion: str = "", sequence_ms: float = 0.0) -> None:
        """Call it when the folder is in place. `sequence_ms`: the median time of the calls the suggestion replaces."""
        if not self._record_creation(name, author, suggestion, sequence_ms) and author.kind is AuthorKind.AGENT:
            self._unwritten[name] = author

    def record_agent_edit(self, name: str, session: str, worker: str) -> None:
        """Call it before the bytes change: another process may see them at once. No tool can have an odd name."""
        if TOOL_NAME.match(name) and not self._record_agent_edit(name, session, worker):
            self._unwritten[name] = Author(AuthorKind.AGENT, session, worker)

    def is_agent_made(self, name: str) -> bool:
        """Whether an agent ever created it or wrote to it."""
        return name in self._unwritten or self._is_agent_made(name)

    def provenance(self, name: str) -> Author:
        return self._unwritten.get(name) or self._provenance(name)

    # decisions

    _record_trust = _decides(queries.record_trust)
    _mark_built = _writes(queries.mark_built, None)
    find_trust = _reads(queries.find_trust, None)
    last_trusted = _reads(queries.last_trusted, "")
    all_trusted = _reads(queries.all_trusted, frozenset())
    version_status = _reads(queries.version_status, UNKNOWN_VERSION)
    add_denial = _writes(queries.add_denial, None)
    denials = _reads(queries.denials, 0)
    mark_tested = _writes(queries.mark_tested, None)
    mark_failed = _writes(queries.mark_failed, None)
    build_status = _reads(queries.build_status, NOT_BUILT)
    retire = _decides(queries.retire)
    restore = _decides(queries.restore)
    is_retired = _reads(queries.is_retired, False)

    def trust(self, name: str, digest: str, *, who: str, shadow: bool = False) -> None:
        """A person agreed to exactly these bytes. ToolStoreError: that was not kept, so nothing may run because of
        it."""
        if not name or not digest:
            raise ValueError("trust is for one tool and one digest")
        self._record_trust(name, digest, who, shadow=shadow)

    def version_statuses(self, digests: Mapping[str, str]) -> Mapping[str, VersionStatus]:
        """Returns for each name what is known of that digest of it."""
        nothing = dict.fromkeys(digests, UNKNOWN_VERSION)
        return self._file.read(lambda connection: queries.version_statuses(connection, digests), nothing)

    def mark_built(self, name: str, digest: str) -> None:
        """Called before every run, so what is known already is not written again."""
        known = self.build_status(name, digest)
        if not known.built or (known.failure is not None and known.failure[0] is not DiagnosticCode.TESTS_FAILED):
            self._mark_built(name, digest)

    def stamp(self) -> object:
        """Differs whenever trust, build status or retirement changed, by whichever process; uses do not change it."""
        number = self._file.read(queries.stamp, -1)
        return self._file.identity, number

    # uses

    _record_refreshes = _writes(queries.record_refreshes, None)
    record_use = _writes(queries.record_use, None)
    rate = _writes(queries.rate, None)
    claim_rating_offer = _writes(queries.claim_rating_offer, False)
    ratings = _reads(queries.ratings, Ratings())

    def record_refresh(self, ms: float) -> None:
        """Written with others, or when the store is closed or asked for them."""
        self._refreshes.append(float(ms))
        if len(self._refreshes) >= _REFRESH_BATCH:
            self._write_refreshes()

    def _write_refreshes(self) -> None:
        took, self._refreshes = self._refreshes, []
        if took:
            self._record_refreshes(took)

    def rows(self, statement: str, values: dict[str, Any] | None = None) -> list[tuple[Any, ...]]:
        """Runs a constant SELECT for statistics; returns no rows if the store cannot be read."""
        self._write_refreshes()
        return self._file.read(lambda connection: connection.execute(statement, values or {}).fetchall(), [])


_log = logging.getLogger(__name__)

_FOLDER: Final = "state"
_NAME: Final = "custom.db"
_SPOILT_SUFFIX: Final = ".spoilt"
_SIDE_FILE_SUFFIXES: Final = ("-wal", "-shm", "-journal")
"""Files that SQLite keeps next to a database. Left behind, they would be taken for parts of the next one."""
_BUSY_S: Final = 2.0
_NOTE_BUSY_S: Final = 0.25
"""A note waits so long for another process, and everything else with it; a decision is worth more."""
_GIVE_UP_S: Final = 5.0
"""Seconds during which writes do not wait after one has waited in vain."""
_BUSY_CODE: Final = 5
_CORRUPT_CODES: Final = frozenset({11, 26})
"""SQLITE_CORRUPT, SQLITE_NOTADB."""
_WRONG_SCHEMA_MESSAGES: Final = ("no such table", "no such column", "has no column", "already exists")
"""SQLite's messages if the tables are not ours."""
_CORRUPT_ERRNOS: Final = frozenset({errno.EACCES, errno.EPERM, errno.ELOOP, errno.EISDIR})


class ToolStoreError(ForgeError):
    """Raised if a decision about a tool could not be stored."""

    def __init__(self, why: str) -> None:
        super().__init__(
            f"The record of user tools ($FORGE_HOME/{_FOLDER}/{_NAME}) could not be written: {why}. "
            "Nothing was changed; correct that and try again.",
            code="CUSTOM_RECORD",
        )


class _DatabaseUnusable(Exception):
    """Why, in words; not the file's fault, so it stays where it is."""


class StoreDatabase:
    def __init__(self, home: ForgeHome) -> None:
        self._home = home
        self._path = home.path / _FOLDER / _NAME
        self._where = os.fspath(self._path)
        self._connection: sqlite3.Connection | None = None
        self.identity: tuple[int, int] | None = None
        """Of the file that was used last."""
        self._alone = threading.RLock()
        self._warned: set[str] = set()
        self._no_waiting_before = 0.0
        """On the monotonic clock."""

    def read(self, query: Callable[[sqlite3.Connection], _T], otherwise: _T) -> _T:
        try:
            return self._with_connection(query)
        except _DatabaseUnusable as error:
            self._warn("read", error)
            return otherwise

    def write(self, change: Callable[[sqlite3.Connection], _T], otherwise: _T) -> _T:
        """Survives the end of this process, not always a power cut: quick enough for every call."""
        try:
            return self._with_connection(lambda connection: self._write_or_give_up(connection, change))
        except _DatabaseUnusable as error:
            self._warn("written", error)
            return otherwise

    def write_durable(self, change: Callable[[sqlite3.Connection], _T]) -> _T:
        """Makes a change that is on disk when this returns."""

        def decide(connection: sqlite3.Connection) -> _T:
            connection.execute("PRAGMA synchronous = FULL")
            try:
                return _in_transaction(connection, change)
            finally:
                connection.execute("PRAGMA synchronous = NORMAL")

        try:
            return self._with_connection(decide)
        except _DatabaseUnusable as error:
            raise ToolStoreError(str(error)) from None

    def close(self) -> None:
        with self._alone:
            self._disconnect()

    def _write_or_give_up(self, connection: sqlite3.Connection, change: Callable[[sqlite3.Connection], _T]) -> _T:
        """Another process that keeps the file locked must not hold up every call: nothing else goes on meanwhile."""
        patient = time.monotonic() >= self._no_waiting_before
        _set_busy_timeout(connection, min(_NOTE_BUSY_S, _BUSY_S) if patient else 0)
        try:
            return _in_transaction(connection, change)
        except Exception as error:
            if _sqlite_code(error) == _BUSY_CODE:
                self._no_waiting_before = time.monotonic() + _GIVE_UP_S
            raise
        finally:
            _set_busy_timeout(connection, _BUSY_S)

    def _with_connection(self, work: Callable[[sqlite3.Connection], _T]) -> _T:
        """Runs the work, and again on a new file if this one is corrupt."""
        try:
            import sqlite3
        except ImportError:
            raise _DatabaseUnusable("this Python has no sqlite3 module") from None
        with self._alone:
            try:
                return work(self._open())
            except (sqlite3.Error, OSError, UnicodeError, OverflowError) as error:
                if not _is_corrupt(error):
                    raise _DatabaseUnusable(_reason(error)) from None
                _log.warning("%s cannot be used (%s): a new one is begun, which trusts no tool", _NAME, _reason(error))
            try:
                self._begin_anew()
                return work(self._open())
            except (sqlite3.Error, OSError, UnicodeError, OverflowError) as error:
                raise _DatabaseUnusable(_reason(error)) from None

    def _open(self) -> sqlite3.Connection:
        import sqlite3

        if self._connection is not None:
            if _file_identity(self._where) == self.identity:
                return self._connection
            self._disconnect()  # removed or replaced meanwhile: what it says now counts
        with self._opening():
            self.identity = _file_identity(self._where)
            self._make_file()
            self.identity = _file_identity(self._where)
            connection = sqlite3.connect(self._path, timeout=_BUSY_S, isolation_level=None, check_same_thread=False)
            try:
                _prepare_connection(connection)
            except BaseException:
                connection.close()
                raise
        self._connection = connection
        return connection

    def _make_file(self) -> None:
        """An existing file is looked at, never opened: closing it again would drop the locks this process holds."""
        try:
            found = os.lstat(self._path)
        except FileNotFoundError:
            for suffix in _SIDE_FILE_SUFFIXES:
                Path(f"{self._path}{suffix}").unlink(missing_ok=True)
            create_private(self._path).close()
            return
        if not stat.S_ISREG(found.st_mode):
            raise OSError(errno.ELOOP, "not a regular file")
        if not os.access(self._path, os.R_OK):
            raise PermissionError(errno.EACCES, "not readable")
        if stat.S_IMODE(found.st_mode) & 0o077:
            os.chmod(self._path, 0o600)

    def _begin_anew(self) -> None:
        used = self.identity
        self._disconnect()
        with self._opening():
            if used is not None and _file_identity(self._where) != used:
                return  # another process did so already
            for suffix in ("", *_SIDE_FILE_SUFFIXES):
                with contextlib.suppress(FileNotFoundError):
                    _move_aside(Path(f"{self._path}{suffix}"), Path(f"{self._path}{_SPOILT_SUFFIX}{suffix}"))

    @contextlib.contextmanager
    def _opening(self) -> Iterator[None]:
        """One process at a time makes, prepares or replaces the file; whoever hangs there is not waited for long."""
        folder = self._home.ensure(_FOLDER)
        if stat.S_IMODE(os.stat(folder).st_mode) & 0o077:
            os.chmod(folder, 0o700)
        with locked(folder / f"{_NAME}.lock"):
            yield

    def _disconnect(self) -> None:
        connection, self._connection, self.identity = self._connection, None, None
        if connection is not None:
            import sqlite3

            with contextlib.suppress(sqlite3.Error):
                connection.close()

    def _warn(self, what: str, error: _DatabaseUnusable) -> None:
        """Logs a warning once for each reason; otherwise a full disk would give one with every call."""
        if str(error) not in self._warned:
            self._warned.add(str(error))
            there = next(place for place in (self._path, *self._path.parents) if place.exists())
            advice = "" if os.access(there, os.W_OK) else f"; {HOME_ADVICE}"
            shown = self._home.shown(self._path)
            _log.warning("the record of user tools (%s) could not be %s: %s%s", shown, what, error, advice)


def _prepare_connection(connection: sqlite3.Connection) -> None:
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    if version > queries.SCHEMA_VERSION:
        raise _DatabaseUnusable("a newer version of Forge wrote it; use that version")
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = NORMAL")
    if version != queries.SCHEMA_VERSION:
        _in_transaction(connection, queries.create_tables)


def _set_busy_timeout(connection: sqlite3.Connection, seconds: float) -> None:
    connection.execute(f"PRAGMA busy_timeout = {round(seconds * 1000)}")


def _in_transaction(connection: sqlite3.Connection, change: Callable[[sqlite3.Connection], _T]) -> _T:
    connection.execute("BEGIN IMMEDIATE")
    try:
        result = change(connection)
        connection.execute("COMMIT")
    except BaseException:
        connection.rollback()
        raise
    return result


def _file_identity(path: str) -> tuple[int, int] | None:
    try:
        found = os.lstat(path)
    except OSError:
        return None
    return found.st_dev, found.st_ino


def _move_aside(path: Path, aside: Path) -> None:
    """Moves a corrupt file aside; only the last one is kept. A directory and a file cannot replace each other."""
    try:
        os.replace(path, aside)
    except (IsADirectoryError, NotADirectoryError, FileExistsError):
        os.rename(aside, aside.with_name(f"{aside.name}-{os.urandom(4).hex()}"))
        os.replace(path, aside)


def _is_corrupt(error: Exception) -> bool:
    if isinstance(error, OSError):
        return error.errno in _CORRUPT_ERRNOS
    return _sqlite_code(error) in _CORRUPT_CODES or any(words in str(error) for words in _WRONG_SCHEMA_MESSAGES)


def _sqlite_code(error: Exception) -> int:
    return (getattr(error, "sqlite_errorcode", None) or 0) & 0xFF


def _reason(error: Exception) -> str:
    """Describes an error without host paths, which an OSError's own text contains, and without the value that was no
    text.
    """
    if isinstance(error, OSError):
        return error.strerror or type(error).__name__
    return "a value cannot be kept" if isinstance(error, ValueError | OverflowError) else str(error)
