"""Store: the sessions that several processes share. One row a session says its state; the journal says what happened.

    queued → running → (waiting ⇄ running) → finished | failed | stopped

A runner that takes a session gets an epoch, one higher than the last one's, and a lease of 15 seconds by the
database's clock. Every append names the epoch and locks the row against the next taker, so a runner that lost its
lease can record nothing, and what is not recorded does not run. An answer or a message is a row with a number: the
same transaction wakes the session. `park` writes `waiting` only if nothing arrived that the runner has not seen.

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
from golem_forge.core.regex import regex
from golem_forge.storage.home import ForgeHome
from golem_forge.team.accounts import Accounts
from golem_forge.team.answers import check_answer, check_four_eyes, not_open, says_something, with_authors
from golem_forge.team.audit import Actor, answer_facts, record
from golem_forge.team.database import (
    SQLITE,
    Database,
    PostgresConnection,
    StoreConnection,
    TeamError,
    open_database,
)
from golem_forge.team.dispatch import JobQueue
from golem_forge.team.journal_table import JournalTable, bound
from golem_forge.team.project_secrets import ProjectSecrets
from golem_forge.team.projects import Projects, ensure_project
from golem_forge.team.quotas import Quotas, check_start
from golem_forge.team.rows import (
    ALL_QUESTIONS,
    ANSWERED,
    CHANNEL,
    ENDED,
    OPEN,
    QUESTION_COLUMNS,
    RUNNING,
    SESSION_COLUMNS,
    SOMEBODY_ELSE,
    WAITING,
    WAS_PRUNED,
    WITHDRAWN,
    Append,
    Arrival,
    Lease,
    NewSession,
    QuestionFilter,
    QuestionRow,
    RecordedSession,
    SessionEnding,
    StoredSession,
    question_key,
    question_title,
    to_question,
    to_session,
)
from golem_forge.team.schedules import Schedules
from golem_forge.team.schema import SCHEMA_VERSION, check_version, pruning, upgrade
from golem_forge.team.webhooks import Outbox, SessionFact

LEASE_S: Final = 15.0
RUNNER_GONE_S: Final = 30.0
"""A runner that was not seen for so long is not counted any more."""
_LEAST_PREFIX: Final = 4
_PAGE: Final = 1000
_MAX_RESULT: Final = 20_000
_MAX_NOTICE: Final = 1000
_MOST_SEARCHED: Final = 8
"""Words of a search."""
_MAX_WORDS: Final = 8 << 20
"""Of what somebody says to a session, as JSON."""


class Store:
    def __init__(self, database: Database) -> None:
        self.database = database
        self.accounts = Accounts(database)
        self.projects = Projects(database)
        self.quotas = Quotas(database)
        self.secrets = ProjectSecrets(database)
        self.journals = JournalTable(database)
        self.schedules = Schedules(database, self._queue, self.without_secrets)
        self.home: ForgeHome | None = None
        """Of this process: what it knows as secrets becomes no row."""
        self.outbox: Outbox | None = None
        """Of a runner that has webhooks."""
        self._jobs = JobQueue()

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
        """As a journal keeps it: without the secrets that this process knows."""
        return known_secrets(self.home).redact_secrets(text) if self.home is not None else text

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
            {"id": session_id, "facts": _words(new.facts)},
        )
        self._insert_arrival(connection, session_id, 1, "message", {"text": new.input}, new.person, new.door)
        self._ring(connection, session_id, new.label, new.priority)

    def sessions(
        self,
        *,
        states: Iterable[str] = (),
        prefix: str = "",
        batch: str = "",
        limit: int = 1000,
        programs: Collection[str] | None = None,
    ) -> list[StoredSession]:
        """The newest first. `programs`: only of these."""
        wanted, values = bound("state", states)
        where = f"state IN ({wanted})" if wanted else "1 = 1"
        among, more = _of_programs(programs)
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
        """By its whole id."""
        row = self.database.read_one(f"SELECT {SESSION_COLUMNS} FROM sessions WHERE id = :id", {"id": session_id})
        return None if row is None else to_session(row)

    def find(self, reference: str, programs: Collection[str] | None = None) -> StoredSession:
        """By its id or the beginning of it. `programs`: only of these. Raises TeamError."""
        found = self.sessions(prefix=reference, limit=2, programs=programs) if reference else []
        exact = [row for row in found if row.id == reference]
        if len(found) > 1 and not exact:
            raise TeamError(
                f"several sessions start with {reference!r}; type more of the id (`forge ps --all` shows them)"
            )
        if not found:
            pruned = self._pruned(reference) if programs is None else ""
            raise TeamError(pruned or no_session(reference), "SESSION_NOT_FOUND")
        return (exact or found)[0]

    def _pruned(self, reference: str) -> str:
        """What is still known of a session that was deleted after its time."""
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
            row = self._locked(connection, session_id)
            if row.state in ENDED:
                return row.state
            if self._is_leased(connection, session_id):
                connection.execute("UPDATE sessions SET stop = 1 WHERE id = :id", {"id": session_id})
            else:
                lines, hash = self.journals.tail_in(connection, session_id)
                connection.execute(
                    "UPDATE sessions SET state = 'stopped', stop = 1, wake = 0, epoch = epoch + 1, waits_for = '', "
                    "lines = :lines, hash = :hash, ended = @now, updated = @now WHERE id = :id",
                    {"id": session_id, "lines": lines, "hash": hash},
                )
                self._close_questions(connection, session_id)
            self._add_arrival(connection, row, "stop", {}, person, door)
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
                self._ring(connection, session_id, label, priority)
        return len(rows)

    def _ring(self, connection: StoreConnection, session_id: str, label: str, priority: int) -> None:
        """A runner shall take this session. Its row is locked, so that whoever comes finds it as it is afterwards."""
        if isinstance(connection, PostgresConnection):
            self._jobs.defer(connection, session_id, label, priority)
        connection.notify(CHANNEL, session_id)

    def renew(self, runner: str, held: Mapping[str, int]) -> dict[str, tuple[bool, int]]:
        """Of the sessions (id → epoch) those that are still held: id → (whether to stop, number of arrivals)."""
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
        """After the database's clock was set back: a lease that seems to last for an hour lasts as long as any other
        from now on. Who lives renews it; who died is succeeded in time."""
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
            row = self._held(connection, lease)
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
        """What `forge ps` says of it besides; empty: nothing any more."""
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
                self._ring(connection, lease.id, lease.session.label, lease.session.priority)

    def end(self, lease: Lease, ending: SessionEnding | str) -> bool:
        """With the last lines of its journal, in one commit. A state alone is an ending too. False: the session is
        another's."""
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
                self._close_questions(connection, lease.id)
                if self.outbox is not None:
                    self.outbox.tell(connection, SessionFact(kind=ending.state, session=lease.session))
                connection.notify(CHANNEL, lease.id)
        return bool(done)

    # ---- journals

    def append(self, batch: Sequence[Append]) -> dict[str, str]:
        """As `JournalTable.append`."""
        return self.journals.append(batch)

    def lines(
        self, session_id: str, after: int = 0, *, limit: int = 5000, private: bool = True
    ) -> list[tuple[int, bytes]]:
        """As `JournalTable.lines`."""
        return self.journals.lines(session_id, after, limit=limit, private=private)

    def output(self, session_id: str, handle: str) -> tuple[str, Iterator[bytes]] | None:
        """As `JournalTable.output`."""
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
            row = self._locked(connection, session_id)
            if row.state in ENDED:
                raise TeamError(
                    f"session {session_id[:12]} has ended ({row.state}); start another one", "SESSION_ENDED"
                )
            number = self._add_arrival(connection, row, kind, data, person, door)
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

    def _add_arrival(
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
        self._insert_arrival(connection, row.id, number, kind, data, person, door)
        if row.state == WAITING and not row.held:  # whoever holds it hears of this without a job
            self._ring(connection, row.id, row.label, row.priority)
        return number

    def _insert_arrival(
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
            data = {**data, "text": self.without_secrets(said)}
        connection.execute(
            "INSERT INTO arrivals (session, number, kind, data, person, door, at) VALUES (:id, :number, :kind, :data, "
            ":person, :door, @now)",
            {
                "id": session_id,
                "number": number,
                "kind": kind,
                "data": _words(data),
                "person": person,
                "door": door,
            },
        )

    # ---- questions

    def ask(
        self,
        lease: Lease,
        wire: Mapping[str, Any],
        *,
        kind: str,
        expires_in: float | None = None,
        four_eyes: int = 0,
    ) -> QuestionRow:
        """Opens a question, or finds the one that was asked already: by its id it is the same question.

        `four_eyes`: SOMEBODY_ELSE than an author of the session has to approve it, or they may only approve it once.
        """
        path = wire.get("workerPath") or [{}]
        expires = "@now + :expires" if expires_in else ":expires"
        with self.database.transaction() as connection:
            session = self._held(connection, lease)
            is_new = connection.execute(
                "INSERT INTO questions (id, session, kind, call, worker, risk, title, wire, state, asked, expires, "
                "four_eyes, tool, same) VALUES (:id, :session, :kind, :call, :worker, :risk, :title, :wire, 'open', "
                f"@now, {expires}, :four_eyes, :tool, :same) "
                "ON CONFLICT (id) DO NOTHING",
                {
                    "id": wire["requestId"],
                    "session": lease.id,
                    "kind": kind,
                    "call": wire.get("toolCallId", ""),
                    "worker": str(path[-1].get("name", "")),
                    "risk": wire.get("risk", ""),
                    "title": question_title(wire)[:200],
                    "wire": json.dumps(dict(wire)),
                    "expires": expires_in or 0.0,
                    "four_eyes": int(four_eyes),
                    "tool": str(wire.get("tool") or ""),
                    "same": question_key(wire, session.program) if kind == "approval" else "",
                },
            ).rowcount
            self._expire(connection, lease.id)
            found = self._question(connection, str(wire["requestId"]))
            if is_new and found is not None and self.outbox is not None:
                self.outbox.tell(
                    connection,
                    SessionFact(
                        kind="question",
                        session=lease.session,
                        question=found.id,
                        worker=found.worker,
                        tool=str(wire.get("tool") or "a form"),
                        risk=found.risk,
                    ),
                )
            connection.notify(CHANNEL, lease.id)
            if is_new and found is not None:
                told = {"question": found.id, "tool": str(wire.get("tool") or ""), "risk": found.risk}
                where = {"session": session.id, "program": session.program}
                record(connection, "question", session.person, "", told | {"title": found.title}, **where)
        assert found is not None
        return found

    def questions(
        self,
        *,
        session: str = "",
        state: str = OPEN,
        limit: int = 1000,
        programs: Collection[str] | None = None,
        starter: str = "",
        wanted: QuestionFilter = ALL_QUESTIONS,
    ) -> list[QuestionRow]:
        """The oldest first. `programs`: only of these; `starter`: of sessions that this person started. Whose `mine`
        and which `project` of `wanted` is meant, whoever asks has put into those two."""
        where, values = _filtered(wanted)
        values |= {"state": state, "limit": limit}
        if session:
            where, values = f"{where} AND session = :session", values | {"session": session}
        if programs is not None or starter:
            among, more = _of_programs(programs)
            if starter:
                among, more = f"{among} AND person = :starter", more | {"starter": starter}
            where, values = f"{where} AND session IN (SELECT id FROM sessions WHERE {among})", values | more
        self.expire()
        rows = self.database.read(
            f"SELECT {QUESTION_COLUMNS} FROM questions WHERE state = :state {where} ORDER BY asked, id LIMIT :limit",
            values,
        )
        return self._with_authors(to_question(row) for row in rows)

    def authors(self, session_id: str) -> set[str]:
        """Who started the session, said something to it or edited a call of it: see `answers.check_four_eyes`."""
        with self.database.transaction(write=False) as connection:
            return self._authors(connection, [session_id]).get(session_id, set())

    def _authors(self, connection: StoreConnection, sessions: Iterable[str]) -> dict[str, set[str]]:
        wanted, values = bound("session", sessions)
        said = connection.execute(
            f"SELECT id, person FROM sessions WHERE id IN ({wanted}) UNION SELECT session, person FROM arrivals "
            f"WHERE session IN ({wanted}) AND kind IN ('message', 'command', 'form')",
            values,
        ).fetchall()
        answered = connection.execute(
            f"SELECT session, person, kind, answer FROM questions WHERE session IN ({wanted}) AND person <> '' AND "
            "(kind <> 'approval' OR answer LIKE '%\"args\"%' OR answer LIKE '%\"reason\"%')",
            values,
        ).fetchall()
        found: dict[str, set[str]] = {}
        for session, person in said:
            found.setdefault(session, set()).add(person)
        for session, person, kind, answer in answered:
            if says_something(kind, json.loads(answer) if answer else {}):
                found.setdefault(session, set()).add(person)
        return found

    def _with_authors(self, rows: Iterable[QuestionRow]) -> list[QuestionRow]:
        """Open questions that need somebody else say whom, as of now."""
        found = list(rows)
        sessions = {row.session for row in found if row.state == OPEN and row.four_eyes == SOMEBODY_ELSE}
        if not sessions:
            return found
        with self.database.transaction(write=False) as connection:
            authors = self._authors(connection, sessions)
        people = self.projects.approvers(row.program for row in found)
        return [
            with_authors(row, authors.get(row.session, ()), people[row.program])
            if row.state == OPEN and row.four_eyes == SOMEBODY_ELSE
            else row
            for row in found
        ]

    def answered_by(self, sessions: Sequence[str]) -> dict[str, list[str]]:
        """Session → who answered its questions, the first one first."""
        wanted, values = bound("session", sessions)
        if not values:
            return {}
        rows = self.database.read(
            f"SELECT session, person FROM questions WHERE session IN ({wanted}) AND state = 'answered' "
            "AND person <> '' GROUP BY session, person ORDER BY min(answered)",
            values,
        )
        found: dict[str, list[str]] = {}
        for session, person in rows:
            found.setdefault(session, []).append(person)
        return found

    def find_question(self, reference: str, programs: Collection[str] | None = None) -> QuestionRow:
        """By its id or the beginning of it. `programs`: only of these. Raises TeamError."""
        rows = []
        if reference:
            among, values = _of_programs(programs)
            rows = self.database.read(
                f"SELECT {QUESTION_COLUMNS} FROM questions WHERE substr(id, 1, :length) = :id "
                f"AND session IN (SELECT id FROM sessions WHERE {among}) LIMIT 2",
                {**values, "length": len(reference), "id": reference},
            )
        if len(rows) > 1:
            raise TeamError(
                f"several questions start with {reference!r}; type more of the id (`forge inbox` shows them)"
            )
        if not rows:
            raise no_question(reference)
        return self._with_authors([to_question(rows[0])])[0]

    def answer(self, question_id: str, answer: Mapping[str, Any], person: str = "", door: str = "") -> QuestionRow:
        """The first answer counts, and wakes the session. Gives the question as it is now; whether this answer counted
        is told by `answer_counts`. Raises TeamError for one that is not open any more."""
        if answer.get("reason"):
            answer = {**answer, "reason": self.without_secrets(str(answer["reason"]))}
        if self.without_secrets(words := _words(answer)) != words:
            raise TeamError(
                "This answer holds a secret, and the store keeps none. The question stays open.", "QUESTION_SECRET"
            )
        with self.database.transaction() as connection:
            row = connection.execute("SELECT session FROM questions WHERE id = :id", {"id": question_id}).fetchone()
            if row is None:
                raise no_question(question_id)
            session = self._locked(connection, row[0])
            if self._expire(connection, session.id):
                session = self._locked(connection, session.id)
            asked = self._question(connection, question_id)
            if asked is not None and asked.state == OPEN:
                if session.held and not self._is_leased(connection, session.id):
                    raise TeamError(
                        "The runner that asks this is silent, so nobody would take the answer up. Another runner goes "
                        "on with the session within 30 seconds, if one runs, and asks again what it still needs.",
                        "RUNNER_SILENT",
                    )
                authors = self._authors(connection, [session.id]) if asked.four_eyes else {}
                check_four_eyes(asked, answer, person, authors.get(session.id, ()))
                check_answer(asked, answer)
            changed = connection.execute(
                "UPDATE questions SET state = 'answered', answer = :answer, person = :person, door = :door, "
                "answered = @now WHERE id = :id AND state = 'open'",
                {"answer": words, "person": person, "door": door, "id": question_id},
            ).rowcount
            found = self._question(connection, question_id)
            assert found is not None
            if changed:
                self._add_arrival(connection, session, "answer", {"question": question_id}, person, door)
                connection.notify(CHANNEL, session.id)
                self._record_answer(connection, session, found, answer)
        if not changed:
            raise not_open(found)
        return found

    def withdraw(self, lease: Lease, question_id: str, person: str = "", door: str = "") -> None:
        """Nobody has to answer it any more. One that was answered stays so. `person`: they answered it at the session
        itself. Raises TeamError (`LEASE_LOST`): the session is another's, and so are its questions."""
        with self.database.transaction() as connection:
            session = self._held(connection, lease)
            changed = connection.execute(
                "UPDATE questions SET state = :state, person = :person, door = :door, answered = @now "
                "WHERE id = :id AND session = :session AND state = 'open'",
                {
                    "state": ANSWERED if person else WITHDRAWN,
                    "person": person,
                    "door": door,
                    "id": question_id,
                    "session": lease.id,
                },
            ).rowcount
            connection.notify(CHANNEL, lease.id)
            if changed and person and (found := self._question(connection, question_id)) is not None:
                self._record_answer(connection, session, found, {})

    def _record_answer(
        self, connection: StoreConnection, session: StoredSession, answered: QuestionRow, answer: Mapping[str, Any]
    ) -> None:
        """In the audit, as the last thing of its transaction."""
        told = answer_facts(answered.id, answered.kind, str(answered.wire.get("tool") or ""), answered.risk, answer)
        kind = "edit" if "edited" in told else "answer"
        where = {"session": session.id, "program": session.program}
        record(connection, kind, answered.person, answered.door, told | {"starter": session.person}, **where)

    def ask_again(self, lease: Lease, question_id: str, wire: Mapping[str, Any]) -> None:
        """The answer did not count (an edit that is not valid): the question is open once more, as it is shown now."""
        with self.database.transaction() as connection:
            self._held(connection, lease)
            connection.execute(
                "UPDATE questions SET state = 'open', wire = :wire, same = '', answer = '', person = '', door = '', "
                "answered = 0 WHERE id = :id AND session = :session AND state = 'answered'",
                {"wire": json.dumps(dict(wire)), "id": question_id, "session": lease.id},
            )
            connection.notify(CHANNEL, lease.id)

    def drop_answers(self, lease: Lease, ids: Iterable[str]) -> list[QuestionRow]:
        """Of these questions, which ended with their runner: those that somebody answered, and nobody took up. They
        are withdrawn, and keep the name of who answered."""
        wanted, values = bound("id", ids)
        if not values:
            return []
        with self.database.transaction() as connection:
            self._held(connection, lease)
            rows = connection.execute(
                f"UPDATE questions SET state = 'withdrawn' WHERE session = :session AND state = 'answered' AND "
                f"id IN ({wanted}) RETURNING {QUESTION_COLUMNS}",
                {**values, "session": lease.id},
            ).fetchall()
        return [to_question(row) for row in rows]

    def withdraw_others(self, lease: Lease, calls: Iterable[str]) -> None:
        """After a session was taken over: questions of calls that are not open any more."""
        kept, values = bound("call", calls)
        others = f"AND call NOT IN ({kept})" if kept else ""
        with self.database.transaction() as connection:
            self._held(connection, lease)
            connection.execute(
                f"UPDATE questions SET state = 'withdrawn' WHERE session = :session AND state = 'open' {others}",
                {**values, "session": lease.id},
            )

    def question(self, question_id: str) -> QuestionRow | None:
        self.expire()
        with self.database.transaction(write=False, single=True) as connection:
            found = self._question(connection, question_id)
        return None if found is None else self._with_authors([found])[0]

    def expire(self) -> None:
        """Denies questions whose time is over, by the database's clock, and wakes their sessions."""
        rows = self.database.read(
            "SELECT DISTINCT session FROM questions WHERE state = 'open' AND expires > 0 AND expires < @now"
        )
        for (session_id,) in rows:
            with self.database.transaction() as connection:
                self._locked(connection, session_id)
                self._expire(connection, session_id)
                connection.notify(CHANNEL, session_id)

    def _question(self, connection: StoreConnection, question_id: str) -> QuestionRow | None:
        row = connection.execute(
            f"SELECT {QUESTION_COLUMNS} FROM questions WHERE id = :id",
            {"id": question_id},
        ).fetchone()
        return None if row is None else to_question(row)

    def _expire(self, connection: StoreConnection, session_id: str) -> bool:
        """The session's row is locked: who changes questions locks their session first, so nobody waits in a circle."""
        changed = connection.execute(
            "UPDATE questions SET state = 'expired' WHERE session = :id AND state = 'open' AND expires > 0 "
            "AND expires < @now",
            {"id": session_id},
        ).rowcount
        if changed:
            session = self._locked(connection, session_id)
            if session.state not in ENDED:
                self._add_arrival(connection, session, "expired", {}, "", "")
        return bool(changed)

    def _close_questions(self, connection: StoreConnection, session_id: str) -> None:
        connection.execute(
            "UPDATE questions SET state = 'withdrawn' WHERE session = :id AND state = 'open'",
            {"id": session_id},
        )

    # ---- runners

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
        with self.database.transaction() as connection:
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
        with self.database.transaction() as connection:
            connection.execute("DELETE FROM runners WHERE id = :id", {"id": runner})

    def drain(self, runner: str, draining: bool = True) -> None:
        """Nobody shall count on this runner for new sessions; or again, with `draining` False."""
        with self.database.transaction() as connection:
            values = {"id": runner, "draining": int(draining)}
            connection.execute("UPDATE runners SET draining = :draining WHERE id = :id", values)

    def runners(self) -> list[dict[str, Any]]:
        """Those that were seen lately."""
        rows = self.database.read(
            f"SELECT id, host, pid, slots, labels, version, offers, draining, @now - seen FROM runners "
            f"WHERE seen > @now - {RUNNER_GONE_S} ORDER BY started"
        )
        names = ("id", "host", "pid", "slots", "labels", "version", "offers", "draining", "silent")
        found = [dict(zip(names, row, strict=True)) for row in rows]
        return [each | {"labels": json.loads(each["labels"]), "offers": json.loads(each["offers"])} for each in found]

    def busy_slots(self) -> dict[str, int]:
        """By runner: how many sessions it holds."""
        rows = self.database.read(
            "SELECT runner, count(*) FROM sessions WHERE state IN ('running', 'waiting') AND runner <> '' "
            "GROUP BY runner"
        )
        return {str(runner): int(number) for runner, number in rows}

    def notify(self, notices: Iterable[tuple[str, str]]) -> None:
        """(channel, what) each, to whoever listens; PostgreSQL only. Nothing of it is kept."""
        with self.database.transaction() as connection:
            for channel, what in notices:
                connection.notify(channel, what)

    # ---- inside

    def _locked(self, connection: StoreConnection, session_id: str) -> StoredSession:
        row = connection.execute(
            f"SELECT {SESSION_COLUMNS} FROM sessions WHERE id = :id @update",
            {"id": session_id},
        ).fetchone()
        if row is None:
            raise TeamError(no_session(session_id), "SESSION_NOT_FOUND")
        return to_session(row)

    def _is_leased(self, connection: StoreConnection, session_id: str) -> bool:
        found = connection.execute("SELECT 1 FROM sessions WHERE id = :id AND lease_until > @now", {"id": session_id})
        return found.fetchone() is not None

    def _held(self, connection: StoreConnection, lease: Lease) -> StoredSession:
        """Locked. Raises TeamError (`LEASE_LOST`) where the session is another's by now."""
        row = self._locked(connection, lease.id)
        if row.epoch != lease.epoch:
            raise lease_lost(lease.id)
        return row

    def counts(self) -> dict[str, Any]:
        """How many sessions are in which state, questions, runners, and how long the oldest queued one waits."""
        with self.database.transaction(write=False) as connection:
            states = connection.execute("SELECT state, count(*) FROM sessions GROUP BY state ORDER BY state").fetchall()
            questions = connection.execute("SELECT count(*) FROM questions WHERE state = 'open'").fetchone()[0]
            oldest = connection.execute("SELECT @now - min(created) FROM sessions WHERE state = 'queued'").fetchone()[0]
            unsent = connection.execute(
                "SELECT state, count(*) FROM deliveries WHERE state <> 'sent' GROUP BY state ORDER BY state DESC"
            ).fetchall()
        counted: dict[str, Any] = {str(state): int(number) for state, number in states}
        counted |= {"open questions": int(questions), "runners": len(self.runners())}
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


def no_question(reference: str) -> TeamError:
    return TeamError(f"no question {reference!r}; `forge inbox` shows those that are open", "QUESTION_NOT_FOUND")


def no_session(reference: str) -> str:
    return f"no session {reference!r} in the store; `forge ps --all` shows them"


def lease_lost(session_id: str) -> TeamError:
    return TeamError(f"Another runner has taken session {session_id[:12]} over.", "LEASE_LOST")


def _words(said: Mapping[str, Any]) -> str:
    words = json.dumps(dict(said))
    if len(words) > _MAX_WORDS:
        raise TeamError(f"This is too long: a session takes {_MAX_WORDS >> 20} MiB at a time.", "STORE_TOO_LONG")
    return words


def _of_programs(programs: Collection[str] | None) -> tuple[str, dict[str, Any]]:
    """(which rows of `sessions` are of these programs, the values of that); None: all are."""
    if programs is None:
        return "1 = 1", {}
    among, values = bound("program", programs)
    return (f"program IN ({among})" if values else "1 = 0"), values


def _filtered(wanted: QuestionFilter) -> tuple[str, dict[str, Any]]:
    """(which rows of `questions` these are, the values of that)."""
    where, values = "", {}
    for name in ("worker", "risk", "tool", "same"):
        if value := getattr(wanted, name):
            where, values[name] = f"{where} AND {name} = :{name}", value
    if wanted.older_s:
        where, values["older"] = f"{where} AND asked <= @now - :older", wanted.older_s
    if wanted.after:
        where += " AND (asked, id) > (SELECT q.asked, q.id FROM questions q WHERE q.id = :after)"
        values["after"] = wanted.after
    for number, word in enumerate(wanted.words.lower().split()[:_MOST_SEARCHED]):
        sign = f"word_{number}"
        where += (
            f" AND (lower(title) LIKE :{sign} ESCAPE '!' OR session IN (SELECT id FROM sessions WHERE "
            f"lower(title || ' ' || person || ' ' || id) LIKE :{sign} ESCAPE '!'))"
        )
        values[sign] = f"%{regex('[!%_]').sub(lambda found: '!' + found[0], word)}%"
    return where, values


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
