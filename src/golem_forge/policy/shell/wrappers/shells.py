"""Shells: the script of `sh -c`, with its positional parameters filled in, and what else may feed one."""

from __future__ import annotations

import re
from collections.abc import Iterator

from golem_forge.policy.shell.names import names
from golem_forge.policy.shell.wrappers.hidden import Hidden

SHELLS = names(
    "sh bash dash zsh ksh ksh93 ksh2020 rksh pdksh mksh lksh oksh loksh ash rbash rzsh yash posh fish csh tcsh bsd-csh"
    " nu xonsh elvish rc es oil osh ysh ion murex"
)


def shell(arguments: tuple[str, ...]) -> Iterator[Hidden]:
    letters, rest = shell_parts(arguments)
    if "c" not in letters or not rest:
        return
    yield Hidden(script=rest[0])
    if len(rest) > 1 and "$" in rest[0]:
        yield Hidden(script=_with_positionals(rest[0], rest[1:]))


def shell_parts(arguments: tuple[str, ...]) -> tuple[set[str], tuple[str, ...]]:
    """The letters of a shell's options, and what follows its options."""
    letters: set[str] = set()
    index = 0
    while index < len(arguments):
        word = arguments[index]
        if word in ("--", "-"):
            return letters, arguments[index + 1 :]
        if word.startswith("--"):
            index += 2 if word in ("--rcfile", "--init-file") else 1
            letters |= {"c"} if word.startswith("--c") else set()  # fish: --command
        elif word[:1] in ("-", "+") and len(word) > 1:
            letters |= set(word[1:])
            index += 2 if {"o", "O"} & set(word[1:]) else 1
        else:
            break
    return letters, arguments[index:]


def _with_positionals(script: str, values: tuple[str, ...]) -> str:
    def value(match: re.Match[str]) -> str:
        name = match[1] or match[2]
        if name in "@*":
            return " ".join(values[1:])
        return values[int(name)] if int(name) < len(values) else ""

    return re.sub(r'"?\$(?:([0-9@*])|\{([0-9@*])\})"?', value, script)
