"""U23, U25, U26: streaming above the line that is typed in, interrupts, leaving, and the terminal as it was before."""

from __future__ import annotations

import asyncio
import fcntl
import os
import re
import select
import signal
import struct
import termios
from collections.abc import Callable
from typing import Any

import pyte
import pytest
from tests.deadlines import PATIENCE, within

from golem_forge.events.bus import create_ui_event_bus
from golem_forge.ui.terminal import create_event_cli_adapter

Play = Callable[..., Any]
ESC, CTRL_C, CTRL_D = "\x1b", "\x03", "\x04"


def test_u23_text_is_shown_as_it_arrives_and_typing_meanwhile_stays_at_the_bottom(play: Play) -> None:
    played = play()
    terminal = played.terminal
    played.say("stream")
    played.wait_noted("streamed")
    with within(0.05):  # though nothing follows
        terminal.wait_for("First **bold** par", anywhere=False)
    assert "The last" not in terminal.text
    terminal.type("typed meanwhile")
    terminal.wait_for("you> typed meanwhile")
    played.go()
    terminal.wait_for("The last 界 line")
    terminal.wait_for("First bold paragraph.")
    terminal.wait_gone("First **bold** par")
    terminal.wait_for(re.compile(r"\nyou> typed meanwhile\nmain · test:model · ask\Z"), anywhere=False)
    text = terminal.text
    for once in (
        "Heading",
        "First bold paragraph.",
        "• one",
        "print('hi')",
        "The last 界 line",
        "I wonder",
        "> stream",
    ):
        assert text.count(once) == 1, once
    assert "**" not in text and "```" not in text


def test_u23_what_was_withdrawn_is_said_and_the_unfinished_rest_disappears(play: Play) -> None:
    played = play()
    terminal = played.terminal
    played.say("discard")
    terminal.wait_for("Half of anoth")
    played.go()
    terminal.wait_for("The real answer.")
    terminal.wait_for("withdrawn: the unfinished answer above does not count")
    assert "Half of anoth" not in terminal.text


def test_a_line_typed_while_a_turn_runs_is_shown_as_queued_and_sent_at_the_next_prompt(play: Play) -> None:
    played = play()
    terminal = played.terminal
    played.say("stream")
    terminal.wait_for("First **bold** par")
    played.say("next question")
    terminal.wait_for("queued: next question")
    assert [note["content"] for note in played.noted("userInput")] == ["stream"]
    played.go()
    terminal.wait_for("heard: next question")
    terminal.wait_gone("queued: next question")
    assert [note["content"] for note in played.noted("userInput")] == ["stream", "next question"]


SHOWN = {"forever": "on and on", "tool": "│ line two", "card": "(y once"}


@pytest.mark.parametrize(
    "key", [pytest.param(ESC, id="Esc", marks=pytest.mark.long), pytest.param(CTRL_C, id="Ctrl+C")]
)
def test_u25_the_turn_is_interrupted_and_the_prompt_is_back_with_what_was_typed(play: Play, key: str) -> None:
    played = play()
    terminal = played.terminal
    for count, (scene, shown) in enumerate(SHOWN.items(), 1):
        played.say(scene)
        played.after_silence(shown)
        if scene != "card":
            terminal.send("a draft")
            terminal.wait_for("you> a draft", anywhere=False)
        with within(1):
            terminal.send(key)
            played.wait_noted("interrupt", count)
            terminal.wait_for(re.compile(rf"(?s)(turn interrupted.*?){{{count}}}you>"))
        played.say(("a draft" if scene == "card" else "") + f" goes on {count}")
        terminal.wait_for(f"heard: a draft goes on {count}")
    assert played.noted("approvalResponse") == []
    assert terminal.text.count("streaming on and on") == 1


def test_u25_alt_b_moves_a_word_and_esc_brings_queued_lines_back(play: Play) -> None:
    played = play()
    terminal = played.terminal
    played.say("forever")
    terminal.wait_for("on and on")
    terminal.type("two words")
    terminal.send(ESC + "b")
    terminal.type("X")
    terminal.wait_for("you> two Xwords")
    terminal.settle(0.2)
    assert played.noted("interrupt") == []
    terminal.enter()
    terminal.wait_for("queued: two Xwords")
    terminal.send(ESC)
    played.wait_noted("interrupt")
    terminal.wait_for("you> two Xwords")
    assert len(played.noted("userInput")) == 1 and len(played.noted("interrupt")) == 1


def test_u26_ctrl_c_at_the_prompt_clears_the_line_and_twice_exits_130_with_the_modes_as_before(play: Play) -> None:
    played = play(prompt=False, stands_still=True)  # a second press counts within two seconds
    terminal = played.terminal
    before = _modes_of_a_new_terminal()  # this one's may be set already, however soon they are read
    terminal.wait_for("you>")
    assert terminal.modes != before
    for text in ("some text", "more", "another line"):  # whoever types between two presses stays
        terminal.type(text)
        terminal.wait_gone("Ctrl+C again exits")
        terminal.send(CTRL_C)
        terminal.wait_gone(text)
        terminal.wait_for("Ctrl+C again exits", anywhere=False)
    terminal.send(CTRL_C)
    assert terminal.wait_end() == 130
    assert terminal.modes == before
    assert terminal.raw.rstrip().endswith(b"\x1b[?7h") and b"\x1b[?2004l" in terminal.raw[-200:]


def test_ctrl_c_twice_while_a_turn_ignores_it_exits_130(play: Play) -> None:
    played = play(stands_still=True)
    terminal = played.terminal
    played.say("hang")
    played.wait_noted("hangs")
    terminal.send(CTRL_C)
    played.wait_noted("interrupt")
    terminal.type("next time")
    terminal.send(CTRL_C)
    assert played.wait_noted("interrupt", 2)["reason"] == "user", "whoever types between two presses stays"
    terminal.send(CTRL_C)
    assert terminal.wait_end() == 130


def test_ctrl_d_on_an_empty_line_exits_0_and_on_a_full_one_does_not(play: Play) -> None:
    terminal = play().terminal
    terminal.type("ab")
    terminal.send(CTRL_D)
    terminal.type("c")
    terminal.wait_for("you> abc")
    terminal.send(CTRL_C)
    terminal.wait_gone("you> abc")
    terminal.send(CTRL_D)
    assert terminal.wait_end() == 0


def _modes_of_a_new_terminal() -> list[Any]:
    ours, theirs = os.openpty()
    try:
        return termios.tcgetattr(ours)
    finally:
        os.close(ours)
        os.close(theirs)


@pytest.mark.parametrize("how", ["crash", "SIGTERM", "child"])
def test_u26_the_modes_are_restored_after_a_crash_a_signal_and_a_killed_child(play: Play, how: str) -> None:
    played = play(prompt=False)
    terminal = played.terminal
    before = _modes_of_a_new_terminal()  # this one's may be set already, however soon they are read
    terminal.wait_for("you>")
    assert terminal.modes != before
    if how == "SIGTERM":
        os.kill(terminal.pid, signal.SIGTERM)
        assert terminal.wait_end() == 128 + signal.SIGTERM
    elif how == "crash":
        played.say("crash")
        assert terminal.wait_end() == 1
        assert "the runtime crashed" in terminal.text
    else:
        drawing = terminal.modes
        played.say("child")
        os.kill(played.wait_noted("child")["pid"], signal.SIGKILL)
        terminal.wait_for(re.compile(r"(?s)child is gone.*\nyou>"))
        assert terminal.modes == drawing
        terminal.send(CTRL_D)
        assert terminal.wait_end() == 0
    assert terminal.modes == before


async def test_a_change_of_size_that_no_signal_tells_of_is_drawn_too() -> None:
    """At once after the first drawing, on a terminal that sends this process no signals."""
    ours, theirs = os.openpty()
    screen = pyte.Screen(120, 30)
    stream, words = pyte.ByteStream(screen), "a line that is longer than the window will be, to its end"

    def resize(columns: int) -> None:
        screen.resize(30, columns)
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 30, columns, 0, 0))

    def shown() -> bool:
        return words.replace(" ", "") in "".join(screen.display).replace(" ", "")

    async def until_shown() -> None:
        while not shown():
            await asyncio.sleep(0.01)
            while select.select([ours], [], [], 0)[0]:
                stream.feed(os.read(ours, 65536))

    resize(120)
    with open(ours, "rb"), open(theirs) as keys, open(os.dup(theirs), "w") as output:
        adapter: Any = create_event_cli_adapter(create_ui_event_bus("session-1"), output=output, input=keys)
        await adapter.initialize()
        try:
            adapter._screen.draft.text = words
            while adapter._screen.app.invalidated:
                await asyncio.sleep(0)
            resize(40)
            async with asyncio.timeout(PATIENCE):
                await until_shown()
        finally:
            await adapter.shutdown()


def test_a_running_call_shows_its_time_progress_and_last_output_without_control_codes(play: Play) -> None:
    played = play()
    terminal = played.terminal
    played.say("tool")
    terminal.wait_for("30 % · copying")
    terminal.wait_for("│ line two\\x1b[31m")
    played.go()
    terminal.wait_for("✓ slow_tool")
    terminal.wait_gone("│ line two")


def test_what_other_code_prints_and_logs_appears_above_the_line(play: Play) -> None:
    played = play()
    terminal = played.terminal
    terminal.type("flood")
    terminal.enter()
    terminal.wait_for("printed by other code")
    terminal.wait_for(re.compile(r"(?s)logged by other code.*\nyou>"))
    text = terminal.text
    assert [number for number in range(200) if text.count(f"flood {number}\n") != 1] == []
    assert text.count("printed by other code") == 1


def test_no_color_leaves_no_colour_and_no_attribute(play: Play) -> None:
    played = play(NO_COLOR="1")
    played.say("stream")
    played.go()
    played.terminal.wait_for(re.compile(r"(?s)The last 界 line.*\nyou>"))
    assert set(re.findall(rb"\x1b\[([\d;]*)m", played.terminal.raw)) <= {b"0", b""}


def test_what_is_typed_while_the_session_starts_is_kept_and_sent_in_its_order(play: Play) -> None:
    played = play(prompt=False, SLOW_START="1")
    terminal = played.terminal
    terminal.wait_for(">")
    for line in ("/first --x 1", "hello there", "/second"):
        played.say(line)
        terminal.wait_for(f"queued: {line}")
    terminal.settle(0.1)
    assert played.noted() == []
    played.go()
    terminal.wait_for("heard: hello there")
    terminal.wait_for("command done: /second")
    sent = [note.get("text") or note.get("content") for note in played.noted()]
    assert sent == ["/first --x 1", "hello there", "/second"]
    terminal.wait_gone("queued:")
    assert terminal.text.count("> /first --x 1") == 1


def test_ctrl_c_at_the_prompt_takes_the_offers_away_and_trace_alone_says_the_level(play: Play) -> None:
    played = play()
    terminal = played.terminal
    terminal.type("/t")
    terminal.send("\t")
    terminal.wait_for("/trace", anywhere=False)
    terminal.send(CTRL_C)
    terminal.wait_gone("/trace")
    played.say("/trace")
    terminal.wait_for("Trace level: normal (quiet, summary, normal, debug)")
    assert played.noted("command") == []


def test_a_text_of_many_lines_is_echoed_with_its_beginning_and_its_end(play: Play) -> None:
    played = play()
    terminal = played.terminal
    text = "\n".join(f"row {number}" for number in range(500))
    terminal.paste(text)
    terminal.send("\r")
    assert played.wait_noted("userInput")["content"] == text
    terminal.wait_for("… 475 lines …")
    terminal.wait_for("  row 499")
    assert "> row 0\n" in terminal.text and "  row 19\n… 475 lines …\n  row 495" in terminal.text


def test_a_narrow_foot_leaves_parts_out_instead_of_a_second_row(play: Play) -> None:
    terminal = play(columns=16).terminal
    terminal.wait_for(re.compile(r"\nmain · ask\Z"), anywhere=False)


def test_a_text_that_a_command_asked_for_comes_into_the_line_and_waits_for_the_person(play: Play) -> None:
    played = play()
    terminal = played.terminal
    played.say("/prefill")
    terminal.wait_for("/exit now, please")
    terminal.settle()
    assert terminal.text.count("/exit now, please") == 1, "in the line, and not above it too"
    assert played.noted("userInput") == [], "nothing is sent by itself"
    terminal.type("!\r")
    played.wait_noted("userInput", 1)
    (sent,) = played.noted("userInput")
    assert sent["content"] == "[prompt 'greet' of the MCP server 'docs']\n/exit now, please!"
    assert [each["text"] for each in played.noted("command")] == ["/prefill"], "and a line of it is no command"
