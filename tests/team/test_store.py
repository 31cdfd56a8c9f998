"""The rules of the store, on SQLite and on PostgreSQL: who gets a session, what is refused, what wakes it."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pytest
from tests.deadlines import LONG, PATIENCE

from golem_forge.events.journal_files import seal_records
from golem_forge.team import database as databases
from golem_forge.team import schema
from golem_forge.team.audit import AuditHead, verify_records
from golem_forge.team.database import PostgresDatabase, StoreUnavailable, TeamError, open_database
from golem_forge.team.rows import (
    ANSWERED,
    EXPIRED,
    FINISHED,
    QUEUED,
    RUNNING,
    STOPPED,
    WAITING,
    Append,
    Lease,
    NewSession,
    SessionEnding,
)
from golem_forge.team.schema import PAGE, RUNNER, SCHEMA_VERSION, check_version, describe_server, grant_role, upgrade
from golem_forge.team.store import Store

R1, R2 = "runner-one", "runner-two"


def new(**given: Any) -> NewSession:
    return NewSession(**{"facts": {"directory": "/srv/secret-place"}, "input": "go"} | given)


def claimed(store: Store, runner: str = R1, session_id: str = "", **given: Any) -> Lease:
    lease = store.leases.claim(runner, given.pop("labels", ()), session_id=session_id, **given)
    assert lease is not None
    return lease


def lines(count: int, after: int = 0, hash: str = "", said: str = "x") -> tuple[bytes, ...]:
    data, _, _ = seal_records([f'"type":"{said}"'] * count, after, hash)
    return tuple(line + b"\n" for line in data.splitlines())


def appended(lease: Lease, first: int = 1, count: int = 1, **given: Any) -> Append:
    return Append(session=lease.id, epoch=lease.epoch, first=first, lines=lines(count, first - 1, **given))


def card(question: str, **given: Any) -> dict[str, Any]:
    return {"requestId": question, "toolCallId": "c1", "type": "edit", "tool": "write_file", "risk": "medium"} | given


def kept_output(store: Store, session_id: str, handle: str) -> tuple[str, list[bytes]]:
    found = store.output(session_id, handle)
    assert found is not None
    return found[0], list(found[1])


def run_out(store: Store, lease: Lease) -> None:
    """As if the lease had not been renewed for its time."""
    with store.database.transaction() as connection:
        connection.execute("UPDATE sessions SET lease_until = @now - 1 WHERE id = :id", {"id": lease.id})


# ---- taking


def test_sessions_are_taken_by_priority_then_age_and_only_once(store: Store) -> None:
    first, second = store.queue(new()), store.queue(new())
    urgent = store.queue(new(priority=5))
    assert [claimed(store).id for _ in range(3)] == [urgent, first, second]
    assert store.leases.claim(R2, ()) is None
    assert {row.state for row in store.sessions()} == {RUNNING}
    assert claimed_facts(store, first) == {"directory": "/srv/secret-place"}


def claimed_facts(store: Store, session_id: str) -> dict[str, Any]:
    return dict(store.facts(session_id))


def test_a_label_is_for_runners_that_have_it(store: Store) -> None:
    names = ["gpu's", "host:box", "@now %s ü", "x" * 100]
    labelled, free = [store.queue(new(label=name)) for name in names], store.queue(new())
    assert claimed(store, labels=["other"]).id == free
    assert store.leases.claim(R1, ["other"]) is None
    assert [claimed(store, labels=["other", name]).id for name in names] == labelled


def test_limits_of_a_person_and_of_a_program_hold_and_a_death_counts_no_more(store: Store) -> None:
    limits = {"per_person": 2, "per_program": 3}
    for person in ("ann", "ann", "ann", "ben", "ben"):
        store.queue(new(person=person, program="shop"))
    taken = [claimed(store, limits=limits) for _ in range(3)]
    assert [lease.session.person for lease in taken] == ["ann", "ann", "ben"]
    assert store.leases.claim(R1, (), limits=limits) is None
    assert store.leases.end(taken[0], FINISHED)
    assert claimed(store, limits=limits).session.person == "ann"
    run_out(store, taken[2])
    assert claimed(store, R2, limits=limits).id == taken[2].id


def test_limits_hold_when_many_ask_at_once(store: Store) -> None:
    for _ in range(12):
        store.queue(new(person="ann"))
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(lambda _: store.leases.claim(R1, (), limits={"per_person": 3}), range(24)))
    assert sum(lease is not None for lease in found) == 3


def test_twenty_runners_at_once_take_each_session_once(store: Store) -> None:
    queued = {store.queue(new()) for _ in range(30)}

    def take_all(number: int) -> list[str]:
        found = []
        while (lease := store.leases.claim(f"runner-{number}", ())) is not None:
            found.append(lease.id)
        return found

    with ThreadPoolExecutor(20) as pool:
        taken = [each for found in pool.map(take_all, range(20)) for each in found]
    assert len(taken) == len(set(taken))
    left = queued - set(taken)  # PostgreSQL passes over a row that another one is looking at; the sweep comes back
    assert {lease.id for _ in left if (lease := store.leases.claim(R1, ())) is not None} == left


def test_only_the_named_session_is_taken_and_a_ring_too_many_finds_nothing(store: Store) -> None:
    one, other = store.queue(new()), store.queue(new())
    assert claimed(store, session_id=other).id == other
    assert store.leases.claim(R2, (), session_id=other) is None
    assert claimed(store, session_id=one).id == one


# ---- the fence


def test_an_append_with_an_old_epoch_is_refused_and_leaves_nothing(store: Store) -> None:
    store.queue(new())
    old = claimed(store)
    assert store.append([appended(old)]) == {}
    run_out(store, old)
    taken = claimed(store, R2)
    assert taken.epoch == old.epoch + 1
    assert store.append([appended(old, first=2, said="late")]) == {old.id: "another runner has taken this session over"}
    assert [n for n, _ in store.lines(old.id)] == [1]
    assert store.append([appended(taken, first=2)]) == {}
    assert store.leases.renew(R1, {old.id: old.epoch}) == {}
    assert not store.leases.end(old, FINISHED)
    with pytest.raises(TeamError, match="taken session"):
        store.leases.park(old, appended(old, first=2), seen=1, waits_for="")
    with pytest.raises(TeamError, match="taken session"):
        store.questions.ask(old, card("q-late"), kind="approval")
    assert store.find(old.id).state == RUNNING


def test_a_commit_whose_answer_was_lost_is_made_again_and_other_lines_are_refused(store: Store) -> None:
    store.queue(new())
    lease = claimed(store)
    three = appended(lease, count=3)
    assert store.append([three]) == {}
    assert store.append([three]) == {}
    more = Append(session=lease.id, epoch=lease.epoch, first=1, lines=(*three.lines, *lines(1, 3)))
    assert store.append([more]) == {}
    assert [line for _, line in store.lines(lease.id)] == list(more.lines)
    other = appended(lease, first=4, said="other")
    assert store.append([other]) == {lease.id: "its journal was written by another process"}
    assert [line for _, line in store.lines(lease.id)] == list(more.lines)


def test_lines_after_a_gap_are_refused(store: Store) -> None:
    """A database that forgot a commit (a replica that was behind) must not get a journal with a hole."""
    lease = claimed(store, session_id=store.queue(new()))
    store.append([Append(session=lease.id, epoch=lease.epoch, first=1, lines=(*lines(1, said="run"),))])
    assert store.append([appended(lease, first=3)]) == {
        lease.id: "the database has lost lines of its journal that it had taken"
    }
    assert store.append([appended(lease, first=2)]) == {}
    assert [n for n, _ in store.lines(lease.id)] == [1, 2]


def test_one_refused_session_does_not_hurt_the_others_of_a_commit(store: Store) -> None:
    for _ in range(3):
        store.queue(new())
    leases = [claimed(store) for _ in range(3)]
    store.append([appended(leases[1], said="first")])
    refused = store.append([appended(lease, count=2) for lease in leases])
    assert list(refused) == [leases[1].id]
    assert [len(store.lines(lease.id)) for lease in leases] == [2, 1, 2]


def test_renewing_and_appending_many_sessions_at_once_never_block_each_other(store: Store) -> None:
    for _ in range(8):
        store.queue(new())
    leases = [claimed(store) for _ in range(8)]
    held = {lease.id: lease.epoch for lease in leases}

    def renew_often() -> set[int]:
        return {len(store.leases.renew(R1, held)) for _ in range(25)}

    def append_often() -> list[dict[str, str]]:
        rows = leases[::-1]
        return [store.append([appended(lease, first=number) for lease in rows]) for number in range(1, 26)]

    with ThreadPoolExecutor(2) as pool:
        renewed, written = pool.submit(renew_often), pool.submit(append_often)
        assert renewed.result() == {8}
        assert written.result() == [{}] * 25


def test_what_is_recorded_cannot_be_changed_or_deleted(store: Store) -> None:
    lease = claimed(store, session_id=store.queue(new()))
    output = (("h1", "w", 0, b"kept"),)
    both = (*lines(1, said="run"), *lines(1, 1))
    store.append([Append(session=lease.id, epoch=lease.epoch, first=1, lines=both, outputs=output)])
    for table in ("journal", "journal_private", "outputs"):
        for verb in ("UPDATE {0} SET session = 'z'", "DELETE FROM {0}"):
            with pytest.raises(TeamError, match="append only"), store.database.transaction() as connection:
                connection.execute(verb.format(table))
    assert len(store.lines(lease.id)) == 2
    assert kept_output(store, lease.id, "h1") == ("w", [b"kept"])


def test_lines_with_host_paths_are_in_a_table_of_their_own(store: Store) -> None:
    store.queue(new())
    lease = claimed(store)
    both = (*lines(1, said="run"), *lines(2, 1))
    store.append([Append(session=lease.id, epoch=lease.epoch, first=1, lines=both)])
    assert store.lines(lease.id) == list(enumerate(both, start=1))
    assert [n for n, _ in store.lines(lease.id, private=False)] == [2, 3]
    assert [n for n, _ in store.lines(lease.id, 1, limit=1)] == [2]


# ---- parking and waking


def test_parking_gives_the_session_away_unless_something_arrived(store: Store) -> None:
    store.queue(new())
    lease = claimed(store)
    store.send(lease.id, "message", {"text": "more"}, "ann", "cli")
    assert not store.leases.park(lease, appended(lease), seen=1, waits_for="an answer")
    assert store.lines(lease.id) == []
    assert store.leases.park(lease, appended(lease), seen=2, waits_for="an answer")
    row = store.find(lease.id)
    assert (row.state, row.runner, row.waits_for, row.wake) == (WAITING, "", "an answer", 0)
    assert store.leases.claim(R2, ()) is None
    store.send(lease.id, "message", {"text": "wake"}, "ann", "cli")
    again = claimed(store, R2)
    assert again.epoch == lease.epoch + 1
    assert [(each.number, each.data["text"]) for each in store.arrived(lease.id, 1)] == [(2, "more"), (3, "wake")]


def test_an_answer_at_the_very_moment_of_parking_is_not_lost(store: Store) -> None:
    for number in range(10):
        session_id = store.queue(new())
        lease = claimed(store, session_id=session_id)
        store.questions.ask(lease, card(f"q-{number}"), kind="approval")

        def park(lease: Lease = lease) -> bool:
            return store.leases.park(lease, appended(lease), seen=1, waits_for="an answer")

        def answer(number: int = number) -> str:
            return store.questions.answer(f"q-{number}", {"approved": True}, "ann", "cli").state

        with ThreadPoolExecutor(2) as pool:
            parking, answering = pool.submit(park), pool.submit(answer)
            assert answering.result() == ANSWERED
        if parking.result():
            assert claimed(store, R2, session_id=session_id).epoch == lease.epoch + 1
        else:
            assert store.leases.news([session_id])[session_id][1] == 2


def test_the_last_lines_may_be_written_by_two_at_once(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """A session ends while the thread that commits writes the same lines: neither waits for the other in a circle."""
    store.queue(new())
    lease = claimed(store)
    last = appended(lease, count=3)
    insert = store.journals.insert_in
    is_first = [True]
    inside = threading.Event()

    def insert_and_linger(*words: Any, **more: Any) -> str | None:
        lingers = is_first.pop() if is_first else False
        found = insert(*words, **more)
        if lingers:
            inside.set()
            time.sleep(0.3)
        return found

    monkeypatch.setattr(store.journals, "insert_in", insert_and_linger)
    with ThreadPoolExecutor(2) as pool:
        ending = pool.submit(store.leases.end, lease, SessionEnding(state=FINISHED, last=last))
        assert inside.wait(PATIENCE)
        appending = pool.submit(store.append, [last])
        assert ending.result() is True
        assert appending.result() == {}
    assert [number for number, _ in store.lines(lease.id)] == [1, 2, 3]


def test_given_back_sessions_are_queued_and_held_ones_are_succeeded_after_a_death(store: Store) -> None:
    store.queue(new())
    lease = claimed(store)
    store.leases.give_back(lease)
    assert store.find(lease.id).state == QUEUED
    lease = claimed(store)
    store.leases.hold(lease, True, "a form")
    assert store.find(lease.id).shown_state == "waiting (held)"
    assert store.leases.claim(R2, ()) is None
    run_out(store, lease)
    assert claimed(store, R2).id == lease.id


def test_stop_settles_what_nobody_holds_and_tells_the_holder_of_the_rest(store: Store) -> None:
    held, waits, queued = (store.queue(new()) for _ in range(3))
    running, parked = claimed(store, session_id=held), claimed(store, session_id=waits)
    store.questions.ask(parked, card("q-1"), kind="approval")
    store.leases.park(parked, appended(parked), seen=1, waits_for="")
    assert [store.stop(each, "ann", "cli") for each in (held, waits, queued)] == [RUNNING, WAITING, QUEUED]
    assert [store.find(each).state for each in (held, waits, queued)] == [RUNNING, STOPPED, STOPPED]
    assert store.leases.news([held])[held] == (True, 2, running.epoch)
    assert store.leases.renew(R1, {held: running.epoch})[held] == (True, 2)
    assert store.questions.rows() == []
    assert store.leases.claim(R1, ()) is None
    with pytest.raises(TeamError, match="has ended"):
        store.send(queued, "message", {"text": "x"})


# ---- questions


def test_the_first_answer_counts_of_two_hundred(store_url: str, store: Store, tmp_path: Path) -> None:
    lease = claimed(store, session_id=store.queue(new()))
    store.questions.ask(lease, card("q-1"), kind="approval")

    def answer_often(number: int) -> list[str]:
        own = Store.open(store_url, tmp_path)
        said = []
        for turn in range(10):
            try:
                own.questions.answer("q-1", {"approved": True, "reason": f"{turn}"}, f"person-{number}", "cli")
                said.append("counted")
            except TeamError as error:
                said.append(error.code)
        own.close()
        return said

    with ThreadPoolExecutor(20) as pool:
        said = [each for found in pool.map(answer_often, range(20)) for each in found]
    assert sorted(said) == ["QUESTION_ANSWERED"] * 199 + ["counted"]
    found = store.questions.find("q-1")
    assert found.state == ANSWERED
    assert found.person.startswith("person-") and found.door == "cli"
    assert [each.kind for each in store.arrived(lease.id, 1)] == ["answer"]


def test_a_question_asked_again_is_the_same_one_with_its_answer(store: Store) -> None:
    lease = claimed(store, session_id=store.queue(new()))
    assert store.questions.ask(lease, card("q-1", payload="write a.txt\nmore"), kind="approval").state == "open"
    assert store.questions.rows()[0].title == "write_file: write a.txt"
    store.questions.answer("q-1", {"approved": False, "reason": "no"}, "ann", "page")
    again = store.questions.ask(lease, card("q-1"), kind="approval")
    assert (again.state, again.answer, again.person) == (ANSWERED, {"approved": False, "reason": "no"}, "ann")
    store.questions.withdraw(lease, "q-1")
    assert store.questions.find("q-1").state == ANSWERED
    store.questions.ask(lease, card("q-2", toolCallId="c2"), kind="approval")
    store.questions.withdraw_others(lease, ["it's", ":c9", "c2"])
    assert store.questions.find("q-2").state == "open"
    store.questions.withdraw_others(lease, [])
    with pytest.raises(TeamError, match="was withdrawn"):
        store.questions.answer("q-2", {"approved": True})
    with pytest.raises(TeamError, match="no question"):
        store.questions.answer("q-3", {"approved": True})


def test_an_expired_question_is_denied_by_the_databases_clock_and_wakes_its_session(store: Store) -> None:
    leases = [claimed(store, session_id=store.queue(new())) for _ in range(2)]
    for number, lease in enumerate(leases):
        store.questions.ask(lease, card(f"q-{number}"), kind="approval", expires_in=LONG)
        store.questions.ask(lease, card(f"later-{number}"), kind="approval", expires_in=300)
        assert store.leases.park(lease, appended(lease), seen=1, waits_for="an answer")
    assert store.leases.claim(R2, ()) is None
    with store.database.transaction() as connection:
        for number in range(2):
            over = {"id": f"q-{number}", "over": LONG}
            connection.execute("UPDATE questions SET expires = expires - :over WHERE id = :id", over)
    with pytest.raises(TeamError, match="has expired and was denied"):
        store.questions.answer("q-0", {"approved": True}, "ann", "cli")
    store.questions.expire()  # as a runner does that looks
    assert {claimed(store, R2).id for _ in leases} == {lease.id for lease in leases}
    assert store.questions.find("q-1").state == EXPIRED
    assert [each.id for each in store.questions.rows()] == ["later-0", "later-1"]
    assert store.arrived(leases[0].id, 1)[0].kind == "expired"


# ---- keeping


def test_pruning_leaves_id_count_and_last_hash_of_what_ended_long_ago(store: Store) -> None:
    kept, gone = claimed(store, session_id=store.queue(new())), claimed(store, session_id=store.queue(new()))
    for lease in (kept, gone):
        run = lines(1, said="run")
        hash = json.loads(run[0])["hash"]
        rows = Append(session=lease.id, epoch=lease.epoch, first=1, lines=(*run, *lines(1, 1, hash)))
        store.append([rows])
        store.questions.ask(lease, card(f"q-{lease.id}"), kind="approval")
    last = json.loads(store.lines(gone.id)[-1][1])["hash"]
    store.leases.end(gone, FINISHED)
    assert store.prune(3600) == 0
    time.sleep(0.05)
    assert store.prune(0.01) == 1
    assert [row.id for row in store.sessions()] == [kept.id]
    assert store.lines(gone.id) == [] and len(store.lines(kept.id)) == 2
    with store.database.transaction() as connection:
        assert tuple(connection.execute("SELECT session, lines, hash FROM pruned").fetchone()) == (gone.id, 2, last)
    with pytest.raises(TeamError, match="append only"), store.database.transaction() as connection:
        connection.execute("DELETE FROM journal")


def test_runners_are_seen_while_they_renew(store: Store) -> None:
    store.runners.register(R1, host="h", pid=1, slots=2, labels=["a"], version="1", offers={"x": 1})
    store.runners.drain(R1)
    (found,) = store.runners.seen()
    assert (found["id"], found["labels"], found["offers"], found["draining"]) == (R1, ["a"], {"x": 1}, 1)
    assert store.counts()["runners"] == 1
    store.runners.unregister(R1)
    assert store.runners.seen() == []


def test_large_outputs_and_any_byte_come_back_as_they_were(store: Store) -> None:
    lease = claimed(store, session_id=store.queue(new(input="π 🙂 %s %% :name", person="o'hara")))
    data = bytes(range(256)) * 1024
    pieces = tuple(("h", "w", number, data) for number in range(3))
    store.append([Append(session=lease.id, epoch=lease.epoch, first=1, lines=(), outputs=pieces)])
    assert kept_output(store, lease.id, "h") == ("w", [data] * 3)
    assert store.arrived(lease.id, 0)[0].data["text"] == "π 🙂 %s %% :name"
    assert store.find(lease.id[:8]).person == "o'hara"


# ---- PostgreSQL alone


def test_a_runner_frozen_inside_a_transaction_keeps_nobody_out(
    postgres_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, patient: Callable[..., Any]
) -> None:
    store = Store.open(postgres_url, tmp_path)
    store.queue(new())
    lease = claimed(store)
    run_out(store, lease)
    lock = "SELECT 1 FROM sessions WHERE id = :id @share"
    with PostgresDatabase(postgres_url).transaction() as connection:
        connection.execute(lock, {"id": lease.id})
        assert store.leases.claim(R2, ()) is None
    monkeypatch.setattr(databases, "IDLE_TRANSACTION_S", 1)
    frozen = PostgresDatabase(postgres_url)
    with pytest.raises(StoreUnavailable), frozen.transaction() as connection:  # noqa: PT012
        connection.execute(lock, {"id": lease.id})
        assert patient(lambda: store.leases.claim(R2, ())).id == lease.id
        connection.execute("SELECT 1")
    store.close()


@pytest.fixture
def patient() -> Callable[..., Any]:
    def wait_for(look: Callable[[], Any], seconds: float = PATIENCE) -> Any:
        until = time.monotonic() + seconds
        while not (found := look()):
            assert time.monotonic() < until
            time.sleep(0.05)
        return found

    return wait_for


def test_a_store_without_tables_says_how_to_make_them(tmp_path: Path) -> None:
    empty = open_database(f"sqlite://{tmp_path}/empty.db", tmp_path)
    with pytest.raises(TeamError, match="forge store init"):
        check_version(empty)
    upgrade(empty)
    with empty.transaction() as connection:
        connection.execute("DELETE FROM meta")
    with pytest.raises(TeamError, match="forge store init"):
        check_version(empty)


def test_a_runners_role_can_run_sessions_and_change_nothing_that_is_recorded(
    postgres_url: str, roles: Callable[[str], str], tmp_path: Path
) -> None:
    address = roles('odd "runner" role')
    role = unquote(address.partition("//")[2].partition(":")[0])
    database = open_database(postgres_url, tmp_path)
    with pytest.raises(TeamError, match="There is no role"):
        grant_role(database, "nobody's", RUNNER)
    with pytest.raises(TeamError, match="need a role of their own"):
        grant_role(database, "owner", RUNNER)
    grant_role(database, role, RUNNER)
    upgrade(database)  # grants again, for tables that are new
    runner = Store.open(address, tmp_path)
    runner.runners.register(R1, host="h", pid=1, slots=1, labels=[], version="1", offers={})
    lease = claimed(runner, session_id=runner.queue(new()))
    both = (*lines(1, said="run"), *lines(1, 1))
    rows = Append(session=lease.id, epoch=lease.epoch, first=1, lines=both, outputs=(("h", "w", 0, b"x"),))
    assert runner.append([rows]) == {}
    runner.questions.ask(lease, card("q-1"), kind="approval", expires_in=60)
    runner.questions.answer("q-1", {"approved": True}, "ann", "cli")
    assert runner.leases.renew(R1, {lease.id: lease.epoch})
    assert runner.leases.ring_forgotten((), {}, 5) == 0
    with pytest.raises(TeamError, match="does not let this role"), runner.database.transaction() as connection:
        connection.execute("DELETE FROM journal")  # all that is forbidden: test_store_hostile
    runner.leases.end(lease, FINISHED)
    with pytest.raises(TeamError, match="Use the role that owns the tables"):
        runner.prune(-1)
    assert len(runner.lines(lease.id)) == 2
    with pytest.raises(TeamError, match="belongs to one account"):
        grant_role(open_database("sqlite", tmp_path), "x", PAGE)
    runner.close()
    owner = Store(database)
    assert owner.prune(-1) == 1
    database.close()


def test_the_pages_role_serves_people_and_records_no_call(
    postgres_url: str, roles: Callable[[str], str], tmp_path: Path
) -> None:
    database = open_database(postgres_url, tmp_path)
    address = roles(RUNNER)
    role = address.partition("//")[2].partition(":")[0]
    grant_role(database, role, PAGE)
    upgrade(database)  # grants what was granted last
    owner = Store(database)
    page = Store.open(address, tmp_path)
    assert describe_server(page.database)[0] == f"{role} (page)"
    assert describe_server(database)[0] == "owner (owner)"
    assert "fsync is off in PostgreSQL" in describe_server(database)[1][0], "as the tests' server has it"

    page.accounts.add_person("ann", "admin", "hash")
    page.accounts.refuse("ann", "page", "stop", "x")
    page.accounts.remove_rule(owner.accounts.add_rule({"tool": "x", "verdict": "ask"}, "ann"))
    first, second = page.queue(new()), page.queue(new())
    lease = claimed(owner, session_id=first)
    rows = Append(session=lease.id, epoch=lease.epoch, first=1, lines=lines(1))
    assert owner.append([rows]) == {}
    owner.questions.ask(lease, card("q-1"), kind="approval", expires_in=60)
    assert page.questions.answer("q-1", {"approved": True}, "ann", "page").state == "answered"
    page.send(first, "message", {"text": "go on"}, "ann", "page")
    assert page.stop(second, "ann", "page") == "queued"
    assert len(page.lines(first)) == 1
    with pytest.raises(TeamError, match="does not let this role"), page.database.transaction() as connection:
        connection.execute(f"INSERT INTO journal (session, n, line) VALUES ('{first}', 2, 'x')")
    page.accounts.remove_person("ann")
    page.close()
    database.close()


def test_a_notice_is_its_holders_and_ended_sessions_are_told_with_their_facts(store: Store) -> None:
    old, running = claimed(store, session_id=store.queue(new())), claimed(store, session_id=store.queue(new()))
    store.leases.set_notice(running, "not pushed")
    run_out(store, running)
    successor = claimed(store, R2, session_id=running.id)
    store.leases.set_notice(running, "from a runner that lost it")
    assert (successor.session.notice, store.find(running.id).notice) == ("not pushed", "not pushed")
    assert store.leases.end(old, FINISHED)
    facts = {"directory": "/srv/secret-place"}
    assert store.ended_facts() == {old.id: facts}
    assert store.ended_facts(ended_before_s=3600) == {}
    assert store.ended_facts(among=[old.id, running.id, "../other", "x' OR 1 = 1"]) == {old.id: facts}
    assert store.ended_facts(among=[running.id]) == {}
    assert store.prune(-1) == 1
    assert store.ended_facts(among=[old.id, running.id]) == {old.id: {}}, "known to be over, and nothing more"


def test_a_power_cut_takes_back_no_commit(store: Store) -> None:
    setting = {"sqlite": "PRAGMA synchronous", "postgresql": "SHOW synchronous_commit"}[store.database.kind]
    with store.database.transaction(write=False) as connection:
        assert connection.execute(setting).fetchone()[0] in (2, "on")


@pytest.mark.parametrize("kind", ["sqlite", "postgresql"])
def test_a_store_of_the_first_version_is_upgraded_and_keeps_what_is_in_it(
    kind: str, tmp_path: Path, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = f"sqlite://{tmp_path}/old/sessions.db"
    if kind == "postgresql":
        server = request.getfixturevalue("postgres")
        server.execute("CREATE DATABASE of_version_1")
        request.addfinalizer(lambda: server.execute("DROP DATABASE of_version_1 WITH (FORCE)"))
        url = server.url("of_version_1")
    database = open_database(url, tmp_path)
    with monkeypatch.context() as first:
        first.setattr(schema, "_STEPS", ())
        first.setattr(schema, "SCHEMA_VERSION", 1)
        assert upgrade(database) == (0, 1)
    kept = json.dumps({"facts": {}, "input": "x", "program": "p1"})
    with database.transaction() as connection:
        for number, directory in ((1, "/srv/shop"), (2, "/home/ann/shop"), (3, "")):
            program = f"p{number}" if directory else ""
            values = {"id": f"s{number}", "program": program, "at": float(number)}
            connection.execute(
                "INSERT INTO sessions (id, state, title, program, arrivals, created, updated) VALUES (:id, 'queued', "
                "'go', :program, 0, :at, :at)",
                values,
            )
            facts = {"id": f"s{number}", "facts": json.dumps({"directory": directory})}
            connection.execute("INSERT INTO session_facts (session, facts) VALUES (:id, :facts)", facts)
        connection.execute("INSERT INTO people (name, role, token, created) VALUES ('ann', 'operator', 'hash', 1)")
        for what in ("one", "two"):
            connection.execute("INSERT INTO refusals VALUES (@now, 'eve', 'api', 'stop', :what)", {"what": what})
        connection.execute(
            'INSERT INTO rules (id, rule, person, created) VALUES (\'r\', \'{"verdict": "preApproved", "tool": "x"}\', '
            "'ann', 1)"
        )
        connection.execute(
            "INSERT INTO schedules (id, name, cron, timezone, person, title, worker, label, session, created, "
            "next_tick) VALUES ('d', 'daily', '@daily', 'UTC', 'ann', 'x', 'w', '', :kept, 1, 9e12)",
            {"kept": kept},
        )
    assert upgrade(database) == (1, SCHEMA_VERSION)
    assert upgrade(database) == (SCHEMA_VERSION, SCHEMA_VERSION)
    database.close()
    store = Store.open(url, tmp_path)
    assert [(each.id, each.name) for each in store.projects.all()] == [("p1", "shop"), ("p2", "shop-2")]
    assert sorted(row.id for row in store.sessions()) == ["s1", "s2", "s3"]
    assert [(each["name"], each["role"]) for each in store.accounts.people()] == [("ann", "operator")]
    assert [each["project"] for each in store.accounts.rules()] == [""]
    assert [(each["person"], each["what"]) for each in store.accounts.refusals()] == [("eve", "two"), ("eve", "one")]
    told = store.accounts.audit.records()
    assert not list(verify_records(told, AuditHead())) and len(told) == 2
    assert [(each.name, each.program) for each in store.schedules.all()] == [("daily", "p1")]
    assert store.leases.claim(R1, ()) is not None
    store.close()


def test_a_runner_that_is_bound_to_projects_takes_only_their_sessions(store: Store) -> None:
    other, mine = (store.queue(new(program=each, project=each)) for each in ("bank", "shop"))
    assert store.leases.has_work((), None, ["shop"]) and not store.leases.has_work((), None, ["none"])
    assert store.leases.claim(R1, (), session_id=other, projects=["shop"]) is None
    lease = store.leases.claim(R1, (), projects=["shop"])
    assert lease is not None
    assert lease.id == mine
    assert store.leases.claim(R1, (), projects=["shop"]) is None
    assert store.leases.claim(R2, ()) is not None
