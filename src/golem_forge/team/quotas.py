"""Quotas: what a project, or a person in it, may spend and start in a day.

A quota bounds a day's cost of models in US dollars, the sessions that are started, or both. It is for one project or
for all of them, and for everybody together, for each person, or for one. A day is one of UTC, by the database's clock.
A start is judged where a session is queued, whoever does it: a person, a batch, a schedule. The cost is judged before
each request: what the request can cost at most is set aside first, so that sessions on several runners cannot spend the
same money, and what it took is noted afterwards, for the day on which that was. Without a quota nothing is noted.

All methods block; they are called in threads. Who may call them is judged in `people.py`.
"""

from __future__ import annotations

import asyncio
from typing import Any, Final

from golem_forge.agent.budget import BudgetExceeded
from golem_forge.core.lazy_dataclass import dataclass
from golem_forge.team.audit import NOBODY, Actor, record
from golem_forge.team.database import Database, StoreConnection, StoreUnavailable, TeamError
from golem_forge.team.rows import StoredSession

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
