"""The registry: every user tool there is now, by name, and why the other folders are none.

`refresh` brings it up to date and says what changed; `look` does so for one name; `snapshot`, `files` and `old_files`
give the bytes of one digest from the content store. A refresh without changes opens no file: the listing and each
folder and file are compared by times, size and inode, and only a folder that differs is read. Readers of `entries`
and `diagnostics` see the old state or the new one, never a mixture.

Threats: a folder that changes while it is judged (an Entry names one digest, and only the snapshot of that digest is
ever run); one that breaks its reader (it gets a diagnosis, its neighbours load); folders without end (20,000).
"""

from __future__ import annotations

import contextlib
import json
import os
import threading
import time
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Final

from golem_forge.config.home import ForgeHome
from golem_forge.custom.diagnostic import Code, Diagnostic, Unusable
from golem_forge.custom.entry import Entry
from golem_forge.custom.manifest import MANIFEST, Manifest
from golem_forge.custom.manifest.as_json import manifest_to_json
from golem_forge.custom.names import name_problem
from golem_forge.custom.registry.cache import RegistryCache, recall
from golem_forge.custom.registry.folder import FolderFiles, Lasts
from golem_forge.custom.registry.listing import Listing, list_folders
from golem_forge.custom.registry.row import MarkRow
from golem_forge.custom.registry.scan import Look, take_look
from golem_forge.custom.registry.state import Changes, State, changes_between, name_conflict, state_of
from golem_forge.sandbox.store import ContentStore, Snapshot, StoreError

__all__ = ["Changes", "Registry"]

TOOLS: Final = "tools"
_TICK_S: Final = 0.022


def _nobody(entry: Entry) -> None:
    pass


class Registry:
    def __init__(self, home: ForgeHome, *, seen: Callable[[Entry], None] = _nobody) -> None:
        """`seen` is told once of every (name, digest) that this object comes across."""
        self._home = home
        self._tools = os.fspath(home.path / TOOLS)
        self._told = seen
        self._store = ContentStore(home)
        self._cache = RegistryCache(home)
        self._lock = threading.RLock()
        self._listing: Listing | None = None
        self._looks: dict[str, Look] = {}
        self._state = State(entries=MappingProxyType({}), diagnostics=())
        self._row: MarkRow | None = None
        """Of all looks. None: the state or a row would not be what the looks say, or not all of these can be compared
        by their marks."""
        self._seen: set[tuple[str, str]] = set()
        self._remembered: dict[tuple[str, str], Entry] = {}
        """Entries out of the cache, until their manifest was held against the YAML."""

    @property
    def entries(self) -> Mapping[str, Entry]:
        """By name, in the order of names."""
        return self._state.entries

    @property
    def diagnostics(self) -> tuple[Diagnostic, ...]:
        return self._state.diagnostics

    def refresh(self) -> Changes | None:
        """None: nothing changed."""
        with self._lock:
            listing = self._listing
            listed = listing is not None and listing.holds
            changed = self._row.changed() if self._row else None
            if listed and changed is not None and not changed:
                return None
            if listing is None or not listed:
                listing = self._listed()
            self._look_at(listing, changed)
            found = state_of(self._looks, listing)
            changes = changes_between(self._state, found)
            if changes is not None:
                self._state = found
            lasting = all(look.lasts is Lasts.WHILE_MARKED for look in self._looks.values())
            self._row = MarkRow(self._looks) if lasting else None
            for entry in found.entries.values():
                self._tell(entry)
            return changes

    def look(self, name: str) -> Entry | Diagnostic | None:
        """That one as it is now. What differs from before is part of the next `refresh`."""
        with self._lock:
            if self._listing is None:
                self.refresh()
            assert self._listing is not None
            if name in self._listing.beyond:
                return next((each for each in self.diagnostics if each.tool == name), None)
            look = self._looks.get(name)
            if look is None and name_problem(name):
                return None
            if look is None or not look.holds:
                look = self._look_anew(name, self._listing)
            outcome = look.outcome if look else None
            if isinstance(outcome, Entry):
                for other in self._listing.alike.get(name.lower(), ()):
                    if other < name and isinstance(self.look(other), Entry):
                        return name_conflict(name, other)
                self._tell(outcome)
            return outcome

    def snapshot(self, entry: Entry) -> Snapshot:
        """Where exactly that version stands, whole, whatever became of the folder since.

        Raises Unusable if the snapshot is lost and the folder no longer has these files.
        """
        with self._lock:
            snapshot = self._store.still_whole(entry.digest) or self._checked(entry.digest) or self._made_again(entry)
            if self._remembered.get(_key(entry)) is entry:
                self._prove(entry, snapshot)
            return snapshot

    def files(self, entry: Entry) -> FolderFiles:
        """The bytes of exactly that version."""
        try:
            return FolderFiles(*self._store.read(self.snapshot(entry)))
        except StoreError as error:
            raise Unusable(Code.UNREADABLE, error.message) from None

    def old_files(self, digest: str) -> FolderFiles | None:
        """Of any version that is still in the store, and whole."""
        snapshot = self._store.known(digest)
        try:
            return FolderFiles(*self._store.read(snapshot)) if snapshot else None
        except StoreError:
            return None

    def _listed(self) -> Listing:
        with contextlib.suppress(OSError):  # then it cannot be listed either, and that is diagnosed
            self._home.ensure(TOOLS)
        return list_folders(self._tools)

    def _look_at(self, listing: Listing, changed: frozenset[str] | None) -> None:
        """`changed`: of the looks there are, those that no longer hold; None if that is not known."""
        kept = self._cache.load() if self._listing is None else {}
        stored = self._store.names() if kept else frozenset()
        looks: dict[str, Look] = {}
        fresh: list[str] = []
        for name in listing.names:
            before = self._looks.get(name)
            if before is not None and (before.holds if changed is None else name not in changed):
                looks[name] = before
            elif name in kept and (look := recall(self._tools, name, kept[name], stored)):
                looks[name] = look
                if isinstance(look.outcome, Entry):
                    self._remembered[_key(look.outcome)] = look.outcome
            elif look := take_look(self._tools, name, self._store):
                looks[name] = look
                fresh.append(name)
        self._settle(looks, fresh)
        self._looks, self._listing = looks, listing
        self._cache.add(looks, fresh)

    def _settle(self, looks: dict[str, Look], fresh: list[str]) -> None:
        """What changed this very moment is read once more when the clock's tick is over, so that the next refresh
        finds it at rest and opens nothing. What goes on changing is read at every refresh."""
        moving = [name for name in fresh if looks[name].lasts is Lasts.MOMENT]
        if moving:
            time.sleep(_TICK_S)
        for name in moving:
            if look := take_look(self._tools, name, self._store):
                looks[name] = look

    def _look_anew(self, name: str, listing: Listing) -> Look | None:
        self._row = None
        look = take_look(self._tools, name, self._store)
        if look is None:
            self._looks.pop(name, None)
            return None
        if name not in self._looks:
            self._listing = listing.with_name(name)
        self._looks[name] = look
        return look

    def _tell(self, entry: Entry) -> None:
        if (key := _key(entry)) not in self._seen:
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

    def _made_again(self, entry: Entry) -> Snapshot:
        look = take_look(self._tools, entry.name, self._store)
        again = look.outcome if look else None
        snapshot = self._store.known(entry.digest)
        if snapshot is None or not isinstance(again, Entry) or again.digest != entry.digest:
            why = f"the stored version of '{entry.name}' is lost and its folder has changed since; try again"
            raise Unusable(Code.CHANGED, why)
        return snapshot

    def _prove(self, entry: Entry, snapshot: Snapshot) -> None:
        """Threat: a forged cache that gives trusted bytes a manifest with more reach."""
        from golem_forge.custom.manifest.reading import read_manifest

        files, _ = self._store.read(snapshot)
        if _spelled(read_manifest(files[MANIFEST], folder=entry.name)) != _spelled(entry.manifest):
            self._cache.remove()
            self._looks, self._row = {}, None
            raise Unusable(Code.CHANGED, f"what was remembered of '{entry.name}' is not what its files say; try again")
        del self._remembered[_key(entry)]


def _key(entry: Entry) -> tuple[str, str]:
    return entry.name, entry.digest


def _spelled(manifest: Manifest) -> str:
    return json.dumps(manifest_to_json(manifest), sort_keys=True)
