"""Programs that run a command in a way of their own: `env -S`, `xargs`, `find -exec`, `git rebase -x`, `ssh`."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import pairwise

from golem_forge.policy.shell.names import names
from golem_forge.policy.shell.options import all_options, is_long, leading_options
from golem_forge.policy.shell.strict import quote
from golem_forge.policy.shell.wrappers.grammars import CHROOT, ENV, PARALLEL, SETARCH, SSH_VALUED, SU, XARGS, Grammar
from golem_forge.policy.shell.wrappers.hidden import Hidden
from golem_forge.policy.shell.wrappers.regular import directory_of, options_and_assignments, regular, starts

_ENV_ASSIGNMENT = re.compile(r"([^=]*)=(.*)", re.DOTALL)
_FIND_RUNS = names("-exec -execdir -ok -okdir")
_MAX_STARTS = 8
_FD_RUNS = names("-x -X --exec --exec-batch")


def _env(arguments: tuple[str, ...]) -> Iterator[Hidden]:
    split = _split_string(arguments)
    if split is not None:
        # `env` puts the words of the text in place of the option and starts over.
        text, after = split[0].replace("\\_", " "), split[1]
        yield Hidden(script=" ".join(["env", text, *map(quote, after)]))
        yield Hidden(words=("env", *text.split(), *after))
    options, assignments, index = options_and_assignments(arguments, ENV.short + "S", ENV.long, _ENV_ASSIGNMENT)
    rest, directory = arguments[index:], directory_of(ENV, options)
    if assignments and not rest:
        yield Hidden(assignments=assignments)
    for tried in starts(rest, options, ENV.long):
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


def _xargs(arguments: tuple[str, ...]) -> Iterator[Hidden]:
    options, index = leading_options(arguments, XARGS.short, XARGS.long)
    placeholder = ""
    for option in options:
        if option.flag == "-I" or is_long(option.flag, "--replace", 3):
            placeholder = option.value or "{}"
        elif option.flag == "-i":
            placeholder = "{}"
    for tried in starts(arguments[index:] or ("echo",), options, XARGS.long):
        yield Hidden(words=tried, operands=True, placeholder=placeholder)


def _parallel(arguments: tuple[str, ...]) -> Iterator[Hidden]:
    options, index = leading_options(arguments, PARALLEL.short, PARALLEL.long)
    rest, directory = arguments[index:], directory_of(PARALLEL, options)
    cut = next((i for i, word in enumerate(rest) if word.startswith(":::")), len(rest))
    template, values = rest[:cut], tuple(word for word in rest[cut:] if not word.startswith(":::"))
    if not template:
        for value in values:
            yield Hidden(script=value, directory=directory)
        yield Hidden(words=(), operands=True)
    for tried in starts(template, options, PARALLEL.long):
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
    for hidden in regular(Grammar(), arguments):
        yield hidden
        rest = hidden.words[1:]
        yield from regular(Grammar(), rest)


def _start_stop_daemon(arguments: tuple[str, ...]) -> Iterator[Hidden]:
    """The program is an option's value; its arguments follow `--`."""
    after = arguments[arguments.index("--") + 1 :] if "--" in arguments else ()
    for word, following in pairwise((*arguments, "")):
        if word[:2] in ("-x", "-a") or is_long(word, "--exec") or is_long(word, "--startas", 6):
            glued = word.partition("=")[2] if word.startswith("--") else word[2:]
            yield Hidden(words=(glued or following, *after))


def _ssh(arguments: tuple[str, ...]) -> Iterator[Hidden]:
    command = ssh_command(arguments)
    if command:
        yield Hidden(script=" ".join(command))


def ssh_command(arguments: tuple[str, ...]) -> tuple[str, ...]:
    """What follows the host; options may stand on both sides of it."""
    index = leading_options(arguments, SSH_VALUED, frozenset())[1] + 1
    return arguments[index + leading_options(arguments[index:], SSH_VALUED, frozenset())[1] :]


def _chroot(arguments: tuple[str, ...]) -> Iterator[Hidden]:
    for hidden in regular(CHROOT, arguments):
        yield replace(hidden, directory="/")


def _scripts(arguments: tuple[str, ...]) -> Iterator[Hidden]:
    """`hyperfine 'a' 'b'`, `concurrently 'a' 'b'`: every operand is text for a shell, and some options' values too."""
    for word in arguments:
        text = word.partition("=")[2] if word.startswith("-") else word
        if text:
            yield Hidden(script=text)


def _filter(arguments: tuple[str, ...]) -> Iterator[Hidden]:
    """`split --filter=command`"""
    for word, following in pairwise((*arguments, "")):
        if is_long(word, "--filter", 2):
            yield Hidden(script=word.partition("=")[2] or following)


_EXECS = names("exec run x shell develop netns with")
_GIVES_SCRIPT = names("--run --command -c")


def _subcommand_runs(arguments: tuple[str, ...]) -> Iterator[Hidden]:
    """`direnv exec . cmd`, `mise exec -- cmd`, `nix develop -c cmd`, `ip netns exec n cmd`: what is run comes somewhere
    after a subcommand, so every word there may be it."""
    start = next((i for i, word in enumerate(arguments) if word in _EXECS), len(arguments)) + 1
    rest = arguments[start:]
    for index, word in enumerate(rest[:_MAX_STARTS]):
        if not word.startswith("-"):
            yield Hidden(words=rest[index:])


def _nix_shell(arguments: tuple[str, ...]) -> Iterator[Hidden]:
    for word, following in pairwise((*arguments, "")):
        if word in _GIVES_SCRIPT and following:
            yield Hidden(script=following)


PROGRAMS: dict[str, Callable[[tuple[str, ...]], Iterator[Hidden]]] = {
    "busybox": _applet,
    "toybox": _applet,
    "env": _env,
    "su": _su,
    "runuser": _su,
    "xargs": _xargs,
    "parallel": _parallel,
    "find": _find,
    "fd": _fd,
    "fdfind": _fd,
    "git": _git,
    "start-stop-daemon": _start_stop_daemon,
    **dict.fromkeys(SETARCH, _setarch),
    "ssh": _ssh,
    "chroot": _chroot,
    **dict.fromkeys(("hyperfine", "concurrently"), _scripts),
    "split": _filter,
    **dict.fromkeys(
        ("direnv", "mise", "rtx", "asdf", "pyenv", "rbenv", "nodenv", "opam", "nix", "ip"), _subcommand_runs
    ),
    "nix-shell": _nix_shell,
}
