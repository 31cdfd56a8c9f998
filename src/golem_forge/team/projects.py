"""Projects: the programs of a store as the scope of permission, with the roles that people have in each, and quotas.

A project is a program: a directory on a machine, known by the id that its sessions carry. It is there once a session
was queued in it, or after `forge projects add`. A person has a role in all projects (`people.role`) and may have one in
each project, by their own name or by a group that they are in; the highest counts. Groups are written `@name`. Changes
of roles and projects are recorded in the audit in the same transaction.

A quota bounds a day's cost of models in US dollars, the sessions that are started, or both. It is for one project or
for all of them, and for everybody together, for each person, or for one. A day is one of UTC, by the database's clock.
A start is judged where a session is queued, whoever does it: a person, a batch, a schedule. The cost is judged before
each request: what the request can cost at most is set aside first, so that sessions on several runners cannot spend the
same money, and what it took is noted afterwards, for the day on which that was. Without a quota nothing is noted.

All methods block; they are called in threads. Who may call them is judged in `people.py`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from typing import Any, Final

from golem_forge.agent.budget import BudgetExceeded
from golem_forge.core.lazy_dataclass import dataclass
from golem_forge.core.regex import regex
from golem_forge.core.text import one_line
from golem_forge.team.audit import NOBODY, Actor, record
from golem_forge.team.database import Database, StoreConnection, StoreUnavailable, TeamError
from golem_forge.team.rows import CHANNEL, StoredSession

EVERYBODY: Final = ""
"""A quota for all people together."""
EACH: Final = "*"
"""A quota for every person separately."""
NO_LIMIT: Final = -1
_MAX_LIMIT: Final = 1e9
_DAY_S: Final = 86400
_AGAIN_S: Final = 1.0
_SLACK: Final = 1e-9


@dataclass(frozen=True, slots=True, kw_only=True)
class Quota:
    project: str
    """The project's id; empty means all projects together."""
    person: str
    """A name, EVERYBODY or EACH."""
    cost: float = NO_LIMIT
    """US dollars in a day."""
    sessions: int = NO_LIMIT
    """Maximum sessions started in a day."""

    def whose(self, person: str) -> str:
        who = "everybody together" if self.person == EVERYBODY else person or "nobody who is known"
        return f"{who} in {'this project' if self.project else 'all projects'}"


class Quotas:
    def __init__(self, database: Database) -> None:
        self.database = database

    def all(self) -> list[Quota]:
        rows = self.database.read("SELECT project, person, cost, sessions FROM quotas ORDER BY project, person")
        return [_quota(row) for row in rows]

    def set(self, quota: Quota, *, by: Actor = NOBODY) -> None:
        """Sets a quota; one without a limit is removed. Raises TeamError for a limit that is no number of that kind."""
        for limit in (quota.cost, quota.sessions):
            if limit != NO_LIMIT and not 0 <= limit <= _MAX_LIMIT:
                raise TeamError("a quota is dollars like 20 or 2.50 (--cost), or a whole number of --sessions", "QUOTA")
        values = {"project": quota.project, "person": quota.person}
        with self.database.transaction() as connection:
            if quota.cost == NO_LIMIT and quota.sessions == NO_LIMIT:
                connection.execute("DELETE FROM quotas WHERE project = :project AND person = :person", values)
            else:
                connection.execute(
                    "INSERT INTO quotas (project, person, cost, sessions) VALUES (:project, :person, :cost, :sessions) "
                    "ON CONFLICT (project, person) DO UPDATE SET cost = excluded.cost, sessions = excluded.sessions",
                    values | {"cost": quota.cost, "sessions": quota.sessions},
                )
            told = {"name": quota.person or "everybody", "cost": quota.cost, "sessions": quota.sessions}
            record(connection, "quota changed", *by, told, program=quota.project)

    def used(self, quota: Quota) -> tuple[float, int]:
        """Returns today's (cost, sessions); zero for EACH."""
        if quota.person == EACH:
            return 0.0, 0
        with self.database.transaction(write=False) as connection:
            return _spent(connection, quota, quota.person)[0], _started(connection, quota, quota.person)

    def has_any(self, program: str, person: str) -> bool:
        """Whether a quota of cost counts for this person there."""
        with self.database.transaction(write=False) as connection:
            return any(each.cost != NO_LIMIT for each in _quotas_of(connection, program, person))

    def hold(self, session: StoredSession, least: float | None, wanted: float) -> float:
        """Sets aside what a request may cost: `wanted`, or what is left, if that is `least` or more. None: its price is
        not known. Raises BudgetExceeded."""
        with self.database.transaction() as connection:
            connection.lock("quota")  # two that count at once would both find room
            room, tight = wanted, None
            for quota in _quotas_of(connection, session.program, session.person):
                if quota.cost == NO_LIMIT:
                    continue
                spent, held = _spent(connection, quota, session.person)
                if least is None:
                    raise QuotaUnpriced
                if quota.cost - spent - held < room:
                    room, tight = quota.cost - spent - held, (quota, spent)
            if tight is not None and room + _SLACK < (least or 0.0):
                quota, spent = tight
                raise BudgetExceeded(f"the quota of a day for {quota.whose(session.person)}, $", quota.cost, spent)
            self._note(connection, session, _today(connection), held=room, cost=0.0)
        return room

    def settle(self, session: StoredSession, held: float, cost: float) -> None:
        """Replaces the reserved money of a finished request by its cost, also where a new day has begun meanwhile."""
        with self.database.transaction() as connection:
            connection.lock("quota")
            [day] = connection.execute(
                "SELECT max(day) FROM spent WHERE session = :id AND held >= :held - :slack",
                {"id": session.id, "held": held, "slack": _SLACK},
            ).fetchone()
            self._note(connection, session, _today(connection) if day is None else int(day), held=-held, cost=cost)

    def release(self, session: StoredSession) -> None:
        """Releases what a dead runner had reserved for this session."""
        if self.database.read_one("SELECT 1 FROM spent WHERE session = :id AND held <> 0 LIMIT 1", {"id": session.id}):
            with self.database.transaction() as connection:
                connection.execute("UPDATE spent SET held = 0 WHERE session = :id", {"id": session.id})

    def _note(self, connection: StoreConnection, session: StoredSession, day: int, *, held: float, cost: float) -> None:
        values: dict[str, Any] = {"day": day, "id": session.id, "cost": cost, "held": held, "first": max(held, 0.0)}
        connection.execute(
            "INSERT INTO spent (day, session, program, person, cost, held) VALUES (:day, :id, :program, :person, "
            ":cost, :first) ON CONFLICT (day, session) DO UPDATE SET cost = spent.cost + excluded.cost, "
            "held = CASE WHEN spent.held + :held > 0 THEN spent.held + :held ELSE 0 END",
            values | {"program": session.program, "person": session.person},
        )


def check_start(connection: StoreConnection, program: str, person: str) -> None:
    """Checks the quotas in the transaction that queues a session. Raises TeamError."""
    quotas = _quotas_of(connection, program, person)
    if not quotas:
        return
    connection.lock("quota")
    for quota in quotas:
        if quota.sessions != NO_LIMIT and (started := _started(connection, quota, person)) >= quota.sessions:
            raise _used_up(quota, person, f"{started} sessions were started today", f"{quota.sessions} a day")
        if quota.cost != NO_LIMIT and (spent := _spent(connection, quota, person)[0]) >= quota.cost - _SLACK:
            raise _used_up(quota, person, f"${spent:.2f} were spent today", f"${quota.cost:.2f} a day")


def _used_up(quota: Quota, person: str, used: str, most: str) -> TeamError:
    return TeamError(
        f"The quota of {quota.whose(person)} is used up: {used}, and it is {most} (UTC). An admin can raise it with "
        "`forge projects quota`.",
        "QUOTA",
    )


class QuotaUnpriced(TeamError):
    def __init__(self) -> None:
        super().__init__(
            "A quota of cost counts here, and the price of this model is not known. Add it to `pricing` in the "
            "program's forge.yaml, or take another model.",
            "QUOTA",
        )


class SessionSpending:
    """The quotas of one session, for the requests of its workers (`agent.budget.SpendingGate`)."""

    def __init__(self, quotas: Quotas, session: StoredSession) -> None:
        self._quotas = quotas
        self._session = session

    async def hold(self, least: float | None, wanted: float) -> float | None:
        """Reserves money for a request; None if no quota applies. While the store is unavailable no request starts."""
        while True:
            try:
                return await asyncio.to_thread(self._hold, least, wanted)
            except StoreUnavailable:
                await asyncio.sleep(_AGAIN_S)

    def _hold(self, least: float | None, wanted: float) -> float | None:
        if not self._quotas.has_any(self._session.program, self._session.person):
            return None
        return self._quotas.hold(self._session, least, wanted)

    async def settle(self, held: float, cost: float) -> None:
        while True:
            try:
                return await asyncio.to_thread(self._quotas.settle, self._session, held, cost)
            except StoreUnavailable:
                await asyncio.sleep(_AGAIN_S)


def _quotas_of(connection: StoreConnection, program: str, person: str) -> list[Quota]:
    """Returns the quotas that apply to this person there."""
    rows = connection.execute(
        "SELECT project, person, cost, sessions FROM quotas WHERE project IN ('', :program) AND "
        "person IN (:person, :each, :all) ORDER BY project, person",
        {"program": program, "person": person, "each": EACH, "all": EVERYBODY},
    )
    return [_quota(row) for row in rows.fetchall()]


def _quota(row: tuple[Any, ...]) -> Quota:
    project, person, cost, sessions = row
    return Quota(project=project, person=person, cost=float(cost), sessions=int(sessions))


def _scope(quota: Quota, person: str) -> tuple[str, dict[str, Any]]:
    """(the rows that count for it, the values of that)."""
    where, values = "", {}
    if quota.project:
        where, values["project"] = f"{where} AND program = :project", quota.project
    if quota.person != EVERYBODY:
        where, values["person"] = f"{where} AND person = :person", person
    return where, values


def _today(connection: StoreConnection) -> int:
    return int(float(connection.execute("SELECT @now").fetchone()[0]) // _DAY_S)


def _spent(connection: StoreConnection, quota: Quota, person: str) -> tuple[float, float]:
    """(what was spent today, what is set aside for requests that run)."""
    where, values = _scope(quota, person)
    row = connection.execute(
        f"SELECT coalesce(sum(cost), 0), coalesce(sum(held), 0) FROM spent WHERE day = :day{where}",
        values | {"day": _today(connection)},
    ).fetchone()
    return float(row[0]), float(row[1])


def _started(connection: StoreConnection, quota: Quota, person: str) -> int:
    where, values = _scope(quota, person)
    row = connection.execute(
        f"SELECT count(*) FROM sessions WHERE created >= :since{where}",
        values | {"since": float(_today(connection) * _DAY_S)},
    ).fetchone()
    return int(row[0])


GROUP_MARK: Final = "@"
ROLES: Final = ("none", "viewer", "operator", "admin")
"""Each role includes the rights of those before it."""
MAY_START: Final = frozenset(ROLES[2:])
_NAME: Final = regex(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_NOT_A_NAME: Final = regex(r"[^A-Za-z0-9._-]+")
_MOST_OF_NAME: Final = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class Project:
    id: str
    """As `sessions.program`."""
    name: str
    created: float
    roles: Mapping[str, str]
    """Name of a person, or `@group` → role."""


def higher(one: str, other: str) -> str:
    return max(one, other, key=ROLES.index)


def ensure_project(connection: StoreConnection, project_id: str, wanted: str) -> None:
    """Adds the project in a transaction that queues a session of it. Threat: two programs in folders of one name are
    two projects, so a name that is taken gets a number: nobody's role in the one counts in the other.
    """
    if not project_id or connection.execute("SELECT 1 FROM projects WHERE id = :id", {"id": project_id}).fetchone():
        return
    begins = _NOT_A_NAME.sub("-", wanted).strip("-._")[:50] or "project"
    for number in range(1, _MOST_OF_NAME):
        name = begins if number == 1 else f"{begins}-{number}"
        added = connection.execute(
            "INSERT INTO projects (id, name, created) VALUES (:id, :name, @now) ON CONFLICT DO NOTHING",
            {"id": project_id, "name": name},
        ).rowcount
        if added or connection.execute("SELECT 1 FROM projects WHERE id = :id", {"id": project_id}).fetchone():
            return


def role_in(connection: StoreConnection, person: str, project_id: str) -> str:
    """The highest that this person has there; `none`: they may nothing."""
    found = connection.execute(
        "SELECT role FROM people WHERE name = :name UNION SELECT r.role FROM project_roles r JOIN people p ON "
        "p.name = :name WHERE r.project = :project AND (r.subject = p.name OR r.subject IN "
        "(SELECT '@' || g.name FROM group_members g WHERE g.person = p.name))",
        {"name": person, "project": project_id},
    ).fetchall()
    role = ROLES[0]
    for (each,) in found:
        role = higher(role, each)
    return role


class Projects:
    def __init__(self, database: Database) -> None:
        self.database = database

    def all(self) -> list[Project]:
        """Returns the projects, sorted by name."""
        with self.database.transaction(write=False) as connection:
            rows = connection.execute("SELECT id, name, created FROM projects ORDER BY name").fetchall()
            given = connection.execute("SELECT project, subject, role FROM project_roles ORDER BY subject").fetchall()
        roles: dict[str, dict[str, str]] = {}
        for project, subject, role in given:
            roles.setdefault(project, {})[subject] = role
        return [Project(id=id, name=name, created=created, roles=roles.get(id, {})) for id, name, created in rows]

    def find(self, name: str) -> Project:
        """Returns a project by its name. Raises TeamError."""
        if (found := self.named(name)) is None:
            raise no_project(name)
        return found

    def named(self, name: str) -> Project | None:
        return next((each for each in self.all() if each.name.casefold() == name.casefold()), None)

    def roles(self) -> dict[str, dict[str, str]]:
        """Person → project → the highest role that they have in it, besides the one in all projects."""
        rows = self.database.read(
            "SELECT subject, project, role FROM project_roles UNION ALL SELECT g.person, r.project, r.role FROM "
            "project_roles r JOIN group_members g ON r.subject = '@' || g.name"
        )
        found: dict[str, dict[str, str]] = {}
        for person, project, role in rows:
            of_person = found.setdefault(person, {})
            of_person[project] = higher(of_person.get(project, ROLES[0]), role)
        return found

    def approvers(self, project_ids: Iterable[str]) -> dict[str, list[str]]:
        """Returns by project the names of everybody who may answer there."""
        people = self.database.read(
            "SELECT name, role FROM people WHERE expires = 0 OR expires > @now OR issuer <> '' ORDER BY name"
        )
        roles = self.roles()
        return {
            each: [name for name, role in people if {role, roles.get(name, {}).get(each)} & MAY_START]
            for each in set(project_ids)
        }

    # ---- changes

    def add(self, project_id: str, name: str) -> Project:
        """Adds a project for a program in which nothing has run yet; one that exists is not changed."""
        with self.database.transaction() as connection:
            ensure_project(connection, project_id, name)
        return next(each for each in self.all() if each.id == project_id)

    def rename(self, name: str, new: str, *, by: Actor = NOBODY) -> None:
        """Renames a project. Raises TeamError."""
        _check_name(new, "project")
        with self.database.transaction() as connection:
            taken = connection.execute(
                "SELECT 1 FROM projects WHERE lower(name) = lower(:new) AND lower(name) <> lower(:name)",
                {"new": new, "name": name},
            ).fetchone()
            if taken:
                raise TeamError(f"there is a project {new!r} already; choose another name", "PROJECT_NAME")
            row = connection.execute(
                "UPDATE projects SET name = :new WHERE lower(name) = lower(:name) RETURNING id",
                {"new": new, "name": name},
            ).fetchone()
            if row is None:
                raise no_project(name)
            record(connection, "project renamed", *by, {"project": new, "was": name}, program=row[0])

    def grant(self, name: str, subject: str, role: str, *, by: Actor = NOBODY) -> None:
        """`subject`: a person, or `@group`; `none` takes the role back. Raises TeamError."""
        found = self.find(name)
        with self.database.transaction() as connection:
            # Threat: whoever is removed at this moment leaves a role to the next person of that name.
            connection.lock("people")
            values = {"project": found.id, "subject": subject}
            before = connection.execute(
                "SELECT role FROM project_roles WHERE project = :project AND subject = :subject @update", values
            ).fetchone()
            was = before[0] if before else ROLES[0]
            if role == ROLES[0]:
                connection.execute("DELETE FROM project_roles WHERE project = :project AND subject = :subject", values)
            else:
                _check_subject(connection, subject)
                connection.execute(
                    "INSERT INTO project_roles (project, subject, role) VALUES (:project, :subject, :role) "
                    "ON CONFLICT (project, subject) DO UPDATE SET role = excluded.role",
                    values | {"role": role},
                )
            connection.notify(CHANNEL, "")
            if role != was:
                told = {"project": found.name, "name": subject, "role": role, "was": was}
                record(connection, "project role changed", *by, told, program=found.id)

    def groups(self) -> dict[str, list[str]]:
        """Returns the members of each group."""
        found: dict[str, list[str]] = {}
        for name, person in self.database.read("SELECT name, person FROM group_members ORDER BY name, person"):
            found.setdefault(name, []).append(person)
        return found

    def join(self, group: str, person: str, *, by: Actor = NOBODY) -> None:
        """Raises TeamError for what is no name, and for somebody who is not there."""
        _check_name(group, "group")
        with self.database.transaction() as connection:
            connection.lock("people")  # as `grant` does
            _check_subject(connection, person)
            added = connection.execute(
                "INSERT INTO group_members (name, person) VALUES (:name, :person) ON CONFLICT DO NOTHING",
                {"name": group, "person": person},
            ).rowcount
            connection.notify(CHANNEL, "")
            if added:
                record(connection, "group joined", *by, {"group": group, "name": person})

    def leave(self, group: str, person: str, *, by: Actor = NOBODY) -> None:
        with self.database.transaction() as connection:
            gone = connection.execute(
                "DELETE FROM group_members WHERE name = :name AND person = :person", {"name": group, "person": person}
            ).rowcount
            connection.notify(CHANNEL, "")
            if gone:
                record(connection, "group left", *by, {"group": group, "name": person})
        if not gone:
            raise TeamError(
                f"{person!r} is not in the group {group!r}; `forge projects groups` shows them", "PERSON_NOT_FOUND"
            )


def forget_person(connection: StoreConnection, person: str) -> None:
    """Removes a person's roles, groups and quotas, so that a later person of the same name does not inherit them."""
    connection.execute("DELETE FROM project_roles WHERE subject = :name", {"name": person})
    connection.execute("DELETE FROM group_members WHERE person = :name", {"name": person})
    connection.execute("DELETE FROM quotas WHERE person = :name", {"name": person})


def no_project(name: str) -> TeamError:
    return TeamError(f"no project {one_line(name)[:80]!r}; `forge projects list` shows them", "PROJECT_NOT_FOUND")


def _check_name(name: str, what: str) -> None:
    if _NAME.fullmatch(name) is None:
        raise TeamError(
            f"{one_line(name)[:80]!r} cannot name a {what}: use up to 64 letters, digits, dots and dashes",
            "PROJECT_NAME",
        )


def _check_subject(connection: StoreConnection, subject: str) -> None:
    is_group = subject.startswith(GROUP_MARK)
    name = subject.removeprefix(GROUP_MARK)
    look = "SELECT 1 FROM group_members WHERE name = :name" if is_group else "SELECT 1 FROM people WHERE name = :name"
    if connection.execute(look, {"name": name}).fetchone() is None:
        how = (
            "`forge projects join GROUP PERSON` makes a group"
            if is_group
            else "an admin of all projects sees them with `forge people list`"
        )
        raise TeamError(f"no {'group' if is_group else 'person'} {one_line(name)[:80]!r}; {how}", "PERSON_NOT_FOUND")
