"""After a crash: what is known of each call, and that nothing is repeated (invariant 11, workers.md §11)."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.deadlines import PATIENCE

from golem_forge.events.bus import create_ui_event_bus
from golem_forge.events.index import SessionIndex
from golem_forge.events.journal import CallStart, Journal, reopen
from golem_forge.events.journal_files import JournalDamaged, SessionNotFound
from golem_forge.events.journal_records import CallRecords, RecordedState, events_after, read, verify

from .journals import ALLOWED, python, small_session

KILLED = """
    journal = Journal.create(home, "s1")
    journal.begin(CallStart("done", "t", {}, ALLOWED))
    journal.finish("done", "success", 3.0)
    for call in ("asked", "running", "lost"):
        journal.propose(call, "t", {"call": call})
        journal.decide(call, ALLOWED)
        if call == "asked":
            journal.flush()
        elif call == "running":
            journal.start(call, "t", {"call": call})
    print("ready", flush=True)
    os.kill(os.getpid(), signal.SIGKILL) if sys.argv[2] == "self" else sys.stdin.read()
"""


@pytest.mark.parametrize("killer", ["self", "other"])
def test_kill_9_in_the_middle_of_a_batch_leaves_every_state_known(tmp_path: Path, killer: str) -> None:
    process = python(KILLED, str(tmp_path), killer)
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n", process.communicate()[1]
    if killer == "other":
        process.send_signal(signal.SIGKILL)
    assert process.wait(timeout=PATIENCE) == -signal.SIGKILL
    process.communicate()
    path = tmp_path / "sessions" / "s1.jsonl"
    assert verify(path).ok
    before = CallRecords.from_records(read(path))
    assert [(call.id, call.state) for call in before.calls.values()] == [
        ("done", RecordedState.FINISHED),
        ("asked", RecordedState.NEVER_STARTED),
        ("running", RecordedState.AMBIGUOUS),
    ], "a call that only waited in memory was never seen; no effect of it can exist"

    reopened = reopen(tmp_path, "s1")
    assert [(call.id, call.status, call.error) for call in reopened.interrupted] == [
        ("asked", "interrupted", "interrupted before it started"),
        ("running", "interrupted", "may have run before the crash"),
    ]
    reopened.journal.close()
    after = CallRecords.from_records(read(path))
    assert not after.by_state(RecordedState.AMBIGUOUS) and not after.by_state(RecordedState.NEVER_STARTED)
    assert after.calls["done"].status == "success"
    assert verify(path).ok
    assert reopen(tmp_path, "s1").interrupted == [], "recovered once, not again"


def test_a_killed_writer_frees_the_session(tmp_path: Path) -> None:
    process = python(KILLED, str(tmp_path), "other")
    assert process.stdout is not None
    process.stdout.readline()
    process.kill()
    process.communicate()
    reopen(tmp_path, "s1").journal.close()


def test_numbers_and_chain_go_on_after_reopening(tmp_path: Path) -> None:
    journal = Journal.create(tmp_path, "s1")
    bus = create_ui_event_bus(recorder=journal.record_event)
    bus.emit("status", {"type": "info", "message": "one"})
    journal.close()
    again = reopen(tmp_path, "s1").journal
    bus.record_with(again.record_event, again.flush, seq=again.seq)
    bus.emit("status", {"type": "info", "message": "two"})
    again.close()
    assert [event.seq for event in events_after(again.path)] == [1, 2]
    assert [record["type"] for record in read(again.path)] == [
        "session", "event", "closed", "resumed", "event", "closed",
    ]  # fmt: skip
    assert verify(again.path).ok


def test_cards_left_open_on_the_screen_are_closed(tmp_path: Path) -> None:
    journal = Journal.create(tmp_path, "s1")
    bus = create_ui_event_bus(recorder=journal.record_event)
    for call in ("done", "open"):
        journal.begin(CallStart(call, "t", {"a": 1}, ALLOWED))
        if call == "done":
            journal.finish(call, "success", 2.5)
    bus.emit("inputPrompt", {"requestId": "i1", "prompt": "?"})
    bus.emit("formRequired", {"requestId": "f1", "source": "s", "title": "t", "message": "m", "fields": [],
                              "workerPath": []})  # fmt: skip
    journal.release()
    again = reopen(tmp_path, "s1").journal
    again.close()
    added = [(event.type, event.data) for event in events_after(again.path, journal.seq)]
    assert [type for type, _ in added] == ["toolResult", "inputResolved", "formResolved"]
    left_open = added[0][1]
    assert (left_open.status, left_open.error) == ("interrupted", "may have run before the crash")
    assert added[2][1].action == "cancel"
    assert [event.seq for event in events_after(again.path)] == list(range(1, again.seq + 1))


def test_a_torn_last_line_is_cut_off_and_noted(tmp_path: Path) -> None:
    journal = Journal.create(tmp_path, "s1")
    journal.begin(CallStart("c1", "t", {}, ALLOWED))
    journal.release()
    with journal.path.open("ab") as file:
        file.write(b'{"n":3,"ts":"20')
    reopened = reopen(tmp_path, "s1")
    reopened.journal.close()
    assert [call.id for call in reopened.interrupted] == ["c1"]
    assert next(record for record in read(journal.path) if record["type"] == "resumed")["tornBytes"] == 15
    assert verify(journal.path).ok


def test_a_tampered_session_is_not_resumed(tmp_path: Path) -> None:
    path = small_session(tmp_path)
    path.write_bytes(path.read_bytes().replace(b"success", b"skipped", 1))
    with pytest.raises(JournalDamaged, match="line 5") as caught:
        reopen(tmp_path, "s1")
    assert caught.value.line == 5
    with pytest.raises(JournalDamaged):
        reopen(tmp_path, "s1")


def test_a_shortened_session_is_not_resumed(tmp_path: Path) -> None:
    path = small_session(tmp_path)
    path.write_bytes(b"".join(path.read_bytes().splitlines(keepends=True)[:5]))
    with pytest.raises(JournalDamaged, match="lines 6 to 14 are missing"):
        reopen(tmp_path, "s1")


def test_what_does_not_exist_cannot_be_resumed(tmp_path: Path) -> None:
    with pytest.raises(SessionNotFound, match="forge sessions list"):
        reopen(tmp_path, "nothing")


def test_a_link_is_not_followed(tmp_path: Path) -> None:
    path = small_session(tmp_path)
    os.symlink(path, path.with_name("s2.jsonl"))
    with pytest.raises(OSError, match="symbolic"):
        reopen(tmp_path, "s2")


PROPOSE, BEGIN, START, FINISH = "propose", "begin", "start", "finish"


@pytest.mark.parametrize(
    ("again", "state", "error"),
    [
        ([BEGIN], RecordedState.AMBIGUOUS, "may have run before the crash"),
        ([PROPOSE, START], RecordedState.AMBIGUOUS, "may have run before the crash"),
        ([START], RecordedState.AMBIGUOUS, "may have run before the crash"),
        ([PROPOSE], RecordedState.NEVER_STARTED, "interrupted before it started"),
        ([BEGIN, FINISH, BEGIN], RecordedState.AMBIGUOUS, "may have run before the crash"),
        ([BEGIN, FINISH], RecordedState.FINISHED, ""),
    ],
    ids=lambda value: "-".join(value) if isinstance(value, list) else "",
)
def test_an_id_that_comes_again_is_a_new_call(
    tmp_path: Path, again: list[str], state: RecordedState, error: str
) -> None:
    journal = Journal.create(tmp_path, "s1")
    steps: dict[str, Callable[[], object]] = {
        PROPOSE: lambda: journal.propose("twice", "t", {"run": 2}),
        BEGIN: lambda: journal.begin(CallStart("twice", "t", {"run": 2}, ALLOWED)),
        START: lambda: journal.start("twice", "t", {"run": 2}),
        FINISH: lambda: journal.finish("twice", "success", 2.0),
    }
    journal.begin(CallStart("twice", "t", {"run": 1}, ALLOWED))
    journal.finish("twice", "execution_failed", 1.0, "broke", "out-1", {"kind": "json"}, {"truncated": True})
    journal.begin(CallStart("other", "t", {}, ALLOWED))
    journal.finish("other", "success")
    for step in again:
        steps[step]()
    journal.flush()
    journal.release()
    statuses = {row.id: row.status for row in SessionIndex(tmp_path).calls()}
    assert statuses["twice"] == ("success" if state is RecordedState.FINISHED else "")
    calls = CallRecords.from_records(read(journal.path)).calls
    assert list(calls) == ["other", "twice"]
    assert (calls["twice"].state, calls["twice"].args) == (state, {"run": 2})
    assert (calls["twice"].error, calls["twice"].output_handle, calls["twice"].more) == ("", "", {})
    reopened = reopen(tmp_path, "s1")
    reopened.journal.close()
    assert [(call.id, call.error) for call in reopened.interrupted] == ([("twice", error)] if error else [])
    assert not CallRecords.from_records(read(journal.path)).by_state(RecordedState.AMBIGUOUS)
