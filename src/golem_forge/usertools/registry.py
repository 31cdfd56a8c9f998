"""The registry: every user tool there is now, by name, and why the other folders are no tools.

`refresh` brings it up to date and returns what changed; `lookup` does so for one name; `snapshot`, `files` and
`version_files` give the bytes of one digest from the content store. A refresh without changes opens no file: the
listing and each folder and file are compared by times, size and inode, and only a folder that differs is read
(`scan_folder`). A FolderScan is an entry, a diagnostic, or nothing, and knows the mark (times, size, inode) of all that
it read. What is a tool has its snapshot in the content store: the bytes that were hashed are the bytes that were
stored. Readers of `entries` and `diagnostics` see the old state or the new one, never a mixture.

A name belongs to one tool: of folders equal ignoring case the first in code-point order has it. Plain files and hidden
names are no tools; of more than 20,000 folders the first by name count.

`RegistryCache` keeps scans between two starts in FORGE_HOME/cache/registry, 0600, safe to delete: a header, then a line
per folder with its name and JSON of its marks, digest, files and manifest. A line counts while every mark is the same;
later lines win. Any other line is ignored, and so is the whole file when Forge itself was changed.

Threats: a folder that changes while it is judged (an entry names one digest, and only the snapshot of that digest is
run); one that breaks its reader (it gets a diagnostic, the others load); folders without end; a forged line of the
cache (it can name only what is in the content store under a digest that its files give; its manifest is compared with
the stored YAML before the tool is used; it is JSON: reading it runs nothing).
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import stat
import threading
import time
from bisect import bisect_right
from collections import deque
from collections.abc import AsyncIterator, Callable, Collection, Iterator, Mapping
from glob import glob
from itertools import accumulate, chain, islice
from operator import eq, length_hint
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

from golem_forge._version import __version__
from golem_forge.core.errors import error_name
from golem_forge.core.lazy_dataclass import dataclass, field
from golem_forge.core.text import display_name
from golem_forge.storage.content_store import (
    ContentStore,
    FileMark,
    Snapshot,
    StoreError,
    file_mark,
    unchanged,
    unsettled,
)
from golem_forge.storage.home import ForgeHome, read_private, write_private
from golem_forge.usertools.diagnostics import Diagnostic, DiagnosticCode, Unusable, name_problem
from golem_forge.usertools.folder import (
    FileFact,
    FolderFiles,
    ToolEntry,
    Validity,
    files_digest,
    find_entrypoint,
    try_folder,
    validity_since,
)
from golem_forge.usertools.manifest import MANIFEST_FILE, ToolManifest, manifest_from_json, manifest_to_json
from golem_forge.usertools.manifest.tool_yaml import read_manifest

TOOLS: Final = "tools"
_CLOCK_TICK_S: Final = 0.022
_CACHE_FORMAT: Final = 1
_LARGEST_CACHE: Final = 128 << 20
_SPARE_LINES: Final = 200
"""Lines that no longer count are kept up to as many as those that do, and this many more."""
ScanResult = ToolEntry | Diagnostic | None
"""None means no tool and no error (a folder without `tool.yaml`)."""
MOST_TOOLS: Final = 20_000
_MOST_LIMIT_DIAGNOSTICS: Final = 1_000
"""Maximum diagnostics about folders past the limit; each says how many there are."""


class Registry:
    def __init__(
        self,
        home: ForgeHome,
        *,
        seen: Callable[[ToolEntry], None] = lambda entry: None,
        repaired: Callable[[str], None] | None = None,
    ) -> None:
        """`seen` is told once of every (name, digest) that this object comes across; `repaired` the name of a tool
        whose snapshot somebody had changed, once it was made again from the folder."""
        self._home = home
        self._tools = os.fspath(home.path / TOOLS)
        self._on_entry = seen
        self._replaced: list[str] = []
        """Digests of snapshots that were made again and that nobody was told of yet."""
        self._repaired = repaired
        self._store = ContentStore(home, on_replaced=self._replaced.append) if repaired else ContentStore(home)
        self._cache = RegistryCache(home)
        self._lock = threading.RLock()
        self._listing: FolderListing | None = None
        self._scans: dict[str, FolderScan] = {}
        self._state = RegistryState(entries=MappingProxyType({}), diagnostics=())
        self._index: MarkIndex | None = None
        """Of all scans. None: the state or the index would differ from the scans, or some of these cannot be compared
        by their marks."""
        self._seen: set[tuple[str, str]] = set()
        self._unproven: dict[tuple[str, str], ToolEntry] = {}
        """Entries out of the cache, until their manifest was compared with the YAML."""

    @property
    def entries(self) -> Mapping[str, ToolEntry]:
        """Entries by name, in the order of names."""
        return self._state.entries

    @property
    def diagnostics(self) -> tuple[Diagnostic, ...]:
        return self._state.diagnostics

    def refresh(self) -> RegistryChanges | None:
        """Reads changed folders; None if nothing changed."""
        with self._lock:
            listing = self._listing
            listed = listing is not None and listing.is_current
            changed = self._index.changed() if self._index else None
            if listed and changed is not None and not changed:
                return None
            if listing is None or not listed:
                with contextlib.suppress(OSError):  # then it cannot be listed either, and that is diagnosed
                    self._home.ensure(TOOLS)
                listing = list_folders(self._tools)
            self._scan_all(listing, changed)
            found = build_state(self._scans, listing)
            changes = diff_states(self._state, found)
            if changes is not None:
                self._state = found
            lasting = all(scan.validity is Validity.WHILE_MARKED for scan in self._scans.values())
            self._index = MarkIndex(self._scans) if lasting else None
            for entry in found.entries.values():
                self._report(entry)
            return changes

    def lookup(self, name: str) -> ToolEntry | Diagnostic | None:
        """Returns the present state of one tool. A difference is also part of the next `refresh`."""
        with self._lock:
            if self._listing is None:
                self.refresh()
            assert self._listing is not None
            if name in self._listing.over_limit:
                return next((each for each in self.diagnostics if each.tool == name), None)
            scan = self._scans.get(name)
            if scan is None and name_problem(name):
                return None
            if scan is None or not scan.is_current:
                scan = self._scan_again(name, self._listing)
            outcome = scan.result if scan else None
            if isinstance(outcome, ToolEntry):
                for other in self._listing.same_ignoring_case.get(name.lower(), ()):
                    if other < name and isinstance(self.lookup(other), ToolEntry):
                        return name_conflict(name, other)
                self._report(outcome)
            return outcome

    def snapshot(self, entry: ToolEntry) -> Snapshot:
        """Returns the complete snapshot of exactly that version, whatever happened to the folder since.

        Raises Unusable if the snapshot is lost and the folder no longer has these files.
        """
        with self._lock:
            snapshot = self._store.still_whole(entry.digest) or self._checked(entry.digest) or self._stored_again(entry)
            if self._unproven.get(_entry_key(entry)) is entry:
                self._prove(entry, snapshot)
            return snapshot

    def files(self, entry: ToolEntry) -> FolderFiles:
        """Returns the bytes of exactly that version."""
        try:
            return FolderFiles(*self._store.read(self.snapshot(entry)))
        except StoreError as error:
            raise Unusable(DiagnosticCode.UNREADABLE, error.message) from None

    def version_files(self, digest: str) -> FolderFiles | None:
        """Returns the files of any version that is still complete in the store."""
        snapshot = self._store.known(digest)
        try:
            return FolderFiles(*self._store.read(snapshot)) if snapshot else None
        except StoreError:
            return None

    def version_entry(self, name: str, digest: str) -> ToolEntry | None:
        """An earlier version of a tool, as long as its bytes are in the store, whole, and still a tool."""
        files = self.version_files(digest)
        if files is None or MANIFEST_FILE not in files.files:
            return None
        try:
            manifest = read_manifest(files.files[MANIFEST_FILE], folder=name)
        except Unusable:
            return None
        folder = self._home.path / TOOLS / name
        return ToolEntry(name=name, folder=folder, manifest=manifest, digest=digest, files=files.facts)

    def peek(self, digest: str, file: str, limit: int) -> bytes | None:
        """One file of any version that is still in the store, for a list: nobody compared it with the digest."""
        snapshot = self._store.known(digest)
        return self._store.peek(snapshot, file, limit) if snapshot is not None else None

    def _scan(self, name: str) -> FolderScan | None:
        scan = scan_folder(self._tools, name, self._store)
        if self._replaced and self._repaired is not None:
            self._replaced.clear()
            self._repaired(display_name(name))
        return scan

    def _scan_all(self, listing: FolderListing, changed: frozenset[str] | None) -> None:
        """`changed`: of the scans there are, those that no longer hold; None if that is not known."""
        cached = self._cache.load() if self._listing is None else {}
        stored = self._store.names() if cached else frozenset()
        scans: dict[str, FolderScan] = {}
        fresh: list[str] = []
        for name in listing.names:
            before = self._scans.get(name)
            if before is not None and (before.is_current if changed is None else name not in changed):
                scans[name] = before
            elif name in cached and (scan := restore_scan(self._tools, name, cached[name], stored)):
                scans[name] = scan
                if isinstance(scan.result, ToolEntry):
                    self._unproven[_entry_key(scan.result)] = scan.result
            elif scan := self._scan(name):
                scans[name] = scan
                fresh.append(name)
        self._settle(scans, fresh)
        self._scans, self._listing = scans, listing
        self._cache.add(scans, fresh)

    def _settle(self, scans: dict[str, FolderScan], fresh: list[str]) -> None:
        """Reads folders that just changed again after the clock's tick, so that the next refresh finds them unchanged
        and opens nothing. A folder that keeps changing is read at every refresh.
        """
        moving = [name for name in fresh if scans[name].validity is Validity.MOMENT]
        if moving:
            time.sleep(_CLOCK_TICK_S)
        for name in moving:
            if scan := self._scan(name):
                scans[name] = scan

    def _scan_again(self, name: str, listing: FolderListing) -> FolderScan | None:
        self._index = None
        scan = self._scan(name)
        if scan is None:
            self._scans.pop(name, None)
            return None
        if name not in self._scans:
            self._listing = listing.with_name(name)
        self._scans[name] = scan
        return scan

    def _report(self, entry: ToolEntry) -> None:
        if (key := _entry_key(entry)) not in self._seen:
            self._on_entry(entry)
            self._seen.add(key)

    def _checked(self, digest: str) -> Snapshot | None:
        snapshot = self._store.known(digest)
        try:
            if snapshot is not None:
                self._store.check(snapshot)
        except StoreError:
            return None
        return snapshot

    def _stored_again(self, entry: ToolEntry) -> Snapshot:
        scan = self._scan(entry.name)
        again = scan.result if scan else None
        snapshot = self._store.known(entry.digest)
        if snapshot is None or not isinstance(again, ToolEntry) or again.digest != entry.digest:
            why = f"the stored version of '{entry.name}' is lost and its folder has changed since; try again"
            raise Unusable(DiagnosticCode.CHANGED, why)
        return snapshot

    def _prove(self, entry: ToolEntry, snapshot: Snapshot) -> None:
        """Threat: a forged cache that gives trusted bytes a manifest with more reach."""
        files, _ = self._store.read(snapshot)
        if _canonical_json(read_manifest(files[MANIFEST_FILE], folder=entry.name)) != _canonical_json(entry.manifest):
            self._cache.remove()
            self._scans, self._index = {}, None
            why = f"the stored facts about '{entry.name}' do not fit its files; try again"
            raise Unusable(DiagnosticCode.CHANGED, why)
        del self._unproven[_entry_key(entry)]


def _entry_key(entry: ToolEntry) -> tuple[str, str]:
    return entry.name, entry.digest


def _canonical_json(manifest: ToolManifest) -> str:
    return json.dumps(manifest_to_json(manifest), sort_keys=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class RegistryState:
    entries: Mapping[str, ToolEntry]
    diagnostics: tuple[Diagnostic, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class RegistryChanges:
    """Names of changed tools, in order."""

    added: tuple[str, ...] = ()
    changed: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()
    diagnosed: tuple[str, ...] = ()
    """Folders whose diagnosis came, went or reads differently now."""


def build_state(scans: Mapping[str, FolderScan], listing: FolderListing) -> RegistryState:
    entries: dict[str, ToolEntry] = {}
    diagnostics: list[Diagnostic] = []
    owners: dict[str, str] = {}
    for name in sorted(scans):
        outcome = scans[name].result
        if isinstance(outcome, ToolEntry):
            if (owner := owners.setdefault(name.lower(), name)) == name:
                entries[name] = outcome
            else:
                diagnostics.append(name_conflict(name, owner))
        elif outcome is not None:
            diagnostics.append(outcome)
    beyond = listing.over_limit
    message = f"there are more than {MOST_TOOLS:,} folders; the last {len(beyond):,} by name are not loaded"
    for name in beyond[:_MOST_LIMIT_DIAGNOSTICS]:
        found = Diagnostic(tool=display_name(name), code=DiagnosticCode.TOO_MANY_TOOLS, message=message)
        diagnostics.append(found)
    if listing.problem:
        message = f"the tools folder: cannot be read ({listing.problem})"
        diagnostics.append(Diagnostic(tool="", code=DiagnosticCode.UNREADABLE, message=message))
    diagnostics.sort(key=lambda each: each.tool)
    return RegistryState(entries=MappingProxyType(entries), diagnostics=tuple(diagnostics))


def name_conflict(name: str, owner: str) -> Diagnostic:
    message = f"the folders '{owner}' and '{name}' differ only in case, and '{owner}' comes first; rename one of them"
    return Diagnostic(tool=name, code=DiagnosticCode.NAME_CONFLICT, message=message)


def diff_states(before: RegistryState, after: RegistryState) -> RegistryChanges | None:
    """Returns the changes between two states; None if there are none."""
    old, new = before.entries, after.entries
    was, now = ({each.tool: each for each in state.diagnostics} for state in (before, after))
    changes = RegistryChanges(
        added=tuple(name for name in new if name not in old),
        changed=tuple(name for name in new if name in old and new[name] is not old[name] and new[name] != old[name]),
        removed=tuple(name for name in old if name not in new),
        diagnosed=tuple(name for name in sorted(was.keys() | now.keys()) if was.get(name) != now.get(name)),
    )
    return None if changes == RegistryChanges() else changes


@dataclass(frozen=True, slots=True, kw_only=True)
class FolderListing:
    tools: str
    names: tuple[str, ...] = ()
    """Folders, and links: those that lead to a folder are diagnosed."""
    over_limit: tuple[str, ...] = ()
    """Folders past the limit."""
    same_ignoring_case: Mapping[str, tuple[str, ...]] = field(default_factory=lambda: MappingProxyType({}))
    """Lower-case name → the names it stands for, where there are several."""
    mark: FileMark | None = None
    """None if the directory is changing or unreadable, so that it has to be listed again."""
    problem: str = ""

    @property
    def is_current(self) -> bool:
        try:
            return self.mark is not None and file_mark(os.stat(self.tools)) == self.mark
        except OSError:
            return False

    def with_name(self, name: str) -> FolderListing:
        """Returns the listing with a folder that was created since; it is listed again next time."""
        return _make_listing(self.tools, {*self.names, *self.over_limit, name}, None)


def list_folders(tools: str) -> FolderListing:
    started = time.time_ns()
    try:
        mark = file_mark(os.stat(tools))
        with os.scandir(tools) as listing:
            folders = (each for each in listing if each.is_dir(follow_symlinks=False) or each.is_symlink())
            found = {each.name for each in folders if not each.name.startswith(".")}
    except OSError as error:
        if isinstance(error, FileNotFoundError) and not os.path.lexists(tools):
            return FolderListing(tools=tools)  # a home that nobody wrote to yet, and perhaps cannot
        return FolderListing(tools=tools, problem=os.strerror(error.errno or 0))
    return _make_listing(tools, found, None if unsettled((mark,), since=started) else mark)


def _make_listing(tools: str, found: set[str], mark: FileMark | None) -> FolderListing:
    names = sorted(found)
    spellings: dict[str, list[str]] = {}
    for name in names:
        spellings.setdefault(name.lower(), []).append(name)
    several = {lower: tuple(alike) for lower, alike in spellings.items() if len(alike) > 1}
    return FolderListing(
        tools=tools,
        names=tuple(names[:MOST_TOOLS]),
        over_limit=tuple(names[MOST_TOOLS:]),
        same_ignoring_case=MappingProxyType(several),
        mark=mark,
    )


class MarkIndex:
    def __init__(self, scans: Mapping[str, FolderScan]) -> None:
        self._names = tuple(scans)
        self._paths = [path for scan in scans.values() for path in scan.paths]
        self._marks = [mark for scan in scans.values() for mark in scan.marks]
        self._ends = list(accumulate(len(scan.paths) for scan in scans.values()))
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


def _all_equal(paths: Iterator[str], marks: Iterator[FileMark]) -> bool:
    """Whether all that is left in both is so; else both have gone past the first that is not."""
    try:
        return all(map(eq, map(file_mark, map(os.lstat, paths)), marks))
    except OSError:
        next(marks)
        return False


async def watch_registry(registry: Registry, *, poll_s: float = 0.5) -> AsyncIterator[RegistryChanges]:
    """Yields the changes of a registry that the caller also reads."""
    while True:
        # Reading a large folder anew takes a moment, in which the terminal still answers.
        found = await asyncio.to_thread(registry.refresh)
        if found is not None:
            yield found
        await asyncio.sleep(poll_s)


@dataclass(frozen=True, slots=True, kw_only=True)
class FolderScan:
    result: ScanResult
    paths: tuple[str, ...]
    marks: list[FileMark]
    validity: Validity

    @property
    def is_current(self) -> bool:
        return self.validity is Validity.WHILE_MARKED and unchanged(self.paths, self.marks)


def scan_folder(tools: str, name: str, store: ContentStore) -> FolderScan | None:
    """Scans a folder; None if there is no folder of that name. A link to a folder gets a diagnosis; anything else is
    ignored.
    """
    folder = f"{tools}/{name}"
    started = time.time_ns()
    try:
        status = os.lstat(folder)
        if stat.S_ISLNK(status.st_mode):
            if not os.path.isdir(folder):
                return None
            problem = _diagnostic(name, DiagnosticCode.SYMLINK, "the folder is a symbolic link")
            return _make_scan(folder, {"": file_mark(status)}, problem, Validity.WHILE_MARKED)
        if not stat.S_ISDIR(status.st_mode):
            return None
        os.lstat(f"{folder}/{MANIFEST_FILE}")
    except FileNotFoundError:
        if not os.path.lexists(folder):
            return None
        mark = file_mark(status)
        return _make_scan(folder, {"": mark}, None, validity_since((mark,), started))
    except OSError:
        pass  # what cannot be looked at cannot be read either, and that says why
    reading = try_folder(Path(folder))
    validity = reading.validity
    result: ScanResult
    try:
        if isinstance(reading.found, Unusable):
            raise reading.found
        result = _read_entry(Path(folder), name, reading.found, store)
    except Unusable as error:
        result = error.diagnostic_for(display_name(name))
    except Exception as error:  # one folder never hides another, whatever it makes a reader do; a full disk may empty
        why = (error.strerror if isinstance(error, OSError) else "") or error_name(error)
        what = f"its snapshot could not be kept or it could not be understood ({why})"
        result, validity = _diagnostic(name, DiagnosticCode.UNREADABLE, what), Validity.NOT
    return _make_scan(folder, reading.marks, result, validity)


def _diagnostic(folder: str, code: DiagnosticCode, message: str) -> Diagnostic:
    return Diagnostic(tool=display_name(folder), code=code, message=message)


def _read_entry(folder: Path, name: str, found: FolderFiles, store: ContentStore) -> ToolEntry | None:
    if MANIFEST_FILE not in found.files:
        if MANIFEST_FILE in found.folders:
            raise Unusable(DiagnosticCode.UNREADABLE, f"{MANIFEST_FILE}: is a directory")
        return None
    manifest = read_manifest(found.files[MANIFEST_FILE], folder=name)
    if problem := name_problem(name):
        raise Unusable(DiagnosticCode.NAME_INVALID, problem)
    find_entrypoint(manifest.entrypoint, found)
    store.put(found.files, executable=found.executable)
    return ToolEntry(name=name, folder=folder, manifest=manifest, digest=found.digest, files=found.facts)


def _make_scan(folder: str, marks: Mapping[str, FileMark], result: ScanResult, validity: Validity) -> FolderScan:
    paths = tuple(f"{folder}/{name}" if name else folder for name in marks)
    return FolderScan(result=result, paths=paths, marks=list(marks.values()), validity=validity)


class RegistryCache:
    def __init__(self, home: ForgeHome) -> None:
        self._home = home
        self._path = home.path / "cache" / "registry"
        self._lines = 0
        """In the file; 0: there is none that could be added to."""

    def load(self) -> dict[str, str]:
        """Returns the cached texts by name, for `restore_scan`."""
        try:
            lines = read_private(self._path, _LARGEST_CACHE).decode().splitlines()
        except (OSError, ValueError):
            return {}
        if not lines or lines[0] != _cache_header():
            return {}
        self._lines = len(lines)
        return {name: rest for name, _, rest in (line.partition("\t") for line in lines[1:]) if rest}

    def add(self, scans: Mapping[str, FolderScan], fresh: Collection[str]) -> None:
        """Keeps what was read anew; `scans` is all there is, for when the file is written as a whole."""
        news = _cache_lines({name: scans[name] for name in fresh})
        if not news:
            return
        with contextlib.suppress(OSError):  # without it the next start is slower, and that is all
            if not self._lines or self._lines + len(news) > 2 * len(scans) + _SPARE_LINES:
                lines = [f"{_cache_header()}\n", *_cache_lines(scans)]
                write_private(self._home.ensure("cache") / "registry", "".join(lines).encode(), durable=False)
                self._lines = len(lines)
            else:
                handle = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC)
                with open(handle, "ab", buffering=0) as file:
                    file.write("".join(news).encode())
                self._lines += len(news)

    def remove(self) -> None:
        self._lines = 0
        self._path.unlink(missing_ok=True)


def restore_scan(tools: str, name: str, line: str, stored: Collection[str]) -> FolderScan | None:
    """The scan that the line records, if the folder still has every mark. `stored`: names of snapshots."""
    try:
        kept: dict[str, Any] = json.loads(line)
        digest: str = kept["digest"]
        marks = [(int(c), int(m), int(size), int(inode)) for _, c, m, size, inode in kept["marks"]]
        folder = f"{tools}/{name}"
        paths = tuple(f"{folder}/{mark[0]}" if mark[0] else folder for mark in kept["marks"])
        if paths[0] != folder or digest.removeprefix("sha256:") not in stored or not unchanged(paths, marks):
            return None
        files = tuple(FileFact(path, bool(may), int(size), sha256) for path, may, size, sha256 in kept["files"])
        if files_digest(files) != digest:
            return None
        manifest = manifest_from_json(kept["manifest"])
    except (ValueError, KeyError, TypeError, AttributeError, IndexError, RecursionError):
        return None
    if manifest.name != name:
        return None
    entry = ToolEntry(name=name, folder=Path(folder), manifest=manifest, digest=digest, files=files)
    return FolderScan(result=entry, paths=paths, marks=marks, validity=Validity.WHILE_MARKED)


def _cache_lines(scans: Mapping[str, FolderScan]) -> list[str]:
    return [line for name, scan in scans.items() if (line := _cache_line(name, scan))]


def _cache_line(name: str, scan: FolderScan) -> str:
    """Empty for what is not worth or not safe to keep."""
    entry = scan.result
    if not isinstance(entry, ToolEntry) or scan.validity is not Validity.WHILE_MARKED:
        return ""
    above = len(scan.paths[0]) + 1
    kept = {
        "digest": entry.digest,
        "marks": [(path[above:], *mark) for path, mark in zip(scan.paths, scan.marks, strict=True)],
        "files": [(fact.path, fact.executable, fact.size, fact.sha256) for fact in entry.files],
        "manifest": manifest_to_json(entry.manifest),
    }
    try:
        text = json.dumps(kept, separators=(",", ":"), allow_nan=False)
        same = manifest_from_json(json.loads(text)["manifest"]) == entry.manifest
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return ""
    return f"{name}\t{text}\n" if same else ""


def _cache_header() -> str:
    """Names the format and the rules a manifest was read by: another Forge reads everything anew."""
    package = os.path.dirname(__file__)
    files = sorted(glob("*.py", root_dir=package) + glob("manifest/*.py", root_dir=package))
    rules = [(name, (own := os.stat(os.path.join(package, name))).st_size, own.st_mtime_ns) for name in files]
    return json.dumps([_CACHE_FORMAT, __version__, rules])
