"""Wrappers with a regular grammar: options, assignments, then the command. Takes the grammar as data."""

from __future__ import annotations

import re
from collections.abc import Iterator

from golem_forge.policy.shell.options import Option, is_long, leading_options
from golem_forge.policy.shell.wrappers.grammars import PLAIN_LONG, Grammar
from golem_forge.policy.shell.wrappers.hidden import Hidden

_ASSIGNMENT = re.compile(r"([^=/]*)=(.*)", re.DOTALL)
_TRIES = 16  # words after an unknown option that may be the command


def regular(grammar: Grammar, arguments: tuple[str, ...]) -> Iterator[Hidden]:
    valued = grammar.short + grammar.script_short
    long_valued = grammar.long | ({grammar.script_long} if grammar.script_long else set())
    options, assignments, index = options_and_assignments(arguments, valued, frozenset(long_valued))
    if grammar.joined:  # `eval 'x=1; rm …'`: an assignment is part of the text
        options, index = leading_options(arguments, valued, frozenset(long_valued))
    rest = arguments[index + grammar.before :]
    directory = directory_of(grammar, options)
    if grammar.script_short:
        more, _ = leading_options(rest, valued, frozenset(long_valued))
        for option in (*options, *more):
            is_script = option.flag == "-" + grammar.script_short or is_long(option.flag, grammar.script_long)
            if is_script and option.value:
                yield Hidden(script=option.value)
    for tried in starts(rest, options, frozenset(long_valued)):
        if grammar.joined:
            yield Hidden(script=" ".join(tried))
        else:
            yield Hidden(words=tried, assignments=assignments, directory=directory)


def starts(rest: tuple[str, ...], options: list[Option], long_valued: frozenset[str]) -> Iterator[tuple[str, ...]]:
    """What may be the command in `rest`: after an unknown option its value comes first, so any later word too."""
    if rest:
        yield rest
    known = long_valued | PLAIN_LONG
    if any(
        option.flag.startswith("--") and option.value is None and not any(n.startswith(option.flag) for n in known)
        for option in options
    ):
        for index in range(1, min(len(rest), _TRIES)):
            if not rest[index].startswith("-"):
                yield rest[index:]


def directory_of(grammar: Grammar, options: list[Option]) -> str:
    chosen = ""
    for option in options:
        if option.value and any(is_long(option.flag, name) or option.flag == name for name in grammar.directory):
            chosen = option.value
    return chosen


def options_and_assignments(
    arguments: tuple[str, ...],
    short_valued: str,
    long_valued: frozenset[str],
    assignment: re.Pattern[str] = _ASSIGNMENT,
) -> tuple[list[Option], tuple[tuple[str, str], ...], int]:
    """Options and `NAME=value` words in any order, and the index of what follows them."""
    options: list[Option] = []
    assignments: list[tuple[str, str]] = []
    index = 0
    while index < len(arguments):
        more, step = leading_options(arguments[index:], short_valued, long_valued)
        options.extend(more)
        index += step
        match = assignment.fullmatch(arguments[index]) if index < len(arguments) else None
        if match is None:
            break
        assignments.append((match[1], match[2]))
        index += 1
    return options, tuple(assignments), index
