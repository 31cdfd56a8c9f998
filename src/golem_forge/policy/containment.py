"""Containment: what of a call leaves the walls or cannot be undone, for the approval mode `contained`.

The planners of tools ask here and write the answer into their effects (`Effect.leaves`); the Judge only reads it. Each
reason is plain words that follow "asks because". A call without any may run unasked: its processes stand in full walls
without a host, and every place that they can write is brought back by undo, or ends with the call.

`outside_needs` takes any text and gives what its commands cannot work without: such a command asks, with what it needs,
instead of running into a wall. So the table names programs whose work is a host, a daemon or the machine itself; a
program that may do without (`make`, `npx`, `go build`) is not in it. Wrappers, lists, pipelines and shell syntax are
read by the lenient reader.

Threat: a command that is not what it looks like. Nothing here trusts the words of a command: the walls keep it from
hosts, and what could not be undone is read-only for it. The words only decide where a person is asked beforehand.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from fnmatch import fnmatchcase
from typing import Final

from golem_forge.core.decisions import Verdict
from golem_forge.core.effects import Verb
from golem_forge.core.globs import GROUP_PREFIX
from golem_forge.core.lazy_dataclass import dataclass
from golem_forge.core.regex import regex
from golem_forge.policy.shell.arguments import (
    file_words,
    has_long,
    join_paths,
    leading_options,
    names,
    plain_operands,
    spellings,
)
from golem_forge.policy.shell.dangers import written_paths
from golem_forge.policy.shell.lenient import CommandScan, FoundCommand, find_commands
from golem_forge.policy.shell.readonly_table import READ_ONLY_TABLE
from golem_forge.sandbox.errors import SandboxError
from golem_forge.sandbox.handles import Parts
from golem_forge.sandbox.protected import is_secret_name
from golem_forge.sandbox.sandbox import Sandbox
from golem_forge.sandbox.walls.model import Coverage, Level, ProbeReport, UncoveredPath
from golem_forge.sandbox.zones import USER_TOOLS, AccessMode, Zone

_TAKES_AWAY: Final = names("rm rmdir mv unlink shred")
"""A directory that they name goes with all that is in it."""
_MOST_WORDS: Final = 2000


def walls_reason(report: ProbeReport) -> str:
    """Why nothing is contained on this machine; empty: the walls are full."""
    if report.level is Level.FULL:
        return ""
    if report.level is Level.OFF:
        return "walls are switched off"
    return "there are no full walls here" + (f": {report.cause}" if report.cause else "")


def process_reasons(zones: Iterable[Zone], coverage: Coverage) -> Iterator[str]:
    """Yields why processes that may write in these zones cannot run without a question."""
    for zone in zones:
        if zone.mode is AccessMode.RO or zone.name == USER_TOOLS:
            continue
        for verb in (Verb.WRITE, Verb.DELETE):
            verdict = zone.verdict(verb)
            if verdict is Verdict.BLOCKED or (verdict is Verdict.ASK and verb in zone.written):
                yield f"zone {zone.virtual(())} says {verdict.value} for {verb.value}"
        known = coverage.zones.get(zone.name)
        if known is not None and known.problem:
            yield f"{zone.virtual(())} cannot be undone: {known.problem}"


def path_reasons(zone: Zone | None, parts: Parts, verb: Verb, coverage: Coverage) -> Iterator[str]:
    """Yields why a native tool that changes exactly one path cannot run without a question."""
    if zone is None or zone.name == USER_TOOLS:
        yield "it changes something that cannot be undone"
        return
    if zone.verdict(verb) is Verdict.ASK and verb in zone.written:
        yield f"zone {zone.virtual(())} says ask for {verb.value}"
    known = coverage.zones.get(zone.name)
    if known is None:
        return
    if known.problem:
        yield f"{zone.virtual(())} cannot be undone: {known.problem}"
    elif (found := known.at(parts)) is not None:
        yield uncovered_reason(zone, found)


def uncovered_reason(zone: Zone, found: UncoveredPath) -> str:
    return f"`{zone.virtual(found.parts)}` cannot be undone: {found.why}"


def command_reasons(text: str, sandbox: Sandbox, cwd: str, coverage: Coverage) -> Iterator[str]:
    """Yields why a command cannot run without a question: what it needs outside the walls, which secret files it
    writes, and which of its paths could not be undone.
    """
    found = find_commands(text)
    for words, needs in outside_needs(found):
        yield f"`{words}` needs {needs}"
    uncovered = any(known.uncovered for known in coverage.zones.values())
    here = cwd
    for command in found.blockable:
        for path in written_paths(command):
            yield from _secret_reasons(join_paths(join_paths(path, command.directory), here), sandbox)
        for path, whole in _changed_words(command) if uncovered else ():
            yield from _named_reasons(join_paths(join_paths(path, command.directory), here), whole, sandbox, coverage)
        if command.program in ("cd", "pushd", "chdir"):
            here = posixpath.normpath(join_paths(next(iter(plain_operands(command.arguments)), "."), here))


def _changed_words(command: FoundCommand) -> Iterator[tuple[str, bool]]:
    """(a path that a command may change, whether with all that is in it)"""
    words = [(path, False) for path in written_paths(command)]
    if command.program not in READ_ONLY_TABLE:
        whole = command.program in _TAKES_AWAY
        named = file_words(command.program, command.arguments)
        words += [(path, whole) for word in named for path in spellings(word)]
    yield from dict.fromkeys(words[:_MOST_WORDS])


def _secret_reasons(path: str, sandbox: Sandbox) -> Iterator[str]:
    with suppress(SandboxError):
        place = sandbox.locate(posixpath.normpath(path))
        if place.zone is not None and is_secret_name("/".join(place.parts)):
            yield f"`{place.zone.virtual(place.parts)}` looks like a secret"


def _named_reasons(path: str, whole: bool, sandbox: Sandbox, coverage: Coverage) -> Iterator[str]:
    try:
        place = sandbox.locate(posixpath.normpath(path))
    except SandboxError:
        return
    zone = place.zone
    known = coverage.zones.get(zone.name) if zone is not None else None
    if zone is None or known is None:
        return
    for one in known.uncovered:
        # Each part may be a pattern of the shell's.
        same = all(map(fnmatchcase, one.parts, place.parts))
        if same and (whole or len(place.parts) >= len(one.parts)):
            yield uncovered_reason(zone, one)


HOST: Final = "a host"
_REGISTRY: Final = "a package registry"
_REMOTE: Final = "the remote repository's host"
_DAEMON: Final = "a daemon outside the walls"
_SYSTEM: Final = "to change the system outside every zone"
_CLUSTER: Final = "an account or a cluster on the network"

_ALONE: Final = "with your credentials as a command of its own"
_NAMED: Final = "named in `network`"

_ANY: Final = frozenset[str]()
"""In a row of the table: applies to every subcommand of the program."""


@dataclass(frozen=True, slots=True)
class OutsideNeed:
    """A row of the table: programs that need something outside the walls."""

    programs: frozenset[str]
    needs: str
    subcommands: frozenset[str] = _ANY
    """Leading operands, one or two words, that need it; `_ANY`: all do. An empty one: the program without any."""
    unless: frozenset[str] = _ANY
    """Leading operands and options of calls that stay inside."""
    operand: Callable[[str], bool] | None = None
    """The row applies only if an operand passes this test."""
    inside: Callable[[Sequence[str]], bool] | None = None
    """The row does not apply if the operands pass this test."""
    group: str = ""
    """The group of hosts that the program needs."""
    way: str = ""
    """What works instead; shown to the person who is asked."""

    @property
    def what(self) -> str:
        way = f"`{GROUP_PREFIX}{self.group}` in `network`" if self.group else self.way
        return f"{self.needs} ({way})" if way else self.needs


_ADDRESS: Final = regex(r"[a-z][a-z0-9+.-]*://(?!/)|(?:[\w.-]+@)?[\w.-]+:(?!/?/)", re.IGNORECASE)


def names_a_host(word: str) -> bool:
    """`https://x/y`, `git@host:x`, `host:dir`; not `./a:b` or a path."""
    return not word.startswith((".", "/")) and _ADDRESS.match(word) is not None


_LOOPBACK: Final = regex(
    r"(?:https?://)?(?:localhost|127\.\d{1,3}\.\d{1,3}\.\d{1,3}|\[::1\])(?::(?:\d{1,5}|\$\{?\w+\}?))?(?:[/?#].*)?",
    re.IGNORECASE,
)


def _only_loopback(operands: Sequence[str]) -> bool:
    """`http://localhost:3000/x`, `127.0.0.1:8000`: a server of the same session."""
    addresses = [word for word in operands if "://" in word or _LOOPBACK.fullmatch(word)]
    return bool(addresses) and all(map(_LOOPBACK.fullmatch, addresses))


def _remote_is_a_path(operands: Sequence[str]) -> bool:
    """`git push ../up.git main`: git asks no host for a repository beside this one."""
    return len(operands) > 1 and operands[1].startswith((".", "/", "file:///"))


def _phrases(text: str) -> frozenset[str]:
    """Splits a list of subcommands; `_` stands for the space in one of two words."""
    return frozenset(word.replace("_", " ") for word in text.split())


OUTSIDE_NEEDS: Final = (
    OutsideNeed(
        names("git"),
        _REMOTE,
        _phrases("push pull fetch ls-remote"),
        inside=_remote_is_a_path,
        way=_ALONE,
    ),
    OutsideNeed(
        names("git"),
        _REMOTE,
        _phrases("remote_update remote_prune submodule_update submodule_add lfs_pull lfs_push"),
        way="you can do it in your own terminal",
    ),
    OutsideNeed(names("git"), _REMOTE, _phrases("clone"), operand=names_a_host, way=_ALONE),
    OutsideNeed(
        names("pip pipx"),
        _REGISTRY,
        _phrases("install download wheel upgrade upgrade-all inject run search index"),
        group="python",
    ),
    OutsideNeed(
        names("uv"),
        _REGISTRY,
        _phrases("add sync lock publish pip_install pip_sync tool_install python_install"),
        group="python",
    ),
    OutsideNeed(names("uvx"), _REGISTRY, group="python"),
    OutsideNeed(names("poetry pdm"), _REGISTRY, _phrases("install add update lock publish sync"), group="python"),
    OutsideNeed(names("conda mamba micromamba"), _REGISTRY, _phrases("install create update search env_create")),
    OutsideNeed(
        names("npm pnpm"),
        _REGISTRY,
        _phrases("install i ci add update up upgrade publish audit outdated view info search login dlx create"),
        group="node",
    ),
    OutsideNeed(
        names("yarn"), _REGISTRY, _phrases("install add up upgrade dlx npm create audit outdated") | {""}, group="node"
    ),
    OutsideNeed(names("bun"), _REGISTRY, _phrases("install i add update create"), group="node"),
    OutsideNeed(names("cargo"), _REGISTRY, _phrases("install add update fetch publish search login"), group="rust"),
    OutsideNeed(
        names("rustup"), _REGISTRY, _phrases("update install toolchain_install component_add target_add"), group="rust"
    ),
    OutsideNeed(names("go"), _REGISTRY, _phrases("get mod_download mod_tidy"), group="go"),
    OutsideNeed(names("go"), _REGISTRY, _phrases("install"), operand=lambda word: "@" in word, group="go"),
    OutsideNeed(names("gem"), _REGISTRY, _phrases("install update fetch push search")),
    OutsideNeed(names("bundle bundler"), _REGISTRY, _phrases("install update add") | {""}),
    OutsideNeed(names("composer"), _REGISTRY, _phrases("install update require create-project")),
    OutsideNeed(names("twine"), _REGISTRY, _phrases("upload register")),
    OutsideNeed(names("apt apt-get dnf yum zypper pacman apk brew port snap flatpak"), _SYSTEM),
    OutsideNeed(
        names("curl wget wget2 aria2c xh lynx w3m ping traceroute dig nslookup whois telnet ftp sftp ssh ssh-copy-id"),
        HOST,
        unless=names("--version --help -V"),
        inside=_only_loopback,
        way=_NAMED,
    ),
    OutsideNeed(names("http https"), HOST, inside=_only_loopback, way=_NAMED),
    OutsideNeed(names("scp rsync"), HOST, operand=names_a_host, way=_NAMED),
    OutsideNeed(
        names("docker docker-compose podman nerdctl buildah minikube vagrant"),
        _DAEMON,
        unless=names("--version --help version"),
        way="`sandbox.sockets` in your config.yaml opens its socket",
    ),
    OutsideNeed(names("systemctl service journalctl launchctl"), _DAEMON),
    OutsideNeed(
        names("gh glab hub kubectl helm aws gcloud az doctl flyctl heroku vercel netlify"),
        _CLUSTER,
        unless=names("--version --help version help completion"),
    ),
)
"""Kept small on purpose: the commands of a usual working day."""

_BY_PROGRAM: Final = {
    program: tuple(row for row in OUTSIDE_NEEDS if program in row.programs)
    for each in OUTSIDE_NEEDS
    for program in each.programs
}
_GIT_VALUED: Final = names("--git-dir --work-tree --namespace --super-prefix --config-env --attr-source --exec-path")
_VALUED: Final = {"git": ("Cc", _GIT_VALUED), "npm": ("", names("--prefix")), "pnpm": ("C", names("--dir --filter"))}
_PYTHON: Final = regex(r"(?:python|pypy)[0-9.]*")
_PIP: Final = regex(r"pip[0-9.]*")


def outside_needs(found: CommandScan) -> Iterator[tuple[str, str]]:
    """(the words that need it, what they need), each once. Lines that are only data, as the text of a heredoc, do not
    count."""
    seen: set[str] = set()
    for command in found.blockable:
        said = _need_of(command)
        if said is not None and said[0] not in seen:
            seen.add(said[0])
            yield said[0], said[1].what


def registry_groups(text: str) -> tuple[str, ...]:
    """The groups of hosts that the commands of a text need, each once."""
    needs = (_need_of(command) for command in find_commands(text).blockable)
    return tuple(dict.fromkeys(said[1].group for said in needs if said is not None and said[1].group))


_ARCHIVE: Final = OutsideNeed(names("git"), _REMOTE)


def _need_of(command: FoundCommand) -> tuple[str, OutsideNeed] | None:
    program, arguments = command.program, command.arguments
    if _PYTHON.fullmatch(program) and arguments[:2] in (("-m", "pip"), ("-m", "pipx"), ("-m", "uv")):
        program, arguments = arguments[1], arguments[2:]
    if _PIP.fullmatch(program):
        program = "pip"
    rows = _BY_PROGRAM.get(program, ())
    if not rows:
        return None
    if program == "git" and has_long(arguments, "--remote", 4) and "archive" in arguments:
        return "git archive --remote", _ARCHIVE
    short, long = _VALUED.get(program, ("", frozenset()))
    _, start = leading_options(arguments, short, long)
    operands = plain_operands(arguments[start:])
    leading = {" ".join(operands[:1]), " ".join(operands[:2])}
    for row in rows:
        if row.unless & {*leading, *arguments}:
            continue
        if row.subcommands and not row.subcommands & (leading if operands else {""}):
            continue
        if row.operand is not None and not any(map(row.operand, operands)):
            continue
        if row.inside is not None and row.inside(operands):
            continue
        shown = max(row.subcommands & leading, key=len, default="")
        return f"{program} {shown}".strip(), row
    return None
