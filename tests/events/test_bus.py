"""The bus: ui.md §3 and §12 cases 1 and 2."""

from __future__ import annotations

import asyncio
import logging
import threading
from pathlib import Path
from typing import Any

import pytest

from golem_forge.core.decisions import Decision, Verdict
from golem_forge.events.bus import Disconnected, EventBus, create_ui_event_bus
from golem_forge.events.journal import CallStart, Journal
from golem_forge.events.journal_records import events_after, read, verify
from golem_forge.events.model import StatusEvent, ToolStarted
from golem_forge.events.redaction import Redactor
from golem_forge.events.serialization import Event

STATUS = {"type": "info", "message": "hello"}


@pytest.fixture
def bus() -> EventBus:
    return create_ui_event_bus()


def test_case_1_a_raising_handler_is_logged_and_the_others_run(bus: EventBus, caplog: pytest.LogCaptureFixture) -> None:
    ran: list[str] = []

    def second(event: Event) -> None:
        ran.append("second")
        raise RuntimeError("broken handler")

    bus.on("status", lambda event: ran.append("first"))
    bus.on("status", second)
    bus.on("status", lambda event: ran.append("third"))
    with caplog.at_level(logging.ERROR):
        bus.emit("status", STATUS)
    assert ran == ["first", "second", "third"]
    assert "broken handler" in caplog.text


def test_case_1_unsubscribe_off_and_clear(bus: EventBus) -> None:
    ran: list[str] = []
    unsubscribe = bus.on("status", lambda event: ran.append("a"))
    bus.on("status", lambda event: ran.append("b"))
    bus.on("message", lambda event: ran.append("m"))
    bus.on("*", lambda event: ran.append("*"))
    unsubscribe()
    unsubscribe()
    bus.emit("status", STATUS)
    assert ran == ["b", "*"]
    bus.off("status")
    bus.emit("status", STATUS)
    bus.emit("message", {"message": {"role": "user", "content": "x"}})
    assert ran == ["b", "*", "*", "m", "*"]
    bus.clear()
    bus.emit("message", {"message": {"role": "user", "content": "x"}})
    assert len(ran) == 5


def test_case_1_a_handler_added_during_an_emit_sees_only_the_next_event(bus: EventBus) -> None:
    late: list[int] = []
    added = False

    def adds(event: Event) -> None:
        nonlocal added
        if not added:
            added = True
            bus.on("status", lambda event: late.append(event.seq))

    bus.on("status", adds)
    bus.emit("status", STATUS)
    assert late == []
    bus.emit("status", STATUS)
    assert late == [2]


def test_a_handler_removed_during_an_emit_is_passed_by(bus: EventBus) -> None:
    ran: list[str] = []
    bus.on("status", lambda event: remove())
    remove = bus.on("status", lambda event: ran.append("removed"))
    bus.emit("status", STATUS)
    assert ran == []


def test_star_and_named_handlers_run_in_subscription_order(bus: EventBus) -> None:
    ran: list[str] = []
    for name, kind in (("1", "*"), ("2", "status"), ("3", "*"), ("4", "status")):
        bus.on(kind, lambda event, name=name: ran.append(name))  # type: ignore[misc]
    bus.emit("status", STATUS)
    assert ran == ["1", "2", "3", "4"]


def test_an_emit_inside_a_handler_is_delivered_after_the_current_event(bus: EventBus) -> None:
    seen: list[tuple[str, str]] = []

    def first(event: Event) -> None:
        seen.append(("first", event.data.message))
        if event.data.message == "outer":
            bus.emit(StatusEvent(type="info", message="inner"))

    bus.on("status", first)
    bus.on("status", lambda event: seen.append(("second", event.data.message)))
    bus.emit(StatusEvent(type="info", message="outer"))
    assert seen == [("first", "outer"), ("second", "outer"), ("first", "inner"), ("second", "inner")]


def test_both_forms_of_emit_give_the_same_event() -> None:
    bus = create_ui_event_bus("s1")
    seen: list[Event] = []
    bus.on("toolStarted", seen.append)
    bus.emit("toolStarted", {"toolCallId": "c", "toolName": "t", "args": {}, "caller": "llm"}, "w1")
    bus.emit(ToolStarted(tool_call_id="c", tool_name="t", args={}, caller="llm"), worker_id="w1")
    assert seen[0].data == seen[1].data
    assert seen[1].wire == {"toolCallId": "c", "toolName": "t", "args": {}, "caller": "llm"}
    assert [(one.session_id, one.worker_id, one.seq) for one in seen] == [("s1", "w1", 1), ("s1", "w1", 2)]


@pytest.mark.parametrize("listening", [False, True])
def test_a_missing_required_field_is_refused_with_and_without_subscribers(bus: EventBus, listening: bool) -> None:
    seen: list[Event] = []
    if listening:
        bus.on("*", seen.append)
    with pytest.raises(ValueError, match="'toolStarted': required field 'toolName'"):
        bus.emit("toolStarted", {"toolCallId": "c", "args": {}})
    assert seen == []
    assert bus.seq == 0


def test_an_async_handler_is_refused() -> None:
    async def handler(event: Event) -> None:
        """Never called."""

    with pytest.raises(TypeError, match="subscribe_queue"):
        create_ui_event_bus().on("status", handler)


def test_transient_events_carry_the_last_recorded_number(bus: EventBus) -> None:
    seen: list[tuple[str, int]] = []
    bus.on("*", lambda event: seen.append((event.type, event.seq)))
    bus.emit("status", STATUS)
    bus.emit("toolProgress", {"toolCallId": "c", "progress": 1})
    bus.emit("streaming", {"requestId": "r", "delta": "x", "done": False, "channel": "text"})
    bus.emit("status", STATUS)
    assert seen == [("status", 1), ("toolProgress", 1), ("streaming", 1), ("status", 2)]


async def test_an_emit_from_another_thread_arrives_on_the_loop() -> None:
    bus = create_ui_event_bus()
    threads: list[int] = []
    bus.on("status", lambda event: threads.append(threading.get_ident()))
    worker = threading.Thread(target=lambda: bus.emit("status", STATUS))
    worker.start()
    worker.join()
    assert threads == []
    await asyncio.sleep(0)
    assert threads == [threading.get_ident()]


async def test_a_thread_learns_of_a_missing_field_where_it_emitted() -> None:
    bus = create_ui_event_bus()
    with pytest.raises(ValueError, match="'message'"):
        await asyncio.to_thread(bus.emit, "status", {"type": "info"})


def test_a_bus_bound_before_its_loop_runs_delivers_there(bus: EventBus) -> None:
    loop = asyncio.new_event_loop()
    bus.bind_loop(loop)
    seen: list[int] = []
    bus.on("status", lambda event: seen.append(threading.get_ident()))
    bus.emit("status", STATUS)
    assert seen == []
    loop.run_until_complete(asyncio.sleep(0))
    loop.close()
    assert seen == [threading.get_ident()]


def test_case_2_a_session_with_three_workers_and_fifty_calls_is_numbered_without_gaps(tmp_path: Path) -> None:
    journal = Journal.create(tmp_path, "s1")
    bus = create_ui_event_bus("s1", recorder=journal.record_event, commit=journal.flush)
    on_disk_when_seen: list[bool] = []

    def seen(event: Event) -> None:
        written = [record.get("seq") for record in read(journal.path)]
        on_disk_when_seen.append(event.seq in written)

    unsubscribe = bus.on("*", seen)
    decision = Decision(verdict=Verdict.PRE_APPROVED)
    for number in range(50):
        worker, call = f"w{number % 3}", f"c{number}"
        seq = journal.begin(CallStart(call, "t", {}, decision, worker=worker))
        started = {"toolCallId": call, "toolName": "t", "args": {}, "caller": "llm"}
        bus.show("toolStarted", lambda data=started: data, worker, seq)
        bus.emit("toolOutput", {"toolCallId": call, "stream": "stdout", "delta": "x"}, worker)
        seq = journal.finish(call, "success", 1, value={"kind": "json", "data": number})
        result = {"toolCallId": call, "toolName": "t", "args": {}, "status": "success", "durationMs": 1}
        whole = {**result, "decision": decision.to_json(), "truncated": False}
        bus.show("toolResult", lambda data=whole: data, worker, seq)
        if number == 10:
            unsubscribe()
    journal.close()
    assert all(on_disk_when_seen) and len(on_disk_when_seen) == 33
    events = list(events_after(journal.path))
    assert [event.seq for event in events] == list(range(1, 101))
    assert {event.worker_id for event in events} == {"w0", "w1", "w2"}
    for number in range(50):
        mine = [event.type for event in events if event.data.tool_call_id == f"c{number}"]
        assert mine == ["toolStarted", "toolResult"]
    last = events[-1].data
    assert (last.value, last.decision) == ({"kind": "json", "data": 49}, decision.to_json())
    assert [event.seq for event in events_after(journal.path, 90, limit=3)] == [91, 92, 93]


def test_a_failing_recorder_is_logged_and_the_ui_still_learns(caplog: pytest.LogCaptureFixture) -> None:
    def refuse(event: Event) -> int:
        raise OSError("disk full")

    bus = create_ui_event_bus(recorder=refuse)
    seen: list[int] = []
    bus.on("status", lambda event: seen.append(event.seq))
    bus.emit("status", STATUS)
    assert seen == [0]
    assert "could not be recorded" in caplog.text


def _redacting_bus() -> tuple[Any, list[Event]]:
    redactor = Redactor()
    redactor.add_secret("API", "hunter2hunter2")
    kept: list[Event] = []

    def keep(event: Event) -> int:
        kept.append(event)
        return len(kept)

    return create_ui_event_bus(recorder=keep, redact=redactor.value), kept


def test_display_events_are_redacted_before_they_exist() -> None:
    bus, kept = _redacting_bus()
    seen: list[Event] = []
    bus.on("status", seen.append)
    bus.emit(StatusEvent(type="info", message="key is hunter2hunter2"))
    assert seen[0].data.message == kept[0].data.message == "key is [secret API]"


def test_actions_reach_the_runtime_raw_and_everyone_else_redacted() -> None:
    bus, kept = _redacting_bus()
    raw: list[Event] = []
    shown: list[Event] = []
    bus.on("manualToolInvoke", raw.append)
    bus.on("*", shown.append)
    bus.emit("manualToolInvoke", {"toolName": "t", "args": {"password": "swordfish", "x": "hunter2hunter2"}})
    assert raw[0].data.args == {"password": "swordfish", "x": "hunter2hunter2"}
    assert shown[0].data.args["x"] == kept[0].data.args["x"] == "[secret API]"
    assert "swordfish" not in shown[0].to_json() + kept[0].to_json()
    assert raw[0].seq == shown[0].seq == 1


def test_what_is_typed_into_a_form_is_never_recorded() -> None:
    kept: list[Event] = []
    bus = create_ui_event_bus(recorder=lambda event: kept.append(event) or 1)  # type: ignore[func-returns-value]
    raw: list[Event] = []
    bus.on("formResponse", raw.append)
    bus.emit("formResponse", {"requestId": "r", "action": "accept", "values": {"pin": "12345"}})
    assert raw[0].data.values == {"pin": "12345"}
    assert kept[0].wire["values"] == {"pin": "[not recorded]"}


async def test_a_queue_merges_waiting_deltas_of_one_id_and_nothing_else() -> None:
    bus = create_ui_event_bus()
    queue = bus.subscribe_queue()

    def stream(request: str, delta: str, done: bool = False, channel: str = "text", **more: Any) -> None:
        bus.emit("streaming", {"requestId": request, "delta": delta, "done": done, "channel": channel, **more})

    def output(delta: str, stream: str = "stdout") -> None:
        bus.emit("toolOutput", {"toolCallId": "c", "stream": stream, "delta": delta})

    for one in "abc":
        stream("r1", one)
    stream("r2", "x")
    stream("r2", "y", channel="thinking")
    output("1")
    output("2")
    output("3", "stderr")
    bus.emit("status", STATUS)
    bus.emit("status", STATUS)
    stream("r1", "d", done=True)
    stream("r1", "e")
    stream("r1", "", whole="abcde")
    got = [await queue.get() for _ in range(len(queue))]
    assert [event.wire.get("delta", event.type) for event in got] == [
        "abc", "x", "y", "12", "3", "status", "status", "d", "e", "",
    ]  # fmt: skip
    assert got[7].data.done is True


async def test_merging_changes_no_event_that_another_subscriber_holds() -> None:
    bus = create_ui_event_bus()
    held: list[Event] = []
    bus.on("toolOutput", held.append)
    bus.subscribe_queue()
    for delta in "ab":
        bus.emit("toolOutput", {"toolCallId": "c", "stream": "stdout", "delta": delta})
    assert [event.wire["delta"] for event in held] == ["a", "b"]


async def test_an_overflowing_queue_is_disconnected_with_the_number_to_resume_after() -> None:
    bus = create_ui_event_bus()
    queue = bus.subscribe_queue(maxsize=3)
    for _ in range(5):
        bus.emit("status", STATUS)
    assert queue.overflowed
    assert [(await queue.get()).seq for _ in range(3)] == [1, 2, 3]
    with pytest.raises(Disconnected) as caught:
        await queue.get()
    assert caught.value.seq == 3
    bus.emit("status", STATUS)
    assert len(queue) == 0


async def test_the_default_queue_holds_1024_and_wakes_its_reader() -> None:
    bus = create_ui_event_bus()
    queue = bus.subscribe_queue()
    reader = asyncio.create_task(queue.get())
    await asyncio.sleep(0)
    bus.emit("status", STATUS)
    assert (await reader).seq == 1
    for _ in range(1024):
        bus.emit("status", STATUS)
    assert not queue.overflowed
    bus.emit("status", STATUS)
    assert queue.overflowed


async def test_a_closed_queue_ends_its_iteration() -> None:
    bus = create_ui_event_bus()
    queue = bus.subscribe_queue()
    bus.emit("status", STATUS)
    bus.clear()
    assert [event.seq async for event in queue] == [1]


def in_a_thread(work: Any) -> None:
    thread = threading.Thread(target=work)
    thread.start()
    thread.join()


def test_a_bus_made_before_its_loop_never_delivers_from_a_tools_thread(tmp_path: Path) -> None:
    journal = Journal.create(tmp_path, "s1")
    bus = create_ui_event_bus("s1", recorder=journal.record_event, commit=journal.flush)
    threads: set[int] = set()
    bus.on("*", lambda event: threads.add(threading.get_ident()))
    progress = {"toolCallId": "c", "progress": 1}

    def tool(call: str) -> None:
        for number in range(50):
            bus.emit("toolProgress", progress)
            bus.emit("status", {"type": "info", "message": f"{call} {number}"})

    async def calls() -> None:
        async def one(call: str) -> None:
            seq = journal.begin(CallStart(call, "t", {}, Decision(verdict=Verdict.PRE_APPROVED)))
            started = {"toolCallId": call, "toolName": "t", "args": {}, "caller": "llm"}
            bus.show("toolStarted", lambda: started, "", seq)
            await asyncio.to_thread(tool, call)
            journal.finish(call, "success")

        await asyncio.gather(*(one(f"c{number}") for number in range(4)))
        await asyncio.sleep(0)

    asyncio.run(calls())
    journal.close()
    assert threads == {threading.get_ident()}
    assert verify(journal.path).ok
    assert [event.seq for event in events_after(journal.path)] == list(range(1, 4 * 52 + 1))


@pytest.mark.parametrize("by", ["emit", "show"])
def test_the_first_thread_keeps_a_bus_without_a_loop(bus: EventBus, by: str) -> None:
    seen: list[tuple[str, int]] = []
    bus.on("status", lambda event: seen.append((event.wire["message"], threading.get_ident())))

    def say(message: str) -> None:
        data = {"type": "info", "message": message}
        bus.emit("status", data) if by == "emit" else bus.show("status", lambda: data, "", 0)

    here = threading.get_ident()
    say("first")
    in_a_thread(lambda: say("second"))
    in_a_thread(lambda: say("third"))
    assert seen == [("first", here)]
    say("fourth")
    assert seen == [(message, here) for message in ("first", "second", "third", "fourth")]
    in_a_thread(lambda: say("fifth"))

    async def loop_comes() -> None:
        say("sixth")
        await asyncio.sleep(0)
        await asyncio.to_thread(say, "seventh")
        await asyncio.sleep(0)

    asyncio.run(loop_comes())
    assert {message for message, _ in seen} >= {"fifth", "sixth", "seventh"}
    assert {thread for _, thread in seen} == {here}


def test_a_second_loop_takes_over_from_one_that_was_closed(bus: EventBus) -> None:
    seen: list[str] = []
    bus.on("status", lambda event: seen.append(event.wire["message"]))

    async def session(message: str) -> None:
        bus.emit("status", {"type": "info", "message": message})

    in_a_thread(lambda: asyncio.run(session("one")))
    asyncio.run(session("two"))
    assert seen == ["one", "two"]


@pytest.mark.parametrize(
    "quote", [repr, lambda event: event.data, lambda event: event.wire], ids=["repr", "data", "wire"]
)
def test_a_failing_handlers_log_line_holds_no_data_of_an_action(
    bus: EventBus, caplog: pytest.LogCaptureFixture, quote: Any
) -> None:
    def fails(event: Event) -> None:
        raise ValueError(quote(event)) from RuntimeError(quote(event))

    bus.on("formResponse", fails)
    with caplog.at_level(logging.DEBUG):
        bus.emit("formResponse", {"requestId": "r1", "action": "accept", "values": {"pin": "swordfish"}})
    assert "swordfish" not in caplog.text
    assert "ValueError" in caplog.text and "in fails" in caplog.text


def test_a_failing_handlers_log_line_is_redacted_and_short(caplog: pytest.LogCaptureFixture) -> None:
    redactor = Redactor()
    redactor.add_secret("KEY", "hunter2hunter2")
    bus = create_ui_event_bus(redact=redactor.value)

    def fails(event: Event) -> None:
        raise ValueError("hunter2hunter2 " + event.data.message)

    bus.on("status", fails)
    with caplog.at_level(logging.DEBUG):
        bus.emit("status", {"type": "info", "message": "said"})
        bus.emit("status", {"type": "info", "message": "x" * 100_000})
    assert "hunter2" not in caplog.text and "[secret KEY] said" in caplog.text
    assert len(caplog.text) < 5000
