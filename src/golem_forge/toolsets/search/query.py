"""Searches in zones: the records of one search, the paths it may not look into, and the choice of what is shown.

SearchQuery is one search as an engine is asked to do it. SearchMatches is what it found so far; they grow while an
engine works, so that what was found is there when the time is up.

WithheldPaths says what a walk through a zone may not look into, because reading it would need a question of its own. It
takes the path that was named and judged, and the rules about paths; it answers for everything below it. Withheld are
secrets and what a read rule of `ask` or `blocked` speaks of. What the call itself named was asked for, so neither its
own secrecy nor a rule that matched it counts again below it; a rule that speaks only of something deeper still does.

`newest_files` and `first_files` choose what is shown, whichever engine found it. Engines work by names, and names
change: every file found is looked at once more by the descriptor of its directory, without following a link, and what
is gone, or something else by now, is left out. Both block; call them in a thread.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable, Iterator, Sequence
from enum import StrEnum
from operator import itemgetter
from typing import TYPE_CHECKING, Final, NamedTuple

from golem_forge.core.effects import Mark
from golem_forge.core.lazy_dataclass import dataclass, field
from golem_forge.sandbox import protected
from golem_forge.sandbox.handles import CONTENT, DIRECTORY, Handle
from golem_forge.sandbox.target import MAX_DEPTH, Target
from golem_forge.sandbox.walls.model import PathRule, is_masked
from golem_forge.sandbox.zones import Zone
from golem_forge.tools.pattern_child import SAMPLE_BYTES, IncludeGlob, is_binary
from golem_forge.tools.validation import InputInvalid

if TYPE_CHECKING:
    from golem_forge.events.redaction import Redactor

MAX_LINE_TEXT: Final = 500
"""Maximum characters of a line's text."""


class SearchMode(StrEnum):
    FILES = "files"
    LINES = "lines"


class MatchLine(NamedTuple):
    path: str
    """The virtual path."""
    number: int
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchRoot:
    """Where to search: a directory or one file in one zone."""

    zone: Zone
    parts: tuple[str, ...]
    entry: Handle
    """The handle that was judged."""
    is_file: bool
    withheld: WithheldPaths
    include: IncludeGlob | None
    masked: bool = False
    """Walls would hide the place itself, although this call may read it."""

    def virtual(self, path: str) -> str:
        """Returns the virtual path; `path` is relative to the zone's root."""
        return f"/{self.zone.name}/{path}"

    @property
    def levels(self) -> int:
        """Maximum depth of the search below it; 0 for a file."""
        return 0 if self.is_file else MAX_DEPTH - len(self.parts)

    def may_show(self, parts: tuple[str, ...]) -> bool:
        """Whether a path that an engine found may be read and was asked for."""
        if self.is_file:
            return True
        return (self.include is None or self.include(parts)) and not self.withheld(parts)


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchQuery:
    pattern: str
    ignore_case: bool
    mode: SearchMode
    include: str
    limit: int
    places: tuple[SearchRoot, ...]
    """The roots in the order of their paths."""
    until: float = 0.0
    """The deadline by the event loop's clock; set when the search begins."""
    redactor: Redactor | None = None
    """Redacts lines before they are cut."""


@dataclass(slots=True)
class SearchMatches:
    limit: int
    found: list[tuple[SearchRoot, str]] = field(default_factory=list)
    """Files with a match, by their path from the zone's root, as an engine found them: in any order, and not yet asked
    whether they may be shown."""
    lines: list[MatchLine] = field(default_factory=list)
    """Matches that may be shown, in path order."""
    more: bool = False
    stopped: bool = False
    """Whether the time limit ended the search."""

    def add_line(self, line: MatchLine) -> bool:
        """Adds a line. Returns False once nothing further is needed."""
        if len(self.lines) == self.limit:
            self.more = True
        else:
            self.lines.append(line)
        return not self.more


def bad_pattern(problem: str) -> InputInvalid:
    return InputInvalid(f"grep_files: pattern: {problem}", fields=(("pattern", problem),))


class WithheldPaths:
    """The paths of one zone that are not shown, below the named target (or in the whole zone, if `/` was named)."""

    def __init__(self, named: Target, zone: Zone, rules: Sequence[PathRule]) -> None:
        self._zone = zone
        self._start = len(named.parts)
        self._secrets_count = Mark.SECRET_PATH not in named.marks
        answered = set(_virtual_names(zone, named.parts)) if named.zone else set()
        self._rules = tuple(rule for rule in rules if not any(map(rule.matches, answered)))
        self._known: dict[tuple[str, ...], bool] = {}

    def __call__(self, parts: tuple[str, ...]) -> bool:
        """Whether the path, or a directory between it and the named one, is held back."""
        if len(parts) <= self._start:
            return False
        directory = parts[:-1]
        if directory not in self._known:
            self._known[directory] = self(directory)
        return self._known[directory] or self._itself(parts)

    def _itself(self, parts: tuple[str, ...]) -> bool:
        secret = self._secrets_count and protected.is_secret_name(self._zone.real(parts))
        if not secret and not self._rules:
            return False
        outer, *inner = _virtual_names(self._zone, parts)
        # A worker whose zone begins deeper cannot rename its way around a rule that asks or blocks.
        return is_masked(outer, secret=secret, rules=self._rules) or any(
            is_masked(name, secret=False, rules=self._rules) for name in inner
        )


def named_is_masked(named: Target, rules: Sequence[PathRule]) -> bool:
    """Whether walls would hide the very path that this call was allowed to read."""
    if named.zone is None:
        return False
    outer = _virtual_names(named.zone, named.parts)[0]
    return is_masked(outer, secret=Mark.SECRET_PATH in named.marks, rules=rules)


def _virtual_names(zone: Zone, parts: Sequence[str]) -> list[str]:
    """The path as the program names it and, where this worker's zone begins deeper, as the worker does."""
    outer = zone.virtual((*zone.subpath, *parts))
    return [outer, zone.virtual(parts)] if zone.subpath else [outer]


_MAX_OPEN: Final = 64

FoundFile = tuple[SearchRoot, str]
"""A file with a match, by its path from the zone's root."""


def newest_files(found: Sequence[FoundFile], limit: int) -> tuple[list[str], bool]:
    """Returns at most `limit` virtual paths, newest change first, then by path; and whether there are more."""
    timed: list[tuple[int, str, SearchRoot, str]] = []
    for place in {id(place): place for place, _ in found}.values():
        prefix = place.virtual("")
        paths = [path for at, path in found if at is place]
        timed += [(-changed, prefix + path, place, path) for changed, path in _modified_times(place, paths)]
    timed.sort(key=itemgetter(0, 1))
    shown: list[str] = []
    directories = _DirectoryCache()
    for _, virtual, place, path in timed:
        if _may_be_shown(place, path, directories):
            if len(shown) == limit:
                return shown, True
            shown.append(virtual)
    return shown, False


def first_files(found: Iterable[FoundFile], limit: int) -> list[FoundFile]:
    """Returns at most `limit` files in the order of their virtual paths."""
    chosen: list[FoundFile] = []
    directories = _DirectoryCache()
    for place, path in sorted(found, key=lambda each: each[0].virtual(each[1])):
        if len(chosen) == limit:
            break
        if _may_be_shown(place, path, directories):
            chosen.append((place, path))
    return chosen


def _modified_times(place: SearchRoot, paths: Iterable[str]) -> Iterator[tuple[int, str]]:
    """Directory by directory, so that each is opened once and only one is open at a time."""
    at: str | None = None
    here: Handle | None = None
    for directory, name, path in sorted((*os.path.split(path), path) for path in paths):
        if directory != at:
            at = directory
            try:
                here = place.zone.open(tuple(directory.split("/")) if directory else (), DIRECTORY)
            except OSError:
                here = None
        if here is None:
            continue
        try:
            info = os.stat(name, dir_fd=here.fd, follow_symlinks=False)
        except (OSError, ValueError):
            continue
        if stat.S_ISREG(info.st_mode):
            yield info.st_mtime_ns, path


class _DirectoryCache:
    """Keeps the last opened directories, since files of one directory are often found together."""

    def __init__(self) -> None:
        self._open: dict[tuple[str, tuple[str, ...]], Handle] = {}

    def handle(self, place: SearchRoot, parts: tuple[str, ...]) -> Handle:
        key = place.zone.name, parts
        if key not in self._open:
            if len(self._open) >= _MAX_OPEN:
                self._open.clear()
            self._open[key] = place.zone.open(parts, DIRECTORY)
        return self._open[key]


def _may_be_shown(place: SearchRoot, path: str, directories: _DirectoryCache) -> bool:
    *above, name = parts = tuple(path.split("/"))
    if not place.may_show(parts):
        return False
    try:
        file = os.open(name, CONTENT, dir_fd=directories.handle(place, tuple(above)).fd)
    except (OSError, ValueError):
        return False
    try:
        return stat.S_ISREG(os.fstat(file).st_mode) and not is_binary(os.pread(file, SAMPLE_BYTES, 0))
    except OSError:
        return False
    finally:
        os.close(file)
