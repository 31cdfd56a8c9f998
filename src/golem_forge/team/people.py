"""People of a team: a name with a role and a token, and the store as one of them may use it.

    none      nothing, but in the projects where they have a role
    viewer    sees sessions, their journals and open questions
    operator  also starts, answers, sends, stops, and takes over what a session changed in its git workspace
    admin     also manages people and the store's rules, and reads where a session runs (host paths)

A person has one role in all projects, and may have a higher one in some (`projects.py`). `ACTIONS` is the one table of
who may do what. `PersonStore` has the methods of `Store` that a person needs; each one looks up who the token belongs
to now, checks the table for the project in question, records a refusal, and acts under the person's own name. The
page, the API, the socket and the command line all go through it. What is in a project that a person may not see is not
there for them.

A token is 256 random bits, shown once and kept as a hash. Threat: a hash that is guessed byte by byte; it is compared
in constant time with every one there is.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias

from golem_forge.core.decisions import ChoiceEnum
from golem_forge.core.lazy_dataclass import dataclass, field, replace
from golem_forge.core.regex import regex
from golem_forge.core.text import one_line
from golem_forge.net.server_guard import secret_hash
from golem_forge.team.audit import NOBODY, Actor, AuditHead, AuditRecord
from golem_forge.team.database import Database, StoreUnavailable, TeamError
from golem_forge.team.projects import Project, no_project
from golem_forge.team.question_table import no_question, not_open, remembers_beyond_session
from golem_forge.team.quotas import EACH, EVERYBODY, Quota
from golem_forge.team.rows import (
    ALL_QUESTIONS,
    CHECKPOINT,
    CONFINED,
    ENDED,
    OPEN,
    NewSession,
    QuestionFilter,
    QuestionRow,
    StoredSession,
    last_checkpoint,
)
from golem_forge.team.schedules import NewSchedule, Schedule, no_schedule
from golem_forge.team.session_table import no_session
from golem_forge.team.store import Store

if TYPE_CHECKING:
    from golem_forge.team.remote import RemoteStore

TOKEN_PREFIX: Final = "forge_"
MAX_TOKEN: Final = 200
TOKEN_LASTS_S: Final = 90 * 86400.0
"""A token, unless whoever makes it says otherwise."""
ALL_PROJECTS: Final = "*"
"""Instead of the name of a project, which never is this."""
MOST_ALIKE: Final = 200
"""Maximum number of questions that one answer covers."""
_NAME: Final = regex(r"[A-Za-z0-9][A-Za-z0-9._@-]{0,63}")
NOT_LOOSER: Final = frozenset({"", "interactive", "strict", "auto_deny"})
"""The modes of approval that a person of a team can choose."""
NOT_KNOWN: Final = "This token is not valid (any more). Ask an admin of the team for another one: `forge people add`."


NOT_CONFIRMED: Final = (
    "The sign-in provider does not answer, so nobody knows whether you may still do this. You can look; try again "
    "later."
)


class Role(ChoiceEnum, noun="role"):
    NONE = "none"
    VIEWER = "viewer"
    OPERATOR = "operator"
    ADMIN = "admin"


_ORDER: Final = {Role.NONE: -1, Role.VIEWER: 0, Role.OPERATOR: 1, Role.ADMIN: 2}
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
    "manage the project": Role.ADMIN,
}
"""Action → the least role that may do it. `remember`: an answer that counts beyond its session. `manage the project`:
who has which role in it."""
STORE_WIDE: Final = frozenset({"see refusals", "see the audit", "manage people"})
"""These take the role in all projects; the others are about one."""

_EXPLAINED: Final = {
    "see host paths": "the log with arguments and paths is for admins; `forge attach ID` shows a session"
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Person:
    name: str
    role: Role
    """The role in all projects."""
    projects: Mapping[str, Role] = field(default_factory=dict)
    """Project → the role that they have there besides."""
    expires: float = 0.0
    """When their token expires, by the store's clock; 0 means never."""

    def role_in(self, program: str | None) -> Role:
        """Returns the role in a program; None means in all projects."""
        return max(self.role, self.projects.get(program or "", Role.NONE), key=_ORDER.__getitem__)

    @property
    def highest(self) -> Role:
        return max((self.role, *self.projects.values()), key=_ORDER.__getitem__)

    def may(self, action: str, program: str | None = None) -> bool:
        return _ORDER[self.role_in(program)] >= _ORDER[ACTIONS[action]]

    def may_somewhere(self, action: str) -> bool:
        role = self.role if action in STORE_WIDE else self.highest
        return _ORDER[role] >= _ORDER[ACTIONS[action]]

    def programs(self, action: str) -> frozenset[str] | None:
        """Returns the programs in which they may do this; None means all."""
        return None if self.may(action) else frozenset(each for each in self.projects if self.may(action, each))


def person_name(name: str) -> str:
    """Returns a valid name. Raises TeamError for any other."""
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
    """Returns the person whose token has this hash now."""
    found = [each for known, each in all_people(store).items() if secrets.compare_digest(known, token_hash)]
    return found[-1] if found else None


def all_people(store: Store) -> dict[str, Person]:
    """Returns the people by the hash of their token, without expired ones. Whoever signs in elsewhere is there by
    their key, and by the hash of their token if they have one: it is one person."""
    roles, found = store.projects.roles(), dict[str, Person]()
    for each in store.accounts.people():
        person = Person(
            name=each["name"],
            role=Role(each["role"]),
            projects={project: Role(role) for project, role in roles.get(each["name"], {}).items()},
            expires=each["expires"],
        )
        if each["issuer"]:
            found[each["token"]] = replace(person, expires=0.0)
        if not each["expired"] and (token := each["own_token" if each["issuer"] else "token"]):
            found[token] = person
    return found


def token_hash(token: str) -> str:
    """Returns the hash of a presented token; empty if it cannot be one."""
    return secret_hash(token) if 0 < len(token) <= MAX_TOKEN else ""


class AnsweredOne(NamedTuple):
    """One of several questions that were answered together."""

    question: str
    session: str
    state: str
    """Empty if the answer did not count."""
    problem: str = ""


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

    def require(self, action: str, what: str = "", program: str | None = None) -> Person:
        """Checks the role, here and nowhere else, and records a refusal. `program`: the project in question; None: a
        role in any project will do, except for the actions in STORE_WIDE, which take the role in all of them."""
        person = self.person
        if not (person.may_somewhere(action) if program is None else person.may(action, program)):
            told = one_line(what)[:200]
            self.store.accounts.refuse(person.name, self.door, action, told, program=program or "")
            least = ACTIONS[action].value
            role = person.role_in(program) if program is not None else person.highest
            is_what = f"is {role.value}" if role is not Role.NONE else "has no role"
            where = " of all projects" if action in STORE_WIDE and person.projects else ""
            why = _EXPLAINED.get(action) or f"that takes {'an' if least[0] in 'ao' else 'a'} {least}{where}"
            raise TeamError(
                f"{person.name} {is_what} here and may not {action}: {why}. The refusal was recorded.", "ROLE"
            )
        if ACTIONS[action] is not Role.VIEWER and not self._is_confirmed():
            raise TeamError(NOT_CONFIRMED, "SIGN_IN_AWAY")
        return person

    def require_in(self, action: str, what: str, find: Callable[[], str]) -> None:
        """Checks the role in the project that `find` returns. Threat: an error of `find` tells whether a directory is
        there. Only those who may do this everywhere read it; to others it is a project that is not theirs.
        """
        person = self.require(action, what)
        try:
            program = find()
        except Exception:
            if person.may(action):
                raise
            program = ""
        self.require(action, what, program)

    def session(self, session_id: str, action: str = "see", what: str = "") -> StoredSession:
        """The session of this id, if this person may do that with it. One of a project that they may not see is not
        there for them."""
        what = what or f"session {session_id}"
        person = self.require(action, what)
        row = self.store.get(session_id)
        if row is None or not self._is_seen(person, row.program, what):
            raise TeamError(no_session(session_id), "SESSION_NOT_FOUND")
        self.require(action, what, row.program)
        return row

    def _is_seen(self, person: Person, program: str | None, what: str) -> bool:
        """Whether the person may see something of this project; an attempt to see what is hidden is recorded.
        `program`: None if no such thing exists. Threat: guesses at names. One that does not exist is recorded like one
        that is hidden, so that neither the text nor the time of the answer tells them apart.
        """
        if person.may("see", program):
            return True
        told = one_line(what)[:200]
        self.store.accounts.refuse(person.name, self.door, "see (another project)", told, program=program or "")
        return False

    def _project(self, person: Person, name: str) -> Project:
        """The project of this name, if there is one that this person may see."""
        found = self.store.projects.named(name)
        if not self._is_seen(person, found.id if found is not None else None, f"project {name}") or found is None:
            raise no_project(name)
        return found

    def _programs(self, person: Person, project: str) -> frozenset[str] | None:
        """The program of the project with this name; empty: all that the person may see."""
        return frozenset({self._project(person, project).id}) if project else person.programs("see")

    def _check_free(self, person: Person, name: str, program: str, what: str) -> None:
        """Refuses a name that is taken by something of this project. Threat: the reason would tell somebody who may not
        see the project that it has something of this name."""
        if not self._is_seen(person, program, what):
            raise TeamError(f"the name {one_line(name)[:80]!r} cannot be used here; choose another one", "PROJECT_NAME")

    @property
    def database(self) -> Database:
        """The database, used only for change notifications."""
        return self.store.database

    def notify(self, notices: Sequence[tuple[str, str]]) -> None:
        self.require("see", "a session's text")
        self.store.notify(notices)

    # ---- what a viewer may

    def now(self) -> float:
        return self.store.now()

    def sessions(
        self, *, states: Iterable[str] = (), prefix: str = "", limit: int = 1000, batch: str = "", project: str = ""
    ) -> list[StoredSession]:
        """`project`: only of the one with this name."""
        programs = self._programs(self.require("see", "sessions"), project)
        return self.store.sessions(states=states, prefix=prefix, limit=limit, batch=batch, programs=programs)

    def find(self, reference: str) -> StoredSession:
        programs = self.require("see", f"session {reference}").programs("see")
        return self.store.find(reference, programs)

    def lines(
        self, session_id: str, after: int = 0, *, limit: int = 5000, private: bool = False
    ) -> list[tuple[int, bytes]]:
        """`private`: with the lines that hold host paths, for admins."""
        self.session(session_id, "see host paths" if private else "see", f"journal of {session_id}")
        return self.store.lines(session_id, after, limit=limit, private=private)

    def output(self, session_id: str, handle: str) -> tuple[str, Iterator[bytes]] | None:
        self.session(session_id, "see", f"output of {session_id}")
        return self.store.output(session_id, handle)

    def questions(
        self, *, session: str = "", state: str = "open", limit: int = 1000, wanted: QuestionFilter = ALL_QUESTIONS
    ) -> list[QuestionRow]:
        person = self.require("see", "questions")
        programs = self._programs(person, wanted.project)
        starter = person.name if wanted.mine else ""
        found = self.store.questions.rows(
            session=session, state=state, limit=limit, programs=programs, starter=starter, wanted=wanted
        )
        return [_offered_to(person, each) for each in found]

    def question(self, question_id: str) -> QuestionRow | None:
        person = self.require("see", "questions")
        found = self.store.questions.get(question_id)
        if found is None or not self._is_seen(person, found.program, f"question {question_id}"):
            return None
        return _offered_to(person, found)

    def find_question(self, reference: str) -> QuestionRow:
        person = self.require("see", "questions")
        return _offered_to(person, self.store.questions.find(reference, person.programs("see")))

    def answered_by(self, sessions: Sequence[str]) -> dict[str, list[str]]:
        """Returns who answered, for sessions that this person was already shown."""
        self.require("see", "sessions")
        return self.store.questions.answered_by(sessions)

    def runners(self) -> list[dict[str, Any]]:
        """Somebody who does not see all projects is not told which ones a runner is for."""
        found, person = self.store.runners.seen(), self.require("see", "runners")
        return found if person.may("see") else [each | {"offers": {}} for each in found]

    def schedules(self) -> list[Schedule]:
        person = self.require("see", "schedules")
        return [each for each in self.store.schedules.all() if person.may("see", each.program)]

    def projects(self) -> list[Project]:
        """Returns the projects that this person sees; the roles of others are included only for their managers."""
        person = self.require("see", "projects")
        seen = (each for each in self.store.projects.all() if person.may("see", each.id))
        return [each if person.may("manage the project", each.id) else replace(each, roles={}) for each in seen]

    def workspace_of(self, session_id: str, action: str = "see") -> Mapping[str, Any]:
        """The git workspace of a session, to read its changes (`see`) or to take them over (`apply`); empty: it has
        none. It may name a host path: show nothing of it."""
        row = self.session(session_id, action, f"changes of {session_id}")
        found = self.store.facts(session_id).get("workspace")
        if not isinstance(found, Mapping):
            return {}
        if row.state not in ENDED:  # its last lines may still be on their way
            return found
        return {**found, CHECKPOINT: last_checkpoint(self._journal_of(session_id))}

    def _journal_of(self, session_id: str) -> Iterator[bytes]:
        count = 0
        while page := self.store.lines(session_id, count):
            count = page[-1][0]
            yield from (line for _, line in page)

    # ---- what an operator may

    def queue(self, new: NewSession, session_id: str = "") -> str:
        person = self.require("start", new.title, new.program)
        return self.store.queue(replace(self._allowed(new), person=person.name, door=self.door), session_id)

    def answer(self, question_id: str, answer: Mapping[str, Any]) -> QuestionRow:
        what = f"question {question_id}"
        who, question = self.require("answer", what), self.store.questions.get(question_id)
        if question is None or not self._is_seen(who, question.program, what):
            raise no_question(question_id)
        self.require("answer", what, question.program)
        if remembers_beyond_session(question, answer):
            self.require("remember", what, question.program)
        try:
            return self.store.questions.answer(question_id, answer, who.name, self.door)
        except TeamError as error:
            if error.code == "FOUR_EYES":
                where = {"session": question.session, "program": question.program}
                self.store.accounts.refuse(who.name, self.door, "answer (four eyes)", what[:200], **where)
            raise

    def answer_alike(self, question_id: str, answer: Mapping[str, Any]) -> list[AnsweredOne]:
        """Gives the same yes or no to this question and to every open one that asks for the same call. Each is answered
        and judged by itself, also for four eyes, and refusals are returned. Raises TeamError for an answer that is more
        than yes or no, and if none was answered.
        """
        if not answer.keys() <= {"approved", "reason"}:
            raise TeamError("Questions that are alike are answered with yes or no, not changed.", "ANSWER_INVALID")
        who = self.require("answer", f"questions like {question_id}")
        first = self.question(question_id)
        if first is None:
            raise no_question(question_id)
        if first.state != OPEN:
            raise not_open(first)
        found = [first]
        if first.same:
            alike = QuestionFilter(same=first.same)
            rows = self.store.questions.rows(programs=who.programs("see"), limit=MOST_ALIKE, wanted=alike)
            found += [each for each in rows if each.id != first.id]
        said: list[AnsweredOne] = []
        for each in found:
            try:
                said.append(AnsweredOne(each.id, each.session, self.answer(each.id, answer).state))
            except StoreUnavailable:
                raise
            except TeamError as error:
                if len(found) == 1:
                    raise
                said.append(AnsweredOne(each.id, each.session, "", error.message))
        return said

    def send(self, session_id: str, kind: str, data: Mapping[str, Any]) -> int:
        self.session(session_id, "interrupt" if kind == "interrupt" else "send")
        return self.store.send(session_id, kind, data, self.person.name, self.door)

    def stop(self, session_id: str) -> str:
        self.session(session_id, "stop")
        return self.store.stop(session_id, self.person.name, self.door)

    def _allowed(self, new: NewSession) -> NewSession:
        """Checks what a person may bring. Threat: on a runner its own account's settings count, never those of whoever
        starts a session, who could also name a script that is any file of the runner's: it lies inside the program
        there.
        """
        if new.facts.get("overrides") or new.facts.get("approval", "") not in NOT_LOOSER:
            raise TeamError(
                "a person of a team brings no --set and no looser --approval: the runner's own settings count. Use "
                "interactive, strict or auto_deny",
                "STORE_PERSON",
            )
        for model in str(new.facts.get("model") or "").split(","):
            provider, _, name = model.strip().partition(":")
            if provider == "scripted" and (name.startswith("/") or ".." in name.split("/")):
                raise TeamError(
                    "the script of a scripted model lies inside the program: name it from there", "STORE_PERSON"
                )
        return replace(new, facts={**new.facts, CONFINED: True}, priority=max(-10, min(10, new.priority)))

    def add_schedule(self, new: NewSchedule) -> str:
        """Adds a schedule, which starts sessions in the person's name as long as they may."""
        who = self.require("schedule", new.session.title, new.session.program)
        session = replace(self._allowed(new.session), person=who.name, door=self.door)
        if (taken := self._schedule(new.name)) is not None:
            self._check_free(who, new.name, taken.program, f"schedule {new.name}")
        return self.store.schedules.add(replace(new, session=session, by_role=bool(self._token_hash)))

    def remove_schedule(self, name: str) -> None:
        """Removes one's own schedule; those of others are for admins."""
        who = self.require("schedule", f"remove {name}")
        found = self._schedule(name)
        if not self._is_seen(who, found.program if found is not None else None, f"schedule {name}") or found is None:
            raise no_schedule(name)
        self.require("schedule", f"remove {name}", found.program)
        if found.person != who.name or bool(found.by_role) != bool(self._token_hash):
            self.require("remove what others schedule", f"schedule {name}", found.program)
        self.store.schedules.remove(name)

    def _schedule(self, name: str) -> Schedule | None:
        return next((each for each in self.store.schedules.all() if each.name == name), None)

    # ---- what an admin may

    def facts(self, session_id: str) -> Mapping[str, Any]:
        self.session(session_id, "see host paths")
        return self.store.facts(session_id)

    def rules(self) -> list[dict[str, Any]]:
        """Returns the rules of all projects, and of those that this person sees."""
        person = self.require("see rules")
        found = self.store.accounts.rules()
        return [each for each in found if not each["project"] or person.may("see rules", each["project"])]

    def remove_rule(self, rule_id: str) -> None:
        """Removes a rule. One that counts in all projects is for admins of all; one of a project for its admins."""
        person = self.require("change rules", f"remove {rule_id}")
        self.store.accounts.remove_rule(rule_id, person.programs("change rules"), by=self._actor)

    def grant(self, project: str, subject: str, role: Role) -> None:
        """`subject`: a person, or `@group`; Role.NONE takes the role back."""
        self._managed(project, f"{subject}: {role.value}")
        self.store.projects.grant(project, subject, role.value, by=self._actor)

    def quotas(self) -> list[dict[str, Any]]:
        """Returns the quotas of the projects that this person manages, and with `manage people` all, with today's
        usage.
        """
        person = self.require("see", "quotas")
        names, found = self._project_names(), []
        for each in self.store.quotas.all():
            if not (person.may("manage the project", each.project) if each.project else person.may("manage people")):
                continue
            cost, sessions = self.store.quotas.used(each)
            told = {"person": each.person, "cost": each.cost, "sessions": each.sessions}
            used = {"used_cost": cost, "used_sessions": sessions}
            found.append({"project": names.get(each.project, "") if each.project else ALL_PROJECTS, **told, **used})
        return found

    def _project_names(self) -> dict[str, str]:
        return {each.id: each.name for each in self.store.projects.all()}

    def set_quota(self, project: str, person: str, cost: float, sessions: int) -> None:
        """`project`: its name, or ALL_PROJECTS, for admins of all; `person`: a name, EVERYBODY or EACH."""
        what = f"quota of {person or 'everybody'}"
        if project == ALL_PROJECTS:
            self.require("manage people", what)
            found = ""
        else:
            found = self._managed(project, what)
        known = (EVERYBODY, EACH, *(each["name"] for each in self.store.accounts.people()))
        if person not in known:
            raise TeamError(
                f"no person {one_line(person)[:80]!r}; an admin of all projects sees them with `forge people list`",
                "PERSON_NOT_FOUND",
            )
        self.store.quotas.set(Quota(project=found, person=person, cost=cost, sessions=sessions), by=self._actor)

    def secrets(self) -> list[dict[str, Any]]:
        """Names of those of the projects that this person manages."""
        person = self.require("see", "secrets")
        names = self._project_names()
        return [
            {"project": names.get(each.project, ""), "name": each.name, "person": each.person, "created": each.created}
            for each in self.store.secrets.all()
            if person.may("manage the project", each.project)
        ]

    def secrets_key(self, project: str) -> tuple[str, str]:
        """(the runners' public key, the id of the project): what a secret is sealed with."""
        found = self._managed(project, "secrets")
        return self.store.secrets.public_key(), found

    def put_secret(self, project: str, name: str, sealed: str) -> None:
        self.store.secrets.put(self._managed(project, f"secret {name}"), name, sealed, by=self._actor)

    def remove_secret(self, project: str, name: str) -> None:
        self.store.secrets.remove(self._managed(project, f"secret {name}"), name, by=self._actor)

    def rename_project(self, name: str, new: str) -> None:
        self._managed(name, f"rename to {new}")
        if (taken := self.store.projects.named(new)) is not None:
            self._check_free(self.person, new, taken.id, f"project {new}")
        self.store.projects.rename(name, new, by=self._actor)

    def _managed(self, name: str, what: str) -> str:
        """The id of a project that this person manages."""
        found = self._project(self.require("manage the project", f"{name}, {what}"), name)
        self.require("manage the project", f"{name}, {what}", found.id)
        return found.id

    def groups(self) -> dict[str, list[str]]:
        """A group may have roles in several projects: who is in it is for admins of all."""
        self.require("manage people", "groups")
        return self.store.projects.groups()

    def join(self, group: str, person: str) -> None:
        self.require("manage people", f"{person} into {group}")
        self.store.projects.join(group, person, by=self._actor)

    def leave(self, group: str, person: str) -> None:
        self.require("manage people", f"{person} out of {group}")
        self.store.projects.leave(group, person, by=self._actor)

    def people(self) -> list[dict[str, Any]]:
        self.require("manage people", "list")
        return [{**each, "token": "", "own_token": ""} for each in self.store.accounts.people()]

    def new_person(self, name: str, role: Role, expires_in: float = TOKEN_LASTS_S) -> str:
        self.require("manage people", f"add {name}")
        return add_person(self.store, name, role, expires_in=expires_in, by=self._actor)

    def rotate_token(self, name: str, expires_in: float = TOKEN_LASTS_S) -> str:
        self.require("manage people", f"rotate the token of {name}")
        return rotate_token(self.store, name, expires_in=expires_in, by=self._actor)

    def remove_person(self, name: str) -> None:
        """Removes a person; the last admin only for whoever has the database itself."""
        self.require("manage people", f"remove {name}")
        self.store.accounts.remove_person(name, keep_admin=bool(self._token_hash), by=self._actor)

    def restore_person(self, name: str) -> None:
        self.require("manage people", f"restore {name}")
        self.store.accounts.restore_person(name, self._actor)

    def refusals(self, limit: int = 200) -> list[dict[str, Any]]:
        self.require("see refusals")
        return self.store.accounts.refusals(limit)

    def audit(self, *, after: int = 0, since: float = 0.0, program: str = "") -> list[AuditRecord]:
        """Returns a page of the audit, in order."""
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
    """The store of an account that has the database itself. It may do everything, and is recorded by its name."""

    def __init__(self, store: Store, name: str, door: str) -> None:
        super().__init__(store, "", door)
        self._owner = Person(name=name, role=Role.ADMIN)

    @property
    def person(self) -> Person:
        return self._owner

    def _allowed(self, new: NewSession) -> NewSession:
        """Allows everything: the owner of the database is a runner, whose settings count."""
        return new


def _offered_to(person: Person, question: QuestionRow) -> QuestionRow:
    """Removes choices beyond the session unless the person is an admin."""
    if person.may("remember", question.program) or not question.wire.get("choices"):
        return question
    kept = [each for each in question.wire["choices"] if each.get("scope") == "session"]
    return replace(question, wire={**question.wire, "choices": kept})


TeamStore: TypeAlias = "PersonStore | RemoteStore"
"""The store as one person uses it: at the database (an OwnerStore is a PersonStore), or at a team's address."""
