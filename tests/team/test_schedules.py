"""Sessions by the clock: cron, ticks, two runners, a clock that goes back. team.md §6, case 10."""

from __future__ import annotations

import json
import shutil
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest
from tests.team.background import Program, until, write_call
from tests.team.moved_clock import MovedClock
from tests.team.test_people import person

from golem_forge.cli.team import account_name
from golem_forge.config.store_block import NotifyHook
from golem_forge.team.database import TeamError
from golem_forge.team.people import OwnerStore, Role, add_person
from golem_forge.team.rows import NewSession
from golem_forge.team.schedules import Cron, NewSchedule, Schedule
from golem_forge.team.store import Store
from golem_forge.team.webhooks import Outbox, read_webhooks

BERLIN = ZoneInfo("Europe/Berlin")
CRON = {
    "* * * * *": ["2026-03-01 00:01", "2026-03-01 00:02"],
    "*/20 * * * *": ["2026-03-01 00:20", "2026-03-01 00:40", "2026-03-01 01:00"],
    "5/25 3 * * *": ["2026-03-01 03:05", "2026-03-01 03:30", "2026-03-01 03:55", "2026-03-02 03:05"],
    "30 7 * * mon-fri": ["2026-03-02 07:30", "2026-03-03 07:30"],
    "0 9-17/4 * * 1,3": ["2026-03-02 09:00", "2026-03-02 13:00", "2026-03-02 17:00", "2026-03-04 09:00"],
    "0 0 * * 7": ["2026-03-08 00:00"],
    "0 0 * * fri-sun": ["2026-03-06 00:00", "2026-03-07 00:00", "2026-03-08 00:00", "2026-03-13 00:00"],
    "0 0 * * sun-sun": ["2026-03-08 00:00"],
    "0 0 * * 0-0": ["2026-03-08 00:00"],
    "0 0 13 * fri": ["2026-03-06 00:00", "2026-03-13 00:00", "2026-03-20 00:00"],
    "0 0 */10 * *": ["2026-03-11 00:00", "2026-03-21 00:00", "2026-03-31 00:00", "2026-04-01 00:00"],
    "0 0 31 Jan,APR,may *": ["2026-05-31 00:00", "2027-01-31 00:00"],
    "0 12 29 2 *": ["2028-02-29 12:00", "2032-02-29 12:00"],
    "@hourly": ["2026-03-01 01:00", "2026-03-01 02:00"],
    "@daily": ["2026-03-02 00:00"],
    "@weekly": ["2026-03-08 00:00"],
    "@monthly": ["2026-04-01 00:00"],
    "@YEARLY": ["2027-01-01 00:00"],
}


def ticks(cron: Cron, after: datetime, number: int) -> list[datetime]:
    found = [after.timestamp()]
    for _ in range(number):
        found.append(cron.next(found[-1]))
    return [datetime.fromtimestamp(each, UTC) for each in found[1:]]


@pytest.mark.parametrize("text", CRON)
def test_cron_says_when(text: str) -> None:
    expected = CRON[text]
    found = ticks(Cron(text), datetime(2026, 3, 1, tzinfo=UTC), len(expected))
    assert [f"{each:%Y-%m-%d %H:%M}" for each in found] == expected


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "is not five fields"),
        ("* * * *", "is not five fields"),
        ("@reboot", "is not five fields"),
        ("60 * * * *", "'60' is no minute: use numbers from 0 to 59"),
        ("* 24 * * *", "'24' is no hour"),
        ("* * 0 * *", "'0' is no day of the month"),
        ("* * * foo *", "'foo' is no month: use numbers from 1 to 12 or a name like jan"),
        ("* * * * 8", "'8' is no day of the week"),
        ("5-1 * * * *", "'5-1' is no minute"),
        ("*/0 * * * *", "'\\*/0' is no minute"),
        ("1,,2 * * * *", "'' is no minute"),
        ("-1 * * * *", "'-1' is no minute"),
        ("٣ * * * *", "is no minute"),
        ("0 0 30 2 *", "a day that never comes"),
        ("1," * 500 + "1 * * * *", "is not five fields"),
    ],
)
def test_what_is_not_cron_is_refused_with_a_sentence(text: str, says: str) -> None:
    with pytest.raises(TeamError, match=says) as refused:
        Cron(text)
    assert refused.value.code == "SCHEDULE"
    assert len(refused.value.message) < 300


def test_a_time_that_the_clocks_skip_or_repeat_starts_once() -> None:
    """Berlin: 02:00 becomes 03:00 on 29 March 2026, 03:00 becomes 02:00 on 25 October."""
    nightly = Cron("30 2 * * *", BERLIN)
    spring = ticks(nightly, datetime(2026, 3, 28, 0, 0, tzinfo=UTC), 3)
    assert [f"{each:%d %H:%M}" for each in spring] == ["28 01:30", "29 01:30", "30 00:30"]
    autumn = ticks(nightly, datetime(2026, 10, 24, 12, tzinfo=UTC), 2)
    assert [f"{each:%d %H:%M}" for each in autumn] == ["25 00:30", "26 01:30"]
    both = ticks(Cron("30 2,3 * * *", BERLIN), datetime(2026, 3, 28, 12, tzinfo=UTC), 2)
    assert [f"{each:%d %H:%M}" for each in both] == ["29 01:30", "30 00:30"]
    hourly = ticks(Cron("0 * * * *", BERLIN), datetime(2026, 10, 24, 23, 30, tzinfo=UTC), 4)
    assert [f"{each:%d %H:%M}" for each in hourly] == ["25 00:00", "25 01:00", "25 02:00", "25 03:00"]


def test_the_latest_missed_tick_is_found_at_once_after_a_long_time() -> None:
    now = datetime(2099, 12, 31, 23, 59, 30, tzinfo=UTC).timestamp()
    for text, expected in (
        ("* * * * *", "2099-12-31 23:59"),
        ("0 0 29 2 *", "2096-02-29 00:00"),
        ("0 9 * * mon", "2099-12-28 09:00"),
    ):
        cron = Cron(text)
        found = cron.latest(now, cron.next(0.0))
        assert f"{datetime.fromtimestamp(found, UTC):%Y-%m-%d %H:%M}" == expected


def add(store: Store, cron: str = "* * * * *", name: str = "tidy", **more: object) -> Schedule:
    session = NewSession(facts={"directory": "/srv/secret"}, input="tidy up", title="tidy up", person="ada")
    store.schedules.add(NewSchedule(cron=cron, name=name, session=session, **more))  # type: ignore[arg-type]
    return store.schedules.find(name)


def test_a_schedule_is_added_listed_and_removed(store: Store) -> None:
    added = add(store, "30  7 * * mon-fri", timezone="Europe/Berlin")
    assert (added.cron, added.timezone, added.person, added.title) == (
        "30 7 * * mon-fri", "Europe/Berlin", "ada", "tidy up",
    )  # fmt: skip
    assert added.next_tick > store.now()
    assert "/srv/secret" not in repr(store.schedules.all())
    with pytest.raises(TeamError, match="there is a schedule 'tidy' already"):
        add(store)
    for name in ("a b", "-x", "../x", "x" * 65, "a\nb"):
        with pytest.raises(TeamError, match="cannot name a schedule"):
            add(store, name=name)
    for zone in ("Mars/Base", "../../etc/passwd", "Europe", "\0", ""):
        with pytest.raises(TeamError, match="no time zone"):
            add(store, name="other", timezone=zone)
    store.schedules.remove("tidy")
    assert store.schedules.all() == []
    with pytest.raises(TeamError, match="no schedule 'tidy'"):
        store.schedules.remove("tidy")


def due(store: Store, name: str = "tidy") -> None:
    """As if its time had come."""
    with store.database.transaction() as connection:
        connection.execute("UPDATE schedules SET next_tick = @now - 1 WHERE name = :name", {"name": name})


def test_a_schedule_of_a_person_starts_only_while_they_may_start(store: Store) -> None:
    ann, bob, eve = (person(store, name, role) for name, role in
                     (("ann", Role.ADMIN), ("bob", Role.OPERATOR), ("eve", Role.OPERATOR)))  # fmt: skip
    session = NewSession(facts={}, input="go", title="go", person="somebody else")
    assert bob.add_schedule(NewSchedule(cron="@daily", name="bobs", session=session)) == "bobs"
    due(store, "bobs")
    assert store.schedules.start_due() == []
    [started] = store.sessions()
    assert (started.person, started.title) == ("bob", "go")
    assert store.arrived(started.id, 0)[0].door == "schedule"
    with pytest.raises(TeamError, match="eve is operator here and may not remove what others schedule"):
        eve.remove_schedule("bobs")
    store.stop(started.id)
    store.accounts.remove_person("bob")
    add_person(store, "bob", Role.VIEWER)
    due(store, "bobs")
    assert ["bob may not start sessions any more" in said for said in store.schedules.start_due()] == [True]
    assert len(store.sessions()) == 1
    assert "bob may not start" in eve.schedules()[0].note
    ann.remove_schedule("bobs")
    assert ann.schedules() == []


def test_an_account_and_a_person_of_the_same_name_are_two(store: Store) -> None:
    add(store)
    ada = person(store, "ada", Role.OPERATOR)
    with pytest.raises(TeamError, match="may not remove what others schedule"):
        ada.remove_schedule("tidy")
    OwnerStore(store, "ada", "cli").remove_schedule("tidy")


def test_a_conversation_cannot_be_scheduled_and_the_number_is_bounded(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    talk = NewSession(facts={}, input="hi", mode="chat", worker="talker")
    with pytest.raises(TeamError, match=r"talker is a conversation \(mode: chat\)"):
        store.schedules.add(NewSchedule(cron="@daily", session=talk))
    monkeypatch.setattr("golem_forge.team.schedules.MOST_SCHEDULES", 1)
    add(store)
    with pytest.raises(TeamError, match="takes no more"):
        add(store, name="second")


def test_the_role_of_a_runner_starts_ticks_and_sends_webhooks(
    postgres_url: str, roles: Callable[[str], str], tmp_path: Path
) -> None:
    owner = Store.open(postgres_url, tmp_path)
    bob = person(owner, "bob", Role.OPERATOR)
    bob.add_schedule(NewSchedule(cron="@daily", name="tidy", session=NewSession(facts={}, input="go")))
    due(owner)
    runner = Store.open(roles("runner"), tmp_path)
    [hook] = read_webhooks([NotifyHook(webhook="https://chat.example", secret="env:HOME")])
    outbox = Outbox(runner.database, [hook])
    runner.use_webhooks(outbox)
    assert runner.schedules.start_due() == []
    lease = runner.leases.claim("runner", ())
    assert lease is not None
    assert runner.leases.end(lease, "finished")
    [delivery] = outbox.take(hook)
    assert outbox.failed(delivery)
    outbox.sent(delivery)
    outbox.prune()
    runner.close()
    owner.close()


def test_eight_sweeps_at_the_same_moment_start_one_session(store: Store) -> None:
    add(store, "@yearly")
    for _ in range(3):
        due(store)
        together = threading.Barrier(8)

        def sweep(together: threading.Barrier = together) -> list[str]:
            together.wait()
            return store.schedules.start_due()

        before = len(store.sessions())
        with ThreadPoolExecutor(8) as threads:
            assert [each.result() for each in [threads.submit(sweep) for _ in range(8)]] == [[]] * 8
        assert len(store.sessions()) == before + 1
        store.stop(store.schedules.find("tidy").last_session)


def test_a_tick_that_is_there_is_never_started_again(store: Store) -> None:
    """Even if everything else about the schedule were lost."""
    added = add(store, "@hourly")
    due(store)
    store.schedules.start_due()
    [first] = store.sessions()
    store.stop(first.id)
    with store.database.transaction() as connection:
        connection.execute(
            "UPDATE schedules SET next_tick = last_tick, last_tick = 0, last_session = '' WHERE id = :id",
            {"id": added.id},
        )
    store.schedules.start_due()
    assert [row.id for row in store.sessions()] == [first.id]


def test_two_runners_start_a_tick_once_and_a_clock_set_back_starts_nothing_twice(program: Program) -> None:
    said = program.forge("schedule", "add", "0 * * * *", "tidy", "up", "--name", "tidy")
    assert "tidy" in said
    assert "forge runner" in said, "nobody is there to start it"
    store = program.store()
    clock = MovedClock(store)
    first = store.schedules.find("tidy").next_tick
    clock.set(first - 30)
    for _ in range(2):
        program.start_moved_runner()
    until(lambda: len(store.runners.seen()) == 2)

    def ended(number: int) -> bool:
        rows = store.sessions()
        return len(rows) == number and all(row.state == "finished" for row in rows)

    def nothing_more(number: int) -> None:
        time.sleep(0.3)  # three sweeps of each
        assert len(store.sessions()) == number, program.logs()

    nothing_more(0)
    clock.set(first + 30)
    until(lambda: ended(1), or_else=program.logs)
    clock.set(first - 3600 + 30)
    nothing_more(1)
    clock.set(first + 40)
    nothing_more(1)
    clock.set(first + 3600 + 1)
    until(lambda: ended(2), or_else=program.logs)
    for runner in program.runners:
        runner.kill()
        runner.wait()
    clock.set(first + 5 * 3600 + 10)
    program.start_moved_runner()
    until(lambda: ended(3), or_else=program.logs)
    nothing_more(3)
    [found] = json.loads(program.forge("schedule", "list", "--json"))
    assert found["lastTick"] == first + 5 * 3600
    assert found["nextTick"] == first + 6 * 3600
    assert found["lastState"] == "finished"
    assert "started only the latest tick" in found["note"]
    assert {row.person for row in store.sessions()} == {account_name()}
    program.forge("schedule", "remove", "tidy")
    clock.set(first + 6 * 3600 + 10)
    nothing_more(3)


def test_a_tick_is_skipped_while_the_last_session_has_not_ended(program: Program) -> None:
    program.play({"calls": [write_call("/work/a.txt", "x")]}, {"say": "done"})
    program.forge("schedule", "add", "@hourly", "write it", "--name", "writer")
    store = program.store()
    clock = MovedClock(store)
    first = store.schedules.find("writer").next_tick
    program.start_moved_runner()
    clock.set(first + 1)
    [session] = until(lambda: store.sessions(states=("waiting",)), or_else=program.logs)
    clock.set(first + 3601)
    until(lambda: store.schedules.find("writer").last_tick > first, or_else=program.logs)
    assert len(store.sessions()) == 1
    words = f"session {session.id[:12]} of an earlier tick has not ended"
    assert words in program.forge("schedule", "list")
    until(lambda: words in program.logs(), or_else=program.logs)
    store.stop(session.id, "ada", "test")
    clock.set(first + 2 * 3600 + 1)
    until(lambda: len(store.sessions()) == 2, or_else=program.logs)
    assert store.schedules.find("writer").note == ""


def test_a_program_that_changed_or_vanished_fails_its_session_with_a_sentence(program: Program) -> None:
    program.add_tools()
    assert "forge trust" in program.forge("schedule", "add", "@daily", "x", "-p", str(strangers(program)), code=3)
    program.forge("schedule", "add", "@daily", "tidy up", "--name", "tidy")
    assert "60" in program.forge("schedule", "add", "60 * * * *", "x", code=2)
    store = program.store()
    clock = MovedClock(store)  # the sweep comes sooner
    program.start_moved_runner()
    (program.folder / "tools.py").write_text("def effect(name: str) -> str:\n    return name\n")
    due(store)
    clock.set(store.now())
    [changed] = until(lambda: store.sessions(states=("failed",)), or_else=program.logs)
    assert "not trusted; read it, then run `forge trust`" in changed.error
    assert program.effects() == []
    shutil.rmtree(program.folder)
    due(store)
    clock.set(store.now())
    both = until(lambda: store.sessions(states=("failed",))[1:] and store.sessions(), or_else=program.logs)
    [vanished] = [one for one in both if one.id != changed.id]  # the clock was moved: the newest need not be the last
    assert "the directory 'shop' of its program is not on" in vanished.error
    assert str(program.folder) not in changed.error + vanished.error


def strangers(program: Program) -> Path:
    folder = program.folder.with_name("stranger")
    folder.mkdir()
    for name in ("forge.yaml", "main.worker", "tools.py", "script.yaml"):
        shutil.copy(program.folder / name, folder / name)
    (folder / "work").mkdir()
    return folder
