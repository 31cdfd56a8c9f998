"""The grammar of slash commands: ui.md §6, cases U12 and U13."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from golem_forge import tool
from golem_forge.agent.slash.parser import (
    BUILT_IN_NAMES,
    CommandError,
    classify_command,
    is_command,
    parse_command,
    tokenize,
)
from golem_forge.core.text import slash_command


def parsed(line: str) -> Any:
    found = parse_command(line)
    assert found is not None
    return found


@tool(mode="manual")
def git_push(branch: str) -> str:
    return branch


@tool(mode="manual")
def help() -> str:
    return ""


@tool
def only_models() -> str:
    return ""


def test_u12_the_parts_of_a_command() -> None:
    command = parsed("/tool git_push --branch=main --force")
    assert (command.name, command.args, command.options) == ("tool", ["git_push"], {"branch": "main", "force": True})
    assert command.raw == "/tool git_push --branch=main --force"
    assert [tuple(token) for token in command.tokens] == [("git_push", 6), ("--branch=main", 15), ("--force", 29)]


@pytest.mark.parametrize("line", ["", "hello", "/", "/  ", " /help", "a /help", "/\thelp", "/workspace/a.txt is it"])
def test_u12_what_is_no_command(line: str) -> None:
    assert not is_command(line) and parse_command(line) is None


@pytest.mark.parametrize(
    ("line", "options", "args"),
    [
        ("/x --a=b=c", {"a": "b=c"}, []),
        ("/x --a 'b c' d", {"a": "b c"}, ["d"]),
        ("/x --flag --no-other", {"flag": True, "other": False}, []),
        ("/x -k value", {"k": "value"}, []),
        ("/x -abc", {"a": True, "b": True, "c": True}, []),
        ("/x -i y", {"i": True}, ["y"]),
        ("/x --n -5 -.5", {"n": "-5"}, ["-.5"]),
        ("/x --tag a --tag b --tag c", {"tag": ["a", "b", "c"]}, []),
        ("/x -- --a -b", {}, ["--a", "-b"]),
        ("/x --a -- b", {"a": True}, ["b"]),
        ('/x --msg ""', {"msg": ""}, []),
        ("/x - y", {}, ["-", "y"]),
    ],
)
def test_options_by_their_look(line: str, options: dict[str, Any], args: list[str]) -> None:
    assert (parsed(line).options, parsed(line).args) == (options, args)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (r"a\ b c", ["a b", "c"]),
        (r"'a\b' " + r'"c\"d\\e\f"', [r"a\b", r'c"d\e\f']),
        ("a'b'\"c\"d", ["abcd"]),
        ("'' \"\"", ["", ""]),
        ("  a\tb\nc  ", ["a", "b", "c"]),
        ("'two\nlines'", ["two\nlines"]),
    ],
)
def test_words(text: str, words: list[str]) -> None:
    assert [token.text for token in tokenize(text)] == words


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ('/tool "x', "Unclosed double quote at position 6"),
        ("/tool a'x", "Unclosed single quote at position 7"),
        ("/x a\\", "Trailing backslash at end of input"),
        ('/x "a\\', "Unclosed double quote at position 3"),
        ('/x "a\\"', "Unclosed double quote at position 3"),
    ],
)
def test_u13_what_cannot_be_read(line: str, problem: str) -> None:
    with pytest.raises(CommandError) as error:
        parse_command(line)
    assert str(error.value) == problem


@given(st.lists(st.text(max_size=8), max_size=5))
def test_a_quoted_word_is_that_word_at_its_place(words: list[str]) -> None:
    line = "/x " + " ".join("'" + word.replace("'", "'\\''") + "'" for word in words)
    tokens = parsed(line).tokens
    assert [token.text for token in tokens] == words
    assert all(line[token.position] == "'" and line[token.position - 1] == " " for token in tokens)


@given(st.text(max_size=40))
def test_any_line_is_read_or_refused_with_words(line: str) -> None:
    try:
        is_read = parse_command(line) is not None
    except CommandError:
        is_read = True  # it is one, and its quotes are not right
    assert is_read == is_command(line)


@pytest.mark.parametrize(
    ("line", "kind", "name"),
    [
        ("/git_push", "tool", "git_push"),
        ("/GIT_PUSH", "tool", "git_push"),
        ("/t git_push", "tool", "git_push"),
        ("/TOOL Git_Push --x 1", "tool", "git_push"),
        ("/help", "builtin", "help"),
        ("/Status", "builtin", "status"),
        ("/tool help", "tool", "help"),
        ("/tool", "builtin", "tool"),
        ("/only_models", "unknown", "only_models"),
        ("/tool only_models", "unknown", "only_models"),
        ("/stauts", "unknown", "stauts"),
    ],
)
def test_u12_u15_classes(line: str, kind: str, name: str) -> None:
    found = classify_command(parsed(line), [git_push, help, only_models])
    assert (found.type, found.name) == (kind, name)


def test_names_are_enough_to_classify_by() -> None:
    assert classify_command(parsed("/a"), ["a", "b"]).type == "tool"


def test_a_tool_is_named_as_it_must_be_typed() -> None:
    for name in (*BUILT_IN_NAMES, "Exit", "exits", "git_push"):
        found = classify_command(parsed(slash_command(name)), [name])
        assert (found.type, found.name) == ("tool", name)
    assert slash_command("git_push") == "/git_push"


def test_every_built_in_has_its_command() -> None:
    from golem_forge.agent.slash.commands import BUILT_IN_COMMANDS as COMMANDS

    assert set(BUILT_IN_NAMES) == set(COMMANDS)


@pytest.mark.parametrize("line", ["!ls", "! ls -la", "!echo 'it", "!a\nb"])
def test_an_exclamation_mark_is_short_for_exec_command_whatever_stands_behind_it(line: str) -> None:
    parsed = parse_command(line)
    assert is_command(line) and parsed is not None
    kind = classify_command(parsed, ["exec_command"])
    assert (kind.type, kind.name) == ("tool", "exec_command")
    assert parsed.tokens[1].text == f"--cmd={line[1:].strip()}"


@pytest.mark.parametrize("line", ["!", "!  ", "![a picture](x.png)", " !ls", "wow!"])
def test_other_exclamation_marks_are_text(line: str) -> None:
    assert not is_command(line) and parse_command(line) is None
