"""Changes: what a scan says has changed in a zone since a mark, and how the time of change tells it.

`ScanMark` is a moment in a scan's ChangeLog; `changed_in` gives the names in one directory whose time of change is not
before some moment. Threat: a child can set every time of a file but that one; and a person's clock may be set back, so
a mark remembers how it stood to a clock that nobody sets.
"""

from __future__ import annotations

import os
import stat
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from golem_forge.sandbox.protected import GIT_FILE
from golem_forge.sandbox.walls.listing import Finding, Listing, Parts

_CLOCK_OF_FILES: Final = 5
"""CLOCK_REALTIME_COARSE, from which Linux takes times of change: none lies before what it shows."""
CLOCK_NS: Final = 20_000_000
"""By so much the time of a change may lie before the time that another clock shows."""
_MOST_LOGGED: Final = 30_000
_SET_NS: Final = 1_000_000
"""Less than this is the time between two questions, and nobody set the clock."""


@dataclass(frozen=True, slots=True)
class ScanMark:
    """A moment in a scan's log."""

    position: int
    """-1: of another process or of some moment, so that only times tell what changed since."""
    time_ns: int
    set_ns: int | None = None
    """What separates the clock from one that nobody can set."""
    findings: tuple[Finding, ...] = ()
    own_fifos: frozenset[Parts] = frozenset()

    def earliest(self) -> int:
        """The least time of change that anything has which happened since, although the clock was set meanwhile."""
        if self.set_ns is None:
            return self.time_ns - CLOCK_NS
        set_by = time.time_ns() - time.monotonic_ns() - self.set_ns
        return self.time_ns + (set_by if set_by < -_SET_NS else 0)


@dataclass(frozen=True, slots=True)
class Changes:
    paths: frozenset[Parts]
    """Files, links and directories that were made, written, renamed to or given another mode; of the repository at the
    zone's root nothing. Some may be gone again, and some may have changed shortly before. Since a mark of another
    process: no directories, and of what lies in one that was moved only what has changed by itself."""
    complete: bool
    """False: the zone has more directories than a scan enters, or more files than can be looked at in time, and what
    changed in those is not known."""
    unlisted: frozenset[Parts] = frozenset()
    """Directories that cannot be listed now and could be at the mark, so that nobody knows what changed in them."""


class ChangeLog:
    def __init__(self) -> None:
        self._position = 1
        self._noted: dict[Parts, int] = {}
        """Where in the log a path changed last; the latest at the end."""
        self._entered: dict[Parts, int] = {}
        """Where in the log a directory came to stand at its place, with all that is in it; the latest at the end."""
        self._from = 0
        """Of what happened before, the log does not have all."""

    def mark(self) -> int:
        self._position += 1
        return self._position - 1

    def note(self, parts: Parts) -> None:
        if is_of_the_repository(parts):
            return
        self._noted.pop(parts, None)
        self._noted[parts] = self._position
        if len(self._noted) > _MOST_LOGGED:
            oldest = next(iter(self._noted))
            self._from = max(self._from, self._noted.pop(oldest))

    def note_entered(self, parts: Parts) -> None:
        self._entered.pop(parts, None)
        self._entered[parts] = self._position

    def forget(self, parts: Parts) -> None:
        """A directory that is gone."""
        self._entered.pop(parts, None)

    def misses_some(self) -> None:
        """Something may have changed until now that was not noted."""
        self._from = self._position

    def has_all_since(self, mark: ScanMark) -> bool:
        return mark.position >= self._from

    def noted_since(self, mark: ScanMark) -> Iterator[Parts]:
        return _since(self._noted, mark)

    def entered_since(self, mark: ScanMark) -> Iterator[Parts]:
        return (parts for parts in _since(self._entered, mark) if not is_of_the_repository(parts))


def _since(log: dict[Parts, int], mark: ScanMark) -> Iterator[Parts]:
    for parts, position in reversed(log.items()):
        if position <= mark.position or mark.position < 0:
            return
        yield parts


def clock_of_files() -> int:
    return time.clock_gettime_ns(_CLOCK_OF_FILES)


def changed_in(listing: Listing, earliest: int) -> Iterator[Parts]:
    """Directories that are new are told by what is in them and by the one that they are in."""
    try:
        with os.scandir(listing.path) as found:
            for entry in found:
                if not earliest:
                    yield (*listing.parts, entry.name)
                    continue
                try:
                    info = entry.stat(follow_symlinks=False)
                except FileNotFoundError:
                    continue
                if info.st_ctime_ns >= earliest and not stat.S_ISDIR(info.st_mode):
                    yield (*listing.parts, entry.name)
    except OSError:
        return


def has_one_link(path: str) -> bool:
    try:
        return os.stat(path, follow_symlinks=False).st_nlink == 1
    except OSError:
        return False


def is_a_file(path: str) -> bool:
    try:
        mode = os.stat(path, follow_symlinks=False).st_mode
    except OSError:
        return False
    return not stat.S_ISDIR(mode) and not stat.S_ISLNK(mode)


def is_of_the_repository(parts: Parts) -> bool:
    return bool(parts) and parts[0].casefold() == GIT_FILE
