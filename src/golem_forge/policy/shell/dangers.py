"""The danger list: takes any command text, gives the dangers found in it, each by its id.

`DANGER_IDS` ask with risk critical; `BUILTIN_IDS` are what the builtin rules block. `DANGER_SIDES` says of each danger
whether full walls and undo are enough against it. A text without a hit is not safe, it is only not known to be
dangerous. The checks: files (deletion, permissions, devices, secrets, start-up files), git (losing history or work,
options that run programs), network (running what was downloaded or decoded, sending files away), machine (privileges,
power, persistence, hijacked variables, other agents).
"""

from __future__ import annotations

import posixpath
import re
from bisect import bisect_left
from collections.abc import Callable, Iterator
from enum import StrEnum
from itertools import takewhile
from typing import Final

from golem_forge.core.lazy_dataclass import dataclass
from golem_forge.core.regex import regex
from golem_forge.core.text import shorten
from golem_forge.policy.shell.arguments import (
    Option,
    all_options,
    file_words,
    has_long,
    is_long,
    is_raw_device,
    is_root_like,
    join_paths,
    leading_options,
    names,
    plain_operands,
    secret_by_shape,
    short_letters,
    spellings,
)
from golem_forge.policy.shell.lenient import FoundCommand, find_commands
from golem_forge.policy.shell.statements import Span
from golem_forge.policy.shell.wrappers import SHELLS, reads_script_from_input

_MAX_DETAIL = 120


@dataclass(frozen=True, slots=True)
class Danger:
    """`id` is of the danger list or of a builtin rule; `detail` is the command that caused it, cut short;
    empty: no single one did."""

    id: str
    detail: str


@dataclass(slots=True)
class DangerContext:
    """The command under check among all others. `here` is the directory that `cd`s before it lead to, `inside` the
    one that its own wrappers (`env -C`) go to from there."""

    is_secret: Callable[[str], bool]
    sources: list[int]  # commands that download or decode, by index
    here: str = ""
    inside: str = ""

    def has_source(self, span: Span) -> bool:
        return bisect_left(self.sources, span[1]) > bisect_left(self.sources, span[0])

    def resolve(self, path: str) -> str:
        return join_paths(join_paths(path, self.inside), self.here)


_WRITES = names("> >> >| >! >>| >>! >& &> &>> <>")
_DELETERS = names("rm unlink shred rmdir")
_LAST_IS_WRITTEN = names("cp mv install ln rsync")
_ALL_WRITTEN = names("tee truncate shred sponge touch")
_FORMATTERS = names("wipefs blkdiscard mke2fs mkswap")

_FIND_FIRST = names("-H -L -P -D --")
_DELETES = regex(r"(?:^|[\s/;&|('\"\\])(?:rm|unlink|shred)(?:\s|$)")

# The options that name a file to be written: short letters, long names.
_OUTPUT = ("o", names("--output"))
_ONLY_O = ("o", names(""))
_TARGET = ("tS", names("--target-directory"))
_OUTPUTS = {
    **dict.fromkeys(("sort", "gpg", "gpg2", "iconv", "patch", "ld", "pv"), _OUTPUT),
    **dict.fromkeys(("tree", "gcc", "cc", "zstd"), _ONLY_O),
    **dict.fromkeys(("cp", "mv", "ln"), _TARGET),
    "curl": ("oDc", names("--output --dump-header --cookie-jar --trace --trace-ascii --stderr --etag-save")),
    "wget": ("Ooa", names("--output-document --output-file --append-output")),
    "aria2c": ("ol", names("--out --log")),
    "install": ("tSgmo", names("--target-directory")),
}
_TAR_VALUED = "bCfFgHIKLNTVX"
_TAR_WRITES = "cruA"
_TAR_LONG = ("--create", "--append", "--update", "--concatenate", "--catenate")

_STARTUP = regex(
    r"(^|/)(\.(bashrc|bash_profile|bash_login|bash_logout|bash_aliases|profile|zshrc|zshenv|zprofile|zlogin"
    r"|zlogout|kshrc|xprofile|xinitrc|xsessionrc)|\.config/fish/.*|\.config/autostart/.*|\.config/systemd/.*"
    r"|\.ssh/(authorized_keys|rc)|Library/LaunchAgents/.*)$"
    r"|^/+etc/(profile(\.d/.*)?|bash\.bashrc|zsh/.*|rc\.local|environment|cron.*|systemd/.*|init\.d/.*)$"
    r"|^/+var/spool/cron/.*$"
)
_OTHERS_WRITE = regex(r"[0-7]*[2367]|(.*,)?[ug]*[ao][ugoa]*[+=][rxXst]*w.*")


def rm_force(command: FoundCommand, context: DangerContext) -> bool:
    forced = "f" in short_letters(command.arguments) or has_long(command.arguments, "--force")
    return command.program == "rm" and forced


def delete_many(command: FoundCommand, context: DangerContext) -> bool:
    if command.program == "find":
        return "-delete" in command.arguments
    through = {"find", "xargs", "parallel", "fd", "fdfind"} & set(command.via)
    return command.program in _DELETERS and bool(through)


def perm_recursive(command: FoundCommand, context: DangerContext) -> bool:
    if command.program not in ("chmod", "chown", "chgrp"):
        return False
    if "R" not in short_letters(command.arguments) and not has_long(command.arguments, "--recursive", 3):
        return False
    operands = plain_operands(command.arguments)
    if any(is_root_like(context.resolve(path)) for path in operands):
        return True
    # A mode like `-w` looks like a flag, but only takes rights away.
    return command.program == "chmod" and any(_OTHERS_WRITE.fullmatch(word) for word in operands[:1])


def wipe_root(command: FoundCommand, context: DangerContext) -> bool:
    arguments = command.arguments
    if command.program == "find":
        runs = any(flag in arguments for flag in ("-exec", "-execdir", "-ok", "-okdir"))
        deletes = "-delete" in arguments or (runs and any(_DELETES.search(word) for word in arguments))
        return deletes and any(is_root_like(context.resolve(path)) for path in _find_roots(arguments))
    if command.program != "rm":
        return False
    recursive = short_letters(arguments) & {"r", "R"} or has_long(arguments, "--recursive")
    return bool(recursive) and any(is_root_like(context.resolve(path)) for path in plain_operands(arguments))


def _find_roots(arguments: tuple[str, ...]) -> Iterator[str]:
    """The directories `find` starts from; without any it is the one it runs in."""
    index = 0
    while index < len(arguments) and (arguments[index] in _FIND_FIRST or arguments[index].startswith("-O")):
        index += 2 if arguments[index] == "-D" else 1
    roots = list(takewhile(lambda word: not word.startswith(("-", "(", "!")), arguments[index:]))
    yield from roots or ["."]


def wipe_device(command: FoundCommand, context: DangerContext) -> bool:
    if command.program.startswith("mkfs") or command.program in _FORMATTERS:
        return True
    redirected = {redirect.target for redirect in command.redirects}
    # A redirection to `/dev/tcp/HOST/PORT` is bash's own way to a network connection: no such device exists, nothing is
    # overwritten. `upload` names it, so that it still asks with risk critical in every mode, as `nc` does. Another
    # spelling is only a path.
    return any(
        is_raw_device(context.resolve(path))
        for path in written_paths(command)
        if not (path in redirected and _NET_REDIRECTION.fullmatch(path))
    )


def written_paths(command: FoundCommand) -> Iterator[str]:
    """The files a command writes, as far as its words tell."""
    yield from (redirect.target for redirect in command.redirects if redirect.operator in _WRITES)
    operands = plain_operands(command.arguments)
    program = command.program
    in_place = has_long(command.arguments, "--in-place") or any(
        word.startswith("-") and not word.startswith("--") and "i" in word for word in command.arguments
    )
    if program in ("dd", "dcfldd", "dc3dd"):
        yield from (word[3:] for word in command.arguments if word.startswith("of="))
    elif program in _ALL_WRITTEN or (program == "sed" and in_place):
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


def secret_read(command: FoundCommand, context: DangerContext) -> bool:
    sources = [redirect.target for redirect in command.redirects if redirect.operator in ("<", "<>")]
    for word in (*file_words(command.program, command.arguments), *sources):
        for path in spellings(word):
            normal = posixpath.normpath(context.resolve(path)) if path else ""
            if normal and (context.is_secret(normal) or secret_by_shape(normal)):
                return True
    return False


# `--exec-path` takes a value only after `=`.
_GIT_VALUED = names("--git-dir --work-tree --namespace --super-prefix --config-env --attr-source")
_WHOLE_TREE = names(". ./ :/ * :(top)")


def _git_parts(command: FoundCommand) -> tuple[list[Option], str, tuple[str, ...]]:
    """The options before the subcommand, the subcommand and its arguments; empty if this is not git or has none."""
    if command.program != "git":
        return [], "", ()
    options, index = leading_options(command.arguments, "Cc", _GIT_VALUED)
    rest = command.arguments[index:]
    return options, "".join(rest[:1]), rest[1:]


def git_rewrite(command: FoundCommand, context: DangerContext) -> bool:
    _, subcommand, arguments = _git_parts(command)
    letters = short_letters(arguments)
    operands = plain_operands(arguments)
    forced = "f" in letters or has_long(arguments, "--force")
    match subcommand:
        case "push":
            leases = has_long(arguments, "--force-with-lease") or has_long(arguments, "--force-if-includes")
            removes = "d" in letters or any(has_long(arguments, flag) for flag in ("--mirror", "--delete", "--prune"))
            return forced or leases or removes or any(word[:1] in ("+", ":") for word in operands)
        case "reset":
            return has_long(arguments, "--hard")
        case "clean":
            return forced
        case "branch":
            return "D" in letters or (forced and ("d" in letters or has_long(arguments, "--delete")))
        case "checkout" | "restore" | "switch":
            discards = forced or has_long(arguments, "--discard-changes", 2)
            return (discards and subcommand != "restore") or any(word in _WHOLE_TREE for word in operands)
        case "stash":
            return operands[:1] in (("drop",), ("clear",))
        case "reflog":
            return operands[:1] in (("expire",), ("delete",))
        case "filter-branch" | "filter-repo":
            return True
    return False


def _git_hijack(command: FoundCommand) -> bool:
    """Options by which a repository or an argument chooses a program to run."""
    options, subcommand, arguments = _git_parts(command)
    if any(option.flag in ("-c", "--config-env", "--exec-path") for option in options):
        return True
    if has_long(arguments, "--upload-pack", 3) or has_long(arguments, "--receive-pack", 5):
        return True
    if subcommand == "clone" and (short_letters(arguments) & {"c", "u"} or has_long(arguments, "--config", 4)):
        return True
    return any(word.startswith("ext::") for word in arguments)


_DOWNLOADERS = names(
    "curl wget wget2 fetch aria2c http https xh lwp-request lwp-download GET lynx links w3m nc ncat netcat"
    " socat telnet ftp tftp ssh dig"
)
_DECODERS = names("uudecode zcat gunzip bunzip2 bzcat unxz xzcat zstdcat unzstd rev tr")
_DECODERS_WITH_D = names("base64 base32 basenc gzip bzip2 xz zstd lz4 openssl gpg gpg2")
_INTERPRETER = regex(r"(python|pypy|perl|ruby|node|nodejs|deno|bun|php|lua|luajit|tclsh|Rscript|osascript|pwsh)[0-9.]*")
_EVALUATORS = names("eval . source")
_RUNS_INPUT = regex(r"\b(exec|eval|system|compile)\b")
_NET_DEVICE = regex(r"/+dev/+(tcp|udp)/")
_NET_REDIRECTION = regex(r"/dev/(?:tcp|udp)(?:/(?!\.{0,2}(?:/|$))[^/]+){2}")

_CURL_VALUED = "AbcCdDeEFHhKmoPQrtTuUwxXyYz"
_CURL_LONG = names(
    "--data --data-ascii --data-binary --data-raw --data-urlencode --json --form --form-string --upload-file"
    " --header --output --request --user --url --user-agent --cookie --referer --max-time --proxy"
)
_CURL_DATA = names("--data --data-ascii --data-binary --data-urlencode --json")
_SENDERS = names("scp sftp nc ncat netcat socat ftp tftp")


def is_source(command: FoundCommand) -> bool:
    """Does its output come from the network or out of an encoding?"""
    program, arguments = command.program, command.arguments
    if program in _DOWNLOADERS or program in _DECODERS:
        return True
    if program in _DECODERS_WITH_D:
        decoding = short_letters(arguments) & {"d", "D"} or "s_client" in arguments
        long = ("--decode", "--decompress", "--uncompress", "--decrypt")
        return bool(decoding) or any(has_long(arguments, flag) for flag in long)
    if program == "xxd":
        return "r" in short_letters(arguments)
    return any(
        redirect.operator in ("<", "<>") and _NET_DEVICE.match(redirect.target) for redirect in command.redirects
    )


def is_interpreter(program: str) -> bool:
    return _INTERPRETER.fullmatch(program) is not None


def pipe_to_shell(command: FoundCommand, context: DangerContext) -> bool:
    program, arguments = command.program, command.arguments
    runs_code = program in SHELLS or program in _EVALUATORS or is_interpreter(program)
    if command.words and command.words[0].startswith("$()"):
        runs_code = True
    if runs_code and (context.has_source(command.inner) or is_source(command)):
        return True
    if not context.has_source(command.fed):
        return False
    if program == "parallel":
        return not plain_operands(arguments)
    if runs_code and {"xargs", "parallel"} & set(command.via):
        return True
    return program == "eval" or reads_script_from_input(program, arguments) or _interprets_input(command)


def _interprets_input(command: FoundCommand) -> bool:
    if not is_interpreter(command.program):
        return False
    arguments = command.arguments
    first = next((word for word in arguments if not word.startswith("-") or word == "-"), "-")
    inline = any(re.match(r"-[A-Za-z]*[cemnpr]|--eval|--print", word) for word in arguments)
    if inline:
        return any(_RUNS_INPUT.search(word) for word in arguments)
    return first in ("-", "/dev/stdin") or (command.program in ("deno", "bun") and "-" in arguments)


def upload(command: FoundCommand, context: DangerContext) -> bool:
    program, arguments = command.program, command.arguments
    if program in _SENDERS:
        return True
    if program == "rsync":
        operands = plain_operands(arguments)
        return bool(operands) and (operands[-1].startswith("rsync://") or ":" in operands[-1].split("/")[0])
    if program == "wget":
        return has_long(arguments, "--post-file", 6) or has_long(arguments, "--body-file", 6)
    if program == "curl":
        return _curl_uploads(arguments)
    if program in ("http", "https", "xh"):
        return any("@" in word and not word.startswith(("http", "-")) for word in arguments)
    return any(
        redirect.operator not in ("<", "<<", "<<-", "<<<") and _NET_DEVICE.match(redirect.target)
        for redirect in command.redirects
    )


def _curl_uploads(arguments: tuple[str, ...]) -> bool:
    options, _ = all_options(arguments, _CURL_VALUED, _CURL_LONG)
    for option in options:
        flag, value = option.flag, option.value or ""
        if flag in ("-T", "-F") or is_long(flag, "--upload-file", 2) or is_long(flag, "--form", 2):
            return True
        if is_long(flag, "--data-urlencode", 7) and re.match(r"[^=]*@", value):
            return True
        if value.startswith("@") and (flag == "-d" or any(is_long(flag, name, 3) for name in _CURL_DATA)):
            return True
    return False


_PRIVILEGED = names("sudo sudoedit su doas pkexec run0")
_POWER = names("shutdown reboot halt poweroff")
_POWER_UNITS = names("poweroff reboot halt kexec suspend hibernate hybrid-sleep soft-reboot")
_SCHEDULERS = names("crontab at batch update-rc.d chkconfig")
_ENABLING = names("enable reenable link preset load bootstrap")

_HIJACKED = regex(r"(LD_|DYLD_|GIT_|BASH_FUNC_)\w+|PATH|BASH_ENV|ENV|IFS|PROMPT_COMMAND|SHELLOPTS|PS4")
_DECLARING = names("export declare typeset readonly local setenv")
_SSH_COMMANDS = ("proxycommand", "localcommand", "permitlocalcommand", "knownhostscommand", "remotecommand")

_UNGUARDED = names(
    "--dangerously-skip-permissions --allow-dangerously-skip-permissions"
    " --dangerously-bypass-approvals-and-sandbox --dangerously-allow-all --yolo --full-auto --allow-all-tools"
    " --trust-all-tools"
)
_UNGUARDED_BY_AGENT = {
    "claude": names("bypassPermissions"),
    "codex": names("never danger-full-access"),
    "gemini": names("-y yolo"),
    "qwen": names("-y yolo"),
    "crush": names("-y"),
    "aider": names("--yes --yes-always"),
    "cursor-agent": names("-f --force"),
}
_FORGE = regex(r"forge|golem[-_]forge")


def power(command: FoundCommand, context: DangerContext) -> bool:
    operands = plain_operands(command.arguments)
    if command.program in _POWER:
        return True
    if command.program in ("init", "telinit"):
        return bool({"0", "6"} & set(operands))
    if command.program in ("systemctl", "loginctl"):
        return bool(_POWER_UNITS & set(operands))
    return any(redirect.target.endswith("/proc/sysrq-trigger") for redirect in command.redirects)


def persistence(command: FoundCommand, context: DangerContext) -> bool:
    if command.program in _SCHEDULERS:
        return True
    if command.program in ("systemctl", "launchctl"):
        return bool(_ENABLING & set(plain_operands(command.arguments)))
    paths = (posixpath.normpath(context.resolve(path)) for path in written_paths(command) if path)
    return any(map(_STARTUP.search, paths))


def env_hijack(command: FoundCommand, context: DangerContext) -> bool:
    assigned = [name for name, _ in command.assignments]
    if command.program in _DECLARING:
        assigned += [re.split(r"\+?=", word)[0] for word in command.arguments if "=" in word]
    if any(_HIJACKED.fullmatch(name) for name in assigned):
        return True
    if command.program in ("ssh", "scp", "sftp"):
        words = [word.lower().removeprefix("-o").strip() for word in command.arguments]
        return any(word.startswith(_SSH_COMMANDS) for word in words)
    return _git_hijack(command)


def self_invoke(command: FoundCommand, context: DangerContext) -> bool:
    program, arguments = command.program, command.arguments
    if _FORGE.fullmatch(program):
        return True
    if program.startswith(("python", "pypy")) and "-m" in arguments:
        module = arguments[arguments.index("-m") + 1 :]
        return bool(module) and module[0].split(".")[0] == "golem_forge"
    if program in ("uvx", "pipx", "uv") and any(_FORGE.fullmatch(re.split("[=@<>]", w)[0]) for w in arguments):
        return True
    flags = {piece for word in arguments for piece in (word, word.partition("=")[0], word.partition("=")[2])}
    return bool(flags & _UNGUARDED) or bool(flags & _UNGUARDED_BY_AGENT.get(program, frozenset()))


Check = Callable[[FoundCommand, DangerContext], bool]

_FORKS = regex(r"\bfork\b.*\b(while|until|loop|for)\b|\b(while|until|loop|for)\b.*\bfork\b", re.DOTALL)


_CHECKS: dict[str, Check] = {
    "rm_force": rm_force,
    "delete_many": delete_many,
    "git_rewrite": git_rewrite,
    "pipe_to_shell": pipe_to_shell,
    "perm_recursive": perm_recursive,
    "privilege": lambda command, context: command.program in _PRIVILEGED,
    "power": power,
    "persistence": persistence,
    "secret_read": secret_read,
    "env_hijack": env_hijack,
    "upload": upload,
    "self_invoke": self_invoke,
    "wipe_root": wipe_root,
    "wipe_device": wipe_device,
    "fork_bomb": lambda command, context: (
        is_interpreter(command.program) and any(_FORKS.search(word) for word in command.arguments)
    ),
}

BUILTIN_IDS = ("wipe_root", "wipe_device", "fork_bomb")
DANGER_IDS = (*(name for name in _CHECKS if name not in BUILTIN_IDS), "depth")


class Side(StrEnum):
    INSIDE = "inside"
    """Full walls over zones that can be undone contain the danger: the mode `contained` lets it run."""
    OUTSIDE = "outside"
    """It is meant to reach something beyond the walls, or to send data that cannot be taken back."""


DANGER_SIDES: Final = {
    "rm_force": Side.INSIDE,
    "delete_many": Side.INSIDE,
    "git_rewrite": Side.INSIDE,  # of a push the host is what asks (`outside_needs`)
    "perm_recursive": Side.INSIDE,
    "env_hijack": Side.INSIDE,  # this and the next two: no more than a text that nobody can read
    "depth": Side.INSIDE,
    "pipe_to_shell": Side.INSIDE,
    "privilege": Side.OUTSIDE,
    "power": Side.OUTSIDE,
    "persistence": Side.OUTSIDE,
    "secret_read": Side.OUTSIDE,
    "upload": Side.OUTSIDE,
    "self_invoke": Side.OUTSIDE,
}
"""Every id of `DANGER_IDS`. What a builtin rule blocks has no side: nobody can allow it."""


def find_dangers(text: str, *, is_secret: Callable[[str], bool]) -> tuple[Danger, ...]:
    """`is_secret` tells by its name whether a path, as written, is a secret one. What the reading line by line finds
    counts too, except for the builtin rules where the whole is certain."""
    found = find_commands(text)
    hits = dict.fromkeys(_hits(found.commands, is_secret))
    for danger in _hits(found.lines, is_secret):
        if danger.id in DANGER_IDS or not found.certain:
            hits[danger] = None
    if found.too_deep:
        hits[Danger("depth", "")] = None
    if found.fork_bomb:
        hits[Danger("fork_bomb", "")] = None
    return tuple(hits)


def _hits(commands: tuple[FoundCommand, ...], is_secret: Callable[[str], bool]) -> Iterator[Danger]:
    context = DangerContext(is_secret, [i for i, command in enumerate(commands) if is_source(command)])
    for command in commands:
        context.inside = command.directory
        found = [name for name, check in _CHECKS.items() if check(command, context)]
        if found:
            assigned = (f"{name}={value}" for name, value in command.assignments)
            redirected = (f"{redirect.operator}{redirect.target}" for redirect in command.redirects)
            detail = shorten(" ".join([*assigned, *command.words[:40], *redirected]), _MAX_DETAIL)
            yield from (Danger(name, detail) for name in found)
        if command.program in ("cd", "pushd", "chdir"):
            target = next(iter(plain_operands(command.arguments)), "~")
            context.here = context.resolve(target)[-4096:]
