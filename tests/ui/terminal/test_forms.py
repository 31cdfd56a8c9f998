"""U16: forms field by field on a real terminal, with nesting, errors, going back, secrets, and a last look."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from golem_forge.ui.terminal.forms import FieldError, parse_value

Play = Callable[..., Any]
ESC, ENTER, CTRL_C = "\x1b", "\r", "\x03"
SEND = "(y send"
"""The keys are named once they count."""


def field(terminal: Any, shown: str, answer: str) -> None:
    terminal.wait_for(shown, anywhere=False)
    terminal.settle(0.03)
    terminal.enter(answer)


def test_u16_a_form_asks_field_by_field_and_shows_the_arguments_before_they_are_sent(play: Play) -> None:
    played = play()
    terminal = played.terminal
    played.say("/form")
    terminal.wait_for("Where to?")
    field(terminal, "Target branch", "")
    field(terminal, "✗ a value is needed", "main")
    field(terminal, "one of origin, upstream", "nowhere")
    field(terminal, "✗ must be one of origin, upstream", "")
    terminal.wait_for("? nowhere", anywhere=False)
    terminal.send("\x15")
    terminal.enter("upstream")
    terminal.wait_for("Force")
    terminal.settle(0.03)
    terminal.send(ESC)  # back to the field before, with its answer
    terminal.wait_for("? upstream", anywhere=False)
    terminal.settle(0.03)
    terminal.enter()
    field(terminal, "yes or no", "yes")
    terminal.wait_for('remote = "upstream"')
    assert played.noted("formResponse") == []
    played.after_silence(SEND)
    terminal.send(ENTER)
    terminal.wait_for("y sends it")
    played.after_silence(SEND)
    terminal.send("y")
    answer = played.wait_noted("filled")
    assert (answer["action"], answer["values"]) == ("accept", {"branch": "main", "remote": "upstream", "force": True})


def test_u16_lists_and_groups_nest_esc_never_answers_and_secrets_are_not_shown(play: Play) -> None:
    played = play()
    terminal = played.terminal
    played.say("form nested")
    terminal.wait_for("Tags 1")
    played.press(ESC, ESC, ESC)
    assert played.noted("formResponse") == [] and played.noted("interrupt") == []
    field(terminal, "Tags 1", "red")
    field(terminal, "Tags 2", "blue")
    field(terminal, "Tags 3", "")
    field(terminal, "Owner › Name", "Ada")
    field(terminal, "from 0 to 150", "200")
    field(terminal, "must be at most 150", "")
    terminal.wait_for("? 200", anywhere=False)
    terminal.send("\x15")
    terminal.enter("36")
    field(terminal, "not shown, not kept", "canary-1234")
    terminal.wait_for('pin = "••••"')
    played.after_silence(SEND)
    terminal.send("y")
    values = played.wait_noted("filled")["values"]
    assert values == {"tags": ["red", "blue"], "owner": {"name": "Ada", "age": 36}, "pin": "canary-1234"}
    terminal.settle(0.1)
    assert b"canary" not in terminal.raw
    history = played.home / "history"
    assert "canary" not in history.read_text()


def test_a_form_that_the_person_asked_for_takes_what_they_type_at_once(play: Play) -> None:
    played = play()
    terminal = played.terminal
    terminal.send("/form\rma")  # typed on before the form can be there
    terminal.wait_for("? ma", anywhere=False)
    assert "(waits" not in terminal.text
    terminal.enter("in")
    terminal.wait_for("one of origin", anywhere=False)
    assert played.noted("userInput") == []
    terminal.send(CTRL_C)
    assert played.wait_noted("filled")["action"] == "cancel"
    terminal.enter("hello")
    terminal.wait_for("heard: hello")


def test_ctrl_c_cancels_a_form_and_n_declines_it(play: Play) -> None:
    played = play()
    terminal = played.terminal
    played.say("form")
    terminal.wait_for("(waits", anywhere=False)
    terminal.wait_for("Target branch", anywhere=False)
    terminal.send(CTRL_C)
    assert played.wait_noted("filled")["action"] == "cancel"
    terminal.wait_for("form is over")
    played.say("form")
    field(terminal, "Target branch", "main")
    field(terminal, "one of origin", "")
    field(terminal, "yes or no", "")
    played.after_silence(SEND)
    terminal.send("n")
    assert played.wait_noted("filled", 2)["action"] == "decline"


def test_json_that_names_a_key_twice_is_an_error_at_its_field() -> None:
    with pytest.raises(FieldError, match="a key stands twice"):
        parse_value({"type": "json", "required": True}, '{"a": 1, "a": 2}')
