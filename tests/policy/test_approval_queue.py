"""Approvals over the bus: ui.md §4 and §12 (U2, U4 to U10), approval.md A43 and A50."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import pytest
from pydantic import Field, SecretStr
from tests.deadlines import PATIENCE, within
from tests.tables import table

from golem_forge import ApprovalController, Orchestrator, ToolCall, tool
from golem_forge.events.bus import EventBus
from golem_forge.events.redaction import Redactor
from golem_forge.events.runtime_ui import create_runtime_ui
from golem_forge.events.serialization import Event
from golem_forge.policy.approval_queue import ui_asker
from golem_forge.policy.rules.book import RuleBook
from golem_forge.storage.home import forge_home
from golem_forge.tools.tool import Definition, Tool

runs: list[Any] = []


@tool
def push(branch: str, n: int = 1) -> str:
    """Push commits."""
    runs.append((branch, n))
    return f"pushed {branch}"


@tool
def login(
    user: str,
    password: SecretStr,
    api_key: str = "",
    pin: Annotated[str, Field(json_schema_extra={"writeOnly": True})] = "",
) -> str:
    """Log in."""
    runs.append((user, password.get_secret_value(), api_key, pin))
    return "in"


class Room:
    """A path whose controller asks UIs, the bus they attach to, and every event that was seen."""

    def __init__(
        self, *tools: Any, timeout: float | None = None, redactor: Redactor | None = None, **options: Any
    ) -> None:
        runs.clear()
        self.bus = EventBus("s", redact=redactor.value if redactor else None)
        self.ui = create_runtime_ui(self.bus)
        self.controller = ApprovalController("interactive", ask=ui_asker(self.ui, timeout))
        self.path = Orchestrator(
            tools or (push,),
            approval=self.controller,
            bus=self.bus,
            redactor=redactor,
            rules=RuleBook(forge_home()),
            **options,
        )
        self.events: list[Event] = []
        self.bus.on("*", self.events.append)

    def of(self, type: str) -> list[dict[str, Any]]:
        return [dict(event.wire) for event in self.events if event.type == type]

    def call(self, name: str = "push", **args: Any) -> asyncio.Task[Any]:
        return asyncio.create_task(self.path.call(ToolCall(name, args)))

    async def cards(self, count: int) -> list[dict[str, Any]]:
        """The cards there are once this many were shown."""
        await until(lambda: len(self.of("approvalRequired")) >= count)
        return self.of("approvalRequired")

    def answer(self, card: dict[str, Any], approved: bool = True, *, source: str = "", **more: Any) -> None:
        data = {"requestId": card["requestId"], "approved": approved, **more}
        self.bus.emit("approvalResponse", data, source=source)


@table("args", [{"branch": "main"}, {"branch": "main", "n": 1}])
async def test_approving_with_unchanged_arguments_is_no_edit(args: dict[str, Any]) -> None:
    """`Approve with these arguments` on the page, or `e` and then `y` in the terminal, and nothing was changed: it also
    answers every call that waits for the same."""
    room = Room()
    room.ui.attach("terminal")
    calls = [room.call(branch="main") for _ in range(2)]
    await until(lambda: room.of("approvalRequired") and room.of("approvalRequired")[-1]["waiting"] == 2)
    room.answer(room.of("approvalRequired")[-1], args=args)
    outcomes = await asyncio.gather(*calls)
    assert [(o.text, o.decision.edited) for o in outcomes] == [("pushed main", False)] * 2
    assert [end["edited"] for end in room.of("approvalResolved")] == [False]


async def until(holds: Callable[[], Any]) -> None:
    deadline = time.monotonic() + PATIENCE
    while not holds():
        assert time.monotonic() < deadline, "it never came to hold"
        await asyncio.sleep(0.002)


@pytest.fixture
async def empty_room(own_home: Path) -> Room:
    return Room()


@pytest.fixture
async def room(empty_room: Room) -> Room:
    """With somebody at a terminal."""
    empty_room.ui.attach("terminal")
    return empty_room


async def test_u4_the_first_answer_wins_and_the_other_ui_learns_who_gave_it(room: Room) -> None:
    room.ui.attach("web")
    call = room.call(branch="main")
    (card,) = await room.cards(1)
    room.answer(card, source="terminal")
    room.answer(card, False, source="web")
    outcome = await call
    assert (outcome.status, outcome.decision.answered_by, runs) == ("success", "person", [("main", 1)])
    assert room.of("approvalResolved") == [
        {"requestId": card["requestId"], "approved": True, "by": "terminal", "edited": False}
    ]


async def test_u5_an_unknown_id_or_an_unoffered_choice_leaves_the_card_open(room: Room) -> None:
    call = room.call(branch="main")
    (card,) = await room.cards(1)
    room.answer({"requestId": "another"})
    room.answer(card, choice="everything")
    await asyncio.sleep(0.01)
    assert not call.done() and not room.of("approvalResolved")
    room.answer(card)
    assert (await call).ok


async def test_u5_identical_calls_share_a_card_that_says_how_many_wait(room: Room) -> None:
    calls = [room.call(branch="main") for _ in range(2)]
    (card,) = await room.cards(1)
    assert card["waiting"] == 2
    calls.append(room.call(branch="main"))
    again = (await room.cards(2))[1]
    assert (again["requestId"], again["waiting"]) == (card["requestId"], 3)
    room.answer(card)
    assert [outcome.status for outcome in await asyncio.gather(*calls)] == ["success"] * 3
    assert len(runs) == 3 and len(room.of("approvalResolved")) == 1


async def test_u5_different_calls_are_answered_in_any_order(room: Room) -> None:
    first, second = room.call(branch="a"), room.call(branch="b")
    cards = await room.cards(2)
    room.answer(cards[1], reason="fine")
    room.answer(cards[0], False, reason="not that one")
    assert (await second).ok
    assert (await first).error == "Denied by the user: not that one"
    assert runs == [("b", 1)]


async def test_u6_a_ui_that_attaches_later_gets_the_open_cards_and_can_answer(empty_room: Room) -> None:
    """Also A50: the first UI goes away afterwards and denies nothing."""
    gone = empty_room.ui.attach("terminal")
    calls = [empty_room.call(branch="a"), empty_room.call(branch="b")]
    cards = await empty_room.cards(2)
    again: list[Event] = []
    empty_room.ui.attach("web")
    empty_room.ui.replay_open(again.append)
    gone()
    assert [event.wire["requestId"] for event in again] == [card["requestId"] for card in cards]
    for card in cards:
        empty_room.answer(card, source="web")
    assert all(outcome.ok for outcome in await asyncio.gather(*calls))


async def test_u7_the_only_ui_gone_denies_and_with_none_nobody_is_asked(empty_room: Room) -> None:
    """Also A50."""
    gone = empty_room.ui.attach("terminal")
    call = empty_room.call(branch="main")
    await empty_room.cards(1)
    gone()
    outcome = await call
    assert (outcome.status, outcome.error) == ("approval_denied", "No one can answer: the UI is gone.")
    again = await asyncio.wait_for(empty_room.call(branch="main"), PATIENCE)
    assert (again.status, again.error) == ("approval_denied", "No one can answer: the UI is gone.")
    assert runs == [] and len(empty_room.of("approvalRequired")) == len(empty_room.of("approvalResolved")) == 1


async def test_u7_no_answer_in_time_denies_and_the_card_said_when() -> None:
    room = Room(timeout=0.2)
    room.ui.attach("terminal")
    started = time.monotonic()
    with within(0.2):
        outcome = await room.call(branch="main")
    assert (outcome.status, outcome.error) == ("approval_denied", "No answer within 0.2 s.")
    assert time.monotonic() - started > 0.15
    assert room.of("approvalRequired")[0]["expiresAt"].endswith("Z")
    assert room.of("approvalResolved")[0]["by"] == "timeout"
    assert outcome.decision.answered_by == "nobody" and runs == []


async def test_an_interrupt_closes_the_card_as_one(room: Room) -> None:
    call = room.call(branch="main")
    await room.cards(1)
    room.path.signal.interrupt("esc")
    with within(1):
        outcome = await asyncio.wait_for(call, PATIENCE)
    assert outcome.status == "interrupted" and runs == []
    await until(lambda: room.of("approvalResolved"))
    assert [(each["by"], each["approved"]) for each in room.of("approvalResolved")] == [("interrupt", False)]
    assert room.ui.open_count == 0


async def test_cancelling_the_caller_closes_the_card_too(room: Room) -> None:
    call = room.call(branch="main")
    await room.cards(1)
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    await until(lambda: room.of("approvalResolved"))
    assert room.of("approvalResolved")[0]["by"] == "interrupt" and runs == []


async def test_a_card_that_another_answer_covers_closes_by_memory(own_home: Path, tmp_path: Path) -> None:
    from golem_forge import FilesystemToolset
    from golem_forge.sandbox.sandbox import open_sandbox
    from golem_forge.sandbox.zones import ZoneSpec

    sandbox = open_sandbox([ZoneSpec(name="workspace", path=tmp_path, mode="rw")], forge_home=own_home / ".forge")
    room = Room(*FilesystemToolset(sandbox).get_tools(), sandbox=sandbox)
    room.ui.attach("terminal")
    one = room.call("write_file", path="/workspace/a.txt", content="a")
    two = room.call("write_file", path="/workspace/b.txt", content="b")
    first = next(card for card in await room.cards(2) if card["args"]["path"].endswith("a.txt"))
    wide = next(each for each in first["choices"] if "**" in each.get("rule", "") and each["scope"] == "session")
    room.answer(first, choice=wide["id"], source="terminal")
    outcomes = [await asyncio.wait_for(each, PATIENCE) for each in (one, two)]
    assert [outcome.status for outcome in outcomes] == ["success", "success"]
    assert [(each["by"], each["approved"]) for each in room.of("approvalResolved")] == [
        ("terminal", True),
        ("memory", True),
    ]
    assert [outcome.decision.answered_by for outcome in outcomes] == ["person", "rule"]
    sandbox.close()


async def test_u8_an_invalid_edit_keeps_the_card_a_valid_one_runs_once(room: Room) -> None:
    call = room.call(branch="main", n=2)
    (card,) = await room.cards(1)
    assert [(each["name"], each["type"], each.get("default")) for each in card["fields"]] == [
        ("branch", "text", "main"),
        ("n", "number", 2),
    ]
    room.answer(card, args={"branch": "dev", "n": "many"})
    again = (await room.cards(2))[1]
    assert again["requestId"] == card["requestId"] and not room.of("approvalResolved")
    assert "error" in again["fields"][1] and "error" not in again["fields"][0]
    room.answer(card, args={"branch": "dev", "n": 2})
    outcome = await call
    assert runs == [("dev", 2)]
    assert outcome.notes == ('The user changed: branch "main" → "dev".',)
    assert outcome.text == 'The user changed: branch "main" → "dev".\npushed dev' and outcome.args["branch"] == "dev"
    assert outcome.decision.edited and room.of("approvalResolved")[0]["edited"] is True


async def test_twenty_invalid_edits_are_enough(room: Room) -> None:
    call = room.call(branch="main")
    (card,) = await room.cards(1)
    for _ in range(25):
        room.answer(card, args={"branch": 5}, source="terminal")
    outcome = await asyncio.wait_for(call, PATIENCE)
    assert outcome.status == "approval_denied" and "edited 20 times" in outcome.error
    assert runs == [] and len(room.of("approvalRequired")) == 20 and len(room.of("approvalResolved")) == 1


async def test_secrets_are_neither_shown_nor_prefilled_and_survive_an_edit() -> None:
    redactor = Redactor()
    room = Room(login, redactor=redactor)
    room.ui.attach("terminal")
    call = room.call("login", user="ann", password="canary-password", api_key="canary-api-key", pin="canary-pin")
    (card,) = await room.cards(1)
    assert "canary" not in repr(room.events[-1].wire)
    fields = {each["name"]: each for each in card["fields"]}
    assert fields["user"]["default"] == "ann"
    assert fields["password"]["type"] == fields["pin"]["type"] == "secret"
    assert "default" not in fields["password"] and "default" not in fields["pin"]
    # a form sends what it shows: no secret, and the placeholder of a credential it was given
    room.answer(card, args={"user": "bob", "api_key": fields["api_key"]["default"]})
    assert (await call).ok
    assert runs == [("bob", "canary-password", "canary-api-key", "canary-pin")]


async def test_a_secret_that_was_typed_anew_replaces_the_old_one() -> None:
    room = Room(login)
    room.ui.attach("terminal")
    call = room.call("login", user="ann", password="canary-old")
    (card,) = await room.cards(1)
    room.answer(card, args={**card["args"], "password": "canary-new"})
    assert (await call).ok and runs[0][1] == "canary-new"


async def test_u9_what_could_steer_a_screen_is_text_and_the_tail_is_there(room: Room) -> None:
    call = room.call(branch="\x1b[2J\u202e" + "x" * 10_000 + "; rm -rf x")
    (card,) = await room.cards(1)
    assert "\x1b" not in card["payload"] and "\u202e" not in card["payload"]
    assert "\\u001b[2J\\u202e" in card["payload"] and "xxx; rm -rf x" in card["payload"]
    assert any("control or invisible" in warning for warning in card["warnings"])
    room.answer(card, False)
    assert (await call).status == "approval_denied"


async def test_u10_the_card_says_why_it_is_asked(own_home: Path) -> None:
    home = forge_home()
    home.ensure()
    home.rules.write_text(
        "version: 1\nrules:\n  - {tool: push, args: {branch: main}, verdict: ask, reason: main is shared}\n"
    )
    room = Room()
    room.ui.attach("terminal")
    call = room.call(branch="main")
    (card,) = await room.cards(1)
    assert "main is shared" in card["why"] and "rules.yaml:3" in card["why"]
    room.answer(card)
    decision = (await call).decision
    assert decision.decided_by is not None and decision.decided_by.describe() in card["why"]


async def test_a43_a_changed_definition_asks_again_and_shows_what_changed(own_home: Path) -> None:
    state = {"digest": "1", "approved": True, "diff": ""}
    build = Tool(
        "build",
        "Build.",
        input_schema={"type": "object", "properties": {}},
        execute=lambda args: "built",
        definition=lambda: Definition(**state),  # type: ignore[arg-type]
    )
    room = Room(build)
    room.ui.attach("terminal")
    first = room.call("build")
    (card,) = await room.cards(1)
    room.answer(card, remember="session")
    assert (await first).ok
    assert (await room.call("build")).decision.cached
    state.update(digest="2", approved=False, diff="-old line\n+new line")
    again = room.call("build")
    changed = (await room.cards(2))[1]
    assert changed["changed"] == "-old line\n+new line"
    room.answer(changed, False)
    assert (await again).status == "approval_denied"


async def test_the_card_names_the_worker_and_events_carry_its_run(own_home: Path, tmp_path: Path) -> None:
    lineage = (
        {"id": "run-1", "name": "main", "depth": 0, "task": ""},
        {"id": "run-2", "name": "analyzer", "depth": 1, "task": "look at it"},
    )
    room = Room(worker="main/analyzer", worker_id="run-2", ancestors=lineage)
    room.ui.attach("terminal")
    call = room.call(branch="main")
    (card,) = await room.cards(1)
    assert card["workerPath"] == list(lineage)
    room.answer(card, remember="session")
    assert (await call).ok
    shown = [event for event in room.events if event.type in ("approvalRequired", "toolStarted", "toolResult")]
    assert {event.worker_id for event in shown} == {"run-2"} and len(shown) == 3
    other = Orchestrator([push], approval=room.controller, worker="main/analyzer", worker_id="run-3")
    assert (await other.call(ToolCall("push", {"branch": "main"}))).decision.cached  # memory goes by the path


async def test_u2_three_workers_fifty_calls_nothing_missing_and_nothing_twice(own_home: Path, tmp_path: Path) -> None:
    from collections import Counter

    from golem_forge.events.journal import Journal
    from golem_forge.events.journal_records import events_after

    room = Room()
    journal = Journal.create(tmp_path, "s")
    room.bus.record_with(journal.record_event, journal.flush)
    room.ui.attach("terminal")
    room.bus.on("approvalRequired", lambda event: room.answer(dict(event.wire), event.wire["args"]["n"] % 2 == 0))
    workers = [
        Orchestrator(
            [push], approval=room.controller, bus=room.bus, journal=journal, worker=f"w{n}", worker_id=f"run-{n}"
        )
        for n in range(3)
    ]
    calls = [workers[n % 3].call(ToolCall("push", {"branch": f"b{n}", "n": n})) for n in range(50)]
    outcomes = await asyncio.wait_for(asyncio.gather(*calls), PATIENCE)
    assert Counter(outcome.status for outcome in outcomes) == {"success": 25, "approval_denied": 25}
    journal.close()
    events = list(events_after(journal.path))
    assert [event.seq for event in events] == list(range(1, len(events) + 1))
    ids = {kind: [event.wire[key] for event in events if event.type == kind] for kind, key in PAIRS}
    assert set(ids["toolStarted"]) <= set(ids["toolResult"]) and len(ids["toolResult"]) == 50
    assert len(set(ids["toolResult"])) == 50 and len(ids["toolStarted"]) == 25
    assert sorted(ids["approvalRequired"]) == sorted(ids["approvalResolved"]) and len(ids["approvalResolved"]) == 50
    live = [event.seq for event in room.events if event.type not in ("streaming", "toolOutput", "toolProgress")]
    assert live == sorted(live)


PAIRS = (
    ("toolStarted", "toolCallId"),
    ("toolResult", "toolCallId"),
    ("approvalRequired", "requestId"),
    ("approvalResolved", "requestId"),
)
