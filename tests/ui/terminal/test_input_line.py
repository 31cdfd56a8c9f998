"""U27: history across runs, search in it, completion, several lines; and what is never kept."""

from __future__ import annotations

import re
import stat
from collections.abc import Callable
from typing import Any

Play = Callable[..., Any]
TAB, ENTER, CTRL_C, CTRL_D, CTRL_R, UP = "\t", "\r", "\x03", "\x04", "\x12", "\x1b[A"


def test_u27_history_goes_across_runs_and_holds_no_secret(play: Play) -> None:
    played = play()
    terminal = played.terminal
    for line in ("first line", "/log_in --pin canary-77", "/x --api_key=canary-78", "second line"):
        played.say(line)
        terminal.wait_for(f"heard: {line}" if line[0] != "/" else f"command done: {line}")
    terminal.wait_for(re.compile(r"(?s)heard: second line.*\nyou>"))
    terminal.send(CTRL_D)
    assert terminal.wait_end() == 0
    file = played.home / "history"
    assert file.read_text() == "first line\nsecond line\n"
    assert stat.S_IMODE(file.stat().st_mode) == 0o600

    again = play()
    terminal = again.terminal
    terminal.send(UP)
    terminal.wait_for("you> second line")
    terminal.send(UP)
    terminal.wait_for("you> first line")
    terminal.send(CTRL_C)
    terminal.wait_gone("you> first line")
    terminal.send(CTRL_R)
    terminal.type("irst")
    terminal.wait_for("you> first line")
    terminal.send(ENTER)
    terminal.settle(0.1)
    terminal.send(ENTER)
    terminal.wait_for("heard: first line")


def test_u27_tab_completes_commands_tools_options_values_and_zone_paths(play: Play) -> None:
    played = play()
    terminal = played.terminal
    terminal.wait_for("/git_push")
    for typed, completed in (
        ("/to", "you> /tool"),
        ("/git", "you> /git_push "),
        ("/git_push --re", "you> /git_push --remote "),
        ("/git_push --remote up", "you> /git_push --remote upstream "),
        ("/git_push --remote=up", "you> /git_push --remote=upstream "),
        ("/t git_p", "you> /t git_push "),
        ("look at /wo", "you> look at /work/"),
        ("look at /work/no", "you> look at /work/notes.md "),
        ("/sessions 2026", "you> /sessions 20260101-abc "),
        ("/trace de", "you> /trace debug "),
        ("/model t", "you> /model test:model "),
        ("/model openai:", "you> /model openai:"),
        ("/rules revoke 0", "you> /rules revoke 0123abcd "),
    ):
        terminal.type(typed, pause=0.005)
        terminal.send(TAB)
        terminal.settle(0.03)
        terminal.send("|")
        terminal.wait_for(completed + "|", anywhere=False)
        terminal.send("\x15")
        terminal.wait_gone(completed)
    terminal.type("/to")
    terminal.send(TAB)
    terminal.wait_for("/tools  /tool")


def test_alt_enter_and_a_paste_make_several_lines_and_a_slash_line_is_a_command(play: Play) -> None:
    played = play()
    terminal = played.terminal
    terminal.type("one")
    terminal.send("\x1b\r")
    terminal.type("two")
    terminal.settle(0.05)
    terminal.paste("\nthree\nfour")
    terminal.wait_for("four")
    assert played.noted("userInput") == []
    terminal.enter()
    assert played.wait_noted("userInput")["content"] == "one\ntwo\nthree\nfour"
    terminal.wait_for("heard:")
    played.say("/status now")
    terminal.wait_for("command done: /status now")
    assert played.wait_noted("command")["text"] == "/status now"
    assert len(played.noted("userInput")) == 1


def test_the_level_quiet_shows_the_answer_alone_and_trace_changes_it(play: Play) -> None:
    played = play(TRACE="quiet")
    terminal = played.terminal
    assert "test:model · approval" not in terminal.text
    played.say("tool")
    played.go()
    terminal.wait_gone("│ line two")
    played.say("hello")
    terminal.wait_for("heard: hello")
    assert "slow_tool" not in terminal.text
    played.say("/run")  # a person's own command always answers them
    terminal.wait_for("the person's own")
    assert "✓ own_tool" in terminal.text and "▸ own_tool" not in terminal.text
    played.say("/trace normal")
    terminal.wait_for("command done")
    played.say("tool")
    terminal.wait_for("slow_tool")
