"""ZoneLease: the shared lock that walls hold on a zone, and the placeholders they stand on.

`missing_directories` says where a child must not make a repository, or hooks in one: an empty read-only directory
is mounted there. Nothing can be mounted on a name that does not exist, so the directory is made on the host, with a
note of it, and removed afterwards. Threat: removing it while other walls stand on the same zone, of this process or
another, would take away theirs. So each start holds a shared lock on the zone's directory, and only who gets the
lock exclusively removes. Only empty directories can be removed. What a killed Forge left,
`remove_stale_placeholders` removes by the notes.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import stat
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Final

from golem_forge.sandbox.errors import walls_unavailable
from golem_forge.sandbox.handles import DIRECTORY, LISTING, Parts
from golem_forge.sandbox.protected import GIT_FILE, normal_name
from golem_forge.sandbox.walls.directories import EntryKind
from golem_forge.sandbox.walls.scan import ZoneScan
from golem_forge.sandbox.zones import HEAD, HOOKS, PlaceholderNotes, Zone
from golem_forge.storage.home import try_lock

if TYPE_CHECKING:
    from golem_forge.sandbox.walls.restrictions import ZoneRestrictions

_COMMON: Final = "commondir"
"""A file of this name in a repository says where git finds settings and hooks instead."""
_LEASE_WITHIN_S: Final = 10.0
_ASK_EVERY_S: Final = 0.002


def missing_directories(zone: Zone, scan: ZoneScan) -> Iterator[Parts]:
    """A `.git` at the zone's root that is missing or empty, the HEAD of a repository that the root could become then,
    and missing or empty hooks of repositories in it."""
    free = {normal_name(name) for name in zone.unprotect}
    top = scan.entries(()) or {}
    missing = GIT_FILE not in top or (top[GIT_FILE] is EntryKind.DIRECTORY and not scan.entries((GIT_FILE,)))
    allowed = GIT_FILE in free or {f"{GIT_FILE}/{HOOKS}", f"{GIT_FILE}/config"} <= free
    if missing and not allowed and _can_be_filled(zone, ()):
        yield (GIT_FILE,)
    # A directory with a HEAD in it can be a repository itself, where no `.git` comes first.
    headless = HEAD not in top or (top[HEAD] is EntryKind.DIRECTORY and _is_empty(zone, (HEAD,)))
    if missing and headless and GIT_FILE not in free and _can_be_filled(zone, ()):
        yield (HEAD,)
    for parts, entries in scan.listings():
        guarded = entries and _is_repository(parts, entries) and not _is_free(parts, HOOKS, free)
        if guarded and _can_be_filled(zone, parts):
            kind = entries.get(HOOKS)
            if kind is None or (kind is EntryKind.DIRECTORY and _is_empty(zone, (*parts, HOOKS))):
                yield (*parts, HOOKS)


def self_contained(zone: Zone, scan: ZoneScan) -> Iterator[Parts]:
    """Repositories whose settings and hooks are their own."""
    free = {normal_name(name) for name in zone.unprotect}
    for parts, entries in scan.listings():
        alone = entries and _COMMON not in entries and _is_repository(parts, entries)
        if alone and not _is_free(parts, _COMMON, free):
            yield parts


class ZoneLease:
    """The shared lock of one start on one zone. `release` it once nothing of the walls stands any more."""

    def __init__(self, zone: Zone, fd: int) -> None:
        self.zone = zone
        self._fd = fd
        self._held: ZoneRestrictions | None = None
        self.removed: tuple[str, ...] = ()
        """Virtual paths of what was made there meanwhile."""

    def make_placeholders(self, held: ZoneRestrictions) -> None:
        """Creates the placeholders that mounts cover. If that fails, bubblewrap tries too and reports why."""
        self._held = held
        notes = self.zone.placeholders
        if self._fd < 0 or notes is None:
            return
        for parts in held.placeholders:
            with contextlib.suppress(OSError):
                parent = self.zone.open(parts[:-1], DIRECTORY)
                notes.make(self.zone.host, parts, parent.fd, file=parts in held.placeholder_files)

    async def is_alone(self) -> bool:
        """Whether no other walls stand on the zone just now, of this Forge or another. Ask before anything stands on
        it: the lock is given up for a moment. Raises WALLS_UNAVAILABLE."""
        if self._fd < 0:
            return False
        alone = try_lock(self._fd)  # the kernel drops the shared lock first, also where the other one is refused
        await _take_shared(self.zone, self._fd)
        return alone

    def release(self) -> None:
        held, self._held = self._held, None
        repositories, placeholders = (held.self_contained, held.placeholders) if held is not None else ((), ())
        self.removed += tuple(self.zone.virtual(parts) for parts in _without_common(self.zone, repositories))
        fd, self._fd = self._fd, -1
        if fd < 0:
            return
        notes = self.zone.placeholders
        try:
            # Without any of our own, too: others may have left while we were still there, or were killed.
            left = placeholders or (notes is not None and notes.know(self.zone.host))
            if left and try_lock(fd):
                _remove(self.zone, placeholders)
                if notes is not None:
                    notes.remove(self.zone.host, fd, removed=placeholders)
        finally:
            os.close(fd)


async def wait_for_lease(zone: Zone) -> ZoneLease:
    """The lock, after a short wait for whoever has it alone. Raises WALLS_UNAVAILABLE."""
    try:
        fd = os.open(".", LISTING, dir_fd=zone.root.fd)
    except OSError:
        raise walls_unavailable(
            f"the system refused to open the directory of zone '/{zone.name}'", "Check its permissions."
        ) from None
    try:
        await _take_shared(zone, fd)
    except OSError:  # a file system without locks: nobody there can know of others, so nothing is removed
        os.close(fd)
        return ZoneLease(zone, -1)
    except BaseException:
        os.close(fd)
        raise
    return ZoneLease(zone, fd)


async def _take_shared(zone: Zone, fd: int) -> None:
    loop = asyncio.get_running_loop()
    deadline = loop.time() + _LEASE_WITHIN_S
    while not try_lock(fd, shared=True):
        if loop.time() > deadline:
            raise walls_unavailable(f"another program keeps the directory of zone '/{zone.name}' locked", "Try again.")
        await asyncio.sleep(_ASK_EVERY_S)


@contextlib.contextmanager
def exclusive_lock(zone: Zone) -> Iterator[bool]:
    """Whether no walls stand on a zone, of this Forge or another; if so, none can be built meanwhile."""
    try:
        fd = os.open(".", LISTING, dir_fd=zone.root.fd)
    except (OSError, ValueError):
        yield False
        return
    alone = False
    try:
        with contextlib.suppress(OSError):
            alone = try_lock(fd)
        yield alone
    finally:
        os.close(fd)


def remove_stale_placeholders(notes: PlaceholderNotes) -> None:
    """Removes what Forge processes that are gone left in their zones; a running one holds the lock."""
    for zone in notes.zones():
        try:
            fd = os.open(zone, LISTING)
        except (FileNotFoundError, NotADirectoryError):
            notes.forget(zone)
            continue
        except OSError:
            continue
        try:
            with contextlib.suppress(OSError):
                if try_lock(fd):
                    notes.remove(zone, fd)
        finally:
            os.close(fd)


def _remove(zone: Zone, places: Iterable[Parts]) -> None:
    for parts in sorted(places, key=len, reverse=True):
        with contextlib.suppress(OSError):
            parent = zone.open(parts[:-1], DIRECTORY)
            try:
                os.rmdir(parts[-1], dir_fd=parent.fd)
            except NotADirectoryError:
                info = os.stat(parts[-1], dir_fd=parent.fd, follow_symlinks=False)
                if stat.S_ISREG(info.st_mode) and info.st_size == 0:
                    os.unlink(parts[-1], dir_fd=parent.fd)


def _without_common(zone: Zone, repositories: Iterable[Parts]) -> Iterator[Parts]:
    """Git of the person's would run what such a file leads to, so it does not wait for somebody to read of it."""
    for parts in repositories:
        try:
            repository = zone.open(parts, DIRECTORY)
            if stat.S_ISDIR(os.stat(_COMMON, dir_fd=repository.fd, follow_symlinks=False).st_mode):
                os.rmdir(_COMMON, dir_fd=repository.fd)  # git stops at one: the person's repository would be broken
            else:
                os.unlink(_COMMON, dir_fd=repository.fd)
        except FileNotFoundError:
            continue
        except OSError:
            pass
        yield (*parts, _COMMON)


def _is_repository(parts: Parts, entries: dict[str, EntryKind]) -> bool:
    folded = [part.casefold() for part in parts]
    if GIT_FILE not in folded:
        return False
    return folded[-1] == GIT_FILE or (folded[folded.index(GIT_FILE) + 1] == "modules" and "HEAD" in entries)


def _is_free(parts: Parts, name: str, free: set[str]) -> bool:
    above = GIT_FILE if parts[-1].casefold() == GIT_FILE else f"{GIT_FILE}/modules/**"
    return GIT_FILE in free or f"{above}/{name}" in free


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
