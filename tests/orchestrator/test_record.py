"""The journal and the path: no record, no run; and whatever breaks, the session goes on."""

from __future__ import annotations

import asyncio
import os
import sqlite3
from pathlib import Path
from typing import Any

import pytest

from golem_forge import Caller, ToolCall, create_ui_event_bus, open_session, tool
from golem_forge.events.index import SessionIndex
from golem_forge.events.journal import Journal
from golem_forge.events.journal_records import CallRecords, events_after, read, verify


@pytest.fixture
def counted() -> tuple[Any, list[int]]:
    runs: list[int] = []

    @tool(needs_approval=False)
    async def count(n: int = 0) -> int:
        runs.append(n)
        return n

    return count, runs


async def test_the_start_is_on_disk_before_the_tool_runs(make_path: Any, own_home: Path) -> None:
    journal = Journal.create(own_home / ".forge")
    seen: list[str] = []

    @tool(needs_approval=False)
    async def look() -> str:
        seen.extend(record["type"] for record in read(journal.path))
        return "ok"

    path = make_path(look, journal=journal)
    await path.call(ToolCall("look", {}))
    journal.close()
    assert seen[-1] == "begun"
    assert [record["type"] for record in read(journal.path)] == ["session", "begun", "finished", "closed"]


async def test_an_asked_call_is_proposed_decided_started_finished(make_path: Any, own_home: Path, asked: Any) -> None:
    journal = Journal.create(own_home / ".forge")
    waiting: list[str] = []

    def ask(request: Any) -> dict[str, Any]:
        waiting.extend(record["type"] for record in read(journal.path))
        return {"approved": True}

    @tool
    async def risky() -> str:
        return "ok"

    path = make_path(risky, ask=ask, journal=journal)
    await path.call(ToolCall("risky", {}))
    journal.close()
    assert waiting == ["session", "proposed"], "while nobody has answered, the request is already on disk"
    types = [record["type"] for record in read(journal.path)]
    assert types == ["session", "proposed", "decided", "started", "finished", "closed"]
    decided = next(record for record in read(journal.path) if record["type"] == "decided")["decision"]
    assert decided["answeredBy"] == "person" and len(decided["fingerprint"]) == 64 and len(decided["argsKey"]) == 16


async def test_a_full_disk_means_no_run_and_a_clear_outcome(
    make_path: Any, own_home: Path, counted: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    count, runs = counted
    journal = Journal.create(own_home / ".forge")
    path = make_path(count, journal=journal)
    assert (await path.call(ToolCall("count", {}))).ok
    full = os.open("/dev/full", os.O_WRONLY)
    real, journal._writer.fd = journal._writer.fd, full
    monkeypatch.setattr(os, "ftruncate", lambda fd, size: None)
    outcome = await path.call(ToolCall("count", {"n": 1}))
    assert (outcome.status, outcome.code) == ("execution_failed", "JOURNAL_UNAVAILABLE")
    assert "the call was not run" in outcome.error
    assert runs == [0]
    journal._writer.fd = real
    monkeypatch.undo()
    os.close(full)
    assert (await path.call(ToolCall("count", {"n": 2}))).ok, "space again: the session goes on"
    journal.close()
    assert verify(journal.path).ok
    assert runs == [0, 2]


async def test_a_locked_or_broken_index_hurts_nobody(own_home: Path, counted: Any, tmp_path: Path) -> None:
    count, _ = counted
    home = own_home / ".forge"
    project = tmp_path / "p"
    project.mkdir()
    async with open_session(project, tools=[count]) as session:
        assert (await session.call("count", {}, caller=Caller.LLM)).ok
    SessionIndex(home).refresh()
    locker = sqlite3.connect(home / "index.db", isolation_level=None)
    locker.execute("BEGIN EXCLUSIVE")
    try:
        async with open_session(project, tools=[count]) as session:
            assert (await session.call("count", {}, caller=Caller.LLM)).ok
        assert [call.tool for call in SessionIndex(home).calls(limit=10)] == ["count", "count"]
    finally:
        locker.close()
    (home / "index.db").write_bytes(b"not a database at all")
    assert len(SessionIndex(home).calls(limit=10)) == 2


async def test_events_can_be_read_again_from_the_journal(make_path: Any, own_home: Path, counted: Any) -> None:
    count, _ = counted
    journal = Journal.create(own_home / ".forge", "s1")
    bus = create_ui_event_bus("s1", recorder=journal.record_event, commit=journal.flush)
    live: list[Any] = []
    bus.on("*", live.append)
    path = make_path(count, bus=bus, journal=journal, id="s1")
    await path.batch([ToolCall("count", {"n": n}) for n in range(3)])
    await path.call(ToolCall("nope", {}))
    bus.emit("status", {"type": "info", "message": "done"})
    journal.close()
    again = list(events_after(journal.path))
    assert [event.seq for event in again] == list(range(1, len(live) + 1))
    assert [event.type for event in again] == [event.type for event in live]
    for before, after in zip(live, again, strict=True):
        assert before.wire == after.wire


async def test_a_call_that_touches_nothing_is_one_record_unless_something_comes_between(
    make_path: Any, own_home: Path
) -> None:
    @tool(needs_approval=False, effects=())
    async def pure(n: int, wait: bool = False) -> int:
        if wait:
            await asyncio.sleep(0.01)
        return n

    journal = Journal.create(own_home / ".forge", "s1")
    bus = create_ui_event_bus("s1", recorder=journal.record_event, commit=journal.flush)
    path = make_path(pure, bus=bus, journal=journal, id="s1")
    await path.call(ToolCall("pure", {"n": 1}))
    await path.call(ToolCall("pure", {"n": 2, "wait": True}))
    bus.emit("status", {"type": "info", "message": "between"})
    await path.call(ToolCall("pure", {"n": 3}))
    journal.close()
    types = [record["type"] for record in read(journal.path)]
    assert types == ["session", "done", "begun", "finished", "event", "done", "closed"]
    events = list(events_after(journal.path))
    assert [event.seq for event in events] == list(range(1, 8))
    assert [event.type for event in events].count("toolStarted") == 3
    results = [event for event in events if event.type == "toolResult"]
    assert [event.data.value["data"] for event in results] == [1, 2, 3]
    assert [event.seq for event in events_after(journal.path, 1, limit=2)] == [2, 3]
    assert verify(journal.path).ok
    assert [(call.tool, call.status) for call in SessionIndex(own_home / ".forge").calls(limit=9)] == [
        ("pure", "success")
    ] * 3


async def test_an_event_while_a_harmless_call_runs_keeps_the_numbers_in_order(make_path: Any, own_home: Path) -> None:
    journal = Journal.create(own_home / ".forge", "s1")
    bus = create_ui_event_bus("s1", recorder=journal.record_event, commit=journal.flush)

    @tool(needs_approval=False, effects=())
    async def talks() -> str:
        bus.emit("status", {"type": "info", "message": "in the middle"})
        return "ok"

    path = make_path(talks, bus=bus, journal=journal, id="s1")
    await path.call(ToolCall("talks", {}))
    journal.close()
    assert [(event.seq, event.type) for event in events_after(journal.path)] == [
        (1, "toolStarted"), (2, "status"), (3, "toolResult"),
    ]  # fmt: skip


async def test_every_started_call_has_one_result_under_concurrency(make_path: Any, own_home: Path) -> None:
    @tool(needs_approval=False, read_only=True)
    async def naps(n: int) -> int:
        await asyncio.sleep(0.001 * (n % 5))
        if n % 7 == 0:
            raise ValueError("seven")
        return n

    journal = Journal.create(own_home / ".forge")
    path = make_path(naps, journal=journal)
    await path.batch([ToolCall("naps", {"n": n}) for n in range(60)])
    journal.close()
    started = [r["call"] for r in read(journal.path) if r["type"] == "started"]
    finished = [r["call"] for r in read(journal.path) if r["type"] == "finished"]
    assert sorted(started) == sorted(finished) and len(set(finished)) == 60
    assert verify(journal.path).ok


async def test_of_two_calls_with_one_id_at_once_the_second_is_refused(make_path: Any, own_home: Path) -> None:
    journal = Journal.create(own_home / ".forge", "s1")
    bus = create_ui_event_bus("s1", recorder=journal.record_event, commit=journal.flush)
    shown: list[Any] = []
    bus.on("toolResult", shown.append)
    go, runs = asyncio.Event(), []

    @tool(needs_approval=False)
    async def held(n: int) -> int:
        runs.append(n)
        await go.wait()
        return n

    path = make_path(held, journal=journal, bus=bus, id="s1")
    first = asyncio.ensure_future(path.call(ToolCall("held", {"n": 1}, id="same")))
    await asyncio.sleep(0)
    refused = await path.call(ToolCall("held", {"n": 2}, id="same"))
    assert (refused.status, refused.executed) == ("input_invalid", False)
    assert "call id 'same' is in use" in refused.error and refused.call.id == "same"
    assert CallRecords.from_records(read(journal.path)).calls["same"].state == "ambiguous", "the first still runs"
    go.set()
    assert (await first).ok
    again = await path.call(ToolCall("held", {"n": 3}, id="same"))
    assert again.ok and runs == [1, 3], "afterwards the id is free"
    journal.close()
    assert [event.data.status for event in shown] == ["input_invalid", "success", "success"]
    assert shown[0].data.tool_call_id != "same", "a UI must not take the refusal for the end of the first"


@pytest.mark.parametrize("mode", ["parallel", "sequential"])
async def test_one_id_twice_in_a_batch(make_path: Any, own_home: Path, counted: Any, mode: str) -> None:
    count, runs = counted
    journal = Journal.create(own_home / ".forge", "s1")
    path = make_path(count, journal=journal)
    calls = [ToolCall("count", {"n": n}, id=id) for n, id in enumerate(["x", "y", "x"])]
    outcomes = await path.batch(calls, mode=mode)
    assert [outcome.status for outcome in outcomes] == ["success", "success", "input_invalid"]
    assert [outcome.call for outcome in outcomes] == calls
    assert runs == [0, 1]
    journal.close()
    assert CallRecords.from_records(read(journal.path)).calls["x"].status == "success"
