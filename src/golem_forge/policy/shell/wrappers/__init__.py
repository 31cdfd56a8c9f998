"""Programs that run another command: takes a command's words, gives the commands hidden in its arguments.

Each wrapper has its own grammar of options: `grammars` holds it as data where it is `regular`; `programs`, `builtins`
and `shells` read the others. A hidden command is either words (`sudo rm x`) or text for a shell (`bash -c 'rm x'`).
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from golem_forge.policy.shell.names import names
from golem_forge.policy.shell.wrappers.builtins import BUILTINS
from golem_forge.policy.shell.wrappers.grammars import GRAMMARS, LOADER, LOADER_NAME, SETARCH
from golem_forge.policy.shell.wrappers.hidden import Hidden as Hidden
from golem_forge.policy.shell.wrappers.programs import PROGRAMS, ssh_command
from golem_forge.policy.shell.wrappers.regular import regular
from golem_forge.policy.shell.wrappers.shells import SHELLS as SHELLS
from golem_forge.policy.shell.wrappers.shells import shell, shell_parts

_INPUT = re.compile(r"-|/dev/stdin|/dev/fd/\d+|/proc/(self|\d+)/fd/\d+")
_SPECIAL = {**PROGRAMS, **BUILTINS}

WRAPPERS = (
    SHELLS
    | frozenset(GRAMMARS)
    | SETARCH
    | names(
        "busybox toybox env su runuser command trap xargs parallel find alias ssh chroot start-stop-daemon . source"
        " hyperfine concurrently nix-shell"
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
        yield from shell(arguments)
    elif program in GRAMMARS:
        yield from regular(GRAMMARS[program], arguments)
    elif LOADER_NAME.fullmatch(program):
        yield from regular(LOADER, arguments)


def reads_script_from_input(program: str, arguments: tuple[str, ...]) -> bool:
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
