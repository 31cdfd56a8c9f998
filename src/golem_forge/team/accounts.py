"""Accounts: the people of a store, what was refused to them, and the rules that admins made for all runners.

All methods block; they are called in threads. Who may call them is judged in `people.py`.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from hashlib import sha256
from typing import Any, Final

from golem_forge.policy.rules.model import rule_id
from golem_forge.team.database import Database, StoreConnection, TeamError
from golem_forge.team.projects import forget_person
from golem_forge.team.rows import CHANNEL

REFUSALS_KEPT: Final = 1000
"""Of each person: whoever is refused all the time pushes out only what was refused to them."""


class Accounts:
    def __init__(self, database: Database) -> None:
        self.database = database

    # ---- people

    def add_person(self, name: str, role: str, token_hash: str) -> None:
        """Raises TeamError for a name that is taken; one that differs by case alone is."""
        with self.database.transaction() as connection:
            added = connection.execute(
                "INSERT INTO people (name, role, token, created) VALUES (:name, :role, :token, @now) "
                "ON CONFLICT DO NOTHING",
                {"name": name, "role": role, "token": token_hash},
            ).rowcount
            row = connection.execute(
                "SELECT name FROM people WHERE lower(name) = lower(:name)", {"name": name}
            ).fetchone()
        if not added:
            known = row[0] if row else name
            raise TeamError(
                f"there is a person {known!r} already; `forge people remove {known}` first, then add them again",
                "PERSON_EXISTS",
            )

    def people(self) -> list[dict[str, Any]]:
        """By name; `token` is the hash of the token."""
        rows = self.database.read("SELECT name, role, token, created FROM people ORDER BY name")
        return [dict(zip(("name", "role", "token", "created"), row, strict=True)) for row in rows]

    def remove_person(self, name: str, *, keep_admin: bool = False) -> None:
        """Their token is worth nothing from now on. Raises TeamError where there is none. `keep_admin`: and for
        the only admin, after whom nobody could manage people at the team's address."""
        with self.database.transaction() as connection:
            connection.lock("people")  # two admins may remove each other at once
            rows = connection.execute("SELECT name FROM people WHERE role = 'admin'").fetchall()
            if keep_admin and rows == [(name,)]:
                raise TeamError(
                    f"{name} is the only admin. Add another one first: `forge people add NAME --role admin`.",
                    "STORE_ADMIN",
                )
            removed = connection.execute("DELETE FROM people WHERE name = :name", {"name": name}).rowcount
            forget_person(connection, name)
            connection.notify(CHANNEL, "")
        if not removed:
            raise TeamError(f"no person {name!r}; `forge people list` shows them", "PERSON_NOT_FOUND")

    def refuse(self, person: str, door: str, action: str, what: str) -> None:
        """Records that somebody tried what their role does not allow."""
        with self.database.transaction() as connection:
            connection.execute(
                "INSERT INTO refusals (at, person, door, action, what) VALUES (@now, :person, :door, :action, :what)",
                {"person": person, "door": door, "action": action, "what": what},
            )
            connection.execute(
                "DELETE FROM refusals WHERE person = :person AND at < (SELECT at FROM refusals WHERE person = :person "
                "ORDER BY at DESC LIMIT 1 OFFSET :most)",
                {"person": person, "most": REFUSALS_KEPT},
            )

    def refusals(self, limit: int = 200) -> list[dict[str, Any]]:
        """The newest first."""
        rows = self.database.read(
            "SELECT at, person, door, action, what FROM refusals ORDER BY at DESC LIMIT :limit", {"limit": limit}
        )
        return [dict(zip(("at", "person", "door", "action", "what"), row, strict=True)) for row in rows]

    # ---- rules of the store

    def add_rule(self, rule: Mapping[str, Any], person: str, project: str = "") -> str:
        """A rule that counts on every runner, in one project or in all; gives its id. The same words again are the same
        rule."""
        with self.database.transaction() as connection:
            return insert_rule(connection, rule, person, project)

    def rules(self) -> list[dict[str, Any]]:
        """Oldest first: `id`, `rule`, `person` (its author), `created`, `project` (empty: all)."""
        names = ("id", "rule", "person", "created", "project")
        rows = self.database.read("SELECT id, rule, person, created, project FROM rules ORDER BY created, id")
        found = [dict(zip(names, row, strict=True)) for row in rows]
        rules = [each | {"rule": json.loads(each["rule"])} for each in found]
        return [each | {"id": _id_in_log(each["rule"])} for each in rules]

    def remove_rule(self, rule_id: str, projects: Collection[str] | None = None) -> None:
        """By the id that the log says, or by that of its row. `projects`: only one of these."""
        with self.database.transaction() as connection:
            rows = connection.execute("SELECT id, rule, project FROM rules").fetchall()
            known = [each for each in rows if projects is None or each[2] in projects]
            removed = [row for row, rule, _ in known if rule_id in (row, _id_in_log(json.loads(rule)))]
            for row in removed:
                connection.execute("DELETE FROM rules WHERE id = :id", {"id": row})
            connection.notify(CHANNEL, "")
        if not removed:
            raise TeamError(f"no rule {rule_id!r} here; `forge rules list --store` shows them", "RULE_NOT_FOUND")


def _id_in_log(written: Mapping[str, Any]) -> str:
    """As decisions name the rule."""
    given = written.get("id")
    return given if isinstance(given, str) and given else rule_id(dict(written))


def insert_rule(connection: StoreConnection, rule: Mapping[str, Any], person: str, project: str = "") -> str:
    """In a transaction of the caller's."""
    words = json.dumps(dict(rule), sort_keys=True)
    row_id = sha256(f"{words}{project}".encode()).hexdigest()[:16]
    connection.execute(
        "INSERT INTO rules (id, rule, person, created, project) VALUES (:id, :rule, :person, @now, :project) "
        "ON CONFLICT DO NOTHING",
        {"id": row_id, "rule": words, "person": person, "project": project},
    )
    connection.notify(CHANNEL, "")
    return _id_in_log(rule)
