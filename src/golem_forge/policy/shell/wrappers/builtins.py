"""Builtins of shells that run what stands in their arguments, quoted or not."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

from golem_forge.policy.shell.options import all_options, leading_options
from golem_forge.policy.shell.wrappers.hidden import Hidden

_LIVE_INDEX = re.compile(r"\[.*(?:\$\((?!\))|`)", re.DOTALL)


def _command(arguments: tuple[str, ...]) -> Iterator[Hidden]:
    options, index = leading_options(arguments, "", frozenset())
    if not any(option.flag in ("-v", "-V") for option in options) and arguments[index:]:
        yield Hidden(words=arguments[index:])


def _trap(arguments: tuple[str, ...]) -> Iterator[Hidden]:
    rest = arguments[leading_options(arguments, "", frozenset())[1] :]
    if rest:
        yield Hidden(script=rest[0])


def _alias(arguments: tuple[str, ...]) -> Iterator[Hidden]:
    for word in arguments:
        if "=" in word:
            yield Hidden(script=word.partition("=")[2])


def _evaluates(arguments: tuple[str, ...]) -> Iterator[Hidden]:
    """Builtins that expand the index of `a[$(…)]` although it was quoted."""
    for word in arguments:
        if _LIVE_INDEX.search(word):
            yield Hidden(script=word)


def _let(arguments: tuple[str, ...]) -> Iterator[Hidden]:
    for word in arguments:
        if "$(" in word or "`" in word:
            yield Hidden(script=word)


def _printf(arguments: tuple[str, ...]) -> Iterator[Hidden]:
    options, _ = leading_options(arguments, "v", frozenset())
    yield from _evaluates(tuple(option.value for option in options if option.flag == "-v" and option.value))


def _calls_back(arguments: tuple[str, ...]) -> Iterator[Hidden]:
    """`mapfile -C command`, `compgen -C command`."""
    options, _ = all_options(arguments, "CcdnOsuAFGPSWXo", frozenset())
    for option in options:
        if option.flag in ("-C", "-W") and option.value:
            yield Hidden(script=option.value)


BUILTINS: dict[str, Callable[[tuple[str, ...]], Iterator[Hidden]]] = {
    "command": _command,
    "trap": _trap,
    "alias": _alias,
    "let": _let,
    "printf": _printf,
    **dict.fromkeys(("test", "[", "[[", "read", "unset", "declare", "typeset", "local", "export"), _evaluates),
    **dict.fromkeys(("mapfile", "readarray", "compgen", "complete"), _calls_back),
}
