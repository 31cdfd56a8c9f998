"""Placeholders: empty read-only directories where a child must not make a repository, or hooks in one.

`missing_directories` says where; `Occupied` is held while walls stand on a zone. bubblewrap makes the mount point on
the host, so it is removed afterwards. Threat: removing it while other walls stand on the same zone, of this process
or another, would take away theirs. So each holds a shared lock on the zone's directory, and only who gets the lock
alone removes. Only empty directories can be removed at all, so nobody's repository is at risk.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Iterable, Iterator
from typing import Final

from golem_forge.sandbox.access import DIRECTORY
from golem_forge.sandbox.errors import walls_unavailable
from golem_forge.sandbox.protected import GIT_FILE, normal_name
from golem_forge.sandbox.walls.scan import EntryKind, Parts, ZoneScan
from golem_forge.sandbox.zones import Zone

_HOOKS: Final = "hooks"
_LOCKABLE: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


def missing_directories(zone: Zone, scan: ZoneScan) -> Iterator[Parts]:
    """A `.git` at the zone's root that is missing or empty, and missing or empty hooks of repositories in it."""
    free = {normal_name(name) for name in zone.unprotect}
    top = scan.entries(()) or {}
    missing = GIT_FILE not in top or (top[GIT_FILE] is EntryKind.DIRECTORY and not scan.entries((GIT_FILE,)))
    if missing and not {f"{GIT_FILE}/{_HOOKS}", f"{GIT_FILE}/config"} <= free and _can_be_filled(zone, ()):
        yield (GIT_FILE,)
    for parts, entries in scan.listings():
        if not entries or not _is_repository(parts, entries) or _hooks_are_free(parts, free):
            continue
        if not _can_be_filled(zone, parts):
            continue
        kind = entries.get(_HOOKS)
        if kind is None or (kind is EntryKind.DIRECTORY and _is_empty(zone, (*parts, _HOOKS))):
            yield (*parts, _HOOKS)


class Occupied:
    """The shared lock of one start on one zone. `leave` once nothing of the walls stands any more."""

    def __init__(self, zone: Zone, fd: int) -> None:
        self.zone = zone
        self._fd = fd
        self.placeholders: tuple[Parts, ...] = ()

    def leave(self) -> None:
        fd, self._fd = self._fd, -1
        if fd < 0:
            return
        try:
            if self.placeholders:
                with contextlib.suppress(BlockingIOError):
                    fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    _remove(self.zone, self.placeholders)
        finally:
            os.close(fd)


def occupy(zone: Zone) -> Occupied | None:
    """The lock, or None while someone else has it alone: they are about to be done, so ask again soon."""
    try:
        fd = os.open(".", _LOCKABLE, dir_fd=zone.root.fd)
    except OSError:
        raise walls_unavailable(
            f"the system refused to open the directory of zone '/{zone.name}'", "Check its permissions."
        ) from None
    try:
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(fd)
        return None
    except OSError:  # a file system without locks: nobody there can know of others, so nothing is removed
        os.close(fd)
        return Occupied(zone, -1)
    return Occupied(zone, fd)


def _remove(zone: Zone, places: Iterable[Parts]) -> None:
    for parts in sorted(places, key=len, reverse=True):
        with contextlib.suppress(OSError):
            parent = zone.open(parts[:-1], DIRECTORY)
            os.rmdir(parts[-1], dir_fd=parent.fd)


def _is_repository(parts: Parts, entries: dict[str, EntryKind]) -> bool:
    folded = [part.casefold() for part in parts]
    if GIT_FILE not in folded:
        return False
    return folded[-1] == GIT_FILE or (folded[folded.index(GIT_FILE) + 1] == "modules" and "HEAD" in entries)


def _hooks_are_free(parts: Parts, free: set[str]) -> bool:
    name = f"{GIT_FILE}/{_HOOKS}" if parts[-1].casefold() == GIT_FILE else f"{GIT_FILE}/modules/**/{_HOOKS}"
    return name in free


def _can_be_filled(zone: Zone, parts: Parts) -> bool:
    """Whether a child could make something there; its owner could, after a change of mode. Otherwise nobody could
    make the placeholder either."""
    path = zone.real(parts)
    try:
        if os.statvfs(path).f_flag & os.ST_RDONLY:
            return False
        return os.stat(path).st_uid == os.geteuid() or os.access(path, os.W_OK)
    except OSError:
        return False


def _is_empty(zone: Zone, parts: Parts) -> bool:
    try:
        with os.scandir(zone.real(parts)) as found:
            return next(found, None) is None
    except OSError:
        return False
