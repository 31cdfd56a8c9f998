"""Events name a worker by its run, policy by its path; a journal gives back the same (ui.md §1, §10)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from golem_forge import ToolCall, tool
from golem_forge.events.bus import EventBus
from golem_forge.events.journal import Journal
from golem_forge.events.journal_records import events_after, read
from golem_forge.events.serialization import Event


@tool(needs_approval=False)
def note(text: str) -> str:
    return text


@tool(needs_approval=False, effects=())
def think(text: str) -> str:
    return text


@pytest.mark.parametrize("name", ["note", "think"])
@pytest.mark.parametrize("batch", [False, True])
async def test_the_run_of_a_worker_survives_a_replay(tmp_path: Path, make_path: Any, name: str, batch: bool) -> None:
    journal = Journal.create(tmp_path, "s")
    bus = EventBus("s")
    bus.record_with(journal.record_event, journal.flush)
    live: list[Event] = []
    bus.on("*", live.append)
    path = make_path(note, think, bus=bus, journal=journal, worker="main/helper", worker_id="run-7")
    call = ToolCall(name, {"text": "x"})
    _ = await path.batch([call]) if batch else await path.call(call)
    journal.close()
    replayed = list(events_after(journal.path))
    assert [(event.type, event.worker_id) for event in replayed] == [("toolStarted", "run-7"), ("toolResult", "run-7")]
    assert [(event.type, event.worker_id) for event in live] == [("toolStarted", "run-7"), ("toolResult", "run-7")]
    assert replayed[0].wire["workerId"] == live[0].wire["workerId"] == "run-7"
    assert {record["worker"] for record in read(journal.path) if "worker" in record} == {"main/helper"}


async def test_without_a_run_of_its_own_nothing_more_is_written(tmp_path: Path, make_path: Any) -> None:
    journal = Journal.create(tmp_path, "s")
    bus = EventBus("s")
    await make_path(note, bus=bus, journal=journal, worker="main").call(ToolCall("note", {"text": "x"}))
    journal.close()
    assert b"workerId" not in journal.path.read_bytes()
    assert [event.worker_id for event in events_after(journal.path)] == ["main", "main"]
    assert json.loads(journal.path.read_bytes().splitlines()[0])["type"] == "session"
