"""People of a team: a name with a role and a token, and the store as one of them may use it.

    viewer    sees sessions, their journals and open questions
    operator  also starts, answers, sends, stops, and takes over what a session changed in its git workspace
    admin     also manages people and the store's rules, and reads where a session runs (host paths)

`ACTIONS` is the one table of who may do what. `PersonStore` has the methods of `Store` that a person needs; each one
looks up who the token belongs to now, checks the table, records a refusal, and acts under the person's own name. The
page, the API, the socket and the command line all go through it.

A token is 256 random bits, shown once and kept as a hash. Threat: a hash that is guessed byte by byte; it is compared
in constant time with every one there is.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, Protocol

from golem_forge.core.decisions import ChoiceEnum
from golem_forge.core.lazy_dataclass import dataclass, replace
from golem_forge.core.regex import regex
from golem_forge.core.text import one_line
from golem_forge.net.guard import secret_hash
from golem_forge.team.accounts import NOBODY, Actor
from golem_forge.team.answers import remembers_beyond_session
from golem_forge.team.audit import AuditHead, AuditRecord
from golem_forge.team.database import Database, TeamError
from golem_forge.team.rows import CHECKPOINT, ENDED, NewSession, QuestionRow, StoredSession, last_checkpoint
from golem_forge.team.schedules import NewSchedule, Schedule
from golem_forge.team.store import Store

TOKEN_PREFIX: Final = "forge_"
MAX_TOKEN: Final = 200
TOKEN_LASTS_S: Final = 90 * 86400.0
"""A token, unless whoever makes it says otherwise."""
_NAME: Final = regex(r"[A-Za-z0-9][A-Za-z0-9._@-]{0,63}")
NOT_LOOSER: Final = frozenset({"", "interactive", "strict", "auto_deny"})
"""The modes of approval that a person of a team can choose."""
NOT_KNOWN: Final = "This token is not valid (any more). Ask an admin of the team for another one: `forge people add`."


NOT_CONFIRMED: Final = (
    "The sign-in provider does not answer, so nobody knows whether you may still do this. You can look; try again "
    "later."
)


class Role(ChoiceEnum, noun="role"):
    VIEWER = "viewer"
    OPERATOR = "operator"
    ADMIN = "admin"


_ORDER: Final = {Role.VIEWER: 0, Role.OPERATOR: 1, Role.ADMIN: 2}
ACTIONS: Final[Mapping[str, Role]] = {
    "see": Role.VIEWER,
    "start": Role.OPERATOR,
    "answer": Role.OPERATOR,
    "send": Role.OPERATOR,
    "interrupt": Role.OPERATOR,
    "stop": Role.OPERATOR,
    "apply": Role.OPERATOR,
    "schedule": Role.OPERATOR,
    "remove what others schedule": Role.ADMIN,
    "remember": Role.ADMIN,
    "see rules": Role.VIEWER,
    "change rules": Role.ADMIN,
    "see host paths": Role.ADMIN,
    "see refusals": Role.ADMIN,
    "see the audit": Role.ADMIN,
    "manage people": Role.ADMIN,
}
"""Action → the least role that may do it. `remember`: an answer that counts beyond its session."""

_EXPLAINED: Final = {
    "see host paths": "the log with arguments and paths is for admins; `forge attach ID` shows a session"
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Person:
    name: str
    role: Role
    expires: float = 0.0
    """When their token stops working, by the store's clock; 0: never."""

    def may(self, action: str) -> bool:
        return _ORDER[self.role] >= _ORDER[ACTIONS[action]]


def person_name(name: str) -> str:
    """Raises TeamError for what cannot be a name."""
    if _NAME.fullmatch(name) is None:
        raise TeamError(
            f"{one_line(name)[:80]!r} cannot be a name: use up to 64 letters, digits, dots, dashes and @", "PERSON_NAME"
        )
    return name


def add_person(store: Store, name: str, role: Role, *, expires_in: float = TOKEN_LASTS_S, by: Actor = NOBODY) -> str:
    """Gives the token, which nobody can read again. `expires_in`: seconds; 0: it does not expire. Raises TeamError."""
    token = TOKEN_PREFIX + secrets.token_urlsafe(32)
    store.accounts.add_person(person_name(name), role.value, secret_hash(token), expires_in=expires_in, by=by)
    return token


def rotate_token(store: Store, name: str, *, expires_in: float = TOKEN_LASTS_S, by: Actor = NOBODY) -> str:
    """Gives the new token; the old one does not work any more. Raises TeamError."""
    token = TOKEN_PREFIX + secrets.token_urlsafe(32)
    store.accounts.rotate_token(name, secret_hash(token), expires_in=expires_in, by=by)
    return token


def find_person(store: Store, token_hash: str) -> Person | None:
    """Whose token has this hash, as of now."""
    people = {each["token"]: each for each in store.accounts.people() if not each["expired"]}
    found = [each for known, each in people.items() if secrets.compare_digest(known, token_hash)]
    if not found:
        return None
    return Person(name=found[-1]["name"], role=Role(found[-1]["role"]), expires=found[-1]["expires"])


def token_hash(token: str) -> str:
    """Of what somebody presents as a token; empty: it cannot be one."""
    return secret_hash(token) if 0 < len(token) <= MAX_TOKEN else ""


class TeamStore(Protocol):
    """The store as one person uses it, at whatever door: `PersonStore`, `OwnerStore`, or `RemoteStore`."""

    @property
    def database(self) -> Database | None: ...
    @property
    def person(self) -> Person: ...
    def now(self) -> float: ...
    def sessions(
        self, *, states: Iterable[str] = (), prefix: str = "", limit: int = 1000, batch: str = ""
    ) -> list[StoredSession]: ...
    def find(self, reference: str) -> StoredSession: ...
    def lines(
        self, session_id: str, after: int = 0, *, limit: int = 5000, private: bool = False
    ) -> list[tuple[int, bytes]]: ...
    def facts(self, session_id: str) -> Mapping[str, Any]: ...
    def runners(self) -> list[dict[str, Any]]: ...
    def notify(self, notices: Sequence[tuple[str, str]]) -> None: ...
    def questions(self, *, session: str = "", state: str = "open", limit: int = 1000) -> list[QuestionRow]: ...
    def question(self, question_id: str) -> QuestionRow | None: ...
    def find_question(self, reference: str) -> QuestionRow: ...
    def queue(self, new: NewSession, session_id: str = "") -> str: ...
    def answer(self, question_id: str, answer: Mapping[str, Any]) -> QuestionRow: ...
    def send(self, session_id: str, kind: str, data: Mapping[str, Any]) -> int: ...
    def stop(self, session_id: str) -> str: ...
    def schedules(self) -> list[Schedule]: ...
    def add_schedule(self, new: NewSchedule) -> str: ...
    def remove_schedule(self, name: str) -> None: ...
    def people(self) -> list[dict[str, Any]]: ...
    def new_person(self, name: str, role: Role, expires_in: float = TOKEN_LASTS_S) -> str: ...
    def rotate_token(self, name: str, expires_in: float = TOKEN_LASTS_S) -> str: ...
    def remove_person(self, name: str) -> None: ...
    def restore_person(self, name: str) -> None: ...
    def refusals(self, limit: int = 200) -> list[dict[str, Any]]: ...
    def audit(self, *, after: int = 0, since: float = 0.0, program: str = "") -> list[AuditRecord]: ...
    def audit_begin(self) -> AuditHead: ...
    def rules(self) -> list[dict[str, Any]]: ...
    def remove_rule(self, rule_id: str) -> None: ...
    def close(self) -> None: ...


class PersonStore:
    """The store behind the role of one person. Every method raises TeamError `ROLE` for what the role does not allow,
    and `NOT_A_PERSON` once the token is removed."""

    def __init__(
        self, store: Store, token_hash: str, door: str, is_confirmed: Callable[[], bool] = lambda: True
    ) -> None:
        """`is_confirmed`: whether somebody who signs in elsewhere was confirmed there lately; else they only see."""
        self.store = store
        self.door = door
        self._token_hash = token_hash
        self._is_confirmed = is_confirmed

    @property
    def person(self) -> Person:
        found = find_person(self.store, self._token_hash) if self._token_hash else None
        if found is None:
            raise TeamError(NOT_KNOWN, "NOT_A_PERSON")
        return found

    def require(self, action: str, what: str = "") -> Person:
        """The one place where a role is checked. A refusal is recorded."""
        person = self.person
        if not person.may(action):
            self.store.accounts.refuse(person.name, self.door, action, one_line(what)[:200])
            least = ACTIONS[action].value
            why = _EXPLAINED.get(action) or f"that takes {'an' if least[0] in 'ao' else 'a'} {least}"
            raise TeamError(
                f"{person.name} is {person.role.value} here and may not {action}: {why}. The refusal was recorded.",
                "ROLE",
            )
        if ACTIONS[action] is not Role.VIEWER and not self._is_confirmed():
            raise TeamError(NOT_CONFIRMED, "SIGN_IN_AWAY")
        return person

    @property
    def database(self) -> Database:
        """For rings, which say only that something changed."""
        return self.store.database

    def notify(self, notices: Sequence[tuple[str, str]]) -> None:
        self.require("see", "a session's text")
        self.store.notify(notices)

    # ---- what a viewer may

    def now(self) -> float:
        return self.store.now()

    def sessions(
        self, *, states: Iterable[str] = (), prefix: str = "", limit: int = 1000, batch: str = ""
    ) -> list[StoredSession]:
        self.require("see", "sessions")
        return self.store.sessions(states=states, prefix=prefix, limit=limit, batch=batch)

    def find(self, reference: str) -> StoredSession:
        self.require("see", f"session {reference}")
        return self.store.find(reference)

    def lines(
        self, session_id: str, after: int = 0, *, limit: int = 5000, private: bool = False
    ) -> list[tuple[int, bytes]]:
        """`private`: with the lines that hold host paths, for admins."""
        self.require("see host paths" if private else "see", f"journal of {session_id}")
        return self.store.lines(session_id, after, limit=limit, private=private)

    def output(self, session_id: str, handle: str) -> tuple[str, Iterator[bytes]] | None:
        self.require("see", f"output of {session_id}")
        return self.store.output(session_id, handle)

    def questions(self, *, session: str = "", state: str = "open", limit: int = 1000) -> list[QuestionRow]:
        person = self.require("see", "questions")
        found = self.store.questions(session=session, state=state, limit=limit)
        return [_offered_to(person, each) for each in found]

    def question(self, question_id: str) -> QuestionRow | None:
        person = self.require("see", "questions")
        found = self.store.question(question_id)
        return None if found is None else _offered_to(person, found)

    def find_question(self, reference: str) -> QuestionRow:
        person = self.require("see", "questions")
        return _offered_to(person, self.store.find_question(reference))

    def answered_by(self, sessions: Sequence[str]) -> dict[str, list[str]]:
        self.require("see", "sessions")
        return self.store.answered_by(sessions)

    def runners(self) -> list[dict[str, Any]]:
        self.require("see", "runners")
        return self.store.runners()

    def counts(self) -> dict[str, Any]:
        self.require("see", "counts")
        return self.store.counts()

    def schedules(self) -> list[Schedule]:
        self.require("see", "schedules")
        return self.store.schedules.all()

    def workspace_of(self, session_id: str, action: str = "see") -> Mapping[str, Any]:
        """The git workspace of a session, to read its changes (`see`) or to take them over (`apply`); empty: it has
        none. It may name a host path: show nothing of it."""
        self.require(action, f"changes of {session_id}")
        found = self.store.facts(session_id).get("workspace")
        if not isinstance(found, Mapping):
            return {}
        if self.store.find(session_id).state not in ENDED:  # its last lines may still be on their way
            return found
        return {**found, CHECKPOINT: last_checkpoint(self._journal_of(session_id))}

    def _journal_of(self, session_id: str) -> Iterator[bytes]:
        count = 0
        while page := self.store.lines(session_id, count):
            count = page[-1][0]
            yield from (line for _, line in page)

    # ---- what an operator may

    def queue(self, new: NewSession, session_id: str = "") -> str:
        person = self.require("start", new.title)
        self._check_brought(new)
        return self.store.queue(replace(new, person=person.name, door=self.door), session_id)

    def answer(self, question_id: str, answer: Mapping[str, Any]) -> QuestionRow:
        who = self.require("answer", f"question {question_id}")
        question = self.store.question(question_id)
        if question is not None and remembers_beyond_session(question, answer):
            self.require("remember", f"question {question_id}")
        try:
            return self.store.answer(question_id, answer, who.name, self.door)
        except TeamError as error:
            if error.code == "FOUR_EYES":
                self.store.accounts.refuse(who.name, self.door, "answer (four eyes)", f"question {question_id}"[:200])
            raise

    def send(self, session_id: str, kind: str, data: Mapping[str, Any]) -> int:
        who = self.require("interrupt" if kind == "interrupt" else "send", f"session {session_id}")
        return self.store.send(session_id, kind, data, who.name, self.door)

    def stop(self, session_id: str) -> str:
        who = self.require("stop", f"session {session_id}")
        return self.store.stop(session_id, who.name, self.door)

    def _check_brought(self, new: NewSession) -> None:
        """Threat: on a runner its own account's settings count, never those of a person who starts a session."""
        if new.facts.get("overrides") or new.facts.get("approval", "") not in NOT_LOOSER:
            raise TeamError(
                "a person of a team brings no --set and no looser --approval: the runner's own settings count. Use "
                "interactive, strict or auto_deny",
                "STORE_PERSON",
            )

    def add_schedule(self, new: NewSchedule) -> str:
        """It starts sessions in the person's name, for as long as they may."""
        who = self.require("schedule", new.session.title)
        self._check_brought(new.session)
        session = replace(new.session, person=who.name, door=self.door)
        return self.store.schedules.add(replace(new, session=session, by_role=bool(self._token_hash)))

    def remove_schedule(self, name: str) -> None:
        """One's own; those of others are for admins."""
        who = self.require("schedule", f"remove {name}")
        found = self.store.schedules.find(name)
        if found.person != who.name or bool(found.by_role) != bool(self._token_hash):
            self.require("remove what others schedule", f"schedule {name}")
        self.store.schedules.remove(name)

    # ---- what an admin may

    def facts(self, session_id: str) -> Mapping[str, Any]:
        self.require("see host paths", f"session {session_id}")
        return self.store.facts(session_id)

    def rules(self) -> list[dict[str, Any]]:
        self.require("see rules")
        return self.store.accounts.rules()

    def remove_rule(self, rule_id: str) -> None:
        self.require("change rules", f"remove {rule_id}")
        self.store.accounts.remove_rule(rule_id, self._actor)

    def people(self) -> list[dict[str, Any]]:
        self.require("manage people", "list")
        return [{**each, "token": ""} for each in self.store.accounts.people()]

    def new_person(self, name: str, role: Role, expires_in: float = TOKEN_LASTS_S) -> str:
        self.require("manage people", f"add {name}")
        return add_person(self.store, name, role, expires_in=expires_in, by=self._actor)

    def rotate_token(self, name: str, expires_in: float = TOKEN_LASTS_S) -> str:
        self.require("manage people", f"rotate the token of {name}")
        return rotate_token(self.store, name, expires_in=expires_in, by=self._actor)

    def remove_person(self, name: str) -> None:
        """The only admin stays, unless whoever has the database itself removes them."""
        self.require("manage people", f"remove {name}")
        self.store.accounts.remove_person(name, keep_admin=bool(self._token_hash), by=self._actor)

    def restore_person(self, name: str) -> None:
        self.require("manage people", f"restore {name}")
        self.store.accounts.restore_person(name, self._actor)

    def refusals(self, limit: int = 200) -> list[dict[str, Any]]:
        self.require("see refusals")
        return self.store.accounts.refusals(limit)

    def audit(self, *, after: int = 0, since: float = 0.0, program: str = "") -> list[AuditRecord]:
        """A page of it, in its order."""
        self.require("see the audit")
        return self.store.accounts.audit.records(after=after, since=since, program=program)

    def audit_begin(self) -> AuditHead:
        self.require("see the audit")
        return self.store.accounts.audit.pruned()

    @property
    def _actor(self) -> Actor:
        return Actor(self.person.name, self.door)

    def close(self) -> None:
        self.store.close()


class OwnerStore(PersonStore):
    """The store of an account that has the database itself: it may everything, and is named like any other person."""

    def __init__(self, store: Store, name: str, door: str) -> None:
        super().__init__(store, "", door)
        self._owner = Person(name=name, role=Role.ADMIN)

    @property
    def person(self) -> Person:
        return self._owner

    def _check_brought(self, new: NewSession) -> None:
        """Whoever has the database itself is a runner, whose settings count."""


def _offered_to(person: Person, question: QuestionRow) -> QuestionRow:
    """Only an admin is offered what counts beyond the session."""
    if person.may("remember") or not question.wire.get("choices"):
        return question
    kept = [each for each in question.wire["choices"] if each.get("scope") == "session"]
    return replace(question, wire={**question.wire, "choices": kept})
