"""QuestionTable: what sessions ask people, from `ask` to the one answer that counts.

    open → answered | withdrawn | expired        answered → open (the answer was not valid) | withdrawn (nobody took it)

The first answer counts, and wakes the session in the same transaction. Which answers may count, `answers.py` says.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, Final

from golem_forge.core.regex import regex
from golem_forge.team.answers import check_answer, check_four_eyes, not_open, says_something, with_authors
from golem_forge.team.audit import answer_facts, record
from golem_forge.team.database import Database, StoreConnection, TeamError
from golem_forge.team.journal_table import bound
from golem_forge.team.projects import Projects
from golem_forge.team.rows import (
    ALL_QUESTIONS,
    ANSWERED,
    CHANNEL,
    ENDED,
    OPEN,
    QUESTION_COLUMNS,
    SOMEBODY_ELSE,
    WITHDRAWN,
    Lease,
    QuestionFilter,
    QuestionRow,
    StoredSession,
    question_key,
    question_title,
    to_question,
)
from golem_forge.team.session_table import SessionTable, as_json, of_programs
from golem_forge.team.webhooks import SessionFact

_MOST_SEARCHED: Final = 8
"""Words of a search."""


class QuestionTable:
    def __init__(
        self, database: Database, sessions: SessionTable, projects: Projects, without_secrets: Callable[[str], str]
    ) -> None:
        self._database = database
        self._sessions = sessions
        self._projects = projects
        self._without_secrets = without_secrets

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
        with self._database.transaction() as connection:
            session = self._sessions.held(connection, lease)
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
            found = self._row(connection, str(wire["requestId"]))
            connection.notify(CHANNEL, lease.id)
            if is_new and found is not None:
                tool = str(wire.get("tool") or "")
                fact = SessionFact(
                    kind="question",
                    session=lease.session,
                    question=found.id,
                    worker=found.worker,
                    tool=tool or "a form",
                    risk=found.risk,
                )
                self._sessions.tell(connection, fact)
                told = {"question": found.id, "tool": tool, "risk": found.risk, "title": found.title}
                where = {"session": session.id, "program": session.program}
                record(connection, "question", session.person, "", told, **where)
        assert found is not None
        return found

    def rows(
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
            among, more = of_programs(programs)
            if starter:
                among, more = f"{among} AND person = :starter", more | {"starter": starter}
            where, values = f"{where} AND session IN (SELECT id FROM sessions WHERE {among})", values | more
        self.expire()
        rows = self._database.read(
            f"SELECT {QUESTION_COLUMNS} FROM questions WHERE state = :state {where} ORDER BY asked, id LIMIT :limit",
            values,
        )
        return self._with_authors(to_question(row) for row in rows)

    def authors(self, session_id: str) -> set[str]:
        """Who started the session, said something to it or edited a call of it: see `answers.check_four_eyes`."""
        with self._database.transaction(write=False) as connection:
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
        with self._database.transaction(write=False) as connection:
            authors = self._authors(connection, sessions)
        people = self._projects.approvers(row.program for row in found)
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
        rows = self._database.read(
            f"SELECT session, person FROM questions WHERE session IN ({wanted}) AND state = 'answered' "
            "AND person <> '' GROUP BY session, person ORDER BY min(answered)",
            values,
        )
        found: dict[str, list[str]] = {}
        for session, person in rows:
            found.setdefault(session, []).append(person)
        return found

    def find(self, reference: str, programs: Collection[str] | None = None) -> QuestionRow:
        """By its id or the beginning of it. `programs`: only of these. Raises TeamError."""
        rows = []
        if reference:
            among, values = of_programs(programs)
            rows = self._database.read(
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
            answer = {**answer, "reason": self._without_secrets(str(answer["reason"]))}
        if self._without_secrets(words := as_json(answer)) != words:
            raise TeamError(
                "This answer holds a secret, and the store keeps none. The question stays open.", "QUESTION_SECRET"
            )
        with self._database.transaction() as connection:
            row = connection.execute("SELECT session FROM questions WHERE id = :id", {"id": question_id}).fetchone()
            if row is None:
                raise no_question(question_id)
            session = self._sessions.locked(connection, row[0])
            if self._expire(connection, session.id):
                session = self._sessions.locked(connection, session.id)
            asked = self._row(connection, question_id)
            if asked is not None and asked.state == OPEN:
                if session.held and not self._sessions.is_leased(connection, session.id):
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
            found = self._row(connection, question_id)
            assert found is not None
            if changed:
                self._sessions.add_arrival(connection, session, "answer", {"question": question_id}, person, door)
                connection.notify(CHANNEL, session.id)
                self._record_answer(connection, session, found, answer)
        if not changed:
            raise not_open(found)
        return found

    def withdraw(self, lease: Lease, question_id: str, person: str = "", door: str = "") -> None:
        """Nobody has to answer it any more. One that was answered stays so. `person`: they answered it at the session
        itself. Raises TeamError (`LEASE_LOST`): the session is another's, and so are its questions."""
        with self._database.transaction() as connection:
            session = self._sessions.held(connection, lease)
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
            if changed and person and (found := self._row(connection, question_id)) is not None:
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
        with self._database.transaction() as connection:
            self._sessions.held(connection, lease)
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
        with self._database.transaction() as connection:
            self._sessions.held(connection, lease)
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
        with self._database.transaction() as connection:
            self._sessions.held(connection, lease)
            connection.execute(
                f"UPDATE questions SET state = 'withdrawn' WHERE session = :session AND state = 'open' {others}",
                {**values, "session": lease.id},
            )

    def get(self, question_id: str) -> QuestionRow | None:
        self.expire()
        with self._database.transaction(write=False, single=True) as connection:
            found = self._row(connection, question_id)
        return None if found is None else self._with_authors([found])[0]

    def expire(self) -> None:
        """Denies questions whose time is over, by the database's clock, and wakes their sessions."""
        rows = self._database.read(
            "SELECT DISTINCT session FROM questions WHERE state = 'open' AND expires > 0 AND expires < @now"
        )
        for (session_id,) in rows:
            with self._database.transaction() as connection:
                self._sessions.locked(connection, session_id)
                self._expire(connection, session_id)
                connection.notify(CHANNEL, session_id)

    def _row(self, connection: StoreConnection, question_id: str) -> QuestionRow | None:
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
            session = self._sessions.locked(connection, session_id)
            if session.state not in ENDED:
                self._sessions.add_arrival(connection, session, "expired", {}, "", "")
        return bool(changed)

    def withdraw_in(self, connection: StoreConnection, session_id: str) -> None:
        connection.execute(
            "UPDATE questions SET state = 'withdrawn' WHERE session = :id AND state = 'open'",
            {"id": session_id},
        )


def no_question(reference: str) -> TeamError:
    return TeamError(f"no question {reference!r}; `forge inbox` shows those that are open", "QUESTION_NOT_FOUND")


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
