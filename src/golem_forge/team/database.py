"""The two databases of the store, behind one small interface: a SQLite file, and PostgreSQL.

`open_database` takes the address of a store and gives a `Database`. Statements are written once, with `:name` for
values. Where the two differ they say `@now` (seconds since 1970, by the database's own clock), `@share`, `@update` and
`@skip` (locks on the rows that are read), and each database puts its own words there. Flags are 0 and 1.

A connection belongs to one thread at a time: `Database.transaction` lends one. Errors of the drivers come out as
`StoreUnavailable` (try again: the database is away or busy) or `TeamError` (it will not work like this). No message
holds a password.
"""

from __future__ import annotations

import contextlib
import logging
import re
import sqlite3
import time
from collections.abc import Iterator, Mapping
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path
from threading import Lock
from typing import Any, Final, Protocol

from golem_forge.core.errors import EXTRAS, ForgeError, install_command
from golem_forge.core.regex import regex
from golem_forge.storage.home import make_private_dir, touch_private

SQLITE: Final = "sqlite"
BUSY_S: Final = 10.0
CONNECT_S: Final = 5
CONNECT_AGAIN_S: Final = 15
"""For the second attempt: a machine that is busy answers late. The first is short, because each host of the address
that is gone takes all of it."""
STATEMENT_S: Final = 30
IDLE_TRANSACTION_S: Final = 10
"""A runner that froze inside a transaction keeps rows locked for so long; its successor waits for them."""
APPEND_ONLY: Final = "journals are append only"
"""The error text of the schema's triggers."""
_NAMED: Final = regex(r"(?<!:):([a-z_][a-z_0-9]*)")
_NOT_KEPT: Final = regex("[\\x00\\ud800-\\udfff]")
"""Characters that the text of a database cannot hold."""
_IDLE_CONNECTIONS: Final = 8
_STATEMENTS_KEPT: Final = 1024
_log = logging.getLogger(__name__)


class TeamError(ForgeError):
    """The store cannot do this. The message says what to do next."""

    def __init__(self, message: str, code: str = "STORE") -> None:
        super().__init__(message, code=code)


class StoreUnavailable(TeamError):
    """The database is away, or too busy. Trying again may help; whether the last change was made is not known."""

    def __init__(self, message: str) -> None:
        super().__init__(message, code="STORE_UNAVAILABLE")


STORE_AUTH: Final = "STORE_AUTH"
_LOCKED_OUT: Final = "It let this process in before: if the password was changed, start it again with the new one."
"""A password that is changed and then set right ends no session: until then it is an outage."""


class RowConflict(Exception):
    """Raised if a row of that key already exists."""


class ResultRows(Protocol):
    @property
    def rowcount(self) -> int: ...

    def fetchone(self) -> Any: ...

    def fetchall(self) -> list[Any]: ...


class StoreConnection(Protocol):
    def execute(self, sql: str, values: Mapping[str, Any] | None = None) -> ResultRows: ...

    def lock(self, name: str) -> None:
        """One transaction at a time gets past this, until it ends."""
        ...

    def notify(self, channel: str, payload: str) -> None:
        """Rings whoever listens, when the transaction is committed. May be lost; a sweep finds what it told."""
        ...

    def close(self) -> None: ...


class Database:
    kind: str
    shown: str
    """Its address without the password."""

    def __init__(self) -> None:
        self._idle: list[StoreConnection] = []
        self._lock = Lock()
        self._closed = False
        self._has_answered = False

    def connect(self) -> StoreConnection:
        raise NotImplementedError

    def _begin(self, connection: StoreConnection, write: bool) -> None:
        connection.execute("BEGIN")

    def unavailable(self, error: Exception) -> TeamError | None:
        """Converts a driver error to a TeamError; None if the database is available."""
        raise NotImplementedError

    def is_conflict(self, error: Exception) -> bool:
        """Whether the error means that a row of that key already exists."""
        raise NotImplementedError

    @contextlib.contextmanager
    def transaction(self, *, write: bool = True, single: bool = False) -> Iterator[StoreConnection]:
        """Commits at the end; an exception rolls back. A connection that failed is closed, not lent again.

        `single`: for one statement, which is a transaction by itself; RowConflict: nothing of it was written.
        """
        with self._lock:
            connection = self._idle.pop() if self._idle else None
        kept = False
        try:
            connection = connection or self.connect()
            if single:
                yield connection
                kept = self._has_answered = True
                return
            self._begin(connection, write)
            try:
                yield connection
                connection.execute("COMMIT")
                kept = self._has_answered = True
            except BaseException:
                with contextlib.suppress(Exception):
                    connection.execute("ROLLBACK")
                    kept = True
                raise
        except Exception as error:
            if single and self.is_conflict(error):
                raise RowConflict from error
            if (told := self.unavailable(error)) is not None:
                kept = False
                if told.code == STORE_AUTH and self._has_answered:
                    told = StoreUnavailable(f"{told.message} {_LOCKED_OUT}")
                raise told from error
            raise
        finally:
            if connection is not None:
                with self._lock:
                    keep = kept and not self._closed and len(self._idle) < _IDLE_CONNECTIONS
                    if keep:
                        self._idle.append(connection)
                if not keep:
                    with contextlib.suppress(Exception):
                        connection.close()

    def read(self, sql: str, values: Mapping[str, Any] | None = None) -> list[Any]:
        """The rows of one statement, which needs no transaction around it."""
        with self.transaction(write=False, single=True) as connection:
            return connection.execute(sql, values).fetchall()

    def read_one(self, sql: str, values: Mapping[str, Any] | None = None) -> Any:
        """Returns the first row; None if there is none."""
        with self.transaction(write=False, single=True) as connection:
            return connection.execute(sql, values).fetchone()

    def close(self) -> None:
        with self._lock:
            self._closed = True
            idle, self._idle = self._idle, []
        for connection in idle:
            with contextlib.suppress(Exception):
                connection.close()


def open_database(url: str, home: Path) -> Database:
    """`sqlite` (the file of this home), `sqlite:///path`, or `postgresql://…`. Raises TeamError."""
    if url == SQLITE:
        return SqliteDatabase(home / "state" / "sessions.db")
    scheme = url.partition(":")[0]
    if scheme == SQLITE:
        path = url.removeprefix("sqlite://")
        if not path.startswith("/"):
            raise TeamError("store.url: write a SQLite file as sqlite:///absolute/path.db, or only `sqlite`")
        return SqliteDatabase(Path(path))
    if scheme in ("postgresql", "postgres"):
        return PostgresDatabase(url)
    raise TeamError("store.url: expected `sqlite`, postgresql://…, https://… or env:NAME")


class Complaints:
    """One line a second at most, whoever complains: a database that is away is one problem, not one for each thread."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._last = -1.0
        self._of_store = False

    def tell(self, what: str, error: BaseException) -> None:
        with self._lock:
            now = time.monotonic()
            if now - self._last < 1.0:
                return
            self._last = now
            self._of_store = self._of_store or isinstance(error, TeamError)
        text = error.message if isinstance(error, TeamError) else type(error).__name__
        _log.warning("%s: %s", what, text)

    def end(self) -> None:
        """The store has answered: says so once, if somebody complained of it."""
        with self._lock:
            told, self._of_store = self._of_store, False
        if told:
            _log.warning("the store answers again")


complaints: Final = Complaints()


def _append_only() -> TeamError:
    return TeamError("Journals and the audit are append only; `forge store prune` deletes what is past its retention.")


# ---- SQLite


_SQLITE_WORDS: Final = {
    "@now": "((julianday('now') - 2440587.5) * 86400.0)",
    "@share": "",
    "@update": "",
    "@skip": "",
}
_POSTGRES_WORDS: Final = {
    "@now": "extract(epoch from clock_timestamp())::double precision",
    "@share": "FOR SHARE",
    "@update": "FOR UPDATE",
    "@skip": "FOR UPDATE SKIP LOCKED",
}


def _kept_text(value: Any) -> Any:
    """Threat: a model's text with a NUL or half a surrogate pair would be refused, again and again: it is escaped."""
    if not isinstance(value, str) or _NOT_KEPT.search(value) is None:
        return value
    return value.replace("\0", "\\x00").encode("utf-8", "backslashreplace").decode()


def _kept_values(values: Mapping[str, Any]) -> dict[str, Any]:
    return {name: _kept_text(value) for name, value in values.items()}


def _in_words_of(words: Mapping[str, str], sql: str) -> str:
    for mark, word in words.items():
        sql = sql.replace(mark, word)
    return sql


@lru_cache(_STATEMENTS_KEPT)
def _sqlite_sql(sql: str) -> str:
    return _in_words_of(_SQLITE_WORDS, sql)


class SqliteConnection:
    def __init__(self, path: Path) -> None:
        if path.exists():
            if path.stat().st_mode & 0o077:
                raise TeamError(
                    f"Other accounts of this machine can open the store's file. Run `chmod 600` on {path.name}."
                )
        else:
            if not path.parent.is_dir() or path.parent.name == "state":  # a directory of others stays as it is
                make_private_dir(path.parent)
            # Never while a connection of this process is open: closing the file would drop SQLite's locks on it.
            touch_private(path)
        self._raw = sqlite3.connect(path, timeout=BUSY_S, isolation_level=None, check_same_thread=False)
        self._raw.execute("PRAGMA journal_mode=WAL")
        # Threat: a power cut that takes the last commits back. The session would go on from there, and repeat a call
        # whose effect is on the disk.
        self._raw.execute("PRAGMA synchronous=FULL")
        self._raw.execute("PRAGMA foreign_keys=ON")

    def execute(self, sql: str, values: Mapping[str, Any] | None = None) -> ResultRows:
        return self._raw.execute(_sqlite_sql(sql), _kept_values(values or {}))

    def lock(self, name: str) -> None:
        return None  # a transaction that writes is alone

    def notify(self, channel: str, payload: str) -> None:
        return None  # others look at the file's version

    def version(self) -> int:
        """Another number after another connection changed the file."""
        found: int = self._raw.execute("PRAGMA data_version").fetchone()[0]
        return found

    def close(self) -> None:
        self._raw.close()


class SqliteDatabase(Database):
    kind = SQLITE

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.path = path
        self.shown = f"sqlite ({path.name})"

    def connect(self) -> SqliteConnection:
        return SqliteConnection(self.path)

    def _begin(self, connection: StoreConnection, write: bool) -> None:
        connection.execute("BEGIN IMMEDIATE" if write else "BEGIN")

    def is_conflict(self, error: Exception) -> bool:
        return isinstance(error, sqlite3.IntegrityError) and APPEND_ONLY not in str(error)

    def unavailable(self, error: Exception) -> TeamError | None:
        if isinstance(error, sqlite3.OperationalError):
            if "no such table" in str(error) or "no such column" in str(error):
                return TeamError("The store has no tables yet, or old ones. Run `forge store init`.", "STORE_SCHEMA")
            return StoreUnavailable(f"The store's file cannot be used now ({error}).")
        if isinstance(error, sqlite3.IntegrityError):
            return _append_only() if APPEND_ONLY in str(error) else None
        if isinstance(error, sqlite3.DatabaseError):
            return TeamError(f"The store's file is damaged or no database ({error}). Restore a backup of it.")
        return None


# ---- PostgreSQL


class PostgresConnection:
    def __init__(self, raw: Any) -> None:
        self.raw = raw

    def execute(self, sql: str, values: Mapping[str, Any] | None = None) -> ResultRows:
        rows: ResultRows = self.raw.execute(_pyformat(sql), _kept_values(values) if values else None)
        return rows

    def lock(self, name: str) -> None:
        self.raw.execute("SELECT pg_advisory_xact_lock(hashtext(%(name)s))", {"name": f"forge {name}"})

    def notify(self, channel: str, payload: str) -> None:
        self.raw.execute("SELECT pg_notify(%(channel)s, %(payload)s)", {"channel": channel, "payload": payload})

    def close(self) -> None:
        self.raw.close()


@lru_cache(_STATEMENTS_KEPT)
def _pyformat(sql: str) -> str:
    return _NAMED.sub(r"%(\1)s", _in_words_of(_POSTGRES_WORDS, sql).replace("%", "%%"))


_WRONG_ADDRESS: Final = (
    "store.url: the address cannot be read. In a password write @ as %40, / as %2F, : as %3A, ? as %3F, # as %23 and "
    "% as %25; the parameters behind ? are those of libpq."
)
_NOBODY: Final = "nothing listens there. Start the database, or correct the host and port in store.url."
_NO_HOST: Final = "the name of its host is not known. Correct the host in store.url."
_SLOW: Final = (
    f"no answer came within {CONNECT_AGAIN_S} seconds. Check host and port in store.url, and the firewall between."
)
_NO_LINE: Final = "pg_hba.conf there has no line that lets this user into this database from here"
_NEW_LINE: Final = "Add a line for them, and reload it."
_FULL: Final = "all of its connections are taken. Raise max_connections there, or end what holds them."
_BROKE: Final = "the connection broke. Is the database running?"
_CERTIFICATE: Final = "Name the certificate of its CA by sslrootcert in store.url."
_UNREACHABLE: Final = {
    "Connection refused": _NOBODY,
    "No such file or directory Is the server running": _NOBODY,
    "failed to resolve host": _NO_HOST,
    "could not translate host name": _NO_HOST,
    "timeout expired": _SLOW,
    "Connection timed out": _SLOW,
    "No route to host": "no network leads to its host. Check the host in store.url, and the network between.",
    "Network is unreachable": "no network leads to its host. Check the host in store.url, and the network between.",
    "root certificate file": "there is no file where sslrootcert says. Correct sslrootcert in store.url.",
    "certificate verify failed": f"its certificate is not signed by a CA that is known here. {_CERTIFICATE}",
    "does not match host name": "its certificate is for another host. Write the host in store.url as it stands there.",
    "does not support SSL": "it has no TLS, and sslmode in store.url asks for it. Set ssl = on there.",
    ", SSL encryption": f"{_NO_LINE}. {_NEW_LINE}",
    ", SSL on": f"{_NO_LINE}. {_NEW_LINE}",
    ", no encryption": f"{_NO_LINE} without TLS. Write sslmode=require in store.url, or add a `host` line there.",
    ", SSL off": f"{_NO_LINE} without TLS. Write sslmode=require in store.url, or add a `host` line there.",
    "no pg_hba.conf entry": f"{_NO_LINE}. {_NEW_LINE}",
    "pg_hba.conf rejects": "a line of pg_hba.conf there refuses this user or database. Change it, and reload it.",
    "the database system is": "it starts or stops. Try again in a minute.",
    "too many clients": _FULL,
    "remaining connection slots": _FULL,
    "too many connections": "this role has all the connections that it may. Raise its CONNECTION LIMIT.",
    "server closed the connection": _BROKE,
    "terminating connection": _BROKE,
    "the connection is lost": _BROKE,
    "the connection is closed": _BROKE,
    "statement timeout": f"a statement took longer than {STATEMENT_S} seconds. Is the database overloaded?",
}
"""Message of libpq or the server → the reason, and what to do. Threat: their own text repeats what they took for the
host, which is the end of a password with an @ in it; it is never shown.
"""
_HOST: Final = r"(?:(?:[\w.-]|%2[Ff])*|\[[^]@/]*\])(?::[0-9]*)?"
_ADDRESS: Final = regex(
    rf"postgres(?:ql)?://(?:[^@/?#]*@)?(?P<hosts>{_HOST}(?:,{_HOST})*)(?P<name>(?:/[^@/?#]*)?)(?:\?(?:[a-z_]+=[^#]*)?)?"
)


def _shown_address(url: str) -> str:
    """Hosts, ports and database. Raises TeamError. Threat: a password with an @, /, ? or # that is not escaped ends
    somewhere else than its owner thinks, and the rest of it stands where the host or the database should."""
    found = _ADDRESS.fullmatch(url)
    if found is None:
        raise TeamError(_WRONG_ADDRESS)
    return f"{found['hosts'].lower() or 'local'}{found['name']}"


class PostgresDatabase(Database):
    kind = "postgresql"

    def __init__(self, url: str) -> None:
        super().__init__()
        try:
            import psycopg

            if not all(map(find_spec, EXTRAS["team"])):
                raise ModuleNotFoundError
        except (ModuleNotFoundError, ValueError):  # find_spec's word for a module that was taken away
            raise TeamError(
                f"The store is in PostgreSQL, and its library is missing. Run `{install_command('team')}`."
            ) from None
        self._driver = psycopg
        self.url = url
        self.shown = f"postgresql ({_shown_address(url)})"

    def connect(self, *, autocommit: bool = True) -> PostgresConnection:
        """Tries once more, and for longer, where no answer came in time."""
        options = {"autocommit": autocommit, **self.options()}
        try:
            return PostgresConnection(self._driver.connect(self.url, **options))
        except self._driver.errors.ConnectionTimeout:
            options["connect_timeout"] = CONNECT_AGAIN_S
            return PostgresConnection(self._driver.connect(self.url, **options))

    def options(self) -> dict[str, Any]:
        """Returns the options of every connection: it notices a peer that is gone, holds no lock for long, and a commit
        is on disk, whatever the server's default is.
        """
        return {
            "connect_timeout": CONNECT_S,
            "keepalives_idle": 5,
            "keepalives_interval": 2,
            "keepalives_count": 3,
            "tcp_user_timeout": 10_000,
            "application_name": "forge",
            "options": f"-c statement_timeout={STATEMENT_S * 1000} "
            f"-c idle_in_transaction_session_timeout={IDLE_TRANSACTION_S * 1000} -c synchronous_commit=on",
        }

    def is_conflict(self, error: Exception) -> bool:
        return isinstance(error, self._driver.errors.UniqueViolation)

    def unavailable(self, error: Exception) -> TeamError | None:
        driver = self._driver
        if not isinstance(error, driver.Error):
            return None
        if isinstance(error, (driver.errors.InvalidPassword, driver.errors.InvalidAuthorizationSpecification)):
            return self._refused()
        if isinstance(
            error, (driver.errors.UndefinedTable, driver.errors.UndefinedColumn, driver.errors.UndefinedFunction)
        ):
            return TeamError("The store has no tables yet, or old ones. Run `forge store init`.", "STORE_SCHEMA")
        if isinstance(error, driver.errors.InsufficientPrivilege):
            return TeamError(
                f"{self.shown} does not let this role do that. Use the role that owns the tables for `forge store` and "
                "`forge people`; an admin of the team can manage people with their token too.",
                "STORE_ROLE",
            )
        if isinstance(error, driver.errors.IntegrityError):
            return None
        if isinstance(error, driver.errors.RaiseException):
            return _append_only() if APPEND_ONLY in str(error) else TeamError(f"{self.shown} refused a change.")
        text = " ".join(str(error).split())
        away = isinstance(error, (driver.OperationalError, driver.InterfaceError, driver.InternalError))
        if away and (reason := next((words for sign, words in _UNREACHABLE.items() if sign in text), "")):
            return StoreUnavailable(f"{self.shown} cannot be reached now: {reason}")
        if "no password supplied" in text:
            words = "wants a password, and none is given. Put it into store.url, PGPASSWORD or ~/.pgpass."
            return TeamError(f"{self.shown} {words}", STORE_AUTH)
        if "password" in text or "authentication" in text:
            return self._refused()
        if re.search(r'database ".*" does not exist', text):
            return TeamError(f"{self.shown}: there is no such database. Create it, then `forge store init`.")
        if away:
            return StoreUnavailable(f"{self.shown} cannot be reached now ({type(error).__name__}). See its log.")
        if isinstance(error, driver.ProgrammingError) and error.sqlstate is None:
            return TeamError(_WRONG_ADDRESS)
        return TeamError(f"{self.shown}: {type(error).__name__}")

    def _refused(self) -> TeamError:
        words = "refused the user or password. Check store.url, PGPASSWORD and ~/.pgpass."
        return TeamError(f"{self.shown} {words}", STORE_AUTH)
