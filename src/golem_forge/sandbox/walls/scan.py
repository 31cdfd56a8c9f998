"""ZoneScan: which names inside a zone walls must know, and what changed in it, cached until something does.

Takes a zone's host directory, returns findings (secret names, sockets and directories that cannot be listed in the
whole zone; protected names down to depth 4), all names down to there, and the paths that changed since a mark.
Refuses nothing. A small zone is checked by the times of its directories; a large one is watched by inotify, and a
look without changes costs nothing. Threats: a child sets a directory's times back, so the time of change counts,
which it cannot set, and a listing made within the clock tick of the last change is not trusted a second time; a
file in a directory never decides whether the directory's own names count; a child floods the watch, moves
directories faster than they are watched, or writes through a second link: whatever may have been missed is looked
at again by its times. What was too much or too deep to look at in time is found as a directory that cannot be
listed, so walls mask it.
"""

from __future__ import annotations

import os
import stat
import time
from collections import deque
from collections.abc import Iterable, Iterator
from threading import Lock, RLock
from typing import Final, TypeVar
from weakref import WeakValueDictionary

from golem_forge.sandbox.handles import LISTING, Handle, Identity, Parts, entry_stat, path_identity
from golem_forge.sandbox.protected import GIT_FILE
from golem_forge.sandbox.walls import changes
from golem_forge.sandbox.walls.changes import Inotify, ScanMark, ZoneChanges, changed_in, is_in_git_dir, open_inotify
from golem_forge.sandbox.walls.directories import (
    MOST_NAMES,
    DirectoryLister,
    DirectoryListing,
    EntryKind,
    ScanFinding,
    stamp_at,
)

MOST_ENTRIES: Final = 200_000
"""Past so many no further directory is entered, near ones excepted."""
_LEAST_COUNTED: Final = 3
_MOST_COUNTED: Final = 1_000
"""Maximum entries that one directory adds to the count, so that a directory with very many files does not keep others
out.
"""
MOST_DEPTH: Final = 64
"""Deeper directories are not entered: every look at a path costs as much as it is deep."""
_FIRST_LOOK_S: Final = 10.0
"""A cold disk is slow, and a command would not find half of its packages."""
_LONGEST_LOOK_S: Final = 2.0
_GLANCE_S: Final = 0.05
_PAUSE: Final = 4
"""The pause after a brief scan, as a multiple of the time that it took."""
_MOST_ASKED: Final = 5_000
_WATCH_FROM_DIRECTORIES: Final = 200
_WATCH_FROM_ENTRIES: Final = 2_000
_WATCH_AFTER_S: Final = 0.1
"""Seconds that scans may take in sum before a smaller zone is watched; ending a watch alone takes 15 ms."""
MANY_SECRETS: Final = 100
_MOST_STATES: Final = 8

_MADE: Final = changes.CREATE | changes.MOVED_TO | changes.MODIFY | changes.CLOSE_WRITE | changes.ATTRIB
_RENAMED: Final = changes.CREATE | changes.MOVED_TO | changes.MOVED_FROM | changes.DELETE
_MOVED: Final = changes.MOVED_TO | changes.MOVED_FROM | changes.DELETE
_WRITTEN: Final = changes.MODIFY | changes.CLOSE_WRITE | changes.ATTRIB
_OF_BARE_REPOSITORIES: Final = ("HEAD", "objects", "refs", "commondir")
_SELF: Final = changes.DELETE_SELF | changes.MOVE_SELF | changes.UNMOUNT | changes.ATTRIB

Shape = frozenset[tuple[str, EntryKind]]
Kept = TypeVar("Kept", Shape, tuple[ScanFinding, ...])


class ZoneScan:
    def __init__(self, host: str, unprotect: Iterable[str] = ()) -> None:
        self._host = host
        self._lister = DirectoryLister(host, unprotect)
        self._lock = RLock()
        self._listings: dict[Parts, DirectoryListing] = {}
        self._near: dict[Parts, DirectoryListing] = {}
        self._found: dict[Parts, tuple[ScanFinding, ...]] = {}
        self._entries = 0
        self._unentered: dict[Parts, None] = {}
        """Because the zone has too many entries."""
        self._too_deep: dict[Parts, None] = {}
        self._waiting: dict[Parts, bool] = {}
        """Near or not; there was no time yet to enter them."""
        self._stale: dict[Parts, None] = {}
        """Changed, and there was no time yet to list them again."""
        self._unseen: frozenset[Parts] = frozenset()
        """All of these, as of the last whole look."""
        self._deadline = 0.0
        self._not_before = 0.0
        self._sockets = changes.SocketTracker(host)
        self.placeholders: frozenset[Parts] = frozenset()
        """What is made and removed here for walls, where no command can make or remove anything itself."""
        self.version = 0
        """A number for what plans depend on: the findings, and what is in repositories. Of plain names nothing."""
        self.names_version = 0
        """Another one whenever any name in a near directory is another: for plans whose rules have patterns."""
        self._last_version = 0
        self._states: dict[object, int] = {}
        self._shapes: dict[Parts, Shape] = {}
        self._other = False
        self.findings: tuple[ScanFinding, ...] = ()
        """The same object as long as they are the same."""
        self.link_targets: set[Parts] = set()
        """Where links with secret names led, ever: a child may remove a link, and what it led to stays a secret."""
        self._inotify: Inotify | None = None
        self._watched: dict[int, Parts] = {}
        self._unwatchable = False
        self._complete_devices: dict[int, bool] = {}
        self._unsure: list[DirectoryListing] = []
        """Listed before it was watched."""
        self._spent = 0.0
        self._log = changes.ChangeLog()
        self.single_links = False
        """Whether no file had a second name when somebody last looked at all (`ZoneHistory`): then one that is gone,
        and was there before, had no other name through which it could have been changed."""

    @property
    def stopped_at(self) -> Parts | None:
        """The first directory that was not entered because the zone has too many entries or is too deep."""
        return min(self._unseen, default=None)

    def notices(self, zone: str) -> Iterator[str]:
        """Yields notices for the person: parts of the zone that are hidden unsearched, or slow to hide."""
        if self._unseen:
            place = "/".join((zone, *min(self._unseen)))
            yield (
                f"{zone} has more than {MOST_ENTRIES:,} entries, or directories more than {MOST_DEPTH} deep: the search"
                f" for secret names stopped at {place}. Forge hides that directory, and others that it did not search,"
                " from commands."
            )
        hidden = sum(one.secret for one in self.findings)
        if hidden > MANY_SECRETS:
            yield f"{zone} holds {hidden} secret names. Forge hides each of them, so every command starts more slowly."
        large = [one.parts for one in self.findings if one.unlisted and one.parts not in self._unseen]
        if large:
            place = "/".join((zone, *large[0]))
            more = f" and {len(large) - 1:,} other directories" if len(large) > 1 else ""
            why = f"it cannot be listed, or holds more than {MOST_NAMES:,} names"
            yield f"Forge hides {place}{more} from commands: {why}."

    def refresh(self) -> bool:
        """Look again; True: what was found is something else than before. What there is no time for is found as a
        directory that cannot be listed, and has its turn at the next look."""
        with self._lock:
            before = self.version
            self._look(time.monotonic() + (_LONGEST_LOOK_S if before else _FIRST_LOOK_S))
            if self._unentered or self._too_deep or self._waiting or self._stale or self._unseen:
                unseen = frozenset({*self._unentered, *self._too_deep, *self._waiting, *self._stale})
                if unseen != self._unseen:
                    self._unseen = unseen
                    self._other = True
            if self._other or not before:
                self._judge_anew()
            return self.version != before

    def refresh_briefly(self) -> None:
        """Look again for a guard, which asks all the time: what there is no time for waits for a later look, and until
        then things are as they were."""
        with self._lock:
            began = time.monotonic()
            if began < self._not_before:
                return
            self._look(began + _GLANCE_S)
            if self._other and self.version:
                self._judge_anew()
            now = time.monotonic()
            self._not_before = now + (now - began) * _PAUSE

    def _look(self, deadline: float) -> None:
        self._deadline = deadline
        if not self._listings:
            self._waiting[()] = True
        elif self._inotify is not None:
            self._by_events(self._inotify)
        else:
            self._by_stamps()
        self._stale |= {parts[:-1]: None for parts in self._sockets.dead_sockets()}
        self._other = self._sockets.drop_replaced_fifos() or self._other
        if self._unentered and self._entries < MOST_ENTRIES * 0.9:  # enough went away
            self._waiting |= dict.fromkeys(self._unentered, False)
            self._unentered.clear()
        self._go_on()
        while self._unsure:
            unsure, self._unsure = self._unsure, []
            self._stale |= {one.parts: None for one in unsure if one.is_stale()}
            self._go_on()

    def _go_on(self) -> None:
        if self._stale:
            self._relist()
        if self._waiting:
            self._enter()

    def _judge_anew(self) -> None:
        """A state that was there before has the number it had: placeholders come and go with every command."""
        self._other = False
        every = [one for each in self._found.values() for one in each]
        every += (ScanFinding(parts, EntryKind.DIRECTORY, False, False, unlisted=True) for parts in self._unseen)
        found = tuple(sorted(every, key=lambda one: one.parts))
        state = (found, frozenset(self._shapes.items()), frozenset(self._sockets.own_fifos.items()))
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
            self._sockets.set_findings(found)

    def mark(self) -> ScanMark:
        """The moment from which on changes count. Nothing is looked at: what the last refresh found was before."""
        with self._lock:
            now, set_ns = time.clock_gettime_ns(changes.CLOCK_OF_FILES), time.time_ns() - time.monotonic_ns()
            if not self._is_complete(self._listings[()].stamp[2] if self._listings else -1, self._host):
                now -= changes.CLOCK_NS
            return ScanMark(self._log.mark(), now, set_ns, self.findings, frozenset(self._sockets.own_fifos))

    def mark_at(self, time_ns: int) -> ScanMark:
        """A moment of the clock, also before this process: what changed since is told by the time of change alone."""
        return ScanMark(-1, time_ns)

    def _is_complete(self, device: int, path: str) -> bool:
        """Whether a file system tells of all changes, and has our clock."""
        if device not in self._complete_devices:
            self._complete_devices[device] = changes.reports_all_changes(path)
        return self._complete_devices[device]

    def changed_since(self, mark: ScanMark, *, by_times: bool = False) -> ZoneChanges:
        """`by_times`: events alone are not enough. Nobody is told of a write through a mapping, or through a descriptor
        whose name is gone."""
        with self._lock:
            self.refresh()
            paths = set(self._log.noted_since(mark))
            for here in self._log.entered_since(mark):
                paths.update(changed_in(self._listings[here], 0))
                if here:
                    paths.add(here)
            complete = not self._unseen
            earliest = mark.earliest()
            by_times = by_times or self._inotify is None or not self._log.has_all_since(mark)
            if by_times and self._entries > _WATCH_FROM_ENTRIES:
                found = changes.changed_below(self._host, earliest, _LONGEST_LOOK_S)
                if found is not None:
                    paths.update(parts for parts in found if not is_in_git_dir(parts))
                    by_times = False
            if by_times:
                deadline = time.monotonic() + _LONGEST_LOOK_S
                for here, listing in self._listings.items():
                    if not is_in_git_dir(here):
                        paths.update(changed_in(listing, earliest))
                        if time.monotonic() > deadline:
                            complete = False
                            break
            self._other = self._sockets.adopt_fifos(mark) or self._other
            return ZoneChanges(frozenset(paths), complete, self._no_more_listed(mark, earliest))

    def _no_more_listed(self, mark: ScanMark, earliest: int) -> frozenset[Parts]:
        known = {one.parts for one in mark.findings if one.unlisted}
        found = (
            self._listings[here]
            for here, each in self._found.items()
            if here not in known and not is_in_git_dir(here) and any(one.unlisted for one in each)
        )
        return frozenset(one.parts for one in found if mark.position >= 0 or one.stamp[0] >= earliest)

    def listed_since(self, mark: ScanMark) -> list[Parts]:
        """Directories in which names may have gone since a mark of this process, and directories that are gone."""
        with self._lock:
            return self._log.listed_since(mark)

    def directories(self) -> dict[Parts, int]:
        """Every directory that the last look saw, with its mode."""
        with self._lock:
            return {parts: one.mode for parts, one in self._listings.items()}

    def count_files(self) -> int | None:
        """Returns the number of entries that are no directories, outside git's own; None if the last scan did not see
        everything.
        """
        with self._lock:
            if self._unseen or any(one.unlisted for found in self._found.values() for one in found):
                return None
            seen = (one for here, one in self._listings.items() if not is_in_git_dir(here))
            return sum(one.size - len(one.directories) for one in seen)

    def is_own_fifo(self, parts: Parts) -> bool:
        return parts in self._sockets.own_fifos

    def names(self) -> Iterator[tuple[Parts, EntryKind]]:
        for here, entries in self.listings():
            for name, kind in entries.items():
                yield (*here, name), kind

    def entries(self, parts: Parts) -> dict[str, EntryKind] | None:
        """Returns the entries of a near directory; None if it was not listed."""
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
            if parts in self._listings:
                unlisted = (here for here, found in self._found.items() if any(one.unlisted for one in found))
                return not any(here[: len(parts)] == parts for here in (*unlisted, *self._unseen))
            beside = self._listings.get(parts[:-1]) if parts and parts[:-1] not in self._unseen else None
            if beside is None or not beside.listed or parts[-1] in beside.directories:
                return False
            if beside.entries is not None:
                return beside.entries.get(parts[-1]) in (EntryKind.FILE, EntryKind.SOCKET)
            info = entry_stat(os.path.join(beside.path, parts[-1]))
            return info is not None and not stat.S_ISDIR(info.st_mode) and not stat.S_ISLNK(info.st_mode)

    def _by_stamps(self) -> None:
        began = time.monotonic()
        self._stale |= {one.parts: None for one in self._listings.values() if one.is_stale()}
        self._spent += time.monotonic() - began
        if self._spent > _WATCH_AFTER_S:
            self._begin_to_watch()

    def _by_events(self, watches: Inotify) -> None:
        events = watches.read()
        if events is None or stamp_at(self._host)[1:] != self._listings[()].stamp[1:]:
            self._log.misses_some()
            self._by_stamps()
            return
        stale = self._stale
        moved: dict[Parts, None] = {}
        happened: dict[Parts, int] = {}
        for number, mask, name in events:
            here = self._watched.get(number)
            if here is None:
                continue
            if not name:
                if mask & changes.IGNORED:
                    del self._watched[number]
                elif mask & _SELF:
                    stale[here] = None
                continue
            parts = (*here, name)
            happened[parts] = happened.get(parts, 0) | mask
            if mask & _MADE:
                self._log.note(parts)
            if mask & _RENAMED:
                stale[here] = None
                if mask & changes.IS_DIRECTORY:
                    moved[parts] = None
            elif mask & changes.IS_DIRECTORY:
                stale[parts] = None
            elif mask & _WRITTEN and self._content_counts(here, name):
                stale[here] = None
        if happened and self._is_more_than_told(happened):
            self._log.misses_some()
        for parts in moved:
            self._forget(parts)

    def _is_more_than_told(self, happened: dict[Parts, int]) -> bool:
        """Whether a file may have changed of which no event tells: the kernel names the link that was used and no other
        of the same file, nothing once that link is gone, and nothing in a directory before it is watched."""
        asked = 0
        for parts, mask in happened.items():
            if is_in_git_dir(parts) or parts in self.placeholders:
                continue
            if mask & changes.IS_DIRECTORY:
                if mask & (changes.CREATE | changes.MOVED_TO) or (mask & _MOVED and not self.single_links):
                    return True
                continue
            if mask & _MOVED and not self.single_links:
                return True
            asked += 1
            info = entry_stat(os.path.join(self._host, *parts)) if asked <= _MOST_ASKED else None
            if info is None and mask & _MOVED and not mask & changes.CREATE and asked <= _MOST_ASKED:
                continue  # it was there before, so it was the only name of its file
            if info is None or info.st_nlink != 1:
                self.single_links = False
                return True
        return False

    def _content_counts(self, here: Parts, name: str) -> bool:
        """Whether a name was judged by its content, and may be a secret or none any more."""
        listing = self._listings.get(here)
        return listing is not None and (
            any(judged == name for judged, _ in listing.judged)
            or any(one.parts[-1:] == (name,) for one in listing.findings)
        )

    def _relist(self) -> None:
        """The root, without which nothing is known, and those that wait for long first."""
        waiting, self._stale = sorted(self._stale, key=bool), {}
        done = 0
        for parts in waiting:
            old = self._listings.get(parts)
            if old is None:  # gone with a directory above it
                continue
            if done and time.monotonic() > self._deadline:
                self._stale[parts] = None
                continue
            done += bool(parts)
            self._log.note_listed(parts)
            new = self._listed(old.parts, old.path, near=old.near)
            if new is None:
                self._forget(old.parts)
                continue
            if new.stamp[1:] != old.stamp[1:]:
                self._log.note_entered(old.parts)
            if new.mode != old.mode:
                self._log.note(old.parts)
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
                    self._waiting[below] = name in new.near_below

    def _enter(self) -> None:
        """List directories with all below them, near ones and those that are not deep first."""
        before = self.version  # what the first look finds is not new
        waiting, self._waiting = self._waiting, {}
        pending = deque(parts for parts, near in waiting.items() if near)
        later = deque(parts for parts, near in waiting.items() if not near)
        done = 0
        while pending or later:
            near = bool(pending)
            here = (pending or later).popleft()
            if here in self._listings:
                continue
            if len(here) > MOST_DEPTH:
                self._too_deep[here] = None
                continue
            if not near and self._entries >= MOST_ENTRIES:
                self._unentered[here] = None
                continue
            if done and time.monotonic() > self._deadline:
                self._waiting[here] = near
                continue
            done += 1
            self._unentered.pop(here, None)
            listing = self._listed(here, os.path.join(self._host, *here), near=near)
            if listing is None:
                continue
            if before:
                self._log.note_entered(here)
            self._keep(listing)
            if len(self._listings) > _WATCH_FROM_DIRECTORIES or self._entries > _WATCH_FROM_ENTRIES:
                self._begin_to_watch()
            for name in listing.directories:
                (pending if name in listing.near_below else later).append((*here, name))

    def _keep(self, listing: DirectoryListing, instead_of: DirectoryListing | None = None) -> None:
        parts = listing.parts
        self._listings[parts] = listing
        self._entries += _counted(listing) - (_counted(instead_of) if instead_of else 0)
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
            for put_off in (self._unentered, self._too_deep, self._waiting, self._stale):
                put_off.pop(here, None)
            listing = self._listings.pop(here, None)
            if listing is None:
                continue
            self._log.forget(here)
            self._entries -= _counted(listing)
            if self._near.pop(here, None) is not None:
                self.names_version += 1
            self._replace(self._found, here, None)
            self._replace(self._shapes, here, None)
            self._stop_watching(listing)
            pending.extend((*here, name) for name in listing.directories)

    def _listed(self, parts: Parts, path: str, *, near: bool) -> DirectoryListing | None:
        watch = self._watch if self._inotify is not None else None
        return self._lister.listed(parts, path, near=near, watch=watch)

    def _begin_to_watch(self) -> None:
        """Starts watching. Everything known so far is scanned again, because it may have changed before."""
        if self._inotify is not None or self._unwatchable:
            return
        self._inotify = open_inotify(len(self._listings))
        self._unwatchable = self._inotify is None
        self._unsure = list(self._listings.values())
        self._log.misses_some()
        for listing in self._unsure:
            try:
                directory = Handle(os.open(listing.path, LISTING))
            except OSError:
                continue
            listing.watch = self._watch(directory.fd, os.fstat(directory.fd).st_dev, listing.path)
            if listing.watch >= 0:
                self._watched[listing.watch] = listing.parts

    def _watch(self, fd: int, device: int, path: str) -> int:
        """Watches a directory; if one cannot be watched, watching ends for all."""
        if self._inotify is None:
            return -1
        try:
            if self._is_complete(device, path):
                return self._inotify.watch(fd)
        except OSError:
            pass
        self._inotify.close()
        self._inotify = None
        self._unwatchable = True
        self._watched.clear()
        return -1

    def _stop_watching(self, listing: DirectoryListing) -> None:
        if self._watched.get(listing.watch) == listing.parts:
            del self._watched[listing.watch]
            if self._inotify is not None:
                self._inotify.forget(listing.watch)


_shared: WeakValueDictionary[tuple[str, tuple[str, ...], Identity | None], ZoneScan] = WeakValueDictionary()
_sharing = Lock()


def shared_scan(host: str, unprotect: Iterable[str] = ()) -> ZoneScan:
    """The scan that everybody in this process has of one directory: it holds facts of the disk and no decision, and a
    large zone is walked and watched once, not once for every worker and tool. A directory that was put in the place of
    another has one of its own."""
    key = (host, tuple(sorted(unprotect)), path_identity(host))
    with _sharing:
        found = _shared.get(key)
        if found is None:
            found = _shared[key] = ZoneScan(host, key[1])
        return found


def _counted(listing: DirectoryListing) -> int:
    return max(_LEAST_COUNTED, min(listing.size, _MOST_COUNTED))


def _shape(listing: DirectoryListing) -> Shape:
    """Returns the names in a near directory that decide whether git takes it for a repository, and what is in one."""
    entries = listing.entries or {}
    if any(part.casefold() == GIT_FILE for part in listing.parts):
        return frozenset(entries.items())
    return frozenset((name, entries[name]) for name in _OF_BARE_REPOSITORIES if name in entries)
