"""GitDir: one git directory, opened by handle, whose files and refs are read and replaced the way git does it.

Takes a directory handle and the path of a git directory below it; gives files by their path (`HEAD`, `logs/HEAD`) and
refs by name. Every write takes git's own lock file and ends in a rename, so the person's git, which may run at the same
time, sees the old or the new content. Threat: one side is a directory that hostile commands write to. No link is
followed on the way or at the end, only regular files are read, and nothing is read without a bound.
"""

from __future__ import annotations

import contextlib
import os
import re
import stat
from collections.abc import Iterator
from typing import Final

from golem_forge.sandbox.access import CONTENT, DIRECTORY, Opener

Parts = tuple[str, ...]
Stamp = tuple[int, int, int, int]
"""Inode, size, time of writing, time of change: other ones mean another content."""

PACKED: Final = "packed-refs"
LARGEST: Final = 256 << 20
"""No index or list of refs is larger; a file that is stays where it is."""
_DEEPEST: Final = 24
_MOST: Final = 100_000
_WRITE: Final = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_LIST: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_OBJECT: Final = re.compile(r"[0-9a-f]{40}(?:[0-9a-f]{24})?")
_PACKED_LINE: Final = re.compile(rb"([0-9a-f]{40,64}) (refs/[^\n]+)")
_FORBIDDEN: Final = re.compile(r"[\x00-\x20\x7f~^:?*\[\\]|\.\.|@\{|//|\.$|/$|\.lock(?:/|$)|(?:^|/)\.|^@$")


class Busy(Exception):
    """Another git holds the lock of this file."""


class TooMany(Exception):
    """More files than anybody could mean."""


class GitDir:
    def __init__(self, root: int, opener: Opener, base: Parts) -> None:
        """`root` stays the caller's to close; `base`: the git directory below it."""
        self._root = root
        self._opener = opener
        self._base = base
        self._values: dict[str, tuple[Stamp, str]] = {}
        self._packed: tuple[Stamp | None, dict[str, str]] = (None, {})

    def stamp(self, path: str) -> Stamp | None:
        """Of a regular file; None for anything else."""
        found = self.look(path)
        return stamp_of(found) if found is not None and stat.S_ISREG(found.st_mode) else None

    def look(self, path: str) -> os.stat_result | None:
        """What stands at a path, without following a link at its end."""
        with contextlib.suppress(OSError):
            if not self._parts(path):
                return os.fstat(self._root)
            with self._parent(path) as (parent, name):
                return os.stat(name, dir_fd=parent, follow_symlinks=False)
        return None

    def read(self, path: str) -> bytes | None:
        """The content of a regular file; None if there is none, or it is larger than anything git writes."""
        try:
            file = self._opener(self._root, self._parts(path), CONTENT)
        except OSError:
            return None
        with os.fdopen(file, "rb") as opened:
            try:
                if not stat.S_ISREG(os.fstat(file).st_mode):
                    return None
                content = opened.read(LARGEST + 1)
            except OSError:
                return None
        return content if len(content) <= LARGEST else None

    def replace(self, path: str, content: bytes, *, mode: int = 0o644, written: int | None = None) -> None:
        """`written`: the time of writing, where a copy must keep it: git compares the index's with those of files.
        Raises Busy while somebody has the lock, OSError where the system refuses."""
        self._make_parents(path)
        with self._parent(path) as (parent, name):
            lock = f"{name}.lock"
            try:
                file = os.open(lock, _WRITE, mode, dir_fd=parent)
            except FileExistsError:
                raise Busy(path) from None
            try:
                with os.fdopen(file, "wb") as opened:
                    opened.write(content)
                    opened.flush()
                    if written is not None:
                        os.utime(file, ns=(written, written))
                try:
                    os.rename(lock, name, src_dir_fd=parent, dst_dir_fd=parent)
                except IsADirectoryError:  # empty ones that are left of other refs give way, as with git
                    _remove_empty(name, parent)
                    os.rename(lock, name, src_dir_fd=parent, dst_dir_fd=parent)
            except BaseException:
                with contextlib.suppress(OSError):
                    os.unlink(lock, dir_fd=parent)
                raise

    def remove(self, path: str) -> None:
        """A file or a link, and the directories that are empty without it (not `refs` and its first level)."""
        with contextlib.suppress(FileNotFoundError, NotADirectoryError), self._parent(path) as (parent, name):
            os.unlink(name, dir_fd=parent)
        above = path.split("/")[:-1]
        while above and above != ["logs"] and not (above[0] == "refs" and len(above) <= 2):
            try:
                with self._parent("/".join(above)) as (parent, name):
                    os.rmdir(name, dir_fd=parent)
            except OSError:
                return
            above.pop()

    def make_folder(self, path: str) -> None:
        self._make_parents(f"{path}/")

    def make_accessible(self) -> None:
        """Threat: a command takes away the right to enter a directory, so that what it did there is not looked at."""
        with contextlib.suppress(OSError):
            if stat.S_IMODE(os.fstat(self._root).st_mode) & 0o700 != 0o700:
                os.chmod(f"/proc/self/fd/{self._root}", 0o700)
        waiting = [""]
        while waiting:
            here = waiting.pop()
            for name, found in self.names(here).items():
                if stat.S_ISDIR(found.st_mode):
                    below = f"{here}/{name}" if here else name
                    if stat.S_IMODE(found.st_mode) & 0o700 != 0o700:
                        with contextlib.suppress(OSError), self._parent(below) as (parent, last):
                            os.chmod(last, 0o700, dir_fd=parent)
                    if below.count("/") < _DEEPEST:
                        waiting.append(below)

    def clear(self, path: str) -> None:
        """Whatever stands there, with all below it."""
        with contextlib.suppress(OSError), self._parent(path) as (parent, name):
            _clear(name, parent)

    def names(self, path: str = "") -> dict[str, os.stat_result]:
        """What a directory has in it; empty if there is none."""
        try:
            directory = self._opener(self._root, self._parts(path), _LIST)
        except OSError:
            return {}
        found: dict[str, os.stat_result] = {}
        try:
            with os.scandir(directory) as entries:
                for entry in entries:
                    with contextlib.suppress(OSError):
                        found[entry.name] = entry.stat(follow_symlinks=False)
                    if len(found) >= _MOST:
                        break
        except OSError:
            pass
        finally:
            os.close(directory)
        return found

    def files(self, path: str) -> Iterator[tuple[str, os.stat_result]]:
        """Everything below a directory that is no directory, by its path; links too. Raises TooMany."""
        left = _MOST
        waiting = [path]
        while waiting:
            here = waiting.pop()
            for name, found in self.names(here).items():
                left -= 1
                if left < 0:  # a cut list would look as if the others had been deleted
                    raise TooMany
                below = f"{here}/{name}" if here else name
                if not stat.S_ISDIR(found.st_mode):
                    yield below, found
                elif below.count("/") < _DEEPEST:
                    waiting.append(below)

    def folders(self, path: str) -> Iterator[tuple[str, os.stat_result]]:
        """A directory and all directories below it, but for those of objects."""
        found = self.look(path)
        waiting = [(path, found)] if found is not None and stat.S_ISDIR(found.st_mode) else []
        while waiting:
            here, info = waiting.pop()
            yield here, info
            if here.count("/") < _DEEPEST:
                waiting += [
                    (f"{here}/{name}" if here else name, one)
                    for name, one in self.names(here).items()
                    if stat.S_ISDIR(one.st_mode) and name != "objects"
                ]

    # --- refs

    def refs(self) -> dict[str, str]:
        """Every ref with its value: an object id, or `ref: …` for a symbolic one."""
        found = dict(self._packed_refs())
        values: dict[str, tuple[Stamp, str]] = {}
        for path, info in self.files("refs"):
            if not stat.S_ISREG(info.st_mode) or path.endswith(".lock"):
                continue
            stamp = stamp_of(info)
            known = self._values.get(path)
            if known is None or known[0] != stamp:
                said = (self.read(path) or b"")[:4096].decode("utf-8", "replace").strip()
                known = (stamp, said)
            values[path] = known
            if known[1]:
                found[path] = known[1]
        self._values = values
        return found

    def set_ref(self, name: str, value: str) -> None:
        """Raises Busy, OSError."""
        self.replace(name, f"{value}\n".encode())

    def delete_ref(self, name: str) -> None:
        """From the list of packed ones first: else the old value would come back for a moment."""
        if name in self._packed_refs():
            kept, skipping = [], False
            for line in (self.read(PACKED) or b"").splitlines(keepends=True):
                if line.startswith(b"^"):  # the object that the tag on the line before points at
                    if not skipping:
                        kept.append(line)
                    continue
                skipping = line.rstrip(b"\n").endswith(b" " + os.fsencode(name))
                if not skipping:
                    kept.append(line)
            self.replace(PACKED, b"".join(kept))
        self.remove(name)

    def _packed_refs(self) -> dict[str, str]:
        stamp = self.stamp(PACKED)
        if stamp is None:
            return {}
        if self._packed[0] != stamp:
            content = self.read(PACKED) or b""
            refs = {os.fsdecode(match[2]): match[1].decode() for match in _PACKED_LINE.finditer(content)}
            self._packed = (stamp, refs)
        return self._packed[1]

    # --- the way there

    def _parts(self, path: str) -> Parts:
        return (*self._base, *path.split("/")) if path else self._base

    @contextlib.contextmanager
    def _parent(self, path: str) -> Iterator[tuple[int, str]]:
        *above, name = self._parts(path)
        parent = self._opener(self._root, above, DIRECTORY)
        try:
            yield parent, name
        finally:
            os.close(parent)

    def _make_parents(self, path: str) -> None:
        above = path.split("/")[:-1]
        for length in range(1, len(above) + 1):
            with self._parent("/".join(above[:length])) as (parent, name), contextlib.suppress(FileExistsError):
                os.mkdir(name, 0o755, dir_fd=parent)


def is_ref_name(name: str) -> bool:
    """Whether git would take this for the full name of a ref."""
    return name.startswith("refs/") and len(name) < 1024 and _FORBIDDEN.search(name) is None


def is_object_id(text: str) -> bool:
    return _OBJECT.fullmatch(text) is not None


def stamp_of(found: os.stat_result) -> Stamp:
    return found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns


def _remove_empty(name: str, parent: int) -> None:
    """A directory that holds nothing but empty directories. Raises OSError where there is more."""
    directory = os.open(name, _LIST, dir_fd=parent)
    try:
        for below in os.listdir(directory):
            _remove_empty(below, directory)
    finally:
        os.close(directory)
    os.rmdir(name, dir_fd=parent)


def _clear(name: str, parent: int, depth: int = 0) -> None:
    try:
        os.unlink(name, dir_fd=parent)
        return
    except FileNotFoundError:
        return
    except OSError:
        pass
    directory = os.open(name, _LIST, dir_fd=parent)
    try:
        if depth < 64:
            for below in os.listdir(directory):
                with contextlib.suppress(OSError):
                    _clear(below, directory, depth + 1)
    finally:
        os.close(directory)
    os.rmdir(name, dir_fd=parent)
