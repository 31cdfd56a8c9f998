"""Leases: which runner may act for a session, and until when.

A runner that takes a session (`claim`) gets an epoch, one higher than the last one's, and a lease of 15 seconds by the
database's clock. It renews the lease while it acts. Whatever it writes names the epoch, so a runner that was frozen and
comes back after another one took over changes nothing. `park` gives the lease back and writes `waiting` only if nothing
arrived that the runner has not seen; what arrives later wakes the session (`SessionTable.add_arrival`).

All methods block; they are called in threads.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, Final

from golem_forge.team.database import SQLITE, Database
from golem_forge.team.question_table import QuestionTable
from golem_forge.team.rows import CHANNEL, RUNNING, SESSION_COLUMNS, WAITING, Append, Lease, SessionEnding, to_session
from golem_forge.team.schema import SCHEMA_VERSION
from golem_forge.team.session_table import JournalTable, SessionTable, bound, lease_lost
from golem_forge.team.webhooks import SessionFact

LEASE_S: Final = 15.0
_MAX_RESULT: Final = 20_000
_MAX_NOTICE: Final = 1000


class LeaseTable:
    def __init__(
        self, database: Database, sessions: SessionTable, journals: JournalTable, questions: QuestionTable
    ) -> None:
        self._database = database
        self._sessions = sessions
        self._journals = journals
        self._questions = questions

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
        with self._database.transaction() as connection:
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
        found = self._database.read_one(f"SELECT 1 FROM sessions s WHERE {may_run} LIMIT 1", values)
        return found is not None

    def ring_forgotten(
        self,
        labels: Sequence[str],
        limits: Mapping[str, int] | None,
        most: int,
        projects: Collection[str] = (),
    ) -> int:
        """PostgreSQL: rings for sessions that may run and have no job that waits. Gives their number."""
        if self._database.kind == SQLITE:
            return 0
        may_run, values = _claimable(labels, limits, projects)
        with self._database.transaction() as connection:
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
        with self._database.transaction() as connection:
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

    def shorten(self) -> None:
        """Shortens leases after the database's clock was set back, since they would seem to last much longer. A live
        runner renews its lease; a dead one is replaced in time.
        """
        values = {"longest": LEASE_S}
        late = self._database.read_one("SELECT 1 FROM runners WHERE seen > @now + :longest LIMIT 1", values)
        if late is None:
            return
        with self._database.transaction() as connection:
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
        rows = self._database.read(f"SELECT id, stop, arrivals, epoch FROM sessions WHERE id IN ({wanted})", values)
        return {row[0]: (bool(row[1]), int(row[2]), int(row[3])) for row in rows}

    def park(self, lease: Lease, line: Append, *, seen: int, waits_for: str, cost: float = 0.0) -> bool:
        """`waiting`, with its journal's `parked` line, and the lease is given back; False if something arrived that
        the runner has not seen: then nothing changed. TeamError (`LEASE_LOST`): the session is another's."""
        with self._database.transaction() as connection:
            row = self._sessions.held(connection, lease)
            if row.arrivals > seen or row.stop:
                return False
            if self._journals.append_in(connection, line) is not None:
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
        with self._database.transaction() as connection:
            connection.execute(
                f"UPDATE sessions SET state = '{state}', held = :held, waits_for = :what, updated = @now "
                "WHERE id = :id AND epoch = :epoch",
                {"held": int(held), "what": waits_for, "id": lease.id, "epoch": lease.epoch},
            )

    def set_title(self, lease: Lease, title: str) -> None:
        """The runner knows more secrets than whoever queued it."""
        with self._database.transaction() as connection:
            connection.execute(
                "UPDATE sessions SET title = :title WHERE id = :id AND epoch = :epoch",
                {"title": title, "id": lease.id, "epoch": lease.epoch},
            )

    def set_notice(self, lease: Lease, notice: str) -> None:
        """Sets the notice that `forge ps` shows; empty removes it."""
        with self._database.transaction() as connection:
            connection.execute(
                "UPDATE sessions SET notice = :notice, updated = @now WHERE id = :id AND epoch = :epoch",
                {"notice": notice[:_MAX_NOTICE], "id": lease.id, "epoch": lease.epoch},
            )

    def give_back(self, lease: Lease) -> None:
        """The session goes on elsewhere, at once: its runner ends."""
        with self._database.transaction() as connection:
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
        with self._database.transaction() as connection:
            if ending.last is not None and self._journals.append_in(connection, ending.last, "@update") is not None:
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
                self._questions.withdraw_in(connection, lease.id)
                self._sessions.tell(connection, SessionFact(kind=ending.state, session=lease.session))
                connection.notify(CHANNEL, lease.id)
        return bool(done)


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
