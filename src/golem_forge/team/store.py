"""Store: the sessions that several processes share. One row a session says its state; the journal says what happened.

    queued → running → (waiting ⇄ running) → finished | failed | stopped

A runner that takes a session gets an epoch, one higher than the last one's, and a lease of 15 seconds by the
database's clock. Every append names the epoch and locks the row against the next taker, so a runner that lost its
lease can record nothing, and what is not recorded does not run. An answer or a message is a row with a number: the
same transaction wakes the session. `park` writes `waiting` only if nothing arrived that the runner has not seen.

Every other table has an object of its own: `store.questions.answer(…)`, `store.runners.seen()`, `store.accounts`, ….

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
from golem_forge.team.project_secrets import ProjectSecrets
from golem_forge.team.projects import Projects, ensure_project
from golem_forge.team.question_table import QuestionTable
from golem_forge.team.quotas import Quotas, check_start
from golem_forge.team.rows import (
    CHANNEL,
    ENDED,
    RUNNING,
    SESSION_COLUMNS,
    WAITING,
    WAS_PRUNED,
    Append,
    Arrival,
    Lease,
    NewSession,
    RecordedSession,
    SessionEnding,
    StoredSession,
    to_session,
)
from golem_forge.team.schedules import Schedules
from golem_forge.team.schema import SCHEMA_VERSION, check_version, pruning, upgrade
from golem_forge.team.session_table import (
    JournalTable,
    SessionTable,
    as_json,
    bound,
    lease_lost,
    no_session,
    of_programs,
    the_one,
)
from golem_forge.team.webhooks import Outbox, SessionFact

LEASE_S: Final = 15.0
_LEAST_PREFIX: Final = 4
_PAGE: Final = 1000
_MAX_RESULT: Final = 20_000
_MAX_NOTICE: Final = 1000


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

    # ---- taking, holding, letting go

    def claim(
        self,
        runner: str,
        labels: Sequence[str],
        *,
        session_id: str = "",
        limits: Mapping[str, int] | None = None,
        but: Iterable[str] = (),
        projects: Collection[str] = (),
    ) -> Lease | None:
        """The next session that may run here; None: there is none. `session_id`: that one; `but`: none of these;
        `projects`: of one of these, if any is named."""
        may_run, values = _claimable(labels, limits, projects)
        # A runner of another version than the tables takes nothing, from the moment of their upgrade on.
        only = "AND EXISTS (SELECT 1 FROM meta WHERE key = 'schema' AND value = :schema) "
        values["schema"] = str(SCHEMA_VERSION)
        only += "AND s.id = :wanted " if session_id else ""
        not_these, left_out = bound("but", but)
        only += f"AND s.id NOT IN ({not_these}) " if left_out else ""
        values |= left_out
        values |= {"runner": runner, "until": LEASE_S} | ({"wanted": session_id} if session_id else {})
        with self.database.transaction() as connection:
            if session_id:  # whoever rang may still hold the row
                connection.execute("SELECT 1 FROM sessions WHERE id = :id @update", {"id": session_id})
            if limits:
                connection.lock("claim")  # two that count at once would both find room
            row = connection.execute(
                "UPDATE sessions SET runner = :runner, epoch = epoch + 1, lease_until = @now + :until, wake = 0, "
                "state = 'running', held = 0, waits_for = '', updated = @now WHERE id = (SELECT s.id FROM sessions s "
                f"WHERE {may_run} {only}ORDER BY s.priority DESC, s.created LIMIT 1 @skip) "
                f"RETURNING {SESSION_COLUMNS}, (SELECT facts FROM session_facts WHERE session = sessions.id)",
                values,
            ).fetchone()
        if row is None:
            return None
        *columns, facts = row
        return Lease(session=to_session(columns), facts=json.loads(facts) if facts else {})

    def has_work(self, labels: Sequence[str], limits: Mapping[str, int] | None, projects: Collection[str] = ()) -> bool:
        """Whether there is a session that `claim` would give."""
        may_run, values = _claimable(labels, limits, projects)
        found = self.database.read_one(f"SELECT 1 FROM sessions s WHERE {may_run} LIMIT 1", values)
        return found is not None

    def ring_forgotten(
        self,
        labels: Sequence[str],
        limits: Mapping[str, int] | None,
        most: int,
        projects: Collection[str] = (),
    ) -> int:
        """PostgreSQL: rings for sessions that may run and have no job that waits. Gives their number."""
        if self.database.kind == SQLITE:
            return 0
        may_run, values = _claimable(labels, limits, projects)
        with self.database.transaction() as connection:
            rows = connection.execute(
                f"SELECT s.id, s.label, s.priority FROM sessions s WHERE {may_run} AND NOT EXISTS (SELECT 1 FROM "
                "procrastinate_jobs j WHERE j.queueing_lock = s.id AND j.status = 'todo') "
                "ORDER BY s.priority DESC, s.created LIMIT :most @skip",
                {**values, "most": most},
            ).fetchall()
            for session_id, label, priority in rows:
                self._sessions.ring(connection, session_id, label, priority)
        return len(rows)

    def renew(self, runner: str, held: Mapping[str, int]) -> dict[str, tuple[bool, int]]:
        """Renews the leases of sessions (id → epoch). Returns those that are still held: id → (whether to stop, number
        of arrivals).
        """
        found = {}
        with self.database.transaction() as connection:
            connection.execute("UPDATE runners SET seen = @now WHERE id = :runner", {"runner": runner})
            for session_id, epoch in sorted(held.items()):  # in the order of `append`: neither waits for the other
                row = connection.execute(
                    "UPDATE sessions SET lease_until = @now + :until WHERE id = :id AND epoch = :epoch "
                    "AND runner = :runner RETURNING stop, arrivals",
                    {"until": LEASE_S, "id": session_id, "epoch": epoch, "runner": runner},
                ).fetchone()
                if row is not None:
                    found[session_id] = (bool(row[0]), int(row[1]))
        return found

    def shorten_leases(self) -> None:
        """Shortens leases after the database's clock was set back, since they would seem to last much longer. A live
        runner renews its lease; a dead one is replaced in time.
        """
        values = {"longest": LEASE_S}
        late = self.database.read_one("SELECT 1 FROM runners WHERE seen > @now + :longest LIMIT 1", values)
        if late is None:
            return
        with self.database.transaction() as connection:
            connection.execute(
                "UPDATE sessions SET lease_until = @now + :longest WHERE id IN (SELECT id FROM sessions WHERE "
                "lease_until > @now + :longest + 1 ORDER BY id @update)",
                values,
            )
            connection.execute("UPDATE runners SET seen = @now WHERE seen > @now + :longest", values)

    def news(self, held: Iterable[str]) -> dict[str, tuple[bool, int, int]]:
        """id → (whether to stop, number of arrivals, epoch), without renewing."""
        wanted, values = bound("held", held)
        if not values:
            return {}
        rows = self.database.read(f"SELECT id, stop, arrivals, epoch FROM sessions WHERE id IN ({wanted})", values)
        return {row[0]: (bool(row[1]), int(row[2]), int(row[3])) for row in rows}

    def park(self, lease: Lease, line: Append, *, seen: int, waits_for: str, cost: float = 0.0) -> bool:
        """`waiting`, with its journal's `parked` line, and the lease is given back; False if something arrived that
        the runner has not seen: then nothing changed. TeamError (`LEASE_LOST`): the session is another's."""
        with self.database.transaction() as connection:
            row = self._sessions.held(connection, lease)
            if row.arrivals > seen or row.stop:
                return False
            if self.journals.append_in(connection, line) is not None:
                raise lease_lost(lease.id)
            connection.execute(
                "UPDATE sessions SET state = 'waiting', held = 0, runner = '', lease_until = 0, wake = 0, "
                "waits_for = :what, cost = :cost, updated = @now WHERE id = :id",
                {"what": waits_for, "cost": cost, "id": lease.id},
            )
        return True

    def hold(self, lease: Lease, held: bool, waits_for: str = "") -> None:
        """Shown as `waiting (held)`: it waits, and keeps its slot."""
        state = WAITING if held else RUNNING
        with self.database.transaction() as connection:
            connection.execute(
                f"UPDATE sessions SET state = '{state}', held = :held, waits_for = :what, updated = @now "
                "WHERE id = :id AND epoch = :epoch",
                {"held": int(held), "what": waits_for, "id": lease.id, "epoch": lease.epoch},
            )

    def set_title(self, lease: Lease, title: str) -> None:
        """The runner knows more secrets than whoever queued it."""
        with self.database.transaction() as connection:
            connection.execute(
                "UPDATE sessions SET title = :title WHERE id = :id AND epoch = :epoch",
                {"title": title, "id": lease.id, "epoch": lease.epoch},
            )

    def set_notice(self, lease: Lease, notice: str) -> None:
        """Sets the notice that `forge ps` shows; empty removes it."""
        with self.database.transaction() as connection:
            connection.execute(
                "UPDATE sessions SET notice = :notice, updated = @now WHERE id = :id AND epoch = :epoch",
                {"notice": notice[:_MAX_NOTICE], "id": lease.id, "epoch": lease.epoch},
            )

    def give_back(self, lease: Lease) -> None:
        """The session goes on elsewhere, at once: its runner ends."""
        with self.database.transaction() as connection:
            done = connection.execute(
                "UPDATE sessions SET state = 'queued', held = 0, runner = '', lease_until = 0, "
                "updated = @now WHERE id = :id AND epoch = :epoch",
                {"id": lease.id, "epoch": lease.epoch},
            ).rowcount
            if done:
                self._sessions.ring(connection, lease.id, lease.session.label, lease.session.priority)

    def end(self, lease: Lease, ending: SessionEnding | str) -> bool:
        """Ends a session with the last lines of its journal, in one commit; a state alone is enough. Returns False if
        another runner has the session.
        """
        if isinstance(ending, str):
            ending = SessionEnding(state=ending)
        lines, hash = ending.anchor or (0, "")
        with self.database.transaction() as connection:
            if ending.last is not None and self.journals.append_in(connection, ending.last, "@update") is not None:
                return False
            done = connection.execute(
                "UPDATE sessions SET state = :state, held = 0, runner = '', lease_until = 0, wake = 0, waits_for = '', "
                "result = :result, error = :error, cost = :cost, model = :model, lines = :lines, hash = :hash, "
                "ended = @now, updated = @now WHERE id = :id AND epoch = :epoch",
                {
                    "state": ending.state,
                    "result": ending.result[:_MAX_RESULT],
                    "error": ending.error[:_MAX_RESULT],
                    "cost": ending.cost,
                    "model": ending.model or lease.session.model,
                    "lines": lines,
                    "hash": hash,
                    "id": lease.id,
                    "epoch": lease.epoch,
                },
            ).rowcount
            if done:
                self.questions.withdraw_in(connection, lease.id)
                self._sessions.tell(connection, SessionFact(kind=ending.state, session=lease.session))
                connection.notify(CHANNEL, lease.id)
        return bool(done)

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
        """Wakes the session with what somebody says; gives its number. Raises TeamError where it has ended."""
        with self.database.transaction() as connection:
            row = self._sessions.locked(connection, session_id)
            if row.state in ENDED:
                raise TeamError(
                    f"session {session_id[:12]} has ended ({row.state}); start another one", "SESSION_ENDED"
                )
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


def _claimable(
    labels: Sequence[str], limits: Mapping[str, int] | None, projects: Collection[str] = ()
) -> tuple[str, dict[str, Any]]:
    """(which rows of `sessions s` a runner with these labels may take, the values of that). `projects`: only of these,
    if any is named."""
    fitting, values = bound("label", ("", *labels))
    limit = ""
    if projects:
        among, more = bound("project", projects)
        limit, values = f" AND s.program IN ({among})", values | more
    for name, column in (("per_person", "person"), ("per_program", "program")):
        if limits and limits.get(name):
            limit += (
                f" AND (s.{column} = '' OR s.state = 'running' OR (SELECT count(*) FROM sessions o WHERE "
                f"o.{column} = s.{column} AND o.state = 'running' AND o.lease_until > @now) < :{name})"
            )
            values[name] = limits[name]
    return (
        "(s.state = 'queued' OR (s.state = 'waiting' AND s.held = 0 AND s.wake = 1) "
        "OR ((s.state = 'running' OR s.held = 1) AND s.lease_until < @now)) "
        f"AND s.label IN ({fitting}){limit}"
    ), values
