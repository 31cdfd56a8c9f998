"""Store: the sessions that several processes share. One row a session says its state; the journal says what happened.

    queued → running → (waiting ⇄ running) → finished | failed | stopped

A runner acts for a session while it has its lease (`leases.py`). Every append names the epoch of the lease and locks
the row against the next taker, so a runner that lost its lease can record nothing, and what is not recorded does not
run. An answer or a message is a row with a number: the same transaction wakes the session.

Every other table has an object of its own: `store.leases.claim(…)`, `store.questions.answer(…)`, `store.accounts`, ….

All methods block; they are called in threads. They raise StoreUnavailable when the database is away and TeamError
when it refuses.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any, Final

from golem_forge.agent.session_state import known_secrets
from golem_forge.core.ids import new_id
from golem_forge.storage.home import ForgeHome
from golem_forge.team.accounts import Accounts
from golem_forge.team.audit import Actor
from golem_forge.team.database import (
    SQLITE,
    Database,
    StoreConnection,
    TeamError,
    open_database,
)
from golem_forge.team.dispatch import RunnerTable
from golem_forge.team.leases import LeaseTable
from golem_forge.team.project_secrets import ProjectSecrets
from golem_forge.team.projects import Projects, ensure_project
from golem_forge.team.question_table import QuestionTable
from golem_forge.team.quotas import Quotas, check_start
from golem_forge.team.rows import (
    CHANNEL,
    ENDED,
    SESSION_COLUMNS,
    WAS_PRUNED,
    Append,
    Arrival,
    NewSession,
    RecordedSession,
    StoredSession,
    to_session,
)
from golem_forge.team.schedules import Schedules
from golem_forge.team.schema import check_version, pruning, upgrade
from golem_forge.team.session_table import (
    JournalTable,
    SessionTable,
    as_json,
    bound,
    no_session,
    of_programs,
    the_one,
)
from golem_forge.team.webhooks import Outbox

_LEAST_PREFIX: Final = 4
_PAGE: Final = 1000


class Store:
    def __init__(self, database: Database) -> None:
        self.database = database
        self.accounts = Accounts(database)
        self.projects = Projects(database)
        self.quotas = Quotas(database)
        self.secrets = ProjectSecrets(database)
        self.journals = JournalTable(database)
        self._sessions = SessionTable(self.without_secrets)
        self.questions = QuestionTable(database, self._sessions, self.projects, self.without_secrets)
        self.leases = LeaseTable(database, self._sessions, self.journals, self.questions)
        self.runners = RunnerTable(database)
        self.schedules = Schedules(database, self._queue, self.without_secrets)
        self.home: ForgeHome | None = None
        """Of this process: what it knows as secrets becomes no row."""

    @classmethod
    def open(cls, url: str, home: Path, *, create: bool = False) -> Store:
        """`create`: a SQLite file that has no tables yet gets them. Raises TeamError."""
        database = open_database(url, home)
        if create and database.kind == SQLITE:
            upgrade(database)
        else:
            check_version(database)
        store = cls(database)
        store.home = ForgeHome(home)
        return store

    def without_secrets(self, text: str) -> str:
        """Redacts the secrets that this process knows, as for a journal."""
        return known_secrets(self.home).redact_secrets(text) if self.home is not None else text

    def use_webhooks(self, outbox: Outbox) -> None:
        """Reports session events to the webhooks from now on."""
        self._sessions.outbox = outbox

    def close(self) -> None:
        self.database.close()

    # ---- sessions

    def queue(self, new: NewSession, session_id: str = "") -> str:
        """Puts a session in the queue, with its first input as its first message; gives its id."""
        session_id = session_id or new_id()
        with self.database.transaction() as connection:
            self._queue(connection, new, session_id)
        return session_id

    def _queue(self, connection: StoreConnection, new: NewSession, session_id: str) -> None:
        check_start(connection, new.program, new.person)
        ensure_project(connection, new.program, new.project)
        connection.execute(
            "INSERT INTO sessions (id, state, worker, title, model, mode, person, program, label, batch, priority, "
            "arrivals, created, updated) VALUES (:id, 'queued', :worker, :title, :model, :mode, :person, "
            ":program, :label, :batch, :priority, 1, @now, @now)",
            {
                "id": session_id,
                "worker": new.worker,
                "title": self.without_secrets(new.title),
                "model": new.model,
                "mode": new.mode,
                "person": new.person,
                "program": new.program,
                "label": new.label,
                "batch": new.batch,
                "priority": new.priority,
            },
        )
        connection.execute(
            "INSERT INTO session_facts (session, facts) VALUES (:id, :facts)",
            {"id": session_id, "facts": as_json(new.facts)},
        )
        self._sessions.insert_arrival(connection, session_id, 1, "message", {"text": new.input}, new.person, new.door)
        self._sessions.ring(connection, session_id, new.label, new.priority)

    def sessions(
        self,
        *,
        states: Iterable[str] = (),
        prefix: str = "",
        batch: str = "",
        limit: int = 1000,
        programs: Collection[str] | None = None,
    ) -> list[StoredSession]:
        """Returns sessions, newest first. `programs`: only of these."""
        wanted, values = bound("state", states)
        where = f"state IN ({wanted})" if wanted else "1 = 1"
        among, more = of_programs(programs)
        where, values = f"{where} AND {among}", values | more
        values |= {"length": len(prefix), "prefix": prefix, "limit": limit}
        if batch:
            where = f"{where} AND (batch = :batch OR substr(batch, 1, length(:batch) + 1) = :batch || '.')"
            values["batch"] = batch
        rows = self.database.read(
            f"SELECT {SESSION_COLUMNS} FROM sessions WHERE {where} AND substr(id, 1, :length) = :prefix "
            "ORDER BY created DESC, id LIMIT :limit",
            values,
        )
        return [to_session(row) for row in rows]

    def get(self, session_id: str) -> StoredSession | None:
        """Returns a session by its complete id."""
        row = self.database.read_one(f"SELECT {SESSION_COLUMNS} FROM sessions WHERE id = :id", {"id": session_id})
        return None if row is None else to_session(row)

    def find(self, reference: str, programs: Collection[str] | None = None) -> StoredSession:
        """Returns a session by its id or the beginning of it. `programs`: only of these. Raises TeamError."""
        found = self.sessions(prefix=reference, limit=2, programs=programs) if reference else []
        if (row := the_one(reference, found)) is None:
            pruned = self._pruned(reference) if programs is None else ""
            raise TeamError(pruned or no_session(reference), "SESSION_NOT_FOUND")
        return row

    def _pruned(self, reference: str) -> str:
        """Describes what is still known of a session that was deleted after its retention."""
        if len(reference) < _LEAST_PREFIX:
            return ""
        row = self.database.read_one(
            "SELECT session, lines, hash FROM pruned WHERE substr(session, 1, :length) = :prefix",
            {"length": len(reference), "prefix": reference},
        )
        if row is None:
            return ""
        return f"session {row[0]} {WAS_PRUNED}; its journal had {row[1]} lines, the last hash {row[2]}"

    def facts(self, session_id: str) -> Mapping[str, Any]:
        row = self.database.read_one("SELECT facts FROM session_facts WHERE session = :id", {"id": session_id})
        return json.loads(row[0]) if row else {}

    def stop(self, session_id: str, person: str = "", door: str = "") -> str:
        """The holder interrupts and settles it; without one it is settled here. Gives the state it had."""
        with self.database.transaction() as connection:
            row = self._sessions.locked(connection, session_id)
            if row.state in ENDED:
                return row.state
            if self._sessions.is_leased(connection, session_id):
                connection.execute("UPDATE sessions SET stop = 1 WHERE id = :id", {"id": session_id})
            else:
                lines, hash = self.journals.tail_in(connection, session_id)
                connection.execute(
                    "UPDATE sessions SET state = 'stopped', stop = 1, wake = 0, epoch = epoch + 1, waits_for = '', "
                    "lines = :lines, hash = :hash, ended = @now, updated = @now WHERE id = :id",
                    {"id": session_id, "lines": lines, "hash": hash},
                )
                self.questions.withdraw_in(connection, session_id)
            self._sessions.add_arrival(connection, row, "stop", {}, person, door)
            connection.notify(CHANNEL, session_id)
        return row.state

    # ---- journals

    def append(self, batch: Sequence[Append]) -> dict[str, str]:
        """Appends lines; see `JournalTable.append`."""
        return self.journals.append(batch)

    def lines(
        self, session_id: str, after: int = 0, *, limit: int = 5000, private: bool = True
    ) -> list[tuple[int, bytes]]:
        """Returns lines; see `JournalTable.lines`."""
        return self.journals.lines(session_id, after, limit=limit, private=private)

    def output(self, session_id: str, handle: str) -> tuple[str, Iterator[bytes]] | None:
        """Returns an output; see `JournalTable.output`."""
        return self.journals.output(session_id, handle)

    def add_recorded(
        self,
        recorded: RecordedSession,
        lines: Iterable[bytes],
        outputs: Iterable[tuple[str, str, int, bytes]] = (),
    ) -> int:
        """A session that ended elsewhere, with its journal as it is; gives the number of its lines. 0: it is there."""
        rest = iter(lines)
        number = 0
        with self.database.transaction() as connection:
            added = connection.execute(
                "INSERT INTO sessions (id, state, worker, model, title, person, created, updated, ended) VALUES (:id, "
                ":state, :worker, :model, :title, :person, :created, :ended, :ended) ON CONFLICT (id) DO NOTHING",
                {name: getattr(recorded, name) for name in RecordedSession.__slots__},
            ).rowcount
            if not added:
                return 0
            for each in outputs:
                self.journals.insert_in(
                    connection, Append(session=recorded.id, epoch=0, first=1, lines=(), outputs=(each,))
                )
            while page := tuple(islice(rest, _PAGE)):
                append = Append(session=recorded.id, epoch=0, first=number + 1, lines=page)
                if (why := self.journals.insert_in(connection, append, again=True)) is not None:
                    raise TeamError(f"session {recorded.id[:12]} cannot be copied: {why}")
                number += len(page)
            connection.execute(
                "UPDATE sessions SET lines = :lines, hash = :hash WHERE id = :id",
                {"lines": number, "hash": self.journals.tail_in(connection, recorded.id)[1], "id": recorded.id},
            )
        return number

    # ---- what arrives for a session

    def send(self, session_id: str, kind: str, data: Mapping[str, Any], person: str = "", door: str = "") -> int:
        """Wakes the session with what somebody says; gives its number. Raises TeamError where it has ended, and for a
        message without a word."""
        with self.database.transaction() as connection:
            row = self._sessions.locked(connection, session_id)
            if row.state in ENDED:
                raise TeamError(
                    f"session {session_id[:12]} has ended ({row.state}); start another one", "SESSION_ENDED"
                )
            if kind == "message" and not str(data.get("text", "")).strip():
                raise TeamError("the message is empty: write what the session is to do", "STORE_MESSAGE")
            number = self._sessions.add_arrival(connection, row, kind, data, person, door)
            connection.notify(CHANNEL, session_id)
        return number

    def arrived(self, session_id: str, after: int) -> list[Arrival]:
        rows = self.database.read(
            "SELECT number, kind, data, person, door FROM arrivals WHERE session = :id AND number > :after "
            "ORDER BY number LIMIT 1000",
            {"id": session_id, "after": after},
        )
        return [
            Arrival(number=int(number), kind=kind, data=json.loads(data), person=person, door=door)
            for number, kind, data, person, door in rows
        ]

    def notify(self, notices: Iterable[tuple[str, str]]) -> None:
        """(channel, what) each, to whoever listens; PostgreSQL only. Nothing of it is kept."""
        with self.database.transaction() as connection:
            for channel, what in notices:
                connection.notify(channel, what)

    # ---- inside

    def counts(self) -> dict[str, Any]:
        """Returns the number of sessions by state, of questions and runners, and how long the oldest queued session has
        waited.
        """
        with self.database.transaction(write=False) as connection:
            states = connection.execute("SELECT state, count(*) FROM sessions GROUP BY state ORDER BY state").fetchall()
            questions = connection.execute("SELECT count(*) FROM questions WHERE state = 'open'").fetchone()[0]
            oldest = connection.execute("SELECT @now - min(created) FROM sessions WHERE state = 'queued'").fetchone()[0]
            unsent = connection.execute(
                "SELECT state, count(*) FROM deliveries WHERE state <> 'sent' GROUP BY state ORDER BY state DESC"
            ).fetchall()
        counted: dict[str, Any] = {str(state): int(number) for state, number in states}
        counted |= {"open questions": int(questions), "runners": len(self.runners.seen())}
        counted |= {f"webhooks {state}": int(number) for state, number in unsent}
        return counted | {"oldest queued (s)": round(float(oldest or 0), 1)}

    def now(self) -> float:
        return float(self.database.read_one("SELECT @now")[0])

    def ended_facts(self, *, among: Iterable[str] = (), ended_before_s: float = 0.0) -> dict[str, Mapping[str, Any]]:
        """Sessions that have ended, so long ago or earlier, with where and how they ran. `among`: of these alone; those
        that were pruned are told too, without facts."""
        wanted, values = bound("id", among)
        only, pruned = (f"AND s.id IN ({wanted})", f"session IN ({wanted})") if values else ("", "1 = 0")
        with self.database.transaction(write=False) as connection:
            rows = connection.execute(
                "SELECT s.id, coalesce(f.facts, '{}') FROM sessions s LEFT JOIN session_facts f ON f.session = s.id "
                f"WHERE s.ended > 0 AND s.ended <= @now - :age {only}",
                {**values, "age": ended_before_s},
            ).fetchall()
            gone = connection.execute(f"SELECT session FROM pruned WHERE {pruned}", values).fetchall()
        return {id: json.loads(facts) for id, facts in rows} | {id: {} for (id,) in gone}

    def prune_audit(self, retention_s: float, by: Actor) -> int:
        """Deletes what the audit keeps longer than that; gives how many records."""
        with self.database.transaction() as connection, pruning(connection, self.database):
            return self.accounts.audit.prune(connection, retention_s, *by)

    def prune(self, retention_s: float) -> int:
        """Deletes sessions that ended longer ago than that; leaves their id, line count and last hash."""
        with self.database.transaction() as connection, pruning(connection, self.database):
            rows = connection.execute(
                "SELECT id FROM sessions WHERE ended > 0 AND ended < @now - :age",
                {"age": retention_s},
            ).fetchall()
            for (session_id,) in rows:
                lines, hash = self.journals.tail_in(connection, session_id)
                connection.execute(
                    "INSERT INTO pruned (session, lines, hash, at) VALUES (:id, :lines, :hash, @now)",
                    {"id": session_id, "lines": lines, "hash": hash},
                )
                for table in ("journal", "journal_private", "outputs", "arrivals", "questions", "session_facts"):
                    connection.execute(f"DELETE FROM {table} WHERE session = :id", {"id": session_id})
                connection.execute("DELETE FROM sessions WHERE id = :id", {"id": session_id})
        return len(rows)
