"""The danger list: takes any command text, gives the dangers found in it, each by its id.

`DANGER_IDS` always ask with risk critical; `BUILTIN_IDS` are what the builtin rules block. A text without a hit is
not safe, it is only not known to be dangerous.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

from .danger_git import git_rewrite
from .danger_model import Context, Danger, shown
from .danger_network import is_interpreter, is_source, pipe_to_shell, upload
from .danger_paths import delete_many, perm_recursive, rm_force, secret_read, wipe_device, wipe_root
from .danger_system import env_hijack, persistence, power, privilege, self_invoke
from .lenient import Found, FoundCommand, find_commands
from .options import plain_operands

Check = Callable[[FoundCommand, Context], bool]

_FORKS = re.compile(r"\bfork\b.*\b(while|until|loop|for)\b|\b(while|until|loop|for)\b.*\bfork\b", re.DOTALL)


def _fork_loop(command: FoundCommand, context: Context) -> bool:
    return is_interpreter(command.program) and any(_FORKS.search(word) for word in command.arguments)


_CHECKS: dict[str, Check] = {
    "rm_force": rm_force,
    "delete_many": delete_many,
    "git_rewrite": git_rewrite,
    "pipe_to_shell": pipe_to_shell,
    "perm_recursive": perm_recursive,
    "privilege": privilege,
    "power": power,
    "persistence": persistence,
    "secret_read": secret_read,
    "env_hijack": env_hijack,
    "upload": upload,
    "self_invoke": self_invoke,
    "wipe_root": wipe_root,
    "wipe_device": wipe_device,
    "fork_bomb": _fork_loop,
}

BUILTIN_IDS = ("wipe_root", "wipe_device", "fork_bomb")
DANGER_IDS = (*(name for name in _CHECKS if name not in BUILTIN_IDS), "depth")


def find_dangers(text: str, *, is_secret: Callable[[str], bool]) -> tuple[Danger, ...]:
    """`is_secret` tells by its name whether a path, as written, is a secret one."""
    return dangers_of(find_commands(text), is_secret=is_secret)


def dangers_of(found: Found, *, is_secret: Callable[[str], bool]) -> tuple[Danger, ...]:
    """What the reading line by line finds counts too, except for the builtin rules where the whole is certain."""
    hits = dict.fromkeys(_hits(found.commands, is_secret))
    for danger in _hits(found.lines, is_secret):
        if danger.id in DANGER_IDS or not found.certain:
            hits[danger] = None
    if found.too_deep:
        hits[Danger("depth", "commands nested more than 8 deep")] = None
    if found.fork_bomb:
        hits[Danger("fork_bomb", "a command that starts itself again and again")] = None
    return tuple(hits)


def _hits(commands: tuple[FoundCommand, ...], is_secret: Callable[[str], bool]) -> Iterator[Danger]:
    context = Context(is_secret, [i for i, command in enumerate(commands) if is_source(command)])
    for command in commands:
        context.inside = command.directory
        for name, check in _CHECKS.items():
            if check(command, context):
                yield Danger(name, shown(command))
        if command.program in ("cd", "pushd", "chdir"):
            target = next(iter(plain_operands(command.arguments)), "~")
            context.here = context.seen_from_here(target)[-4096:]
