"""ZoneScan: which names inside a zone walls must know, found by listing directories and kept until one changes.

Takes a zone's host directory, gives findings (protected and secret names, sockets, directories that cannot be listed;
down to depth 4) and all names seen. Refuses nothing. Threats: a child sets a directory's times back to hide what it
made in it, so the time of change counts, which it cannot set, and a listing made within the tick of the clock in which
the directory last changed is not trusted a second time; and it leaves a file that makes a directory look like one that
need not be searched, so what is in a directory never decides whether its own names count.
"""

from __future__ import annotations

import os
import stat
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from golem_forge.core.effects import Mark
from golem_forge.sandbox.protected import GIT_FILE, is_plain, marks

DEPTH: Final = 4
"""Directories so many levels below the zone's root are still listed."""
_GIT_DEPTH: Final = 6
"""The same below a `.git`: names of submodules may have several components."""
_SETTLED_NS: Final = 100_000_000
_NOT_ENTERED: Final = frozenset({"node_modules"})
_IN_GIT: Final = frozenset({"modules", "worktrees"})
_NOT_IN_MODULES: Final = frozenset({"objects", "refs", "logs", "info", "lfs", "rr-cache", "hooks", "branches"})
"""Parts of a repository that hold no other one; but a submodule may have such a name too."""
_OF_A_REPOSITORY: Final = ("config", "hooks")
"""What a child cannot take away from a repository to make it look like something else."""
_HEADS_OF_PAIRS: Final = frozenset({GIT_FILE, ".config", ".kube", ".docker"})
"""Of these a name one level deeper matters, so they are listed wherever they are seen."""
_PACKAGES: Final = "site-packages"
"""All that is large in a virtual environment. Known by its place alone: a file beside it any child can make."""
_OPEN: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC

Parts = tuple[str, ...]
Stamp = tuple[int, int, int]


class EntryKind(StrEnum):
    DIRECTORY = "directory"
    LINK = "link"
    SOCKET = "socket"
    FILE = "file"
    """Or anything else that is none of these."""


@dataclass(frozen=True, slots=True)
class Finding:
    """A name that exists and that walls must know."""

    parts: Parts
    kind: EntryKind
    protected: bool
    secret: bool
    unlisted: bool = False
    """A directory that this process cannot list, so nobody knows what is in it; its owner can open it again."""
    made: Stamp | None = None
    """Of a link: another one of the same name may lead elsewhere."""


@dataclass(slots=True)
class _Listing:
    path: str
    parts: Parts
    stamp: Stamp
    settled: bool
    entries: dict[str, EntryKind]
    findings: tuple[Finding, ...]
    entered: tuple[str, ...]
    listed: bool


class ZoneScan:
    def __init__(self, host: str, unprotect: Iterable[str] = ()) -> None:
        self._host = host
        self._above = tuple(part for part in host.split("/") if part)
        self._unprotect = tuple(unprotect)
        self._listings: dict[Parts, _Listing] = {}
        self.version = 0
        """Counts the refreshes that found other names than the one before."""
        self.findings: tuple[Finding, ...] = ()
        self.led_to: set[Parts] = set()
        """Where links with secret names led, ever: a child may remove a link, and what it led to stays a secret."""
        self._partly: tuple[int, frozenset[Parts]] = (-1, frozenset())

    def refresh(self) -> bool:
        """Look again; True: the names are others than before."""
        if not self._listings:
            self._enter((), self._host)
            changed = True
        else:
            known = self._listings.values()
            changed = self._relist([one for one in known if not one.settled or _stamp_at(one.path) != one.stamp])
        if changed:
            self.version += 1
            found = [finding for listing in self._listings.values() for finding in listing.findings]
            self.findings = tuple(sorted(found, key=lambda finding: finding.parts))
        return changed

    def names(self) -> Iterator[tuple[Parts, EntryKind]]:
        """Everything the listings saw."""
        for listing in self._listings.values():
            for name, kind in listing.entries.items():
                yield (*listing.parts, name), kind

    def entries(self, parts: Parts) -> dict[str, EntryKind] | None:
        """What a directory has in it; None if it was not listed."""
        listing = self._listings.get(parts)
        return listing.entries if listing else None

    def listings(self) -> Iterator[tuple[Parts, dict[str, EntryKind]]]:
        for listing in self._listings.values():
            yield listing.parts, listing.entries

    def complete(self, parts: Parts) -> bool:
        """Whether the last look saw every name below a directory: none too deep, none left out. Of a `.git` the parts
        where git alone writes do not count."""
        if self._partly[0] != self.version:
            self._partly = (self.version, frozenset(self._partly_seen()))
        if parts in self._listings:
            return parts not in self._partly[1]
        beside = self._listings.get(parts[:-1]) if parts else None
        return beside is not None and beside.entries.get(parts[-1]) in (EntryKind.FILE, EntryKind.SOCKET)

    def _partly_seen(self) -> Iterator[Parts]:
        for here, listing in self._listings.items():
            in_git = GIT_FILE in here
            unseen = (
                (*here, name) not in self._listings and not (in_git and name in _NOT_IN_MODULES)
                for name, kind in listing.entries.items()
                if kind is EntryKind.DIRECTORY
            )
            if not listing.listed or any(unseen):
                yield from (here[:length] for length in range(len(here) + 1))

    def _relist(self, stale: list[_Listing]) -> bool:
        changed = False
        for old in stale:
            if self._listings.get(old.parts) is not old:  # gone with a directory above it
                continue
            new = self._listed(old.parts, old.path)
            if new is None:
                self._forget(old.parts)
                changed = True
                continue
            self._listings[old.parts] = new
            if new.entries == old.entries and new.findings == old.findings:
                continue
            changed = True
            for name in set(old.entered) - set(new.entered):
                self._forget((*old.parts, name))
            for name in new.entered:
                if (*old.parts, name) not in self._listings:
                    self._enter((*old.parts, name), os.path.join(old.path, name))
        return changed

    def _enter(self, parts: Parts, path: str) -> None:
        pending = [(parts, path)]
        while pending:
            here, directory = pending.pop()
            listing = self._listed(here, directory)
            if listing is None:
                continue
            self._listings[here] = listing
            pending.extend(((*here, name), os.path.join(directory, name)) for name in listing.entered)

    def _forget(self, parts: Parts) -> None:
        for known in [known for known in self._listings if known[: len(parts)] == parts]:
            del self._listings[known]

    def _listed(self, parts: Parts, path: str) -> _Listing | None:
        now = time.time_ns()
        entries: dict[str, EntryKind] = {}
        findings: tuple[Finding, ...] = ()
        listed = False
        try:
            fd = os.open(path, _OPEN)
        except PermissionError:
            stamp = _stamp_at(path)
        except OSError:
            return None
        else:
            try:
                stamp = _stamp(os.fstat(fd))
                os.stat(".", dir_fd=fd)  # names that cannot be looked at are as good as none
                with os.scandir(fd) as found:
                    entries = {entry.name: _kind(entry) for entry in found}
                findings = tuple(self._judged(parts, entries, fd))
                listed = True
            except OSError:
                entries = {}
            finally:
                os.close(fd)
        if not listed:
            findings = (Finding(parts, EntryKind.DIRECTORY, protected=False, secret=False, unlisted=True),)
        return _Listing(
            path=path,
            parts=parts,
            stamp=stamp,
            settled=abs(now - stamp[0]) > _SETTLED_NS,
            entries=entries,
            findings=findings,
            entered=tuple(_to_enter(parts, entries, path)),
            listed=listed,
        )

    def _judged(self, parts: Parts, entries: dict[str, EntryKind], fd: int) -> Iterator[Finding]:
        above = (*self._above, *parts)
        everywhere = not is_plain("/".join(above))
        for name, kind in entries.items():
            if not everywhere and kind is not EntryKind.SOCKET and is_plain(name):
                continue
            found = marks((*above, name), git_is_file=kind is not EntryKind.DIRECTORY, unprotect=self._unprotect)
            if found or kind is EntryKind.SOCKET:
                made = _stamp_at(name, fd) if kind is EntryKind.LINK else None
                protected, secret = Mark.PROTECTED_PATH in found, Mark.SECRET_PATH in found
                yield Finding((*parts, name), kind, protected, secret, made=made)


def _to_enter(parts: Parts, entries: dict[str, EntryKind], path: str) -> Iterator[str]:
    folded = [part.casefold() for part in parts]
    git = folded.index(GIT_FILE) if GIT_FILE in folded else None
    for name, kind in entries.items():
        if kind is not EntryKind.DIRECTORY or name in _NOT_ENTERED:
            continue
        lower = name.casefold()
        if git is None:
            if lower == _PACKAGES and any(part.startswith("lib") for part in folded[-2:]):
                continue
            if len(parts) < DEPTH or lower in _HEADS_OF_PAIRS:
                yield name
        elif git == len(parts) - 1:
            if lower in _IN_GIT:
                yield name
        elif len(parts) - git < _GIT_DEPTH and not (
            lower in _NOT_IN_MODULES and "HEAD" in entries and not _is_repository(os.path.join(path, name))
        ):
            yield name


def _kind(entry: os.DirEntry[str]) -> EntryKind:
    if entry.is_symlink():
        return EntryKind.LINK
    if entry.is_dir(follow_symlinks=False):
        return EntryKind.DIRECTORY
    if entry.is_file(follow_symlinks=False):
        return EntryKind.FILE
    try:
        return EntryKind.SOCKET if stat.S_ISSOCK(entry.stat(follow_symlinks=False).st_mode) else EntryKind.FILE
    except FileNotFoundError:
        return EntryKind.FILE


def _is_repository(path: str) -> bool:
    return any(os.path.lexists(os.path.join(path, name)) for name in _OF_A_REPOSITORY)


def _stamp(info: os.stat_result) -> Stamp:
    return info.st_ctime_ns, info.st_ino, info.st_dev


def _stamp_at(path: str, directory: int | None = None) -> Stamp:
    try:
        return _stamp(os.stat(path, dir_fd=directory, follow_symlinks=False))
    except OSError:
        return (0, 0, 0)
