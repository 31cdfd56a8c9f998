"""A person who does not want to be asked all the time, and wants to see and take back what was done (flow.md)."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.machine import NEW_DIRECTORY
from tests.ui.change_data import change_set, created, edited, record

ASKED = "How shall Forge work in this directory?"
FILES = {"words.yaml": "turns:\n" + 8 * "  - {say: Hello there.}\n"}
NEW = {NEW_DIRECTORY: "1"}
MODEL = ("--model", "scripted:words.yaml")


@pytest.fixture
def place(desk: Callable[..., Any]) -> Any:
    made = desk(FILES)
    made.know_walls()
    return made


def ready(screen: Any) -> None:
    screen.wait_for("default · scripted:words.yaml", anywhere=False)


def test_i_am_asked_once_in_a_directory_and_my_answer_holds(place: Any, terminal: Callable[..., Any]) -> None:
    ran = place.forge("run", *MODEL, "-i", "hello", **NEW)
    assert ran.code == 0 and ASKED not in ran.out + ran.err, "nobody is there"
    first = terminal(place, *MODEL, **NEW)
    first.wait_for(ASKED)
    first.wait_for("y or n? (Esc: not now)", anywhere=False)
    rows = [row.strip() for row in first.visible.split("\n")]
    assert "y  work on its own here; ask before anything leaves this directory or cannot be undone" in rows
    assert "n  ask before each change" in rows
    first.send("y")
    first.wait_for("· contained", anywhere=False)
    second = terminal(place, *MODEL, **NEW)
    second.wait_for("Forge works on its own in this directory, as you chose")
    second.wait_for("· contained", anywhere=False)
    assert ASKED not in second.text
    listed = place.forge("rules", "list")
    (row,) = [line for line in listed.out.splitlines() if "mode contained" in line]
    assert place.forge("rules", "revoke", row.split()[0]).code == 0
    third = terminal(place, *MODEL, **NEW)
    third.wait_for(ASKED)
    third.wait_for("y or n? (Esc: not now)", anywhere=False)
    third.send("\x1b")
    third.wait_gone("y or n?")
    third.type("hello\r")
    third.wait_for("Hello there.")
    assert "mode contained" not in place.forge("rules", "list").out


def test_i_see_what_a_session_changed_and_go_back_to_an_earlier_message(
    place: Any, terminal: Callable[..., Any]
) -> None:
    screen = terminal(place, *MODEL)
    ready(screen)
    for text in ("make a list", "now another"):
        screen.type(f"{text}\r")
        screen.wait_for(f"> {text}")
    screen.wait_for("default · scripted:words.yaml · context", anywhere=False)
    (session,) = (path.stem for path in place.journals)
    record(
        Path(place.home),
        change_set(session, "c1", 1, created("/workspace/list.txt", 3)),
        change_set(session, "c2", 2, edited("/workspace/list.txt", 1, 2)),
    )
    screen.type("/changes\r")
    screen.wait_for("turn 2 · 1 file (+1 −2)")
    screen.send("\x1b[Z")  # one key, not three: Esc is a key of its own
    screen.wait_for("· contained", anywhere=False)
    screen.type("/rewind 2 conversation\r")
    screen.wait_for("rewound to message 2 (conversation): now another")
    screen.wait_for("> now another", anywhere=False)
    shown = place.forge("changes", session[:8])
    assert shown.code == 0 and "/workspace/list.txt" in shown.out
    assert "rewound to message 2" in place.forge("sessions", "show", session[:8]).out
