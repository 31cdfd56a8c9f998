"""Reading a program's arguments without its manual: flags, values and operands, as widely as programs accept them.

Long flags count in every abbreviation; `--` ends flags. All functions take the words after the program's name.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Option:
    flag: str  # `-x` for each letter of a cluster, `--long` as written
    value: str | None


def is_long(word: str, name: str, minimum: int = 1) -> bool:
    """Is `word` the long flag `name`, abbreviated to no less than `minimum` letters, with or without a value?"""
    flag = word.partition("=")[0]
    return flag.startswith("--") and name.startswith(flag) and len(flag) >= 2 + minimum


def has_long(arguments: tuple[str, ...], name: str, minimum: int = 1) -> bool:
    return any(is_long(word, name, minimum) for word in before_operands_only(arguments))


def before_operands_only(arguments: tuple[str, ...]) -> tuple[str, ...]:
    return arguments[: arguments.index("--")] if "--" in arguments else arguments


def short_letters(arguments: tuple[str, ...]) -> set[str]:
    """Every letter of every cluster."""
    return {
        letter
        for word in before_operands_only(arguments)
        if word.startswith("-") and not word.startswith("--")
        for letter in word[1:]
    }


def plain_operands(arguments: tuple[str, ...]) -> tuple[str, ...]:
    """Every word that is not a flag; the value of a flag counts too, for it cannot be told apart."""
    ahead = before_operands_only(arguments)
    operands = [word for word in ahead if not word.startswith("-") or word == "-"]
    return (*operands, *arguments[len(ahead) + 1 :])


def leading_options(
    arguments: tuple[str, ...], short_valued: str, long_valued: frozenset[str]
) -> tuple[list[Option], int]:
    """The flags before the first operand, and the index of that operand."""
    options: list[Option] = []
    index = 0
    while index < len(arguments):
        word = arguments[index]
        index += 1
        if word == "--":
            break
        if not word.startswith("-"):
            return options, index - 1
        following = arguments[index] if index < len(arguments) else None
        option, used = _read_option(word, following, short_valued, long_valued, options)
        options.append(option)
        index += used
    return options, min(index, len(arguments))


def all_options(
    arguments: tuple[str, ...], short_valued: str, long_valued: frozenset[str]
) -> tuple[list[Option], list[str]]:
    """Flags anywhere among operands, and the operands."""
    options: list[Option] = []
    operands: list[str] = []
    rest = arguments
    while rest:
        more, index = leading_options(rest, short_valued, long_valued)
        options.extend(more)
        if index and rest[index - 1] == "--":
            operands.extend(rest[index:])
            break
        operands.extend(rest[index : index + 1])
        rest = rest[index + 1 :]
    return options, operands


def _read_option(
    word: str, following: str | None, short_valued: str, long_valued: frozenset[str], options: list[Option]
) -> tuple[Option, int]:
    """The last option of `word` (earlier letters of a cluster go to `options`), and how many words it took."""
    if word.startswith("--"):
        flag, equals, value = word.partition("=")
        if equals:
            return Option(flag, value), 0
        if any(name.startswith(flag) for name in long_valued):
            return Option(flag, following), 1
        return Option(flag, None), 0
    for place, letter in enumerate(word[1:], 1):
        if letter in short_valued:
            glued = word[place + 1 :]
            return (Option("-" + letter, glued), 0) if glued else (Option("-" + letter, following), 1)
        options.append(Option("-" + letter, None))
    return Option("-", None), 0
