"""The socket of a page: everything recorded once and in order, open questions again, streams whole, nobody waits."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from tests.ui.web.bench import until
from tests.ui.web.onlooker import Page, served
from tests.ui.web.stage import WORKSPACE, calls
from websockets.exceptions import ConnectionClosed

from golem_forge.agent.conversation import Conversation
from golem_forge.agent.files.worker import Worker
from golem_forge.agent.model.scripted import FunctionScript, Turn
from golem_forge.agent.runtime import WorkerRuntime
from golem_forge.events.bus import EventBus
from golem_forge.events.journal_records import events_after
from golem_forge.ui.web import security
from golem_forge.ui.web.api import ApiRefusal
from golem_forge.ui.web.stream import socket
from golem_forge.ui.web.stream import watched_session as page_queue
from golem_forge.ui.web.stream.watched_session import Audience
from golem_forge.ui.web.views import Frame


@pytest.fixture
async def talk(tmp_path: Path, own_home: Path) -> AsyncIterator[Callable[..., Any]]:
    """`await talk(turns, tools=[…])` gives a runtime that waits for input."""
    opened: list[tuple[WorkerRuntime, asyncio.Task[Any]]] = []
    (tmp_path / "project").mkdir()

    async def make(turns: Sequence[Any], **options: Any) -> WorkerRuntime:
        waiting = list(turns)
        runtime = WorkerRuntime(
            options.pop("worker", None) or Worker(name="main", toolsets={"filesystem": {}}, sandbox=WORKSPACE),
            directory=tmp_path / "project",
            model=FunctionScript(lambda request: waiting.pop(0) if waiting else "No more."),
            default_mode="chat",
            **options,
        )
        detach = runtime.ui.attach("terminal")
        await runtime.initialize()
        opened.append((runtime, asyncio.ensure_future(_run(runtime, detach))))
        return runtime

    yield make
    for runtime, task in opened:
        task.cancel()
        await asyncio.wait({task})
        await runtime.aclose()


async def _run(runtime: WorkerRuntime, detach: Callable[[], None]) -> None:
    try:
        await Conversation(runtime).run()
    finally:
        detach()


async def say(runtime: WorkerRuntime, text: str) -> None:
    """As soon as somebody listens."""

    def prompts() -> list[Any]:
        asked: list[Any] = []
        runtime.ui.replay_open(asked.append)
        return [event for event in asked if event.type == "inputPrompt"]

    [prompt, *_] = await until(prompts)
    runtime.bus.emit("userInput", {"requestId": prompt.wire["requestId"], "content": text}, source="terminal")


def journal_of(runtime: WorkerRuntime) -> list[dict[str, Any]]:
    assert runtime.journal is not None
    runtime.journal.flush()
    return [event.to_dict() for event in events_after(runtime.journal.path)]


async def idle(page: Page) -> None:
    """The turn is over."""
    await page.until("inputPrompt")


async def test_a_page_sees_a_turn_as_it_is_recorded(talk: Callable[..., Any]) -> None:
    runtime = await talk([calls(("read_file", {"path": "/workspace/none"}), say="I look."), "There is **none**."])
    async with served(runtime) as house:
        page = await house.page()
        hello = await page.until("hello")
        assert hello["session"] == {"id": runtime.session_id, "state": "live", "answerable": True}
        assert hello["more"] is False
        assert {shown["event"]["type"] for shown in hello["standing"]} >= {"sessionStarted", "manualToolsAvailable"}
        caught_up = await page.until("caught_up")
        assert caught_up["seq"] == hello["seq"] == page.last_seq
        assert [frame["event"]["type"] for frame in page.frames if frame.get("again")] == ["inputPrompt"]
        await say(runtime, "hello")
        await idle(page)
        recorded = journal_of(runtime)
        assert page.recorded == [event["seq"] for event in recorded] == list(range(1, len(recorded) + 1))
        types = [event["type"] for event in recorded]
        assert [page.frames[-1]["event"]["type"], types.count("toolResult")] == ["inputPrompt", 1]
        answer = page.events("message")[-1]["data"]["message"]["content"]
        assert answer == "There is **none**." == page.text(page.events("streaming")[-1]["data"]["requestId"])


async def test_who_resumes_gets_what_was_missed_exactly_once(talk: Callable[..., Any]) -> None:
    runtime = await talk(["One.", "Two.", "Three."])
    async with served(runtime) as house:
        first = await house.page()
        await first.until("caught_up")
        await say(runtime, "1")
        await idle(first)
        await first.socket.close()
        await say(runtime, "2")
        await say(runtime, "3")
        second = await house.page(after=first.last_seq)
        hello = await second.until("hello")
        assert hello["resumed"] is True
        await idle(second)
        await second.until("caught_up")
        assert (
            first.recorded + second.recorded
            == [event["seq"] for event in journal_of(runtime)][: len(first.recorded + second.recorded)]
        )
        again = await house.page(after=10**9)
        assert (await again.until("hello"))["resumed"] is False, "it has forgotten more than this page has"


async def test_connecting_at_any_moment_of_a_busy_turn_loses_and_doubles_nothing(talk: Callable[..., Any]) -> None:
    text = "".join(f"word{number} " for number in range(300))
    turns = [
        *(calls(("read_file", {"path": f"/workspace/{number}"}), say="x") for number in range(8)),
        Turn(say=text, think="Hm. " * 20, chunks=150, until=(all_here := asyncio.Event()).wait),
    ]
    runtime = await talk(turns)
    async with served(runtime) as house:
        await say(runtime, "go")
        pages = [await house.page() for _ in range(12)]
        all_here.set()

        async def follow(page: Page) -> None:
            await page.until(lambda frame: frame["kind"] == "event" and _says(frame["event"], text))

        await asyncio.gather(*(follow(page) for page in pages))
        last = pages[0].last_seq
        for page in pages:
            numbers = [seq for seq in page.recorded if seq <= last]
            assert numbers == list(range(numbers[0], last + 1)) == list(range(1, last + 1))
            streamed = page.events("streaming")
            for request in {event["data"]["requestId"] for event in streamed if event["data"]["channel"] == "text"}:
                if page.text(request) != "x":
                    assert page.text(request) == text


def _says(event: dict[str, Any], text: str) -> bool:
    return event["type"] == "message" and event["data"]["message"]["content"] == text


async def test_a_stream_cut_in_the_middle_ends_with_the_text_of_the_journal(talk: Callable[..., Any]) -> None:
    text = "".join(f"- item *{number}*\n" for number in range(200))
    gate = asyncio.Event()
    runtime = await talk([Turn(say=text, chunks=200, until=gate.wait)])
    async with served(runtime) as house:
        page = await house.page()
        await page.until("caught_up")
        await say(runtime, "go")
        await page.until(lambda frame: frame["kind"] == "event" and len(page.text(_request(frame))) > 300)
        await page.socket.close()
        again = await house.page(after=page.last_seq)
        caught_up = await again.until("caught_up")
        wholes = [event for event in again.events("streaming") if "whole" in event["data"]]
        assert len(wholes) == 1 and caught_up["streams"] == [wholes[0]["data"]["requestId"]]
        gate.set()
        await again.until(lambda frame: frame["kind"] == "event" and _says(frame["event"], text))
        streamed = again.events("streaming")
        assert again.text(streamed[0]["data"]["requestId"]) == text
        assert [event["data"]["done"] for event in streamed].count(True) == 1
        assert len(streamed) <= 3, "what was missed comes as one piece"


def _request(frame: dict[str, Any]) -> str:
    return str(frame["event"]["data"].get("requestId")) if frame["event"]["type"] == "streaming" else ""


async def test_a_page_that_does_not_read_is_let_go_and_the_session_is_not_held_up(
    talk: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    runtime = await talk([])
    async with served(runtime) as house:
        slow = await house.page(max_queue=1, small=True)
        await slow.until("caught_up")
        with monkeypatch.context() as impatient:
            impatient.setattr(socket, "_SEND_LIMIT_S", 0.2)
            for number in range(120):
                runtime.bus.emit("status", {"type": "info", "message": f"{number} " + "x" * 65_000})
            await until(lambda: len(house.session.audience) == 0)
        quick = await house.page()  # which has the time that it needs
        await quick.until("caught_up")
        await slow.closed()
        assert slow.last_seq < runtime.bus.seq == quick.last_seq
        again = await house.page(after=slow.last_seq)
        await again.until("caught_up")
        assert slow.recorded + again.recorded == list(range(1, runtime.bus.seq + 1))


async def test_a_queue_that_overflows_ends_and_keeps_nothing() -> None:
    queue = page_queue.PageQueue(most=10)
    for number in range(11):
        queue.put(f"{number}")
    queue.put("later")
    assert json.loads(str(await queue.next()))["kind"] == "bye"
    with pytest.raises(page_queue.QueueClosed) as ended:
        await queue.next()
    assert ended.value.code == page_queue.BEHIND == 4408


async def test_a_few_long_events_are_too_many_for_a_page_that_does_not_read() -> None:
    """Threat: a thousand results of megabytes each would be kept for it."""
    bus, audience = EventBus("s"), Audience()
    queue = audience.join()
    bus.on("*", audience.take)
    bus.emit("status", {"type": "info", "message": "x" * 50_000_000})
    assert len(queue) == 1, "one alone is sent, however long it is"
    for _ in range(3):
        bus.emit("status", {"type": "info", "message": "short"})
    assert isinstance(await queue.next(), Frame) and len(queue) == 3
    for _ in range(100):
        bus.emit("status", {"type": "info", "message": "x" * 1_000_000})
    assert json.loads(str(await queue.next()))["kind"] == "bye"
    with pytest.raises(page_queue.QueueClosed) as ended:
        await queue.next()
    assert ended.value.code == page_queue.BEHIND


async def test_what_a_page_sends_is_checked(talk: Callable[..., Any]) -> None:
    runtime = await talk([])
    async with served(runtime) as house:
        page = await house.page()
        await page.until("caught_up")
        for text, words in (
            ("no json", "JSON object"),
            ("[" * 100_000, "JSON object"),
            ("[1]", "JSON object"),
            ('{"type": 5, "data": {}}', "`type`"),
            ('{"type": "userInput", "data": 3}', "`type`"),
        ):
            await page.socket.send(text)
            answer = await page.until("answer")
            assert answer["ok"] is False and words in answer["problem"]
        await page.socket.send(b"bytes")
        assert (await page.until("answer"))["ok"] is False
        await page.socket.send(json.dumps({"type": "ping"}))
        assert (await page.until("pong")) == {"kind": "pong"}
        assert (await page.act("sessionEnd", reason="completed"))["ok"] is False
        assert journal_of(runtime)[-1]["type"] == "inputPrompt", "nothing of it reached the bus"


async def test_a_session_that_is_not_there_or_a_number_that_is_none_is_told(talk: Callable[..., Any]) -> None:
    runtime = await talk([])
    async with served(runtime) as house:
        gone = await house.page(session="nobody")
        assert await gone.closed() == 4404 and gone.frames[0]["kind"] == "bye"
        odd = await house.page(after=-1)
        assert await odd.closed() == socket.BAD_REQUEST


async def test_closing_says_goodbye(talk: Callable[..., Any]) -> None:
    runtime = await talk([])
    async with served(runtime) as house:
        page = await house.page()
        await page.until("caught_up")
        await house.session.close()
        assert await page.closed() == 1001
        assert page.frames[-1] == {"kind": "bye", "reason": "The session ended here."}
        assert not runtime.ui.attached or runtime.ui.open_count == 1, "the terminal is still there"


async def test_an_event_is_on_its_way_at_once(talk: Callable[..., Any]) -> None:
    """In turns of a loop that does nothing else: whoever waited for a timer of 20 ms would take thousands."""
    runtime = await talk([])
    async with served(runtime) as house:
        page = await house.page()
        await page.until("caught_up")
        turns = 0

        async def turn() -> None:
            nonlocal turns
            while True:
                turns += 1
                await asyncio.sleep(0)

        turning = asyncio.create_task(turn())
        took = []
        for number in range(20):
            turns = 0
            runtime.bus.emit("status", {"type": "info", "message": f"{number}"})
            await page.until("status")
            took.append(turns)
        turning.cancel()
        assert sorted(took)[10] < 300, took


async def test_two_pages_of_a_long_history_get_its_end_and_the_rest_in_pages(talk: Callable[..., Any]) -> None:
    runtime = await talk([])
    async with served(runtime) as house:
        for number in range(450):
            runtime.bus.emit("status", {"type": "info", "message": f"{number}"})
        page = await house.page()
        hello = await page.until("hello")
        await page.until("caught_up")
        assert hello["more"] is True and len(page.recorded) == 200
        before = page.recorded[0]
        path = f"/api/sessions/{runtime.session_id}/events"
        earlier = (await house.ask("GET", path, params={"before": before})).json()
        assert [shown["event"]["seq"] for shown in earlier["events"]] == list(range(before - 200, before))
        assert earlier["more"] is True
        one = (await house.ask("GET", f"{path}/{before}")).json()
        assert one["event"] == journal_of(runtime)[before - 1]
        assert (await house.ask("GET", f"{path}/999999")).status_code == 404
        assert (await house.ask("GET", f"{path}/-1")).status_code == 404
        assert (await house.ask("GET", path, params={"after": 1, "before": 2})).status_code == 422
        assert (await house.ask("GET", path, params={"limit": 201})).status_code == 422


async def test_a_session_without_a_journal_is_shown_from_memory(talk: Callable[..., Any]) -> None:
    runtime = await talk(["Hello."], journal=False)
    async with served(runtime) as house:
        await say(runtime, "hi")
        page = await house.page()
        await page.until(lambda frame: frame["kind"] == "event" and _says(frame["event"], "Hello."))
        again = await house.page(after=page.last_seq - 2)
        await again.until("caught_up")
        assert again.recorded[:2] == [page.last_seq - 1, page.last_seq]


async def test_the_server_opened_in_the_middle_knows_what_was_before(talk: Callable[..., Any]) -> None:
    runtime = await talk(["One."])
    runtime.ui.update_plan([{"step": "think", "status": "in_progress"}])
    await say(runtime, "hi")
    await until(lambda: any(_says(event, "One.") for event in journal_of(runtime)))
    async with served(runtime) as house:
        page = await house.page()
        hello = await page.until("hello")
        await page.until("caught_up")
        assert page.recorded[0] == 1
        assert [shown["event"]["type"] for shown in hello["standing"]].count("planUpdated") == 1


async def test_who_comes_before_the_session_began_sees_its_first_question(tmp_path: Path, own_home: Path) -> None:
    project = tmp_path / "project"
    project.mkdir()
    runtime = WorkerRuntime(
        Worker(name="main", sandbox=WORKSPACE),
        directory=project,
        model=FunctionScript(lambda request: "x"),
        default_mode="chat",
    )
    async with served(runtime) as house:
        page = await house.page()
        await page.until("caught_up")
        asking = asyncio.ensure_future(runtime.ui.request_form(_form()))
        asked = await page.until("formRequired")
        assert asked["event"]["seq"] == 0
        assert (await page.act("formResponse", requestId=asked["event"]["data"]["requestId"], action="decline"))["ok"]
        assert (await asking)["by"] == "browser"
        await runtime.initialize()
        started = await page.until("sessionStarted")
        assert started["event"]["seq"] == 1
        await runtime.aclose()


def _form() -> dict[str, Any]:
    return {"source": "x", "title": "x", "message": "x", "fields": [], "workerPath": []}


async def test_a_secret_in_a_form_is_neither_shown_nor_logged(
    talk: Callable[..., Any], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("DEBUG")
    runtime = await talk([])
    async with served(runtime) as house:
        page = await house.page()
        await page.until("caught_up")
        asking = asyncio.ensure_future(runtime.ui.request_form(_form()))
        request = (await page.until("formRequired"))["event"]["data"]["requestId"]
        odd = await page.act("formResponse", requestId=request, action="accept", values="canary-5521")
        assert odd["ok"] is False
        assert (await page.act("formResponse", requestId=request, action="accept", values={"p": "canary-5521"}))["ok"]
        assert (await asking)["values"] == {"p": "canary-5521"}
        assert page.events("formResolved")
        ours = "".join(record.getMessage() for record in caplog.records if not record.name.startswith("websockets"))
        assert "canary-5521" not in json.dumps(page.frames) + ours + json.dumps(journal_of(runtime))
        late = await page.act("formResponse", requestId=request, action="decline")
        assert late["problem"] == "Too late: answered in browser."


@pytest.mark.parametrize("in_one_step", [False, True])
async def test_an_approval_that_comes_after_an_interrupt_is_told_that_it_is_too_late(
    talk: Callable[..., Any], tmp_path: Path, in_one_step: bool
) -> None:
    runtime = await talk([calls(("write_file", {"path": "/workspace/a.txt", "content": "x"})), "No more."])
    async with served(runtime) as house:
        page = await house.page()
        await page.until("caught_up")
        await say(runtime, "write it")
        asked = await page.until("approvalRequired")
        yes = {"requestId": asked["event"]["data"]["requestId"], "approved": True}
        if in_one_step:  # nothing else of the session ran between them
            socket.take_action(house.session, "interrupt", {})
            with pytest.raises(ApiRefusal) as refused:
                socket.take_action(house.session, "approvalResponse", yes)
            assert (refused.value.status, refused.value.problem.problem) == (409, "Too late: it was interrupted.")
        else:
            await page.socket.send(json.dumps({"type": "interrupt", "data": {}}))
            await page.socket.send(json.dumps({"id": "yes", "type": "approvalResponse", "data": yes}))
            answer = await page.until(lambda frame: frame["kind"] == "answer" and frame["id"] == "yes")
            assert (answer["ok"], answer.get("problem")) == (False, "Too late: it was interrupted.")
        await idle(page)
        (resolved,) = page.events("approvalResolved")
        assert (resolved["data"]["approved"], resolved["data"]["by"]) == (False, "interrupt")
        assert page.events("toolResult")[0]["data"]["status"] == "interrupted"
    assert not (tmp_path / "project" / "a.txt").exists()


@pytest.mark.parametrize(("text", "most"), [("x" * 900_000, 5), ("x", 301)])
async def test_a_page_that_floods_is_refused_then_closed_and_others_go_on(
    talk: Callable[..., Any], text: str, most: int
) -> None:
    runtime = await talk([])
    heard: list[Any] = []
    runtime.bus.on("command", heard.append)
    async with served(runtime) as house:
        page, other = await house.page(), await house.page()
        for each in (page, other):
            await each.until("caught_up")
        command = json.dumps({"id": "c", "type": "command", "data": {"requestId": "1", "text": text}})
        flood = asyncio.ensure_future(_send(page, command, 8 * most))
        assert await page.closed() == socket.TOO_MANY
        flood.cancel()
        refused = [frame for frame in page.frames if frame["kind"] == "answer" and not frame["ok"]]
        assert len(heard) < 4 * most and 0 < len(refused) < 4 * most, "a slow machine gives it more time"
        assert {(frame["id"], frame["problem"]) for frame in refused} == {("c", security.TOO_MUCH_AT_ONCE)}
        assert page.frames[-1] == {"kind": "bye", "reason": "This page sends too much."}
        assert (await other.act("command", requestId="2", text="/help"))["ok"] is True


async def test_actions_over_http_are_bounded_and_a_flood_of_tiny_pieces_is_cut_off(
    talk: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(security, "_BYTES_PER_SECOND", 0)
    runtime = await talk([])
    async with served(runtime) as house:
        large = {"type": "command", "data": {"requestId": "1", "text": "x" * 1_000_000}}
        headers, path = house.headers, f"/api/sessions/{runtime.session_id}/actions"
        answered = [(await house.ask("POST", path, json=large, headers=headers)).status_code for _ in range(6)]
        assert answered[0] == 202 and answered[-1] == 429
        page = await house.page()
        await page.until("caught_up")

        sent = 0

        async def pieces() -> AsyncIterator[str]:
            nonlocal sent
            while True:
                yield "x"
                sent += 1
                await asyncio.sleep(0)

        with pytest.raises(ConnectionClosed):
            await page.socket.send(pieces())
        assert sent < 500_000, "long before the message is too large"


async def _send(page: Page, text: str, times: int) -> None:
    with contextlib.suppress(ConnectionClosed):
        for _ in range(times):
            await page.socket.send(text)
