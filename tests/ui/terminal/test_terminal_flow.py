"""Flow at the terminal (flow.md §1, §3): the line that ends a turn, the key of the mode, a choice of two."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

Play = Callable[..., Any]


def test_a_turn_that_changed_files_ends_with_one_line(play: Play) -> None:
    played = play()
    played.say("changed")
    played.terminal.wait_for("changed 2 files (+4 −2) · /changes · /undo")
    rows = [row for row in played.terminal.text.split("\n") if row.strip()]
    at = next(at for at, row in enumerate(rows) if "changed 2 files" in row)
    assert "It is written." in rows[at - 1], "behind the answer"
    played.say("hello")
    played.terminal.wait_for("heard: hello")
    assert played.terminal.text.count("changed 2 files") == 1


def test_shift_tab_is_the_other_mode_and_the_foot_says_which(play: Play) -> None:
    played = play()
    terminal = played.terminal
    terminal.wait_for("main · test:model · ask", anywhere=False)
    terminal.type("half a line")
    terminal.send("\x1b[Z")
    terminal.wait_for("main · test:model · contained", anywhere=False)
    assert [each["text"] for each in played.noted("command")] == ["/mode next"]
    terminal.wait_for("you> half a line", anywhere=False)


def test_a_choice_of_two_says_what_each_key_means_and_escape_puts_it_off(play: Play) -> None:
    played = play()
    terminal = played.terminal
    for key, action in (("y", "accept"), ("n", "decline"), ("\x1b", "cancel")):
        played.say("choice")
        terminal.wait_for("How shall it work?", anywhere=False)
        played.after_silence("y or n? (Esc: not now)")
        rows = [row.strip() for row in terminal.visible.split("\n")]
        assert "y  on its own" in rows and "n  ask first" in rows
        terminal.type(key)
        terminal.wait_for(f"chosen: {action}")
        terminal.wait_gone("y or n?")
    assert "These will be sent" not in terminal.text


def test_what_was_typed_before_is_no_answer_to_it(play: Play) -> None:
    played = play(stands_still=True)
    terminal = played.terminal
    played.say("choice")
    terminal.wait_for("How shall it work?")
    terminal.type("y")
    terminal.wait_for("you> y", anywhere=False)
    assert played.noted("formResponse") == []
