"""Projects: the programs of a store as the scope of permission, with the roles that people have in each.

A project is a program: a directory on a machine, known by the id that its sessions carry. It is there once a session
was queued in it, or after `forge projects add`. A person has a role in all projects (`people.role`) and may have one in
each project, by their own name or by a group that they are in; the highest counts. Groups are written `@name`. Changes
of roles and projects are recorded in the audit in the same transaction.

All methods block; they are called in threads. Who may call them is judged in `people.py`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from golem_forge.core.lazy_dataclass import dataclass
from golem_forge.core.regex import regex
from golem_forge.core.text import one_line
from golem_forge.team.audit import NOBODY, Actor, record
from golem_forge.team.database import Database, StoreConnection, TeamError
from golem_forge.team.rows import CHANNEL

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
