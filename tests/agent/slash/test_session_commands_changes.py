"""`/changes`, `/undo`, `/redo` and `/mode` (flow.md §3, §1): what they show, and the one call that undo is."""

from __future__ import annotations

from typing import Any

import pytest
from tests.ui.change_data import change_set, created, edited, record

from golem_forge.agent.session_changes import taken_back
from golem_forge.config.run_block import ApprovalMode
from golem_forge.core.calls import Caller, Outcome, ToolCall
from golem_forge.core.decisions import Status


@pytest.fixture
def changed(host: Any) -> Any:
    session = host.session_id
    record(
        host.home.path,
        change_set(session, "c1aaaa", 1, created("/workspace/a.txt", 3)),
        change_set(session, "c2bbbb", 2, edited("/workspace/src/b.py", 4, 2), edited("/workspace/a.txt")),
        change_set(session, "c3cccc", 2, edited("/workspace/c.txt", others=("another command (c9)",))),
    )
    return host


@pytest.fixture
def made(changed: Any, monkeypatch: pytest.MonkeyPatch) -> list[ToolCall]:
    """The calls that a command makes; each succeeds."""
    calls: list[ToolCall] = []

    async def call(asked: ToolCall) -> Outcome:
        calls.append(asked)
        return Outcome(call=asked, status=Status.SUCCESS, tool=asked.name)

    monkeypatch.setattr(changed.path, "call", call)
    return calls


async def test_changes_lists_files_by_turn_and_call_with_counts_and_who_else_may_have_made_them(changed: Any) -> None:
    said = await changed.type("/changes")
    lines = said.splitlines()
    assert lines[0] == "turn 1 · 1 file (+3 −0)" and "turn 2 · 3 files (+6 −4)" in lines
    assert lines[1] == "  c1aaaa  write_file /workspace/a.txt"
    assert lines[2].split() == ["created", "/workspace/a.txt", "+3"]
    assert "perhaps by another command (c9)" in said and "+4 −2" in said
    assert lines[-1].startswith("/changes TURN, CALL or PATH")


@pytest.mark.parametrize(
    ("typed", "there", "not_there"),
    [
        ("/changes 1", "turn 1", "turn 2"),
        ("/changes c3", "/workspace/c.txt", "/workspace/a.txt"),
        ("/changes a.txt", "/workspace/a.txt", "c.txt"),
        ("/changes /workspace/src", "/workspace/src/b.py", "/workspace/a.txt  "),
    ],
)
async def test_changes_of_a_turn_a_call_and_a_path(changed: Any, typed: str, there: str, not_there: str) -> None:
    said = await changed.type(typed)
    assert there in said and not_there not in said


async def test_what_is_not_there_is_said(host: Any, changed: Any) -> None:
    assert await changed.type("/changes 7") == "error: Turn 7 changed no files; turns that did: 1, 2."
    assert await changed.type("/undo nowhere.txt") == "error: This session changed nothing at 'nowhere.txt'."


async def test_a_session_that_changed_nothing_says_so(host: Any) -> None:
    for typed in ("/changes", "/undo", "/redo"):
        assert await host.type(typed) == "This session changed no files."


@pytest.mark.parametrize(
    ("typed", "args"),
    [
        ("/undo", {}),
        ("/undo 2", {"turn": 2}),
        ("/undo c1", {"call": "c1aaaa"}),
        ("/undo a.txt /workspace/c.txt", {"paths": ["/workspace/a.txt", "/workspace/c.txt"]}),
        ("/undo also c.txt", {"also": ["/workspace/c.txt"]}),
        ("/undo 2 also c.txt", {"turn": 2, "also": ["/workspace/c.txt"]}),
        ("/redo", {"redo": True}),
    ],
)
async def test_undo_is_one_call_of_the_person(
    changed: Any, made: list[ToolCall], typed: str, args: dict[str, Any]
) -> None:
    assert await changed.type(typed) == ""
    assert [(call.name, call.args, call.caller) for call in made] == [("undo_changes", args, Caller.HUMAN)]


def test_what_was_undone_is_marked_and_a_redo_takes_the_mark_away() -> None:
    first = change_set("s", "c1", 1, edited("/w/a"), edited("/w/b"))
    part = change_set("s", "u1", 0, edited("/w/a"), undoes=("c1",))
    whole = change_set("s", "u2", 0, edited("/w/a"), edited("/w/b"), undoes=("c1",))
    again = change_set("s", "u3", 0, edited("/w/a"), edited("/w/b"), undoes=("u2",))
    assert taken_back([first]) == {}
    assert taken_back([first, part]) == {"c1": "undone in part"}
    assert taken_back([first, whole]) == {"c1": "undone"}
    assert "c1" not in taken_back([first, whole, again])
    rest = change_set("s", "u4", 0, edited("/w/b"), undoes=("c1",))
    without = change_set("s", "u5", 0, edited("/w/b"), undoes=("u4",))
    assert taken_back([first, part, rest])["c1"] == "undone"
    assert taken_back([first, part, rest, without])["c1"] == "undone in part"


async def test_mode_shows_every_mode_and_changes_it_for_the_session(host: Any) -> None:
    switched: list[tuple[ApprovalMode, str]] = []
    host.switch_approval = lambda mode, by: (switched.append((mode, by)), setattr(host.controller, "mode", mode))
    host.controller.mode = ApprovalMode.INTERACTIVE
    said = await host.type("/mode")
    assert "> interactive" in said and "  contained" in said and "asks before anything leaves" in said
    assert await host.type("/mode contained") == "" and switched[-1][0] is ApprovalMode.CONTAINED
    assert await host.type("/mode contained") == "The approval mode is contained already."
    assert await host.type("/mode next") == "" and switched[-1][0] is ApprovalMode.PLAN
    assert await host.type("/mode next") == "" and switched[-1][0] is ApprovalMode.INTERACTIVE
    assert "did you mean 'contained'" in await host.type("/mode contaned")
    assert "when a session starts" in await host.type("/mode approve_all")
    assert len(switched) == 3


async def test_python_has_the_same(changed: Any, made: list[ToolCall]) -> None:
    session = changed.session
    assert [(each.call, each.turn) for each in session.changes()] == [("c1aaaa", 1), ("c2bbbb", 2), ("c3cccc", 2)]
    assert (await session.undo(turn=2)).ok
    await session.undo(call="c1aaaa", paths=["/workspace/a.txt"], also=["/workspace/b.txt"])
    last = {"call": "c1aaaa", "paths": ["/workspace/a.txt"], "also": ["/workspace/b.txt"]}
    assert [each.args for each in made] == [{"turn": 2}, last]
    assert all(each.caller is Caller.HUMAN for each in made)
