"""One session in a runner of this process, at moments that are hard to meet from outside: an answer while it parks, a
disk that is full."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import gc
import json
import os
import threading
import time
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from tests.deadlines import LONG, PATIENCE
from tests.ready import ReadyForge
from tests.team.background import FORGE_YAML, Program, running, until, until_ended, until_in, write_call
from tests.team.test_runner import journal_is_whole

from golem_forge.agent.runtime import WorkerRuntime
from golem_forge.events.serialization import iso_time
from golem_forge.team import runner as runners
from golem_forge.team import session_run
from golem_forge.team.database import StoreUnavailable, TeamError
from golem_forge.team.journal import CommitThread, SessionWriter, StoredJournals
from golem_forge.team.leases import LeaseTable
from golem_forge.team.rows import FINISHED, QUEUED, STOPPED, WAITING, NewSession
from golem_forge.team.runner import LeaseKeeper, Runner, RunnerOptions
from golem_forge.team.session_run import RunnerParts, SessionRun
from golem_forge.team.store import Store


@pytest.fixture
def program(tmp_path: Path, ready_forge: ReadyForge) -> Program:
    return Program(tmp_path / "shop", tmp_path / "home", ready=ready_forge, tools=False)


async def test_an_answer_that_is_being_read_while_the_session_parks_is_not_forgotten(
    program: Program, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The runner knows that something arrived, and does not know yet what the answer is."""
    monkeypatch.setattr(session_run, "SETTLE_S", 0.4)
    program.play({"calls": [write_call("/work/a.txt", "x")]}, {"say": "done"})
    session = program.queue()
    async with running(program) as store:
        read = store.questions.get

        def read_slowly(question_id: str) -> Any:
            time.sleep(1.0)
            return read(question_id)

        monkeypatch.setattr(store.questions, "get", read_slowly)
        while not (asked := await asyncio.to_thread(store.questions.rows)):
            await asyncio.sleep(0.02)
        await asyncio.to_thread(store.questions.answer, asked[0].id, {"approved": True}, "ada", "test")
        assert await until_ended(store, session) == FINISHED
    assert (program.folder / "work" / "a.txt").read_text() == "x"


async def test_a_full_disk_takes_no_line_from_the_store_and_gives_the_session_away(tmp_path: Path) -> None:
    """The file of this machine cannot be written; what the store was given is whole, and numbered as before."""
    store = Store.open("sqlite", tmp_path, create=True)
    lease = store.leases.claim("r1", (), session_id=store.queue(NewSession(facts={}, input="go")))
    assert lease is not None
    full: list[OSError] = []
    commits = CommitThread(store)
    writer = SessionWriter(commits, lease, Path("/dev/full"), lambda: time.monotonic() + 60, lambda why: None)
    writer.on_full = full.append
    writer.start_after(0)
    writer.started = True
    writer.write(b"one\n")
    writer.write(b"two\n")
    await writer.committed()
    assert store.lines(lease.id) == [(1, b"one\n"), (2, b"two\n")]
    assert [each.errno for each in full] == [errno.ENOSPC]
    writer.close()
    commits.close()


def test_an_answer_counts_as_used_once_its_call_has_started(tmp_path: Path) -> None:
    """A runner that ends between the decision and the start leaves an answer that did nothing."""
    store = Store.open("sqlite", tmp_path, create=True)
    commits = CommitThread(store)
    session = store.queue(NewSession(facts={}, input="go"))

    def take_over(runner: str) -> StoredJournals:
        lease = store.leases.claim(runner, (), session_id=session)
        assert lease is not None
        return StoredJournals(store, commits, lease, tmp_path / runner, lambda: time.monotonic() + 60, lambda why: None)

    first = take_over("r1")
    journal = first.create(session, None)
    for call, ends in (("decided", False), ("begun", False), ("finished", True)):
        journal.append("proposed", {"call": call, "tool": "write_file", "args": {}, "worker": "main/helper"})
        for event in ("approvalRequired", "approvalResolved"):
            journal.append("event", {"event": event, "data": {"requestId": f"q-{call}", "toolCallId": call}})
        if call != "decided":
            journal.append("begun", {"call": call, "tool": "write_file", "args": {}})
        if ends:
            journal.finish(call, "success")
    journal.append("proposed", {"call": "open", "tool": "ask", "args": {}, "worker": "main/helper"})
    journal.append("begun", {"call": "open", "tool": "ask", "args": {}})
    journal.append("event", {"event": "formRequired", "data": {"requestId": "q-open", "toolCallId": "open"}})
    journal.append("proposed", {"call": "root", "tool": "write_file", "args": {}, "worker": "main", "caller": "llm"})
    journal.flush()
    assert first.journal is not None
    assert first.journal.writer.flush()
    for runner in ("r2", "r3"):  # the first of them was killed before it told of it
        with store.database.transaction() as connection:
            connection.execute("UPDATE sessions SET lease_until = 1")
        second = take_over(runner)
        second.reopen(session, None, lambda record, call: None)
        assert second.journal is not None
        assert second.journal.writer.flush()
        asked = {
            name: second.is_unused(f"q-{name}", name) for name in ("decided", "begun", "open", "finished", "unknown")
        }
        assert asked == {"decided": True, "begun": False, "open": True, "finished": False, "unknown": True}
    assert not second.is_unused("q-root", "root"), "the call goes on, and finds the answer by the same question"
    commits.close()


@pytest.mark.parametrize("where", [pytest.param("start", marks=pytest.mark.long), "record"])
async def test_a_session_on_a_full_disk_goes_on_when_there_is_room(
    program: Program, monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    program.add_tools()
    monkeypatch.setattr(runners, "FULL_REST_S", 0.1)
    monkeypatch.setattr("golem_forge.team.leases.LEASE_S", 1000.0)  # nobody waits until a lease is over
    give_back = SessionRun._give_back

    async def give_back_late(self: SessionRun) -> None:
        await asyncio.sleep(0.1)
        await give_back(self)

    monkeypatch.setattr(SessionRun, "_give_back", give_back_late)
    calls = [{"calls": [{"tool": "effect", "args": {"name": f"n{number}", "wait": 0.1}}]} for number in range(3)]
    program.play(*calls, {"say": "done"})
    session = program.queue()
    tries: list[int] = []

    def fill(owner: type, name: str) -> None:
        original = getattr(owner, name)

        def full(self: Any, *words: Any) -> Any:
            if len(tries) < 2 and (where == "start" or self.started):
                tries.append(1)
                raise OSError(errno.ENOSPC, "No space left on device")
            return original(self, *words)

        monkeypatch.setattr(owner, name, full)

    fill(*((StoredJournals, "_download") if where == "start" else (SessionWriter, "_write_copy")))
    async with running(program) as store:
        assert await until_ended(store, session) == FINISHED
        assert store.find(session).epoch == 3, "given back twice, and taken up again"
    assert tries == [1, 1]
    assert program.effects() == ["n0", "n1", "n2"]


async def test_a_session_that_is_given_back_before_its_first_turn_goes_on(
    program: Program, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The disk of its runner is full while it looks at what arrived."""
    session = program.queue()
    look, given_back = SessionRun.look, list[str]()

    async def look_on_a_full_disk(self: SessionRun) -> bool:
        taken = await look(self)
        if not given_back:
            given_back.append(self.id)
            await self.hand_over()
        return taken

    monkeypatch.setattr(SessionRun, "look", look_on_a_full_disk)
    async with running(program) as store:
        assert await until_ended(store, session) == FINISHED
        row = store.find(session)
        assert (row.epoch, row.result) == (2, "done")


async def test_what_was_read_before_a_session_was_taken_again_does_not_take_it_away(
    program: Program, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Parked and woken in the same runner: an answer of the database about the time before comes late."""
    program.play({"say": "Slowly said.", "chunks": 10, "pause": 0.05})
    session = program.queue()
    async with running(program) as store:
        read = store.leases.news
        before = lambda held: {id: (*news[:2], news[2] - 1) for id, news in read(held).items()}  # noqa: E731
        monkeypatch.setattr(store.leases, "news", before)
        assert await until_ended(store, session) == FINISHED
    assert (await asyncio.to_thread(program.store().find, session)).epoch == 1
    assert "left this runner" not in caplog.text


def test_a_renewal_that_was_sent_for_an_earlier_epoch_says_nothing_about_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runners, "RENEW_S", 0.01)
    store = Store.open("sqlite", tmp_path, create=True)
    first = store.leases.claim("r1", (), session_id=store.queue(NewSession(facts={}, input="go")))
    assert first is not None
    lost: list[str] = []
    keeper = LeaseKeeper(store, "r1", lambda *news: None, lost.append)
    keeper.hold(first.id, first.epoch, time.monotonic())
    renew, renewed = store.leases.renew, threading.Event()

    def taken_again_meanwhile(runner: str, held: Mapping[str, int]) -> dict[str, tuple[bool, int]]:
        if held.get(first.id) == first.epoch:
            store.leases.give_back(first)
            again = store.leases.claim("r1", (), session_id=first.id)
            assert again is not None
            keeper.hold(again.id, again.epoch, time.monotonic())
        else:
            renewed.set()
        return renew(runner, held)

    monkeypatch.setattr(store.leases, "renew", taken_again_meanwhile)
    keeper.start()
    assert renewed.wait(PATIENCE)
    keeper.close()
    assert lost == []
    store.close()


def test_a_runner_that_has_ended_needs_no_beats_any_more(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What its process runs afterwards would be ended for their absence."""
    beats: list[int] = []
    monkeypatch.setattr(runners.watchdog, "beat", beats.append)
    store = Store.open("sqlite", tmp_path, create=True)
    keeper = LeaseKeeper(store, "r1", lambda *news: None, lambda lost: None)
    keeper.start()
    keeper.close()
    assert beats[0] > 0 and beats[-1] == 0
    store.close()


def session_run_of(program: Program, store: Store) -> SessionRun:
    lease = store.leases.claim("r1", (), session_id=program.queue())
    assert lease is not None
    commits, leases = CommitThread(store), LeaseKeeper(store, "r1", lambda *_: None, lambda _: None)
    leases.hold(lease.id, lease.epoch, time.monotonic())
    copies = program.home / "copies"
    parts = RunnerParts(store=store, commits=commits, leases=leases, home=program.home, copies=copies, hold_s=60)
    return SessionRun(parts, lease)


async def test_a_session_that_is_stopped_while_its_worker_starts_is_stopped_not_failed(program: Program) -> None:
    store = program.store()
    run = session_run_of(program, store)
    run.ring(stop=True)
    await run.run()
    row = store.find(run.id)
    assert (row.state, row.error) == (STOPPED, "")


async def test_a_session_that_is_handed_over_at_its_end_is_not_ended_with_half_a_journal(
    program: Program, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The runner drains while the session looks whether there is more to do: one of the two happens, whole."""
    store = program.store()
    run = session_run_of(program, store)
    arrived, looks = store.arrived, []
    handed_over = threading.Event()

    def look_slowly(*words: Any) -> Any:
        looks.append(1)
        if len(looks) == 2:
            assert handed_over.wait(PATIENCE)
        return arrived(*words)

    monkeypatch.setattr(store, "arrived", look_slowly)
    task = asyncio.create_task(run.run())
    while len(looks) < 2:
        await asyncio.sleep(0.02)
    await run.hand_over()
    handed_over.set()
    await task
    assert store.find(run.id).state == QUEUED


async def test_a_runner_at_rest_holds_no_descriptor_of_a_session(
    program: Program, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runners, "COLLECT_S", 0.1)
    zone = str(program.folder / "work")

    def descriptors() -> int:
        found = 0
        for each in os.listdir("/proc/self/fd"):
            with contextlib.suppress(OSError):
                found += os.readlink(f"/proc/self/fd/{each}") == zone
        return found

    gc.disable()  # Python itself may not collect for long, where much else is in memory
    try:
        async with running(program) as store:
            for _ in range(3):
                assert await until_ended(store, program.queue()) == FINISHED
            deadline = time.monotonic() + PATIENCE
            while (left := descriptors()) and time.monotonic() < deadline:
                await asyncio.sleep(0.1)
            assert left == 0
    finally:
        gc.unfreeze()
        gc.enable()


async def test_no_session_parks_before_its_question_is_kept(program: Program, monkeypatch: pytest.MonkeyPatch) -> None:
    """The database is slow: a session that waits and has no question in the store would wait for ever."""
    monkeypatch.setattr(session_run, "SETTLE_S", 0.1)
    program.play({"calls": [write_call("/work/a.txt", "x")]}, {"say": "done"})
    session = program.queue()
    async with running(program) as store:
        ask = store.questions.ask

        def ask_slowly(*given: Any, **named: Any) -> Any:
            time.sleep(0.6)
            return ask(*given, **named)

        monkeypatch.setattr(store.questions, "ask", ask_slowly)
        await until_in(store, session, WAITING)
        (question,) = await asyncio.to_thread(store.questions.rows)
        await asyncio.to_thread(store.questions.answer, question.id, {"approved": True}, "ada", "test")
        assert await until_ended(store, session) == FINISHED


async def test_a_question_that_the_store_refuses_is_denied(program: Program, monkeypatch: pytest.MonkeyPatch) -> None:
    program.play({"calls": [write_call("/work/a.txt", "x")]}, {"say": "done"})
    session = program.queue()
    async with running(program) as store:

        def refuse(*given: Any, **named: Any) -> Any:
            raise TeamError("it is too long", "STORE_REFUSED")

        monkeypatch.setattr(store.questions, "ask", refuse)
        assert await until_ended(store, session) == FINISHED
        told = [line for _, line in await asyncio.to_thread(store.lines, session) if b"could not keep" in line]
    assert told and not (program.folder / "work" / "a.txt").exists()


async def test_a_session_whose_input_cannot_be_read_yet_waits_for_it(
    program: Program, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The database goes away between the claim and the first look: there is work to do, only nobody can say which."""
    monkeypatch.setattr(session_run, "RETRY_S", 0.1)
    session = program.queue()
    away = [True, True]

    async with running(program) as store:
        arrived = store.arrived

        def not_yet(*words: Any) -> Any:
            if away:
                away.pop()
                raise StoreUnavailable("away")
            return arrived(*words)

        monkeypatch.setattr(store, "arrived", not_yet)
        assert await until_ended(store, session) == FINISHED
        assert store.find(session).result == "done"


@pytest.mark.walls
async def test_a_command_in_the_background_ends_with_its_runner_and_its_number_is_not_given_again(
    program: Program, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It runs for longer than the runner waits for what runs."""
    program.add_tools()
    monkeypatch.setattr(runners, "DRAIN_S", 1.0)
    worker = program.folder / "main.worker"
    worker.write_text(worker.read_text().replace("  filesystem: {}", "  exec: {walled: preApproved}"))
    program.forge("trust", "--yes")
    sleep = {"tool": "exec_command", "args": {"cmd": "sleep 600", "yield_time_ms": 250}}

    def poll(number: int) -> dict[str, Any]:
        return {"calls": [{"tool": "write_stdin", "args": {"session_id": number, "yield_time_ms": 250}}]}

    between = {"calls": [{"tool": "effect", "args": {"name": "between", "gate": "drains"}}]}
    program.play({"calls": [sleep]}, between, {"calls": [sleep]}, poll(1), poll(2), {"say": "done"})
    session = program.queue()

    def open_gate_once_it_drains() -> None:
        looked = program.store()
        until(lambda: all(each["draining"] for each in looked.runners.seen()))
        program.open_gate("drains")
        looked.close()

    async with running(program):
        await asyncio.to_thread(until, program.effects)
        opening = asyncio.create_task(asyncio.to_thread(open_gate_once_it_drains))
    await opening
    async with running(program) as store:
        assert await until_ended(store, session) == FINISHED
        text = b"".join(line for _, line in store.lines(session)).decode()
    assert text.count("Running: session 1\\n") == 1
    assert "Running: session 2\\n" in text
    assert "Session 1 ended with its runner." in text
    assert "Session 2 not found." not in text


@pytest.mark.parametrize(("after", "taken"), [("", 0), ("history", 1), ("parked", 1), ("arrived", 1)])
async def test_a_message_counts_as_taken_once_its_turn_is_recorded(tmp_path: Path, after: str, taken: int) -> None:
    """A runner that is killed between the two did nothing about it: the next one takes the message again."""
    store = Store.open("sqlite", tmp_path, create=True)
    session = store.queue(NewSession(facts={}, input="go"))
    commits = CommitThread(store)

    def journals() -> StoredJournals:
        lease = store.leases.claim("r1", (), session_id=session)
        assert lease is not None
        store.leases.give_back(lease)
        return StoredJournals(store, commits, lease, tmp_path / "copies", lambda: time.monotonic() + 60, lambda _: None)

    first = journals()
    journal = first.create(session, None)
    journal.append("arrived", {"number": 1, "by": "ada", "door": "test"})
    if after:
        fields = {"history": {"message": {"role": "user", "text": "go"}}, "arrived": {"number": 2}}.get(after, {})
        journal.append(after, fields)
    journal.flush()
    await journal.committed()
    first.remove()
    second = journals()
    second.reopen(session, None, lambda record, call: None)
    assert second.last_arrival == taken
    commits.close()


async def test_a_decision_says_when_it_was_asked_and_when_it_was_answered_or_its_time_was_over(
    program: Program,
) -> None:
    """Not when a runner took that up, which may be hours later. Nobody lives while the answers come."""
    (program.folder / "forge.yaml").write_text(FORGE_YAML + f"approval: {{timeout: {LONG}}}\n")
    program.forge("trust", "--yes")
    answers: dict[str, dict[str, Any] | None] = {
        "approved": {"approved": True}, "denied": {"approved": False, "reason": "not that file"}, "nobody": None,
    }  # fmt: skip
    sessions = {}
    for name in answers:
        program.play({"calls": [write_call(f"/work/{name}.txt", "x")]}, {"say": "done"}, script=f"{name}.yaml")
        sessions[name] = program.queue(model=f"scripted:{name}.yaml")
    async with running(program) as store:
        for session in sessions.values():
            await until_in(store, session, WAITING)
    store = program.store()
    expected = {}
    for name, answer in answers.items():
        [question] = store.questions.rows(session=sessions[name])
        places = {each.get("file") for each in question.wire["choices"] if each["scope"] == "always"}
        assert places == {"the store's rules (admins only)"}
        if answer is None:
            expected[name] = ("", question.asked, question.expires - LONG)
            with store.database.transaction() as connection:
                over = {"id": question.id, "over": LONG}
                connection.execute("UPDATE questions SET expires = expires - :over WHERE id = :id", over)
            continue
        time.sleep(0.2)
        answered = store.questions.answer(question.id, answer, "ada", "inbox")
        expected[name] = ("ada", question.asked, answered.answered)
    time.sleep(0.2)
    async with running(program) as again:
        for name, (person, asked, answered_at) in expected.items():
            assert await until_ended(again, sessions[name]) == FINISHED
            records = [json.loads(line) for _, line in store.lines(sessions[name])]
            [decision] = [each["decision"] for each in records if each["type"] == "decided"]
            assert decision.get("answeredAs", "") == person
            assert (decision["askedAt"], decision["answeredAt"]) == (iso_time(asked), iso_time(answered_at)), name
    store.close()


async def test_an_idle_runner_does_not_leave_while_a_session_comes(
    program: Program, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever queued it saw a runner, and started none."""
    store = program.store()
    leave, queued = store.runners.drain, []

    def queue_and_leave(runner: str, *given: bool) -> None:
        if not queued:
            queued.append(program.queue())
        leave(runner, *given)

    monkeypatch.setattr(store.runners, "drain", queue_and_leave)
    await Runner(store, program.home, RunnerOptions(slots=1, idle_s=0.2)).run()
    [session] = queued
    assert store.find(session).state == FINISHED
    store.close()


@pytest.mark.parametrize("last", ["end", "park"])
async def test_a_lease_that_is_looked_at_while_the_session_leaves_is_not_called_lost(
    program: Program, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, last: str
) -> None:
    """The row names no runner any more when the next renewal looks: nobody has taken the session over."""
    program.play({"calls": [write_call("/work/a.txt", "x")]} if last == "park" else {"say": "done"}, {"say": "done"})
    monkeypatch.setattr(runners, "RENEW_S", 0.05)
    really = getattr(LeaseTable, last)

    def late(self: LeaseTable, *args: Any, **more: Any) -> Any:
        done = really(self, *args, **more)
        time.sleep(0.4)
        return done

    monkeypatch.setattr(LeaseTable, last, late)
    async with running(program) as store:
        session = await asyncio.to_thread(program.queue)
        await until_in(store, session, WAITING if last == "park" else FINISHED)
        await asyncio.sleep(1.0)
    assert "left this runner" not in caplog.text


async def test_a_stop_that_comes_between_a_claim_and_its_start_is_heard(
    store_url: str, tmp_path: Path, ready_forge: ReadyForge, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runners, "SWEEP_S", 600.0)
    monkeypatch.setattr(runners, "RENEW_S", 600.0)
    program = Program(tmp_path / "shop", tmp_path / "home", store_url, ready_forge, tools=False)
    program.play({"say": "Never said.", "chunks": 2, "until": "never"})
    other, claim = program.store(), LeaseTable.claim

    def claim_late(self: LeaseTable, *given: Any, **more: Any) -> Any:
        if (lease := claim(self, *given, **more)) is not None:
            other.stop(lease.id)
            time.sleep(0.5)  # the ring is here before the runner knows what it has claimed
        return lease

    monkeypatch.setattr(LeaseTable, "claim", claim_late)
    async with running(program) as store:
        await asyncio.sleep(1.0)  # what a runner looks at when it starts is over
        session = await asyncio.to_thread(program.queue)
        assert await until_ended(store, session) == STOPPED
    other.close()


async def test_what_happens_to_sessions_of_others_asks_the_store_nothing(
    postgres_url: str, tmp_path: Path, ready_forge: ReadyForge, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runners, "SWEEP_S", 600.0)
    program = Program(tmp_path / "shop", tmp_path / "home", postgres_url, ready_forge)
    program.play({"calls": [{"tool": "effect", "args": {"name": "slow", "wait": LONG}}]}, {"say": "done"})
    session = program.queue()
    asked: list[list[str]] = []
    heard: list[str] = []
    news, ring = LeaseTable.news, Runner._ring_in_thread

    def counted(self: LeaseTable, held: Any) -> Any:
        asked.append(list(held))
        return news(self, held)

    def hear(self: Runner, session_id: str) -> None:
        heard.append(session_id)
        ring(self, session_id)

    def was_heard(session_id: str) -> bool:
        return session_id in heard

    monkeypatch.setattr(LeaseTable, "news", counted)
    monkeypatch.setattr(Runner, "_ring_in_thread", hear)
    async with running(program) as store:
        await asyncio.to_thread(until, lambda: program.effects() and was_heard(""))
        other = program.store()
        for _ in range(5):
            foreign = other.queue(NewSession(facts={}, input="x", label="elsewhere"))
            await asyncio.to_thread(until, partial(was_heard, foreign))
            await asyncio.sleep(0.1)  # whoever asked because of it would have
        other.stop(session)
        assert await until_ended(store, session) == STOPPED
        other.close()
    may_ask = sum(each in ("", session) for each in heard) + 1  # the first sweep
    assert [session] in asked and len(asked) <= may_ask


async def test_a_session_that_ends_while_its_runner_hands_it_over_is_recorded_to_its_end(
    program: Program, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program.add_tools()
    program.play({"calls": [{"tool": "effect", "args": {"name": "slow", "wait": 1.0}}]}, {"say": "done"})
    store = program.store()
    runner = Runner(store, program.home, RunnerOptions(slots=1))
    committed, close = SessionWriter.committed, WorkerRuntime.aclose
    ends, leaves = asyncio.Event(), asyncio.Event()
    handing: asyncio.Task[None] | None = None

    async def commit_late(self: SessionWriter) -> None:
        if asyncio.current_task() is handing:
            await ends.wait()
        await committed(self)

    async def close_late(self: WorkerRuntime) -> None:
        ends.set()
        await leaves.wait()
        await close(self)

    monkeypatch.setattr(SessionWriter, "committed", commit_late)
    monkeypatch.setattr(WorkerRuntime, "aclose", close_late)
    session = await asyncio.to_thread(program.queue)
    running = asyncio.create_task(runner.run())
    await asyncio.to_thread(until, program.effects)
    [run] = runner._runs.values()
    handing = asyncio.create_task(run.hand_over())
    await handing
    leaves.set()
    assert await until_ended(store, session) == FINISHED
    runner.drain()
    await running
    journal_is_whole(store, session, tmp_path)
    store.close()
