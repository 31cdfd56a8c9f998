"""Command prefixes as rules: which are too wide to be offered or saved, and which ones fit a given command."""

from __future__ import annotations

import posixpath
import re

from .names import names
from .wrappers import SHELLS, hidden_commands, is_wrapper

_ALONE = names(
    "git rm mv cp chmod chown dd find xargs awk gawk mawk sed perl ruby node nodejs deno bun php lua pip pip3 npm"
    " npx yarn pnpm uv uvx cargo go make docker podman kubectl terraform aws gcloud ssh scp rsync curl wget tee"
    " eval forge"
)
_INTERPRETER = re.compile(r"(python|pypy|perl|ruby|node|nodejs|deno|bun|php|lua|luajit|tclsh|Rscript)[0-9.]*")
_PYTHON = re.compile(r"(python|pypy)[0-9.]*")

# Subcommands that run whatever is named after them.
_RUNNERS: dict[str, frozenset[str]] = {
    "npm": names("run run-script exec x"),
    "yarn": names("run exec dlx"),
    "pnpm": names("run exec dlx"),
    "bun": names("run x"),
    "deno": names("run task"),
    "uv": names("run tool"),
    "poetry": names("run"),
    "hatch": names("run"),
    "pdm": names("run"),
    "pipx": names("run"),
    "bundle": names("exec"),
    "go": names("run tool"),
    "docker": names("run exec"),
    "podman": names("run exec"),
    "kubectl": names("run exec"),
}
_LOADING = re.compile(r"[-+][A-Za-z]*[WXIrodOC]|--(rcfile|init-file|require|import|loader)")
_INFORMING = names("--version --help -V -h")

# Programs that have subcommands, and the subcommands that have subcommands themselves.
_ONE_WORD = names(
    "git hg svn jj npm npx yarn pnpm bun deno pip pip3 pipx uv uvx poetry hatch pdm conda mamba cargo rustup go"
    " make just task docker podman kubectl helm terraform tofu systemctl brew apt apt-get dnf apk dotnet mvn"
    " gradle bundle gem rake rails mix composer flutter dart swift zig nix"
)
_TWO_WORDS = names("aws gcloud az gh glab")
_GROUPS: dict[str, frozenset[str]] = {
    "docker": names("compose container image volume network system buildx builder"),
    "podman": names("compose container image volume network system"),
    "git": names("stash remote submodule worktree"),
    "npm": names("config"),
    "uv": names("pip"),
    "go": names("mod"),
    "kubectl": names("config"),
    "terraform": names("state"),
    "rustup": names("toolchain"),
}
_SUBCOMMAND = re.compile(r"[A-Za-z0-9][\w:.@/-]*")


def is_banned_prefix(words: tuple[str, ...]) -> bool:
    """Would a rule for everything that begins with `words` allow nearly anything?"""
    if not words:
        return True
    program, arguments = posixpath.basename(words[0]), words[1:]
    options_only = all(word.startswith("-") for word in arguments)
    if _ends_at_runner(arguments, _RUNNERS.get(program, frozenset())):
        return True
    if program in ("docker", "podman") and arguments in (("compose", "run"), ("compose", "exec")):
        return True
    if program in SHELLS or _INTERPRETER.fullmatch(program):
        # `python -m pip` is as wide as `pip`
        is_module = _PYTHON.fullmatch(program) is not None and arguments[:1] == ("-m",)
        return options_only or _only_loads(arguments) or (is_module and is_banned_prefix(arguments[1:]))
    if is_wrapper(program) and program != "find":
        hidden = list(hidden_commands(program, arguments))
        return options_only or all(not inner.script and is_banned_prefix(inner.words) for inner in hidden)
    # No exemption above this line: `bash -h -c x` and `docker run -h x y` run what follows.
    return program in _ALONE and options_only and not set(arguments) & _INFORMING


def runs_what_it_is_given(words: tuple[str, ...]) -> bool:
    """A shell, interpreter or wrapper whose words leave open what it runs: its input decides, even if they are all."""
    if not words:
        return True
    program = posixpath.basename(words[0])
    runs = program in SHELLS or is_wrapper(program) or _INTERPRETER.fullmatch(program) is not None
    return runs and program != "find" and is_banned_prefix(words)


def _ends_at_runner(arguments: tuple[str, ...], runners: frozenset[str]) -> bool:
    """Is what will be run not named yet: `docker run`, `docker run --rm`, `npm -s run`?"""
    places = [index for index, word in enumerate(arguments) if word in runners]
    return bool(places) and all(word.startswith("-") for word in arguments[places[0] + 1 :])


def _only_loads(arguments: tuple[str, ...]) -> bool:
    """Only options and values of options that leave the script open: `python -W ignore`, `bash -o pipefail`."""
    index = 0
    while index < len(arguments) and arguments[index].startswith(("-", "+")):
        index += 2 if _LOADING.fullmatch(arguments[index]) else 1
    return index >= len(arguments)


def prefix_choices(words: tuple[str, ...]) -> list[tuple[str, ...]]:
    """The prefixes worth offering for a command, narrow to wide; none if every one would be too wide."""
    if not words or ("/" in words[0] and not words[0].startswith("/")):
        return []
    program = posixpath.basename(words[0])
    if _PYTHON.fullmatch(program):
        prefix = words[:3] if words[1:2] == ("-m",) else ()
    elif program in _ONE_WORD or program in _TWO_WORDS:
        prefix = _subcommand_prefix(program, words)
    elif is_wrapper(program) or program in SHELLS or _INTERPRETER.fullmatch(program):
        prefix = ()
    else:
        prefix = words[:1]
    return [prefix] if prefix and not is_banned_prefix(prefix) else []


def _subcommand_prefix(program: str, words: tuple[str, ...]) -> tuple[str, ...]:
    second = words[1] if len(words) > 1 else ""
    is_group = second in _GROUPS.get(program, ()) or second in _RUNNERS.get(program, ())
    length = 3 if program in _TWO_WORDS or is_group else 2
    fits = len(words) >= length and all(_SUBCOMMAND.fullmatch(word) for word in words[1:length])
    return words[:length] if fits else ()
