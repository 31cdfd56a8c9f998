"""The journal's writer: what it keeps, when it is on disk, and that no record means no run (invariants 9 and 11)."""

from __future__ import annotations

import fcntl
import json
import os
import re
import stat
import subprocess
import threading
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
from tests.deadlines import PATIENCE

from golem_forge.events.journal import CallStart, Journal
from golem_forge.events.journal_files import JournalError, SessionExists, SessionInUse, SessionNotFound, open_locked
from golem_forge.events.journal_records import MAX_VALUE_BYTES, CallRecords, events_after, full_decision, read, verify
from golem_forge.events.redaction import Redactor
from golem_forge.events.serialization import Event

from .journals import ALLOWED, ASKED, python, small_session


@pytest.fixture
def journal(tmp_path: Path) -> Journal:
    return Journal.create(tmp_path)


def records(journal: Journal) -> list[dict[str, Any]]:
    return list(read(journal.path))


def test_each_line_is_an_object_that_ends_with_the_hash_over_the_one_before(tmp_path: Path) -> None:
    path = small_session(tmp_path)
    previous = "0" * 64
    for number, line in enumerate(path.read_bytes().splitlines(), start=1):
        record = json.loads(line)
        assert next(iter(record)) == "n" and list(record)[-1] == "hash"
        assert record["n"] == number
        assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", record["ts"])
        body = line[: line.rindex(b',"hash":"')]
        assert record["hash"] == sha256(previous.encode() + body).hexdigest()
        previous = record["hash"]


def test_the_first_line_names_version_session_and_creation(journal: Journal) -> None:
    header = records(journal)[0]
    assert (header["type"], header["version"], header["sessionId"]) == ("session", 1, journal.session_id)
    assert header["created"].endswith("Z")
    assert re.fullmatch(r"[0-9a-f]{32}", journal.session_id)


def test_file_and_directory_are_private_whatever_the_umask(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        journal = Journal.create(tmp_path / "home")
    finally:
        os.umask(before)
    assert stat.S_IMODE(journal.path.stat().st_mode) == 0o600
    assert stat.S_IMODE(journal.path.parent.stat().st_mode) == 0o700
    journal.close()
    assert stat.S_IMODE(journal.path.with_suffix(".head").stat().st_mode) == 0o600


def test_a_directory_that_others_could_read_is_closed_to_them(tmp_path: Path) -> None:
    (tmp_path / "sessions").mkdir(mode=0o755)
    Journal.create(tmp_path)
    assert stat.S_IMODE((tmp_path / "sessions").stat().st_mode) == 0o700


def test_proposed_and_decided_wait_and_start_puts_all_of_it_on_disk(journal: Journal) -> None:
    journal.propose("c1", "Read-File", {"path": "/w/a"}, "human", "main", parent="p1")
    journal.decide("c1", ALLOWED)
    assert len(records(journal)) == 1
    journal.start("c1", "read_file", {"path": "/w/a", "limit": 10}, "f" * 64)
    proposed, decided, started = records(journal)[1:]
    assert (proposed["tool"], proposed["args"], proposed["caller"]) == ("Read-File", {"path": "/w/a"}, "human")
    assert (proposed["worker"], proposed["parent"]) == ("main", "p1")
    assert full_decision(decided["decision"]) == ALLOWED.to_json()
    assert (started["tool"], started["args"]) == ("read_file", {"path": "/w/a", "limit": 10})
    assert started["fingerprint"] == "f" * 64
    journal.finish(
        "c1", "execution_failed", 12.3456, "it broke", "out-1", {"kind": "json", "data": 3}, {"truncated": True}
    )
    finished = records(journal)[-1]
    assert (finished["status"], finished["ms"], finished["error"]) == ("execution_failed", 12.346, "it broke")
    assert (finished["outputHandle"], finished["value"]) == ("out-1", {"kind": "json", "data": 3})
    started_event, result_event = events_after(journal.path)
    assert (started_event.seq, started_event.type, started_event.data.caller) == (1, "toolStarted", "human")
    assert (result_event.seq, result_event.data.truncated, result_event.data.error) == (2, True, "it broke")


def test_a_quick_call_takes_two_writes(journal: Journal, monkeypatch: pytest.MonkeyPatch) -> None:
    writes: list[int] = []
    real = os.write
    monkeypatch.setattr(os, "write", lambda fd, data: writes.append(len(data)) or real(fd, data))  # type: ignore[func-returns-value]
    journal.propose("c1", "t", {})
    journal.decide("c1", ALLOWED)
    journal.start("c1", "t", {})
    journal.finish("c1", "success")
    assert len(writes) == 2


@pytest.mark.parametrize("decision", [ALLOWED, ASKED], ids=["preApproved", "asked"])
def test_a_decision_comes_back_whole(journal: Journal, decision: Any) -> None:
    journal.decide("c1", decision)
    journal.flush()
    assert full_decision(records(journal)[-1]["decision"]) == decision.to_json()


def test_begin_says_the_same_as_three_records(tmp_path: Path) -> None:
    one, two = Journal.create(tmp_path, "one"), Journal.create(tmp_path, "two")
    one.propose("c", "read", {"a": 1}, "mcp", "main/sub", "p")
    one.decide("c", ALLOWED)
    one.start("c", "read_file", {"a": 1}, "f1")
    two.begin(CallStart("c", "read_file", {"a": 1}, ALLOWED, "mcp", "main/sub", "p", "read", "f1"))
    states = [CallRecords.from_records(records(journal)).calls["c"] for journal in (one, two)]
    for state in states:
        state.proposed_at = state.started_at = "then"
    assert states[0] == states[1]
    assert states[0].requested == "read" and states[0].tool == "read_file"


def test_arguments_as_json_text_are_kept_as_their_value_and_unreadable_ones_as_a_digest(tmp_path: Path) -> None:
    journal = Journal.create(tmp_path, redact=Redactor().value)
    journal.propose("c1", "t", '{"api_key": "swordfish", "n": 1}')
    journal.propose("c2", "t", '{"api_key": "swordfish"')
    journal.flush()
    assert "swordfish" not in journal.path.read_text()
    first, second = records(journal)[1:]
    assert first["args"]["n"] == 1
    assert second["args"].startswith("[unreadable 23 chars sha256:")


def test_a45_secrets_reach_no_record(tmp_path: Path) -> None:
    redactor = Redactor()
    redactor.add_secret("KEY", "hunter2hunter2")
    journal = Journal.create(tmp_path, redact=redactor.value)
    journal.propose("c1", "t", {"deep": [{"x": "a hunter2hunter2 b"}], "password": "swordfish"})
    journal.start("c1", "t", {"hunter2hunter2": 1})
    journal.finish("c1", "execution_failed", 1.0, "hunter2hunter2 is wrong")
    journal.note("hunter2hunter2")
    journal.close()
    text = journal.path.read_text()
    assert "hunter2" not in text and "swordfish" not in text
    assert text.count("[secret KEY]") == 4


@pytest.mark.parametrize(
    "text", ['"}\n{"n":99', '","hash":"' + "0" * 64 + '"}\n', "\u2028\x00\x1b\ud800", "é→😀", "\\"], ids=ascii
)
def test_no_text_can_break_out_of_its_line(journal: Journal, text: str) -> None:
    journal.propose(text, text, {text: text}, text, text, text)
    journal.start(text, text, {text: text}, text)
    journal.finish(text, "success", 1.0, text, text, text)
    journal.note(text, more=text)
    journal.record_event(Event("status", {"type": "info", "message": text}, None, 0, 0.0, "", text))
    journal.close()
    checked = verify(journal.path)
    assert (checked.ok, checked.lines) == (True, 7)


def test_what_is_too_long_is_kept_as_a_digest_and_errors_are_cut(journal: Journal) -> None:
    journal.propose("c1", "t", {"x": "y" * (MAX_VALUE_BYTES + 1)})
    journal.finish("c1", "input_invalid", error="e" * 100_000, value={"s": "z" * (MAX_VALUE_BYTES + 1)})
    assert journal.path.stat().st_size < 10_000
    assert records(journal)[1]["args"].startswith("[too long to record: ")
    assert verify(journal.path).ok


def test_many_records_without_a_flush_are_written_all_the_same(journal: Journal) -> None:
    for number in range(200):
        journal.note(f"note {number}")
    assert len(records(journal)) > 100
    journal.close()
    assert [record["text"] for record in read(journal.path) if record["type"] == "note"][-1] == "note 199"


def test_events_are_on_disk_at_once(journal: Journal) -> None:
    assert journal.record_event(Event("message", {"message": {}}, None, 0, 0.0)) == 1
    assert [record.get("seq") for record in records(journal)] == [None, 1]
    assert journal.begin(CallStart("c", "t", {}, ALLOWED)) == 2
    assert [record["type"] for record in records(journal)] == ["session", "event", "begun"]


def test_a_second_writer_is_told_that_the_session_is_in_use(tmp_path: Path) -> None:
    journal = Journal.create(tmp_path, "s1")
    other = python(
        """
        for attempt in (lambda: reopen(home, "s1"), lambda: Journal.create(home, "s1")):
            try:
                attempt()
            except SessionInUse as error:
                print(error)
        """,
        str(tmp_path),
    )
    out, err = other.communicate(timeout=PATIENCE)
    assert out.count("session is in use") == 2, err
    with pytest.raises(SessionInUse):
        Journal.create(tmp_path, "s1")
    journal.close()
    with pytest.raises(SessionExists):
        Journal.create(tmp_path, "s1")


@pytest.mark.parametrize("name", ["../x", "a/b", ".hidden", "", "x" * 200, "a\n"])
def test_a_session_id_cannot_leave_its_directory(tmp_path: Path, name: str) -> None:
    if name == "":
        assert Journal.create(tmp_path, name).path.parent == tmp_path / "sessions"
        return
    with pytest.raises(ValueError, match="not a session id"):
        Journal.create(tmp_path, name)


def test_a_closed_journal_takes_nothing_more(journal: Journal) -> None:
    journal.close()
    journal.close()
    with pytest.raises(JournalError, match="closed"):
        journal.start("c1", "t", {})


def test_sync_writes_the_same(tmp_path: Path) -> None:
    with Journal.create(tmp_path, sync=True) as journal:
        journal.begin(CallStart("c", "t", {}, ALLOWED))
    assert verify(journal.path).ok


FULL_DISK = """
    import resource
    journal = Journal.create(home, "s1")
    journal.begin(CallStart("c1", "t", {}, ALLOWED))
    limit = journal.path.stat().st_size + 150
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, resource.RLIM_INFINITY))
    for call in ("c2", "c3"):
        journal.propose(call, "t", {"x": "y" * 300})
        try:
            journal.start(call, "t", {})
            print("started", call)
        except JournalError as error:
            print("refused", call, error.code)
    try:
        journal.finish("c1", "success")
    except JournalError:
        print("finish failed")
    print("size", journal.path.stat().st_size, limit - 150)
    resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    journal.begin(CallStart("c4", "t", {}, ALLOWED))
    print("started c4")
    journal.finish("c4", "success")
    journal.close()
"""


def test_no_room_means_no_run_and_what_waited_is_written_later(tmp_path: Path) -> None:
    process = python(FULL_DISK, str(tmp_path))
    out, err = process.communicate(timeout=PATIENCE)
    lines = out.splitlines()
    assert lines[:3] == ["refused c2 JOURNAL_UNAVAILABLE", "refused c3 JOURNAL_UNAVAILABLE", "finish failed"], err
    assert lines[3].split()[1] == lines[3].split()[2], "the file is cut back to its last whole line"
    assert lines[4] == "started c4"
    path = tmp_path / "sessions" / "s1.jsonl"
    assert verify(path).ok
    calls = CallRecords.from_records(read(path)).calls
    assert {id: call.state.value for id, call in calls.items()} == {
        "c1": "finished",
        "c2": "never_started",
        "c3": "never_started",
        "c4": "finished",
    }


def test_a_full_file_system_refuses_the_start(tmp_path: Path) -> None:
    mount = tmp_path / "small"
    mount.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", str(mount)]
    if subprocess.run(command, capture_output=True).returncode:
        pytest.skip("a small file system cannot be mounted here")
    try:
        journal = Journal.create(mount)
        ballast = mount / "ballast"
        with pytest.raises(OSError):  # noqa: PT011  filling it is the point
            ballast.write_bytes(b"x" * 100_000)
        with pytest.raises(JournalError, match="No space left"):
            journal.start("c1", "t", {"x": "y" * 10_000})
        ballast.unlink()
        journal.start("after", "t", {})
        journal.close()
        assert verify(journal.path).ok
    finally:
        subprocess.run(["umount", str(mount)], check=True)


def test_a_journal_that_cannot_be_created_says_so(tmp_path: Path) -> None:
    (tmp_path / "sessions").write_text("a file where a directory should be")
    with pytest.raises(JournalError, match="could not be created"):
        Journal.create(tmp_path)


def test_a_second_thread_cannot_break_the_chain(tmp_path: Path) -> None:
    journal = Journal.create(tmp_path, "s1")

    def work(name: str) -> None:
        for number in range(60):
            call = f"{name}-{number}"
            if number % 2:
                journal.begin(CallStart(call, "t", {}, ALLOWED))
            else:
                journal.propose(call, "t", {})
                journal.decide(call, ALLOWED)
                journal.start(call, "t", {})
            journal.record_event(Event("status", {"type": "info", "message": call}, None, 0, 0.0))
            journal.finish(call, "success")
            journal.note(call)
            journal.flush()

    threads = [threading.Thread(target=work, args=(f"t{number}",)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    journal.close()
    assert verify(journal.path).problems == []
    assert [event.seq for event in events_after(journal.path)] == list(range(1, 4 * 60 * 3 + 1))
    assert len(CallRecords.from_records(records(journal)).by_state("finished")) == 240


CROWD = """
    import logging, resource
    logging.disable()
    journal = Journal.create(home, "s1")
    size = journal.path.stat().st_size
    resource.setrlimit(resource.RLIMIT_FSIZE, (size + 50, resource.RLIM_INFINITY))
    refused = []
    for number in range(1100):
        try:
            journal.propose(f"c{number}", "t", {})
        except JournalError as error:
            refused.append(number)
    print(refused[0], refused[-1], len(refused), journal.path.stat().st_size - size)
    try:
        journal.begin_without_effects(CallStart("run", "t", {}, ALLOWED))
    except JournalError:
        print("no record, no run")
    resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    journal.propose("after", "t", {})
    journal.close()
"""


def test_a_crowd_of_proposals_on_a_full_disk_is_kept_and_only_what_has_no_room_is_refused(tmp_path: Path) -> None:
    out, err = python(CROWD, str(tmp_path)).communicate(timeout=PATIENCE)
    assert out.splitlines() == ["1024 1099 76 0", "no record, no run"], err
    path = tmp_path / "sessions" / "s1.jsonl"
    assert verify(path).ok
    calls = CallRecords.from_records(read(path)).calls
    assert list(calls) == [*(f"c{number}" for number in range(1024)), "after"]


def test_a45_a_secret_as_a_name_or_an_id_reaches_no_record(tmp_path: Path) -> None:
    redactor = Redactor()
    redactor.add_secret("KEY", "hunter2hunter2")
    journal = Journal.create(tmp_path, redact=redactor.value)
    name = "call-hunter2hunter2"
    journal.propose(name, name, {}, parent=name)
    journal.decide(name, ALLOWED)
    journal.start(name, name, {})
    journal.finish(name, "success")
    journal.begin(CallStart(name, name, {}, ALLOWED, parent=name, requested=f"{name}!"))
    journal.finish(name, "success")
    journal.begin_without_effects(CallStart(name, name, {}, ALLOWED, requested=f"{name}!"))
    journal.finish(name, "success")
    journal.close()
    assert "hunter2" not in journal.path.read_text()
    call = CallRecords.from_records(records(journal)).calls["call-[secret KEY]"]
    assert (call.tool, call.requested) == ("call-[secret KEY]", "call-[secret KEY]!")


def test_an_error_is_redacted_before_it_is_cut(tmp_path: Path) -> None:
    redactor = Redactor()
    redactor.add_secret("KEY", "hunter2hunter2")
    journal = Journal.create(tmp_path, redact=redactor.value)
    for before in range(1980, 2001):
        journal.finish(f"c{before}", "execution_failed", error="e" * before + "hunter2hunter2")
    assert "hunter" not in journal.path.read_text()
    error = records(journal)[-1]["error"]
    assert error.startswith("eee") and error.endswith("…") and len(error) == 2001


def test_a_writer_whose_file_is_gone_stops(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("golem_forge.events.journal_files._CHECK_INTERVAL_S", 0.0)
    first = Journal.create(tmp_path, "s1")
    first.begin(CallStart("c1", "t", {}, ALLOWED))
    first.path.unlink()
    with pytest.raises(JournalError, match="deleted or replaced"):
        first.begin(CallStart("c2", "t", {}, ALLOWED))
    second = Journal.create(tmp_path, "s1")
    for run in (first.begin, first.begin_without_effects):
        with pytest.raises(JournalError, match="deleted or replaced"):
            run(CallStart("c3", "t", {}, ALLOWED))
    second.begin(CallStart("c4", "t", {}, ALLOWED))
    with pytest.raises(JournalError, match="deleted or replaced"):
        first.close()
    second.close()
    assert verify(second.path).ok


@pytest.mark.parametrize("replaced", [False, True])
def test_a_lock_on_a_file_that_lost_its_name_is_no_lock(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, replaced: bool
) -> None:
    path = small_session(tmp_path)
    real = fcntl.flock

    def flock_late(fd: int, how: int) -> None:
        real(fd, how)
        path.unlink(missing_ok=True)
        if replaced:
            path.write_bytes(b"")

    monkeypatch.setattr(fcntl, "flock", flock_late)
    with pytest.raises(SessionInUse if replaced else SessionNotFound):
        open_locked(path, "s1")
    path.unlink(missing_ok=True)
    with pytest.raises(SessionInUse):
        Journal.create(tmp_path, "s1")
