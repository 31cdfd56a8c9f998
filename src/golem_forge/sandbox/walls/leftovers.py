"""What a command made or changed that other programs run or obey: reported afterwards, because it stays writable.

`obeyed_leftovers` compares names with those that programs follow without being told to. `hidden_code` reports files
that can run and that git does not show; `remove_bytecode` deletes Python's caches among them. All take a zone and
the paths that changed, look through directory handles and never through a link, within the bounds of BoundedPaths,
and refuse nothing. Git is never asked; its ignore files are read from the root of the work tree on. Threats: who
reviews a command's work by `git status` and `git diff` sees none of this and runs it with the next `pytest`, `npm
test` or shell; a command that makes 100,000 files hides one of them behind the others, so what matters most comes
first. The user may have changed some of these files while the command ran, so no text says who did it.
"""

from __future__ import annotations

import contextlib
import os
import re
import stat
import time
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator
from enum import StrEnum
from functools import lru_cache
from typing import Final

from golem_forge.core.calls import Leftover, Severity
from golem_forge.core.effects import Mark
from golem_forge.core.regex import regex
from golem_forge.sandbox import protected
from golem_forge.sandbox.errors import one_line
from golem_forge.sandbox.git.formats import LARGEST_IGNORE_FILE, GitIgnore
from golem_forge.sandbox.git.repository import git_directories, is_work_tree
from golem_forge.sandbox.handles import CONTENT, DIRECTORY, LISTING, Handle, Parts, entry_stat, read_regular
from golem_forge.sandbox.host import is_below
from golem_forge.sandbox.target import shadows_another
from golem_forge.sandbox.walls.directories import DEPTH
from golem_forge.sandbox.zones import Zone

_MOST_PATHS: Final = 20
_MOST_NAMED: Final = 5
_MOST_LISTED: Final = 12
"""Maximum number of paths that are named if each has another listed name, so that a dozen harmless ones hide no
`sitecustomize.py`.
"""
_MOST_LOOKED_AT: Final = 20_000
_ORDER_S: Final = 0.25
_LOOK_S: Final = 0.15
"""CPU seconds of a check, not wall time: the result must not depend on what else runs on this machine."""
_PATHS_PER_CLOCK: Final = 64
_DEEPEST: Final = 64
"""Components of a directory whose rank is kept, with that of each directory above it."""

_LAYOUT: Final = ("format", "db", "hooks")
"""Entries that make a directory a Subversion repository."""
_WORKING_COPY: Final = ".svn"
_HOOKS: Final = frozenset(
    {"start-commit"}
    | {f"{when}-{what}" for when in ("pre", "post") for what in ("commit", "revprop-change", "lock", "unlock")}
)
_OF_SUBVERSION: Final = _HOOKS | {*_LAYOUT, _WORKING_COPY, "wc.db", "entries"}


class BoundedPaths:
    """The paths that changed, those that matter most first, as many as its bounds allow.

    Threat: a command that makes 100,000 files would hold up Forge, and hide one of them behind the others.
    """

    def __init__(self, changed: Iterable[Parts], matters: Callable[[str], bool] = lambda name: False) -> None:
        """First what lies outside dependency directories and has a name that others obey, or one that `matters`."""
        self._until = time.thread_time() + _ORDER_S
        ranked: tuple[list[Parts], ...] = ([], [], [])
        known: dict[Parts, int] = {(): 1}
        in_order = True
        for count, parts in enumerate(set(changed)):
            in_order = in_order and (count % _PATHS_PER_CLOCK > 0 or not self.out_of_time())
            rank = (known.get(parts[:-1]) or _rank(parts[:-1], known)) if in_order else 1
            if rank == 1 and in_order and parts and (matters(parts[-1]) or protected.is_listed(parts[-1])):
                rank = 0
            ranked[rank].append(parts)
        self.paths: list[Parts] = []
        for paths in ranked:
            self.paths += sorted(paths[: _MOST_LOOKED_AT - len(self.paths)])
        self._until = time.thread_time() + _LOOK_S
        self._all = sum(map(len, ranked))
        self._dependencies = len(ranked[2])
        self.unseen = 0
        """How many were left out; complete once the paths were gone through."""

    def __iter__(self) -> Iterator[Parts]:
        self.unseen = self._all
        for count, parts in enumerate(self.paths):
            if not count % _PATHS_PER_CLOCK and self.out_of_time():
                return
            self.unseen -= 1
            yield parts

    def out_of_time(self) -> bool:
        return time.thread_time() > self._until

    def unseen_leftovers(self, kind: str, text: str) -> Iterator[Leftover]:
        """One line about what was left out, if anything was. Of dependency directories alone it is a note: installers
        fill them with as many files."""
        if self.unseen:
            severity = Severity.NOTE if self.unseen <= self._dependencies else Severity.WARNING
            yield Leftover(kind=kind, severity=severity, text=f"{self.unseen:,} further {text}")


def obeyed_leftovers(zone: Zone, changed: Iterable[Parts]) -> Iterator[Leftover]:
    """`changed`: paths of the zone that a command made or changed; what is gone again is left out."""
    above = tuple(part for part in zone.host.split("/") if part)
    links = protected.own_code_in(zone.host).links
    bounded = BoundedPaths(changed, lambda name: name in _OF_SUBVERSION)
    filled: set[Parts] = set()
    """Directories of which something that they hold is among the paths."""
    for parent in {parts[:-1] for parts in bounded.paths}:
        while parent and parent not in filled:
            filled.add(parent)
            parent = parent[:-1]
    own: list[Parts] = []
    obeyed: dict[Parts, str] = {}
    instructions: dict[Parts, str] = {}
    hooks: dict[Parts, str] = {}
    working_copies: dict[Parts, str] = {}
    for parts in bounded:
        if not parts or protected.GIT_FILE in parts:  # a branch may be called `x.pth`
            continue
        hooks |= dict.fromkeys(_subversion_hooks(zone, parts), "")
        if _WORKING_COPY in parts and parts[-1] in _OF_SUBVERSION and _entry(zone, parts) is not None:
            working_copies[parts[: parts.index(_WORKING_COPY) + 1]] = ""
        if parts in links:
            if _exists(zone, parts, filled):
                own.append(parts)
        elif Mark.PROTECTED_PATH in protected.marks((*above, *parts), unprotect=zone.unprotect):
            deeper = len(parts) > DEPTH + 1 and not protected.in_dependencies(parts)
            if deeper and _exists(zone, parts, filled):
                obeyed[parts] = "protected"
        elif protected.in_dependencies(parts):  # installers leave hundreds, which nothing reads there
            continue
        elif (name := _obeyed_by(zone, parts, above)) is not None:
            if _exists(zone, parts, filled):
                obeyed[parts] = name
        elif protected.is_instructions(parts) and _exists(zone, parts, filled):
            instructions[parts] = parts[-1].casefold()
    exchanged = "Exchanged, and your next `forge` starts through it; look where it leads before you run Forge again"
    followed = "Made or changed, and other programs obey it without being told to"
    told = "Made or changed, and other agents read it as instructions"
    run = "Made or changed, and Subversion runs it (svnserve, or svn with a file:// address); read it first"
    asked = "Made or changed, and svn obeys what it says about servers and files"
    for kind, severity, text, found in (
        ("own_code", Severity.CRITICAL, exchanged, dict.fromkeys(own, "")),
        ("obeyed_name", Severity.WARNING, followed, obeyed),
        ("obeyed_name", Severity.WARNING, told, instructions),
        ("obeyed_name", Severity.WARNING, run, hooks),
        ("obeyed_name", Severity.NOTE, asked, working_copies),
    ):
        if found:
            yield _obeyed_leftover(zone, kind, severity, text, found)
    text = "paths changed while the command ran; their names were not compared with those that other programs obey"
    yield from bounded.unseen_leftovers("obeyed_name", text)


def _subversion_hooks(zone: Zone, parts: Parts) -> Iterator[Parts]:
    """Programs that a Subversion repository runs: those at this path, or, if the path is what makes a directory such a
    repository, all of it."""
    *above, name = parts
    if name in _HOOKS and above[-1:] == ["hooks"]:
        repository, names = parts[:-2], [name]
    elif name in _LAYOUT:
        repository, names = parts[:-1], sorted(_HOOKS)
    else:
        return
    if all(_entry(zone, (*repository, each)) is not None for each in _LAYOUT):
        for each in names:
            info = _entry(zone, (*repository, "hooks", each))
            if info is not None and (stat.S_ISLNK(info.st_mode) or info.st_mode & 0o111):
                yield (*repository, "hooks", each)


def _rank(directory: Parts, known: dict[Parts, int]) -> int:
    """Returns the rank of everything in a directory: 0 if programs obey names there, 2 in dependency directories. Adds
    to `known`.
    """
    if len(directory) > _DEEPEST:
        return 2 if protected.in_dependencies((*directory, "")) else int(not any(map(protected.is_listed, directory)))
    depth = next(depth for depth in range(len(directory), -1, -1) if directory[:depth] in known)
    rank = known[directory[:depth]]
    for length in range(depth + 1, len(directory) + 1):
        name = directory[length - 1]
        if rank != 2 and protected.in_dependencies((name, "")):
            rank = 2
        elif rank == 1 and protected.is_listed(name):
            rank = 0
        known[directory[:length]] = rank
    return rank


def _obeyed_by(zone: Zone, parts: Parts, above: Parts) -> str | None:
    name = protected.obeyed_by(parts, above)
    return parts[-1] if not name and shadows_another(zone, parts) else name


def _exists(zone: Zone, parts: Parts, filled: set[Parts]) -> bool:
    """A directory counts only where nothing of what is in it is named: it may have been moved there whole."""
    info = _entry(zone, parts)
    return info is not None and (not stat.S_ISDIR(info.st_mode) or parts not in filled)


def _entry(zone: Zone, parts: Parts) -> os.stat_result | None:
    """Returns the stat of a path without following links; None if it is missing."""
    with contextlib.suppress(OSError, ValueError):
        directory = zone.open(parts[:-1], DIRECTORY)
        return entry_stat(parts[-1], directory.fd)
    return None


def _obeyed_leftover(zone: Zone, kind: str, severity: Severity, text: str, found: dict[Parts, str]) -> Leftover:
    """`found`: each path with the name on our lists that it is obeyed by. Of each such name one comes first, and what
    has none last: many of one kind do not push the others out of sight."""
    turns = dict(zip(found, _turns(found.values()), strict=True))
    ordered = sorted(found, key=lambda parts: (not found[parts], turns[parts], parts))
    paths = [_shown(zone, parts) for parts in ordered]
    most = max(_MOST_NAMED, min(_MOST_LISTED, len({*found.values()})))
    more = f" and {len(paths) - most} more" if len(paths) > most else ""
    text = f"{text}: {', '.join(paths[:most])}{more}"
    return Leftover(kind=kind, severity=severity, text=text, paths=tuple(paths[:_MOST_PATHS]))


HIDDEN_CODE: Final = "hidden_code"
_MOST_GROUPS: Final = 10
_MOST_PLACES: Final = 3
_IGNORE_FILE: Final = ".gitignore"
_CACHE: Final = "__pycache__"
_GIT: Final = ".git"
_NAMES: Final = re.IGNORECASE | re.DOTALL
_COMPILED: Final = regex(
    r".+\.(?:py[co]|pyd|so(?:\.[0-9.]+)?|dll|dylib|node|jar|class|wasm|exe|o|obj|a|lib|rlib|rmeta|beam|elc|eln|zwc|luac"
    r"|gch|pch|cm[aiox]|cmxs|hi|pkl|pickle)",
    _NAMES,
)
_LOADED: Final = regex(r".+\.(?:py[co]|pyd|so(?:\.[0-9.]+)?)", _NAMES)
"""Files that Python loads instead of a source beside them. Reported in every zone; objects of a build are ordinary
work.
"""
_METADATA: Final = (".egg-info", ".dist-info", ".egg-link")
_SCRIPT: Final = regex(
    r".+\.(?:pyw?|pyx|pth|ipynb|[cm]?jsx?|[cm]?tsx?|vue|svelte|sh|bash|zsh|fish|csh|ksh|rb|rake|gemspec|pl|pm|php|phar"
    r"|lua|tcl|awk|r|jl|exs?|erl|el|vim|ps1|bat|cmd|mk|mak|cmake|gradle|kts?|groovy|java|scala|cs|swift|go|rs|nix|bzl"
    r"|d|ninja|rc)|activate(?:\..+)?|(?:requirements|constraints).*\.txt",
    _NAMES,
)
_SCRIPT_NAMES: Final = frozenset(
    {
        *("makefile", "gnumakefile", "rakefile", "justfile", ".justfile", "dockerfile", "containerfile", "vagrantfile"),
        *("jenkinsfile", "procfile", "gemfile", "tiltfile", "brewfile", "build", "workspace", "taskfile.yml"),
        *("taskfile.yaml", "cmakelists.txt", "cmakecache.txt", "cmakepresets.json", "cmakeuserpresets.json"),
        *("meson.txt", "meson_options.txt", "package.json", "pyproject.toml", "setup.cfg", "tox.ini", "pytest.ini"),
        *("mypy.ini", "pylintrc", "cargo.toml", "pom.xml", "deno.json", "deno.jsonc", "go.work", "local.properties"),
        ".flaskenv",
    }
)
"""Names that interpreters, test runners and build programs take for code without being told to. Only for what is said
first and in which words: any other file that git hides is told too, unless it is inert."""
_INERT: Final = regex(
    r".+\.(?:log|txt|md|rst|adoc|csv|tsv|pdf|png|jpe?g|gif|webp|bmp|ico|tiff?|mp[34]|wav|ogg|webm|woff2?|ttf|otf)"
    r"|\.coverage(?:\..+)?|\.ds_store|thumbs\.db",
    _NAMES,
)
"""Names of what no program runs or obeys. Short on purpose: a list of what is obeyed always misses some."""
_ENTRY_DIRECTORIES: Final = frozenset({"bin", ".bin", "scripts"})
_OWN_CACHES: Final = frozenset({".pytest_cache", ".mypy_cache", ".ruff_cache", ".hypothesis"})
"""Test runners and linters put a `.gitignore` of `*` into these. What can run in them is told all the same."""


class _CodeClass(StrEnum):
    """Kinds of leftover code; each text is used after one path and, after a number, for several."""

    COMPILED = "compiled code, which runs without its source being read"
    METADATA = "package metadata, whose plug-ins Python loads"
    SELF_HIDING = ".gitignore that hides itself and what lies beside it"
    LEAVING = "link out of the zone"
    CODE = "code"
    OTHER = "file that a program may read as its input or settings"
    DEPENDENCY = "code in dependency directories"


def hidden_code(
    zone: Zone,
    changed: Iterable[Parts],
    tracked: Callable[[Parts], bool],
    *,
    person_ignores: bytes = b"",
) -> tuple[Leftover, ...]:
    """`changed`: paths of the zone made or changed while a command ran. `tracked`: whether git's index has a path.
    `person_ignores`: the content of the person's own `core.excludesFile`. In a zone that lies in no work tree git shows
    nothing, so only names that are no ordinary work are told there."""
    bounded = BoundedPaths(changed, _runs_by_name)
    found: dict[_CodeClass, list[Parts]] = {one: [] for one in _CodeClass}
    tree = _work_tree(zone)
    view = _GitView(zone, tree, tracked, person_ignores, bounded.out_of_time) if tree is not None else None
    for parts, info in _existing_files(zone, bounded):
        one = _class_by_name(zone, parts, info) if view is None else _class_in_git(view, parts, info)
        if one is not None:
            found[one].append(parts)
    told = _hidden_code_leftovers(zone, found, "where git does not show it" if view is not None else "")
    return (
        *told,
        *bounded.unseen_leftovers(HIDDEN_CODE, "paths changed while the command ran; Forge did not check them"),
    )


def remove_bytecode(zone: Zone, changed: Iterable[Parts]) -> tuple[Leftover, ...]:
    """Deletes bytecode made or changed in `__pycache__` outside dependency directories: a cache, which Python writes
    again. It cannot be kept read-only instead: that would cost a mount for every package. A `__pycache__` that is a
    link goes too, and of one that came whole everything."""
    caches = [parts for parts in changed if _CACHE in parts]
    installed = {above: protected.in_dependencies((*above, "")) for above in {parts[:-1] for parts in caches}}
    bounded = BoundedPaths(parts for parts in caches if not installed[parts[:-1]])
    removed: list[Parts] = []
    for parts in bounded:
        if parts[-1] == _CACHE:
            removed += _emptied(zone, parts, bounded)
        elif parts[-2] == _CACHE and parts[-1].endswith(".pyc") and _unlinked(zone, parts):
            removed.append(parts)
    told = [
        *bounded.unseen_leftovers(
            HIDDEN_CODE, f"files of bytecode may be in {_CACHE}; delete these directories before you run Python"
        )
    ]
    if removed:
        text = f"Bytecode in {_CACHE}, {_amount(removed)}made or changed while the command ran, was deleted after it"
        told.insert(0, _hidden_code_leftover(zone, Severity.WARNING, text, removed))
    return tuple(told)


# ---- what stands there


def _existing_files(zone: Zone, paths: Iterable[Parts]) -> Iterator[tuple[Parts, os.stat_result]]:
    """Files and links that are still there, in order; of repositories' own directories nothing."""
    directory: Parts | None = None
    handle: Handle | None = None
    repositories: dict[Parts, bool] = {}
    for parts in paths:
        if not parts or parts[-1] == _GIT:
            continue
        if _GIT in parts:
            place = parts[: parts.index(_GIT)]
            if place not in repositories:
                repositories[place] = _is_repository(zone, place)
            if repositories[place]:
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


def _class_in_git(view: _GitView, parts: Parts, info: os.stat_result) -> _CodeClass | None:
    link = stat.S_ISLNK(info.st_mode)
    if protected.in_dependencies(parts):
        runs = _can_run(parts, info) or (link and (_is_entry(parts) or _leaves(view.zone, parts)))
        return _CodeClass.DEPENDENCY if runs and view.hides(parts) else None
    if link and _leaves(view.zone, parts):
        return _CodeClass.LEAVING  # also where git shows it: who writes there writes outside
    if parts[-1] == _IGNORE_FILE:
        own_cache = len(parts) > 1 and parts[-2] in _OWN_CACHES
        return _CodeClass.SELF_HIDING if not own_cache and view.shows_inside(parts[:-1]) and view.hides(parts) else None
    runs = link or _can_run(parts, info)
    if not runs and (_INERT.fullmatch(parts[-1]) or not _OWN_CACHES.isdisjoint(parts[:-1])):
        return None
    return (_class_of_name(parts) if runs else _CodeClass.OTHER) if view.hides(parts) else None


def _class_by_name(zone: Zone, parts: Parts, info: os.stat_result) -> _CodeClass | None:
    if protected.in_dependencies(parts):
        return None
    if stat.S_ISLNK(info.st_mode) and _leaves(zone, parts):
        return _CodeClass.LEAVING
    if _class_of_name(parts) is _CodeClass.METADATA:
        return _CodeClass.METADATA
    return _CodeClass.COMPILED if _LOADED.fullmatch(parts[-1]) else None


def _class_of_name(parts: Parts) -> _CodeClass:
    if any(part.casefold().endswith(_METADATA) for part in parts):
        return _CodeClass.METADATA
    return _CodeClass.COMPILED if _COMPILED.fullmatch(parts[-1]) else _CodeClass.CODE


def _can_run(parts: Parts, info: os.stat_result) -> bool:
    executable = stat.S_ISREG(info.st_mode) and info.st_mode & 0o111
    return bool(
        executable
        or parts[-1].casefold() in _SCRIPT_NAMES
        or _SCRIPT.fullmatch(parts[-1])
        or _class_of_name(parts) is not _CodeClass.CODE
    )


def _runs_by_name(name: str) -> bool:
    """Whether the name looks like a program; a quick test, used for the order only."""
    return name.casefold() in _SCRIPT_NAMES or _runs_by_ending(name.rpartition(".")[2])


@lru_cache(4096)
def _runs_by_ending(ending: str) -> bool:
    name = f"x.{ending}"
    return bool(_SCRIPT.fullmatch(name) or _COMPILED.fullmatch(name))


def _is_entry(parts: Parts) -> bool:
    """Whether a shell starts or reads it by name: `.venv/bin/activate`, `node_modules/.bin/tsc`."""
    return len(parts) > 1 and parts[-2].casefold() in _ENTRY_DIRECTORIES


def _leaves(zone: Zone, parts: Parts) -> bool:
    real = os.path.realpath(zone.real(parts))
    return not is_below(real, zone.host)


def _work_tree(zone: Zone) -> tuple[str, Parts] | None:
    """Its root, a host path, and from there to the zone's root: nothing, where that is the root itself."""
    names = tuple(part for part in zone.host.split("/") if part)
    for depth in range(len(names), -1, -1):
        root = "/" + "/".join(names[:depth])
        if is_work_tree(root):
            return root, names[depth:]
    return None


class _GitView:
    """The ignored files of a work tree, for a zone at its root or below."""

    def __init__(
        self,
        zone: Zone,
        tree: tuple[str, Parts],
        tracked: Callable[[Parts], bool],
        person_ignores: bytes,
        is_over: Callable[[], bool],
    ) -> None:
        self.zone = zone
        root, self._above = tree
        self._tracked = tracked
        self._is_over = is_over
        common = git_directories(root)[1]
        excluded = _host_content(os.path.join(common, "info", "exclude"), CONTENT & ~os.O_NOFOLLOW)
        rules: GitIgnore | None = GitIgnore(person_ignores, 0)
        rules = GitIgnore(excluded, 0, rules) if excluded is not None else rules
        for depth in range(len(self._above) + 1):
            here = self._above[:depth]
            if rules is None or (here and self._left_out(rules, here, is_directory=True)):
                rules = None
                break
            in_zone = depth == len(self._above)
            host = os.path.join(root, *here, _IGNORE_FILE)
            own = _zone_content(zone, (_IGNORE_FILE,)) if in_zone else _host_content(host)
            rules = GitIgnore(own, depth, rules) if own is not None else rules
        self._known: dict[Parts, GitIgnore | None] = {(): rules}
        """Of each directory of the zone the lines that hold for its entries; None: git shows nothing in it."""

    def hides(self, parts: Parts) -> bool:
        if self._tracked(parts):
            return False
        rules = self._rules(parts[:-1])
        return rules is None or self._left_out(rules, (*self._above, *parts), is_directory=False)

    def shows_inside(self, directory: Parts) -> bool:
        return self._rules(directory) is not None

    def _rules(self, directory: Parts) -> GitIgnore | None:
        depth = next(depth for depth in range(len(directory), -1, -1) if directory[:depth] in self._known)
        for length in range(depth + 1, len(directory) + 1):
            parts = directory[:length]
            self._known[parts] = self._of(parts, self._known[parts[:-1]])
        return self._known[directory]

    def _of(self, parts: Parts, above: GitIgnore | None) -> GitIgnore | None:
        if above is None or self._is_over() or self._left_out(above, (*self._above, *parts), is_directory=True):
            return None
        if parts[-1] == _GIT or _is_repository(self.zone, parts):
            return None  # a repository of its own: the outer one names the directory at most
        own = _zone_content(self.zone, (*parts, _IGNORE_FILE))
        return above if own is None else GitIgnore(own, len(self._above) + len(parts), above)

    def _left_out(self, rules: GitIgnore, parts: Parts, *, is_directory: bool) -> bool:
        """Threat: a child must not decide for how long Forge compares with its patterns; when the time is over, the
        rest counts as hidden."""
        return rules.ignores(parts, is_directory, self._is_over)


def _zone_content(zone: Zone, parts: Parts) -> bytes | None:
    return _read(lambda: zone.open(parts, CONTENT))


def _host_content(path: str, flags: int = CONTENT) -> bytes | None:
    """Reads a file of the person outside the zone."""
    return _read(lambda: Handle(os.open(path, flags)))


def _read(opened: Callable[[], Handle]) -> bytes | None:
    """Reads an ignore file; None if there is none. A file that is unreadable or too long counts as `*`, so that rather
    too much is reported.
    """
    try:
        handle = opened()
        data = read_regular(handle.fd, LARGEST_IGNORE_FILE + 1) or b""
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (OSError, ValueError):
        return b"*"
    return data if len(data) <= LARGEST_IGNORE_FILE else b"*"


def _is_repository(zone: Zone, parts: Parts) -> bool:
    """Git takes a directory `.git` without a HEAD for nothing; what lies in it, it never shows."""
    git = _entry(zone, (*parts, _GIT))
    return git is not None and (not stat.S_ISDIR(git.st_mode) or _entry(zone, (*parts, _GIT, "HEAD")) is not None)


# ---- bytecode


def _emptied(zone: Zone, cache: Parts, bounded: BoundedPaths) -> list[Parts]:
    """Removes the bytecode of a directory, or a link in its place, and returns what was removed."""
    try:
        handle = zone.open(cache, LISTING)
        names = [name for name in os.listdir(handle.fd) if name.endswith(".pyc")]
    except OSError:
        return [cache] if _unlinked(zone, cache) else []
    removed = []
    for done, name in enumerate(names):
        if bounded.out_of_time():
            bounded.unseen += len(names) - done
            break
        if _unlinked(zone, (*cache, name)):
            removed.append((*cache, name))
    return removed


def _unlinked(zone: Zone, parts: Parts) -> bool:
    with contextlib.suppress(OSError):
        handle = zone.open(parts[:-1], DIRECTORY)
        mode = os.stat(parts[-1], dir_fd=handle.fd, follow_symlinks=False).st_mode
        if stat.S_ISREG(mode) or stat.S_ISLNK(mode):
            os.unlink(parts[-1], dir_fd=handle.fd)
            return True
    return False


# ---- words


def _hidden_code_leftovers(zone: Zone, found: dict[_CodeClass, list[Parts]], where: str) -> Iterator[Leftover]:
    for one, paths in found.items():
        if not paths:
            continue
        text = f"{one.value[0].upper()}{one.value[1:]}, {_amount(paths)}made or changed while the command ran"
        if where and one is not _CodeClass.LEAVING:
            text += f", {where}"
        if one is _CodeClass.DEPENDENCY:  # installers fill these: ordinary work, and what a shell starts first
            paths.sort(key=lambda parts: (not _is_entry(parts), parts))
            yield _hidden_code_leftover(zone, Severity.NOTE, text, paths, group=_dependency_group)
        else:
            yield _hidden_code_leftover(zone, Severity.WARNING, text, _spread(paths))


def _hidden_code_leftover(
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
        named = [f"{_shown(zone, directory)} ({count:,})" for directory, count in list(groups.items())[:_MOST_GROUPS]]
        if rest := list(groups)[_MOST_GROUPS:]:
            places = [_shown(zone, place) for place in dict.fromkeys(directory[:1] for directory in rest)]
            below = ", ".join(places) if len(places) <= _MOST_PLACES else _shown(zone, ())
            named.append(f"{len(rest):,} more directories below {below}")
    return Leftover(kind=HIDDEN_CODE, severity=severity, text=f"{text}: {', '.join(named)}", paths=shown)


def _spread(paths: list[Parts]) -> list[Parts]:
    """One of each directory first, if not all can be named: many in one do not push another out of sight."""
    if len(paths) <= _MOST_PATHS:
        return paths
    turns = _turns(parts[:-1] for parts in paths)
    return [parts for _, parts in sorted(zip(turns, paths, strict=True), key=lambda each: each[0])]


def _turns(groups: Iterable[Hashable]) -> Iterator[int]:
    """Yields for each entry how many of its group came before; sorted by that, each group has its first before any has
    its second.
    """
    seen: Counter[Hashable] = Counter()
    for group in groups:
        yield seen[group]
        seen[group] += 1


def _dependency_group(parts: Parts) -> Parts:
    """Returns the directory that groups a path's dependencies, such as `.venv/lib`."""
    start = next(depth for depth in range(1, len(parts) + 1) if protected.in_dependencies((*parts[:depth], "")))
    return parts[: min(start + 1, len(parts) - 1)]


def _shown(zone: Zone, parts: Parts) -> str:
    return one_line(zone.virtual(parts))


def _amount(paths: list[Parts]) -> str:
    return f"{len(paths):,} files " if len(paths) > 1 else ""
