"""The tables of sessions and of runners: rows changed inside a transaction of the caller, and what arrives for a
session.

Who changes a session, its questions or its arrivals locks its row first (`locked`, `held`), so nobody waits in a
circle. An arrival (a message, an answer, a stop) is a row with a number; it wakes the session and rings for a runner.
`RunnerTable` has the runners of a store, each with its slots and labels, seen every few seconds (`Store.renew`).

All methods block; they are called in threads. Those that end in `_in` work inside a transaction of the caller.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, Final

from golem_forge.team.database import Database, PostgresConnection, StoreConnection, TeamError
from golem_forge.team.dispatch import JobQueue
from golem_forge.team.journal_table import bound
from golem_forge.team.rows import CHANNEL, SESSION_COLUMNS, WAITING, Lease, StoredSession, to_session
from golem_forge.team.webhooks import Outbox, SessionFact

RUNNER_GONE_S: Final = 30.0
"""A runner that was not seen for so long is not counted any more."""


class RunnerTable:
    def __init__(self, database: Database) -> None:
        self._database = database

    def register(
        self,
        runner: str,
        *,
        host: str,
        pid: int,
        slots: int,
        labels: Sequence[str],
        version: str,
        offers: Mapping[str, Any],
    ) -> None:
        with self._database.transaction() as connection:
            connection.execute("DELETE FROM runners WHERE seen < @now - 86400")
            connection.execute(
                "INSERT INTO runners (id, host, pid, slots, labels, version, offers, started, seen) VALUES (:id, "
                ":host, :pid, :slots, :labels, :version, :offers, @now, @now)",
                {
                    "id": runner,
                    "host": host,
                    "pid": pid,
                    "slots": slots,
                    "labels": json.dumps(list(labels)),
                    "version": version,
                    "offers": json.dumps(dict(offers)),
                },
            )

    def unregister(self, runner: str) -> None:
        with self._database.transaction() as connection:
            connection.execute("DELETE FROM runners WHERE id = :id", {"id": runner})

    def drain(self, runner: str, draining: bool = True) -> None:
        """Marks that this runner takes no new sessions; `draining` False undoes that."""
        with self._database.transaction() as connection:
            values = {"id": runner, "draining": int(draining)}
            connection.execute("UPDATE runners SET draining = :draining WHERE id = :id", values)

    def seen(self) -> list[dict[str, Any]]:
        """Returns the runners that were seen lately."""
        rows = self._database.read(
            f"SELECT id, host, pid, slots, labels, version, offers, draining, @now - seen FROM runners "
            f"WHERE seen > @now - {RUNNER_GONE_S} ORDER BY started"
        )
        names = ("id", "host", "pid", "slots", "labels", "version", "offers", "draining", "silent")
        found = [dict(zip(names, row, strict=True)) for row in rows]
        return [each | {"labels": json.loads(each["labels"]), "offers": json.loads(each["offers"])} for each in found]

    def busy_slots(self) -> dict[str, int]:
        """Returns how many sessions each runner holds."""
        rows = self._database.read(
            "SELECT runner, count(*) FROM sessions WHERE state IN ('running', 'waiting') AND runner <> '' "
            "GROUP BY runner"
        )
        return {str(runner): int(number) for runner, number in rows}


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
