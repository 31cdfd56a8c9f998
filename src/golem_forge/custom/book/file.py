"""The file behind the book: opened on first use, shared by several Forge processes, replaced when it is spoilt.

`read` and `note` give `otherwise` when the file cannot be used, so nothing here can fail a session; `decide` is for
what a person relies upon: it is on the disk when the call returns, or BookError was raised and the caller stops.
A file that is no database, a link, unreadable or half a schema is moved beside (`custom.db.spoilt`) and a new one is
begun: it trusts nothing. One that a newer Forge wrote is left alone and not used.

Threats: two processes that replace one file at once, a file removed or replaced under an open connection, kill -9.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import logging
import os
import stat
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeVar

from golem_forge.config.home import ForgeHome
from golem_forge.core.errors import ForgeError
from golem_forge.custom.book import schema as book_schema

if TYPE_CHECKING:
    import sqlite3

_log = logging.getLogger(__name__)
_T = TypeVar("_T")

_FOLDER: Final = "state"
_NAME: Final = "custom.db"
_SPOILT: Final = ".spoilt"
_BESIDE: Final = ("-wal", "-shm", "-journal")
"""What SQLite keeps next to a database. Left behind, they would be taken for parts of the next one."""
_BUSY_S: Final = 2.0
_NOTE_BUSY_S: Final = 0.25
"""A note waits so long for another process, and everything else with it; a decision is worth more."""
_GIVE_UP_S: Final = 5.0
"""After a note that waited in vain, those that follow do not wait at all for this long."""
_BUSY_CODE: Final = 5
_SPOILT_CODES: Final = frozenset({11, 26})
"""SQLITE_CORRUPT, SQLITE_NOTADB."""
_OTHER_TABLES: Final = ("no such table", "no such column", "has no column", "already exists")
"""What SQLite says where the tables are not ours."""
_SPOILT_ERRNOS: Final = frozenset({errno.EACCES, errno.EPERM, errno.ELOOP, errno.EISDIR})


class BookError(ForgeError):
    """What was decided about a tool could not be kept."""

    def __init__(self, why: str) -> None:
        super().__init__(
            f"The record of user tools ($FORGE_HOME/{_FOLDER}/{_NAME}) could not be written: {why}. "
            "Nothing was changed; put that right and try again.",
            code="CUSTOM_RECORD",
        )


class _NotUsable(Exception):
    """Why, in words; not the file's fault, so it stays where it is."""


class _NotAFile(OSError):
    pass


class BookFile:
    def __init__(self, home: ForgeHome) -> None:
        self._home = home
        self._path = home.path / _FOLDER / _NAME
        self._where = os.fspath(self._path)
        self._connection: sqlite3.Connection | None = None
        self._identity: tuple[int, int] | None = None
        self._alone = threading.RLock()
        self._warned: set[str] = set()
        self._no_waiting_before = 0.0
        """On the monotonic clock."""

    def read(self, query: Callable[[sqlite3.Connection], _T], otherwise: _T) -> _T:
        try:
            return self._with_connection(query)
        except _NotUsable as error:
            self._warn("read", error)
            return otherwise

    def note(self, change: Callable[[sqlite3.Connection], _T], otherwise: _T) -> _T:
        """Survives the end of this process, not always a power cut: quick enough for every call."""
        try:
            return self._with_connection(lambda connection: self._noted(connection, change))
        except _NotUsable as error:
            self._warn("written", error)
            return otherwise

    def decide(self, change: Callable[[sqlite3.Connection], _T]) -> _T:
        """On the disk when it returns."""
        try:
            return self._with_connection(lambda connection: _changed_for_good(connection, change))
        except _NotUsable as error:
            raise BookError(str(error)) from None

    def close(self) -> None:
        with self._alone:
            self._let_go()

    @property
    def identity(self) -> tuple[int, int] | None:
        """Of the file that was used last."""
        return self._identity

    def _noted(self, connection: sqlite3.Connection, change: Callable[[sqlite3.Connection], _T]) -> _T:
        """Whoever keeps the file locked must not hold up every call: nothing else goes on while this waits."""
        patient = time.monotonic() >= self._no_waiting_before
        _wait_at_most(connection, min(_NOTE_BUSY_S, _BUSY_S) if patient else 0)
        try:
            return _changed(connection, change)
        except Exception as error:
            if _is_locked(error):
                self._no_waiting_before = time.monotonic() + _GIVE_UP_S
            raise
        finally:
            _wait_at_most(connection, _BUSY_S)

    def _with_connection(self, work: Callable[[sqlite3.Connection], _T]) -> _T:
        """Once more on a new file if this one turns out to be spoilt."""
        try:
            import sqlite3
        except ImportError:
            raise _NotUsable("this Python has no sqlite3 module") from None
        with self._alone:
            try:
                return work(self._open())
            except (sqlite3.Error, OSError, UnicodeError, OverflowError) as error:
                if not _is_spoilt(error):
                    raise _NotUsable(_in_words(error)) from None
                _log.warning(
                    "%s cannot be used (%s): a new one is begun, which trusts no tool", _NAME, _in_words(error)
                )
            try:
                self._begin_anew()
                return work(self._open())
            except (sqlite3.Error, OSError, UnicodeError, OverflowError) as error:
                raise _NotUsable(_in_words(error)) from None

    def _open(self) -> sqlite3.Connection:
        import sqlite3

        if self._connection is not None:
            if _identity_of(self._where) == self._identity:
                return self._connection
            self._let_go()  # removed or replaced meanwhile: what it says now counts
        with self._opening():
            self._identity = _identity_of(self._where)
            self._make_file()
            self._identity = _identity_of(self._where)
            connection = sqlite3.connect(self._path, timeout=_BUSY_S, isolation_level=None, check_same_thread=False)
            try:
                _prepare(connection)
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
            for suffix in _BESIDE:
                Path(f"{self._path}{suffix}").unlink(missing_ok=True)
            flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
            os.close(os.open(self._path, flags, 0o600))
            return
        if not stat.S_ISREG(found.st_mode):
            raise _NotAFile(errno.ELOOP, "not a regular file")
        if not os.access(self._path, os.R_OK):
            raise PermissionError(errno.EACCES, "not readable")
        if stat.S_IMODE(found.st_mode) & 0o077:
            os.chmod(self._path, 0o600)

    def _begin_anew(self) -> None:
        used = self._identity
        self._let_go()
        with self._opening():
            if used is not None and _identity_of(self._where) != used:
                return  # another process did so already
            aside = f"{self._path}{_SPOILT}"
            with contextlib.suppress(FileNotFoundError):
                _move(self._path, Path(aside))
            for suffix in _BESIDE:
                with contextlib.suppress(FileNotFoundError):
                    _move(Path(f"{self._path}{suffix}"), Path(f"{aside}{suffix}"))

    @contextlib.contextmanager
    def _opening(self) -> Iterator[None]:
        """One process at a time makes, prepares or replaces the file; whoever hangs there is not waited for long."""
        folder = self._home.ensure(_FOLDER)
        if stat.S_IMODE(os.stat(folder).st_mode) & 0o077:
            os.chmod(folder, 0o700)
        lock = os.open(folder / f"{_NAME}.lock", os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        try:
            deadline = time.monotonic() + _BUSY_S
            while True:
                try:
                    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    break
                except BlockingIOError:
                    if time.monotonic() > deadline:
                        raise _NotUsable("another Forge process keeps it locked") from None
                    time.sleep(0.005)
            yield
        finally:
            os.close(lock)

    def _let_go(self) -> None:
        connection, self._connection, self._identity = self._connection, None, None
        if connection is not None:
            import sqlite3

            with contextlib.suppress(sqlite3.Error):
                connection.close()

    def _warn(self, what: str, error: _NotUsable) -> None:
        """Once for each reason: a book on a full disk would say so with every call."""
        if str(error) not in self._warned:
            self._warned.add(str(error))
            _log.warning("the record of user tools could not be %s: %s", what, error)


def _prepare(connection: sqlite3.Connection) -> None:
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    if version > book_schema.VERSION:
        raise _NotUsable("a newer version of Forge wrote it; use that version")
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = NORMAL")
    if version != book_schema.VERSION:
        book_schema.make(connection)


def _wait_at_most(connection: sqlite3.Connection, seconds: float) -> None:
    connection.execute(f"PRAGMA busy_timeout = {round(seconds * 1000)}")


def _changed(connection: sqlite3.Connection, change: Callable[[sqlite3.Connection], _T]) -> _T:
    connection.execute("BEGIN IMMEDIATE")
    try:
        result = change(connection)
        connection.execute("COMMIT")
    except BaseException:
        connection.rollback()
        raise
    return result


def _changed_for_good(connection: sqlite3.Connection, change: Callable[[sqlite3.Connection], _T]) -> _T:
    connection.execute("PRAGMA synchronous = FULL")
    try:
        return _changed(connection, change)
    finally:
        connection.execute("PRAGMA synchronous = NORMAL")


def _identity_of(path: str) -> tuple[int, int] | None:
    try:
        found = os.lstat(path)
    except OSError:
        return None
    return found.st_dev, found.st_ino


def _move(path: Path, aside: Path) -> None:
    """Only the last spoilt file is kept; a directory and a file cannot take each other's place."""
    try:
        os.replace(path, aside)
    except (IsADirectoryError, NotADirectoryError, FileExistsError):
        os.rename(aside, aside.with_name(f"{aside.name}-{os.urandom(4).hex()}"))
        os.replace(path, aside)


def _is_spoilt(error: Exception) -> bool:
    if isinstance(error, OSError):
        return isinstance(error, _NotAFile) or error.errno in _SPOILT_ERRNOS
    code = getattr(error, "sqlite_errorcode", None) or 0
    return (code & 0xFF) in _SPOILT_CODES or any(words in str(error) for words in _OTHER_TABLES)


def _is_locked(error: Exception) -> bool:
    return (getattr(error, "sqlite_errorcode", None) or 0) & 0xFF == _BUSY_CODE


def _in_words(error: Exception) -> str:
    """Without the host's paths, which an OSError's own text carries, nor the value that was no text."""
    if isinstance(error, OSError):
        return error.strerror or type(error).__name__
    return "a value cannot be kept" if isinstance(error, ValueError | OverflowError) else str(error)
