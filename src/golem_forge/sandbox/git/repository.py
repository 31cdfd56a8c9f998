"""Where the repository of a zone is, what git needs from outside it, and the paths in a zone that git's config names.

`find_repository` says where the repository is that a zone's files belong to: in it, beside it (a linked worktree) or
above it. `git_identity` returns a `.gitconfig` with the user's name and e-mail only.
GitPaths reads the config of the repositories that a zone is or lies in, and the user's own, with all includes, and
returns hooks directories, included files, attribute and exclude files and programs, existing or not, and the user's own
config of git and ssh where it lies in a zone: git runs or obeys what is there, so no command may write it. Threat: a
command makes the missing target of an `include.path`, a hook in a directory that `core.hooksPath` names, or writes the
file that `~/.gitconfig` is a link to.
"""

from __future__ import annotations

import contextlib
import os
import re
import shlex
import time
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

from golem_forge.core.regex import regex
from golem_forge.sandbox.git.formats import ConfigSyntaxError, GitSetting, read_config, unlisted_keys
from golem_forge.sandbox.handles import CONTENT, Handle, Parts, entry_stat, identity_of, read_regular
from golem_forge.sandbox.host import is_below, person_environ
from golem_forge.sandbox.protected import GIT_FILE
from golem_forge.sandbox.zones import Zone

_LARGEST_FILE: Final = 256 * 1024


class Repository(NamedTuple):
    """Where the repository is that a zone's files belong to."""

    git_dir: str
    """The host path of the git directory, which linked worktrees share."""
    in_zone: bool = True
    """It is the `.git` at the zone's root."""
    own: str = ""
    """Below `git_dir`: the part of the linked worktree that the zone is (`worktrees/x/`)."""
    below: Parts = ()
    """From the root of the work tree to the zone."""


def find_repository(zone: Zone) -> Repository | None:
    """None: there is none, or its `.git` is nothing that anybody vouches for. Nothing is promised of what is in it."""
    git = os.path.join(zone.host, GIT_FILE)
    if os.path.isdir(git) and not os.path.islink(git):
        found = all(os.path.lexists(os.path.join(git, name)) for name in ("HEAD", "objects"))
        return Repository(git) if found else None
    if os.path.lexists(git):
        return _linked_worktree(zone)
    above, below = os.path.split(zone.host)
    while below:
        git = os.path.join(above, GIT_FILE)
        if is_work_tree(above):
            parts = tuple(os.path.relpath(zone.host, above).split("/"))
            is_plain = os.path.isdir(os.path.join(git, "objects")) and not os.path.islink(git)
            return Repository(git, in_zone=False, below=parts) if is_plain else None
        above, below = os.path.split(above)
    return None


def _linked_worktree(zone: Zone) -> Repository | None:
    """The repository that the zone's root is a linked worktree of. Threat: a `.git` file could name any directory of
    the host, so what it names must point back at the zone."""
    pointer = os.path.join(zone.host, GIT_FILE)
    said = _read_text(pointer).strip() if os.path.isfile(pointer) and not os.path.islink(pointer) else ""
    if not said.startswith("gitdir:"):
        return None
    own = os.path.realpath(os.path.join(zone.host, said.removeprefix("gitdir:").strip()))
    worktrees = os.path.dirname(own)
    common = os.path.dirname(worktrees)
    if os.path.basename(worktrees) != "worktrees" or not os.path.isfile(os.path.join(common, "HEAD")):
        return None
    back = _read_text(os.path.join(own, "gitdir")).strip()
    if not back or os.path.realpath(os.path.join(own, back)) != os.path.realpath(pointer):
        return None
    shared = _read_text(os.path.join(own, "commondir")).strip()
    if os.path.realpath(os.path.join(own, shared or ".")) != common:
        return None
    if is_below(zone.host, common) or is_below(common, zone.host):
        return None
    return Repository(common, in_zone=False, own=f"worktrees/{os.path.basename(own)}/")


def is_bare(parts: Sequence[str], names: Container[str]) -> bool:
    """Whether git takes a directory with these names in it for a repository, though it is called otherwise."""
    if "HEAD" not in names or ".git" in (part.casefold() for part in parts):
        return False
    return ("objects" in names and "refs" in names) or "commondir" in names


def is_work_tree(directory: str) -> bool:
    """Whether a repository's files lie there. A `.git` without a HEAD is none."""
    git = os.path.join(directory, GIT_FILE)
    return os.path.lexists(os.path.join(git, "HEAD")) or os.path.isfile(git)


def _path_text(path: str) -> str:
    return _read_file(path, _LARGEST_CONFIG).decode("utf-8", "surrogateescape")


def git_directories(worktree: str, read: Callable[[str], str] = _path_text) -> tuple[str, str]:
    """The git directory of a work tree, and the one that it shares with others. A `.git` that is a file (a linked
    worktree, a submodule) says where it is. Nothing is promised of either: the files may be a child's."""
    git = os.path.join(worktree, GIT_FILE)
    if os.path.isfile(git):
        git = os.path.join(worktree, read(git).strip().removeprefix("gitdir:").strip())
    return git, os.path.normpath(os.path.join(git, read(os.path.join(git, "commondir")).strip()))


def personal_settings(home: str, config_home: str) -> dict[str, str]:
    """What the person set for all repositories, as far as it stands in their own files."""
    said: dict[str, str] = {}
    for settings in _global_settings(home, config_home):
        said |= settings
    return said


def git_identity(home: str, config_home: str) -> str:
    """The text of a `.gitconfig` with the person's name and e-mail; empty if they gave neither."""
    said = personal_settings(home, config_home)
    lines = [f"\t{key} = {_quoted(said[f'user.{key}'])}" for key in ("name", "email") if said.get(f"user.{key}")]
    return "\n".join(("[user]", *lines, "")) if lines else ""


def global_ignores(home: str, config_home: str) -> bytes:
    """The content of the person's `core.excludesFile`, or of the file that git reads without that setting."""
    place = os.path.join(config_home, "git", "ignore")
    for settings in _global_settings(home, config_home):
        if named := settings.get("core.excludesfile"):
            place = os.path.join(home, named.removeprefix("~/"))
    return _read_text(place).encode("utf-8", "replace")


def _global_settings(home: str, config_home: str) -> Iterator[dict[str, str]]:
    """The last value of each key, in each of the person's own files."""
    for file in (os.path.join(config_home, "git", "config"), os.path.join(home, ".gitconfig")):
        with contextlib.suppress(ConfigSyntaxError):  # git refuses the whole file too
            yield {one.name: one.value for one in read_config(_read_text(file)) if one.value is not None}


def _quoted(value: str) -> str:
    """One line, whatever the value: a line break in a name must not begin a section."""
    printable = "".join(char for char in value if char.isprintable())
    return '"' + printable.replace("\\", "\\\\").replace('"', '\\"') + '"'


def _read_text(path: str) -> str:
    return _read_file(path, _LARGEST_FILE).decode("utf-8", "replace").replace("\0", "")


def _read_file(path: str, limit: int) -> bytes:
    """The beginning of a regular file, also behind a link; empty for anything else."""
    try:
        file = Handle(os.open(path, CONTENT & ~os.O_NOFOLLOW))
        return read_regular(file.fd, limit) or b""
    except (OSError, ValueError):
        return b""


_LARGEST_CONFIG: Final = 1024 * 1024
_DEEPEST_INCLUDE: Final = 10
_MOST_HOOKS: Final = 500
_SETTLED_NS: Final = 100_000_000
_SYSTEM_CONFIG: Final = "/etc/gitconfig"

_INCLUDES: Final = frozenset({"include.path", "includeif.*.path"})
_DIRECTORIES: Final = frozenset({"core.hookspath", "init.templatedir"})
_FILES: Final = frozenset(
    {"core.attributesfile", "core.excludesfile", "gpg.*.allowedsignersfile", "gpg.*.revocationfile"}
)
_COMMAND_KEYS: Final = {
    "core": "fsmonitor editor pager sshcommand askpass gitproxy alternaterefscommand",
    "sequence": "editor",
    "diff": "external",
    "diff.*": "command textconv",
    "filter.*": "clean smudge process",
    "merge.*": "driver",
    "gpg": "program",
    "gpg.*": "program defaultkeycommand",
    "credential": "helper",
    "credential.*": "helper",
    "interactive": "difffilter",
    "uploadpack": "packobjectshook",
    "remote.*": "uploadpack receivepack",
    "mergetool.*": "cmd path",
    "difftool.*": "cmd path",
    "guitool.*": "cmd",
    "man.*": "cmd path",
    "browser.*": "cmd path",
    "trailer.*": "command cmd",
    "hook.*": "command",
    "alias.*": "command",
    "sendemail": "smtpserver sendmailcmd tocmd cccmd headercmd",
    "imap": "tunnel",
}
_COMMANDS: Final = frozenset(f"{section}.{key}" for section, keys in _COMMAND_KEYS.items() for key in keys.split())
_DATA: Final = frozenset({"safe", "gui", "maintenance", "scalar", "url", "remote", "branch", "submodule", "color"})
"""Sections of which no other value is a program: directories that somebody opened once, addresses, names."""
_INTERPRETER: Final = regex(r"(?:env|nice|time|exec|sh|bash|dash|zsh|ksh|python|node|ruby|perl|deno|bun|php|lua)[\d.]*")
_SEGMENTS: Final = regex(r"[;|&(){}\n`]+")
_TOPLEVEL: Final = regex(r"\$\(\s*git rev-parse --show-toplevel\s*\)|\$\{?GIT_(?:PREFIX|WORK_TREE)\}?")
_HOME: Final = regex(r"\$(?:HOME\b|\{HOME\})")
_NO_PATH: Final = regex(r"[%*?$<>\0]|://")


class NamedPath(NamedTuple):
    parts: Parts
    directory: bool
    """It is meant as a directory: what is missing is to be made as one."""


class _Repository(NamedTuple):
    worktree: str
    git_dir: str
    common: str


class GitPaths:
    def __init__(self, zone: Zone, *, home: str, environ: Mapping[str, str]) -> None:
        self._zone = zone
        self._home = home
        self._environ = environ
        self._nested: tuple[Parts, ...] = ()
        self._answers: dict[tuple[Callable[[str], Any], str], Any] = {}
        """What the disk was asked, and what it said."""
        self._read_at = -1
        self.paths: tuple[NamedPath, ...] = ()

    def refresh(self, nested: Iterable[Parts] = ()) -> bool:
        """Look again; True: `paths` are others than before. `nested`: directories in the zone that have a `.git`."""
        wanted = tuple(sorted(nested))
        if wanted == self._nested and not self._is_stale():
            return False
        self._nested = wanted
        self._answers = {}
        self._read_at = time.time_ns()
        found = tuple(sorted(set(self._found())))
        changed, self.paths = found != self.paths, found
        return changed

    def _is_stale(self) -> bool:
        if self._read_at < 0:
            return True
        stamps = (answer for (question, _), answer in self._answers.items() if question is _stamp and answer)
        unsettled = any(abs(self._read_at - stamp[0]) < _SETTLED_NS for stamp in stamps)
        return unsettled or any(question(path) != answer for (question, path), answer in self._answers.items())

    def _asked(self, question: Callable[[str], Any], path: str) -> Any:
        """An answer of the disk. Once it is another one, everything is looked at again."""
        answer = self._answers[question, path] = question(path)
        return answer

    def _found(self) -> Iterator[NamedPath]:
        for repository in self._repositories():
            for path in (*_configs(repository), *self._personal()):
                yield from self._named_by(path, repository, depth=0, seen=set())
            yield from self._hooks(os.path.join(repository.common, "hooks"))
        # People keep their settings in a repository and link to them.
        for path in (*self._personal(), os.path.join(self._home, ".ssh", "config")):
            yield from self._in_zone(path, directory=False)

    def _repositories(self) -> Iterator[_Repository]:
        """The one that the zone's root is in, and nested ones. Without any, personal config still names paths."""
        host = self._zone.host
        above = host
        while not self._asked(_identity, os.path.join(above, GIT_FILE)) and above != os.path.dirname(above):
            above = os.path.dirname(above)
        found = self._repository(above)
        yield found if found else _Repository(host, "", "")
        for parts in self._nested:
            if parts and (inner := self._repository(self._zone.real(parts))):
                yield inner

    def _repository(self, worktree: str) -> _Repository | None:
        if not self._asked(_identity, os.path.join(worktree, GIT_FILE)):
            return None
        return _Repository(worktree, *git_directories(worktree, self._text))

    def _personal(self) -> Iterator[str]:
        if not self._environ.get("GIT_CONFIG_NOSYSTEM"):
            yield self._environ.get("GIT_CONFIG_SYSTEM") or _SYSTEM_CONFIG
        if chosen := self._environ.get("GIT_CONFIG_GLOBAL"):
            yield chosen
            return
        config_home = self._environ.get("XDG_CONFIG_HOME", "")
        yield os.path.join(
            config_home if config_home.startswith("/") else os.path.join(self._home, ".config"), "git", "config"
        )
        yield os.path.join(self._home, ".gitconfig")

    def _named_by(self, file: str, repository: _Repository, *, depth: int, seen: set[str]) -> Iterator[NamedPath]:
        if file in seen or depth > _DEEPEST_INCLUDE:
            return
        seen.add(file)
        try:
            settings = read_config(self._text(file))
        except ConfigSyntaxError:  # git stops at such a file
            return
        for setting in settings:
            if not setting.value:
                continue
            name = f"{setting.section}.{setting.key}"
            if setting.subsection is not None:
                name = f"{setting.section}.*.{setting.key}"
            if name in _INCLUDES:
                target = self._path(setting.value, os.path.dirname(file))
                yield from self._in_zone(target, directory=False)
                yield from self._named_by(target, repository, depth=depth + 1, seen=seen)
            elif name in _FILES or name in _DIRECTORIES:
                target = self._path(setting.value, repository.worktree)
                yield from self._in_zone(target, directory=name in _DIRECTORIES)
                if name == "core.hookspath":
                    yield from self._hooks(target)
            else:
                yield from self._programs(setting, name, repository.worktree)

    def _programs(self, setting: GitSetting, name: str, worktree: str) -> Iterator[NamedPath]:
        value = setting.value or ""
        shell = value.startswith("!")
        if name in _COMMANDS or setting.section == "pager" or shell:
            for word, starts in _command_words(_TOPLEVEL.sub(lambda _: worktree, value.removeprefix("!"))):
                yield from self._program(word, worktree, missing=starts)
        elif setting.section == "alias" or setting.section in _DATA or not unlisted_keys([setting]):
            return
        else:
            first = next(iter(value.split(maxsplit=1)), "")
            yield from self._program(first, worktree, missing=first.startswith(("/", "./", "../", "~/")))

    def _program(self, word: str, worktree: str, *, missing: bool) -> Iterator[NamedPath]:
        """`missing`: what would start there counts although nothing is there yet."""
        word = _HOME.sub(lambda _: self._home, word)
        if not word or word.startswith("-") or _NO_PATH.search(word) or (missing and "/" not in word):
            return
        path = self._path(word, worktree)
        if os.path.isdir(path):
            return
        if missing or self._asked(os.path.isfile, path):
            yield from self._in_zone(path, directory=False)

    def _hooks(self, directory: str) -> Iterator[NamedPath]:
        """What linked hooks lead to."""
        self._asked(_stamp, directory)
        if os.path.islink(directory):
            yield from self._in_zone(directory, directory=True)
        with contextlib.suppress(OSError), os.scandir(directory) as found:
            for _, entry in zip(range(_MOST_HOOKS), found, strict=False):
                if entry.is_symlink():
                    yield from self._in_zone(entry.path, directory=False)

    def _in_zone(self, path: str, *, directory: bool) -> Iterator[NamedPath]:
        """A path as it is written and where it leads, if that is in the zone. Not below the zone's own `.git`, which
        commands never write."""
        for each in {os.path.normpath(path), self._asked(os.path.realpath, path)}:
            parts = self._zone.inside([part for part in each.split("/") if part])
            if parts and parts[0].casefold() != GIT_FILE:
                yield NamedPath(parts, directory)

    def _path(self, value: str, base: str) -> str:
        value = value.removeprefix(":(optional)")
        if value.startswith("~/") or value == "~":
            return os.path.join(self._home, value[2:])
        return os.path.join(base, os.path.expanduser(value))

    def _text(self, path: str) -> str:
        self._asked(_stamp, path)
        return _path_text(path)


def is_named_by_git(zone: Zone, parts: Parts) -> bool:
    """Whether git, by its settings, runs or obeys what is at this path, below or above it."""
    known = GitPaths(zone, home=os.path.expanduser("~"), environ=person_environ())
    known.refresh()
    return any(parts[: len(one.parts)] == one.parts[: len(parts)] for one in known.paths) and bool(parts)


def _configs(repository: _Repository) -> Iterator[str]:
    if repository.common:
        yield os.path.join(repository.common, "config")
        yield from sorted({os.path.join(one, "config.worktree") for one in (repository.common, repository.git_dir)})


def _command_words(command: str) -> Iterator[tuple[str, bool]]:
    """The words of a command line, and of each whether something starts there: a program, or a script behind an
    interpreter. Quotes are taken off, so that what stands in `sh -c '…'` counts too."""
    with contextlib.suppress(ValueError):  # also whole, where a path has spaces in it
        yield from ((word, False) for word in shlex.split(command) if " " in word)
    for segment in _SEGMENTS.split(command):
        starts = True
        for word in re.split(r"[\s\"'=,]+", segment):
            if not word:
                continue
            yield word, starts
            if starts and not word.startswith("-"):
                starts = _INTERPRETER.fullmatch(os.path.basename(word)) is not None


def _stamp(path: str) -> tuple[int, ...] | None:
    try:
        found = os.stat(path)
    except (OSError, ValueError):
        return None
    return found.st_ctime_ns, found.st_ino, found.st_dev, found.st_size


def _identity(path: str) -> tuple[int, int] | None:
    """What is or is not a repository; what changes in one does not count."""
    found = entry_stat(path)
    return identity_of(found) if found else None
