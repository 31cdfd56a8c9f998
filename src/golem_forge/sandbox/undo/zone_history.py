"""ZoneHistory: what stands in one zone, and what changed there while calls ran. One for each zone in a process.

`look` brings the table up to date and keeps every content that could be lost; what changed belongs to all calls that
are open then (spans). A call begins and ends with a look; a file tool, which knows its targets, looks only at those.
The first look of a process compares everything (git's index, or a walk), the others what the zone's scan saw change. An
entry of the table comes before the index: a tracked file that is unchanged needs none.

Kept is everything but what a tool can make again and what the settings bound; `coverage` says what that leaves. What
stands in the directory now, `zone_files` reads. Threats: a command that hides a deletion by making its directory look
regenerable (a directory with something kept in it never becomes so); floods (entries and bytes are bounded; past the
bounds calls ask).
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import sqlite3
import stat
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from threading import Lock
from typing import Any, Final, NamedTuple, TypeVar
from weakref import WeakValueDictionary

from golem_forge.core.changes import ABSENT, PathChange, PathKind, PathState, UndoSettings, line_changes
from golem_forge.core.lazy_dataclass import replace
from golem_forge.sandbox.git.repository import Repository, find_repository
from golem_forge.sandbox.handles import Identity, Parts, path_identity
from golem_forge.sandbox.protected import GIT_FILE, is_secret_name
from golem_forge.sandbox.undo.git_baseline import GitBaseline, GitUnusable, IndexEntry
from golem_forge.sandbox.undo.git_state import INDEX, GitListing, GitRefused, GitState, left_commits
from golem_forge.sandbox.undo.store import PathEntry, Span, Stamp, ZoneStore, as_bytes, as_parts, zone_folder
from golem_forge.sandbox.undo.zone_files import (
    CACHES,
    MOST_ENTRIES,
    NO_STAMP,
    WHOLE,
    Seen,
    TooMuch,
    ZoneFiles,
    directory_entry,
    is_in_git,
    unread_state,
)
from golem_forge.sandbox.walls.changes import ScanMark
from golem_forge.sandbox.walls.model import UncoveredPath, ZoneCoverage, fold_uncovered
from golem_forge.sandbox.walls.scan import ZoneScan, shared_scan
from golem_forge.sandbox.zones import Zone

T = TypeVar("T")
_TARGETED: Final = 5_000
"""With more paths than this to look at, everything is."""
_MOST_COMPARED: Final = 1 << 20
_MOST_COMPARISONS: Final = 250_000
_SECRET: Final = "its name says that it is a secret"
_IDLE: Final = "somebody else: nothing of the command ran at that moment"
_BEYOND: Final = "somebody else: it changed while a process of the call went on"
_AFTER_IT: Final = "somebody else: Forge was ended before that"
_DYING_NS: Final = 3_000_000_000
"""So long a process may have gone on after Forge was last seen alive."""
_LATEST: Final = 1 << 62
_TOP: Final = b"."
"""The zone's own directory, whose mode a call may change. A table of an earlier Forge does not have it."""


class ZoneHistory:
    def __init__(
        self, host: str, name: str, home: Path, settings: UndoSettings, unprotect: Collection[str] = ()
    ) -> None:
        self.host = host
        self.name = name
        """As it was first addressed; for what is told."""
        self.home = home
        self._settings = settings
        self._scan: ZoneScan = shared_scan(host, unprotect)
        self._folder = zone_folder(home, host)
        self.files = ZoneFiles(host, home, self._folder)
        self._mark: ScanMark | None = None
        self._problem = ""
        self._too_much = ""
        self._budget: int | None = None
        self._bound = ""
        """How many bytes may be kept while the store is locked once, and what that comes from, in words."""
        self.store: ZoneStore
        self._git: GitBaseline | None = None
        self._git_state: GitState | None = None
        self._git_stamp: object = None
        self._modes = (0o644, 0o755)
        self._regenerable: set[Parts] = set()
        self._remade: dict[int, set[Parts]] = {}
        """Of each open span, the directories that can be made again in which something changed."""
        self._named: dict[int, dict[bytes, Seen | None]] = {}
        """What stood at the paths that such a span's call names and that lie in one of them."""
        self._opened = False
        self._going_on: set[int] = set()
        """Spans whose call has ended and whose processes have not."""
        self._lock = Lock()

    # --- calls

    @property
    def problem(self) -> str:
        """Why nothing can be kept here; empty: it can."""
        return self._problem

    def begin(self, session: str, call: str, label: str, facts: dict[str, Any]) -> Span | None:
        """Before a call that may change anything in the zone. None: nothing is recorded (see `problem`)."""

        def work() -> Span:
            self.look()
            return self._open_span(session, call, label, facts)

        return self._guarded(work, None)

    def _open_span(self, session: str, call: str, label: str, facts: dict[str, Any]) -> Span:
        span = self.store.open_span(session, call, label, facts)
        self._remade[span.id] = set()
        return span

    def begin_at(
        self, paths: Collection[Parts], session: str, call: str, label: str, facts: dict[str, Any]
    ) -> Span | None:
        """The same for a call that changes only these paths."""

        def work() -> Span:
            self._open()
            self._update(self._with_parents(paths))
            span = self._open_span(session, call, label, facts)
            inside = [as_bytes(parts) for parts in paths if self._regenerable_above(parts)]
            self._named[span.id] = self.files.seen_at(inside)
            return span

        return self._guarded(work, None)

    def end(
        self,
        span: Span,
        paths: Collection[Parts] | None = None,
        *,
        goes_on: bool = False,
        was_idle: Callable[[int], bool] = lambda time_ns: False,
    ) -> list[PathChange]:
        """What the call changed, as paths of the zone. `paths`: of `begin_at`; `goes_on`: a process of it still runs;
        `was_idle`: whether nothing of its processes ran at a moment."""

        def work() -> list[PathChange]:
            beyond = span.id in self._going_on
            if goes_on:
                self._going_on.add(span.id)
            self._look_for_changes(paths)
            for path, before in self._named.pop(span.id, {}).items():
                if self.files.seen_at([path])[path] != before:
                    self._note_remade([as_parts(path)], [span], 0)
            made = self._changes(span, _always if beyond else was_idle, _BEYOND if beyond else _IDLE)
            if goes_on:
                self.store.let_go_on(span)
            else:
                self._going_on.discard(span.id)
                self.store.close_span(span)
            return made

        made = self._guarded(work, None)
        if made is None:  # the next session finds it, and what it changed
            self._guarded(lambda: self.store.abandon_span(span), None, may_fail=True)
        return made or []

    def take_remade(self, span: Span) -> list[str]:
        """Directories that can be made again in which something changed during the span, as virtual paths; once."""
        found = self._remade.pop(span.id, set())
        if span.id in self._going_on:
            self._remade[span.id] = set()
        return [self._virtual(as_bytes(parts)) for parts in sorted(found)]

    def changes_so_far(
        self, span: Span, paths: Collection[Parts] | None, was_idle: Callable[[int], bool]
    ) -> list[PathChange]:
        """The same while the call goes on; `end` gives all of it again."""

        def work() -> list[PathChange]:
            self._look_for_changes(paths)
            return self._changes(span, was_idle)

        return self._guarded(work, [])

    def recover(self) -> list[tuple[Span, list[PathChange]]]:
        """What calls changed whose process was killed. Call it before a session begins; it compares everything."""

        def work() -> list[tuple[Span, list[PathChange]]]:
            dead = self.store.dead_spans()
            ended = self.store.last_alive() + _DYING_NS
            if dead:
                self._mark = None
                self._look_in_any_case()
            found = [
                (
                    span,
                    self._changes(span, _always, _BEYOND)
                    if span.goes_on
                    else self._changes(span, lambda time_ns: time_ns > ended, _AFTER_IT),
                )
                for span in dead
            ]
            for span in dead:
                self.store.close_span(span)
            return found

        return self._guarded(work, []) if (self._folder / "table.db").exists() else []

    def coverage(self, session: str = "") -> ZoneCoverage:
        """After a look of its own. `session`: what it made itself may be lost with its other work."""

        def work() -> ZoneCoverage:
            self.look()
            found = [
                UncoveredPath(as_parts(path), one.state.lost)
                for path, one in self.store.lost_entries()
                if one.state.lost != _SECRET and not (session and one.made_by == session)
            ]
            folded = fold_uncovered(found, self._covered() if len(found) > 1 else ())
            if os.path.isdir(os.path.join(self.host, GIT_FILE, "modules")):
                return ZoneCoverage("the history of its submodules is not kept")
            if folded is None:
                return ZoneCoverage(f"{len(found):,} files cannot be kept (the first: {'/'.join(found[0].parts)})")
            return ZoneCoverage("", folded)

        return self._guarded(work, None) or ZoneCoverage(self._problem)

    def state(self, parts: Parts) -> PathState:
        """What stands at a path now, as the table knows it after a look at it."""
        if is_in_git(parts):
            self._open()
            self._look_at_git()
            path = as_bytes(parts)
            return self._known_at([path])[path].state
        return self.states([parts])[parts]

    def states(self, paths: Collection[Parts], *, anew: bool = True) -> dict[Parts, PathState]:
        """The same for several paths, none of them git's own. `anew`: also those that are read whose times say that
        nothing changed; a process that has a file mapped can write it without."""
        self._budget = None
        self._update(map(as_bytes, paths), anew=anew)
        entries = self.store.entries_at([as_bytes(parts) for parts in paths])
        found = {as_parts(path): one.state if one is not None else ABSENT for path, one in entries.items()}
        special = [parts for parts, state in found.items() if state == ABSENT and self.files.is_special(parts)]
        return found | dict.fromkeys(special, PathState(PathKind.SPECIAL))

    def _covered(self) -> Iterator[Parts]:
        yield from (as_parts(path) for path, one in self.store.entries() if not one.state.lost)
        if self._git is not None:
            yield from (as_parts(path) for path in self._git.lookup([b""]))

    def _guarded(self, work: Callable[[], T], otherwise: T, *, may_fail: bool = False) -> T:
        """Does it with the store locked. What fails is said (`problem`), and calls ask then; it never fails a call."""
        with self._lock:
            try:
                self.open_store()
                with self.store.locked():
                    self._budget = None
                    done = work()
            except TooMuch as error:
                self._fail(str(error))
            except (GitUnusable, GitRefused) as error:
                self._fail(f"git cannot read it ({error})")
            except sqlite3.Error as error:
                self._fail(f"its table cannot be used ({error})")
            except OSError as error:
                full = error.errno in (errno.ENOSPC, errno.EDQUOT)
                self._fail("the disk is full" if full else f"it cannot be kept ({os.strerror(error.errno or 0)})")
            else:
                if not may_fail:
                    self._problem, self._too_much = self._too_much, ""
                return done
            return otherwise

    def _fail(self, why: str) -> None:
        self._problem = why
        self._mark = None

    @property
    def has_store(self) -> bool:
        """Whether anything was ever kept for this zone; opens it then."""
        if not self._opened and (self._folder / "table.db").exists():
            self.open_store()
        return self._opened

    def open_store(self) -> None:
        """Raises TooMuch, OSError, sqlite3.Error."""
        if not self._opened:
            if self.host in ("/", os.path.realpath(os.path.expanduser("~"))):
                raise TooMuch("a home directory is too much to keep")
            self.store = ZoneStore(self._folder)
            self._opened = True

    def _open(self) -> None:
        """What the table was made with, where an earlier process made it."""
        if said := self.store.get("regenerable"):
            self._regenerable = {tuple(parts) for parts in json.loads(said) if self.files.is_regenerable(tuple(parts))}
        if said := self.store.get("modes"):
            plain, runs = json.loads(said)
            self._modes = (plain, runs)
        if self._git_state is None and (found := find_git(self.host)) is not None:
            self._git_state = _state_of(found, self.host, self._folder)
            if not found.below:  # else the index is of more than this zone
                self._git = GitBaseline(self.host, found, self._folder)
                if self.store.get("source") != "git":
                    self._git.forget_snapshot()

    # --- looking

    def look(self) -> None:
        """Inside `locked()`. Raises TooMuch, OSError, sqlite3.Error."""
        self._scan.refresh()
        mark, before = self._scan.mark(), self._regenerable
        self._regenerable = {parts for parts in self._regenerable if self.files.is_regenerable(parts)}
        if self._mark is None:
            self._open()
            with ThreadPoolExecutor(1) as pool:
                git = self._git_state
                stamp = git.stamp() if git is not None else None
                begun = pool.submit(git.read) if git is not None and stamp != self._git_stamp else None
                self._look_at_all()
                self._look_at_git(stamp, begun)
        else:
            found = self._scan.changed_since(self._mark, by_times=bool(self._going_on))
            listed = [parts for parts in self._scan.listed_since(self._mark) if not is_in_git(parts)]
            if not found.complete or len(found.paths) + len(listed) > _TARGETED:
                self._look_at_all()
            elif found.paths or listed:
                self._look_at(found.paths, listed)
            self._look_at_git()
            self._note_remade((*found.paths, *listed), self.store.spans(), self._mark.earliest(), before)
        self._mark = mark

    def _look_for_changes(self, paths: Collection[Parts] | None) -> None:
        """`paths`: of a call that changes only these."""
        if paths is None:
            self._look_in_any_case()
        else:
            self._note(self._update(self._with_parents(paths)))

    def _look_in_any_case(self) -> None:
        """At the end of a call. Where there is too much to look at, at least what was there before the call: a flood of
        files hides no deletion."""
        try:
            self.look()
        except TooMuch as error:
            self._open()
            paths = {path for path, _ in self.store.entries() if not path.startswith(b".git/")}
            if self._git is not None and self._git.has_snapshot:
                paths |= self._git.compare_tracked()
            self._note(self._update(paths))
            self._look_at_git()
            self._mark, self._too_much = None, str(error)

    def _look_at_git(self, stamp: object = None, begun: Future[GitListing] | None = None) -> None:
        """HEAD, refs, index and stash. `begun`: they are being read, and had this stamp before."""
        if self._git_state is None or (stamp := stamp or self._git_state.stamp()) == self._git_stamp:
            return
        try:
            reading = begun.result() if begun is not None else self._git_state.read()
            found = self._git_state.states(reading, self._git.hidden if self._git is not None else None)
        except GitRefused:
            return
        first = not self.store.get("git")
        now: dict[bytes, PathState] = {}
        for path, (state, content) in found.items():
            is_index = state.kind is PathKind.FILE and not state.lost
            now[os.fsencode(path)] = replace(state, digest=self.store.keep(content)) if is_index else state
        old = {path: one.state for path, one in self.store.entries(b".git/")}
        moved = [path for path in {*old, *now} if old.get(path) != now.get(path)]
        if not first:
            self._note([(path, old.get(path, ABSENT)) for path in moved])
        self.store.drop(path for path in moved if path not in now)
        self.store.put((path, PathEntry(now[path], NO_STAMP)) for path in moved if path in now)
        self.store.set("git", "1")
        self._git_stamp = stamp

    def index_stamp(self) -> str:
        self._open()
        return self._git_state.index_stamp() if self._git_state is not None else ""

    def restore_git(self, steps: list[tuple[str, PathState, PathState]]) -> None:
        """Raises GitRefused."""
        if self._git_state is None:
            raise GitRefused("there is no repository any more")
        files = (one for one in steps if one[2].kind is PathKind.FILE)
        content = {path: data for path, _, then in files if (data := self.store.content(then.digest)) is not None}
        if any(path == INDEX and path not in content and not then.lost for path, _, then in steps):
            raise GitRefused("its index is not kept any more")
        self._git_state.restore(steps, content)

    def _look_at(self, changed: Collection[Parts], listed: Collection[Parts]) -> None:
        """`changed`: paths that were made or written; `listed`: directories in which names may be gone."""
        judged: dict[Parts, bool] = {}
        paths = {as_bytes(parts) for parts in changed if not self._is_left_out(parts, judged)}
        gone: set[bytes] = set()
        present = self._scan.directories()
        for parts in listed:
            if self._is_left_out(parts, judged) and parts:
                continue
            path = as_bytes(parts)
            if parts in present:
                names = self.files.names(parts)
                known = (*self.store.children(parts), *(self._git.paths_in(path) if self._git is not None else ()))
                paths.update(one for one in known if one.rpartition(b"/")[2] not in names)
            else:
                paths.update(self.store.below(parts))
                gone.add(path)
            paths.add(path or _TOP)
        if self._git is not None:
            paths.update(self._git.lookup(gone))
        self._note(self._update(self._with_parents(map(as_parts, paths), judged)))

    def _look_at_all(self) -> None:
        directories = {
            as_bytes(parts) or _TOP: mode for parts, mode in self._scan.directories().items() if not is_in_git(parts)
        }
        if len(directories) > MOST_ENTRIES:
            raise TooMuch(f"more than {MOST_ENTRIES:,} entries")
        # Git lists nothing in a directory that some system would take for a repository.
        passed_over = [path + b"/" for path in directories if path.rpartition(b"/")[2].lower() == b".git"]
        first = not self.store.get("captured")
        if first:
            self.store.clear_entries()
        spans = self.store.spans()
        if spans and not first and self._git is not None and self._git.has_snapshot:
            with contextlib.suppress(GitUnusable):
                state = self._git.compare()
                self._compare({*state.changed, *self._walk((*state.untracked, *passed_over))}, directories, note=True)
        try:
            if self._git is None:
                raise GitUnusable
            with ThreadPoolExecutor(1) as pool:
                self._modes = self.files.usual_modes(self._scan)
                below = directories.keys() - {_TOP}
                unusual = pool.submit(self.files.unusual, below, self._modes, self._git.racy_since())
                state = self._git.take_snapshot(self._scan.count_files())
                paths = {*state.changed, *self._walk((*state.untracked, *passed_over)), *unusual.result()}
            linked = (self.files.stat(as_parts(path)) for path in unusual.result())
            self._scan.single_links = all(info is not None and info.st_nlink == 1 for info in linked)
            self.store.set("source", "git")
            self.store.set("modes", json.dumps(self._modes))
        except GitUnusable:
            if self._git is not None:
                self._git.forget_snapshot()
            paths = set(self._walk((WHOLE,)))
            self.store.set("source", "walk")
        self._compare(paths, directories, note=not first)
        self.store.set("captured", "1")
        self.store.set("regenerable", json.dumps(sorted(self._regenerable)))

    def _compare(self, paths: Collection[bytes], directories: Mapping[bytes, int], *, note: bool) -> None:
        """`paths`: all files and links that are not what git's index has; every other one is. Directories: all."""
        if len(paths) > MOST_ENTRIES:
            raise TooMuch(f"more than {MOST_ENTRIES:,} entries")
        if left := tuple(as_bytes(parts) + b"/" for parts in self._regenerable if parts):
            directories = {path: mode for path, mode in directories.items() if not (path + b"/").startswith(left)}
        known = {
            path
            for path, one in self.store.entries()
            if one.state.kind is not PathKind.DIRECTORY and not path.startswith(b".git/")
        }
        old = {path: one.state.mode for path, one in self.store.entries() if one.state.kind is PathKind.DIRECTORY}
        clean = known.difference(paths)
        changed = self._update(clean)
        self.store.drop(self._needless(clean))
        changed += self._update(paths)
        moved = [path for path in {*old, *directories} if old.get(path) != directories.get(path)]
        for path in moved:
            before = PathState(PathKind.DIRECTORY, stat.S_IMODE(old[path])) if path in old else ABSENT
            changed.append((path, before))
        self.store.drop(path for path in moved if path not in directories)
        self.store.put((path, directory_entry(directories[path])) for path in moved if path in directories)
        if note:
            self._note(changed)

    def _needless(self, paths: Collection[bytes]) -> Collection[bytes]:
        """Entries of the table that say what git's index does. Git compares whole seconds: its word is not enough."""
        if self._git is None or not paths or self.store.get("source") != "git":
            return paths
        index = self._git.lookup(paths)
        blobs = self._kept_blobs(index.values())
        entries = self.store.entries_at(paths).items()
        return [path for path, one in entries if one and same_state(one.state, self._from_git(index.get(path), blobs))]

    def _walk(self, roots: Iterable[bytes]) -> Iterator[bytes]:
        return self.files.walk(roots, self._makes_again)

    # --- one path

    def _with_parents(self, paths: Iterable[Parts], judged: dict[Parts, bool] | None = None) -> list[bytes]:
        """And the directories above, which a call may have made. `judged`: as of `_is_left_out`."""
        judged = {} if judged is None else judged
        every = {parts[:length] for parts in paths for length in range(1, len(parts) + 1)}
        return sorted(as_bytes(parts) for parts in every if not self._is_left_out(parts, judged))

    def _update(self, paths: Iterable[bytes], *, anew: bool = False) -> list[tuple[bytes, PathState]]:
        """Brings the entries of these paths up to date. Each that is another than before, with the state before; where
        no call is open nobody asks for that. `anew`: also where the times say that nothing changed."""
        spans = self.store.spans()
        todo = sorted(paths)
        seen = self.files.seen_at(todo)
        entries = self.store.entries_at(todo)
        unknown = [path for path in todo if entries[path] is None] if spans and self.store.get("captured") else []
        index = self._git.lookup(unknown) if self._git is not None and unknown else {}
        blobs = self._kept_blobs(index.values())
        links = self._links(seen)
        # While a process goes on, what appears may be the person's.
        alone = len({span.session for span in spans}) == 1 and not any(span.goes_on for span in spans)
        maker = spans[0].session if alone else ""
        changed: list[tuple[bytes, PathState]] = []
        new: list[tuple[bytes, PathEntry]] = []
        # The smallest first: where not all can be kept, most are.
        for path in sorted(todo, key=lambda path: one.stamp.size if (one := seen[path]) else 0):
            here, entry = seen[path], entries[path]
            same = entry is not None and here is not None and entry.stamp.ctime != 0 and entry.stamp == here.stamp
            lost = same and entry is not None and bool(entry.state.lost)
            if same and not anew and not (lost and here is not None and not self._why_not(path, here.stamp, links)):
                continue
            before = entry.state if entry is not None else self._from_git(index.get(path), blobs)
            now = (self._read(path, here, links) if here is not None else None) or PathEntry(ABSENT, NO_STAMP)
            made_by = entry.made_by if entry is not None else ""
            if not lost and not same_state(before, now.state):
                changed.append((path, before))
                made_by = maker if before.kind is PathKind.ABSENT or made_by == maker else ""
            new.append((path, PathEntry(now.state, now.stamp, made_by)))
        self.store.put(new)
        if self.store.get("source") != "git":  # there is no index that would show them again
            self.store.drop(path for path, one in new if one.state.kind is PathKind.ABSENT)
        return changed

    def _links(self, seen: Mapping[bytes, Seen | None]) -> dict[tuple[int, int], int]:
        """Of each file with several names, how many of them lie in the zone."""
        names: dict[tuple[int, int], set[bytes]] = {}
        for path, one in seen.items():
            if one is not None and one.kind is PathKind.FILE and one.stamp.links > 1:
                names.setdefault((one.stamp.device, one.stamp.inode), set()).add(path)
        for (device, inode), known in names.items():
            others = set(self.store.names_of(device, inode)) - known
            known |= {path for path in others if (one := self.files.seen_at([path])[path]) and one.stamp.inode == inode}
        return {file: len(paths) for file, paths in names.items()}

    def _known_at(self, paths: Collection[bytes]) -> dict[bytes, PathEntry]:
        """As the table and git's index know them, without a look."""
        entries = self.store.entries_at(paths)
        unknown = [path for path, one in entries.items() if one is None and not path.startswith(b".git/")]
        index = self._git.lookup(unknown) if self._git is not None else {}
        blobs = self._kept_blobs(index.values())
        return {
            path: one or PathEntry(self._from_git(index.get(path), blobs), NO_STAMP) for path, one in entries.items()
        }

    def _kept_blobs(self, entries: Iterable[IndexEntry]) -> dict[tuple[bytes, bool], PathState]:
        """The blobs of these entries, in the store from now on: (id, whether it is a link) → its state."""
        wanted: dict[bytes, set[bool]] = {}
        for entry in entries:
            wanted.setdefault(entry.id, set()).add(stat.S_ISLNK(entry.mode))
        kept: dict[tuple[bytes, bool], PathState] = {}
        for id_, data in self._git.blobs(wanted) if self._git is not None and wanted else ():
            for link in wanted[id_]:
                kept[id_, link] = (
                    PathState(PathKind.LINK, target=os.fsdecode(data))
                    if link
                    else PathState(PathKind.FILE, 0, self.store.keep(data), len(data))
                )
        return kept

    def _from_git(self, entry: IndexEntry | None, blobs: Mapping[tuple[bytes, bool], PathState]) -> PathState:
        if entry is None:
            return ABSENT
        link = stat.S_ISLNK(entry.mode)
        state = blobs.get((entry.id, link)) or PathState(PathKind.LINK if link else PathKind.FILE, lost=_PRUNED)
        return state if link else replace(state, mode=self._modes[1 if entry.mode & 0o100 else 0])

    def _read(self, path: bytes, here: Seen, links: Mapping[tuple[int, int], int]) -> PathEntry | None:
        """Reads and keeps what stands at a path. None: it is gone meanwhile, or something else."""
        if here.kind is PathKind.FILE and (why := self._why_not(path, here.stamp, links)):
            return PathEntry(unread_state(here.stamp, why), here.stamp)
        settle = bool(self._going_on)
        return self.files.read(path, here, self._settings.max_file, self.store.keep, settle=settle)

    def _why_not(self, path: bytes, stamp: Stamp, links: Mapping[tuple[int, int], int]) -> str:
        """Why the content of a file is not kept; empty: it is."""
        if is_secret_name(os.fsdecode(path)):
            return _SECRET
        if stamp.device != self.files.device:
            return "it lies on another device"
        if stamp.links > 1 and links[stamp.device, stamp.inode] < stamp.links:
            return "it has another name, which may lie outside the zone"
        if stamp.size > self._settings.max_file:
            return f"{readable_size(stamp.size)}, above undo.max_file ({readable_size(self._settings.max_file)})"
        if self._budget is None:
            free = os.statvfs(self._folder)
            tenth = free.f_bavail * free.f_frsize // 10
            total = self._settings.max_total + self.store.new_bytes - self.store.kept_bytes()
            self._budget = min(total, tenth)
            self._bound = f"undo.max_total ({readable_size(self._settings.max_total)})"
            if total > tenth:
                self._bound = f"a tenth of the free disk ({readable_size(tenth)})"
        if stamp.size > self._budget - self.store.new_bytes:
            return f"{readable_size(stamp.size)}, past {self._bound}"
        return ""

    # --- what can be made again

    def _is_left_out(self, parts: Parts, judged: dict[Parts, bool]) -> bool:
        """`judged`: whether directories can be made again, for those that were asked for in the same look."""
        if is_in_git(parts):
            return True
        for length in range(1, len(parts) + 1):
            above = parts[:length]
            if above in self._regenerable:
                return True
            if length == len(parts):
                break
            if above not in judged:
                judged[above] = self._makes_again(above)
            if judged[above]:
                return True
        return False

    def _makes_again(self, parts: Parts) -> bool:
        """Whether a directory can be made again, and nothing in it was ever kept or is tracked."""
        if parts in self._regenerable:
            return True
        if not self.files.is_regenerable(parts) or self.store.has_files_below(parts) or self._was_moved(parts):
            return False
        known = self.store.entry(parts)
        if known is not None and known.state.kind is not PathKind.DIRECTORY:  # a file or link that a directory replaced
            return False
        if self._git is not None and self._git.has_snapshot and self._git.lookup([as_bytes(parts)]):
            return False
        self._regenerable.add(parts)
        return True

    def _regenerable_above(self, parts: Parts, also: Collection[Parts] = ()) -> Parts:
        """The directory that can be made again and that this path is or lies in; empty: there is none."""
        above = (parts[:length] for length in range(1, len(parts) + 1))
        return next((one for one in above if one in self._regenerable or one in also), ())

    def _note_remade(
        self, perhaps: Iterable[Parts], spans: Iterable[Span], since_ns: int, also: Collection[Parts] = ()
    ) -> None:
        """`perhaps`: paths that may have changed; those count that changed since then. `also`: directories that could
        be made again before, and may be gone. Caches are nothing to name."""
        mine = [self._remade[span.id] for span in spans if span.id in self._remade]
        found: set[Parts] = set()
        for parts in perhaps if mine else ():
            if not CACHES.isdisjoint(parts) or not (above := self._regenerable_above(parts, also)) or above in found:
                continue
            info = self.files.stat(parts)
            if info is None or info.st_ctime_ns >= since_ns:
                found.add(above)
        for each in mine:
            each |= found

    def _was_moved(self, parts: Parts) -> bool:
        """Whether a directory that was not there at the last look holds what is older: somebody's work, moved."""
        if self._mark is None or not self.store.spans() or self.store.entry(parts) is not None:
            return False
        return self.files.holds_older(parts, self._mark.time_ns)

    # --- changes

    def _note(self, changed: list[tuple[bytes, PathState]]) -> None:
        changed = [(path, before) for path, before in changed if path != _TOP or before.kind is not PathKind.ABSENT]
        if changed and (spans := self.store.spans()):
            self.store.note_changes(changed, spans)

    def _changes(
        self, span: Span, somebody_else: Callable[[int], bool] = lambda time_ns: False, who: str = _IDLE
    ) -> list[PathChange]:
        """What changed since the span began; the contents are kept for its session. `somebody_else`: whether a change
        at a moment was not the call's; `who`: in words."""
        made: list[PathChange] = []
        rows = self.store.span_changes(span)
        known = self._known_at([path for path, _, _ in rows])
        remade = self._remade.get(span.id, set())
        for path, before, others in rows:
            after = known[path].state
            if not same_state(before, after) and as_parts(path) not in remade:
                if somebody_else(known[path].stamp.ctime or self._changed_at(path)):
                    others = (*others, who)
                added, removed = (None, None) if path.startswith(b".git/") else self.count_lines(before, after)
                made.append(PathChange(self._virtual(path), before, after, others, added, removed))
        digests = (state.digest for one in made for state in (one.before, one.after))
        self.store.keep_for(span.session, digests, int(time.time()))
        if self._git_state is not None and (left := {id_ for one in made for id_ in left_commits(one)}):
            self._git_state.pin(left)
            self.store.keep_commits_for(span.session, left, int(time.time()))
            self.store.set("host", self.host)
        return made

    def _changed_at(self, path: bytes) -> int:
        """When it last changed; of what is gone, when its directory did; of git's own, the last moment there is."""
        parts = as_parts(path)
        if is_in_git(parts):
            return _LATEST
        while parts and (info := self.files.stat(parts)) is None:
            parts = parts[:-1]
        return info.st_ctime_ns if parts and info is not None else os.stat(self.host).st_ctime_ns

    def _virtual(self, path: bytes) -> str:
        return f"/{self.name}/{os.fsdecode(path)}"

    def count_lines(self, before: PathState, after: PathState) -> tuple[int | None, int | None]:
        sides = [self.text(state) for state in (before, after)]
        if None in sides:
            return None, None
        old, new = ((side or "").splitlines(keepends=True) for side in sides)
        changes = line_changes(old, new, most_comparisons=_MOST_COMPARISONS)
        return sum(one.new_to - one.new_from for one in changes), sum(one.old_to - one.old_from for one in changes)

    def text(self, state: PathState) -> str | None:
        """A content as text; None: it is none, or not kept."""
        if state.kind is PathKind.ABSENT:
            return ""
        data = self.store.content(state.digest) if state.digest and state.size <= _MOST_COMPARED else None
        if data is None or b"\0" in data[:8192]:
            return None
        return data.decode("utf-8", "replace")


_PRUNED: Final = "git does not have its content any more, or it is too large"

_histories: WeakValueDictionary[tuple[str, Identity | None, str], ZoneHistory] = WeakValueDictionary()
_sharing = Lock()


def zone_history(zone: Zone, home: Path, settings: UndoSettings) -> ZoneHistory:
    """The one of this process for a zone, by its configured directory: a worker's zone may begin deeper. Whoever calls
    keeps it: the next one begins with a look at everything. Threat: another directory in the place of one that somebody
    still keeps; it has one of its own."""
    host = outer_host(zone)
    key = (host, path_identity(host), str(home))
    with _sharing:
        found = _histories.get(key)
        if found is None:
            found = _histories[key] = ZoneHistory(host, zone.name, home, settings, zone.unprotect)
        return found


def outer_host(zone: Zone) -> str:
    """The configured directory of a zone that may begin deeper."""
    host = zone.host
    for part in reversed(zone.subpath):
        host = host.removesuffix(f"/{part}")
    return host


def find_git(host: str) -> Repository | None:
    """The repository whose work tree this directory is, or lies in."""

    class _Place(NamedTuple):
        host: str

    return find_repository(_Place(host))  # type: ignore[arg-type]


def forget_in_zone(store: ZoneStore, session: str) -> None:
    """What only this session needed may go: contents with the next `collect`, commits with git's next gc."""
    left = store.forget_session(session)
    if left and (host := store.get("host")) and (found := find_git(host)) is not None:
        _state_of(found, host, store.folder).unpin(left)


def _state_of(repository: Repository, host: str, folder: Path) -> GitState:
    root = str(Path(host).parents[len(repository.below) - 1]) if repository.below else host
    return GitState(root, repository, folder)


def _always(time_ns: int) -> bool:
    return True


def same_state(one: PathState, other: PathState) -> bool:
    """Whether undo has nothing to do between two states."""
    return (one.kind, one.mode, one.target, one.digest) == (other.kind, other.mode, other.target, other.digest)


def readable_size(size: float) -> str:
    for unit in ("bytes", "KiB", "MiB", "GiB"):
        if size < 1024 or unit == "GiB":
            return f"{size:.0f} {unit}" if size >= 10 or unit == "bytes" else f"{size:.1f} {unit}"
        size /= 1024
    return ""
