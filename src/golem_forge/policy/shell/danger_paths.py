"""Dangers to files: deletion, permissions, devices, secrets and start-up files."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator
from itertools import takewhile

from .danger_model import Context
from .danger_network import is_network_redirection
from .lenient import FoundCommand
from .names import names
from .operands import file_words, secret_by_shape, spellings
from .options import all_options, has_long, is_long, plain_operands, short_letters
from .roots import is_raw_device, is_root_like

_WRITES = names("> >> >| >! >>| >>! >& &> &>> <>")
_DELETERS = names("rm unlink shred rmdir")
_LAST_IS_WRITTEN = names("cp mv install ln rsync")
_ALL_WRITTEN = names("tee truncate shred sponge touch")
_FORMATTERS = names("wipefs blkdiscard mke2fs mkswap")

_FIND_FIRST = names("-H -L -P -D --")
_DELETES = re.compile(r"(?:^|[\s/;&|('\"\\])(?:rm|unlink|shred)(?:\s|$)")

# The options that name a file to be written: short letters, long names.
_OUTPUTS = {
    "sort": ("o", names("--output")),
    "curl": ("oDc", names("--output --dump-header --cookie-jar --trace --trace-ascii --stderr --etag-save")),
    "wget": ("Ooa", names("--output-document --output-file --append-output")),
    "gpg": ("o", names("--output")),
    "gpg2": ("o", names("--output")),
    "iconv": ("o", names("--output")),
    "patch": ("o", names("--output")),
    "tree": ("o", frozenset[str]()),
    "gcc": ("o", frozenset[str]()),
    "cc": ("o", frozenset[str]()),
    "ld": ("o", names("--output")),
    "pv": ("o", names("--output")),
    "aria2c": ("ol", names("--out --log")),
    "zstd": ("o", frozenset[str]()),
    "cp": ("tS", names("--target-directory")),
    "mv": ("tS", names("--target-directory")),
    "ln": ("tS", names("--target-directory")),
    "install": ("tSgmo", names("--target-directory")),
}
_TAR_VALUED = "bCfFgHIKLNTVX"
_TAR_WRITES = "cruA"
_TAR_LONG = ("--create", "--append", "--update", "--concatenate", "--catenate")

_STARTUP = re.compile(
    r"(^|/)(\.(bashrc|bash_profile|bash_login|bash_logout|bash_aliases|profile|zshrc|zshenv|zprofile|zlogin"
    r"|zlogout|kshrc|xprofile|xinitrc|xsessionrc)|\.config/fish/.*|\.config/autostart/.*|\.config/systemd/.*"
    r"|\.ssh/(authorized_keys|rc)|Library/LaunchAgents/.*)$"
    r"|^/+etc/(profile(\.d/.*)?|bash\.bashrc|zsh/.*|rc\.local|environment|cron.*|systemd/.*|init\.d/.*)$"
    r"|^/+var/spool/cron/.*$"
)
_OTHERS_WRITE = re.compile(r"[0-7]*[2367]|(.*,)?[ug]*[ao][ugoa]*[+=][rxXst]*w.*")


def rm_force(command: FoundCommand, context: Context) -> bool:
    if command.program != "rm":
        return False
    return "f" in short_letters(command.arguments) or has_long(command.arguments, "--force")


def delete_many(command: FoundCommand, context: Context) -> bool:
    if command.program == "find":
        return "-delete" in command.arguments
    through = {"find", "xargs", "parallel", "fd", "fdfind"} & set(command.via)
    return command.program in _DELETERS and bool(through)


def perm_recursive(command: FoundCommand, context: Context) -> bool:
    if command.program not in ("chmod", "chown", "chgrp"):
        return False
    if "R" not in short_letters(command.arguments) and not has_long(command.arguments, "--recursive", 3):
        return False
    operands = plain_operands(command.arguments)
    if any(is_root_like(context.seen_from_here(path)) for path in operands):
        return True
    # A mode like `-w` looks like a flag, but only takes rights away.
    return command.program == "chmod" and any(_OTHERS_WRITE.fullmatch(word) for word in operands[:1])


def wipe_root(command: FoundCommand, context: Context) -> bool:
    arguments = command.arguments
    if command.program == "find":
        runs = any(flag in arguments for flag in ("-exec", "-execdir", "-ok", "-okdir"))
        deletes = "-delete" in arguments or (runs and any(_DELETES.search(word) for word in arguments))
        return deletes and any(is_root_like(context.seen_from_here(path)) for path in _find_roots(arguments))
    if command.program != "rm":
        return False
    recursive = short_letters(arguments) & {"r", "R"} or has_long(arguments, "--recursive")
    return bool(recursive) and any(is_root_like(context.seen_from_here(path)) for path in plain_operands(arguments))


def _find_roots(arguments: tuple[str, ...]) -> Iterator[str]:
    """The directories `find` starts from; without any it is the one it runs in."""
    index = 0
    while index < len(arguments) and (arguments[index] in _FIND_FIRST or arguments[index].startswith("-O")):
        index += 2 if arguments[index] == "-D" else 1
    roots = list(takewhile(lambda word: not word.startswith(("-", "(", "!")), arguments[index:]))
    yield from roots or ["."]


def wipe_device(command: FoundCommand, context: Context) -> bool:
    if command.program.startswith("mkfs") or command.program in _FORMATTERS:
        return True
    redirected = {redirect.target for redirect in command.redirects}
    # A redirection to `/dev/tcp/HOST/PORT` is bash's own way to a network connection: no such device exists, nothing is
    # overwritten. `upload` names it, so that it still asks with risk critical in every mode, as `nc` does.
    return any(
        is_raw_device(context.seen_from_here(path))
        for path in written_paths(command)
        if not (path in redirected and is_network_redirection(path))
    )


def written_paths(command: FoundCommand) -> Iterator[str]:
    """The files a command writes, as far as its words tell."""
    yield from (redirect.target for redirect in command.redirects if redirect.operator in _WRITES)
    operands = plain_operands(command.arguments)
    program = command.program
    if program in ("dd", "dcfldd", "dc3dd"):
        yield from (word[3:] for word in command.arguments if word.startswith("of="))
    elif program in _ALL_WRITTEN or (program == "sed" and _edits_in_place(command.arguments)):
        yield from operands
    elif program in _LAST_IS_WRITTEN:
        yield from operands[-1:]
        # Once more with the values of options set apart: `cp a /dev/x -S b`.
        yield from all_options(command.arguments, _OUTPUTS.get(program, ("", frozenset()))[0], frozenset())[1][-1:]
    elif program in ("tar", "bsdtar", "gtar"):
        yield from _written_archives(command.arguments)
    elif program in ("uniq", "xxd"):
        yield from operands[1:]
    if program in _OUTPUTS:
        short, long = _OUTPUTS[program]
        for option in all_options(command.arguments, short, long)[0]:
            if option.value and (option.flag[1:] in short or any(is_long(option.flag, name, 3) for name in long)):
                yield option.value


def _written_archives(arguments: tuple[str, ...]) -> Iterator[str]:
    """The archive of a `tar` that creates or changes one, in all three styles of its options."""
    first, values = arguments[:1], arguments[1:]
    options, _ = all_options(arguments, _TAR_VALUED, names("--file"))
    letters = {option.flag[1:] for option in options}
    old_style = first[0] if first and not first[0].startswith("-") else ""
    if not set(_TAR_WRITES) & (letters | set(old_style)) and not any(has_long(arguments, n, 2) for n in _TAR_LONG):
        return
    taking = [letter for letter in old_style if letter in _TAR_VALUED]
    yield from (value for letter, value in zip(taking, values, strict=False) if letter == "f")
    yield from (option.value for option in options if option.value and option.flag in ("-f", "--fi", "--fil", "--file"))


def _edits_in_place(arguments: tuple[str, ...]) -> bool:
    return has_long(arguments, "--in-place") or any(
        word.startswith("-") and not word.startswith("--") and "i" in word for word in arguments
    )


def writes_startup_file(command: FoundCommand, context: Context) -> bool:
    return any(
        _STARTUP.search(posixpath.normpath(context.seen_from_here(path))) for path in written_paths(command) if path
    )


def secret_read(command: FoundCommand, context: Context) -> bool:
    sources = [redirect.target for redirect in command.redirects if redirect.operator in ("<", "<>")]
    for word in (*file_words(command.program, command.arguments), *sources):
        for path in spellings(word):
            normal = posixpath.normpath(context.seen_from_here(path)) if path else ""
            if normal and (context.is_secret(normal) or secret_by_shape(normal)):
                return True
    return False
