"""QuestionTable: what sessions ask people, from `ask` to the one answer that counts.

    open → answered | withdrawn | expired        answered → open (the answer was not valid) | withdrawn (nobody took it)

The first answer counts, and wakes the session in the same transaction. Which answers may count is judged here, too.

Four eyes are judged here and nowhere else. An author of a session started it (also by a schedule or a batch), said
something to it (a message, the reason of a denial, a form), or edited a call. Authors may deny, never approve.
Threat: one person who is both: they edit what only they saw, or write the message whose call they then approve.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, Final

from golem_forge.core.lazy_dataclass import replace
from golem_forge.core.regex import regex
from golem_forge.core.text import one_line
from golem_forge.events.open_questions import approval_answer, form_answer
from golem_forge.team.audit import answer_facts, record
from golem_forge.team.database import Database, StoreConnection, TeamError
from golem_forge.team.projects import Projects
from golem_forge.team.rows import (
    ALL_QUESTIONS,
    ANSWERED,
    CHANNEL,
    ENDED,
    EXACT_CALL,
    EXPIRED,
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
from golem_forge.team.session_table import SessionTable, as_json, bound, of_programs
from golem_forge.team.webhooks import SessionFact

_MOST_NAMED: Final = 5


def _four_eyes(question: QuestionRow, why: str) -> TeamError:
    return TeamError(f"{why} Question {question.id[:12]} stays open.", "FOUR_EYES")


def says_something(kind: str, answer: Mapping[str, Any]) -> bool:
    """Whether whoever gave this answer is an author from then on: the model reads it, or the call is another."""
    return kind != "approval" or bool(answer.get("reason")) or answer.get("args") is not None


def check_four_eyes(question: QuestionRow, answer: Mapping[str, Any], person: str, authors: Collection[str]) -> None:
    """Raises TeamError for an answer that approves more than this person may. Whoever is not named is an author."""
    if not question.four_eyes or answer.get("approved") is False:
        return
    is_author = not person or person in authors
    if is_author and question.four_eyes == SOMEBODY_ELSE:
        who = f"{person} is an author of this session" if person else "nobody is named as the one who answers"
        raise _four_eyes(
            question,
            f"{who}, and approval.four_eyes asks for somebody else's answer to a call of risk {question.risk}: authors "
            "started it, wrote to it or edited the call. They can deny it.",
        )
    if _remembers_more(answer) and (is_author or chosen_scope(question, answer) == "session"):
        raise _four_eyes(
            question,
            "With approval.four_eyes a person approves this call once: what is remembered for the session could cover "
            "calls that nobody else sees.",
        )


def with_authors(question: QuestionRow, authors: Collection[str], approvers: Iterable[str]) -> QuestionRow:
    """The card of a question that needs four eyes says who has to look. `approvers`: everybody whose role would do."""
    left = [one_line(each) for each in approvers if each not in authors]
    named = ", ".join(sorted(map(one_line, authors))) or "nobody"
    who = f"{', '.join(left[:_MOST_NAMED])} can" if left else "nobody is left who can. Add an operator, or deny it"
    text = f"Four eyes: {named} started this session, wrote to it or edited the call, and cannot approve; {who}."
    return replace(question, wire={**question.wire, "warnings": [*(question.wire.get("warnings") or ()), text]})


def not_open(found: QuestionRow) -> TeamError:
    if found.state == ANSWERED:
        by = f" by {found.person}" if found.person else ""
        return TeamError(f"Question {found.id[:12]} was answered already{by}. Nothing changed.", "QUESTION_ANSWERED")
    if found.state == EXPIRED:
        return TeamError(f"Question {found.id[:12]} has expired and was denied. Nothing changed.", "QUESTION_EXPIRED")
    return TeamError(f"Question {found.id[:12]} was withdrawn. Nothing changed.", "QUESTION_WITHDRAWN")


def check_answer(question: QuestionRow, answer: Mapping[str, Any]) -> None:
    """Raises TeamError for an answer that cannot count. Edited arguments are checked where they are used."""
    if problem := _secret_problem(question, answer):
        raise TeamError(problem, "QUESTION_SECRET")
    judged = (approval_answer if question.kind == "approval" else form_answer)(question.wire, answer)
    if isinstance(judged, str):
        raise TeamError(
            f"This answer does not count: {judged}. Question {question.id[:12]} stays open.", "ANSWER_INVALID"
        )


def _remembers_more(answer: Mapping[str, Any]) -> bool:
    """Whether the answer is remembered for more than this very call."""
    return bool(answer.get("remember")) or answer.get("choice") not in (None, EXACT_CALL)


def _secret_problem(question: QuestionRow, answer: Mapping[str, Any]) -> str:
    """Why this answer must not become a row; empty: it may."""
    if not has_secret(question.wire):
        return ""
    if question.kind == "form" and answer.get("values"):
        return (
            f"This form has a secret field, and the store keeps no secret. Answer it with "
            f"`forge attach {question.session[:12]}` on the machine of its runner."
        )
    if question.kind != "form" and answer.get("args") is not None:
        return "This call has a secret argument, and the store keeps no secret. Deny it and say what to change."
    return ""


def has_secret(wire: Mapping[str, Any]) -> bool:
    """Whether a form or card has a field whose value nobody may read later."""
    waiting: list[Any] = list(wire.get("fields") or ())
    while waiting:
        field = waiting.pop()
        if isinstance(field, Mapping):
            if field.get("type") == "secret":
                return True
            waiting += [value for value in field.values() if isinstance(value, Mapping | list | tuple)]
        elif isinstance(field, list | tuple):
            waiting += field
    return False


def chosen_scope(question: QuestionRow, answer: Mapping[str, Any]) -> str:
    """`session`, `always`, or empty where nothing is to be remembered."""
    if (wanted := answer.get("choice")) is not None:
        offers = question.wire.get("choices") or ()
        return next((str(each.get("scope", "")) for each in offers if each.get("id") == wanted), "")
    return "always" if answer.get("remember") not in (None, "", "session", "none") else ""


def remembers_beyond_session(question: QuestionRow, answer: Mapping[str, Any]) -> bool:
    return chosen_scope(question, answer) not in ("", "session")


_MOST_SEARCHED: Final = 8
"""Maximum words of a search."""


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
                told = {"question": found.id, "tool": tool, "risk": found.risk}
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
        among, more = of_programs(programs)
        where, values = _filtered(wanted, among)
        values |= {"state": state, "limit": limit, **more}
        if session:
            where, values = f"{where} AND session = :session", values | {"session": session}
        if programs is not None or starter:
            if starter:
                among, values = f"{among} AND person = :starter", values | {"starter": starter}
            where = f"{where} AND session IN (SELECT id FROM sessions WHERE {among})"
        self.expire()
        rows = self._database.read(
            f"SELECT {QUESTION_COLUMNS} FROM questions WHERE state = :state {where} ORDER BY asked, id LIMIT :limit",
            values,
        )
        return self._with_authors(to_question(row) for row in rows)

    def authors(self, session_id: str) -> frozenset[str]:
        """Returns who started the session, wrote to it or edited a call of it."""
        with self._database.transaction(write=False) as connection:
            return frozenset(self._authors(connection, [session_id]).get(session_id, ()))

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
        """Returns a question by its id or the beginning of it. `programs`: only of these. Raises TeamError."""
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
        """The first answer counts, and wakes the session. Gives the question as it is now. Raises TeamError for one
        that is not open any more."""
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
        """Withdraws a question; an answered one stays answered. `person`: they answered it at the session itself.
        Raises TeamError (`LEASE_LOST`) if another runner has the session.
        """
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
        """Records an answer in the audit, as the last step of its transaction."""
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

    def unused_answers(self, session_id: str, is_unused: Callable[[str, str], bool]) -> list[QuestionRow]:
        """Returns the answered questions of a session for which `is_unused` is true, of their id and their call's."""
        rows = self._database.read(
            "SELECT id, call FROM questions WHERE session = :id AND state = 'answered' ORDER BY asked, id",
            {"id": session_id},
        )
        found = [self.get(question_id) for question_id, call_id in rows if is_unused(question_id, call_id)]
        return [row for row in found if row is not None]

    def drop_answers(self, lease: Lease, ids: Iterable[str]) -> None:
        """Withdraws questions whose answer was never used. They keep the name of who answered."""
        wanted, values = bound("id", ids)
        with self._database.transaction() as connection:
            self._sessions.held(connection, lease)
            connection.execute(
                f"UPDATE questions SET state = 'withdrawn' WHERE session = :session AND state = 'answered' AND "
                f"id IN ({wanted})",
                {**values, "session": lease.id},
            )

    def withdraw_others(self, lease: Lease, calls: Iterable[str]) -> None:
        """Withdraws questions of calls that are no longer open, after a session was taken over."""
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


def _filtered(wanted: QuestionFilter, among: str) -> tuple[str, dict[str, Any]]:
    """(which rows of `questions` these are, the values of that). `among`: which sessions the asker may see. Threat: a
    question of another one that is named in `after` would be told from one that is not there."""
    where, values = "", {}
    for name in ("worker", "risk", "tool", "same"):
        if value := getattr(wanted, name):
            where, values[name] = f"{where} AND {name} = :{name}", value
    if wanted.older_s:
        where, values["older"] = f"{where} AND asked <= @now - :older", wanted.older_s
    if wanted.after:
        where += (
            " AND (asked, id) > (SELECT q.asked, q.id FROM questions q WHERE q.id = :after "
            f"AND q.session IN (SELECT id FROM sessions WHERE {among}))"
        )
        values["after"] = wanted.after
    for number, word in enumerate(wanted.words.split()[:_MOST_SEARCHED]):
        for sign, each in ((f"word_{number}", word), (f"lower_{number}", word.lower())):
            values[sign] = f"%{regex('[!%_]').sub(lambda found: '!' + found[0], each)}%"
        # As written too: a database may know the lower case of ASCII alone.
        is_in = f"({{0}} LIKE :word_{number} ESCAPE '!' OR lower({{0}}) LIKE :lower_{number} ESCAPE '!')"
        of_session = is_in.format("(title || ' ' || person || ' ' || id)")
        where += f" AND ({is_in.format('title')} OR session IN (SELECT id FROM sessions WHERE {of_session}))"
    return where, values
