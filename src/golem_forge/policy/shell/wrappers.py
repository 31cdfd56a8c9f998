"""Programs that run another command: takes a command's words, gives the commands hidden in its arguments.

Each wrapper has its own grammar of options, given here as data where it is regular. A hidden command is either
words (`sudo rm x`) or text for a shell (`bash -c 'rm x'`).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from .names import names
from .options import Option, all_options, is_long, leading_options
from .strict import quote
from .wrapper_grammars import (
    CHROOT,
    ENV,
    GRAMMARS,
    LOADER,
    LOADER_NAME,
    PARALLEL,
    PLAIN_LONG,
    SETARCH,
    SSH_VALUED,
    SU,
    XARGS,
    Grammar,
)

SHELLS = names("sh bash dash zsh ksh ash mksh rbash fish")

_ASSIGNMENT = re.compile(r"([^=/]*)=(.*)", re.DOTALL)
_ENV_ASSIGNMENT = re.compile(r"([^=]*)=(.*)", re.DOTALL)
_INPUT = re.compile(r"-|/dev/stdin|/dev/fd/\d+|/proc/(self|\d+)/fd/\d+")
_LIVE_INDEX = re.compile(r"\[.*(?:\$\((?!\))|`)", re.DOTALL)
_TRIES = 16  # words after an unknown option that may be the command


@dataclass(frozen=True, slots=True)
class Hidden:
    """Either `words` or `script` is given; `operands` says that piped words are added to the words."""

    words: tuple[str, ...] = ()
    script: str | None = None
    assignments: tuple[tuple[str, str], ...] = ()
    operands: bool = False
    placeholder: str = ""
    directory: str = ""  # where it is run


_FIND_RUNS = names("-exec -execdir -ok -okdir")
_FD_RUNS = names("-x -X --exec --exec-batch")

WRAPPERS = (
    SHELLS
    | frozenset(GRAMMARS)
    | SETARCH
    | names(
        "busybox toybox env su runuser command trap xargs parallel find alias ssh chroot start-stop-daemon . source"
    )
)


def is_wrapper(program: str) -> bool:
    return program in WRAPPERS or LOADER_NAME.fullmatch(program) is not None


def hidden_commands(program: str, arguments: tuple[str, ...]) -> Iterator[Hidden]:
    """What `program` would run because of its arguments."""
    special = _SPECIAL.get(program)
    if special is not None:
        yield from special(arguments)
    elif program in SHELLS:
        yield from _shell(arguments)
    elif program in GRAMMARS:
        yield from _regular(GRAMMARS[program], arguments)
    elif LOADER_NAME.fullmatch(program):
        yield from _regular(LOADER, arguments)


def reads_script_from_input(program: str, arguments: tuple[str, ...]) -> bool:
    """Does this shell (or `source`) take its commands from standard input?"""
    if program in (".", "source"):
        return bool(arguments) and _INPUT.fullmatch(arguments[0]) is not None
    if program == "ssh":
        return not _ssh_command(arguments)
    if program not in SHELLS:
        return False
    letters, script = _shell_parts(arguments)
    if "c" in letters:
        return False
    return "s" in letters or not script or _INPUT.fullmatch(script[0]) is not None


def _regular(grammar: Grammar, arguments: tuple[str, ...]) -> Iterator[Hidden]:
    valued = grammar.short + grammar.script_short
    long_valued = grammar.long | ({grammar.script_long} if grammar.script_long else set())
    options, assignments, index = _options_and_assignments(arguments, valued, frozenset(long_valued))
    rest = arguments[index + grammar.before :]
    directory = _directory(grammar, options)
    if grammar.script_short:
        more, _ = leading_options(rest, valued, frozenset(long_valued))
        for option in (*options, *more):
            is_script = option.flag == "-" + grammar.script_short or is_long(option.flag, grammar.script_long)
            if is_script and option.value:
                yield Hidden(script=option.value)
    for tried in _starts(rest, options, frozenset(long_valued)):
        if grammar.joined:
            yield Hidden(script=" ".join(tried))
        else:
            yield Hidden(words=tried, assignments=assignments, directory=directory)


def _starts(rest: tuple[str, ...], options: list[Option], long_valued: frozenset[str]) -> Iterator[tuple[str, ...]]:
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


def _directory(grammar: Grammar, options: list[Option]) -> str:
    chosen = ""
    for option in options:
        if option.value and any(is_long(option.flag, name) or option.flag == name for name in grammar.directory):
            chosen = option.value
    return chosen


def _ssh(arguments: tuple[str, ...]) -> Iterator[Hidden]:
    command = _ssh_command(arguments)
    if command:
        yield Hidden(script=" ".join(command))


def _ssh_command(arguments: tuple[str, ...]) -> tuple[str, ...]:
    """What follows the host; options may stand on both sides of it."""
    index = leading_options(arguments, SSH_VALUED, frozenset())[1] + 1
    return arguments[index + leading_options(arguments[index:], SSH_VALUED, frozenset())[1] :]


def _chroot(arguments: tuple[str, ...]) -> Iterator[Hidden]:
    for hidden in _regular(CHROOT, arguments):
        yield replace(hidden, directory="/")


def _options_and_assignments(
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


def _env(arguments: tuple[str, ...]) -> Iterator[Hidden]:
    split = _split_string(arguments)
    if split is not None:
        # `env` puts the words of the text in place of the option and starts over.
        text, after = split[0].replace("\\_", " "), split[1]
        yield Hidden(script=" ".join(["env", text, *map(quote, after)]))
        yield Hidden(words=("env", *text.split(), *after))
    options, assignments, index = _options_and_assignments(arguments, ENV.short + "S", ENV.long, _ENV_ASSIGNMENT)
    rest, directory = arguments[index:], _directory(ENV, options)
    if assignments and not rest:
        yield Hidden(assignments=assignments)
    for tried in _starts(rest, options, ENV.long):
        yield Hidden(words=tried, assignments=assignments, directory=directory)


def _split_string(arguments: tuple[str, ...]) -> tuple[str, tuple[str, ...]] | None:
    """The text of `env -S` and the words after it."""
    index = 0
    while index < len(arguments) and arguments[index].startswith("-") and arguments[index] != "--":
        word, after = arguments[index], arguments[index + 1 :]
        index += 1
        if word.startswith("--"):
            if is_long(word, "--split-string"):
                return (word.partition("=")[2], after) if "=" in word else ("".join(after[:1]), after[1:])
            index += "=" not in word and any(name.startswith(word) for name in ENV.long)
            continue
        for place, letter in enumerate(word[1:], 2):
            if letter == "S":
                return (word[place:], after) if word[place:] else ("".join(after[:1]), after[1:])
            if letter in ENV.short:
                index += not word[place:]
                break
    return None


def _su(arguments: tuple[str, ...]) -> Iterator[Hidden]:
    long_valued = SU.long | names("--command --session-command")
    options, _ = all_options(arguments, SU.short + "cu", long_valued)
    asked = False
    for option in options:
        if option.value and (
            option.flag == "-c" or is_long(option.flag, "--command") or is_long(option.flag, "--session-command")
        ):
            yield Hidden(script=option.value)
        asked = asked or option.flag == "-u" or is_long(option.flag, "--user")
    rest = arguments[leading_options(arguments, SU.short + "cu", long_valued)[1] :]
    if asked and rest:
        yield Hidden(words=rest)


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


def _xargs(arguments: tuple[str, ...]) -> Iterator[Hidden]:
    options, index = leading_options(arguments, XARGS.short, XARGS.long)
    placeholder = ""
    for option in options:
        if option.flag == "-I" or is_long(option.flag, "--replace", 3):
            placeholder = option.value or "{}"
        elif option.flag == "-i":
            placeholder = "{}"
    for tried in _starts(arguments[index:] or ("echo",), options, XARGS.long):
        yield Hidden(words=tried, operands=True, placeholder=placeholder)


def _parallel(arguments: tuple[str, ...]) -> Iterator[Hidden]:
    options, index = leading_options(arguments, PARALLEL.short, PARALLEL.long)
    rest, directory = arguments[index:], _directory(PARALLEL, options)
    cut = next((i for i, word in enumerate(rest) if word.startswith(":::")), len(rest))
    template, values = rest[:cut], tuple(word for word in rest[cut:] if not word.startswith(":::"))
    if not template:
        for value in values:
            yield Hidden(script=value, directory=directory)
        yield Hidden(words=(), operands=True)
    for tried in _starts(template, options, PARALLEL.long):
        yield Hidden(script=" ".join([*tried, *map(quote, values)]), directory=directory)
        split = tuple(word for part in tried for word in part.split())
        yield Hidden(words=split + values, operands=True, directory=directory)


def _find(arguments: tuple[str, ...]) -> Iterator[Hidden]:
    yield from _runs(arguments, _FIND_RUNS)


def _fd(arguments: tuple[str, ...]) -> Iterator[Hidden]:
    yield from _runs(arguments, _FD_RUNS)


def _runs(arguments: tuple[str, ...], flags: frozenset[str]) -> Iterator[Hidden]:
    index = 0
    while index < len(arguments):
        if arguments[index] in flags:
            start = index + 1
            while index < len(arguments) and arguments[index] not in (";", "+"):
                index += 1
            if arguments[start:index]:
                yield Hidden(words=arguments[start:index])
        index += 1


def _applet(arguments: tuple[str, ...]) -> Iterator[Hidden]:
    if arguments:
        yield Hidden(words=arguments)


def _git(arguments: tuple[str, ...]) -> Iterator[Hidden]:
    """`-c alias.x='!command'` defines a command and runs it in one go; some subcommands run one for every step."""
    for word in arguments:
        if "=!" in word:
            yield Hidden(script=word.partition("=!")[2])
    for index, word in enumerate(arguments):
        rest = arguments[index + 1 :]
        if (word == "foreach" and "submodule" in arguments[:index]) or (
            word == "run" and "bisect" in arguments[:index]
        ):
            after = rest[leading_options(rest, "", frozenset())[1] :]
            if after:
                yield Hidden(script=after[0]) if len(after) == 1 else Hidden(words=after)
        elif word.startswith("-x") and "rebase" in arguments[:index]:
            yield Hidden(script=word[2:] or "".join(rest[:1]))
        elif is_long(word, "--exec", 2) and "rebase" in arguments[:index]:
            yield Hidden(script=word.partition("=")[2] or "".join(rest[:1]))


def _setarch(arguments: tuple[str, ...]) -> Iterator[Hidden]:
    """`setarch [arch] [options] command`: the first word may be either."""
    for hidden in _regular(Grammar(), arguments):
        yield hidden
        rest = hidden.words[1:]
        yield from _regular(Grammar(), rest)


def _start_stop_daemon(arguments: tuple[str, ...]) -> Iterator[Hidden]:
    """The program is an option's value; its arguments follow `--`."""
    after = arguments[arguments.index("--") + 1 :] if "--" in arguments else ()
    for word, following in zip(arguments, (*arguments[1:], ""), strict=True):
        if word[:2] in ("-x", "-a") or is_long(word, "--exec") or is_long(word, "--startas", 6):
            glued = word.partition("=")[2] if word.startswith("--") else word[2:]
            yield Hidden(words=(glued or following, *after))


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


def _shell(arguments: tuple[str, ...]) -> Iterator[Hidden]:
    letters, rest = _shell_parts(arguments)
    if "c" not in letters or not rest:
        return
    yield Hidden(script=rest[0])
    if len(rest) > 1 and "$" in rest[0]:
        yield Hidden(script=_with_positionals(rest[0], rest[1:]))


def _with_positionals(script: str, values: tuple[str, ...]) -> str:
    def value(match: re.Match[str]) -> str:
        name = match[1] or match[2]
        if name in "@*":
            return " ".join(values[1:])
        return values[int(name)] if int(name) < len(values) else ""

    return re.sub(r'"?\$(?:([0-9@*])|\{([0-9@*])\})"?', value, script)


def _shell_parts(arguments: tuple[str, ...]) -> tuple[set[str], tuple[str, ...]]:
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


_SPECIAL: dict[str, Callable[[tuple[str, ...]], Iterator[Hidden]]] = {
    "busybox": _applet,
    "toybox": _applet,
    "env": _env,
    "su": _su,
    "runuser": _su,
    "command": _command,
    "trap": _trap,
    "alias": _alias,
    "xargs": _xargs,
    "parallel": _parallel,
    "find": _find,
    "fd": _fd,
    "fdfind": _fd,
    "git": _git,
    "start-stop-daemon": _start_stop_daemon,
    **dict.fromkeys(SETARCH, _setarch),
    "let": _let,
    "printf": _printf,
    **dict.fromkeys(("test", "[", "[[", "read", "unset", "declare", "typeset", "local", "export"), _evaluates),
    **dict.fromkeys(("mapfile", "readarray", "compgen", "complete"), _calls_back),
    "ssh": _ssh,
    "chroot": _chroot,
}
