"""ZoneFiles: what stands in a zone's directory now, read for the table of `zone_history`.

Everything is opened below the zone's handle, and no link is followed. `seen` says what stands at a path without reading
it, `read` its content, `walk` what lies in a directory; `unusual` finds files that git would not give back as they are.
`is_regenerable` looks for a witness that a tool can make a directory again: its name alone is none, but for caches.

Threat: a command that races the reading. A file that changes within the clock's tick is read again at the next look;
one that grows past the bound while it is read is not kept.
"""

from __future__ import annotations

import errno
import os
import stat
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from pathlib import Path
from typing import Final, NamedTuple

from golem_forge.core.changes import PathKind, PathState
from golem_forge.core.regex import regex
from golem_forge.sandbox.git.command import GitLimits, GitOutputLimit, GitTimeout, run_program
from golem_forge.sandbox.handles import CONTENT, DIRECTORY, LISTING, Handle, Parts, best_opener, call_libc, entry_stat
from golem_forge.sandbox.protected import GIT_FILE
from golem_forge.sandbox.undo.git_baseline import GitUnusable
from golem_forge.sandbox.undo.store import PathEntry, Stamp, as_bytes, as_parts
from golem_forge.sandbox.walls.scan import ZoneScan
from golem_forge.sandbox.zones import PLACEHOLDER_NAMES, PlaceholderNotes

MOST_ENTRIES: Final = 200_000
OWN_NAME: Final = regex(r"\.forge-[0-9a-f]{16}\.tmp")
NO_STAMP: Final = Stamp(0, 0, 0, 0, 0, 0)
WHOLE: Final = b"./"
_CHANGING: Final = "it changed while it was read"
_TICK_NS: Final = 50_000_000
"""A file that changed so shortly before it was read may have changed again with the same time."""
CACHES: Final = frozenset({"__pycache__", ".mypy_cache", ".pytest_cache", ".ruff_cache", ".gradle"})
_BESIDE: Final = {"node_modules": ("package.json",), "target": ("Cargo.toml", "pom.xml")}
_CACHE_TAG: Final = b"Signature: 8a477f597d28d172789f06886806bc55"
_SAMPLED: Final = 200
_ENVIRONMENT: Final = {"PATH": os.defpath, "LC_ALL": "C"}
_FIND: Final = GitLimits(seconds=60, output=64 << 20)
_FIND_AT_ONCE: Final = 400
"""Directories of one `find`, so that their names fit into its arguments (4 KiB each, of 2 MiB)."""
_FIND_AT_LEAST: Final = 100
"""Fewer take less time than another process."""


class TooMuch(Exception):
    """The zone cannot be kept; the text says why."""

    stated_name = "TooMuch"


class Seen(NamedTuple):
    """What stands at a path now, before its content is read."""

    kind: PathKind
    stamp: Stamp


class ZoneFiles:
    def __init__(self, host: str, home: Path, folder: Path) -> None:
        """`folder`: a private one, for programs that this starts."""
        self.host = host
        self._folder = folder
        self._root = Handle(os.open(host, DIRECTORY))
        self.device = os.fstat(self._root.fd).st_dev
        self._opener = best_opener()
        self._placeholders = PlaceholderNotes(home)

    def open(self, parts: Parts, flags: int) -> Handle:
        """Below the zone's directory; no link is followed. Raises OSError."""
        return Handle(self._opener(self._root.fd, parts, flags))

    def open_parent(self, parts: Parts) -> Handle:
        """The directory of a path; one that is missing is made. Raises OSError."""
        try:
            return self.open(parts[:-1], DIRECTORY)
        except FileNotFoundError:
            above = self.open_parent(parts[:-1])
            os.mkdir(parts[-2], dir_fd=above.fd)
            return self.open(parts[:-1], DIRECTORY)

    def sync(self) -> None:
        """One sync for all that was written in the zone."""
        root = self.open((), LISTING)
        call_libc("syncfs", root.fd)

    def stat(self, parts: Parts) -> os.stat_result | None:
        directory = self._directory(parts[:-1])
        return entry_stat(parts[-1], directory.fd) if parts and directory is not None else None

    def _directory(self, parts: Parts) -> Handle | None:
        try:
            return self.open(parts, DIRECTORY) if parts else self._root
        except OSError:
            return None

    def is_special(self, parts: Parts) -> bool:
        """Whether a FIFO, a socket or a device stands there."""
        info = self.stat(parts)
        return info is not None and not any(test(info.st_mode) for test in (stat.S_ISREG, stat.S_ISLNK, stat.S_ISDIR))

    def seen_at(self, paths: Iterable[bytes]) -> dict[bytes, Seen | None]:
        """Of each path; None: nothing that is kept stands there. Those in one directory come best one after another."""
        found: dict[bytes, Seen | None] = {}
        here: Parts | None = None
        for path in paths:
            parts = as_parts(path)
            if parts[:-1] != here:
                here = parts[:-1]
                directory = self._directory(here)
            info = entry_stat(parts[-1], directory.fd) if directory is not None else None
            found[path] = self._seen(parts[-1], info) if info is not None else None
        return found

    def _seen(self, name: str, info: os.stat_result) -> Seen | None:
        if OWN_NAME.fullmatch(name) or (name in PLACEHOLDER_NAMES and self._placeholders.include(info)):
            return None
        mode = stat.S_IMODE(info.st_mode)
        stamp = Stamp(info.st_ctime_ns, info.st_ino, info.st_dev, info.st_nlink, info.st_size, mode)
        if stat.S_ISREG(info.st_mode):
            return Seen(PathKind.FILE, stamp)
        if stat.S_ISLNK(info.st_mode):
            return Seen(PathKind.LINK, stamp._replace(mode=0))
        return Seen(PathKind.DIRECTORY, NO_STAMP._replace(mode=mode)) if stat.S_ISDIR(info.st_mode) else None

    def names(self, parts: Parts) -> set[bytes]:
        """The names in a directory at which something stands that is kept for sure; of others `seen_at` says it."""
        try:
            directory = self.open(parts, LISTING)
            with os.scandir(directory.fd) as found:
                kept = [
                    one.name for one in found if one.is_file(follow_symlinks=False) or one.is_symlink() or one.is_dir()
                ]
        except OSError:
            return set()
        return {os.fsencode(name) for name in kept if name not in PLACEHOLDER_NAMES and not OWN_NAME.fullmatch(name)}

    def read(
        self, path: bytes, here: Seen, most: int, keep: Callable[[bytes], str], *, settle: bool = False
    ) -> PathEntry | None:
        """What stands at a path, its content given to `keep`. None: it is gone meanwhile, or something else. A file
        above `most` bytes is not read. `settle`: a process may have mapped it; only the first write to a page that is
        on disk gives the file a new time."""
        stamp, parts = here.stamp, as_parts(path)
        if here.kind is PathKind.DIRECTORY:
            return directory_entry(stamp.mode)
        try:
            if here.kind is PathKind.LINK:
                directory = self.open(parts[:-1], DIRECTORY)
                target = os.readlink(parts[-1], dir_fd=directory.fd)
                return PathEntry(PathState(PathKind.LINK, target=target), stamp)
            file = self.open(parts, CONTENT)
            if settle:
                os.fdatasync(file.fd)
            info = os.fstat(file.fd)
            if not stat.S_ISREG(info.st_mode) or info.st_size > most:
                return PathEntry(unread_state(stamp, _CHANGING), NO_STAMP)
            data = b""
            while len(data) <= info.st_size and (more := os.read(file.fd, info.st_size - len(data) + 1)):
                data = data + more if data else more
            if len(data) != info.st_size:
                stamp = stamp._replace(ctime=0)
            if abs(time.time_ns() - info.st_ctime_ns) < _TICK_NS or info.st_ctime_ns != stamp.ctime:
                stamp = stamp._replace(ctime=0)
        except PermissionError:
            return PathEntry(unread_state(stamp, "it cannot be read"), stamp)
        except FileNotFoundError:
            return None
        except OSError as error:
            if error.errno in (errno.ELOOP, errno.ENOTDIR):
                return None
            raise
        state = PathState(PathKind.FILE, stat.S_IMODE(info.st_mode), keep(data), len(data))
        return PathEntry(state, stamp._replace(size=info.st_size, mode=stat.S_IMODE(info.st_mode)))

    def walk(self, roots: Iterable[bytes], leave_out: Callable[[Parts], bool]) -> Iterator[bytes]:
        """Files and links in these places; those that end with `/` are directories and walked. Raises TooMuch."""
        count = 0
        for root in roots:
            if not root.endswith(b"/"):
                yield root
                continue
            waiting = [() if root == WHOLE else as_parts(root.removesuffix(b"/"))]
            while waiting:
                here = waiting.pop()
                if here and leave_out(here):
                    continue
                try:
                    directory = self.open(here, LISTING)
                    with os.scandir(directory.fd) as found:
                        entries = list(found)
                except OSError:
                    continue
                for entry in entries:
                    count += 1
                    if count > MOST_ENTRIES:
                        raise TooMuch(f"more than {MOST_ENTRIES:,} entries")
                    if entry.is_dir(follow_symlinks=False):
                        if here or entry.name != GIT_FILE:
                            waiting.append((*here, entry.name))
                    else:
                        yield as_bytes((*here, entry.name))

    def usual_modes(self, scan: ZoneScan) -> tuple[int, int]:
        """Which modes a checkout gives files here, plain and executable: as most of some have."""
        counted: Counter[int] = Counter()
        for here, entries in scan.listings():
            if is_in_git(here):
                continue
            for one in self.seen_at(as_bytes((*here, name)) for name in islice(entries, 20)).values():
                if one is not None and one.kind is PathKind.FILE:
                    counted[one.stamp.mode] += 1
            if counted.total() > _SAMPLED:
                break
        plain = next((mode for mode, _ in counted.most_common() if not mode & 0o111), 0o644)
        runs = next((mode for mode, _ in counted.most_common() if mode & 0o100), plain | (plain & 0o444) >> 2)
        return plain, runs

    def unusual(self, directories: Collection[bytes], modes: tuple[int, int], since_ns: int) -> list[bytes]:
        """Tracked or not: files of more than one link, with another mode than these, or that changed since then. Raises
        GitUnusable."""
        plain, runs = (f"{mode:o}" for mode in modes)
        other_mode = ("(", "!", "-perm", plain, "!", "-perm", runs, ")")
        changed = ("-newerct", f"@{max(since_ns, 0) / 1e9:.6f}")
        tests = ("-maxdepth", "1", "-type", "f", "(", "-links", "+1", "-o", *changed, "-o", *other_mode, ")", "-print0")

        def find(some: list[bytes]) -> bytes:
            words = ("/usr/bin/find", *map(os.fsdecode, some), *tests)
            return run_program(words, folder=self._folder, cwd=self.host, environ=_ENVIRONMENT, limits=_FIND).output

        places = [b".", *(b"./" + path for path in directories)]
        each = min(max(-(-len(places) // (os.cpu_count() or 1)), _FIND_AT_LEAST), _FIND_AT_ONCE)
        try:
            with ThreadPoolExecutor(os.cpu_count()) as pool:
                found = b"".join(pool.map(find, (places[at : at + each] for at in range(0, len(places), each))))
        except (OSError, GitTimeout, GitOutputLimit):
            raise GitUnusable from None
        return [path.removeprefix(b"./") for path in found.split(b"\0") if path]

    def is_regenerable(self, parts: Parts) -> bool:
        name = parts[-1]
        if name in CACHES:
            return True
        if beside := _BESIDE.get(name):
            return any(self.stat((*parts[:-1], each)) is not None for each in beside)
        if self.stat((*parts, "pyvenv.cfg")) is not None:
            return True
        if self.stat((*parts, "CACHEDIR.TAG")) is None:
            return False
        try:
            tag = self.open((*parts, "CACHEDIR.TAG"), CONTENT)
            return os.read(tag.fd, len(_CACHE_TAG)) == _CACHE_TAG
        except OSError:
            return False

    def holds_older(self, parts: Parts, time_ns: int) -> bool:
        """Whether a directory holds what changed before that moment, or cannot be listed."""
        try:
            directory = self.open(parts, LISTING)
            with os.scandir(directory.fd) as found:
                some = [entry.stat(follow_symlinks=False) for entry in islice(found, _SAMPLED)]
        except OSError:
            return True
        return any(info.st_ctime_ns < time_ns for info in some)


def unread_state(stamp: Stamp, why: str) -> PathState:
    """Its digest is no content's: it only tells this state from others."""
    mark = f"unread:{stamp.ctime}:{stamp.inode}:{stamp.size}"
    return PathState(PathKind.FILE, stamp.mode, mark, stamp.size, lost=why)


def directory_entry(mode: int) -> PathEntry:
    return PathEntry(PathState(PathKind.DIRECTORY, stat.S_IMODE(mode)), NO_STAMP)


def is_in_git(parts: Parts) -> bool:
    return bool(parts) and parts[0] == GIT_FILE
