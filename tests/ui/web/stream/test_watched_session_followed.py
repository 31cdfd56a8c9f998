"""Sessions that do not run here: followed in their files while another process writes them, and never touched."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from tests.deadlines import PATIENCE, within
from tests.ui.web.onlooker import served

from golem_forge.events.bus import EventBus
from golem_forge.events.journal import Journal, reopen
from golem_forge.events.serialization import Event
from golem_forge.ui.web.stream.watched_session import FollowedSession, SessionStatus


class Elsewhere:
    """A session of another process, as far as its file tells: the lock belongs to the descriptor."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.use(Journal.create(home))

    def use(self, journal: Journal) -> None:
        self.journal = journal
        self.bus = EventBus(journal.session_id)
        self.bus.record_with(journal.record_event, journal.flush, seq=journal.seq)

    def say(self, *texts: str) -> None:
        for text in texts:
            self.bus.emit("status", {"type": "info", "message": text})

    def start(self) -> None:
        data = {
            "worker": "w",
            "model": "m",
            "mode": "chat",
            "approvalMode": "interactive",
            "zones": [],
            "resumed": False,
        }
        self.bus.emit("sessionStarted", data)


def says(text: str) -> Any:
    return lambda frame: frame["kind"] == "event" and frame["event"]["data"].get("message") == text


@pytest.fixture
async def elsewhere(own_home: Path) -> Elsewhere:
    made = Elsewhere(own_home)
    made.start()
    made.say("one", "two")
    return made


async def test_a_page_follows_what_another_process_records(elsewhere: Elsewhere) -> None:
    async with served(home=elsewhere.home) as house:
        page = await house.page(session=elsewhere.journal.session_id)
        hello = await page.until("hello")
        assert hello["session"]["state"] == "elsewhere" and hello["session"]["answerable"] is False
        assert [shown["event"]["type"] for shown in hello["standing"]] == ["sessionStarted"]
        await page.until("caught_up")
        with within(0.5):
            elsewhere.say("three")
            await page.until(says("three"))
        elsewhere.say("four", "five")
        await page.until(says("five"))
        elsewhere.journal.close()
        state = await page.until("state")
        assert state == {"kind": "state", "state": "closed", "answerable": False}
        elsewhere.use(reopen(elsewhere.home, elsewhere.journal.session_id).journal)
        elsewhere.say("six")
        assert (await page.until(lambda frame: frame["kind"] == "state"))["state"] == "elsewhere"
        if not page.events("status") or page.events("status")[-1]["data"]["message"] != "six":
            await page.until(says("six"))
        assert page.recorded == list(range(1, 8))
        elsewhere.journal.close()


async def test_looking_writes_nothing_and_runs_nothing(elsewhere: Elsewhere) -> None:
    elsewhere.journal.close()
    path = elsewhere.journal.path
    before = (path.read_bytes(), path.stat().st_mtime_ns)
    async with served(home=elsewhere.home) as house:
        page = await house.page(session=elsewhere.journal.session_id)
        hello = await page.until("hello")
        assert hello["session"] == {"id": elsewhere.journal.session_id, "state": "closed", "answerable": False}
        await page.until("caught_up")
        answer = await page.act("userInput", requestId="x", content="hello")
        assert answer["ok"] is False and "Resume it" in answer["problem"]
        assert (await page.act("interrupt"))["ok"] is False
    assert (path.read_bytes(), path.stat().st_mtime_ns) == before


async def test_a_record_that_is_removed_ends_the_page(elsewhere: Elsewhere) -> None:
    async with served(home=elsewhere.home) as house:
        page = await house.page(session=elsewhere.journal.session_id)
        await page.until("caught_up")
        elsewhere.journal.release()
        elsewhere.journal.path.unlink()
        assert await page.closed() == 4404
        assert "removed" in page.frames[-1]["reason"]


async def test_a_damaged_record_shows_what_can_be_read(elsewhere: Elsewhere) -> None:
    with elsewhere.journal.path.open("ab") as file:
        file.write(b"garbage\n\xff\xff\n" + b'{"n":1,"ts":5,"type":"event","seq":"x"}\n')
    async with served(home=elsewhere.home) as house:
        page = await house.page(session=elsewhere.journal.session_id)
        await page.until("caught_up")
        elsewhere.say("after it")
        await page.until(says("after it"))
        assert page.recorded == [1, 2, 3, 4]
    elsewhere.journal.release()


async def test_nobody_looks_nothing_is_read(elsewhere: Elsewhere) -> None:
    session = FollowedSession(elsewhere.home, elsewhere.journal.session_id)
    await session.open()
    assert session.state is SessionStatus.ELSEWHERE and session.last_seq == 3
    assert session._following is None
    await session.arrive()
    page = session.audience.join()
    following = session._following
    assert following is not None
    session.audience.leave(page)
    async with asyncio.timeout(PATIENCE):
        await asyncio.wait({following})
    elsewhere.say("unseen")
    await session.arrive()
    assert session.last_seq == 4
    await session.close()
    elsewhere.journal.release()


async def test_a_stranger_cannot_name_a_file_outside(own_home: Path) -> None:
    for name in ("../x", "a/b", ".", "", "x" * 200, "a\0b"):
        with pytest.raises(ValueError, match="session id"):
            FollowedSession(own_home, name)


async def test_every_event_of_a_burst_is_told_once(elsewhere: Elsewhere) -> None:
    async with served(home=elsewhere.home) as house:
        pages = [await house.page(session=elsewhere.journal.session_id) for _ in range(2)]
        for page in pages:
            await page.until("caught_up")
        for burst in range(3):
            elsewhere.say(*(f"{burst}.{number}" for number in range(300)))
            await asyncio.sleep(0.05)
        late = await house.page(session=elsewhere.journal.session_id, after=500)
        for page in (*pages, late):
            await page.until(says("2.299"))
        assert pages[0].recorded == pages[1].recorded == list(range(1, 904))
        assert late.recorded == list(range(501, 904))
    elsewhere.journal.release()


async def test_events_shown_here_keep_the_time_they_were_recorded_at(elsewhere: Elsewhere) -> None:
    session = FollowedSession(elsewhere.home, elsewhere.journal.session_id)
    await session.open()
    page = await session.history.page()
    assert all(isinstance(event, Event) and event.ts.endswith("Z") for event in page.events)
    elsewhere.journal.release()
