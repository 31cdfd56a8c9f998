"""The terminal day by day: menus at `/` and `@`, `!`, a line written while a card waits, what folds and comes back."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.deadlines import PATIENCE

from golem_forge.ui.render.card import approval_card
from golem_forge.ui.render.lines import plain_text
from golem_forge.ui.render.results import result_lines
from golem_forge.ui.terminal.screen import PrintedTail
from golem_forge.ui.terminal.tty import ansi

Play = Callable[..., Any]
ENTER, TAB, ESC, DOWN, UP, SHIFT_TAB, CTRL_O, CTRL_U = "\r", "\t", "\x1b", "\x1b[B", "\x1b[A", "\x1b[Z", "\x0f", "\x15"
READY = "(y once"


def test_a_slash_opens_a_menu_that_filters_and_enter_takes_a_command_before_it_sends_one(play: Play) -> None:
    played = play()
    terminal = played.terminal
    terminal.send("/")
    terminal.wait_for(re.compile(r"› /help +list the commands"), anywhere=False)
    terminal.type("push")
    terminal.wait_for(re.compile(r"› /git_push +Push commits"), anywhere=False)  # a part of the name is enough
    terminal.send(CTRL_U)
    terminal.wait_gone("/git_push  ")
    terminal.type("/st")
    terminal.wait_for(re.compile(r"› /status +show worker"), anywhere=False)
    terminal.send(ENTER)
    terminal.wait_for("you> /status", anywhere=False)
    terminal.wait_gone("show worker")
    assert played.noted("command") == []
    terminal.send(ENTER)
    assert played.wait_noted("command")["text"].strip() == "/status"
    terminal.wait_for("command done: /status")
    terminal.type("/m")
    terminal.wait_for("› /model", anywhere=False)
    terminal.send(DOWN)
    terminal.wait_for(re.compile(r"(?m)^› /(?!model)"), anywhere=False)
    terminal.send(UP)
    terminal.wait_for("› /model", anywhere=False)
    terminal.send(DOWN)
    terminal.send(TAB)
    terminal.wait_for(re.compile(r"you> /(?!model)\w{2,}$", re.MULTILINE), anywhere=False)
    terminal.send(CTRL_U)
    terminal.type("/exi")
    terminal.wait_for("› /exit", anywhere=False)
    terminal.send(ESC)
    terminal.wait_gone("› /exit")
    terminal.send(CTRL_U + UP)  # the history is not caught by a menu
    terminal.wait_for("you> /status", anywhere=False)
    terminal.settle(0.05)
    assert "worker, model" not in terminal.visible


def test_an_at_sign_offers_files_of_the_zones_and_the_message_names_the_path(play: Play) -> None:
    played = play()
    terminal = played.terminal
    terminal.type("see @nts")
    terminal.wait_for("you> see @nts\n› /work/notes.md\n  /work/src/nuts.py\n↑↓ choose", anywhere=False)
    terminal.send(ENTER)
    terminal.wait_for("you> see /work/notes.md", anywhere=False)
    terminal.type("and @two")
    terminal.wait_for("› /work/src/two words.txt", anywhere=False)
    terminal.send(TAB)
    terminal.settle(0.05)
    assert played.noted("userInput") == []
    terminal.send(ENTER)
    sent = played.wait_noted("userInput")["content"]
    assert sent.strip() == 'see /work/notes.md and "/work/src/two words.txt"'
    terminal.wait_for("heard: see")
    terminal.type("mail a@b.test")  # no word begins with it
    terminal.settle(0.05)
    assert "› " not in terminal.visible
    terminal.send(ENTER)
    assert played.wait_noted("userInput", 2)["content"] == "mail a@b.test"


def test_an_exclamation_mark_sends_a_command_and_relative_paths_complete(play: Play) -> None:
    played = play()
    terminal = played.terminal
    terminal.type("!wc -l no")
    terminal.send(TAB)
    terminal.wait_for("you> !wc -l notes.md", anywhere=False)
    terminal.send(ENTER)
    assert played.wait_noted("command")["text"].strip() == "!wc -l notes.md"
    terminal.wait_for("command done: !wc -l notes.md")
    assert played.noted("userInput") == []


def test_a_menu_at_a_card_holds_the_card_and_no_letter_of_a_command_answers(play: Play) -> None:
    played = play("card", prompt=False)
    terminal = played.terminal
    played.after_silence(READY)
    terminal.send("/")
    terminal.wait_for("› /help", anywhere=False)
    played.pass_time(5)
    terminal.settle(0.2)
    terminal.send("s")  # it would approve for the session
    terminal.wait_for("› /status", anywhere=False)
    played.pass_time(5)
    terminal.settle(0.2)
    terminal.send(ENTER)
    terminal.settle(0.2)
    assert played.noted("approvalResponse") == []
    terminal.send(CTRL_U)
    played.after_silence(READY)
    terminal.send("y")
    assert played.wait_noted("answered")["approved"] is True


def test_a_message_is_written_while_a_card_waits_and_sent_at_the_next_turn(play: Play) -> None:
    played = play("card", prompt=False)
    terminal = played.terminal
    played.after_silence(READY)
    terminal.send(SHIFT_TAB)
    terminal.wait_for("waits while you write")
    for words in ("yes", ", use dev"):  # a pause between them makes no answer of a letter
        terminal.type(words)
        played.pass_time(5)
        terminal.settle(0.2)
    terminal.send(ENTER)
    terminal.wait_for("queued: yes, use dev")
    assert played.noted("approvalResponse") == [] and played.noted("userInput") == []
    played.after_silence(READY)
    terminal.send(SHIFT_TAB)
    terminal.wait_for("waits while you write")
    terminal.send(ENTER)  # an empty line goes back to the card, and denies nothing
    played.after_silence(READY)
    assert played.noted("approvalResponse") == []
    terminal.send("y")
    assert played.wait_noted("answered")["approved"] is True
    assert played.wait_noted("userInput")["content"] == "yes, use dev"


def test_an_answered_card_and_its_result_are_one_line_and_ctrl_o_shows_them_again(play: Play) -> None:
    played = play("write", prompt=False)
    terminal = played.terminal
    played.after_silence(READY)
    assert "wants to run" in terminal.visible and "+three" in terminal.visible
    terminal.send("y")
    terminal.wait_for("✓ write_file /work/notes.md +1 −1 · approved once (12 ms)")
    assert "wants to run" not in terminal.text and "+three" not in terminal.text and "▸ write_file" not in terminal.text
    terminal.wait_for("you>")
    terminal.send(CTRL_O)
    for shown in ("wants to run", "+three", "rule r1 asks"):
        terminal.wait_for(shown, anywhere=False)
    played.say("output")
    terminal.wait_for("… 96 more lines · display cut · Ctrl+O shows all")
    assert "row 3 of" in terminal.text and "row 50 of" not in terminal.text
    terminal.wait_for("you>")
    terminal.send(CTRL_O)
    terminal.wait_for("row 50 of")


def test_a_long_paste_is_one_mark_that_is_sent_whole_and_ctrl_u_clears_all_of_it(play: Play) -> None:
    played = play()
    terminal = played.terminal
    text = "word " * 600
    terminal.send(f"look: \x1b[200~{text}\x1b[201~")
    terminal.wait_for("you> look: [pasted 3,000 characters]", anywhere=False)
    terminal.send(CTRL_U)
    terminal.wait_gone("pasted")
    terminal.send("two\x1b\rlines\x1b[200~short\x1b[201~")
    terminal.wait_for("linesshort", anywhere=False)
    terminal.send(CTRL_U)
    terminal.wait_gone("linesshort")
    assert "two" not in terminal.visible
    terminal.send(f"a \x1b[200~{text}\x1b[201~ b \x1b[200~{text}\x1b[201~")
    terminal.wait_for("[pasted 3,000 characters, 2]", anywhere=False)
    terminal.send(ENTER)
    assert played.wait_noted("userInput")["content"] == f"a {text} b {text}"


@pytest.mark.skipif(shutil.which("tmux") is None, reason="tmux is not installed")
def test_a_window_that_becomes_narrow_while_text_streams_repeats_nothing(tmp_path: Path) -> None:
    """tmux breaks lines anew, as most terminals do."""
    notes, driver = tmp_path / "notes", Path(__file__).with_name("driver.py")
    (tmp_path / "clock").write_text("+0")
    told = {"NOTES": str(notes), "DRIVER_HOME": str(tmp_path / "home"), "CLOCK": str(tmp_path / "clock")}
    kept = {name: os.environ[name] for name in ("PATH", "PYTHONPATH", "LD_LIBRARY_PATH") if name in os.environ}
    env = kept | told | {"HOME": str(tmp_path), "LANG": "C.UTF-8", "TERM": "xterm-256color"}

    def tmux(*words: str) -> str:
        command = ["tmux", "-S", str(tmp_path / "socket"), "-f", "/dev/null", *words]
        return subprocess.run(command, env=env, capture_output=True, text=True, check=True).stdout

    def seen(foot: str) -> None:
        """Until that row is the last: all above it was drawn before."""
        end, streams = time.monotonic() + PATIENCE, False
        while not streams:
            shown = tmux("capture-pane", "-p", "-S", "-100").rstrip()
            assert time.monotonic() < end, shown
            streams = shown.endswith(f"\n{foot}") and "".join(shown.split()).count("streamingonandon") == 1
            time.sleep(0.02)

    tmux("new-session", "-d", "-x", "80", "-y", "24", sys.executable, str(driver), "flood", "forever")
    try:
        seen("main · test:model · ask")
        for columns, foot in ((20, "main · ask"), (8, "main ·…")):
            tmux("resize-window", "-x", str(columns), "-y", "24")
            seen(foot)
    finally:
        tmux("kill-server")


def test_a_long_text_shows_both_ends_and_one_long_line_its_beginning() -> None:
    def shown(text: str) -> str:
        value = {"kind": "text", "content": text}
        return plain_text(result_lines({"toolName": "t", "status": "success", "durationMs": 1500, "value": value}))

    many = shown("".join(f"{number} {'x' * 20}\n" for number in range(1000)))
    assert "  0 x" in many and "  9 x" in many and "  990 x" in many and "  999 x" in many and "  500 x" not in many
    assert "… 980 lines between · display cut" in many and "(1.5 s)" in many
    assert "... (100 more chars)" in shown("a" * 600)


@pytest.mark.parametrize(
    ("risk", "code"), [("low", "32"), ("medium", "34"), ("high", "33"), ("critical", "1;31"), ("odd", "")]
)
def test_a_risk_has_its_own_colour_and_only_critical_is_red(risk: str, code: str) -> None:
    request = {"tool": "t", "type": "tool_call", "payload": "p", "risk": risk, "why": "w"}
    coloured = ansi(approval_card(request, width=80), colour=True)
    assert (f"\x1b[{code}mrisk {risk}" in coloured) is bool(code)
    assert ("31m" in coloured) is (risk == "critical")
    plain = ansi(approval_card(request, width=80), colour=False)
    assert "\x1b" not in plain and f"risk {risk}" in plain


def test_only_what_is_surely_on_the_screen_is_folded() -> None:
    tail = PrintedTail()
    size = (20, 10)
    tail.add("before\n", "", size)
    tail.add("card\n" + "x" * 25 + "\n", "c1", size)
    tail.add("other\n", "c2", size)
    tail.drawn(10 - 3)
    assert tail.rows_to_fold("c1", size) == 4 and tail.rows_to_fold("none", size) == 0
    assert tail.rows_to_fold("c1", (30, 10)) == 0  # the terminal broke its lines anew
    tail.drawn(3)  # the live part has grown over it
    assert tail.rows_to_fold("c1", size) == 0
    tail.add("more\n" * 5, "", size)
    tail.drawn(10 - 3)
    assert tail.rows_to_fold("c1", size) == 0 and tail.rows_to_fold("c2", size) == 6
    assert tail.cut("c2") == [("more\n" * 5, "")]
    tail.add("界" * 15 + "\n", "wide", size)
    assert tail.rows_to_fold("wide", size) == 0
