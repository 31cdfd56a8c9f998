"""Webhooks: one POST for each fact, signed, tried again under the same id, from whichever runner. team.md §6."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import json
import os
import re
import signal
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from tests.deadlines import PATIENCE
from tests.team.background import Program, until, write_call
from tests.team.moved_clock import MovedClock

from golem_forge.config.store_block import NotifyHook
from golem_forge.core.errors import ConfigError
from golem_forge.team.database import Database
from golem_forge.team.rows import Lease, NewSession, SessionEnding, program_id
from golem_forge.team.store import Store
from golem_forge.team.webhooks import Outbox, Webhook, WebhookDelivery, WebhookSender, read_webhooks

SECRET = "canary-secret-5521-of-the-hook"
KEYS = {"id", "kind", "session", "worker", "title", "risk", "link", "at"}


class Receiver:
    """A real HTTP server that keeps what it is sent. `answers`: the statuses of the next requests, then 204."""

    def __init__(self) -> None:
        self.received: list[dict[str, Any]] = []
        self.headers: list[dict[str, str]] = []
        self.bodies: list[bytes] = []
        self.answers: list[int] = []
        self.before_answer: Callable[[], None] = lambda: None
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                receiver.bodies.append(body)
                receiver.headers.append(dict(self.headers))
                receiver.received.append(json.loads(body))
                receiver.before_answer()
                status = receiver.answers.pop(0) if receiver.answers else 204
                self.send_response(status)
                if status in (301, 307):
                    self.send_header("Location", f"http://127.0.0.1:{receiver.port}/elsewhere")
                self.end_headers()

            do_GET = do_POST

            def log_message(self, format: str, *args: Any) -> None:
                return None

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.port = self._server.server_address[1]
        threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True).start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/hook?token=parrot-8842"

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()

    def is_signed(self, number: int) -> bool:
        """As a stranger would check it, from the documentation alone."""
        headers = self.headers[number]
        signed = headers["X-Forge-Timestamp"].encode() + b"." + self.bodies[number]
        expected = hmac.new(SECRET.encode(), signed, hashlib.sha256).hexdigest()
        assert abs(time.time() - int(headers["X-Forge-Timestamp"])) < 60
        return headers["X-Forge-Signature"] == f"sha256={expected}"


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    made = Receiver()
    yield made
    made.close()


@pytest.fixture
def program(program: Program, receiver: Receiver) -> Program:
    """On SQLite: how takers meet in each database's outbox is told below."""
    program.environ |= {"HOOK_SECRET": SECRET, "HOOK_URL": receiver.url}
    configure(program, "{webhook: env:HOOK_URL, secret: env:HOOK_SECRET, allow_private: true}")
    return program


def configure(program: Program, hook: str) -> None:
    (program.home / "config.yaml").write_text(
        f"store: {{url: env:STORE_URL, runner: {{slots: 4}}, page: https://team.example/}}\nnotify: [{hook}]\n"
    )


def test_a_question_and_an_end_are_told_once_signed_and_without_arguments(program: Program, receiver: Receiver) -> None:
    program.play({"calls": [write_call("/work/hidden-name.txt", "hidden content")]}, {"say": "hidden answer"})
    for _ in range(2):
        program.start_runner()
    session = program.queue("tidy up", worker="main")
    program.wait_for(session, "waiting")
    asked = until(lambda: receiver.received, or_else=program.logs)[0]
    assert set(asked) == KEYS
    assert (asked["kind"], asked["session"], asked["worker"], asked["risk"]) == ("question", session, "main", "medium")
    assert asked["title"].startswith("write_file")
    assert asked["link"] == f"https://team.example/#/s/{session}/chat"
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", asked["at"])
    store = program.store()
    store.questions.answer(store.questions.rows()[0].id, {"approved": True}, "bob", "test")
    program.wait_for(session, "finished")
    until(lambda: len(receiver.received) >= 2, or_else=program.logs)  # whichever runner sends it
    program.play({"say": "done"}, script="none.yaml")
    (program.folder / "none.yaml").unlink()
    failed = program.queue("fail", model="scripted:none.yaml")
    program.wait_for(failed, "failed")
    until(lambda: len(receiver.received) >= 3 and not waiting(program), or_else=program.logs)
    time.sleep(0.6)  # both runners look again
    assert [(each["kind"], each["session"]) for each in receiver.received] == [
        ("question", session), ("finished", session), ("failed", failed),
    ]  # fmt: skip
    assert len({each["id"] for each in receiver.received}) == 3
    assert all(receiver.is_signed(number) for number in range(3))
    assert b"hidden" not in b"".join(receiver.bodies)
    with store.database.transaction(write=False) as connection:
        rows = connection.execute("SELECT hook, body, state FROM deliveries").fetchall()
    assert [row[2] for row in rows] == ["sent"] * 3
    lines = b"".join(line for _, line in store.lines(session)).decode()
    told = program.logs() + lines + repr(rows) + program.forge("ps", "--all") + program.forge("store", "status")
    assert SECRET not in told
    assert "parrot" not in told


def test_an_answer_500_is_tried_again_under_the_same_id(program: Program, receiver: Receiver) -> None:
    receiver.answers = [500, 307, 500]
    clock = MovedClock(program.store())
    program.start_moved_runner()
    session = program.queue()
    program.wait_for(session, "finished")
    for number in range(1, 4):
        until(partial(failed, program, number, clock.moment), or_else=program.logs)
        assert len(receiver.received) == number
        clock.set(clock.moment + 600)
    until(lambda: len(receiver.received) == 4, or_else=program.logs)
    assert {each["id"] for each in receiver.received} == {receiver.received[0]["id"]}
    assert set(receiver.bodies) == {receiver.bodies[0]}
    assert all(receiver.is_signed(number) for number in range(4))
    until(lambda: not waiting(program))
    assert "it answered with status 500; it is tried again for an hour" in program.logs()
    assert "parrot" not in program.logs()


def waiting(program: Program, tries: int | None = None) -> bool:
    """Whether a delivery is not sent yet, after so many tries; the last of them may still go on."""
    with program.store().database.transaction(write=False) as connection:
        found = connection.execute("SELECT tries FROM deliveries WHERE state = 'waiting'").fetchall()
    return bool(found) if tries is None else found == [(tries,)]


def failed(program: Program, tries: int, now: float) -> bool:
    """Whether so many tries failed: a delivery whose try goes on is left alone for a minute, afterwards for less."""
    with program.store().database.transaction(write=False) as connection:
        query = "SELECT next_try FROM deliveries WHERE state = 'waiting' AND tries = :tries"
        found = connection.execute(query, {"tries": tries}).fetchall()
    return bool(found) and found[0][0] < now + 30


def test_a_runner_killed_between_sending_and_noting_it_leaves_it_to_another(
    program: Program, receiver: Receiver
) -> None:
    clock = MovedClock(program.store())
    runner = program.start_moved_runner()
    receiver.before_answer = lambda: os.kill(runner.pid, signal.SIGKILL)
    session = program.queue()
    until(lambda: receiver.received, or_else=program.logs)
    runner.wait(PATIENCE)
    receiver.before_answer = lambda: None
    assert waiting(program, tries=1)
    program.start_moved_runner()
    time.sleep(0.6)
    assert len(receiver.received) == 1, "its lease lasts a minute"
    clock.set(clock.moment + 61)
    until(lambda: len(receiver.received) == 2, or_else=program.logs)
    assert receiver.bodies[0] == receiver.bodies[1]
    assert receiver.received[0]["session"] == session
    until(lambda: not waiting(program))


def test_a_private_address_gets_nothing_unless_it_is_allowed(program: Program, receiver: Receiver) -> None:
    """Told when the runner starts: whoever starts it is still there, and nobody waits for the first question."""
    configure(program, "{webhook: env:HOOK_URL, secret: env:HOOK_SECRET}")
    program.start_runner()
    until(lambda: "private address" in program.logs(), or_else=program.logs)
    program.wait_for(program.queue(), "finished")
    until(lambda: program.store().database.read("SELECT tries FROM deliveries WHERE tries > 0"), or_else=program.logs)
    assert "webhooks waiting: 1" in program.forge("store", "status")
    assert receiver.received == [] and program.logs().count("private address") == 1


def test_a_runner_says_what_is_wrong_with_a_webhook_and_does_not_start(program: Program) -> None:
    del program.environ["HOOK_SECRET"]
    said = program.forge("runner", "--idle", "1", code=2)
    assert "config.yaml:2: the variable HOOK_SECRET is not set; it holds the secret of the webhook" in said
    program.environ |= {"HOOK_SECRET": SECRET, "HOOK_URL": "https://ann:parrot@chat.example/x"}
    said = program.forge("runner", "--idle", "1", code=2)
    assert "the variable HOOK_URL: holds a user name or a password" in said
    assert "parrot" not in said


# ---- the outbox


def hook(url: str = "https://chat.example/hook", on: tuple[str, ...] = ("question", "finished", "failed")) -> Webhook:
    [found] = read_webhooks([NotifyHook(webhook=url, secret="env:HOME", on=on, origin="config.yaml:1")])
    return found


def claimed(store: Store, title: str = "tidy up") -> Lease:
    store.queue(NewSession(facts={}, input="x", title=title, person="ada", worker="main"))
    lease = store.leases.claim("runner", ())
    assert lease is not None
    return lease


def rows(database: Database) -> list[tuple[Any, ...]]:
    with database.transaction(write=False) as connection:
        return [
            tuple(row) for row in connection.execute("SELECT id, hook, body, state, tries FROM deliveries").fetchall()
        ]


def test_the_delivery_is_part_of_the_fact(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    store.use_webhooks(Outbox(store.database, [hook()]))
    lease = claimed(store)
    wire = {"requestId": "q1", "tool": "exec_command", "payload": "rm -rf hidden", "effects": ["exec hidden"]}
    store.questions.ask(lease, {**wire, "risk": "high"}, kind="approval")
    store.questions.ask(lease, {**wire, "risk": "high"}, kind="approval")
    [(id, _, body, state, _)] = rows(store.database)
    assert state == "waiting"
    assert json.loads(body) | {"at": ""} == {
        "id": id, "kind": "question", "session": lease.id, "worker": "main", "title": "exec_command: tidy up",
        "risk": "high", "link": "", "at": "",
    }  # fmt: skip

    def broken(*given: Any) -> None:
        raise ValueError("the disk is full")

    monkeypatch.setattr(Outbox, "tell", broken)
    with pytest.raises(ValueError, match="full"):
        store.leases.end(lease, SessionEnding(state="finished"))
    assert store.find(lease.id).state == "running", "neither of the two"
    monkeypatch.undo()
    assert store.leases.end(lease, SessionEnding(state="finished", result="hidden"))
    assert [json.loads(body)["kind"] for _, _, body, _, _ in rows(store.database)].count("finished") == 1
    assert "hidden" not in repr(rows(store.database))


def test_only_what_is_asked_for_is_told_and_hostile_titles_are_harmless(store: Store) -> None:
    store.use_webhooks(Outbox(store.database, [hook(on=("failed",))]))
    store.leases.end(claimed(store), "finished")
    store.leases.end(claimed(store), "stopped")
    assert rows(store.database) == []
    store.leases.end(claimed(store, "\x1b[31m\u202eevil\nline" + "x" * 500), "failed")
    [(_, _, body, _, _)] = rows(store.database)
    title = json.loads(body)["title"]
    assert len(title) <= 200
    assert not any(each in title for each in "\x1b\u202e\n")


def test_two_takers_get_each_delivery_once_and_it_is_given_up_after_an_hour(store: Store) -> None:
    first, second = hook(), hook("https://other.example/hook")
    outbox = Outbox(store.database, [first, second])
    store.use_webhooks(outbox)
    for _ in range(3):
        store.leases.end(claimed(store), "finished")
    taken = [outbox.take(first) for _ in range(2)]
    assert [len(each) for each in taken] == [3, 0]
    assert len(outbox.take(second)) == 3
    [one, two, three] = taken[0]
    outbox.sent(one)
    assert outbox.failed(two)
    with store.database.transaction() as connection:
        connection.execute(
            "UPDATE deliveries SET first_try = @now - 3601, next_try = @now WHERE id = :id", {"id": three.id}
        )
    assert outbox.failed(WebhookDelivery(id=three.id, body="", tries=0)), (
        "another one has taken it since: its word counts"
    )
    assert not outbox.failed(three)
    assert {row[0]: row[3] for row in rows(store.database) if row[1] == first.id} == {
        one.id: "sent", two.id: "waiting", three.id: "given up",
    }  # fmt: skip
    counts = store.counts()
    assert (counts["webhooks waiting"], counts["webhooks given up"]) == (4, 1)
    with store.database.transaction() as connection:
        connection.execute("UPDATE deliveries SET created = @now - 8 * 86400 WHERE id <> :id", {"id": two.id})
    outbox.prune()
    assert [row[0] for row in rows(store.database)] == [two.id]


async def test_a_name_is_looked_up_once_and_what_was_checked_is_connected_to(
    store: Store, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A resolver that answers with a public address first and with a private one afterwards (DNS rebinding)."""
    answers = [("93.184.216.34",), ("127.0.0.1",)]
    asked: list[str] = []

    async def lookup(host: str, port: int) -> tuple[str, ...]:
        asked.append(host)
        return answers[min(len(asked), len(answers)) - 1]

    connected: list[tuple[str, ...]] = []

    async def connect(addresses: tuple[str, ...], port: int, **more: Any) -> Any:
        connected.append(addresses)
        raise OSError("not here")

    monkeypatch.setattr("golem_forge.team.webhooks.lookup", lookup)
    monkeypatch.setattr("golem_forge.sandbox.network.addresses.connect", connect)
    given = hook(f"http://rebind.example:{receiver.port}/")
    sender = WebhookSender(Outbox(store.database, [given]))
    delivery = WebhookDelivery(id="d", body="{}", tries=1)
    assert "cannot be reached" in await sender._post(given, delivery)
    assert connected == [("93.184.216.34",)]
    assert "private address" in await sender._post(given, delivery)
    assert connected == [("93.184.216.34",)]
    await sender.close()
    assert receiver.received == []


async def test_a_hook_that_never_answers_delays_no_other_one_and_no_end(
    store: Store, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("golem_forge.team.webhooks.LOOK_S", 0.2)
    monkeypatch.setenv("HOOK_SECRET", SECRET)
    asked = asyncio.Event()

    async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"}")
        asked.set()
        await reader.read()
        writer.close()

    server = await asyncio.start_server(silent, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    hooks = read_webhooks(
        [
            NotifyHook(webhook=url, secret="env:HOOK_SECRET", allow_private=True)
            for url in (f"http://127.0.0.1:{port}/", receiver.url)
        ]
    )
    outbox = Outbox(store.database, hooks)
    store.use_webhooks(outbox)
    sender = WebhookSender(outbox)
    for number in range(1, 3):
        await asyncio.to_thread(lambda: store.leases.end(claimed(store), "finished"))
        sender.ring()
        await asyncio.wait_for(asked.wait(), PATIENCE)
        await asyncio.to_thread(until, partial(lambda wanted: len(receiver.received) == wanted, number))
    await asyncio.wait_for(sender.close(), PATIENCE)
    server.close()
    assert receiver.is_signed(0)
    assert {(row[1] == hooks[0].id, row[3]) for row in rows(store.database)} == {(True, "waiting"), (False, "sent")}


def test_the_same_webhook_twice_is_refused_and_nothing_shows_its_secret(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOOK_SECRET", SECRET)
    one = NotifyHook(webhook="https://chat.example/hook/parrot", secret="env:HOOK_SECRET", origin="config.yaml:1")
    with pytest.raises(ConfigError, match=r"names the same webhook as config\.yaml:1"):
        read_webhooks([one, one])
    assert "parrot" not in repr(read_webhooks([one]))
    assert SECRET not in repr(read_webhooks([one]))
    with pytest.raises(ConfigError, match="cannot be used: a host that is a number"):
        read_webhooks([NotifyHook(webhook="https://0x7f.1/", secret="env:HOOK_SECRET", origin="config.yaml:1")])


def test_a_hook_is_told_of_its_own_projects_alone(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One of a program's forge.yaml of that program, whatever it asks for; one of an account of those that it names."""
    monkeypatch.setenv("HOOK_SECRET", SECRET)
    said = {
        "all": NotifyHook(webhook="https://a.example/", secret="env:HOOK_SECRET"),
        "bank": NotifyHook(webhook="https://b.example/", secret="env:HOOK_SECRET", projects=("Bank",)),
        "own": NotifyHook(webhook="https://c.example/", secret="env:HOOK_SECRET", folder=tmp_path / "shop"),
        "greedy": NotifyHook(
            webhook="https://d.example/", secret="env:HOOK_SECRET", folder=tmp_path / "shop", projects=("bank",)
        ),
    }
    hooks = dict(zip(said, read_webhooks(list(said.values())), strict=True))
    outbox = Outbox(store.database, list(hooks.values()))
    store.use_webhooks(outbox)
    for name in ("shop", "bank"):
        new = NewSession(facts={}, input="x", title=name, program=program_id(tmp_path / name), project=name)
        lease = store.leases.claim("runner", (), session_id=store.queue(new))
        assert lease is not None
        store.leases.end(lease, "finished")
    told = {name: {json.loads(each.body)["title"] for each in outbox.take(hook)} for name, hook in hooks.items()}
    assert told == {"all": {"shop", "bank"}, "bank": {"bank"}, "own": {"shop"}, "greedy": set()}
