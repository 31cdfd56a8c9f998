"""What is not yet submitted is judged with what is new."""

from __future__ import annotations

import pytest

from golem_forge.toolsets.exec.pending import PendingInput


def test_pieces_of_a_line_are_judged_together_until_it_is_submitted() -> None:
    pending = PendingInput()
    pending.delivered("rm -r")
    assert pending.with_new("f x\n").line == "rm -rf x\n"
    pending.delivered("f x\nnext")
    assert pending.with_new("!").line == "next!"
    pending.delivered("\r")
    assert pending.with_new("a").line == "a"


def test_a_refused_write_leaves_the_buffer_as_it_was() -> None:
    pending = PendingInput()
    pending.delivered("ab")
    pending.with_new("c\n")
    assert pending.with_new("d").line == "abd"


@pytest.mark.parametrize("chars", ["\t", "\x1b[A", "ls\x03", "\x7f", "\x15", "\x1a", "\x9b", "\b"])
def test_control_characters_make_the_line_opaque(chars: str) -> None:
    assert PendingInput().with_new(chars).opaque
    assert not PendingInput().with_new("plain é\r\n").opaque


def test_an_interrupt_empties_nothing_and_leaves_two_readings() -> None:
    pending = PendingInput()
    pending.delivered("echo ")
    pending.delivered("\x03")
    judged = pending.with_new("rm -rf x\n")
    assert judged.line == "echo rm -rf x\n"
    assert judged.readings == ("echo rm -rf x\n", "rm -rf x\n")
    assert judged.opaque
    pending.delivered("rm -rf x\n")
    assert pending.with_new("y").readings == ("y",)


def test_an_interrupt_of_an_empty_line_changes_nothing() -> None:
    pending = PendingInput()
    pending.delivered("\x03")
    assert not pending.with_new("ls\n").opaque
