"""Quotas of a day, by project and person: what is refused before a start, and before a request."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import pytest
from tests.ready import ReadyForge
from tests.team.background import Program, ended, running

from golem_forge.agent.budget import BudgetExceeded
from golem_forge.net.server_guard import secret_hash
from golem_forge.team import quotas
from golem_forge.team.database import TeamError
from golem_forge.team.people import ALL_PROJECTS, OwnerStore, PersonStore, Role, add_person
from golem_forge.team.quotas import EACH, EVERYBODY, NO_LIMIT, Quota, QuotaUnpriced, SessionSpending
from golem_forge.team.rows import NewSession, StoredSession, program_id
from golem_forge.team.schedules import NewSchedule
from golem_forge.team.store import Store


@dataclass
class Calendar:
    """The day of quotas stands still, so that no test differs at midnight, until a test turns the page."""

    day: int


@pytest.fixture(autouse=True)
def calendar(monkeypatch: pytest.MonkeyPatch) -> Calendar:
    made = Calendar(int(time.time() // 86400))
    monkeypatch.setattr(quotas, "_today", lambda _: made.day)
    return made


def queued(store: Store, person: str, program: str = "shop") -> StoredSession:
    new = NewSession(facts={}, input="x", person=person, program=program, project=program)
    return store.find(store.queue(new))


@pytest.mark.parametrize(
    ("quota", "counted"),
    [
        (Quota(project="shop", person=EVERYBODY, sessions=2), [("bob", "shop"), ("eve", "shop")]),
        (Quota(project="shop", person=EACH, sessions=2), [("bob", "shop"), ("bob", "shop")]),
        (Quota(project="shop", person="bob", sessions=2), [("bob", "shop"), ("bob", "shop")]),
        (Quota(project="", person="bob", sessions=2), [("bob", "shop"), ("bob", "bank")]),
        (Quota(project="", person=EVERYBODY, sessions=2), [("bob", "shop"), ("eve", "bank")]),
    ],
)
def test_a_start_beyond_the_quota_of_sessions_is_refused(
    store: Store, calendar: Calendar, quota: Quota, counted: list[tuple[str, str]]
) -> None:
    for person, program in counted:
        queued(store, person, program)
    store.quotas.set(quota)
    with pytest.raises(TeamError, match="2 sessions were started today, and it is 2 a day") as refused:
        queued(store, "bob")
    assert refused.value.code == "QUOTA"
    if quota.person not in (EVERYBODY,):
        queued(store, "ann")  # it is not hers
    store.quotas.set(Quota(project=quota.project, person=quota.person, sessions=5))
    queued(store, "bob")
    calendar.day += 2  # the next day, also for what was queued at midnight
    store.quotas.set(Quota(project=quota.project, person=quota.person, sessions=1))
    queued(store, "bob")


def test_twenty_who_start_at_once_do_not_start_more_than_the_quota(store: Store) -> None:
    queued(store, "eve")
    store.quotas.set(Quota(project="shop", person=EACH, sessions=3))

    def start(_: int) -> str:
        try:
            return queued(store, "bob").state
        except TeamError as error:
            return error.code

    with ThreadPoolExecutor(8) as pool:
        assert Counter(pool.map(start, range(20))) == {"queued": 3, "QUOTA": 17}


def test_a_day_of_quotas_is_one_of_utc_by_the_databases_clock(
    store: Store, monkeypatch: pytest.MonkeyPatch, calendar: Calendar
) -> None:
    monkeypatch.undo()
    with store.database.transaction(write=False) as connection:
        before = store.now()
        found = quotas._today(connection)
        assert before // 86400 <= found <= store.now() // 86400


def test_requests_of_several_sessions_do_not_spend_the_same_money(store: Store, calendar: Calendar) -> None:
    first, second = queued(store, "bob"), queued(store, "bob")
    other = queued(store, "eve")
    store.quotas.set(Quota(project="shop", person=EACH, cost=1.0))
    assert store.quotas.hold(first, 0.1, 0.7) == pytest.approx(0.7)
    assert store.quotas.hold(second, 0.1, 0.7) == pytest.approx(0.3)  # what is left
    with pytest.raises(BudgetExceeded, match="the quota of a day for bob in this project"):
        store.quotas.hold(second, 0.1, 0.1)
    assert store.quotas.hold(other, 0.1, 0.7) == pytest.approx(0.7)
    store.quotas.settle(first, 0.7, 0.2)
    store.quotas.settle(second, 0.3, 0.3)
    assert store.quotas.hold(second, 0.1, 0.7) == pytest.approx(0.5)
    store.quotas.release(second)  # its runner died
    store.quotas.settle(second, 0.0, 0.5)
    with pytest.raises(TeamError, match=r"\$1.00 were spent today, and it is \$1.00 a day"):
        queued(store, "bob")
    calendar.day += 1
    assert store.quotas.hold(second, 0.1, 0.7) == pytest.approx(0.7)
    calendar.day -= 1
    with pytest.raises(QuotaUnpriced):
        store.quotas.hold(other, None, 0.0)
    store.quotas.set(Quota(project="shop", person=EACH))
    assert asyncio.run(SessionSpending(store.quotas, first).hold(None, 0.0)) is None
    queued(store, "bob")


def test_a_request_over_midnight_counts_for_the_day_on_which_its_money_was_set_aside(
    store: Store, calendar: Calendar
) -> None:
    """Threat: what it gives back would be room that the next day does not have."""
    session = queued(store, "bob")
    store.quotas.set(Quota(project="shop", person=EACH, cost=1.0))
    assert store.quotas.hold(session, 0.1, 0.7) == pytest.approx(0.7)
    calendar.day += 1
    assert store.quotas.hold(session, 0.1, 0.4) == pytest.approx(0.4)
    store.quotas.settle(session, 0.7, 0.6)
    store.quotas.settle(session, 0.4, 0.2)
    assert store.quotas.hold(session, 0.1, 2.0) == pytest.approx(0.8)
    calendar.day -= 1
    assert store.quotas.hold(session, 0.1, 2.0) == pytest.approx(0.4)


def test_a_schedule_beyond_the_quota_skips_its_tick_and_says_why(store: Store) -> None:
    queued(store, "bob")
    session = NewSession(facts={}, input="x", person="bob", program="shop")
    store.schedules.add(NewSchedule(cron="* * * * *", name="often", session=session))
    store.quotas.set(Quota(project="shop", person="bob", sessions=1))
    with store.database.transaction() as connection:
        connection.execute("UPDATE schedules SET next_tick = next_tick - 120, created = created - 300")
    store.schedules.start_due()
    assert len(store.sessions()) == 1
    assert "The quota of bob in this project is used up" in store.schedules.find("often").note


def test_who_may_set_which_quota(store: Store) -> None:
    def person(name: str, role: Role) -> PersonStore:
        return PersonStore(store, secret_hash(add_person(store, name, role)), "api")

    ann, bob, pat = person("ann", Role.ADMIN), person("bob", Role.OPERATOR), person("pat", Role.NONE)
    queued(store, "bob"), queued(store, "bob", "bank")
    store.projects.grant("shop", "pat", "admin")
    pat.set_quota("shop", "bob", NO_LIMIT, 3)
    ann.set_quota(ALL_PROJECTS, EVERYBODY, 50.0, NO_LIMIT)
    for who, project in ((bob, "shop"), (pat, "bank"), (pat, ALL_PROJECTS)):
        with pytest.raises(TeamError) as refused:
            who.set_quota(project, EVERYBODY, 1000.0, NO_LIMIT)
        assert refused.value.code in ("ROLE", "PROJECT_NOT_FOUND")
    with pytest.raises(TeamError, match="no person 'nobody'"):
        ann.set_quota("shop", "nobody", 1.0, NO_LIMIT)
    for cost, sessions in ((-0.5, 1), (float("inf"), 1), (float("nan"), 1), (1.0, -2)):
        with pytest.raises(TeamError, match="a quota is dollars"):
            ann.set_quota("shop", EACH, cost, sessions)
    assert [(each["project"], each["person"], each["used_sessions"]) for each in pat.quotas()] == [("shop", "bob", 1)]
    assert [each["project"] for each in ann.quotas()] == ["*", "shop"]
    assert bob.quotas() == []
    assert [each.kind for each in store.accounts.audit.records(kind="quota changed")] == ["quota changed"] * 2
    ann.remove_person("bob")
    assert [each.person for each in store.quotas.all()] == [EVERYBODY]
    assert OwnerStore(store, "root", "cli").quotas()[0]["cost"] == 50.0


def test_the_owner_of_a_store_without_quotas_notes_nothing(store: Store, tmp_path: Path) -> None:
    session = queued(store, "bob")
    assert asyncio.run(SessionSpending(store.quotas, session).hold(0.1, 0.2)) is None
    assert store.database.read("SELECT count(*) FROM spent") == [(0,)]


async def test_a_session_ends_its_run_before_the_request_that_would_spend_beyond_the_quota(
    tmp_path: Path, ready_forge: ReadyForge
) -> None:
    """One whole session: the first request fits, the second does not. A model without a price is refused."""
    program = Program(tmp_path / "shop", tmp_path / "home", ready=ready_forge, tools=False)
    settings = program.home / "config.yaml"
    yaml = settings.read_text()
    price = 'pricing: {"scripted:script.yaml": {input: 1.0, output: 1000.0}}\n'
    settings.write_text(yaml + price)
    took = {"input": 1000, "output": 400}
    program.play({"say": "I look.", "calls": [READ], "usage": took}, {"say": "done", "usage": took})
    store = program.store()
    owner = program_id(program.folder)
    store.projects.add(owner, "shop")
    store.quotas.set(Quota(project=owner, person=EVERYBODY, cost=0.401))
    async with running(program):
        row = await ended(store, store.queue(new_session(program, "scripted:script.yaml")))
        assert (row.state, row.cost) == ("failed", pytest.approx(0.401))
        assert "the quota of a day for everybody together in this project" in row.error
        assert store.quotas.used(store.quotas.all()[0])[0] == pytest.approx(0.401)
        assert store.database.read("SELECT sum(held) FROM spent") == [(0.0,)]
        with pytest.raises(TeamError, match="is used up"):
            store.queue(new_session(program, "scripted:script.yaml"))
        store.quotas.set(Quota(project=owner, person=EVERYBODY, cost=5.0))
        row = await ended(store, store.queue(new_session(program, "scripted:script.yaml")))
        assert row.state == "finished"
        settings.write_text(yaml)
        row = await ended(store, store.queue(new_session(program, "scripted:script.yaml")))
        assert row.state == "failed" and "the price of this model is not known" in row.error


READ = {"tool": "list_files", "args": {"path": "/work"}}


def new_session(program: Program, model: str) -> NewSession:
    facts = {"directory": str(program.folder), "model": model}
    return NewSession(facts=facts, input="go", person="bob", program=program_id(program.folder))
