"""The registry: every user tool there is now, by name, and why the other folders are no tools.

`refresh` brings it up to date and returns what changed; `lookup` does so for one name; `snapshot`, `files` and
`version_files` give the bytes of one digest from the content store. A refresh without changes opens no file: the
listing and each folder and file are compared by times, size and inode, and only a folder that differs is read. Readers
of `entries` and `diagnostics` see the old state or the new one, never a mixture.

A name belongs to one tool: of folders equal ignoring case the first in code-point order has it. Plain files and hidden
names are no tools; of more than 20,000 folders the first by name count.

Threats: a folder that changes while it is judged (an entry names one digest, and only the snapshot of that digest is
run); one that breaks its reader (it gets a diagnostic, the others load); folders without end.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import threading
import time
from bisect import bisect_right
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from itertools import accumulate, chain, islice
from operator import eq, length_hint
from types import MappingProxyType
from typing import Final

from golem_forge.core.lazy_dataclass import dataclass, field
from golem_forge.storage.content_store import (
    ContentStore,
    FileStamp,
    Snapshot,
    StoreError,
    display_name,
    file_stamp,
    unsettled,
)
from golem_forge.storage.home import ForgeHome
from golem_forge.usertools.diagnostics import Diagnostic, DiagnosticCode, Unusable, name_problem
from golem_forge.usertools.folder import FolderFiles, ToolEntry, Validity
from golem_forge.usertools.manifest import MANIFEST_FILE, ToolManifest, manifest_to_json
from golem_forge.usertools.scan import FolderScan, RegistryCache, restore_scan, scan_folder

TOOLS: Final = "tools"
_CLOCK_TICK_S: Final = 0.022


def _ignore(entry: ToolEntry) -> None:
    pass


class Registry:
    def __init__(self, home: ForgeHome, *, seen: Callable[[ToolEntry], None] = _ignore) -> None:
        """`seen` is told once of every (name, digest) that this object comes across."""
        self._home = home
        self._tools = os.fspath(home.path / TOOLS)
        self._told = seen
        self._store = ContentStore(home)
        self._cache = RegistryCache(home)
        self._lock = threading.RLock()
        self._listing: FolderListing | None = None
        self._looks: dict[str, FolderScan] = {}
        self._state = RegistryState(entries=MappingProxyType({}), diagnostics=())
        self._row: MarkIndex | None = None
        """Of all looks. None: the state or a row would not be what the looks say, or not all of these can be compared
        by their marks."""
        self._seen: set[tuple[str, str]] = set()
        self._remembered: dict[tuple[str, str], ToolEntry] = {}
        """Entries out of the cache, until their manifest was held against the YAML."""

    @property
    def entries(self) -> Mapping[str, ToolEntry]:
        """By name, in the order of names."""
        return self._state.entries

    @property
    def diagnostics(self) -> tuple[Diagnostic, ...]:
        return self._state.diagnostics

    def refresh(self) -> RegistryChanges | None:
        """None: nothing changed."""
        with self._lock:
            listing = self._listing
            listed = listing is not None and listing.is_current
            changed = self._row.changed() if self._row else None
            if listed and changed is not None and not changed:
                return None
            if listing is None or not listed:
                listing = self._listed()
            self._look_at(listing, changed)
            found = build_state(self._looks, listing)
            changes = diff_states(self._state, found)
            if changes is not None:
                self._state = found
            lasting = all(look.validity is Validity.WHILE_MARKED for look in self._looks.values())
            self._row = MarkIndex(self._looks) if lasting else None
            for entry in found.entries.values():
                self._tell(entry)
            return changes

    def lookup(self, name: str) -> ToolEntry | Diagnostic | None:
        """That one as it is now. What differs from before is part of the next `refresh`."""
        with self._lock:
            if self._listing is None:
                self.refresh()
            assert self._listing is not None
            if name in self._listing.over_limit:
                return next((each for each in self.diagnostics if each.tool == name), None)
            look = self._looks.get(name)
            if look is None and name_problem(name):
                return None
            if look is None or not look.is_current:
                look = self._look_anew(name, self._listing)
            outcome = look.result if look else None
            if isinstance(outcome, ToolEntry):
                for other in self._listing.same_ignoring_case.get(name.lower(), ()):
                    if other < name and isinstance(self.lookup(other), ToolEntry):
                        return name_conflict(name, other)
                self._tell(outcome)
            return outcome

    def snapshot(self, entry: ToolEntry) -> Snapshot:
        """Where exactly that version stands, whole, whatever became of the folder since.

        Raises Unusable if the snapshot is lost and the folder no longer has these files.
        """
        with self._lock:
            snapshot = self._store.still_whole(entry.digest) or self._checked(entry.digest) or self._made_again(entry)
            if self._remembered.get(_entry_key(entry)) is entry:
                self._prove(entry, snapshot)
            return snapshot

    def files(self, entry: ToolEntry) -> FolderFiles:
        """The bytes of exactly that version."""
        try:
            return FolderFiles(*self._store.read(self.snapshot(entry)))
        except StoreError as error:
            raise Unusable(DiagnosticCode.UNREADABLE, error.message) from None

    def version_files(self, digest: str) -> FolderFiles | None:
        """Of any version that is still in the store, and whole."""
        snapshot = self._store.known(digest)
        try:
            return FolderFiles(*self._store.read(snapshot)) if snapshot else None
        except StoreError:
            return None

    def _listed(self) -> FolderListing:
        with contextlib.suppress(OSError):  # then it cannot be listed either, and that is diagnosed
            self._home.ensure(TOOLS)
        return list_folders(self._tools)

    def _look_at(self, listing: FolderListing, changed: frozenset[str] | None) -> None:
        """`changed`: of the looks there are, those that no longer hold; None if that is not known."""
        kept = self._cache.load() if self._listing is None else {}
        stored = self._store.names() if kept else frozenset()
        looks: dict[str, FolderScan] = {}
        fresh: list[str] = []
        for name in listing.names:
            before = self._looks.get(name)
            if before is not None and (before.is_current if changed is None else name not in changed):
                looks[name] = before
            elif name in kept and (look := restore_scan(self._tools, name, kept[name], stored)):
                looks[name] = look
                if isinstance(look.result, ToolEntry):
                    self._remembered[_entry_key(look.result)] = look.result
            elif look := scan_folder(self._tools, name, self._store):
                looks[name] = look
                fresh.append(name)
        self._settle(looks, fresh)
        self._looks, self._listing = looks, listing
        self._cache.add(looks, fresh)

    def _settle(self, looks: dict[str, FolderScan], fresh: list[str]) -> None:
        """What changed this very moment is read once more when the clock's tick is over, so that the next refresh
        finds it at rest and opens nothing. What goes on changing is read at every refresh."""
        moving = [name for name in fresh if looks[name].validity is Validity.MOMENT]
        if moving:
            time.sleep(_CLOCK_TICK_S)
        for name in moving:
            if look := scan_folder(self._tools, name, self._store):
                looks[name] = look

    def _look_anew(self, name: str, listing: FolderListing) -> FolderScan | None:
        self._row = None
        look = scan_folder(self._tools, name, self._store)
        if look is None:
            self._looks.pop(name, None)
            return None
        if name not in self._looks:
            self._listing = listing.with_name(name)
        self._looks[name] = look
        return look

    def _tell(self, entry: ToolEntry) -> None:
        if (key := _entry_key(entry)) not in self._seen:
            self._told(entry)
            self._seen.add(key)

    def _checked(self, digest: str) -> Snapshot | None:
        snapshot = self._store.known(digest)
        try:
            if snapshot is not None:
                self._store.check(snapshot)
        except StoreError:
            return None
        return snapshot

    def _made_again(self, entry: ToolEntry) -> Snapshot:
        look = scan_folder(self._tools, entry.name, self._store)
        again = look.result if look else None
        snapshot = self._store.known(entry.digest)
        if snapshot is None or not isinstance(again, ToolEntry) or again.digest != entry.digest:
            why = f"the stored version of '{entry.name}' is lost and its folder has changed since; try again"
            raise Unusable(DiagnosticCode.CHANGED, why)
        return snapshot

    def _prove(self, entry: ToolEntry, snapshot: Snapshot) -> None:
        """Threat: a forged cache that gives trusted bytes a manifest with more reach."""
        from golem_forge.usertools.manifest.reader import read_manifest

        files, _ = self._store.read(snapshot)
        if _canonical_json(read_manifest(files[MANIFEST_FILE], folder=entry.name)) != _canonical_json(entry.manifest):
            self._cache.remove()
            self._looks, self._row = {}, None
            raise Unusable(
                DiagnosticCode.CHANGED, f"what was remembered of '{entry.name}' is not what its files say; try again"
            )
        del self._remembered[_entry_key(entry)]


def _entry_key(entry: ToolEntry) -> tuple[str, str]:
    return entry.name, entry.digest


def _canonical_json(manifest: ToolManifest) -> str:
    return json.dumps(manifest_to_json(manifest), sort_keys=True)


_MOST_LIMIT_DIAGNOSTICS: Final = 1_000
"""Of the folders past the limit; each says how many there are."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RegistryState:
    entries: Mapping[str, ToolEntry]
    diagnostics: tuple[Diagnostic, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class RegistryChanges:
    """Names, in order."""

    added: tuple[str, ...] = ()
    changed: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()
    diagnosed: tuple[str, ...] = ()
    """Folders whose diagnosis came, went or reads differently now."""


def build_state(looks: Mapping[str, FolderScan], listing: FolderListing) -> RegistryState:
    entries: dict[str, ToolEntry] = {}
    diagnostics: list[Diagnostic] = []
    owners: dict[str, str] = {}
    for name in sorted(looks):
        outcome = looks[name].result
        if isinstance(outcome, ToolEntry):
            if (owner := owners.setdefault(name.lower(), name)) == name:
                entries[name] = outcome
            else:
                diagnostics.append(name_conflict(name, owner))
        elif outcome is not None:
            diagnostics.append(outcome)
    diagnostics += _limit_diagnostics(listing.over_limit)
    if listing.problem:
        diagnostics.append(
            Diagnostic(
                tool="", code=DiagnosticCode.UNREADABLE, message=f"the tools folder: cannot be read ({listing.problem})"
            )
        )
    return RegistryState(
        entries=MappingProxyType(entries), diagnostics=tuple(sorted(diagnostics, key=lambda each: each.tool))
    )


def name_conflict(name: str, owner: str) -> Diagnostic:
    message = f"the folders '{owner}' and '{name}' differ only in case, and '{owner}' comes first; rename one of them"
    return Diagnostic(tool=name, code=DiagnosticCode.NAME_CONFLICT, message=message)


def diff_states(before: RegistryState, after: RegistryState) -> RegistryChanges | None:
    """None if there are none."""
    old, new = before.entries, after.entries
    told, tells = _diagnostics_by_tool(before), _diagnostics_by_tool(after)
    changes = RegistryChanges(
        added=tuple(name for name in new if name not in old),
        changed=tuple(name for name in new if name in old and new[name] is not old[name] and new[name] != old[name]),
        removed=tuple(name for name in old if name not in new),
        diagnosed=tuple(name for name in sorted(told.keys() | tells.keys()) if told.get(name) != tells.get(name)),
    )
    return None if changes == RegistryChanges() else changes


def _limit_diagnostics(beyond: tuple[str, ...]) -> list[Diagnostic]:
    message = f"there are more than {MOST_TOOLS:,} folders; the last {len(beyond):,} by name are not loaded"
    return [
        Diagnostic(tool=display_name(name), code=DiagnosticCode.TOO_MANY_TOOLS, message=message)
        for name in beyond[:_MOST_LIMIT_DIAGNOSTICS]
    ]


def _diagnostics_by_tool(state: RegistryState) -> dict[str, Diagnostic]:
    return {each.tool: each for each in state.diagnostics}


MOST_TOOLS: Final = 20_000


@dataclass(frozen=True, slots=True, kw_only=True)
class FolderListing:
    tools: str
    names: tuple[str, ...] = ()
    """Folders, and links: those that lead to a folder are diagnosed."""
    over_limit: tuple[str, ...] = ()
    """Folders past the limit."""
    same_ignoring_case: Mapping[str, tuple[str, ...]] = field(default_factory=lambda: MappingProxyType({}))
    """Lower-case name → the names it stands for, where there are several."""
    mark: FileStamp | None = None
    """None: the directory changes or cannot be read; list it again."""
    problem: str = ""

    @property
    def is_current(self) -> bool:
        try:
            return self.mark is not None and file_stamp(os.stat(self.tools)) == self.mark
        except OSError:
            return False

    def with_name(self, name: str) -> FolderListing:
        """The same with a folder that came after the list was made; it is listed anew at the next occasion."""
        return _make_listing(self.tools, {*self.names, *self.over_limit, name}, None)


def list_folders(tools: str) -> FolderListing:
    started = time.time_ns()
    try:
        mark = file_stamp(os.stat(tools))
        with os.scandir(tools) as listing:
            found = {each.name for each in listing if not each.name.startswith(".") and _may_be_folder(each)}
    except OSError as error:
        return FolderListing(tools=tools, problem=os.strerror(error.errno or 0))
    return _make_listing(tools, found, None if unsettled((mark,), since=started) else mark)


def _make_listing(tools: str, found: set[str], mark: FileStamp | None) -> FolderListing:
    names = sorted(found)
    spellings: dict[str, list[str]] = {}
    for name in names:
        spellings.setdefault(name.lower(), []).append(name)
    return FolderListing(
        tools=tools,
        names=tuple(names[:MOST_TOOLS]),
        over_limit=tuple(names[MOST_TOOLS:]),
        same_ignoring_case=MappingProxyType(
            {lower: tuple(alike) for lower, alike in spellings.items() if len(alike) > 1}
        ),
        mark=mark,
    )


def _may_be_folder(entry: os.DirEntry[str]) -> bool:
    return entry.is_dir(follow_symlinks=False) or entry.is_symlink()


class MarkIndex:
    def __init__(self, looks: Mapping[str, FolderScan]) -> None:
        self._names = tuple(looks)
        self._paths = [path for look in looks.values() for path in look.paths]
        self._marks = [mark for look in looks.values() for mark in look.marks]
        self._ends = list(accumulate(len(look.paths) for look in looks.values()))
        """For each name, where in the row the next one begins."""

    def changed(self) -> frozenset[str]:
        found: set[str] = set()
        paths, marks = iter(self._paths), iter(self._marks)
        while not _all_equal(paths, marks):
            at = len(self._paths) - length_hint(paths)  # the one after that which differs
            owner = bisect_right(self._ends, at - 1)
            found.add(self._names[owner])
            left = self._ends[owner] - at
            deque(chain(islice(paths, left), islice(marks, left)), maxlen=0)
        return frozenset(found)


def _all_equal(paths: Iterator[str], marks: Iterator[FileStamp]) -> bool:
    """Whether all that is left in both is so; else both have gone past the first that is not."""
    try:
        return all(map(eq, map(file_stamp, map(os.lstat, paths)), marks))
    except OSError:
        next(marks)
        return False


async def watch_folders(home: ForgeHome, *, poll_s: float = 0.5) -> AsyncIterator[RegistryChanges]:
    async for found in watch_registry(Registry(home), poll_s=poll_s):
        yield found


async def watch_registry(registry: Registry, *, poll_s: float = 0.5) -> AsyncIterator[RegistryChanges]:
    """Of a registry that the reader has too, to show what is there now."""
    while True:
        # Reading a large folder anew takes a moment, in which the terminal still answers.
        found = await asyncio.to_thread(registry.refresh)
        if found is not None:
            yield found
        await asyncio.sleep(poll_s)
