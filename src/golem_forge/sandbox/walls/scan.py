"""ZoneScan: which names inside a zone walls must know, and what changed in it, kept until something does.

Takes a zone's host directory, gives findings (secret names, sockets and directories that cannot be listed in the whole
zone; protected names down to depth 4), all names down to there, and the paths that changed since a mark. Refuses
nothing. A small zone is looked at by the times of its directories; a large one is watched, and a look without changes
costs nothing. Threats: a child sets a directory's times back to hide what it made in it, so the time of change counts,
which it cannot set, and a listing made within the tick of the clock in which the directory last changed is not trusted
a second time; it leaves a file that makes a directory look like one that need not be searched, so what is in a
directory never decides whether its own names count; it floods the watch, or moves directories faster than they are
watched: whatever may have been missed is looked at again by its times.
"""

from __future__ import annotations

import os
import stat
import time
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from threading import Lock, RLock
from typing import Final, TypeVar
from weakref import WeakValueDictionary

from golem_forge.sandbox.protected import GIT_FILE
from golem_forge.sandbox.walls import inotify
from golem_forge.sandbox.walls.inotify import Inotify, open_inotify, tells_all
from golem_forge.sandbox.walls.listing import DEPTH, EntryKind, Finding, Lister, Listing, Parts, Stamp, stamp_at

__all__ = ["DEPTH", "Changes", "EntryKind", "Finding", "Parts", "ScanMark", "Stamp", "ZoneScan", "shared_scan"]

MOST_ENTRIES: Final = 200_000
"""Past so many no further directory is entered, near ones excepted."""
_WATCH_FROM_DIRECTORIES: Final = 200
_WATCH_FROM_ENTRIES: Final = 2_000
_WATCH_AFTER_S: Final = 0.1
"""What looking may cost in all before a smaller zone is watched: a watch takes 15 ms to end alone."""
_MANY_SECRETS: Final = 100
_MOST_STATES: Final = 8
_MOST_LOGGED: Final = 30_000
_CLOCK_NS: Final = 20_000_000
"""By so much the time of a change may lie before the time that a program reads."""

_MADE: Final = inotify.CREATE | inotify.MOVED_TO | inotify.MODIFY | inotify.CLOSE_WRITE | inotify.ATTRIB
_RENAMED: Final = inotify.CREATE | inotify.MOVED_TO | inotify.MOVED_FROM | inotify.DELETE
_WRITTEN: Final = inotify.MODIFY | inotify.CLOSE_WRITE | inotify.ATTRIB
_OF_BARE_REPOSITORIES: Final = ("HEAD", "objects", "refs", "commondir")
_SELF: Final = inotify.DELETE_SELF | inotify.MOVE_SELF | inotify.UNMOUNT | inotify.ATTRIB

Shape = frozenset[tuple[str, EntryKind]]
Kept = TypeVar("Kept", Shape, tuple[Finding, ...])


@dataclass(frozen=True, slots=True)
class ScanMark:
    """A moment in a scan's log."""

    position: int
    time_ns: int
    monotonic_ns: int

    def earliest(self) -> int:
        """The least time of change that anything has which happened since, although the clock was set meanwhile."""
        passed = time.monotonic_ns() - self.monotonic_ns
        set_by = time.time_ns() - self.time_ns - passed
        return self.time_ns - _CLOCK_NS + min(0, set_by)


@dataclass(frozen=True, slots=True)
class Changes:
    paths: frozenset[Parts]
    """Files, links and directories that were made, written, renamed to or given another mode; of the repository at the
    zone's root nothing. Some may be gone again, and some may have changed shortly before."""
    complete: bool
    """False: the zone has more directories than a scan enters, and what changed in those is not known."""


class ZoneScan:
    def __init__(self, host: str, unprotect: Iterable[str] = ()) -> None:
        self._host = host
        self._lister = Lister(host, unprotect)
        self._lock = RLock()
        self._listings: dict[Parts, Listing] = {}
        self._near: dict[Parts, Listing] = {}
        self._found: dict[Parts, tuple[Finding, ...]] = {}
        self._entries = 0
        self._unentered: dict[Parts, None] = {}
        self.version = 0
        """A number for what plans depend on: the findings, and what is in repositories. Of plain names nothing."""
        self.names_version = 0
        """Another one whenever any name in a near directory is another: for plans whose rules have patterns."""
        self._last_version = 0
        self._states: dict[object, int] = {}
        self._shapes: dict[Parts, Shape] = {}
        self._other = False
        self.findings: tuple[Finding, ...] = ()
        """The same object as long as they are the same."""
        self.led_to: set[Parts] = set()
        """Where links with secret names led, ever: a child may remove a link, and what it led to stays a secret."""
        self._partly: tuple[int, frozenset[Parts]] = (-1, frozenset())
        self._inotify: Inotify | None = None
        self._watched: dict[int, Parts] = {}
        self._unwatchable = False
        self._complete_devices: dict[int, bool] = {}
        self._unsure: list[Listing] = []
        """Listed before it was watched."""
        self._spent = 0.0
        self._position = 1
        self._log: dict[Parts, int] = {}
        """Where in the log a path changed last; the latest at the end."""
        self._log_from = 0
        """Of what happened before, the log does not have all."""
        self._entered: dict[Parts, int] = {}
        """Where in the log a directory came to stand at its place, with all that is in it; the latest at the end."""

    @property
    def stopped_at(self) -> Parts | None:
        """The first directory that was not entered because the zone has too many entries."""
        return min(self._unentered, default=None)

    def notices(self, zone: str) -> Iterator[str]:
        """For the person: what of the zone with this address is not hidden, or slow to hide."""
        if self._unentered:
            place = "/".join((zone, *min(self._unentered)))
            yield (
                f"{zone} has more than {MOST_ENTRIES:,} entries: the search for secret names stopped at {place}, and"
                " commands can read what lies there and in other directories as deep."
            )
        hidden = sum(one.secret for one in self.findings)
        if hidden > _MANY_SECRETS:
            yield f"{zone} holds {hidden} secret names, each of which is masked: every command starts slower for that."

    def refresh(self) -> bool:
        """Look again; True: what was found is something else than before."""
        with self._lock:
            if not self._listings:
                self._enter([((), True)])
            elif self._inotify is not None:
                self._by_events(self._inotify)
            else:
                self._by_stamps()
            while self._unsure:
                unsure, self._unsure = self._unsure, []
                self._relist([one for one in unsure if one.is_stale()])
            if self._unentered and self._entries < MOST_ENTRIES * 0.9:  # enough went away
                self._enter([(parts, False) for parts in self._unentered])
            before = self.version
            if self._other or not before:
                self._other = False
                self._judge_anew()
            return self.version != before

    def _judge_anew(self) -> None:
        """A state that was there before has the number it had: placeholders come and go with every command."""
        found = tuple(sorted((one for each in self._found.values() for one in each), key=lambda one: one.parts))
        state = (found, frozenset(self._shapes.items()), frozenset(self._unentered))
        number = self._states.pop(state, 0)
        if not number:
            self._last_version += 1
            number = self._last_version
        self._states[state] = number
        if len(self._states) > _MOST_STATES:
            del self._states[next(iter(self._states))]
        self.version = number
        if found != self.findings:
            self.findings = found

    def mark(self) -> ScanMark:
        """The moment from which on changes count. Nothing is looked at: what the last refresh found was before."""
        with self._lock:
            self._position += 1
            return ScanMark(self._position - 1, time.time_ns(), time.monotonic_ns())

    def changed_since(self, mark: ScanMark) -> Changes:
        with self._lock:
            self.refresh()
            paths = set()
            for parts, position in reversed(self._log.items()):
                if position <= mark.position:
                    break
                paths.add(parts)
            for here, position in reversed(self._entered.items()):
                if position <= mark.position:
                    break
                if not _is_of_the_repository(here):
                    paths.update(_changed_in(self._listings[here], 0))
                    if here:
                        paths.add(here)
            if self._inotify is None or mark.position < self._log_from:
                earliest = mark.earliest()
                for here, listing in self._listings.items():
                    if not _is_of_the_repository(here):
                        paths.update(_changed_in(listing, earliest))
            return Changes(frozenset(paths), complete=not self._unentered)

    def names(self) -> Iterator[tuple[Parts, EntryKind]]:
        """Every name in near directories."""
        for here, entries in self.listings():
            for name, kind in entries.items():
                yield (*here, name), kind

    def entries(self, parts: Parts) -> dict[str, EntryKind] | None:
        """What a near directory has in it; None if it was not listed."""
        listing = self._near.get(parts)
        return (listing.entries or {}) if listing else None

    def listings(self) -> Iterator[tuple[Parts, dict[str, EntryKind]]]:
        for listing in list(self._near.values()):
            yield listing.parts, listing.entries or {}

    def repositories(self) -> Iterator[tuple[Parts, dict[str, EntryKind]]]:
        """The near directories that git has to do with: in a `.git`, or with a name in them that makes a repository."""
        for parts in list(self._shapes):
            yield parts, self._near[parts].entries or {}

    def complete(self, parts: Parts) -> bool:
        """Whether the last look saw every name below a directory: what is secret there is among the findings."""
        with self._lock:
            if self._partly[0] != self.version:
                unseen = (here for here, found in self._found.items() if any(one.unlisted for one in found))
                partly = {here[:length] for here in (*unseen, *self._unentered) for length in range(len(here) + 1)}
                self._partly = (self.version, frozenset(partly))
            if parts in self._listings:
                return parts not in self._partly[1]
            beside = self._listings.get(parts[:-1]) if parts else None
            if beside is None or not beside.listed or parts[-1] in beside.directories:
                return False
            if beside.entries is not None:
                return beside.entries.get(parts[-1]) in (EntryKind.FILE, EntryKind.SOCKET)
            return _is_a_file(os.path.join(beside.path, parts[-1]))

    def _by_stamps(self) -> None:
        began = time.monotonic()
        self._relist([one for one in self._listings.values() if one.is_stale()])
        self._spent += time.monotonic() - began
        if self._spent > _WATCH_AFTER_S:
            self._begin_to_watch()

    def _by_events(self, watches: Inotify) -> None:
        events = watches.read()
        if events is None or stamp_at(self._host)[1:] != self._listings[()].stamp[1:]:
            self._log_from = self._position
            self._by_stamps()
            return
        stale: dict[Parts, None] = {}
        moved: dict[Parts, None] = {}
        for number, mask, name in events:
            here = self._watched.get(number)
            if here is None:
                continue
            if not name:
                if mask & inotify.IGNORED:
                    del self._watched[number]
                elif mask & _SELF:
                    stale[here] = None
                continue
            parts = (*here, name)
            if mask & _MADE:
                self._note(parts)
            if mask & _RENAMED:
                stale[here] = None
                if mask & inotify.IS_DIRECTORY:
                    moved[parts] = None
            elif mask & inotify.IS_DIRECTORY:
                stale[parts] = None
            elif mask & _WRITTEN and self._content_counts(here, name):
                stale[here] = None
        for parts in moved:
            self._forget(parts)
        self._relist([self._listings[parts] for parts in stale if parts in self._listings])

    def _content_counts(self, here: Parts, name: str) -> bool:
        """Whether a name was judged by its content, and may be a secret or none any more."""
        listing = self._listings.get(here)
        return listing is not None and (
            any(cleared == name for cleared, _ in listing.cleared)
            or any(one.parts[-1:] == (name,) for one in listing.findings)
        )

    def _note(self, parts: Parts) -> None:
        if _is_of_the_repository(parts):
            return
        self._log.pop(parts, None)
        self._log[parts] = self._position
        if len(self._log) > _MOST_LOGGED:
            oldest = next(iter(self._log))
            self._log_from = max(self._log_from, self._log.pop(oldest))

    def _note_entered(self, parts: Parts) -> None:
        self._entered.pop(parts, None)
        self._entered[parts] = self._position

    def _relist(self, stale: list[Listing]) -> None:
        entering: list[tuple[Parts, bool]] = []
        for old in stale:
            if self._listings.get(old.parts) is not old:  # gone with a directory above it
                continue
            new = self._listed(old.parts, old.path, near=old.near)
            if new is None:
                self._forget(old.parts)
                continue
            if new.stamp[1:] != old.stamp[1:]:
                self._note_entered(old.parts)
            if new.mode != old.mode:
                self._note(old.parts)
            self._keep(new, instead_of=old)
            for name in set(old.directories).difference(new.directories):
                self._forget((*old.parts, name))
            for name in new.directories:
                below = (*old.parts, name)
                known = self._listings.get(below)
                if known is not None and known.near != (name in new.near_below):
                    self._forget(below)
                    known = None
                if known is None:
                    entering.append((below, name in new.near_below))
        self._enter(entering)

    def _enter(self, waiting: list[tuple[Parts, bool]]) -> None:
        """List directories with all below them, near ones and those that are not deep first."""
        before = self.version  # what the first look finds is not new
        pending = deque(waiting)
        later: deque[tuple[Parts, bool]] = deque()
        while pending or later:
            here, near = (pending or later).popleft()
            if here in self._listings:
                continue
            if not near and self._entries >= MOST_ENTRIES:
                self._other = self._other or here not in self._unentered
                self._unentered[here] = None
                continue
            if here in self._unentered:
                del self._unentered[here]
                self._other = True
            listing = self._listed(here, os.path.join(self._host, *here), near=near)
            if listing is None:
                continue
            if before:
                self._note_entered(here)
            self._keep(listing)
            if len(self._listings) > _WATCH_FROM_DIRECTORIES or self._entries > _WATCH_FROM_ENTRIES:
                self._begin_to_watch()
            for name in listing.directories:
                below = name in listing.near_below
                (pending if below else later).append(((*here, name), below))

    def _keep(self, listing: Listing, instead_of: Listing | None = None) -> None:
        parts = listing.parts
        self._listings[parts] = listing
        self._entries += listing.size - (instead_of.size if instead_of else 0)
        if listing.near:
            self._near[parts] = listing
            if instead_of is None or instead_of.entries != listing.entries:
                self.names_version += 1
        self._replace(self._found, parts, listing.findings)
        self._replace(self._shapes, parts, _shape(listing))
        if instead_of is not None and instead_of.watch != listing.watch:
            self._stop_watching(instead_of)
        if listing.watch >= 0:
            self._watched[listing.watch] = parts

    def _replace(self, kept: dict[Parts, Kept], parts: Parts, new: Kept | None) -> None:
        if (kept.get(parts) or None) != (new or None):
            self._other = True
            if new:
                kept[parts] = new
            else:
                del kept[parts]

    def _forget(self, parts: Parts) -> None:
        pending = [parts]
        while pending:
            here = pending.pop()
            if here in self._unentered:
                del self._unentered[here]
                self._other = True
            listing = self._listings.pop(here, None)
            if listing is None:
                continue
            self._entered.pop(here, None)
            self._entries -= listing.size
            if self._near.pop(here, None) is not None:
                self.names_version += 1
            self._replace(self._found, here, None)
            self._replace(self._shapes, here, None)
            self._stop_watching(listing)
            pending.extend((*here, name) for name in listing.directories)

    def _listed(self, parts: Parts, path: str, *, near: bool) -> Listing | None:
        watch = self._watch if self._inotify is not None else None
        return self._lister.listed(parts, path, near=near, watch=watch)

    def _begin_to_watch(self) -> None:
        """What is known so far may have changed before it was watched: it is looked at again."""
        if self._inotify is not None or self._unwatchable:
            return
        self._inotify = open_inotify(len(self._listings))
        self._unwatchable = self._inotify is None
        self._unsure = list(self._listings.values())
        self._log_from = self._position
        for listing in self._unsure:
            try:
                fd = os.open(listing.path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
            except OSError:
                continue
            try:
                listing.watch = self._watch(fd, os.fstat(fd).st_dev, listing.path)
            finally:
                os.close(fd)
            if listing.watch >= 0:
                self._watched[listing.watch] = listing.parts

    def _watch(self, fd: int, device: int, path: str) -> int:
        """Where one directory cannot be watched, none is."""
        if self._inotify is None:
            return -1
        try:
            if device not in self._complete_devices:
                self._complete_devices[device] = tells_all(path)
            if self._complete_devices[device]:
                return self._inotify.watch(fd)
        except OSError:
            pass
        self._inotify.close()
        self._inotify = None
        self._unwatchable = True
        self._watched.clear()
        return -1

    def _stop_watching(self, listing: Listing) -> None:
        if self._watched.get(listing.watch) == listing.parts:
            del self._watched[listing.watch]
            if self._inotify is not None:
                self._inotify.forget(listing.watch)


_shared: WeakValueDictionary[tuple[str, tuple[str, ...]], ZoneScan] = WeakValueDictionary()
_sharing = Lock()


def shared_scan(host: str, unprotect: Iterable[str] = ()) -> ZoneScan:
    """The scan that everybody in this process has of one directory: it holds facts of the disk and no decision, and a
    large zone is walked and watched once, not once for every worker and tool."""
    key = (host, tuple(sorted(unprotect)))
    with _sharing:
        found = _shared.get(key)
        if found is None:
            found = _shared[key] = ZoneScan(host, key[1])
        return found


def _changed_in(listing: Listing, earliest: int) -> Iterator[Parts]:
    """Directories that are new are told by what is in them and by the one that they are in."""
    try:
        with os.scandir(listing.path) as found:
            for entry in found:
                if not earliest:
                    yield (*listing.parts, entry.name)
                    continue
                info = entry.stat(follow_symlinks=False)
                if info.st_ctime_ns >= earliest and not stat.S_ISDIR(info.st_mode):
                    yield (*listing.parts, entry.name)
    except OSError:
        return


def _shape(listing: Listing) -> Shape:
    """What of the names in a near directory decides whether git takes it for a repository, and what is in one."""
    entries = listing.entries or {}
    if any(part.casefold() == GIT_FILE for part in listing.parts):
        return frozenset(entries.items())
    return frozenset((name, entries[name]) for name in _OF_BARE_REPOSITORIES if name in entries)


def _is_of_the_repository(parts: Parts) -> bool:
    return bool(parts) and parts[0].casefold() == GIT_FILE


def _is_a_file(path: str) -> bool:
    try:
        mode = os.stat(path, follow_symlinks=False).st_mode
    except OSError:
        return False
    return not stat.S_ISDIR(mode) and not stat.S_ISLNK(mode)
