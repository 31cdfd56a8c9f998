"""RuntimeUI: questions and answers, ui.md §3, §4 and §12 cases 5, 6 and 7."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Any

import pytest

from golem_forge.events.bus import EventBus, create_ui_event_bus
from golem_forge.events.redaction import Redactor
from golem_forge.events.runtime_ui import InputUnavailable, RuntimeUI, create_runtime_ui
from golem_forge.events.serialization import Event

CHOICES = [
    {"id": "exact", "label": "this call", "scope": "session"},
    {"id": "tool", "label": "this tool", "scope": "session"},
    {"id": "forever", "label": "always", "scope": "always"},
]


def request(fingerprint: str = "", **more: Any) -> dict[str, Any]:
    return {
        "type": "tool_call", "description": "d", "tool": "t", "args": {"n": 1}, "payload": "p", "effects": [],
        "risk": "high", "riskReasons": [], "why": {}, "choices": CHOICES, "fingerprint": fingerprint, "argsKey": "k",
        "previouslyDenied": 0, "warnings": [], "workerPath": [], **more,
    }  # fmt: skip


def form(**more: Any) -> dict[str, Any]:
    return {"source": "s", "title": "t", "message": "m", "fields": [], "workerPath": [], **more}


class Recorded:
    """A bus with a RuntimeUI and everything that was emitted."""

    def __init__(self) -> None:
        self.bus: EventBus = create_ui_event_bus()
        self.ui: RuntimeUI = create_runtime_ui(self.bus)
        self.events: list[Event] = []
        self.bus.on("*", self.events.append)

    def of(self, type: str) -> list[dict[str, Any]]:
        return [dict(event.wire) for event in self.events if event.type == type]

    def ids(self, type: str = "approvalRequired") -> list[str]:
        return [wire["requestId"] for wire in self.of(type)]

    def answer(self, request_id: str, source: str = "", **data: Any) -> None:
        self.bus.emit("approvalResponse", {"requestId": request_id, "approved": True, **data}, source=source)

    async def ask(self, *requests: dict[str, Any], **options: Any) -> list[asyncio.Task[dict[str, Any]]]:
        tasks = [asyncio.create_task(self.ui.request_approval(one, **options)) for one in requests]
        await asyncio.sleep(0)
        return tasks


@pytest.fixture
async def empty_room() -> Recorded:
    return Recorded()


@pytest.fixture
async def room(empty_room: Recorded) -> Recorded:
    """With somebody at a terminal."""
    empty_room.ui.attach("terminal")
    return empty_room


async def test_without_an_adapter_everything_fails_closed_at_once(empty_room: Recorded) -> None:
    denied = await empty_room.ui.request_approval(request())
    assert (denied["approved"], denied["by"]) == (False, "nobody")
    assert (await empty_room.ui.request_form(form()))["action"] == "cancel"
    with pytest.raises(InputUnavailable):
        await empty_room.ui.get_user_input("?")
    assert empty_room.events == []


async def test_an_approval_is_answered_by_its_id_and_resolved_once(room: Recorded) -> None:
    (task,) = await room.ask(request())
    room.answer(room.ids()[0], "terminal", choice="tool", reason="fine")
    assert await task == {"approved": True, "by": "terminal", "choice": "tool", "reason": "fine"}
    room.answer(room.ids()[0], "web", approved=False)
    assert room.of("approvalResolved") == [
        {"requestId": room.ids()[0], "approved": True, "by": "terminal", "edited": False, "choice": "tool",
         "reason": "fine"}
    ]  # fmt: skip


async def test_case_5_another_id_is_ignored_and_logged_at_debug(
    room: Recorded, caplog: pytest.LogCaptureFixture
) -> None:
    (task,) = await room.ask(request())
    with caplog.at_level(logging.DEBUG):
        room.answer("another")
    await asyncio.sleep(0)
    assert not task.done()
    assert "no such request is open" in caplog.text
    assert [each["message"] for each in room.of("status")] == [
        "approvalResponse was ignored: no question 'another' is open."
    ]
    assert room.ui.open_count == 1
    room.answer(room.ids()[0])
    assert (await task)["approved"] is True


@pytest.mark.parametrize(
    "data",
    [{"choice": "unheard"}, {"remember": "always"}, {"stop": True}],
    ids=str,
)
async def test_an_invalid_answer_leaves_the_request_open_and_says_why(room: Recorded, data: dict[str, Any]) -> None:
    (task,) = await room.ask(request(choices=CHOICES[:2]))
    room.answer(room.ids()[0], **data)
    await asyncio.sleep(0)
    assert not task.done()
    (said,) = room.of("status")
    assert (said["type"], said["code"]) == ("warning", "ANSWER_REFUSED")
    assert str(next(iter(data))) in said["message"] and said["message"].endswith("The question is still open.")
    assert room.of("approvalResolved") == []
    room.answer(room.ids()[0], approved=False)
    assert (await task)["approved"] is False


@pytest.mark.parametrize(
    ("type", "data", "names"),
    [
        ("approvalResponse", {"approved": "yes"}, "'approved' is true or false, not str"),
        ("approvalResponse", {"approved": 1}, "'approved' is true or false, not int"),
        ("approvalResponse", {"approved": True, "args": [1]}, "'args' is an object, not list"),
        ("approvalResponse", {"approved": True, "remember": "none"}, "'remember' is one of 'session', 'always', not"),
        ("approvalResponse", {"approved": True, "remember": True}, "'remember' is one of"),
        ("formResponse", {"action": "acept"}, "'action' is one of 'accept', 'decline', 'cancel', not 'acept'"),
        ("userInput", {"content": 5}, "'content' is text, not int"),
    ],
    ids=str,
)
def test_an_answer_of_the_wrong_type_is_an_error_at_once(type: str, data: dict[str, Any], names: str) -> None:
    with pytest.raises(ValueError, match=names):
        create_ui_event_bus().emit(type, {"requestId": "r", **data})


async def test_a_request_without_choices_may_be_remembered_by_who_asks(room: Recorded) -> None:
    (task,) = await room.ask({"type": "tool_call", "description": "Deploy?"})
    room.answer(room.ids()[0], remember="session")
    assert await task == {"approved": True, "by": "terminal", "remember": "session"}


async def test_an_answer_that_came_too_late_warns_nobody(room: Recorded) -> None:
    (task,) = await room.ask(request())
    for _ in range(2):
        room.answer(room.ids()[0])
    assert (await task).approved
    assert room.of("status") == []


async def test_a_form_that_no_ui_listens_to_is_not_waited_for() -> None:
    ui = create_runtime_ui(create_ui_event_bus())
    assert (await ui.request_form(form()))["reason"] == "No one can answer: no UI is attached."
    ui.attach("lines")
    answer = await ui.request_form(form())
    assert answer == {
        "action": "cancel",
        "by": "nobody",
        "reason": "No one can answer: no UI listens to 'formRequired'.",
    }


async def test_remember_picks_the_narrowest_choice_of_its_scope(room: Recorded) -> None:
    (task,) = await room.ask(request())
    room.answer(room.ids()[0], remember="session")
    assert (await task)["choice"] == "exact"


async def test_a_denial_may_stop_the_turn_and_its_reason_is_bounded(room: Recorded) -> None:
    (task,) = await room.ask(request())
    room.answer(room.ids()[0], approved=False, stop=True, reason="x" * 5000, args={"n": 2})
    answer = await task
    assert answer["stop"] is True
    assert len(answer["reason"]) == 2000
    assert "args" not in answer


async def test_case_5_different_requests_are_answered_in_reverse_order(room: Recorded) -> None:
    first, second = await room.ask(request("f1"), request("f2"))
    one, two = room.ids()
    room.answer(two, reason="second")
    assert (await second)["reason"] == "second"
    assert not first.done()
    room.answer(one, approved=False, reason="first")
    assert (await first)["reason"] == "first"


async def test_an_invalid_edit_keeps_the_card_with_the_error_at_its_field(room: Recorded) -> None:
    fields = [{"name": "n", "type": "number"}, {"name": "m", "type": "text"}]

    def check(args: Any) -> dict[str, str]:
        return {} if isinstance(args["n"], int) else {"n": "expected integer"}

    (task,) = await room.ask(request(fields=fields), check_edit=check)
    room.answer(room.ids()[0], args={"n": "x"})
    await asyncio.sleep(0)
    assert not task.done()
    shown = room.of("approvalRequired")[1]
    assert shown["requestId"] == room.ids()[0]
    assert shown["fields"] == [{"name": "n", "type": "number", "error": "expected integer"}, fields[1]]
    assert shown["warnings"] == ["n: expected integer"]
    room.answer(room.ids()[0], args={"n": 3})
    assert (await task)["args"] == {"n": 3}


async def test_a_check_that_raises_denies(room: Recorded) -> None:
    def check(args: Any) -> dict[str, str]:
        raise RuntimeError

    (task,) = await room.ask(request(), check_edit=check)
    room.answer(room.ids()[0], args={"n": 3})
    assert (await task)["approved"] is False


async def test_case_6_a_ui_that_attaches_later_gets_open_questions_again_in_order(room: Recorded) -> None:
    first, second = await room.ask(request("f1"), request("f2"))
    asked = asyncio.create_task(room.ui.get_user_input("name?"))
    await asyncio.sleep(0)
    before = room.bus.seq
    again: list[Event] = []
    room.ui.attach("web")
    room.ui.replay_open(again.append)
    assert [event.wire["requestId"] for event in again] == [*room.ids(), *room.ids("inputPrompt")]
    assert [event.type for event in again] == ["approvalRequired", "approvalRequired", "inputPrompt"]
    assert room.bus.seq == before
    for request_id in room.ids():
        room.answer(request_id, "web")
    assert (await first)["by"] == (await second)["by"] == "web"
    room.bus.emit("userInput", {"requestId": room.ids("inputPrompt")[0], "content": "Ada", "attachments": ["a.png"]})
    answer = await asked
    assert (answer.content, answer.attachments) == ("Ada", ["a.png"])
    assert room.ids("inputResolved") == room.ids("inputPrompt")


async def test_a_replayed_question_is_redacted_like_the_first_one() -> None:
    redactor = Redactor()
    bus = create_ui_event_bus(redact=redactor.value)
    ui = create_runtime_ui(bus)
    ui.attach("terminal")
    task = asyncio.create_task(ui.request_approval(request(args={"api_key": "swordfish"})))
    await asyncio.sleep(0)
    again: list[Event] = []
    ui.replay_open(again.append)
    assert "swordfish" not in again[0].to_json()
    task.cancel()


async def test_edited_credentials_reach_the_runtime_as_typed() -> None:
    bus = create_ui_event_bus(redact=Redactor().value)
    ui = create_runtime_ui(bus)
    ui.attach("terminal")
    ids: list[str] = []
    bus.on("approvalRequired", lambda event: ids.append(event.data.request_id))
    task = asyncio.create_task(ui.request_approval(request()))
    await asyncio.sleep(0)
    bus.emit("approvalResponse", {"requestId": ids[0], "approved": True, "args": {"api_key": "swordfish"}})
    assert (await task)["args"] == {"api_key": "swordfish"}


async def test_case_7_closing_the_only_ui_denies_what_is_open(empty_room: Recorded) -> None:
    detach = empty_room.ui.attach("terminal")
    (task,) = await empty_room.ask(request())
    filled = asyncio.create_task(empty_room.ui.request_form(form()))
    typed = asyncio.create_task(empty_room.ui.get_user_input("?"))
    await asyncio.sleep(0)
    detach()
    detach()
    assert await task == {"approved": False, "by": "nobody", "reason": "No one can answer: the UI is gone."}
    assert (await filled)["action"] == "cancel"
    with pytest.raises(InputUnavailable, match=r"No one can answer: the UI is gone\."):
        await typed
    assert empty_room.of("approvalResolved")[0]["by"] == "terminal"
    assert not empty_room.ui.attached


async def test_case_7_closing_one_ui_denies_nothing_while_another_is_there(empty_room: Recorded) -> None:
    leave = empty_room.ui.attach("terminal")
    empty_room.ui.attach("web")
    (task,) = await empty_room.ask(request())
    leave()
    await asyncio.sleep(0)
    assert not task.done()
    empty_room.answer(empty_room.ids()[0], "web")
    assert (await task)["by"] == "web"


async def test_a_ui_that_a_program_may_answer_for_grants_no_trust(empty_room: Recorded) -> None:
    """Alone it is not asked; beside a person its answer does not count, and the person's does."""
    room = empty_room
    gone = room.ui.attach("program", may_trust=False)
    assert room.ui.attached and not room.ui.may_trust
    alone = await room.ui.request_approval(request(type="trust"))
    assert (alone["approved"], alone["by"]) == (False, "nobody") and "forge trust" in alone["reason"]
    leave = room.ui.attach("terminal")
    for type in ("trust", "definition"):
        asking = asyncio.ensure_future(room.ui.request_approval(request(type=type)))
        await asyncio.sleep(0)
        [question] = [event for event in room.events if event.type == "approvalRequired"][-1:]
        answer = {"requestId": question.wire["requestId"], "approved": True}
        room.bus.emit("approvalResponse", answer, source="program")
        assert not asking.done() and room.ui.open_count == 1
        room.bus.emit("approvalResponse", answer, source="terminal")
        assert (await asking)["by"] == "terminal"
    waiting = asyncio.ensure_future(room.ui.request_approval(request(type="trust")))
    await asyncio.sleep(0)
    leave()  # the last who may trust
    assert not (await waiting)["approved"]
    gone()


async def test_case_7_a_timeout_denies_with_its_text_and_sets_expires_at(room: Recorded) -> None:
    (whole,) = await room.ask(request(), timeout=1)
    (part,) = await room.ask(request(), timeout=0.05)
    assert room.of("approvalRequired")[0]["expiresAt"].endswith("Z")
    assert await part == {"approved": False, "by": "timeout", "reason": "No answer within 0.05 s."}
    assert await whole == {"approved": False, "by": "timeout", "reason": "No answer within 1 s."}
    assert [wire["by"] for wire in room.of("approvalResolved")] == ["timeout", "timeout"]
    assert room.ui.open_count == 0


async def test_the_cancel_signal_withdraws_every_kind_of_question(room: Recorded) -> None:
    signal = asyncio.Event()
    (task,) = await room.ask(request(), cancel=signal)
    filled = asyncio.create_task(room.ui.request_form(form(), cancel=signal))
    typed = asyncio.create_task(room.ui.get_user_input("?", cancel=signal))
    await asyncio.sleep(0)
    signal.set()
    (asked,), (form_id,) = room.ids(), room.ids("formRequired")  # answered in the same step: too late all the same
    assert room.ui.objection("formResponse", {"requestId": form_id, "action": "accept", "values": {}}) is None
    room.answer(asked)
    assert await task == {"approved": False, "by": "interrupt"}
    assert (await filled)["by"] == "interrupt"
    with pytest.raises(InputUnavailable) as caught:
        await typed
    assert caught.value.by == "interrupt"
    assert [wire["by"] for wire in room.of("approvalResolved")] == ["interrupt"]
    shown = len(room.events)
    assert (await room.ui.request_approval(request(), cancel=signal))["by"] == "interrupt"
    assert len(room.events) == shown


async def test_cancelling_the_asking_task_resolves_its_card(room: Recorded) -> None:
    (task,) = await room.ask(request())
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert [wire["by"] for wire in room.of("approvalResolved")] == ["interrupt"]


async def test_at_most_a_hundred_wait(room: Recorded) -> None:
    tasks = await room.ask(*(request(f"f{number}") for number in range(101)))
    assert await tasks[100] == {"approved": False, "by": "nobody", "reason": "too many pending approvals"}
    assert len(room.ids()) == 100
    for task in tasks:
        task.cancel()


async def test_a_request_without_a_required_field_is_refused_and_not_left_open(room: Recorded) -> None:
    broken = request()
    del broken["type"]
    with pytest.raises(ValueError, match="'type'"):
        await room.ui.request_approval(broken)
    assert room.ui.open_count == 0


async def test_an_answer_given_while_the_card_is_being_shown_counts(empty_room: Recorded) -> None:
    empty_room.ui.attach("callback")
    empty_room.bus.on("approvalRequired", lambda event: empty_room.answer(event.data.request_id))
    assert (await empty_room.ui.request_approval(request()))["approved"] is True


async def test_a_form_gives_its_values(room: Recorded) -> None:
    for action, values in (("accept", {"a": 1}), ("decline", None), ("cancel", None)):
        task = asyncio.create_task(room.ui.request_form(form()))
        await asyncio.sleep(0)
        request_id = room.ids("formRequired")[-1]
        with pytest.raises(ValueError, match="'action' is one of 'accept', 'decline', 'cancel', not 'maybe'"):
            room.bus.emit("formResponse", {"requestId": request_id, "action": "maybe"})
        room.bus.emit("formResponse", {"requestId": request_id, "action": action, "values": {"a": 1}})
        answer = await task
        assert (answer["action"], answer.get("values")) == (action, values)
    assert [wire["action"] for wire in room.of("formResolved")] == ["accept", "decline", "cancel"]


@pytest.mark.parametrize(
    ("show", "type", "wire"),
    [
        (lambda ui: ui.show_message({"role": "user", "content": "x"}), "message",
         {"message": {"role": "user", "content": "x"}}),
        (lambda ui: ui.show_message(role="user", content="x"), "message",
         {"message": {"role": "user", "content": "x"}}),
        (lambda ui: ui.show_status({"type": "info", "message": "m"}), "status", {"type": "info", "message": "m"}),
        (lambda ui: ui.show_status(type="info", message="m"), "status", {"type": "info", "message": "m"}),
        (lambda ui: ui.show_tool_started("c", "t", {}, parent_call_id="p"), "toolStarted",
         {"toolCallId": "c", "toolName": "t", "args": {}, "caller": "llm", "parentCallId": "p"}),
        (lambda ui: ui.show_tool_result(tool_call_id="c", tool_name="t", args={}, status="tool_not_found",
                                        duration_ms=1.5, decision=None, truncated=False), "toolResult",
         {"toolCallId": "c", "toolName": "t", "args": {}, "status": "tool_not_found", "durationMs": 1.5,
          "decision": None, "truncated": False}),
        (lambda ui: ui.show_progress("c", 1, 2), "toolProgress", {"toolCallId": "c", "progress": 1, "total": 2}),
        (lambda ui: ui.update_worker(worker_id="w", name="n", task="t", status="running", depth=0), "workerUpdate",
         {"workerId": "w", "name": "n", "task": "t", "status": "running", "depth": 0}),
        (lambda ui: ui.update_plan([{"step": "s", "status": "pending"}]), "planUpdated",
         {"plan": [{"step": "s", "status": "pending"}]}),
        (lambda ui: ui.show_diff(request_id="r", path="/p", modified="m", is_new=True), "diffContent",
         {"requestId": "r", "path": "/p", "modified": "m", "isNew": True}),
        (lambda ui: ui.end_session("completed"), "sessionEnd", {"reason": "completed"}),
    ],
)  # fmt: skip
async def test_what_the_runtime_shows(
    room: Recorded, show: Callable[[RuntimeUI], None], type: str, wire: dict[str, Any]
) -> None:
    show(room.ui)
    assert room.of(type) == [wire]


async def test_a_bus_has_one_runtime_ui_so_who_asks_and_who_answers_meet() -> None:
    bus = create_ui_event_bus()
    ui = create_runtime_ui(bus)
    assert create_runtime_ui(bus) is ui and create_runtime_ui(create_ui_event_bus()) is not ui
    create_runtime_ui(bus).attach("terminal")
    assert ui.attached
    bus.clear()  # it would never hear an answer again
    assert create_runtime_ui(bus) is not ui and not create_runtime_ui(bus).attached


async def test_a_withdrawn_card_closes_once_and_says_by_what(room: Recorded) -> None:
    (task,) = await room.ask(request())
    (id_,) = room.ids()
    room.ui.change_approval(id_, waiting=2)
    room.ui.change_approval(id_, waiting=2)  # nothing new: not shown again
    room.ui.change_approval("another", waiting=9)
    assert [wire["waiting"] for wire in room.of("approvalRequired")] == [1, 2]
    room.ui.withdraw_approval(id_, approved=True, by="memory")
    room.ui.withdraw_approval(id_, approved=False, by="interrupt")
    room.answer(id_, approved=False)
    assert (await task) == {"approved": True, "by": "memory"}
    assert [(wire["by"], wire["approved"]) for wire in room.of("approvalResolved")] == [("memory", True)]
