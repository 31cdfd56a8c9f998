"""A session of this process on pages: answerable while the server runs, known from its beginning to its end."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from tests.ui.web.onlooker import served
from tests.ui.web.stage import WORKSPACE

from golem_forge.agent.files.worker import Worker
from golem_forge.agent.model.scripted import FunctionScript
from golem_forge.agent.runtime import WorkerRuntime
from golem_forge.events.bus import EventBus
from golem_forge.ui.web.stream.watched_session import LiveSession

FORM: dict[str, Any] = {"source": "x", "title": "x", "message": "x", "fields": [], "workerPath": []}


def runtime_in(tmp_path: Path, **options: Any) -> WorkerRuntime:
    (tmp_path / "project").mkdir(exist_ok=True)
    return WorkerRuntime(
        Worker(name="main", sandbox=WORKSPACE),
        directory=tmp_path / "project",
        model=FunctionScript(lambda request: "Hello."),
        default_mode="chat",
        **options,
    )


async def started(tmp_path: Path, **options: Any) -> WorkerRuntime:
    """With somebody at a terminal."""
    runtime = runtime_in(tmp_path, **options)
    runtime.ui.attach("terminal")
    await runtime.initialize()
    return runtime


async def ended(tmp_path: Path, words: str) -> WorkerRuntime:
    """After one turn and a plan."""
    runtime = await started(tmp_path)
    await runtime.turn(words)
    runtime.ui.update_plan([{"step": "s", "status": "pending"}])
    runtime.end()
    await runtime.aclose()
    return runtime


async def test_it_can_be_answered_from_open_to_close_with_or_without_a_page(tmp_path: Path) -> None:
    session = LiveSession(None, EventBus("s1"), tmp_path, tmp_path)
    assert not session.ui.attached
    await session.open()
    await session.open()
    asking = asyncio.ensure_future(session.ui.request_form(FORM))
    await asyncio.sleep(0)
    assert session.ui.attached and len(session.open_questions()) == 1
    await session.close()
    assert (await asking)["action"] == "cancel" and not session.ui.attached
    await session.close()


async def test_closing_denies_nothing_while_another_ui_is_there(tmp_path: Path) -> None:
    session = LiveSession(None, EventBus("s1"), tmp_path, tmp_path)
    detach = session.ui.attach("terminal")
    await session.open()
    asking = asyncio.ensure_future(session.ui.request_form(FORM))
    await asyncio.sleep(0)
    await session.close()
    assert session.ui.open_count == 1 and not asking.done()
    detach()
    assert (await asking)["action"] == "cancel"


async def test_a_bus_without_a_name_is_remembered(tmp_path: Path) -> None:
    session = LiveSession(None, EventBus(""), tmp_path, tmp_path)
    await session.open()
    session.bus.emit("status", {"type": "info", "message": "x"})
    page = await session.history.page()
    assert [event.seq for event in page.events] == [1] and session.last_seq == 1
    await session.close()


async def test_an_earlier_session_that_goes_on_is_loaded_anew(tmp_path: Path, own_home: Path) -> None:
    first = await ended(tmp_path, "hi")
    again = runtime_in(tmp_path, resume=first.bus.session_id)
    async with served(again) as house:
        page = await house.page()
        hello = await page.until("hello")
        assert hello["seq"] == 0
        named = hello["session"]["id"]
        await again.initialize()
        assert await page.closed() == 4409
        assert page.frames[-1]["session"] == again.session_id == first.bus.session_id != named
        assert house.session.is_known_as(named) and house.session.is_known_as(again.session_id)
        after = await house.page()
        hello = await after.until("hello")
        await after.until("caught_up")
        standing = [shown["event"]["type"] for shown in hello["standing"]]
        assert "planUpdated" in standing and "sessionEnd" not in standing
        assert after.recorded == list(range(1, again.bus.seq + 1))
        await again.aclose()


async def test_what_is_told_while_the_file_is_read_is_neither_lost_nor_doubled(tmp_path: Path, own_home: Path) -> None:
    runtime = await started(tmp_path)
    async with served(runtime) as house:

        async def chatter() -> None:
            for number in range(400):
                runtime.bus.emit("status", {"type": "info", "message": f"{number}"})
                await asyncio.sleep(0.0005)

        talking = asyncio.ensure_future(chatter())
        pages = [await house.page(after=0) for _ in range(10)]
        await talking
        for page in pages:
            await page.until(lambda frame: frame["kind"] == "event" and frame["event"]["data"].get("message") == "399")
            assert page.recorded == list(range(1, runtime.bus.seq + 1))
    await runtime.aclose()


async def test_sessions_are_listed_found_and_told_apart(tmp_path: Path, own_home: Path) -> None:
    for words in ("first words", "zebra crossing"):
        await ended(tmp_path, words)
    runtime = await started(tmp_path)
    async with served(runtime) as house:
        answer = (await house.ask("GET", "/api/sessions")).json()
        assert [(row["state"], row["input"]) for row in answer["sessions"]] == [
            ("live", ""),
            ("closed", "zebra crossing"),
            ("closed", "first words"),
        ]
        found = (await house.ask("GET", "/api/sessions", params={"query": "ZEBRA main"})).json()
        assert [row["input"] for row in found["sessions"]] == ["zebra crossing"] and found["more"] is False
        few = (await house.ask("GET", "/api/sessions", params={"limit": 1})).json()
        assert len(few["sessions"]) == 1 and few["more"] is True
        assert (await house.ask("GET", "/api/sessions", params={"limit": 500})).status_code == 422
        row = (await house.ask("GET", f"/api/sessions/{found['sessions'][0]['id']}")).json()
        assert row == found["sessions"][0] and row["finished"] is True
        assert (await house.ask("GET", f"/api/sessions/{runtime.session_id}")).json()["state"] == "live"
        assert (await house.ask("GET", "/api/sessions/nobody")).status_code == 404
        assert (await house.ask("POST", "/api/sessions", json={"directory": "/"})).status_code == 409
        assert (await house.ask("POST", f"/api/sessions/{row['id']}/end", json={})).status_code == 409
    await runtime.aclose()


async def test_actions_and_questions_over_http(tmp_path: Path) -> None:
    runtime = await started(tmp_path, journal=False)
    async with served(runtime) as house:
        path = f"/api/sessions/{runtime.session_id}"
        asking = asyncio.ensure_future(runtime.ui.request_form({**FORM, "requestId": "q", "message": "m" * 300_000}))
        await asyncio.sleep(0)
        whole = await house.ask("GET", f"{path}/questions/q")
        assert len(whole.json()["event"]["data"]["message"]) == 300_000
        assert (await house.ask("GET", f"{path}/questions/other")).status_code == 404
        act = {"id": "mine", "type": "formResponse", "data": {"requestId": "q", "action": "decline"}}
        assert (await house.ask("POST", f"{path}/actions", json=act)).status_code == 202
        assert (await asking)["by"] == "browser"
        late = await house.ask("POST", f"{path}/actions", json=act)
        assert late.status_code == 409 and late.json()["problem"] == "Too late: answered in browser."
        odd = await house.ask("POST", f"{path}/actions", json={"type": "message", "data": {}})
        assert odd.status_code == 422
    await runtime.aclose()


@pytest.mark.parametrize("text", ["\ud800 half", "\x00", "𝄞" * 1000])
async def test_any_text_gets_through(tmp_path: Path, text: str) -> None:
    runtime = await started(tmp_path, journal=False)
    async with served(runtime) as house:
        page = await house.page()
        await page.until("caught_up")
        runtime.bus.emit("status", {"type": "info", "message": text})
        runtime.bus.emit("streaming", {"requestId": "r", "delta": text, "done": False, "channel": "text"})
        await page.until("streaming")
        path = f"/api/sessions/{runtime.session_id}/events"
        assert (await house.ask("GET", path)).status_code == 200
        assert (await house.ask("GET", f"{path}/{runtime.bus.seq}")).status_code == 200
    await runtime.aclose()
