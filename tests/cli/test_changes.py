"""`forge changes` and `forge undo` (flow.md §3): what a session changed is shown, and taken back after one question."""

from __future__ import annotations

from typing import Any

import pytest
from tests.cli.test_sessions import converse
from tests.ui.change_data import change_set, created, edited, record

from golem_forge.agent.session import Session
from golem_forge.cli import changes
from golem_forge.core.calls import Outcome, ToolCall
from golem_forge.core.decisions import Status
from golem_forge.sandbox.undo.restore import UndoPreview, UndoStep

from .conftest import Shell

OLDER, NEWER, ELSEWHERE = "a" * 32, "b" * 32, "c" * 32


@pytest.fixture
def shell(in_process: Shell) -> Shell:
    home = in_process.forge_home
    for id, root in ((OLDER, in_process.project), (NEWER, in_process.project), (ELSEWHERE, "/srv/x")):
        converse(home, id, "write it", root=root)
    record(home, change_set(OLDER, "c1aa", 1, created("/workspace/old.txt", 3)))
    record(
        home,
        change_set(NEWER, "c2bb", 1, edited("/workspace/a.txt", 4, 2), created("/workspace/docs/b.md")),
        change_set(NEWER, "c3cc", 2, edited("/workspace/a.txt")),
    )
    record(home, change_set(ELSEWHERE, "c4dd", 1, created("/workspace/x.txt")))
    return in_process


def test_without_a_session_the_newest_of_this_directory_that_changed_something_is_shown(shell: Shell) -> None:
    shown = shell("changes")
    assert shown.code == 0 and shown.out.splitlines()[0] == "turn 1 · 2 files (+5 −2)"
    assert "/workspace/docs/b.md" in shown.out and "old.txt" not in shown.out and "x.txt" not in shown.out
    assert "old.txt" in shell("changes", OLDER[:8]).out
    assert shell("changes", "ffff").code == 4


@pytest.mark.parametrize(
    ("words", "there", "not_there"),
    [
        (["--turn", "2"], "c3cc", "c2bb"),
        (["--call", "c2"], "c2bb", "c3cc"),
        (["docs"], "/workspace/docs/b.md", "a.txt"),
        (["--turn", "1", "/workspace/a.txt"], "/workspace/a.txt", "b.md"),
    ],
)
def test_a_turn_a_call_or_paths(shell: Shell, words: list[str], there: str, not_there: str) -> None:
    shown = shell("changes", *words)
    lines = [line for line in shown.out.splitlines() if not line.startswith("  c")]
    assert there in shown.out and all(not_there not in line for line in lines)


def test_json_has_every_file_with_its_counts(shell: Shell) -> None:
    first, second = shell("changes", "--json").json
    assert (first["turn"], first["call"], first["tool"], first["added"], first["removed"]) == (
        1,
        "c2bb",
        "write_file",
        5,
        2,
    )
    assert [each["path"] for each in first["files"]] == ["/workspace/a.txt", "/workspace/docs/b.md"]
    assert "diff" not in first["files"][0] and "diff" in shell("changes", "--json", "--diff").json[0]["files"][0]
    assert second["undone"] == ""


def test_what_cannot_be_shown_is_said(shell: Shell) -> None:
    assert "give --turn or --call" in shell("changes", "--turn", "1", "--call", "c2").err
    assert "Turn 9 changed no files; turns that did: 1, 2." in shell("changes", "--turn", "9").err
    nothing = shell("changes", cwd=shell.home)
    assert nothing.code == 1 and "no session of this directory changed a file" in nothing.err


@pytest.fixture
def calls(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> list[ToolCall]:
    """What undo calls; its preview is two files, of which one was edited since."""
    made: list[ToolCall] = []
    steps = (
        UndoStep(path="/workspace/a.txt", action="restore", selected=True, why="", diff=""),
        UndoStep(path="/workspace/b.md", action="delete", selected=False, why="edited since", diff=""),
    )

    def preview(*_: Any, **asked: Any) -> UndoPreview:
        return UndoPreview(steps=steps, lost=(), calls=("c2bb",))

    async def call(self: Session, asked: ToolCall) -> Outcome:
        made.append(asked)
        return Outcome(call=asked, status=Status.SUCCESS, tool=asked.name)

    monkeypatch.setattr(changes, "preview", preview)
    monkeypatch.setattr(Session, "call", call)
    return made


def test_undo_shows_every_file_and_needs_a_yes_where_nobody_can_be_asked(shell: Shell, calls: list[ToolCall]) -> None:
    refused = shell("undo")
    assert refused.code == 3 and not calls
    assert "restore /workspace/a.txt" in refused.err
    assert "left    /workspace/b.md: edited since (--also /workspace/b.md takes it back too)" in refused.err
    assert "then add --yes" in refused.err
    assert shell("undo", "--yes").code == 0
    assert [(each.name, each.args) for each in calls] == [("undo_changes", {"session": NEWER})]


@pytest.mark.parametrize(
    ("words", "args"),
    [
        ([OLDER[:6], "--turn", "1"], {"turn": 1, "session": OLDER}),
        (["--call", "c3"], {"call": "c3cc", "session": NEWER}),
        (["docs/b.md"], {"paths": ["/workspace/docs/b.md"], "session": NEWER}),
        (["--also", "docs/b.md"], {"also": ["/workspace/docs/b.md"], "session": NEWER}),
        (["--redo"], {"redo": True, "session": NEWER}),
    ],
)
def test_undo_makes_the_call_that_was_asked_for(
    shell: Shell, calls: list[ToolCall], words: list[str], args: dict[str, Any]
) -> None:
    assert shell("undo", "--yes", *words).code == 0
    assert [each.args for each in calls] == [args]


def test_an_answer_on_the_terminal_counts(shell: Shell, calls: list[ToolCall], monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []
    monkeypatch.setattr(changes, "can_ask", lambda: True)
    monkeypatch.setattr(changes, "ask_yes", lambda question: asked.append(question) or len(asked) > 1)
    assert shell("undo").code == 3 and not calls
    assert shell("undo").code == 0 and len(calls) == 1
    assert asked[0] == "Take back this? [y/N] "


def test_the_single_call_that_deleted_a_link_is_found_and_taken_back(in_process: Shell) -> None:
    (in_process.project / "link").symlink_to("nowhere")
    assert in_process("call", "delete_file", "--path=link", "--approval=approve_all").code == 0
    assert "/workspace/link" in in_process("changes").out
    assert in_process("undo", "--yes").code == 0
    assert (in_process.project / "link").readlink().name == "nowhere"
