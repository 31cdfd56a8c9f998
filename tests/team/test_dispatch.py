"""Sessions in PostgreSQL come to runners by jobs; the session's row decides who gets one."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from tests.deadlines import PATIENCE

from golem_forge.team.database import PostgresDatabase, TeamError
from golem_forge.team.dispatch import DispatchThread, queue_name
from golem_forge.team.rows import FINISHED, Append, NewSession
from golem_forge.team.schema import upgrade
from golem_forge.team.store import Store

from .postgres import PostgresServer

LONG = "host:" + "a-very-long-name." * 6


def new(**given: Any) -> NewSession:
    return NewSession(**{"facts": {}, "input": "go"} | given)


def jobs(store: Store) -> list[tuple[str, str, str]]:
    with store.database.transaction(write=False) as connection:
        rows = connection.execute(
            "SELECT queueing_lock, queue_name, status::text FROM procrastinate_jobs ORDER BY id"
        ).fetchall()
    return [tuple(row) for row in rows]


async def until(look: Callable[[], Any], seconds: float = PATIENCE) -> Any:
    end = time.monotonic() + seconds
    while not (found := look()):
        assert time.monotonic() < end, "it did not come in time"
        await asyncio.sleep(0.02)
    return found


class Taker:
    """A runner's side of it: remembers what came, and keeps each session until it is let go."""

    def __init__(self) -> None:
        self.came: list[str] = []
        self.running = 0
        self.most = 0
        self.free = asyncio.Event()

    async def attend(self, session_id: str) -> None:
        self.came.append(session_id)
        self.running += 1
        self.most = max(self.most, self.running)
        await self.free.wait()
        self.running -= 1


@pytest_asyncio.fixture
async def taker() -> Taker:
    return Taker()


@contextlib.asynccontextmanager
async def dispatching(url: str, taker: Taker) -> AsyncIterator[None]:
    thread = DispatchThread(PostgresDatabase(url), ["gpu", LONG], 2, taker.attend)
    try:
        yield
    finally:
        taker.free.set()
        await asyncio.to_thread(thread.close)


@pytest.fixture
def filled(postgres_url: str, tmp_path: Path) -> Store:
    return Store.open(postgres_url, tmp_path)


async def test_a_queued_session_comes_at_once_by_label_and_not_more_than_slots(
    postgres_url: str, filled: Store, taker: Taker
) -> None:
    async with dispatching(postgres_url, taker):
        foreign = filled.queue(new(label="elsewhere"))
        first = filled.queue(new(label=LONG))
        await until(lambda: taker.came == [first])
        second = filled.queue(new(label="gpu"))
        await until(lambda: taker.came == [first, second])  # both slots are taken: what comes now waits
        third, urgent = (filled.queue(new(label="gpu", priority=each)) for each in (0, 7))
        await asyncio.sleep(0.3)
        assert taker.came == [first, second] and taker.most == 2
        taker.free.set()
        await until(lambda: len(taker.came) == 4)
        assert taker.came[2:] == [urgent, third]
        await until(lambda: jobs(filled) == [(foreign, "label elsewhere", "todo")])
        assert taker.most == 2


async def test_one_job_waits_for_a_session_however_often_it_is_woken(filled: Store) -> None:
    session_id = filled.queue(new())
    lease = filled.leases.claim("r", ())
    assert lease is not None
    filled.send(session_id, "message", {"text": "to the holder"})
    assert jobs(filled) == [(session_id, "any", "todo")]
    line = Append(session=session_id, epoch=lease.epoch, first=1, lines=())
    assert filled.leases.park(lease, line, seen=2, waits_for="")
    for text in ("a", "b", "c"):
        filled.send(session_id, "message", {"text": text})
    assert jobs(filled) == [(session_id, "any", "todo")]
    assert len(filled.arrived(session_id, 0)) == 5


async def test_a_session_that_could_not_be_queued_leaves_no_job(filled: Store) -> None:
    with pytest.raises(Exception, match="duplicate key"):
        filled.queue(new(), filled.queue(new()))
    assert len(jobs(filled)) == 1
    for _ in range(3):  # the connection that was rolled back is lent again
        filled.queue(new())
    assert len(jobs(filled)) == 4


async def test_what_has_no_job_is_found_by_the_sweep_within_limits(filled: Store) -> None:
    ids = [filled.queue(new(person="ann")) for _ in range(3)]
    leases = [filled.leases.claim("r", ()) for _ in range(2)]
    with filled.database.transaction() as connection:
        connection.execute("DELETE FROM procrastinate_jobs")
        connection.execute("UPDATE sessions SET lease_until = @now - 1 WHERE id = :id", {"id": ids[1]})
    assert filled.leases.ring_forgotten(("other",), {"per_person": 1}, 10) == 1  # the dead one's; ann has one that runs
    assert jobs(filled) == [(ids[1], "any", "todo")]
    assert filled.leases.ring_forgotten((), {"per_person": 9}, 1) == 1
    assert filled.leases.ring_forgotten((), {"per_person": 9}, 10) == 0
    assert leases[0] is not None and filled.leases.end(leases[0], FINISHED)
    assert {each[0] for each in jobs(filled)} == {ids[1], ids[2]}


async def test_a_database_that_goes_away_ends_no_session_and_jobs_come_again_afterwards(
    own_postgres: PostgresServer, own_postgres_url: str, taker: Taker, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    filled = Store.open(own_postgres_url, tmp_path)
    async with dispatching(own_postgres_url, taker):
        first = filled.queue(new())
        await until(lambda: taker.came == [first])
        began = time.monotonic()
        await asyncio.to_thread(own_postgres.stop)
        try:
            await asyncio.sleep(1.5)
        finally:
            await asyncio.to_thread(own_postgres.start)
        assert taker.running == 1

        def queued() -> str:
            with contextlib.suppress(TeamError):
                return filled.queue(new())
            return ""

        second = await until(queued)
        await until(lambda: second in taker.came)
        said = [each for each in caplog.records if each.levelname == "WARNING"]
        assert len(said) <= time.monotonic() - began + 1
        assert "not-in-any-output" not in caplog.text and "Traceback" not in caplog.text


async def test_its_tables_are_made_once_and_moved_to_what_is_installed(filled: Store) -> None:
    def applied() -> str:
        with filled.database.transaction(write=False) as connection:
            found: str = connection.execute("SELECT value FROM meta WHERE key = 'procrastinate'").fetchone()[0]
        return found

    newest = applied()
    assert newest.endswith(".sql")
    upgrade(filled.database)
    assert applied() == newest


def test_a_queues_name_fits_into_a_channel() -> None:
    labels = ["", "any", "gpu", LONG, LONG + "x", "ü" * 20, "x" * 25]
    names = [queue_name(label) for label in labels]
    assert len(set(names)) == len(labels)
    assert all(len(f"procrastinate_queue_v1#{name}".encode()) < 63 for name in names)
