"""Code that git does not show: files that can run, made or changed in a zone while a command ran.

`hidden_code` tells of them, `remove_bytecode` deletes Python's caches among them. Both take the paths that changed and
look at what stands there now, through directory handles and never through a link. Refuses nothing. Threat: who reviews
a command's work by `git status` and `git diff` sees none of this, and runs it with the next `pytest`, `npm test` or
shell. The person may have changed some of these files while the command ran, so no text says who did it.
"""

from __future__ import annotations

import contextlib
import os
import re
import stat
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from enum import StrEnum
from typing import Final

from golem_forge.core.leftovers import Leftover, Severity
from golem_forge.core.visible import visible
from golem_forge.sandbox.access import CONTENT, DIRECTORY, Handle
from golem_forge.sandbox.protected import in_dependencies
from golem_forge.sandbox.walls.git_ignores import LARGEST, Ignores
from golem_forge.sandbox.walls.listing import Parts
from golem_forge.sandbox.zones import Zone

KIND: Final = "hidden_code"
_MOST_PATHS: Final = 20
_MOST_NAMED: Final = 5
_MOST_LOOKED_AT: Final = 20_000
"""About half a second."""
_MATCHING_S: Final = 2.0
"""After this time the rest counts as hidden: a child must not decide for how long Forge compares with its patterns."""
_IGNORE_FILE: Final = ".gitignore"
_CACHE: Final = "__pycache__"
_COMPILED: Final = re.compile(r".+\.(?:py[co]|pyd|so(?:\.[0-9.]+)?|dll|dylib|node|jar|class|wasm|exe)", re.IGNORECASE)
_METADATA: Final = re.compile(r".+\.(?:egg-info|dist-info|egg-link)", re.IGNORECASE)
_SCRIPT: Final = re.compile(
    r".+\.(?:pyw?|pyx|pth|ipynb|[cm]?jsx?|[cm]?tsx?|vue|svelte|sh|bash|zsh|fish|csh|ksh|rb|rake|gemspec|pl|pm|php|phar"
    r"|lua|tcl|awk|r|jl|exs?|erl|el|vim|ps1|bat|cmd|mk|mak|cmake|gradle|kts?|groovy|java|scala|cs|swift|go|rs|nix|bzl)"
    r"|(?:gnu)?makefile|rakefile|\.?justfile|dockerfile|containerfile|vagrantfile|jenkinsfile|procfile|gemfile"
    r"|tiltfile|brewfile|build|workspace|cmakelists\.txt|taskfile\.ya?ml|package\.json|pyproject\.toml|setup\.cfg"
    r"|tox\.ini|pytest\.ini|cargo\.toml|pom\.xml|deno\.jsonc?|activate(?:\..+)?",
    re.IGNORECASE,
)
"""Names that interpreters, test runners and build programs take for code without being told to."""
_ENTRY_DIRECTORIES: Final = frozenset({"bin", ".bin", "scripts"})
_OWN_CACHES: Final = frozenset({".pytest_cache", ".mypy_cache", ".ruff_cache", ".hypothesis"})
"""Test runners and linters put a `.gitignore` of `*` into these. What can run in them is told all the same."""


class _Class(StrEnum):
    """What is told apart, in words that hold for one path and, behind a number, for several."""

    COMPILED = "compiled code, which runs without its source being read"
    METADATA = "package metadata, whose plug-ins Python loads"
    SELF_HIDING = ".gitignore that hides itself and what lies beside it"
    LEAVING = "link out of the zone"
    CODE = "code"
    DEPENDENCY = "code in dependency directories"


def hidden_code(
    zone: Zone,
    changed: Iterable[Parts],
    tracked: Callable[[Parts], bool],
    is_repository: bool,
    *,
    person_ignores: bytes = b"",
) -> tuple[Leftover, ...]:
    """`changed`: paths of the zone made or changed while a command ran. `tracked`: whether git's index has a path.
    `is_repository`: whether the zone's root is a work tree; git shows nothing of any other zone, so only names that
    are no ordinary work are told there. `person_ignores`: the content of the person's own `core.excludesFile`."""
    paths = sorted(set(changed), key=lambda parts: (in_dependencies(parts), parts))
    looked_at = _standing(zone, paths[:_MOST_LOOKED_AT])
    found: dict[_Class, list[Parts]] = {one: [] for one in _Class}
    if is_repository:
        view = _GitView(zone, tracked, person_ignores)
        for parts, info in looked_at:
            if one := _class_in_git(view, parts, info):
                found[one].append(parts)
    else:
        for parts, info in looked_at:
            if one := _class_by_name(zone, parts, info):
                found[one].append(parts)
    told = [*_told(zone, found, "where git does not show it" if is_repository else "")]
    if unseen := len(paths[_MOST_LOOKED_AT:]):
        text = f"{unseen:,} further paths changed while the command ran; they were not looked at"
        told.append(Leftover(kind=KIND, severity=Severity.WARNING, text=text))
    return tuple(told)


def remove_bytecode(zone: Zone, changed: Iterable[Parts]) -> tuple[Leftover, ...]:
    """Deletes bytecode made or changed in `__pycache__` outside dependency directories: a cache, which Python writes
    again. It cannot be kept read-only instead: that would cost a mount for every package. A `__pycache__` that is a
    link goes too, and of one that came whole everything."""
    removed: list[Parts] = []
    for parts in sorted(set(changed)):
        if _CACHE not in parts or in_dependencies((*parts, "")):
            continue
        if parts[-1] == _CACHE:
            removed += _emptied(zone, parts)
        elif parts[-2] == _CACHE and parts[-1].endswith(".pyc") and _unlinked(zone, parts):
            removed.append(parts)
    if not removed:
        return ()
    text = f"Bytecode in __pycache__, {_amount(removed)}made or changed while the command ran, was deleted after it"
    return (_leftover(zone, Severity.WARNING, text, removed),)


# ---- what stands there


def _standing(zone: Zone, paths: list[Parts]) -> Iterator[tuple[Parts, os.stat_result]]:
    """Files and links that are still there, in order; of repositories' own directories nothing."""
    directory: Parts | None = None
    handle: Handle | None = None
    for parts in paths:
        if not parts or ".git" in parts:
            continue
        if directory != parts[:-1]:
            directory = parts[:-1]
            try:
                handle = zone.open(directory, DIRECTORY)
            except OSError:
                handle = None
        if handle is None:
            continue
        try:
            info = os.stat(parts[-1], dir_fd=handle.fd, follow_symlinks=False)
        except (OSError, ValueError):
            continue
        if stat.S_ISREG(info.st_mode) or stat.S_ISLNK(info.st_mode):
            yield parts, info


def _class_in_git(view: _GitView, parts: Parts, info: os.stat_result) -> _Class | None:
    link = stat.S_ISLNK(info.st_mode)
    if in_dependencies(parts):
        runs = _can_run(parts, info) or (link and (_is_entry(parts) or _leaves(view.zone, parts)))
        return _Class.DEPENDENCY if runs and view.hides(parts) else None
    if link and _leaves(view.zone, parts):
        return _Class.LEAVING  # also where git shows it: who writes there writes outside
    if parts[-1] == _IGNORE_FILE:
        own_cache = len(parts) > 1 and parts[-2] in _OWN_CACHES
        return _Class.SELF_HIDING if not own_cache and view.shows_inside(parts[:-1]) and view.hides(parts) else None
    return _class_of(parts) if (link or _can_run(parts, info)) and view.hides(parts) else None


def _class_by_name(zone: Zone, parts: Parts, info: os.stat_result) -> _Class | None:
    if in_dependencies(parts):
        return None
    if stat.S_ISLNK(info.st_mode) and _leaves(zone, parts):
        return _Class.LEAVING
    one = _class_of(parts)
    return None if one is _Class.CODE else one


def _class_of(parts: Parts) -> _Class:
    if any(map(_METADATA.fullmatch, parts)):
        return _Class.METADATA
    return _Class.COMPILED if _COMPILED.fullmatch(parts[-1]) else _Class.CODE


def _can_run(parts: Parts, info: os.stat_result) -> bool:
    executable = stat.S_ISREG(info.st_mode) and info.st_mode & 0o111
    return bool(executable or _SCRIPT.fullmatch(parts[-1])) or _class_of(parts) is not _Class.CODE


def _is_entry(parts: Parts) -> bool:
    """What a shell starts, or reads, by its name: `.venv/bin/activate`, `node_modules/.bin/tsc`."""
    return len(parts) > 1 and parts[-2].casefold() in _ENTRY_DIRECTORIES


def _leaves(zone: Zone, parts: Parts) -> bool:
    real = os.path.realpath(zone.real(parts))
    return zone.host != "/" and real != zone.host and not real.startswith(f"{zone.host}/")


class _GitView:
    """What git leaves out of a work tree that begins at the zone's root."""

    def __init__(self, zone: Zone, tracked: Callable[[Parts], bool], person_ignores: bytes) -> None:
        self.zone = zone
        self._tracked = tracked
        self._left_s = _MATCHING_S
        rules = Ignores(person_ignores, 0)
        excluded = _content(zone, (".git", "info", "exclude"))
        rules = Ignores(excluded, 0, rules) if excluded is not None else rules
        own = _content(zone, (_IGNORE_FILE,))
        self._known: dict[Parts, Ignores | None] = {(): Ignores(own, 0, rules) if own is not None else rules}
        """Of each directory the lines that hold for its entries; None: git shows nothing in it."""

    def hides(self, parts: Parts) -> bool:
        """Of a file or a link."""
        if self._tracked(parts):
            return False
        rules = self._rules(parts[:-1])
        return rules is None or self._left_out(rules, parts, is_directory=False)

    def shows_inside(self, directory: Parts) -> bool:
        return self._rules(directory) is not None

    def _rules(self, directory: Parts) -> Ignores | None:
        depth = next(depth for depth in range(len(directory), -1, -1) if directory[:depth] in self._known)
        for length in range(depth + 1, len(directory) + 1):
            parts = directory[:length]
            self._known[parts] = self._of(parts, self._known[parts[:-1]])
        return self._known[directory]

    def _of(self, parts: Parts, above: Ignores | None) -> Ignores | None:
        if above is None or self._left_out(above, parts, is_directory=True):
            return None
        if _is_there(self.zone, (*parts, ".git")):
            return None  # a repository of its own: the outer one names the directory at most
        own = _content(self.zone, (*parts, _IGNORE_FILE))
        return above if own is None else Ignores(own, len(parts), above)

    def _left_out(self, rules: Ignores, parts: Parts, *, is_directory: bool) -> bool:
        if self._left_s < 0:
            return True
        began = time.perf_counter()
        found = rules.leave_out(parts, is_directory)
        self._left_s -= time.perf_counter() - began
        return found


def _content(zone: Zone, parts: Parts) -> bytes | None:
    """None: there is none. One that cannot be read, or is longer than anybody's, hides everything: we would rather tell
    too much."""
    try:
        handle = zone.open(parts, CONTENT)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (OSError, ValueError):
        return b"*"
    try:
        data = os.read(handle.fd, LARGEST + 1) if stat.S_ISREG(os.fstat(handle.fd).st_mode) else b""
    except OSError:
        return b"*"
    return data if len(data) <= LARGEST else b"*"


def _is_there(zone: Zone, parts: Parts) -> bool:
    try:
        handle = zone.open(parts[:-1], DIRECTORY)
        os.stat(parts[-1], dir_fd=handle.fd, follow_symlinks=False)
    except (OSError, ValueError):
        return False
    return True


# ---- bytecode


def _emptied(zone: Zone, cache: Parts) -> list[Parts]:
    """What was bytecode in a directory, or the link that stood in its place."""
    try:
        handle = zone.open(cache, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        names = [name for name in os.listdir(handle.fd) if name.endswith(".pyc")]
    except OSError:
        return [cache] if _unlinked(zone, cache) else []
    return [(*cache, name) for name in names if _unlinked(zone, (*cache, name))]


def _unlinked(zone: Zone, parts: Parts) -> bool:
    """A file or a link itself; never what a link leads to."""
    with contextlib.suppress(OSError):
        handle = zone.open(parts[:-1], DIRECTORY)
        mode = os.stat(parts[-1], dir_fd=handle.fd, follow_symlinks=False).st_mode
        if stat.S_ISREG(mode) or stat.S_ISLNK(mode):
            os.unlink(parts[-1], dir_fd=handle.fd)
            return True
    return False


# ---- words


def _told(zone: Zone, found: dict[_Class, list[Parts]], where: str) -> Iterator[Leftover]:
    for one, paths in found.items():
        if not paths:
            continue
        text = f"{one.value[0].upper()}{one.value[1:]}, {_amount(paths)}made or changed while the command ran"
        if where and one is not _Class.LEAVING:
            text += f", {where}"
        if one is _Class.DEPENDENCY:  # installers fill these: ordinary work, and what a shell starts first
            paths.sort(key=lambda parts: (not _is_entry(parts), parts))
            yield _leftover(zone, Severity.NOTE, text, paths, group=_dependency_group)
        else:
            yield _leftover(zone, Severity.WARNING, text, paths)


def _leftover(
    zone: Zone,
    severity: Severity,
    text: str,
    paths: list[Parts],
    *,
    group: Callable[[Parts], Parts] = lambda parts: parts[:-1],
) -> Leftover:
    """Few paths are named each, many by their directories."""
    shown = tuple(_shown(zone, parts) for parts in paths[:_MOST_PATHS])
    if len(paths) <= _MOST_NAMED:
        named = list(shown)
    else:
        groups = Counter(map(group, paths))
        named = [f"{_shown(zone, directory)} ({count:,})" for directory, count in list(groups.items())[:_MOST_NAMED]]
        if len(groups) > _MOST_NAMED:
            named.append(f"{len(groups) - _MOST_NAMED:,} more directories")
    return Leftover(kind=KIND, severity=severity, text=f"{text}: {', '.join(named)}", paths=shown)


def _dependency_group(parts: Parts) -> Parts:
    """`.venv/lib` of everything below it."""
    start = next(depth for depth in range(1, len(parts) + 1) if in_dependencies((*parts[:depth], "")))
    return parts[: min(start + 1, len(parts) - 1)]


def _shown(zone: Zone, parts: Parts) -> str:
    return visible(zone.virtual(parts)).replace("\n", "\\x0a").replace("\t", "\\x09")


def _amount(paths: list[Parts]) -> str:
    return f"{len(paths):,} files " if len(paths) > 1 else ""
