"""From what an engine found to what is shown: files that may be read, are no binary ones, newest first or in order.

Engines work by names, and names change: everything is looked at once more by the descriptor of its directory, without
following a link, and what is gone, or something else by now, is left out. Blocking; call it in a thread.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable, Iterator, Sequence
from operator import itemgetter
from typing import Final

from golem_forge.sandbox.access import CONTENT, DIRECTORY, Handle
from golem_forge.toolsets.search.query import Place
from golem_forge.toolsets.search.scan.matching import SAMPLE, is_binary

_MOST_OPEN: Final = 64

Found = tuple[Place, str]
"""A file with a match, by its path from the zone's root."""


def newest(found: Sequence[Found], limit: int) -> tuple[list[str], bool]:
    """At most `limit` virtual paths, newest change first, ties by path; whether there are more."""
    timed: list[tuple[int, str, Place, str]] = []
    for place in {id(place): place for place, _ in found}.values():
        prefix = place.virtual("")
        paths = [path for at, path in found if at is place]
        timed += [(-changed, prefix + path, place, path) for changed, path in _times(place, paths)]
    timed.sort(key=itemgetter(0, 1))
    shown: list[str] = []
    directories = _Directories()
    for _, virtual, place, path in timed:
        if _may_be_shown(place, path, directories):
            if len(shown) == limit:
                return shown, True
            shown.append(virtual)
    return shown, False


def first(found: Iterable[Found], limit: int) -> list[Found]:
    """At most `limit` of them in the order of their virtual paths."""
    chosen: list[Found] = []
    directories = _Directories()
    for place, path in sorted(found, key=lambda each: each[0].virtual(each[1])):
        if len(chosen) == limit:
            break
        if _may_be_shown(place, path, directories):
            chosen.append((place, path))
    return chosen


def _times(place: Place, paths: Iterable[str]) -> Iterator[tuple[int, str]]:
    """Directory by directory, so that each is opened once and only one is open at a time."""
    at: str | None = None
    here: Handle | None = None
    for directory, name, path in sorted((*_split(path), path) for path in paths):
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


def _split(path: str) -> tuple[str, str]:
    directory, _, name = path.rpartition("/")
    return directory, name


class _Directories:
    """Those opened last: files of one directory are often found together."""

    def __init__(self) -> None:
        self._open: dict[tuple[str, tuple[str, ...]], Handle] = {}

    def handle(self, place: Place, parts: tuple[str, ...]) -> Handle:
        key = place.zone.name, parts
        if key not in self._open:
            if len(self._open) >= _MOST_OPEN:
                self._open.clear()
            self._open[key] = place.zone.open(parts, DIRECTORY)
        return self._open[key]


def _may_be_shown(place: Place, path: str, directories: _Directories) -> bool:
    *above, name = parts = tuple(path.split("/"))
    if not place.wants(parts):
        return False
    try:
        file = os.open(name, CONTENT, dir_fd=directories.handle(place, tuple(above)).fd)
    except (OSError, ValueError):
        return False
    try:
        return stat.S_ISREG(os.fstat(file).st_mode) and not is_binary(os.pread(file, SAMPLE, 0))
    except OSError:
        return False
    finally:
        os.close(file)
