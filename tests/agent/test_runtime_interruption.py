"""One signal for the whole tree, at once. workers.md §10, cases 40 and 41."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from tests.agent.conftest import WORKSPACE, calls
from tests.agent.test_delegation import cast, may_call, program
from tests.deadlines import PATIENCE, ROOM

from golem_forge import WorkerRuntime, create_interrupt_signal, tool
from golem_forge.agent import runtime
from golem_forge.agent.files.worker import BatchSettings, Worker
from golem_forge.agent.model.interface import AssistantMessage, ResultsMessage
from golem_forge.agent.model.scripted import Turn, TurnFailure
from golem_forge.agent.run_result import RunStatus
from golem_forge.storage.home import forge_home

Play = Any


def interrupt_when(
    played: Any,
    kind: str,
    matches: Callable[[Any], bool] = lambda event: True,
    after: float = 0.1,
    by: Callable[[], None] | None = None,
) -> None:
    """Interrupts once, soon after an event of this kind; the time is kept. `by`: left out, as a person does."""

    def seen(event: Any) -> None:
        if matches(event) and not hasattr(played, "interrupted_at"):
            played.interrupted_at = time.monotonic() + after
            asyncio.get_running_loop().call_later(after, by or played.runtime.interrupt)

    played.runtime.bus.on(kind, seen)


async def settled(played: Any, text: str = "go") -> Any:
    result = await asyncio.wait_for(played.runtime.run(text), PATIENCE)
    assert time.monotonic() - played.interrupted_at < 1 + ROOM
    assert result.status is RunStatus.INTERRUPTED and result.success and result.response == "[Interrupted]"
    return result


async def goes_on(played: Any) -> None:
    """After `reset()` a run like any other."""
    played.runtime.signal.reset()
    assert (await played.runtime.run("and now?")).response == "fine"


async def test_w40_the_running_call_keeps_its_output_and_the_others_never_start(play: Play, tmp_path: Path) -> None:
    ran = []

    @tool(needs_approval=False)
    async def touch(n: int) -> int:
        """Touches."""
        ran.append(n)
        return n

    worker = Worker(name="main", toolsets={"coding": {}}, sandbox=WORKSPACE, batch=BatchSettings(mode="sequential"))
    command = "echo begun; sleep 60"
    three = calls(("exec_command", {"cmd": command, "yield_time_ms": 20000}), ("touch", {"n": 2}), ("touch", {"n": 3}))
    played = await play([three, "fine"], worker=worker, tools=[touch])
    interrupt_when(played, "toolOutput", lambda event: "begun" in event.wire["delta"])
    await settled(played)
    results = played.runtime.history.messages[-1]
    assert isinstance(results, ResultsMessage)
    assert [each.status.value for each in results.results] == ["interrupted"] * 3
    assert "begun" in results.results[0].text
    assert ran == []
    assert results.note == "The user interrupted before these finished."
    assert [event.wire["reason"] for event in played.seen("sessionEnd")] == ["interrupted"]
    await goes_on(played)
    assert results in played.script.requests[-1].messages, "the model is told"


async def test_w41_a_slow_stream_stops_and_its_text_is_kept(play: Play) -> None:
    long = "one " + "more " * 98 + "eight"
    played = await play([Turn(say=long, chunks=100, until=asyncio.Event().wait), "fine"])
    interrupt_when(played, "streaming")
    result = await settled(played)
    assert "one" in result.partial and "eight" not in result.partial
    kept, note = played.runtime.history.messages[-2:]
    assert isinstance(kept, AssistantMessage) and kept.interrupted and kept.text == result.partial
    await goes_on(played)
    assert note in played.script.requests[-1].messages and "interrupted" in note.text, "the model is told"


async def test_w41_a_retry_wait_is_ended(play: Play) -> None:
    failing = Turn(fail=TurnFailure(status=429, retry_after=30))
    played = await play([failing, "fine"])
    interrupt_when(played, "status", lambda event: event.wire.get("code") == "MODEL_RETRY")
    await settled(played)
    await goes_on(played)


async def test_w41_an_open_card_is_withdrawn(play: Play) -> None:
    write = calls(("write_file", {"path": "a.txt", "content": "x"}))
    played = await play([write, "fine"], approval=None, ui_adapter=_Watcher)
    interrupt_when(played, "approvalRequired")
    await settled(played)
    resolved = played.seen("approvalResolved")[0].wire
    assert (resolved["approved"], resolved["by"]) == (False, "interrupt")
    results = played.runtime.history.messages[-1]
    assert [each.status.value for each in results.results] == ["interrupted"]
    await goes_on(played)


async def test_w41_inside_a_child_everything_below_ends(play: Play, tmp_path: Path) -> None:
    zone = "toolsets: {coding: {}}\nsandbox: {zones: [{name: workspace, mode: rw}]}\n"
    folder = program(tmp_path / "p", main=may_call("helper"), helper=zone)
    turns = cast(
        main=[calls(("helper", {"input": "wait"})), "fine"],
        helper=[calls(("exec_command", {"cmd": "sleep 60", "yield_time_ms": 20000}))],
    )
    played = await play(turns, worker="main", directory=folder)
    interrupt_when(played, "toolStarted", lambda event: event.wire["toolName"] == "exec_command", after=0.5)
    await settled(played)
    last = [event.wire for event in played.seen("workerUpdate") if event.wire["name"] == "helper"][-1]
    assert (last["status"], last["task"]) == ("error", "interrupted")
    statuses = {event.wire["toolName"]: event.wire["status"] for event in played.seen("toolResult")}
    assert statuses == {"exec_command": "interrupted", "helper": "interrupted"}


async def test_the_bus_and_the_callers_own_signal_are_the_same_switch(play: Play) -> None:
    signal = create_interrupt_signal()
    endless = Turn(say="a b c d", chunks=4, until=asyncio.Event().wait)
    played = await play([endless], interrupt_signal=signal)
    interrupt_when(played, "streaming", by=partial(played.runtime.bus.emit, "interrupt", {}))
    await settled(played)
    assert signal.reason


async def test_a_termination_is_told_apart(play: Play) -> None:
    played = await play([Turn(say="a b c d", chunks=4, until=asyncio.Event().wait)])
    interrupt_when(played, "streaming", by=partial(played.runtime.interrupt, "terminated"))
    result = await played.runtime.run("go")
    assert result.status is RunStatus.TERMINATED


class _Watcher:
    """A UI that is there and answers nothing."""

    def __init__(self, bus: Any) -> None:
        self._bus = bus

    async def initialize(self) -> None:
        from golem_forge import create_runtime_ui

        self._gone = create_runtime_ui(self._bus).attach("watcher")

    async def shutdown(self) -> None:
        self._gone()


async def test_a_start_that_is_cancelled_as_it_ends_leaves_no_session_open(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    start = runtime.start_session

    async def start_and_be_cancelled(*asked: Any) -> Any:
        started = await start(*asked)
        starting.cancel()
        return started

    monkeypatch.setattr(runtime, "start_session", start_and_be_cancelled)
    opened = WorkerRuntime(directory=tmp_path, needs_model=False)
    starting = asyncio.create_task(opened.initialize())
    await asyncio.wait({starting})
    assert starting.cancelled()
    [journal] = (forge_home().path / "sessions").glob("*.jsonl")
    assert json.loads(journal.read_text().splitlines()[-1])["type"] == "closed"
