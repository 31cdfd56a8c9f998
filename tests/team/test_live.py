"""Text that is not recorded reaches attached terminals, and nothing of it is shown twice; secrets never become rows."""

from __future__ import annotations

import asyncio
import json
import stat
from pathlib import Path
from typing import Any

import pytest
from tests.deadlines import PATIENCE
from tests.team.background import until

from golem_forge.core.ids import new_id
from golem_forge.events.serialization import Event
from golem_forge.team.database import SqliteDatabase, TeamError
from golem_forge.team.dispatch import listen
from golem_forge.team.live import LIVE_CHANNEL, LiveReceiver, LiveSender, _pieces, socket_name
from golem_forge.team.rows import NewSession
from golem_forge.team.store import Store

SESSION = "ab" * 16


def said(delta: str, seq: int = 1, **more: Any) -> Event:
    data = {"requestId": "r", "delta": delta, "done": False, "channel": "text", **more}
    return Event("streaming", data, None, seq, "", SESSION, "w")


def message(text: str, seq: int) -> Event:
    return Event("message", {"message": {"role": "assistant", "content": text}}, None, seq, "", SESSION, "w")


def shown_text(events: list[Event]) -> str:
    text = ""
    for event in events:
        wire = event.wire
        text = "" if wire.get("discarded") else str(wire.get("whole") or text) + str(wire["delta"])
    return text


def is_heard(store: Store) -> bool:
    """Whether somebody listens to what the session says; a file needs no listener."""
    if isinstance(store.database, SqliteDatabase):
        return True
    with store.database.transaction() as connection:
        said = "SELECT 1 AS heard FROM pg_stat_activity WHERE datname = current_database() AND query LIKE :listens"
        return connection.execute(said, {"listens": f"LISTEN %{LIVE_CHANNEL}{SESSION}%"}).fetchone() is not None


async def test_whoever_comes_in_the_middle_gets_the_text_so_far_and_then_its_pieces(store: Store) -> None:
    runner, answers = new_id(), []

    def answer(session: str, given: Any, by: str, door: str) -> str:
        answers.append((session, dict(given), by, door))
        return ""

    sender = LiveSender(store, runner, answer)
    await sender.open()
    got: list[Event] = []
    receiver = LiveReceiver(store, SESSION, got.append)
    loop = asyncio.get_running_loop()
    rings = listen(
        store,
        lambda _: None,
        (LIVE_CHANNEL + SESSION,),
        lambda channel, what: loop.call_soon_threadsafe(receiver.heard, what),
    )
    try:
        sender.take(SESSION, said("Half "))
        await asyncio.to_thread(until, lambda: is_heard(store))
        await receiver.follow(runner)
        if not isinstance(store.database, SqliteDatabase):
            sender.watch(SESSION)
        for word in ("of ", "it "):
            sender.take(SESSION, said(word))
        async with asyncio.timeout(PATIENCE):
            while shown_text(got) != "Half of it ":
                await asyncio.sleep(0.02)
        sender.take(SESSION, Event("message", {}, None, 2, "", SESSION, "w"))  # recorded: told by the journal
        assert {event.type for event in got} == {"streaming"}
        if isinstance(store.database, SqliteDatabase):
            path = store.database.path.parent / socket_name(runner)
            assert stat.S_IMODE(path.stat().st_mode) == 0o600
            assert await receiver.answer_form({"requestId": "q", "action": "accept"}, "ada", "page") == ""
            assert answers == [(SESSION, {"requestId": "q", "action": "accept"}, "ada", "page")]
            sender.close()
            assert not path.exists()
        else:
            assert not receiver.can_answer
    finally:
        sender.close()
        rings.close()
        await receiver.close()


def test_a_lost_piece_withdraws_the_text_and_the_message_has_it_all(tmp_path: Path) -> None:
    got: list[Event] = []
    receiver = LiveReceiver(Store(SqliteDatabase(tmp_path / "s.db")), SESSION, got.append)

    def piece(text: str, at: int, seq: int = 1) -> None:
        receiver.take({"type": "streaming", "seq": seq, "workerId": "w", "data": dict(said(text).wire), "at": at})

    piece("one ", 0)
    piece("three", 8)
    piece("four", 13)
    assert shown_text(got) == ""
    receiver.message(message("one two three four", 2))
    assert shown_text(got) == ""
    piece("late", 17)  # it was said before the message
    assert shown_text(got) == ""
    piece("next ", 0, seq=2)
    receiver.message(message("next words", 3))
    assert shown_text(got) == "next words" and got[-1].wire["done"]
    before = len(got)
    for hostile in (
        {},
        {"type": "approvalRequired", "seq": 1, "data": {}},
        {"type": "streaming", "seq": 9, "data": {}},
    ):
        receiver.take(hostile)
    receiver.heard("[" * 100_000)
    assert len(got) == before


def test_pieces_of_a_notification_stay_small_and_say_where_they_belong() -> None:
    text = "\U0001f600\x00é" * 3000
    frame = {"type": "streaming", "seq": 1, "workerId": "w" * 32, "data": dict(said(text, done=True).wire), "at": 7}
    pieces = list(_pieces(frame))
    assert max(len(json.dumps(piece)) for piece in pieces) < 7500
    assert "".join(piece["data"]["delta"] for piece in pieces) == text
    assert [piece["data"]["done"] for piece in pieces] == [False] * (len(pieces) - 1) + [True]
    assert pieces[1]["at"] == 7 + len(pieces[0]["data"]["delta"])


@pytest.mark.parametrize(
    ("kind", "answer"), [("form", {"action": "accept", "values": {"key": "s3cret"}}), ("approval", {"args": {"k": 1}})]
)
def test_no_secret_becomes_a_row(store: Store, kind: str, answer: dict[str, Any]) -> None:
    store.queue(NewSession(facts={}, input="x"))
    lease = store.leases.claim("r", ())
    assert lease is not None
    nested = [{"name": "login", "type": "group", "fields": [{"name": "key", "type": "secret"}]}]
    store.questions.ask(lease, {"requestId": "f" * 32, "title": "a key", "fields": nested}, kind=kind)
    with pytest.raises(TeamError, match="keeps no secret"):
        store.questions.answer("f" * 32, {"approved": True, **answer}, "ada", "cli")
    assert store.questions.rows()[0].answer == {}
    store.questions.answer("f" * 32, {"action": "decline"} if kind == "form" else {"approved": False}, "ada", "cli")
    assert store.questions.rows() == []
