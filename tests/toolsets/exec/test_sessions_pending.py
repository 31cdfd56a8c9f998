"""What is not yet submitted is judged with what is new."""

from __future__ import annotations

from tests.tables import table

from golem_forge.toolsets.exec.sessions import PendingInput


def test_pieces_of_a_line_are_judged_together_until_it_is_submitted() -> None:
    pending = PendingInput()
    pending.commit("rm -r")
    assert pending.preview("f x\n").line == "rm -rf x\n"
    pending.commit("f x\nnext")
    assert pending.preview("!").line == "next!"
    pending.commit("\r")
    assert pending.preview("a").line == "a"


def test_a_refused_write_leaves_the_buffer_as_it_was() -> None:
    pending = PendingInput()
    pending.commit("ab")
    pending.preview("c\n")
    assert pending.preview("d").line == "abd"


@table("chars", ["\t", "\x1b[A", "ls\x03", "\x7f", "\x15", "\x1a", "\x9b", "\b"])
def test_control_characters_make_the_line_opaque(chars: str) -> None:
    assert PendingInput().preview(chars).opaque
    assert not PendingInput().preview("plain é\r\n").opaque


def test_an_interrupt_empties_nothing_and_leaves_two_readings() -> None:
    pending = PendingInput()
    pending.commit("echo ")
    pending.commit("\x03")
    judged = pending.preview("rm -rf x\n")
    assert judged.line == "echo rm -rf x\n"
    assert judged.readings == ("echo rm -rf x\n", "rm -rf x\n")
    assert judged.opaque
    pending.commit("rm -rf x\n")
    assert pending.preview("y").readings == ("y",)


def test_an_interrupt_of_an_empty_line_changes_nothing() -> None:
    pending = PendingInput()
    pending.commit("\x03")
    assert not pending.preview("ls\n").opaque


@table(
    ("first", "second", "whole"),
    [
        ("rm \\\n", "-rf x\n", "rm \\\n-rf x\n"),
        ("rm \\\r", "-rf x\r", "rm \\\r-rf x\r"),
        ("curl u |\n", "sh\n", "curl u |\nsh\n"),
        ("true &&\n", "ls\n", "true &&\nls\n"),
        ("bash -c 'rm \\\n", "-rf x'\n", "bash -c 'rm \\\n-rf x'\n"),
        ("curl u | (\n", "sh)\n", "curl u | (\nsh)\n"),
        ("bash <<END\n", "ls\n", "bash <<END\nls\n"),
    ],
)
def test_a_command_that_goes_on_is_judged_with_its_first_line_and_without(first: str, second: str, whole: str) -> None:
    pending = PendingInput()
    pending.commit(first)
    judged = pending.preview(second)
    assert judged.line == whole
    assert judged.readings == (whole, second), "whatever reads it need not be a shell"


@table("line", ["ls \\\\\n", "echo 'a b'\n", "f() { ls; }\n", "echo $((1<<2))\n", "cat <<E\na\nE\n"])
def test_a_finished_line_is_submitted(line: str) -> None:
    pending = PendingInput()
    pending.commit(line)
    assert pending.text == ""


def test_what_never_ends_is_asked_about_and_then_counts_as_submitted() -> None:
    pending = PendingInput()
    pending.commit("it's\n")
    for _ in range(15):
        assert not pending.preview("x\n").opaque
        pending.commit("x\n")
    assert pending.preview("x\n").opaque
    pending.commit("x\n")
    assert pending.text == ""


@table("line", ["!!\n", "!rm\n", "sudo !!:1\n", "^ls^rm^\n", "ls\r^a^b\n", 'echo "!$"\n'])
def test_a_line_that_names_an_earlier_one_is_opaque(line: str) -> None:
    assert PendingInput().preview(line).opaque


@table("line", ["a != b\n", "! ls\n", "grep x^2 f\n", "hello!\n"])
def test_other_uses_of_these_characters_are_not(line: str) -> None:
    assert not PendingInput().preview(line).opaque


def test_history_is_not_what_quotes_say() -> None:
    typed = PendingInput()
    assert not typed.preview("print(f'{x!r}')\n").opaque
    assert not typed.preview("git commit -m 'it works!'\n").opaque
    assert typed.preview("echo !rm\n").opaque
    assert typed.preview('echo "!rm"\n').opaque


def test_giving_up_on_a_long_command_does_not_lose_the_line_that_goes_on() -> None:
    typed = PendingInput()
    typed.commit("cat <<EOF\n")
    for _ in range(15):
        typed.commit("text\n")
    typed.commit("EOF\nrm \\\n")
    assert "rm \\\n-rf victim\n" in typed.preview("-rf victim\n").readings
