"""What a page may ask: what an action takes of a session that runs here, and answers only while a question is open."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from tests.ui.card_data import card_data

from golem_forge.events.bus import EventBus
from golem_forge.toolsets.file_access import unified_diff
from golem_forge.ui.web.api import ApiRefusal
from golem_forge.ui.web.stream.socket import ACTIONS, take_action
from golem_forge.ui.web.stream.watched_session import FollowedSession, LiveSession, diff_for

CARD = card_data(choices=[{"id": "session", "label": "x", "scope": "session"}])


@pytest.fixture
async def session(tmp_path: Path) -> AsyncIterator[LiveSession]:
    made = LiveSession(None, EventBus("s1"), tmp_path, tmp_path)
    await made.open()
    yield made
    await made.close()


def refusal(session: Any, type: str, data: dict[str, Any]) -> ApiRefusal:
    with pytest.raises(ApiRefusal) as refused:
        take_action(session, type, data)
    return refused.value


@pytest.mark.parametrize(
    ("type", "data", "wrong"),
    [
        ("approvalResponse", {"requestId": "x", "approved": "yes"}, {"approved"}),
        ("approvalResponse", {"requestId": "x", "approved": 1}, {"approved"}),
        ("approvalResponse", {"approved": True}, {"requestId"}),
        ("approvalResponse", {"requestId": 5, "approved": True}, {"requestId"}),
        ("approvalResponse", {"requestId": "x", "approved": True, "args": [1]}, {"args"}),
        ("approvalResponse", {"requestId": "x", "approved": True, "stop": "no"}, {"stop"}),
        ("approvalResponse", {"requestId": "x", "approved": True, "by": "terminal"}, {"by"}),
        ("formResponse", {"requestId": "x", "action": "maybe"}, {"action"}),
        ("formResponse", {"requestId": "x", "action": "accept", "values": "v"}, {"values"}),
        ("userInput", {"requestId": "x", "content": None}, {"content"}),
        ("userInput", {"requestId": "x", "content": "c", "attachments": {}}, {"attachments"}),
        ("manualToolInvoke", {"toolName": "t"}, {"args"}),
        ("manualToolInvoke", {"toolName": "t", "args": "{}"}, {"args"}),
        ("command", {"requestId": "x", "text": ["/help"]}, {"text"}),
        ("interrupt", {"workerId": 3}, {"workerId"}),
        ("getDiff", {"requestId": "x"}, {"path"}),
        ("message", {"message": {}}, {"type"}),
        ("sessionEnd", {"reason": "completed"}, {"type"}),
    ],
)
async def test_data_that_an_action_does_not_take_is_named_and_goes_nowhere(
    session: LiveSession, type: str, data: dict[str, Any], wrong: set[str]
) -> None:
    seen: list[Any] = []
    session.bus.on("*", seen.append)
    refused = refusal(session, type, data)
    assert refused.status == 422 and set(refused.problem.fields) == wrong
    assert seen == []


async def test_an_answer_counts_once_and_who_is_late_learns_who_answered(session: LiveSession) -> None:
    asking = asyncio.ensure_future(session.ui.request_approval({**CARD, "requestId": "q"}))
    await asyncio.sleep(0)
    assert refusal(session, "approvalResponse", {"requestId": "other", "approved": True}).status == 404
    assert refusal(session, "formResponse", {"requestId": "q", "action": "accept"}).status == 404
    odd = refusal(session, "approvalResponse", {"requestId": "q", "approved": True, "choice": "forever"})
    assert odd.status == 422 and "not offered" in odd.problem.problem
    both = refusal(session, "approvalResponse", {"requestId": "q", "approved": True, "stop": True})
    assert both.status == 422
    assert [event.wire["requestId"] for event in session.open_questions()] == ["q"]
    take_action(session, "approvalResponse", {"requestId": "q", "approved": True, "choice": "session", "args": None})
    assert (await asking) == {"approved": True, "choice": "session", "by": "browser"}
    late = refusal(session, "approvalResponse", {"requestId": "q", "approved": False})
    assert late.status == 409 and late.problem.problem == "Too late: answered in browser."


@pytest.mark.parametrize(
    ("by", "words"),
    [
        ("terminal", "Too late: answered in terminal."),
        ("memory", "Too late: an earlier answer covered it."),
        ("timeout", "Too late: nobody answered in time."),
        ("interrupt", "Too late: it was interrupted."),
    ],
)
async def test_whoever_resolved_it_is_told(session: LiveSession, by: str, words: str) -> None:
    asking = asyncio.ensure_future(session.ui.request_approval({**CARD, "requestId": "q"}))
    await asyncio.sleep(0)
    session.ui.withdraw_approval("q", approved=False, by=by)
    await asking
    assert refusal(session, "approvalResponse", {"requestId": "q", "approved": True}).problem.problem == words


async def test_a_form_and_an_input_say_who_answered_too(session: LiveSession) -> None:
    asking = asyncio.ensure_future(session.ui.get_user_input("> "))
    await asyncio.sleep(0)
    request = session.open_questions()[0].wire["requestId"]
    session.bus.emit("userInput", {"requestId": request, "content": "typed"}, source="terminal")
    assert (await asking).content == "typed"
    late = refusal(session, "userInput", {"requestId": request, "content": "sent"})
    assert late.problem.problem == "Too late: answered in terminal."


async def test_what_is_no_answer_goes_on_the_bus_as_the_browsers(session: LiveSession) -> None:
    seen: list[Any] = []
    for type in ("command", "manualToolInvoke", "interrupt"):
        session.bus.on(type, lambda event: seen.append((event.type, dict(event.wire), event.source)))
    take_action(session, "command", {"requestId": "1", "text": "/help"})
    take_action(session, "manualToolInvoke", {"toolName": "t", "args": {"a": 1}})
    take_action(session, "interrupt", {"workerId": "w", "reason": None})
    assert seen == [
        ("command", {"requestId": "1", "text": "/help"}, "browser"),
        ("manualToolInvoke", {"toolName": "t", "args": {"a": 1}}, "browser"),
        ("interrupt", {"workerId": "w"}, "browser"),
    ]


async def test_a_session_that_runs_elsewhere_takes_nothing(tmp_path: Path) -> None:
    session = FollowedSession(tmp_path, "s2")
    for type, data in (("interrupt", {}), ("command", {"requestId": "1", "text": "/exit"})):
        assert refusal(session, type, data).status == 409


OLD = b"a\nb\nc\n" + b"".join(b"%d\n" % number for number in range(20)) + b"last"
NEW = OLD.replace(b"b\n", b"-- a/x\nB\n").replace(b"last", b"end\n")


async def test_the_diff_of_an_open_question_is_shown_by_path(session: LiveSession) -> None:
    diff = unified_diff("/workspace/a.txt", OLD, NEW) + unified_diff("/workspace/new.txt", None, b"x\n")
    asking = asyncio.ensure_future(session.ui.request_approval({**CARD, "requestId": "q", "diff": diff}))
    await asyncio.sleep(0)
    shown: list[dict[str, Any]] = []
    session.bus.on("diffContent", lambda event: shown.append(dict(event.wire)))
    take_action(session, "getDiff", {"requestId": "q", "path": "/workspace/new.txt"})
    take_action(session, "getDiff", {"requestId": "q", "path": "/workspace/a.txt"})
    assert shown[0] == {"requestId": "q", "path": "/workspace/new.txt", "modified": "x\n", "isNew": True}
    assert shown[1]["original"] == "a\nb\nc\n0\n1\n…\n17\n18\n19\nlast"
    assert shown[1]["modified"] == "a\n-- a/x\nB\nc\n0\n1\n…\n17\n18\n19\nend\n"
    assert refusal(session, "getDiff", {"requestId": "q", "path": "/workspace/other"}).status == 404
    assert refusal(session, "getDiff", {"requestId": "gone", "path": "/workspace/a.txt"}).status == 404
    session.ui.withdraw_approval("q", approved=False, by="interrupt")
    await asking


async def test_a_whole_small_file_is_given_whole_and_a_removed_one_empty(session: LiveSession) -> None:
    event = session.bus.make_event(
        "approvalRequired", {**CARD, "requestId": "q", "diff": unified_diff("/w/a", b"one\ntwo\n", b"one\nthree\n")}
    )
    assert diff_for(event, "/w/a") == {
        "requestId": "q",
        "path": "/w/a",
        "original": "one\ntwo\n",
        "modified": "one\nthree\n",
        "isNew": False,
    }
    gone = session.bus.make_event(
        "approvalRequired", {**CARD, "requestId": "q", "diff": unified_diff("/w/a", b"one\n", None)}
    )
    found = diff_for(gone, "/w/a")
    assert found is not None and (found["original"], found["modified"]) == ("one\n", "")


async def test_every_action_of_the_specification_is_there() -> None:
    from golem_forge.events.model import REGISTRY

    assert {name for name, kind in REGISTRY.items() if kind.ACTION} == ACTIONS


@pytest.mark.parametrize("kind", ["approvalResponse", "formResponse", "userInput"])
async def test_no_answer_counts_once_whoever_asked_was_interrupted(session: LiveSession, kind: str) -> None:
    """`cancel` is set and nobody has noticed yet."""
    cancel = asyncio.Event()
    ask = {
        "approvalResponse": lambda: session.ui.request_approval({**CARD, "requestId": "q"}, cancel=cancel),
        "formResponse": lambda: session.ui.request_form(
            {"requestId": "q", "source": "tool", "title": "t", "message": "", "fields": [], "workerPath": []},
            cancel=cancel,
        ),
        "userInput": lambda: session.ui.get_user_input("> ", cancel=cancel),
    }[kind]
    asking = asyncio.ensure_future(ask())
    await asyncio.sleep(0)
    request = session.open_questions()[0].wire["requestId"]
    data = {"approvalResponse": {"approved": True}, "formResponse": {"action": "accept"}, "userInput": {"content": "x"}}
    cancel.set()
    late = refusal(session, kind, {"requestId": request, **data[kind]})
    said = (
        "Too late: it was interrupted." if kind == "approvalResponse" else "Too late: Forge does not ask this any more."
    )
    assert (late.status, late.problem.problem) == (409, said)
    session.bus.emit(kind, {"requestId": request, **data[kind]}, source="terminal")  # nor from another UI
    (ended,) = await asyncio.gather(asking, return_exceptions=True)
    outcome = getattr(ended, "by", "") if kind == "userInput" else dict(ended)
    refused: dict[str, Any] = {"approvalResponse": {"approved": False}, "formResponse": {"action": "cancel"}}
    assert outcome == ({**refused[kind], "by": "interrupt"} if kind in refused else "interrupt")
