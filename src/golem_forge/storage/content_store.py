"""The content store: read-only snapshots below FORGE_HOME/store, each named by the digest of its content.

`put` takes name → bytes and returns a Snapshot; `check` compares one with its digest before it is used, `read`
returns its bytes, `known` finds one by digest, `remove` deletes one. Refuses (StoreError) names that leave the
snapshot and a snapshot that was changed: code runs from here and never from a folder that somebody may still be
editing. Threats: a half-written snapshot (it gets its name when it is complete) and one edited in place: each store
object hashes it once, afterwards its files must keep their times, sizes and inodes.

`read_tree` reads every file below a folder through directory handles, with limits, and one stamp for each file and
folder, taken from the handle that was read. Refuses (TreeError) links, devices, pipes, sockets, unreadable files,
and more than the limits; names that the caller ignores are passed over. Threats: the author swaps a file for a link
while it is read, fills the folder without end, or changes it within one tick of the file system's clock, which no
stamp shows (`unsettled`).
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import logging
import os
import shutil
import stat
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from enum import StrEnum
from io import BufferedReader
from itertools import islice
from operator import attrgetter, eq
from pathlib import Path
from typing import Final

from golem_forge.core.errors import ForgeError
from golem_forge.core.json import digest
from golem_forge.core.lazy_dataclass import dataclass, field
from golem_forge.core.regex import regex
from golem_forge.core.text import display_name
from golem_forge.storage.home import DIRECTORY_FLAGS, READ_FLAGS, ForgeHome, create_private, read_bounded

_log = logging.getLogger(__name__)

FileMark = tuple[int, int, int, int]
file_mark: Final[Callable[[os.stat_result], FileMark]] = attrgetter("st_ctime_ns", "st_mtime_ns", "st_size", "st_ino")

_TICK_NS: Final = 20_000_000
"""Longer than the resolution of file times, which is 1 to 10 ms."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TreeLimits:
    files: int
    """Maximum number of files; as many folders are allowed."""
    total_bytes: int
    depth: int = 32


class TreeFault(StrEnum):
    SPECIAL = "special"
    """A link, a device, a pipe, a socket."""
    LIMIT = "limit"
    UNREADABLE = "unreadable"


class TreeError(ForgeError):
    """A folder that cannot be taken as it is. Names are relative to it."""

    stated_name = "TreeError"

    def __init__(self, fault: TreeFault, message: str) -> None:
        super().__init__(message, code="TREE")
        self.fault = fault
        self.marks: dict[str, FileMark] = {}
        """Of what was looked at so far: while they stay, so does the fault."""


@dataclass(slots=True)
class Tree:
    files: dict[str, bytes] = field(default_factory=dict)
    """Content by relative path, with `/`."""
    executable: set[str] = field(default_factory=set)
    folders: set[str] = field(default_factory=set)
    marks: dict[str, FileMark] = field(default_factory=dict)
    """Marks of every folder and file by relative path; the folder itself has the empty name."""


_MOST_IGNORED: Final = 10_000
"""Entries of one folder beyond what its limits allow: they are listed, though not looked at."""


def read_tree(
    folder: str | os.PathLike[str], limits: TreeLimits, *, ignored: Callable[[str], bool] | None = None
) -> Tree:
    """`ignored`: whether an entry of that name, whatever it is, is passed over."""
    tree = Tree()
    try:
        mode = os.lstat(folder).st_mode
        if not stat.S_ISDIR(mode) and not stat.S_ISREG(mode):
            raise TreeError(TreeFault.SPECIAL, f"the folder {_special_kind(mode)}")
        handle = os.open(folder, DIRECTORY_FLAGS)
        try:
            _TreeReader(tree, limits, ignored).folder(handle, "")
        finally:
            os.close(handle)
    except OSError as error:
        raise _unreadable("the folder", error) from None
    except TreeError as error:
        error.marks = tree.marks
        raise
    return tree


def unchanged(paths: Sequence[str], marks: Sequence[FileMark]) -> bool:
    """Whether what stands at each path still bears its mark; links are not followed."""
    try:
        return all(map(eq, map(file_mark, map(os.lstat, paths)), marks))
    except OSError:
        return False


def unsettled(marks: Iterable[FileMark], *, since: int) -> bool:
    """Whether something was changed so shortly before it was read, at `since`, that a later change may look the same.

    A time far ahead is settled: the clock was set back, and the next change gets another time.
    """
    return any(abs(since - mark[0]) < _TICK_NS for mark in marks)


class _TreeReader:
    def __init__(self, tree: Tree, limits: TreeLimits, ignored: Callable[[str], bool] | None) -> None:
        self.tree = tree
        self.limits = limits
        self.ignored = ignored
        self.left = limits.total_bytes

    def folder(self, handle: int, within: str) -> None:
        self.tree.marks[within] = file_mark(os.fstat(handle))
        if within.count("/") >= self.limits.depth:
            what = f"{display_name(within)}: folders are nested deeper than {self.limits.depth}"
            raise TreeError(TreeFault.LIMIT, what)
        for name in self._names(handle):
            path = f"{within}/{name}" if within else name
            try:
                self._one(handle, name, path)
            except OSError as error:
                raise _unreadable(display_name(path), error) from None

    def _names(self, handle: int) -> list[str]:
        """One more than the limits allow is enough to find that there are too many."""
        most = 2 * self.limits.files + 1
        with os.scandir(handle) as listing:
            if self.ignored is None:
                return sorted(entry.name for entry in islice(listing, most))
            found = [entry.name for entry in islice(listing, most + _MOST_IGNORED)]
        if len(found) == most + _MOST_IGNORED:  # a file that counts may be among those that were not listed
            raise TreeError(TreeFault.LIMIT, f"has more than {_MOST_IGNORED:,} entries in one folder")
        return sorted(name for name in found if not self.ignored(name))[:most]

    def _one(self, above: int, name: str, path: str) -> None:
        status = os.stat(name, dir_fd=above, follow_symlinks=False)
        if stat.S_ISDIR(status.st_mode):
            self.tree.folders.add(path)
            self._count(self.tree.folders, "folders")
            handle = os.open(name, DIRECTORY_FLAGS, dir_fd=above)
            try:
                self.folder(handle, path)
            finally:
                os.close(handle)
        elif stat.S_ISREG(status.st_mode):
            self.tree.marks[path] = file_mark(status)
            with open(os.open(name, READ_FLAGS, dir_fd=above), "rb") as file:
                self._file(file, path)
        else:
            raise TreeError(TreeFault.SPECIAL, f"{display_name(path)}: {_special_kind(status.st_mode)}")

    def _file(self, file: BufferedReader, path: str) -> None:
        status = os.fstat(file.fileno())
        if not stat.S_ISREG(status.st_mode):
            raise TreeError(TreeFault.SPECIAL, f"{display_name(path)}: {_special_kind(status.st_mode)}")
        self.tree.marks[path] = file_mark(status)
        try:
            content = read_bounded(file, self.left)
        except OSError as error:
            if error.errno != errno.EFBIG:
                raise
            raise TreeError(TreeFault.LIMIT, f"has more than {self.limits.total_bytes >> 20} MiB of files") from None
        self.left -= len(content)
        self.tree.files[path] = content
        self._count(self.tree.files, "files")
        if status.st_mode & 0o111:
            self.tree.executable.add(path)

    def _count(self, found: set[str] | dict[str, bytes], what: str) -> None:
        if len(found) > self.limits.files:
            raise TreeError(TreeFault.LIMIT, f"has more than {self.limits.files} {what}")


def _special_kind(mode: int) -> str:
    if stat.S_ISLNK(mode):
        return "is a symbolic link"
    if stat.S_ISFIFO(mode):
        return "is a named pipe"
    return "is a socket" if stat.S_ISSOCK(mode) else "is a device"


def _unreadable(what: str, error: OSError) -> TreeError:
    if error.errno == errno.ELOOP:  # it became one after it was looked at
        return TreeError(TreeFault.SPECIAL, f"{what}: is a symbolic link")
    return TreeError(TreeFault.UNREADABLE, f"{what}: cannot be read ({os.strerror(error.errno or 0)})")


_FOLDER: Final = "store"
_UNFINISHED: Final = ".new-"
_DIGEST: Final = regex(r"sha256:([0-9a-f]{64})")
_SNAPSHOT_LIMITS: Final = TreeLimits(files=100_000, total_bytes=1 << 30)

FileFact = tuple[str, bool, int, str]
"""(relative name, may be executed, size, SHA-256 in hex) of one file."""


class StoreError(ForgeError):
    stated_name = "StoreError"

    def __init__(self, message: str) -> None:
        super().__init__(message, code="STORE")


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    digest: str
    path: Path


def content_digest(files: Mapping[str, bytes], executable: Collection[str] = ()) -> str:
    """`sha256:` over names, exec bits, sizes and bytes."""
    return facts_digest(content_facts(files, executable))


def content_facts(files: Mapping[str, bytes], executable: Collection[str] = ()) -> list[FileFact]:
    return [
        (name, name in executable, len(files[name]), hashlib.sha256(files[name]).hexdigest()) for name in sorted(files)
    ]


def facts_digest(facts: Iterable[FileFact]) -> str:
    """Returns the digest of facts, sorted by name."""
    return f"sha256:{digest([list(fact) for fact in facts])}"


def _warn_replaced(digest: str) -> None:
    _log.warning("a snapshot in $FORGE_HOME/store was changed outside of Forge; it was not used and was made again")


class ContentStore:
    def __init__(self, home: ForgeHome, *, on_replaced: Callable[[str], None] = _warn_replaced) -> None:
        """`on_replaced`: told the digest of a snapshot whose files were no longer those of its digest, once it was made
        again from the right ones."""
        self._home = home
        self._on_replaced = on_replaced
        self._whole: dict[str, tuple[Snapshot, tuple[str, ...], list[FileMark]]] = {}
        """Digest → a snapshot that was hashed, its paths, and their marks at that time."""

    def put(self, files: Mapping[str, bytes], *, executable: Collection[str] = ()) -> Snapshot:
        """The snapshot of exactly these files; one that is there already and still whole is used again."""
        for name in files:
            _check_name(name)
        snapshot = self._place(content_digest(files, executable))
        if self._is_whole(snapshot):
            return snapshot
        changed = os.path.lexists(snapshot.path) and not self._is_whole(snapshot)  # it may have come meanwhile
        made = self._unfinished()
        made.mkdir(mode=0o700)
        try:
            _write_files(made, files, executable)
            self._name(made, snapshot)
        finally:
            _remove(made)
        if changed:
            self._on_replaced(snapshot.digest)
        return snapshot

    def known(self, digest: str) -> Snapshot | None:
        """The snapshot with that digest, if there is one; whether it is whole, `check` and `read` say."""
        if not _DIGEST.fullmatch(digest):
            return None
        snapshot = self._place(digest)
        return snapshot if snapshot.path.is_dir() and not snapshot.path.is_symlink() else None

    def still_whole(self, digest: str) -> Snapshot | None:
        """The snapshot that this object hashed before, if it bears the marks it had then: as good as `known` and
        `check`, and a few stats. None: it must be looked at."""
        hashed = self._whole.get(digest)
        return hashed[0] if hashed is not None and unchanged(hashed[1], hashed[2]) else None

    def names(self) -> frozenset[str]:
        """The digests, without `sha256:`, of all snapshots there are."""
        return frozenset(name for name in os.listdir(self._folder()) if not name.startswith("."))

    def check(self, snapshot: Snapshot) -> None:
        """Raises StoreError unless the files on disk are the ones the digest was made of."""
        if not self._is_whole(snapshot):
            raise _not_whole()

    def read(self, snapshot: Snapshot) -> tuple[dict[str, bytes], frozenset[str]]:
        """The files, and which of them may be executed: exactly those the digest was made of."""
        tree = _snapshot_tree(snapshot)
        if tree is None or content_digest(tree.files, tree.executable) != snapshot.digest:
            raise _not_whole()
        return tree.files, frozenset(tree.executable)

    def peek(self, snapshot: Snapshot, name: str, limit: int) -> bytes | None:
        """One file of at most `limit` bytes, not compared with the digest: to be shown, never to be used. None: it
        cannot be read."""
        _check_name(name)
        try:
            with open(os.open(snapshot.path / name, READ_FLAGS), "rb") as file:
                return read_bounded(file, limit)
        except OSError:
            return None

    def remove(self, digest: str) -> bool:
        """Forgets one snapshot for good; False if there was none."""
        snapshot = self.known(digest)
        if snapshot is None:
            return False
        self._whole.pop(digest, None)
        self._set_aside(snapshot)
        return True

    def _is_whole(self, snapshot: Snapshot) -> bool:
        if self.still_whole(snapshot.digest) is not None:
            return True
        self._whole.pop(snapshot.digest, None)
        now = time.time_ns()
        tree = _snapshot_tree(snapshot)
        if tree is None or content_digest(tree.files, tree.executable) != snapshot.digest:
            return False
        if not unsettled(tree.marks.values(), since=now):
            top = os.fspath(snapshot.path)
            paths = tuple(os.path.join(top, name) if name else top for name in tree.marks)
            self._whole[snapshot.digest] = (snapshot, paths, list(tree.marks.values()))
        return True

    def _name(self, made: Path, snapshot: Snapshot) -> None:
        try:
            os.rename(made, snapshot.path)
        except OSError:  # somebody was faster, or what is there is not whole
            if self._is_whole(snapshot):
                return
            self._set_aside(snapshot)
            os.rename(made, snapshot.path)

    def _set_aside(self, snapshot: Snapshot) -> None:
        """Takes the name from it first: whoever looks meanwhile finds the whole of it or nothing."""
        aside = self._unfinished()
        with contextlib.suppress(FileNotFoundError):
            os.rename(snapshot.path, aside)
            _remove(aside)

    def _unfinished(self) -> Path:
        return self._folder() / f"{_UNFINISHED}{os.urandom(8).hex()}"

    def _place(self, digest: str) -> Snapshot:
        return Snapshot(digest=digest, path=self._folder() / digest.removeprefix("sha256:"))

    def _folder(self) -> Path:
        return self._home.ensure(_FOLDER)


def _not_whole() -> StoreError:
    return StoreError("A snapshot in the content store was changed or is incomplete; it was not used.")


def _check_name(name: str) -> None:
    parts = name.split("/")
    if not name or "\0" in name or any(part in ("", ".", "..") for part in parts):
        raise StoreError(f"{name!r} is not the name of a file in a snapshot.")


def _write_files(folder: Path, files: Mapping[str, bytes], executable: Collection[str]) -> None:
    for name, content in files.items():
        path = folder / name
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with create_private(path) as file:
            file.write(content)
            os.fchmod(file.fileno(), 0o500 if name in executable else 0o400)
    for place, _, _ in os.walk(folder, topdown=False):
        os.chmod(place, 0o500)


def _snapshot_tree(snapshot: Snapshot) -> Tree | None:
    try:
        return read_tree(snapshot.path, _SNAPSHOT_LIMITS)
    except TreeError:
        return None


def _remove(folder: Path) -> None:
    """Its own directories are read-only, which would keep their entries from being removed."""
    with contextlib.suppress(OSError):
        if not stat.S_ISDIR(os.lstat(folder).st_mode):
            os.unlink(folder)
            return
        for place, directories, _ in os.walk(folder):
            os.chmod(place, 0o700)
            for name in directories:
                if not os.path.islink(path := os.path.join(place, name)):
                    os.chmod(path, 0o700)
        shutil.rmtree(folder)
