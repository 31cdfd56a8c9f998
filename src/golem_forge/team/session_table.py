"""The tables of sessions and of their journals: a row a session, what arrives for it, and the lines it has recorded.

Who changes a session, its questions or its arrivals locks its row first (`locked`, `held`), so nobody waits in a
circle. An arrival (a message, an answer, a stop) is a row with a number; it wakes the session and rings for a runner.

`JournalTable` has the lines and outputs of journals, append only. An append carries the epoch of whoever acts for the
session and shares the lock of its row, so that no other runner takes the session meanwhile. Its lines come right after
the last one that is there. Lines that are there already, the same bytes, were written by a commit whose answer got
lost. Lines with host paths are in a table of their own, which viewers do not read.

All methods block; they are called in threads. Those that end in `_in` work inside a transaction of the caller.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import cache
from typing import Any, Final

from golem_forge.events.journal_files import unseal_line
from golem_forge.team.accounts import insert_rules
from golem_forge.team.database import SQLITE, Database, PostgresConnection, RowConflict, StoreConnection, TeamError
from golem_forge.team.dispatch import JobQueue
from golem_forge.team.rows import CHANNEL, SESSION_COLUMNS, WAITING, Append, Lease, StoredSession, to_session
from golem_forge.team.webhooks import Outbox, SessionFact

_MAX_WORDS: Final = 8 << 20
"""Maximum size of a message to a session, as JSON."""


class SessionTable:
    def __init__(self, without_secrets: Callable[[str], str]) -> None:
        self._without_secrets = without_secrets
        self._jobs = JobQueue()
        self.outbox: Outbox | None = None
        """Of a runner that has webhooks."""

    def locked(self, connection: StoreConnection, session_id: str) -> StoredSession:
        row = connection.execute(
            f"SELECT {SESSION_COLUMNS} FROM sessions WHERE id = :id @update",
            {"id": session_id},
        ).fetchone()
        if row is None:
            raise TeamError(no_session(session_id), "SESSION_NOT_FOUND")
        return to_session(row)

    def is_leased(self, connection: StoreConnection, session_id: str) -> bool:
        found = connection.execute("SELECT 1 FROM sessions WHERE id = :id AND lease_until > @now", {"id": session_id})
        return found.fetchone() is not None

    def held(self, connection: StoreConnection, lease: Lease) -> StoredSession:
        """Locked. Raises TeamError (`LEASE_LOST`) where the session is another's by now."""
        row = self.locked(connection, lease.id)
        if row.epoch != lease.epoch:
            raise lease_lost(lease.id)
        return row

    def ring(self, connection: StoreConnection, session_id: str, label: str, priority: int) -> None:
        """A runner shall take this session. Its row is locked, so that whoever comes finds it as it is afterwards."""
        if isinstance(connection, PostgresConnection):
            self._jobs.defer(connection, session_id, label, priority)
        connection.notify(CHANNEL, session_id)

    def add_arrival(
        self,
        connection: StoreConnection,
        row: StoredSession,
        kind: str,
        data: Mapping[str, Any],
        person: str,
        door: str,
    ) -> int:
        number = row.arrivals + 1
        connection.execute(
            "UPDATE sessions SET arrivals = :number, wake = 1, updated = @now WHERE id = :id",
            {"number": number, "id": row.id},
        )
        self.insert_arrival(connection, row.id, number, kind, data, person, door)
        if row.state == WAITING and not row.held:  # whoever holds it hears of this without a job
            self.ring(connection, row.id, row.label, row.priority)
        return number

    def insert_arrival(
        self,
        connection: StoreConnection,
        session_id: str,
        number: int,
        kind: str,
        data: Mapping[str, Any],
        person: str,
        door: str,
    ) -> None:
        if isinstance(said := data.get("text"), str):
            data = {**data, "text": self._without_secrets(said)}
        connection.execute(
            "INSERT INTO arrivals (session, number, kind, data, person, door, at) VALUES (:id, :number, :kind, :data, "
            ":person, :door, @now)",
            {
                "id": session_id,
                "number": number,
                "kind": kind,
                "data": as_json(data),
                "person": person,
                "door": door,
            },
        )

    def tell(self, connection: StoreConnection, fact: SessionFact) -> None:
        """Adds a fact to the webhooks' outbox, if there is one."""
        if self.outbox is not None:
            self.outbox.tell(connection, fact)


def no_session(reference: str) -> str:
    return f"no session {reference!r} in the store; `forge ps --all` shows them"


def the_one(reference: str, found: Sequence[StoredSession]) -> StoredSession | None:
    """Returns the session that is meant, of two or fewer whose ids begin so. Raises TeamError if both may be."""
    exact = next((row for row in found if row.id == reference), None)
    if exact is None and len(found) > 1:
        raise TeamError(f"several sessions start with {reference!r}; type more of the id (`forge ps --all` shows them)")
    return exact or next(iter(found), None)


def lease_lost(session_id: str) -> TeamError:
    return TeamError(f"Another runner has taken session {session_id[:12]} over.", "LEASE_LOST")


def as_json(said: Mapping[str, Any]) -> str:
    words = json.dumps(dict(said))
    if len(words) > _MAX_WORDS:
        raise TeamError(f"This is too long: a session takes {_MAX_WORDS >> 20} MiB at a time.", "STORE_TOO_LONG")
    return words


def of_programs(programs: Collection[str] | None) -> tuple[str, dict[str, Any]]:
    """(which rows of `sessions` are of these programs, the values of that); None: all are."""
    if programs is None:
        return "1 = 1", {}
    among, values = bound("program", programs)
    return (f"program IN ({among})" if values else "1 = 0"), values


_MOST_AT_ONCE: Final = 24
"""Maximum lines of one statement."""
_PAGE_BYTES: Final = 16 << 20


class JournalTable:
    def __init__(self, database: Database) -> None:
        self.database = database

    def append(self, batch: Sequence[Append]) -> dict[str, str]:
        """Appends all lines in one commit. Returns session → reason, for those whose lines were refused."""
        if len(batch) == 1 and self._append_at_once(batch[0]):
            return {}
        refused: dict[str, str] = {}
        while True:
            kept = sorted((each for each in batch if each.session not in refused), key=lambda each: each.session)
            try:
                with self.database.transaction() as connection:
                    for each in kept:
                        if (why := self.append_in(connection, each, rules=False)) is not None:
                            raise _AppendRefused(each.session, why)
                        connection.notify(f"{CHANNEL}_{each.session}", str(each.first + len(each.lines) - 1))
                    # last: who records a rule in the audit waits for no session
                    insert_rules(connection, (rule for each in kept for rule in each.rules))
                return refused
            except _AppendRefused as error:  # nothing of it may stay: the others are written anew
                refused[error.session] = error.why

    def _append_at_once(self, each: Append) -> bool:
        """The usual case, in one statement instead of five: lines of a call, after the last line that is there, under
        the session's epoch. False: nothing was written, and `append_in` finds out why."""
        is_sqlite = self.database.kind == SQLITE
        private = [at for at, line in enumerate(each.lines, 1) if is_private(line)]
        if each.outputs or each.rules or not 0 < len(each.lines) <= _MOST_AT_ONCE or (private and is_sqlite):
            return False
        values: dict[str, Any] = {f"line_{at}": line for at, line in enumerate(each.lines, 1)}
        values |= {"id": each.session, "epoch": each.epoch, "before": each.first - 1}
        if not is_sqlite:
            values |= {"channel": f"{CHANNEL}_{each.session}", "last": str(each.first + len(each.lines) - 1)}
        if private:
            values["private"] = private
        try:
            with self.database.transaction(single=True) as connection:
                done = connection.execute(_append_sql(len(each.lines), is_sqlite, bool(private)), values)
                return int(done.rowcount if is_sqlite else done.fetchone()[0]) == len(each.lines)
        except RowConflict:
            return False

    def append_in(
        self, connection: StoreConnection, each: Append, lock: str = "@share", *, rules: bool = True
    ) -> str | None:
        """Lines that are there already, the same bytes, were written by a commit whose answer got lost. Who changes the
        session's row afterwards locks it with `@update`: two that share it would wait for each other."""
        held = connection.execute(
            "SELECT EXISTS (SELECT 1 FROM journal WHERE session = :id AND n = :before) OR EXISTS (SELECT 1 FROM "
            "journal_private WHERE session = :id AND n = :before), EXISTS (SELECT 1 FROM journal WHERE session = :id "
            "AND n > :before) OR EXISTS (SELECT 1 FROM journal_private WHERE session = :id AND n > :before) "
            "FROM sessions WHERE id = :id AND epoch = :epoch "
            f"{lock}",
            {"id": each.session, "epoch": each.epoch, "before": each.first - 1},
        ).fetchone()
        if held is None:
            return "another runner has taken this session over"
        if not held[0] and each.first > 1 and each.lines:
            return "the database has lost lines of its journal that it had taken"
        why = self.insert_in(connection, each, again=bool(held[1]))
        if why is None and rules:
            insert_rules(connection, each.rules)
        return why

    def insert_in(self, connection: StoreConnection, each: Append, *, again: bool = False) -> str | None:
        """`again`: there are lines of these numbers, or later ones."""
        for handle, worker, piece, data in each.outputs:
            connection.execute(
                "INSERT INTO outputs (session, handle, worker, piece, data) VALUES (:session, :handle, :worker, "
                ":piece, :data) ON CONFLICT DO NOTHING",
                {"session": each.session, "handle": handle, "worker": worker, "piece": piece, "data": data},
            )
        tables: dict[str, list[dict[str, Any]]] = {}
        for n, line in enumerate(each.lines, start=each.first):
            table = "journal_private" if is_private(line) else "journal"
            tables.setdefault(table, []).append({"session": each.session, "n": n, "line": line})
        for table, rows in tables.items():
            written = 0
            for at in range(0, len(rows), _MOST_AT_ONCE):
                some = rows[at : at + _MOST_AT_ONCE]
                values = {f"{name}_{number}": row[name] for number, row in enumerate(some) for name in ("n", "line")}
                values["session"] = each.session
                written += connection.execute(_insert_sql(table, len(some)), values).rowcount
            other = "journal" if table == "journal_private" else "journal_private"
            is_ours = written == len(rows) or self._are_there(connection, table, rows)
            if not is_ours or (again and self._has_one_of(connection, other, rows)):
                return "its journal was written by another process"
        return None

    def _are_there(self, connection: StoreConnection, table: str, rows: Sequence[Mapping[str, Any]]) -> bool:
        return all(
            (found := connection.execute(
                f"SELECT line FROM {table} WHERE session = :session AND n = :n",
                {"session": row["session"], "n": row["n"]},
            ).fetchone()) is not None
            and bytes(found[0]) == row["line"]
            for row in rows
        )  # fmt: skip

    def _has_one_of(self, connection: StoreConnection, table: str, rows: Sequence[Mapping[str, Any]]) -> bool:
        """Whether this table has a line of one of these numbers: a number is one line's, in whichever table."""
        numbers, values = bound("n", [row["n"] for row in rows])
        found = connection.execute(
            f"SELECT 1 FROM {table} WHERE session = :session AND n IN ({numbers}) LIMIT 1",
            {**values, "session": rows[0]["session"]},
        ).fetchone()
        return found is not None

    def lines(
        self, session_id: str, after: int = 0, *, limit: int = 5000, private: bool = True
    ) -> list[tuple[int, bytes]]:
        """(number, line) of those after `after`, in order, at most 16 MiB or one line; `private`: with those that hold
        host paths."""
        tables = ("journal", "journal_private") if private else ("journal",)
        values: dict[str, Any] = {"id": session_id, "after": after, "limit": limit}
        with self.database.transaction(write=False) as connection:
            sizes = sorted(
                (int(row[0]), int(row[1]))
                for table in tables
                for row in connection.execute(
                    f"SELECT n, length(line) FROM {table} WHERE session = :id AND n > :after ORDER BY n LIMIT :limit",
                    values,
                ).fetchall()
            )[:limit]
            room, last = _PAGE_BYTES, after
            for n, size in sizes:
                if room < size and last > after:
                    break
                room, last = room - size, n
            found = [
                (int(row[0]), bytes(row[1]))
                for table in tables
                if last > after
                for row in connection.execute(
                    f"SELECT n, line FROM {table} WHERE session = :id AND n > :after AND n <= :last",
                    {"id": session_id, "after": after, "last": last},
                ).fetchall()
            ]
        return sorted(found)

    def output(self, session_id: str, handle: str) -> tuple[str, Iterator[bytes]] | None:
        """(the worker it belongs to, its pieces: each is read when it is asked for)."""
        values = {"id": session_id, "handle": handle}
        row = self.database.read_one(
            "SELECT worker, count(*) FROM outputs WHERE session = :id AND handle = :handle GROUP BY worker", values
        )

        def pieces(count: int) -> Iterator[bytes]:
            for piece in range(count):
                found = self.database.read_one(
                    "SELECT data FROM outputs WHERE session = :id AND handle = :handle AND piece = :piece",
                    {**values, "piece": piece},
                )
                if found is None:  # its session was deleted meanwhile
                    raise TeamError(f"output {handle} of session {session_id[:12]} is not whole any more")
                yield bytes(found[0])

        return None if row is None else (str(row[0]), pieces(int(row[1])))

    def output_bytes(self, session_id: str) -> int:
        """Returns how many bytes of output a session keeps."""
        [size] = self.database.read_one(
            "SELECT coalesce(sum(length(data)), 0) FROM outputs WHERE session = :id", {"id": session_id}
        )
        return int(size)

    def tail_in(self, connection: StoreConnection, session_id: str) -> tuple[int, str]:
        row = connection.execute(
            "SELECT n, line FROM (SELECT n, line FROM journal WHERE session = :id UNION ALL SELECT n, line FROM "
            "journal_private WHERE session = :id) AS whole ORDER BY n DESC LIMIT 1",
            {"id": session_id},
        ).fetchone()
        if row is None:
            return 0, ""
        parts = unseal_line(bytes(row[1]).removesuffix(b"\n"))
        return int(row[0]), parts[1] if parts else ""


@cache
def _insert_sql(table: str, count: int) -> str:
    rows = ", ".join(f"(:session, :n_{at}, :line_{at})" for at in range(count))
    return f"INSERT INTO {table} (session, n, line) VALUES {rows} ON CONFLICT DO NOTHING"


@cache
def _append_sql(count: int, is_sqlite: bool, has_private: bool) -> str:
    """Inserts all of the lines or none. The lease's row is shared until the commit; on SQLite a writer is alone."""
    lines = ", ".join(f"({at}, :line_{at})" for at in range(1, count + 1))
    there = "EXISTS (SELECT 1 FROM journal{} WHERE session = :id AND n {} :before)"
    is_next = (
        f"({there.format('', '=')} OR {there.format('_private', '=')} OR :before = 0) "
        f"AND NOT {there.format('', '>')} AND NOT {there.format('_private', '>')}"
    )
    insert = (
        "INSERT INTO {} (session, n, line) SELECT s.id, v.column1 + CAST(:before AS BIGINT), v.column2 "
        f"FROM {{}} s, (VALUES {lines}) v WHERE {{}}{is_next}"
    )
    if is_sqlite:
        return insert.format("journal", "sessions", "s.id = :id AND s.epoch = :epoch AND ")
    held = "WITH held AS (SELECT id FROM sessions WHERE id = :id AND epoch = :epoch FOR SHARE)"
    if not has_private:
        kept = insert.format("journal", "held", "")
        return f"{held}, kept AS ({kept} RETURNING 1) SELECT count(*), pg_notify(:channel, :last) FROM kept"
    kept = insert.format("journal", "held", "v.column1 <> ALL(:private) AND ")
    hidden = insert.format("journal_private", "held", "v.column1 = ANY(:private) AND ")
    return (
        f"{held}, kept AS ({kept} RETURNING 1), hidden AS ({hidden} RETURNING 1) "
        "SELECT (SELECT count(*) FROM kept) + (SELECT count(*) FROM hidden), pg_notify(:channel, :last)"
    )


class _AppendRefused(Exception):
    def __init__(self, session: str, why: str) -> None:
        super().__init__(why)
        self.session = session
        self.why = why


def is_private(line: bytes) -> bool:
    """A record of how a run was started: its paths are the host's. What is no record stays private, too.

    Threat: text inside another record that looks like this type must not hide it from those who may see it.
    """
    try:
        record = json.loads(line)
    except ValueError:
        return True
    kind = record.get("of") if record.get("type") == "part" else record.get("type")
    return kind is None or kind == "run"


def bound(name: str, items: Iterable[Any]) -> tuple[str, dict[str, Any]]:
    """(the names of values for a list, the values): what others said is never part of a statement."""
    values: dict[str, Any] = {f"{name}_{number}": item for number, item in enumerate(items)}
    return ", ".join(f":{each}" for each in values), values
