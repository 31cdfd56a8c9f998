"""Programs that run another command: takes a command's words, gives the commands hidden in its arguments.

A hidden command is either words (`sudo rm x`) or text for a shell (`bash -c 'rm x'`). Wrappers with a regular grammar
(options, assignments, then the command) are data in `wrapper_table`; shells, builtins of shells and programs with a
grammar of their own (`env -S`, `xargs`, `find -exec`, `git rebase -x`, `ssh`) have a function each.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from itertools import pairwise

from golem_forge.core.lazy_dataclass import dataclass, replace
from golem_forge.core.regex import regex
from golem_forge.policy.shell import wrapper_table as table
from golem_forge.policy.shell.arguments import Option, all_options, is_long, leading_options, names
from golem_forge.policy.shell.strict import quote
from golem_forge.policy.shell.wrapper_table import WrapperGrammar

Words = tuple[str, ...]

SHELLS = names(
    "sh bash dash zsh ksh ksh93 ksh2020 rksh pdksh mksh lksh oksh loksh ash rbash rzsh yash posh fish csh tcsh bsd-csh"
    " nu xonsh elvish rc es oil osh ysh ion murex"
)


def shell_commands(arguments: Words) -> Iterator[HiddenCommand]:
    letters, rest = shell_parts(arguments)
    if "c" not in letters or not rest:
        return
    yield HiddenCommand(script=rest[0])
    if len(rest) > 1 and "$" in rest[0]:
        yield HiddenCommand(script=_with_positionals(rest[0], rest[1:]))


def shell_parts(arguments: Words) -> tuple[set[str], tuple[str, ...]]:
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


_ENV_ASSIGNMENT = regex(r"([^=]*)=(.*)", re.DOTALL)
_FIND_RUNS = names("-exec -execdir -ok -okdir")
_MAX_STARTS = 8
_FD_RUNS = names("-x -X --exec --exec-batch")


def _env(arguments: Words) -> Iterator[HiddenCommand]:
    split = _split_string(arguments)
    if split is not None:
        # `env` puts the words of the text in place of the option and starts over.
        text, after = split[0].replace("\\_", " "), split[1]
        yield HiddenCommand(script=" ".join(["env", text, *map(quote, after)]))
        yield HiddenCommand(words=("env", *text.split(), *after))
    options, assignments, index = options_and_assignments(
        arguments, table.ENV.short + "S", table.ENV.long, _ENV_ASSIGNMENT
    )
    rest, directory = arguments[index:], directory_of(table.ENV, options)
    if assignments and not rest:
        yield HiddenCommand(assignments=assignments)
    for tried in possible_commands(rest, options, table.ENV.long):
        yield HiddenCommand(words=tried, assignments=assignments, directory=directory)


def _split_string(arguments: Words) -> tuple[str, tuple[str, ...]] | None:
    """Returns the text of `env -S` and the words after it."""
    index = 0
    while index < len(arguments) and arguments[index].startswith("-") and arguments[index] != "--":
        word, after = arguments[index], arguments[index + 1 :]
        index += 1
        if word.startswith("--"):
            if is_long(word, "--split-string"):
                return (word.partition("=")[2], after) if "=" in word else ("".join(after[:1]), after[1:])
            index += "=" not in word and any(name.startswith(word) for name in table.ENV.long)
            continue
        for place, letter in enumerate(word[1:], 2):
            if letter == "S":
                return (word[place:], after) if word[place:] else ("".join(after[:1]), after[1:])
            if letter in table.ENV.short:
                index += not word[place:]
                break
    return None


def _su(arguments: Words) -> Iterator[HiddenCommand]:
    scripts = ("--command", "--session-command")
    valued = (table.SU.short + "cu", table.SU.long | {*scripts})
    options, _ = all_options(arguments, *valued)
    for option in options:
        if option.value and (option.flag == "-c" or any(is_long(option.flag, name) for name in scripts)):
            yield HiddenCommand(script=option.value)
    rest = arguments[leading_options(arguments, *valued)[1] :]
    if rest and any(option.flag == "-u" or is_long(option.flag, "--user") for option in options):
        yield HiddenCommand(words=rest)


def _xargs(arguments: Words) -> Iterator[HiddenCommand]:
    options, index = leading_options(arguments, table.XARGS.short, table.XARGS.long)
    placeholder = ""
    for option in options:
        if option.flag == "-I" or is_long(option.flag, "--replace", 3):
            placeholder = option.value or "{}"
        elif option.flag == "-i":
            placeholder = "{}"
    for tried in possible_commands(arguments[index:] or ("echo",), options, table.XARGS.long):
        yield HiddenCommand(words=tried, operands=True, placeholder=placeholder)


def _parallel(arguments: Words) -> Iterator[HiddenCommand]:
    options, index = leading_options(arguments, table.PARALLEL.short, table.PARALLEL.long)
    rest, directory = arguments[index:], directory_of(table.PARALLEL, options)
    cut = next((i for i, word in enumerate(rest) if word.startswith(":::")), len(rest))
    template, values = rest[:cut], tuple(word for word in rest[cut:] if not word.startswith(":::"))
    if not template:
        for value in values:
            yield HiddenCommand(script=value, directory=directory)
        yield HiddenCommand(words=(), operands=True)
    for tried in possible_commands(template, options, table.PARALLEL.long):
        yield HiddenCommand(script=" ".join([*tried, *map(quote, values)]), directory=directory)
        split = tuple(word for part in tried for word in part.split())
        yield HiddenCommand(words=split + values, operands=True, directory=directory)


def _find(arguments: Words, flags: frozenset[str] = _FIND_RUNS) -> Iterator[HiddenCommand]:
    index = 0
    while index < len(arguments):
        if arguments[index] in flags:
            start = index + 1
            while index < len(arguments) and arguments[index] not in (";", "+"):
                index += 1
            if arguments[start:index]:
                yield HiddenCommand(words=arguments[start:index])
        index += 1


def _applet(arguments: Words) -> Iterator[HiddenCommand]:
    if arguments:
        yield HiddenCommand(words=arguments)


def _git(arguments: Words) -> Iterator[HiddenCommand]:
    """`-c alias.x='!command'` defines a command and runs it in one go; some subcommands run one for every step."""
    for word in arguments:
        if "=!" in word:
            yield HiddenCommand(script=word.partition("=!")[2])
    for index, word in enumerate(arguments):
        before, rest = arguments[:index], arguments[index + 1 :]
        if table.GIT_RUNS.get(word) in before:
            after = rest[leading_options(rest, "", frozenset())[1] :]
            if after:
                yield HiddenCommand(script=after[0]) if len(after) == 1 else HiddenCommand(words=after)
        elif word.startswith("-x") and "rebase" in before:
            yield HiddenCommand(script=word[2:] or "".join(rest[:1]))
        elif is_long(word, "--exec", 2) and "rebase" in before:
            yield HiddenCommand(script=word.partition("=")[2] or "".join(rest[:1]))


def _setarch(arguments: Words) -> Iterator[HiddenCommand]:
    """`setarch [arch] [options] command`: the first word may be either."""
    for hidden in regular_commands(WrapperGrammar(), arguments):
        yield hidden
        yield from regular_commands(WrapperGrammar(), hidden.words[1:])


def _start_stop_daemon(arguments: Words) -> Iterator[HiddenCommand]:
    """The program is an option's value; its arguments follow `--`."""
    after = arguments[arguments.index("--") + 1 :] if "--" in arguments else ()
    for word, following in pairwise((*arguments, "")):
        if word[:2] in ("-x", "-a") or is_long(word, "--exec") or is_long(word, "--startas", 6):
            glued = word.partition("=")[2] if word.startswith("--") else word[2:]
            yield HiddenCommand(words=(glued or following, *after))


def ssh_command(arguments: Words) -> tuple[str, ...]:
    """Returns the command after the host; options may stand on both sides of the host."""
    index = leading_options(arguments, table.SSH_VALUED, frozenset())[1] + 1
    return arguments[index + leading_options(arguments[index:], table.SSH_VALUED, frozenset())[1] :]


def _chroot(arguments: Words) -> Iterator[HiddenCommand]:
    for hidden in regular_commands(table.CHROOT, arguments):
        yield replace(hidden, directory="/")


_EXECS = names("exec run x shell develop netns with")


def _subcommand_runs(arguments: Words) -> Iterator[HiddenCommand]:
    """`direnv exec . cmd`, `mise exec -- cmd`, `nix develop -c cmd`, `ip netns exec n cmd`: what is run comes somewhere
    after a subcommand, so every word there may be it."""
    start = next((i for i, word in enumerate(arguments) if word in _EXECS), len(arguments)) + 1
    rest = arguments[start:]
    for index, word in enumerate(rest[:_MAX_STARTS]):
        if not word.startswith("-"):
            yield HiddenCommand(words=rest[index:])


def _command(arguments: Words) -> Iterator[HiddenCommand]:
    options, index = leading_options(arguments, "", frozenset())
    if not any(option.flag in ("-v", "-V") for option in options) and arguments[index:]:
        yield HiddenCommand(words=arguments[index:])


_SPECIAL: dict[str, Callable[[Words], Iterator[HiddenCommand]]] = {
    "busybox": _applet,
    "toybox": _applet,
    "env": _env,
    "su": _su,
    "runuser": _su,
    "xargs": _xargs,
    "parallel": _parallel,
    "find": _find,
    **dict.fromkeys(("fd", "fdfind"), partial(_find, flags=_FD_RUNS)),
    "git": _git,
    "start-stop-daemon": _start_stop_daemon,
    **dict.fromkeys(table.SETARCH, _setarch),
    "chroot": _chroot,
    **dict.fromkeys(
        ("direnv", "mise", "rtx", "asdf", "pyenv", "rbenv", "nodenv", "opam", "nix", "ip"), _subcommand_runs
    ),
    "command": _command,
}

_NIX_SCRIPT = names("--run --command -c")
_LIVE_INDEX = regex(r"\[.*(?:\$\((?!\))|`)", re.DOTALL)


def _operand_scripts(arguments: Words) -> list[str]:
    """`hyperfine 'a' 'b'`, `concurrently 'a' 'b'`: every operand is text for a shell, and some options' values too."""
    texts = (word.partition("=")[2] if word.startswith("-") else word for word in arguments)
    return [text for text in texts if text]


def _filters(arguments: Words) -> list[str]:
    """Returns the commands of `split --filter=command`."""
    following = pairwise((*arguments, ""))
    return [word.partition("=")[2] or after for word, after in following if is_long(word, "--filter", 2)]


def _evaluated(arguments: Iterable[str]) -> list[str]:
    """Builtins that expand the index of `a[$(…)]` although it was quoted."""
    return [word for word in arguments if _LIVE_INDEX.search(word)]


def _printf_variables(arguments: Words) -> list[str]:
    options, _ = leading_options(arguments, "v", frozenset())
    return _evaluated(option.value for option in options if option.flag == "-v" and option.value)


def _callbacks(arguments: Words) -> list[str]:
    """Returns the commands of `mapfile -C command` and `compgen -C command`."""
    options, _ = all_options(arguments, "CcdnOsuAFGPSWXo", frozenset())
    return [option.value for option in options if option.flag in ("-C", "-W") and option.value]


_SCRIPTS: dict[str, Callable[[Words], Iterable[str]]] = {
    "ssh": lambda words: filter(None, [" ".join(ssh_command(words))]),
    **dict.fromkeys(("hyperfine", "concurrently"), _operand_scripts),
    "split": _filters,
    "nix-shell": lambda words: [text for word, text in pairwise(words) if text and word in _NIX_SCRIPT],
    "trap": lambda words: words[leading_options(words, "", frozenset())[1] :][:1],
    "alias": lambda words: [word.partition("=")[2] for word in words if "=" in word],
    "let": lambda words: [word for word in words if "$(" in word or "`" in word],
    "printf": _printf_variables,
    **dict.fromkeys(("test", "[", "[[", "read", "unset", "declare", "typeset", "local", "export"), _evaluated),
    **dict.fromkeys(("mapfile", "readarray", "compgen", "complete"), _callbacks),
}
"""Programs whose hidden commands are all texts for a shell: how to find these."""

_INPUT = regex(r"-|/dev/stdin|/dev/fd/\d+|/proc/(self|\d+)/fd/\d+")

WRAPPERS = (
    SHELLS
    | frozenset(table.GRAMMARS)
    | table.SETARCH
    | names(
        "busybox toybox env su runuser command trap xargs parallel find alias ssh chroot start-stop-daemon . source"
        " hyperfine concurrently nix-shell"
    )
)


def is_wrapper(program: str) -> bool:
    return program in WRAPPERS or table.LOADER_NAME.fullmatch(program) is not None


def hidden_commands(program: str, arguments: Words) -> Iterator[HiddenCommand]:
    """Yields the commands that `program` would run because of its arguments."""
    if program in _SPECIAL:
        yield from _SPECIAL[program](arguments)
    elif program in _SCRIPTS:
        yield from (HiddenCommand(script=text) for text in _SCRIPTS[program](arguments))
    elif program in SHELLS:
        yield from shell_commands(arguments)
    elif program in table.GRAMMARS:
        yield from regular_commands(table.GRAMMARS[program], arguments)
    elif table.LOADER_NAME.fullmatch(program):
        yield from regular_commands(table.LOADER, arguments)


def reads_script_from_input(program: str, arguments: Words) -> bool:
    """Does this shell (or `source`) take its commands from standard input?"""
    if program in (".", "source"):
        return bool(arguments) and _INPUT.fullmatch(arguments[0]) is not None
    if program == "ssh":
        return not ssh_command(arguments)
    if program not in SHELLS:
        return False
    letters, script = shell_parts(arguments)
    if "c" in letters:
        return False
    return "s" in letters or not script or _INPUT.fullmatch(script[0]) is not None


_ASSIGNMENT = regex(r"([^=/]*)=(.*)", re.DOTALL)
_MAX_TRIES = 16  # words after an unknown option that may be the command


def regular_commands(grammar: WrapperGrammar, arguments: Words) -> Iterator[HiddenCommand]:
    valued = grammar.short + grammar.script_short
    long_valued = grammar.long | names(grammar.script_long)
    options, assignments, index = options_and_assignments(arguments, valued, long_valued)
    if grammar.joined:  # `eval 'x=1; rm …'`: an assignment is part of the text
        options, index = leading_options(arguments, valued, long_valued)
    rest = arguments[index + grammar.before :]
    directory = directory_of(grammar, options)
    if grammar.script_short:
        more, _ = leading_options(rest, valued, long_valued)
        for option in (*options, *more):
            is_script = option.flag == "-" + grammar.script_short or is_long(option.flag, grammar.script_long)
            if is_script and option.value:
                yield HiddenCommand(script=option.value)
    for tried in possible_commands(rest, options, long_valued):
        if grammar.joined:
            yield HiddenCommand(script=" ".join(tried))
        else:
            yield HiddenCommand(words=tried, assignments=assignments, directory=directory)


def possible_commands(
    rest: tuple[str, ...], options: list[Option], long_valued: frozenset[str]
) -> Iterator[tuple[str, ...]]:
    """Yields what may be the command in `rest`. After an unknown option its value may come first, so later words count
    too.
    """
    if rest:
        yield rest
    known = long_valued | table.PLAIN_LONG
    if any(
        option.flag.startswith("--") and option.value is None and not any(n.startswith(option.flag) for n in known)
        for option in options
    ):
        for index in range(1, min(len(rest), _MAX_TRIES)):
            if not rest[index].startswith("-"):
                yield rest[index:]


def directory_of(grammar: WrapperGrammar, options: list[Option]) -> str:
    chosen = ""
    for option in options:
        if option.value and any(is_long(option.flag, name) or option.flag == name for name in grammar.directory):
            chosen = option.value
    return chosen


def options_and_assignments(
    arguments: Words,
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


@dataclass(frozen=True, slots=True)
class HiddenCommand:
    """Either `words` or `script` is given; `operands` says that piped words are added to the words."""

    words: tuple[str, ...] = ()
    script: str | None = None
    assignments: tuple[tuple[str, str], ...] = ()
    operands: bool = False
    placeholder: str = ""
    directory: str = ""  # where it is run
