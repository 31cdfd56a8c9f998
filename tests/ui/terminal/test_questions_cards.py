"""U24 and ui.md §4: a card is answered by the keys it names and by nothing else, and every answer says what it says."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from typing import Any

import pytest
from tests.deadlines import LONG, PATIENCE

Play = Callable[..., Any]
ESC, ENTER, TAB, CTRL_C, CTRL_L = "\x1b", "\r", "\t", "\x03", "\x0c"
CTRL_A, BACKSPACE, CTRL_R, CTRL_U, LEFT = "\x01", "\x7f", "\x12", "\x15", "\x1b[D"
ASKED = "Approve? [y/N]"
READY = "(y once"
"""The keys are named once they count."""
SEND = "(y send"
STANDS = "your text waits in the input line"


def ask(play: Play, *scenes: str, **options: Any) -> Any:
    """Plays scenes and waits until the first card has the keyboard."""
    played = play(*(scenes or ("card",)), prompt=False, **options)
    ready(played)
    return played


def ready(played: Any, card: int = 0) -> None:
    """Until a card has the keyboard; `card`: the one that was drawn as the so-manieth."""
    played.terminal.wait_for(re.compile(rf"(?s)(wants to run.*?){{{card}}}"))
    played.after_silence(READY)


class Timed:
    """A card whose keyboard has its own time: it stands still but for `after`, whatever the machine does."""

    def __init__(self, play: Play) -> None:
        self.played = play("card", prompt=False, stands_still=True)
        self.terminal = self.played.terminal
        self.terminal.wait_for(READY, anywhere=False)

    def after(self, seconds: float, keys: str = "") -> None:
        """Time passes, then a key is pressed and heard."""
        self.played.pass_time(seconds)
        if keys:
            self.played.press(keys)

    def type(self, text: str) -> None:
        for letter in text:
            self.after(0.09, letter)

    def unanswered(self) -> bool:
        return not self.played.noted("approvalResponse")


def answers(played: Any) -> list[dict[str, Any]]:
    return [{key: note[key] for key in note if key not in ("type", "at")} for note in played.noted("answered")]


def test_u24_y_approves_once_n_denies_with_a_reason_enter_denies_and_others_ask_again(play: Play) -> None:
    played = ask(play, *["card"] * 6)
    terminal = played.terminal
    assert "why asked: rule r1 asks" in terminal.text and "remembered.yaml" in terminal.text
    terminal.send("x")
    terminal.wait_for("'x' is not an answer")
    clear(played, READY)
    terminal.send("y")
    played.wait_noted("answered", 1)
    ready(played, card=2)
    terminal.send("n")
    terminal.wait_for("Reason for the model")
    terminal.enter("use main instead")
    played.wait_noted("answered", 2)
    for count, key in enumerate((ENTER, "s", "5", "q"), 3):
        ready(played, card=count)
        terminal.send(key)
        played.wait_noted("answered", count)
    terminal.wait_for("approved · remembered (always for this project, in remembered.yaml): echo")
    assert answers(played) == [
        {"approved": True, "by": "terminal"},
        {"approved": False, "by": "terminal", "reason": "use main instead"},
        {"approved": False, "by": "terminal"},
        {"approved": True, "by": "terminal", "choice": "exact:session"},
        {"approved": True, "by": "terminal", "choice": "prefix:always"},
        {"approved": False, "by": "terminal", "stop": True},
    ]


def test_u24_d_shows_the_whole_diff_w_why_and_help_without_answering(play: Play) -> None:
    played = ask(play, "diff")
    terminal = played.terminal
    assert "+line 50" not in terminal.text and "+line 99" in terminal.text
    terminal.send("d")
    terminal.wait_for("+line 50")
    terminal.settle(0.05)
    terminal.send("w")
    terminal.wait_for(re.compile(r"(?s)(why asked: rule r1 asks.*?){2}"))  # keys that come together answer nothing
    terminal.settle(0.05)
    terminal.send("?")
    terminal.wait_for("deny and end the turn")
    terminal.send(ESC + "y")  # Alt+y is not y
    terminal.settle(0.2)
    assert played.noted("approvalResponse") == []
    assert played.noted("interrupt") == []


def test_u24_a_card_is_whole_again_after_the_window_became_narrow(play: Play) -> None:
    played = ask(play, "long", columns=120)
    terminal = played.terminal
    terminal.resize(40, 30)
    command = "echo" + "".join(f"word{number}" for number in range(60)) + ";rm-rfthe_end"
    terminal.wait_until(lambda: command in terminal.unwrapped.replace("│", ""), "the whole command")
    ready(played)
    assert max(len(row) for row in terminal.visible.split("\n")) <= 40
    terminal.send("y")
    assert played.wait_noted("answered")["approved"] is True


def test_a_key_that_came_with_a_paste_or_with_the_terminals_own_words_is_no_answer(play: Play) -> None:
    played = ask(play)
    terminal = played.terminal
    for sent in ("\x1b[200~text\x1b[201~y", "\x1b[1;1Ry", "\x1b[?1;2cy"):
        terminal.send(sent)
        terminal.wait_for(STANDS, anywhere=False)
        clear(played, READY)
    assert played.noted("approvalResponse") == []
    terminal.send("y")
    assert played.wait_noted("answered")["approved"] is True


def test_a_word_typed_at_a_card_never_answers_it_and_goes_to_the_input_line(play: Play) -> None:
    card = Timed(play)
    terminal, played = card.terminal, card.played
    card.after(1)
    for typed, at_once in (("why", True), ("why", False), ("dy", False), ("xyn1sq", False), ("hello\r", False)):
        if at_once:
            terminal.send(typed)
        else:
            card.type(typed)
        terminal.wait_for(re.compile(r"(?m)^> " + typed.rstrip("\r")), anywhere=False)
        card.after(0.7)
        terminal.wait_for(STANDS, anywhere=False)
        terminal.send(CTRL_U)
        terminal.wait_gone("> " + typed.rstrip("\r"))
        card.after(0.7)
        ready(played)
        assert played.noted("approvalResponse") == played.noted("userInput") == [], typed
    assert terminal.text.count("why asked: rule r1 asks") == 2, "on the card, and once for the w that came alone"
    terminal.send("hey\ry")
    terminal.wait_for(re.compile(r"(?m)^> hey\n *y"), anywhere=False)
    card.after(0.7)
    terminal.wait_for(STANDS, anywhere=False)
    assert played.noted("approvalResponse") == played.noted("userInput") == []
    card.after(1, CTRL_U)
    card.after(0.7)
    ready(played)
    terminal.send("y")
    assert played.wait_noted("answered")["approved"] is True


def test_every_key_breaks_the_silence_also_one_that_changes_nothing(play: Play) -> None:
    card = Timed(play)
    terminal = card.terminal
    for keys in (("x", BACKSPACE, BACKSPACE), (LEFT, TAB, CTRL_A, LEFT)):
        for key in keys:
            card.after(0.45, key)
        card.after(0.4)
        terminal.settle(0.1)  # a card that had not heard the last key would take the keyboard by now
        card.after(0.05, "y")
        terminal.wait_for("\n> y", anywhere=False)
        assert card.unanswered(), keys
        card.after(0.1, CTRL_U)
        card.after(0.6)
        terminal.wait_for(READY, anywhere=False)
    card.after(5, "y")
    assert card.played.wait_noted("answered")["approved"] is True


def test_who_leaves_a_reason_or_an_edit_answers_only_after_a_silence(play: Play) -> None:
    card = Timed(play)
    terminal = card.terminal
    for opens, shown in (("n", "Reason for the model"), ("e", '? {"cmd": "echo hello"}')):
        for leaves in (ESC, CTRL_C):
            card.after(5, opens)
            terminal.wait_for(shown, anywhere=False)
            card.after(5, leaves)
            terminal.wait_gone(shown)
            card.after(0.3, "y")
            terminal.wait_for("\n> y", anywhere=False)
            assert card.unanswered(), (opens, leaves)
            card.after(0.1, BACKSPACE)
            card.after(0.6)
            terminal.wait_for(READY, anywhere=False)


def test_text_typed_into_a_search_answers_nothing_and_stays_in_one_piece(play: Play) -> None:
    card = Timed(play)
    card.after(1, LEFT)
    card.after(0.1, CTRL_R)
    card.type("say you said")
    card.terminal.wait_for("search: say you said", anywhere=False)
    card.after(0.6)
    card.terminal.wait_for("\n> say you said", anywhere=False)
    card.terminal.wait_for(STANDS, anywhere=False)
    card.after(0.1, "y")
    card.terminal.wait_for("\n> say you saidy", anywhere=False)
    assert card.unanswered() and "search:" not in card.terminal.visible


def test_a_card_takes_no_key_while_text_that_was_typed_at_it_stands_in_the_line(play: Play) -> None:
    card = Timed(play)
    terminal = card.terminal
    card.after(1)
    card.type("is that ok")
    card.after(0.7)
    terminal.wait_for(STANDS, anywhere=False)
    card.type("you tell me")
    card.after(0.7, ENTER)
    terminal.wait_for("queued: is that okyou tell me", anywhere=False)
    assert card.unanswered()
    card.after(0.6)
    terminal.wait_for(READY, anywhere=False)
    card.after(0.1, "y")
    assert card.played.wait_noted("answered")["approved"] is True
    assert card.played.wait_noted("userInput")["content"] == "is that okyou tell me"


def clear(played: Any, shown: str) -> None:
    """Empties the input line, until that is shown. On a busy machine a key arrives together with what was typed before
    it, as part of a paste: then it is pressed again."""
    end = time.monotonic() + PATIENCE
    while True:
        played.terminal.send(CTRL_U)
        try:
            played.after_silence(shown, 2)
            return
        except AssertionError:
            if time.monotonic() > end:
                raise


def test_text_typed_at_a_trust_card_stays_in_the_input_line_and_denies_nothing(play: Play) -> None:
    played = play("trust", prompt=False, stands_still=True)
    terminal = played.terminal
    for typed, pause in (("wait, no\r", 0.05), ("nothing yet", 0)):
        terminal.wait_for("(y trust", anywhere=False)
        if pause:
            terminal.type(typed, pause)
        else:
            terminal.send(typed)
        terminal.wait_for(f"{typed.rstrip()}", anywhere=False)
        clear(played, "(y trust")
    assert played.noted("approvalResponse") == []
    terminal.send("n")
    assert played.wait_noted("answered")["approved"] is False


def test_what_is_typed_on_after_an_edit_does_not_send_it(play: Play) -> None:
    played = ask(play, stands_still=True)
    terminal = played.terminal
    terminal.send("e")
    terminal.wait_for('? {"cmd": "echo hello"}')
    for key in "\ry\ry":
        played.pass_time(0.05)
        played.press(key)
    terminal.wait_for("\n> yy", anywhere=False)
    clear(played, SEND)
    played.press("n", "y")  # back to the card, which is another question
    terminal.wait_for("\n> ny", anywhere=False)
    clear(played, READY)
    assert played.noted("approvalResponse") == []


def test_keys_pressed_before_the_card_was_drawn_and_pastes_never_answer_it(play: Play) -> None:
    played = play()
    terminal = played.terminal
    played.say("late")
    played.wait_noted("busy")
    terminal.send("y")  # the loop is busy: it lies in the terminal's buffer when the card comes
    played.go()
    for pasted in ("\x1b[200~y\ny\n\x1b[201~", "yyy", ""):  # the second by a terminal that does not mark it
        terminal.wait_for(STANDS, anywhere=False)
        clear(played, READY)
        assert played.noted("approvalResponse") == []
        terminal.send(pasted)
    terminal.send("n")
    terminal.wait_for("Reason for the model")
    terminal.send(ESC)
    ready(played)
    terminal.send("y")
    assert played.wait_noted("answered")["approved"] is True


def test_a_draft_that_is_being_typed_when_the_card_comes_goes_on_and_does_not_answer_it(play: Play) -> None:
    played = play(stands_still=True)
    terminal = played.terminal
    played.say("later")
    played.wait_noted("userInput")
    sentence = "yes, you may say so, but why not yet"
    for letter in sentence:
        played.pass_time(0.1)
        played.press(letter)
        if letter == ",":
            played.go()
            terminal.wait_for(ASKED)
    terminal.wait_for(f"you> {sentence}")
    terminal.wait_for(STANDS)
    assert played.noted("approvalResponse") == []
    terminal.send(ENTER)
    terminal.wait_for(f"queued: {sentence}")
    ready(played)
    terminal.send("y")
    assert played.wait_noted("answered")["approved"] is True
    assert played.wait_noted("userInput", 2)["content"] == sentence


def test_u5_several_cards_queue_with_their_place_and_one_key_pressed_twice_answers_one(play: Play) -> None:
    played = ask(play, "three", stands_still=True)
    terminal = played.terminal
    terminal.wait_for("1 of 3")
    assert "echo number 1" in terminal.text and "echo number 3" not in terminal.text
    for place in ("2 of 3", "3 of 3"):
        terminal.send(TAB)
        terminal.wait_for(place)
        ready(played)
    assert "echo number 3" in terminal.text
    terminal.send("y")
    played.wait_noted("answered", 1)
    terminal.send("y")  # the same key again before the next card can have been read
    terminal.wait_for("1 of 2")
    terminal.wait_for(STANDS, anywhere=False)
    clear(played, READY)
    assert len(answers(played)) == 1
    terminal.send("q")
    played.wait_noted("answered", 2)
    terminal.wait_gone("1 of 2")
    ready(played)
    terminal.send("y")
    played.wait_noted("answered", 3)
    assert [answer["approved"] for answer in answers(played)] == [True, False, True]
    assert len({note["requestId"] for note in played.noted("approvalResponse")}) == 3


@pytest.mark.parametrize(
    ("scene", "key", "over"),
    [("three", CTRL_C, "turn interrupted"), pytest.param("covered", "3", "memory", marks=pytest.mark.long)],
)
def test_a_card_that_ends_with_the_one_before_it_is_never_drawn(play: Play, scene: str, key: str, over: str) -> None:
    played = ask(play, scene, PAUSE=str(LONG))
    terminal = played.terminal
    terminal.send(key)
    terminal.wait_for(over)
    terminal.wait_for("you>", anywhere=False)
    assert terminal.text.count("wants to run") == 1 and "echo number 2" not in terminal.text
    endings = re.findall(r"^(?:exec_command · )?(?:denied|approved)[^·\n]*", terminal.text, re.MULTILINE)
    by_memory = ["approved ", "exec_command · approved by memory"]
    assert endings == (["denied by interrupt"] if key == CTRL_C else by_memory)


def test_tab_and_ctrl_l_draw_the_only_card_again_without_answering_it(play: Play) -> None:
    played = ask(play)
    terminal = played.terminal
    for count, key in enumerate((TAB, CTRL_L, TAB), 2):
        terminal.send(key)
        ready(played, card=count)
    assert terminal.text.count("echo hello\n") == 4
    assert played.noted("approvalResponse") == []


def test_a_card_that_was_pushed_away_by_output_is_drawn_again_before_it_can_be_answered(play: Play) -> None:
    played = ask(play, "chatty", stands_still=True)
    terminal = played.terminal
    terminal.send("y")
    terminal.wait_for("echo number 2")
    played.go()
    terminal.wait_for("logged by other code")
    played.pass_time(1)  # not before: a card whose silence is over has the keyboard already
    ready(played, card=3)
    assert "echo number 2" in terminal.visible
    first, second, again = (match.start() for match in re.finditer("wants to run", terminal.text))
    assert first < terminal.text.index("approved") < second < terminal.text.index("flood 199") < again
    terminal.send("y")
    played.wait_noted("answered", 2)


def test_what_was_typed_for_one_question_is_not_seen_at_the_next(play: Play) -> None:
    played = ask(play, "denied")
    terminal = played.terminal
    terminal.send("n")
    terminal.wait_for("Reason for the model")
    terminal.enter("use main instead")
    terminal.wait_for(re.compile(r"A form is to be filled in[^\n]*\n\?\n"), anywhere=False)
    terminal.wait_for("Target branch", anywhere=False)
    assert "? use main" not in terminal.visible


def test_u4_a_card_answered_in_another_ui_closes_and_says_who_answered(play: Play) -> None:
    played = ask(play, "elsewhere")
    terminal = played.terminal
    played.go()
    terminal.wait_for("approved by browser")
    terminal.wait_gone(ASKED)
    terminal.enter("y")
    terminal.wait_for("heard: y")
    assert played.noted("approvalResponse")[0]["source"] == "browser"
    assert len(played.noted("approvalResponse")) == 1


def test_u8_e_edits_as_a_form_an_invalid_value_keeps_the_card_and_shows_the_error(play: Play) -> None:
    played = ask(play, "edit")
    terminal = played.terminal
    terminal.send("e")
    terminal.wait_for("Target branch")
    terminal.wait_for("? main")
    terminal.enter("bad")
    terminal.wait_for("one of origin, upstream")
    terminal.send(ENTER)
    terminal.wait_for("Force")
    terminal.settle(0.05)
    terminal.send(ENTER)
    terminal.wait_for("These will be sent:")
    played.after_silence(SEND)
    terminal.send("y")
    terminal.wait_for("✗ branch: no such branch")
    assert answers(played) == []
    ready(played)
    terminal.send("e")
    terminal.wait_for("✗ no such branch")
    terminal.enter("dev")
    terminal.wait_for("one of origin, upstream")
    terminal.settle(0.05)
    terminal.enter("upstream")
    terminal.settle(0.05)
    terminal.send(ENTER)
    terminal.wait_for('branch = "dev"')
    played.after_silence(SEND)
    terminal.send("y")
    answer = played.wait_noted("answered")
    assert answer["args"] == {"branch": "dev", "remote": "upstream", "force": False}


def test_without_fields_the_edit_is_the_arguments_as_json_and_must_be_an_object(play: Play) -> None:
    played = ask(play)
    terminal = played.terminal
    terminal.send("e")
    terminal.wait_for('? {"cmd": "echo hello"}')
    terminal.enter("[1]")
    terminal.wait_for("These will be sent:")
    played.after_silence(SEND)
    terminal.send("y")
    terminal.wait_for("the arguments are one JSON object")
    terminal.settle(0.05)
    terminal.send("\x15")
    terminal.enter('{"cmd": "ls"}')
    terminal.wait_for('cmd": "ls"')
    played.after_silence(SEND)
    terminal.send("y")
    assert played.wait_noted("answered")["args"] == {"cmd": "ls"}


def test_who_denies_a_call_of_their_own_is_asked_for_no_reason(play: Play) -> None:
    played = ask(play, "own")
    played.terminal.send("n")
    answer = played.wait_noted("answered")
    assert answer["approved"] is False and "reason" not in answer
    assert "Reason for the model" not in played.terminal.text
