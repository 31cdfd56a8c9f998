"""`forge tools` with a person at the terminal: the trust card is read and answered there, by keys typed after it."""

from __future__ import annotations

import pytest
from tests.cli.own_tools import Person


@pytest.fixture
def person(shell, capfd) -> Person:
    return Person(shell.forge_home, capfd)


def test_a_no_is_counted_and_a_yes_activates(person, on_terminal):
    person.greet()
    code, screen = on_terminal(["tools", "activate", "greet"], (r"\[y/N\]", "n"))
    assert code == 3 and "user tool 'greet'" in screen and "tests: 1 test" in screen
    assert "print(f" in screen and "none of it ran" in screen
    code, screen = on_terminal(["tools", "activate", "greet"], (r"\[y/N\]", "y"))
    assert code == 0 and "denied once before" in screen and "ok greets" in screen and "tool 'greet' is active" in screen
    digest = person.book.last_trusted("greet")
    assert person.book.find_trust("greet", digest).who == "person"


def test_call_promotes_with_one_card(person, on_terminal):
    person.greet()
    code, screen = on_terminal(["call", "greet", "--who", "Ada"], (r"Approve\?", "y"))
    assert code == 0 and "Hello Ada" in screen and "user tool 'greet'" in screen
    assert screen.count("Approve?") == 1, "one card covers trust and the call"
    assert person.book.last_trusted("greet") != ""


def test_run_and_remove_ask(person, on_terminal):
    folder = person.greet()
    code, screen = on_terminal(["tools", "run", "greet"], (r"Approve\?", "n"), (r"Reason", ""))
    assert code == 3 and "Hello" not in screen.partition("Approve?")[2]
    code, screen = on_terminal(["tools", "remove", "greet"], (r"\[y/N\]", ""))
    assert code == 3 and folder.exists()
    code, screen = on_terminal(["tools", "remove", "greet"], (r"Remove ~/.forge/tools/greet\?.*\[y/N\]", "y"))
    assert code == 0 and not folder.exists()


def test_ctrl_c_at_the_question_ends_it_and_a_later_yes_does_not_count(person, on_terminal):
    person.greet()
    code, screen = on_terminal(["tools", "activate", "greet"], (r"\[y/N\]", "\x03y"))
    assert code == 130 and "Traceback" not in screen and "ok greets" not in screen
    assert person.book.last_trusted("greet") == ""
