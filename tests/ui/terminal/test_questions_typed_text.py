"""Text in the input line disarms a question: however it came there and however long ago, no key answers until the line
is empty and nobody has typed for a while. The keyboard's time stands still but for `after`, whatever the machine does.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Play = Callable[..., Any]
ESC, ENTER, TAB, CTRL_U, CTRL_Y, BACKSPACE, UP = "\x1b", "\r", "\t", "\x15", "\x19", "\x7f", "\x1b[A"
SHIFT_TAB, LEFT = "\x1b[Z", "\x1b[D"
READY = "(y once"
STANDS = "clear it with Ctrl+U to answer"
WRITTEN = "git push --force origin"


class Desk:
    def __init__(self, play: Play, *scenes: str) -> None:
        self.played = play(*(scenes or ("card",)), prompt=False, stands_still=True)
        self.terminal = self.played.terminal
        self.terminal.wait_for("/git_push")  # from now on every key is noted

    def shows(self, text: str | re.Pattern[str]) -> None:
        self.terminal.wait_for(text, anywhere=False)

    def line(self, text: str) -> None:
        """Until this and nothing else stands in the input line."""
        self.shows(re.compile(f"(?m)^(?:you)?{re.escape(f'> {text}'.rstrip())}$"))

    def after(self, seconds: float, key: str = "") -> None:
        self.played.pass_time(seconds)
        if key:
            self.played.press(key)

    def type(self, text: str) -> None:
        for letter in text:
            self.after(0.05, letter)

    def silence(self, seconds: float) -> None:
        """Time passes, and the keyboard has seen that nobody typed meanwhile."""
        seen = len(self.played.noted("quiet"))
        self.played.pass_time(seconds)
        self.played.wait_noted("quiet", seen + 1)

    def unanswered(self) -> bool:
        return not [*self.played.noted("approvalResponse"), *self.played.noted("formResponse")]

    def stays_disarmed(self, text: str, keys: str = "yn1") -> None:
        """None of the keys answers, and each goes to the line; after any time."""
        self.shows(STANDS)
        self.silence(1)
        for key in keys:
            self.after(0, key)
            text += key
            self.line(text)
            self.silence(3)
            assert self.unanswered(), key
        self.shows(STANDS)

    def arms_again(self, key: str = CTRL_U, presses: int = 1) -> None:
        """The line is cleared: half a second later, not earlier, y approves."""
        for _ in range(presses):
            self.after(0.05, key)
        self.line("")
        self.terminal.wait_gone(STANDS)
        self.after(0.2, "y")
        self.line("y")
        assert self.unanswered(), "not before the silence"
        self.after(0.2, BACKSPACE)
        self.silence(0.6)
        self.shows(READY)
        self.after(0, "y")
        assert self.played.wait_noted("answered")["approved"] is True


def bracketed(desk: Desk) -> str:
    desk.terminal.paste(WRITTEN)
    return WRITTEN


def burst(desk: Desk) -> str:
    desk.terminal.send(WRITTEN)
    return WRITTEN


def typed(desk: Desk) -> str:
    desk.type(WRITTEN)
    return WRITTEN


def one_letter(desk: Desk) -> str:
    desk.after(1, "x")
    return "x"


def one_letter_after_a_key_that_shows(desk: Desk) -> str:
    desk.after(1, "w")
    desk.after(0.1, "y")
    return "wy"


WAYS = [
    bracketed,
    typed,
    *(pytest.param(way, marks=pytest.mark.long) for way in (burst, one_letter, one_letter_after_a_key_that_shows)),
]


@pytest.mark.parametrize("write", WAYS)
def test_text_that_comes_at_a_card_disarms_it_until_the_line_is_cleared(
    play: Play, write: Callable[[Desk], str]
) -> None:
    desk = Desk(play)
    desk.shows(READY)
    desk.after(1)
    text = write(desk)
    desk.line(text)
    desk.stays_disarmed(text, "y12snqed?" if write is typed else "yn1")
    desk.arms_again()


def test_backspace_arms_it_too_and_ctrl_u_clears_several_lines_from_anywhere(play: Play) -> None:
    desk = Desk(play)
    desk.shows(READY)
    desk.after(1)
    desk.terminal.paste("one\ntwo\n")
    desk.shows(re.compile(r"(?m)^> one\n *two$"))
    desk.silence(1)
    desk.after(0, LEFT)
    desk.after(1, CTRL_U)
    desk.line("")
    desk.after(0.1, CTRL_Y)  # what was cleared is not lost
    desk.shows(re.compile(r"(?m)^> one\n *two$"))
    desk.silence(2)
    desk.after(0, "y")
    desk.shows(re.compile(r"(?m)^> one\n *two\n *y$"))
    assert desk.unanswered()
    desk.arms_again(BACKSPACE, len("one\ntwo\ny"))


@pytest.mark.parametrize("text", ["a draft of before", pytest.param(" ", marks=pytest.mark.long)])
def test_text_of_before_the_card_disarms_it(play: Play, text: str) -> None:
    desk = Desk(play, "later")
    desk.line("")
    desk.type(text)
    desk.line(text)
    desk.after(60)
    desk.played.go()
    desk.shows(STANDS)
    desk.played.wait_noted("quiet")
    desk.after(0, "y")
    desk.line(f"{text}y")
    assert desk.unanswered()
    desk.stays_disarmed(f"{text}y")
    desk.arms_again()


def test_a_line_of_the_history_disarms_it(play: Play, tmp_path: Path) -> None:
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "history").write_text("an earlier line\n")
    desk = Desk(play)
    desk.shows(READY)
    desk.after(1, UP)  # no answer: the input line has the keyboard for a moment
    desk.after(0.2, UP)
    desk.line("an earlier line")
    assert desk.unanswered()
    desk.stays_disarmed("an earlier line")
    desk.arms_again()


def test_text_that_forge_puts_into_the_line_disarms_it(play: Play) -> None:
    desk = Desk(play, "prefilled")
    desk.shows(READY)
    desk.after(1)
    desk.played.go()
    desk.line("a prompt of a server")
    desk.after(0, "y")  # no key came meanwhile: the silence lasts
    desk.line("a prompt of a servery")
    assert desk.unanswered()
    desk.stays_disarmed("a prompt of a servery")
    desk.arms_again()


@pytest.mark.parametrize("write", [burst, pytest.param(typed, marks=pytest.mark.long)])
def test_enter_sends_the_line_and_approves_nothing(play: Play, write: Callable[[Desk], str]) -> None:
    desk = Desk(play)
    desk.shows(READY)
    desk.after(1)
    desk.line(write(desk))
    desk.silence(2)
    desk.after(0, ENTER)
    desk.shows(f"queued: {WRITTEN}")
    desk.line("")
    assert desk.unanswered() and desk.played.noted("userInput") == []
    desk.silence(0.6)
    desk.shows(READY)
    desk.after(0, "y")
    assert desk.played.wait_noted("answered")["approved"] is True
    assert desk.played.wait_noted("userInput")["content"] == WRITTEN


def test_enter_at_a_blank_line_clears_it_and_denies_nothing(play: Play) -> None:
    desk = Desk(play)
    desk.shows(READY)
    desk.after(1, " ")
    desk.shows(STANDS)
    desk.silence(1)
    desk.after(0, ENTER)
    desk.silence(1)
    desk.shows(READY)
    assert desk.unanswered() and "queued" not in desk.terminal.text


def test_esc_interrupts_keeps_the_text_and_answers_nothing(play: Play) -> None:
    desk = Desk(play)
    desk.shows(READY)
    desk.after(1)
    desk.line(bracketed(desk))
    desk.silence(2)
    desk.terminal.send(ESC)
    desk.played.wait_noted("interrupt")
    desk.shows("turn interrupted")
    desk.line(WRITTEN)
    assert desk.unanswered()


def test_shift_tab_does_not_bring_the_card_back_while_text_stands(play: Play) -> None:
    desk = Desk(play)
    desk.shows(READY)
    desk.after(1, SHIFT_TAB)
    desk.shows("waits while you write")
    desk.type("not yet")
    desk.line("not yet")
    desk.after(1, SHIFT_TAB)
    assert desk.unanswered()
    desk.stays_disarmed("not yet")
    desk.arms_again()


def test_the_card_behind_is_disarmed_too(play: Play) -> None:
    desk = Desk(play, "first_elsewhere")
    desk.shows(READY)
    desk.after(1)
    desk.terminal.paste(WRITTEN)
    desk.line(WRITTEN)
    desk.silence(2)
    desk.played.go()
    desk.shows("denied by browser")
    desk.shows("echo second")
    desk.line(WRITTEN)
    desk.after(5, "y")
    desk.line(f"{WRITTEN}y")
    desk.silence(3)
    assert [note["source"] for note in desk.played.noted("approvalResponse")] == ["browser"]
    desk.after(0, CTRL_U)
    desk.silence(0.6)
    desk.shows(READY)
    desk.after(0, "y")
    assert desk.played.wait_noted("answered", 2)["approved"] is True


def test_a_form_waits_while_text_stands_and_so_does_its_last_question(play: Play) -> None:
    desk = Desk(play, "later form")
    desk.line("")
    desk.type("a draft")
    desk.line("a draft")
    desk.after(60)
    desk.played.go()
    desk.shows("A form is to be filled in")
    desk.shows(STANDS)
    desk.played.wait_noted("quiet")
    desk.after(0, "y")
    desk.line("a drafty")  # and not in the field
    desk.after(1, CTRL_U)
    desk.silence(0.6)
    desk.shows("Target branch")
    desk.type("main")
    desk.shows("? main")
    for shown in ("one of origin", "yes or no", "These will be sent:"):
        desk.after(0.1, ENTER)
        desk.shows(shown)
    desk.silence(0.6)
    desk.shows("(y send")
    desk.terminal.paste(WRITTEN)
    desk.line(WRITTEN)
    desk.shows(STANDS)
    for key in "yn":
        desk.silence(3)
        desk.after(0, key)
        assert desk.unanswered(), key
    desk.line(f"{WRITTEN}yn")
    desk.after(0, CTRL_U)
    desk.silence(0.6)
    desk.shows("(y send")
    desk.after(0, "y")
    assert desk.played.wait_noted("filled")["action"] == "accept"


def test_text_in_the_field_of_a_reason_is_its_reason(play: Play) -> None:
    desk = Desk(play)
    desk.shows(READY)
    desk.after(1, "n")
    desk.shows("Reason for the model")
    desk.terminal.paste("use dev\n")
    desk.shows("? use dev")
    for key in "y1sq":
        desk.after(3, key)
        assert desk.unanswered(), key
    desk.after(3, ESC)
    desk.terminal.wait_gone("Reason for the model")
    assert desk.unanswered()
    desk.silence(0.6)
    desk.shows(READY)
    desk.after(0, "y")
    assert desk.played.wait_noted("answered")["approved"] is True
