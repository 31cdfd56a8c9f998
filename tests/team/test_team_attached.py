"""What an attached terminal says while nothing happens: nobody runs the session, its runner is silent."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from tests.deadlines import PATIENCE

from golem_forge.cli.team import attach as attached
from golem_forge.cli.team.attach import AttachedSession
from golem_forge.events.bus import EventBus
from golem_forge.net.server_guard import secret_hash
from golem_forge.team.people import OwnerStore, PersonStore, Role, add_person
from golem_forge.team.rows import NewSession
from golem_forge.team.store import Store


async def heard(said: list[str], words: str) -> None:
    async with asyncio.timeout(PATIENCE):
        while not any(words in each for each in said):
            await asyncio.sleep(0.02)


async def test_a_terminal_says_why_nothing_happens(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, seconds in (("_LOOK_S", 0.05), ("_QUEUED_S", 0.1), ("LEASE_S", 0.3)):
        monkeypatch.setattr(attached, name, seconds)
    store = Store.open("sqlite", tmp_path, create=True)
    session = store.queue(NewSession(facts={}, input="go"))
    bus, said = EventBus(session), list[str]()
    bus.on("status", lambda event: said.append(event.wire["message"]))
    attached_session, given_back = AttachedSession(OwnerStore(store, "ada", "attach"), session, bus), asyncio.Event()
    attached_session.on_row = lambda row: None if row.runner else given_back.set()
    following = asyncio.create_task(attached_session.run())
    await heard(said, "No runner runs, so nobody goes on with this session.")
    lease = store.leases.claim("r1", ())
    assert lease is not None
    await heard(said, "The runner of this session is silent.")
    given_back.clear()
    store.leases.give_back(lease)
    await asyncio.wait_for(given_back.wait(), PATIENCE)
    assert store.leases.claim("r2", ()) is not None
    await heard(said, "A runner has the session again.")
    assert not following.done()
    following.cancel()


async def test_a_viewer_is_told_who_answers_and_is_not_asked(tmp_path: Path) -> None:
    store = Store.open("sqlite", tmp_path, create=True)
    session = store.queue(NewSession(facts={}, input="go"))
    lease = store.leases.claim("r1", ())
    assert lease is not None
    store.questions.ask(
        lease, {"requestId": "q1", "tool": "write_file", "risk": "low", "toolCallId": "c"}, kind="approval"
    )
    bus, said, asked = EventBus(session), list[str](), list[object]()
    bus.on("status", lambda event: said.append(event.wire["message"]))
    bus.on("approvalRequired", asked.append)
    viewer = PersonStore(store, secret_hash(add_person(store, "vera", Role.VIEWER)), "attach")
    following = asyncio.create_task(AttachedSession(viewer, session, bus).run())
    await heard(said, "An operator or an admin has to answer: write_file")
    assert asked == []
    following.cancel()


@pytest.mark.parametrize("steps", range(8))
async def test_whoever_leaves_while_it_rings_leaves(tmp_path: Path, steps: int) -> None:
    """`asyncio.wait_for` of Python 3.11 forgets a cancellation that comes together with what it waits for."""
    store = Store.open("sqlite", tmp_path, create=True)
    session = store.queue(NewSession(facts={}, input="go"))
    attached_session = AttachedSession(OwnerStore(store, "ada", "attach"), session, EventBus(session))
    following = asyncio.create_task(attached_session.run())
    looked = asyncio.Event()
    attached_session.on_row = lambda row: looked.set() or attached_session._rung.set()
    await looked.wait()
    for _ in range(steps):
        await asyncio.sleep(0)
    following.cancel()
    done, _ = await asyncio.wait({following}, timeout=PATIENCE)
    assert done and following.cancelled()
