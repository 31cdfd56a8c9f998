"""Trees: every file below one folder, read through directory handles, and the marks by which a change is noticed.

Takes a folder and limits. Gives names → bytes, which files may be executed, and one Mark for each folder and file,
taken from the very handle that was read. Refuses (TreeError) links, devices, pipes and sockets, what cannot be
read, and more than the limits.

Threats: a folder whose author swaps a file or a folder for a link while it is read (no name is followed, everything is
opened below a handle), fills it without end (counted as it grows), or changes it within one tick of the file system's
clock, which no mark shows (`unsettled`).
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from enum import StrEnum
from itertools import islice
from operator import attrgetter
from typing import Final

from golem_forge.core.errors import ForgeError
from golem_forge.core.visible import visible

Mark = tuple[int, int, int, int]
mark_of: Final[Callable[[os.stat_result], Mark]] = attrgetter("st_ctime_ns", "st_mtime_ns", "st_size", "st_ino")

_TICK_NS: Final = 20_000_000
"""Kernels stamp files at 1 to 10 ms."""
_DIRECTORY: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    files: int
    """Of folders there may be as many."""
    total_bytes: int
    depth: int = 32


class Fault(StrEnum):
    SPECIAL = "special"
    """A link, a device, a pipe, a socket."""
    LIMIT = "limit"
    UNREADABLE = "unreadable"


class TreeError(ForgeError):
    """A folder that cannot be taken as it is. Names are relative to it."""

    stated_name = "TreeError"

    def __init__(self, fault: Fault, message: str) -> None:
        super().__init__(message, code="TREE")
        self.fault = fault
        self.marks: dict[str, Mark] = {}
        """Of what was looked at so far: while they stay, so does the fault."""


@dataclass(slots=True)
class Tree:
    files: dict[str, bytes] = field(default_factory=dict)
    """By relative name, with `/`."""
    executable: set[str] = field(default_factory=set)
    folders: set[str] = field(default_factory=set)
    marks: dict[str, Mark] = field(default_factory=dict)
    """Of every folder and file by relative name; the folder itself is the empty name."""


def read_tree(folder: str | os.PathLike[str], limits: Limits) -> Tree:
    tree = Tree()
    try:
        if _is_special(mode := os.lstat(folder).st_mode):
            raise TreeError(Fault.SPECIAL, f"the folder {_kind(mode)}")
        handle = os.open(folder, _DIRECTORY)
        try:
            _Reading(tree, limits).folder(handle, "")
        finally:
            os.close(handle)
    except OSError as error:
        raise _unreadable("the folder", error) from None
    except TreeError as error:
        error.marks = tree.marks
        raise
    return tree


def unsettled(marks: Iterable[Mark], *, since: int) -> bool:
    """Whether something was changed so shortly before it was read, at `since`, that a later change may look the same.

    A time far ahead is settled: the clock was set back, and the next change gets another time.
    """
    return any(abs(since - mark[0]) < _TICK_NS for mark in marks)


class _Reading:
    def __init__(self, tree: Tree, limits: Limits) -> None:
        self.tree = tree
        self.limits = limits
        self.left = limits.total_bytes

    def folder(self, handle: int, within: str) -> None:
        self.tree.marks[within] = mark_of(os.fstat(handle))
        if within.count("/") >= self.limits.depth:
            raise TreeError(Fault.LIMIT, f"{shown_name(within)}: folders are nested deeper than {self.limits.depth}")
        with os.scandir(handle) as listing:
            names = sorted(entry.name for entry in islice(listing, 2 * self.limits.files + 1))
        for name in names:
            path = f"{within}/{name}" if within else name
            try:
                self._one(handle, name, path)
            except OSError as error:
                raise _unreadable(shown_name(path), error) from None

    def _one(self, above: int, name: str, path: str) -> None:
        status = os.stat(name, dir_fd=above, follow_symlinks=False)
        if stat.S_ISDIR(status.st_mode):
            self.tree.folders.add(path)
            self._count(self.tree.folders, "folders")
            handle = os.open(name, _DIRECTORY, dir_fd=above)
            try:
                self.folder(handle, path)
            finally:
                os.close(handle)
        elif stat.S_ISREG(status.st_mode):
            self.tree.marks[path] = mark_of(status)
            handle = os.open(name, _FILE, dir_fd=above)
            with open(handle, "rb", buffering=0) as file:
                self._file(file.fileno(), path)
        else:
            raise TreeError(Fault.SPECIAL, f"{shown_name(path)}: {_kind(status.st_mode)}")

    def _file(self, handle: int, path: str) -> None:
        status = os.fstat(handle)
        if not stat.S_ISREG(status.st_mode):
            raise TreeError(Fault.SPECIAL, f"{shown_name(path)}: {_kind(status.st_mode)}")
        self.tree.marks[path] = mark_of(status)
        content = b"" if status.st_size > self.left else _bounded(handle, self.left + 1)
        if max(status.st_size, len(content)) > self.left:
            raise TreeError(Fault.LIMIT, f"has more than {self.limits.total_bytes >> 20} MiB of files")
        self.left -= len(content)
        self.tree.files[path] = content
        self._count(self.tree.files, "files")
        if status.st_mode & 0o111:
            self.tree.executable.add(path)

    def _count(self, found: set[str] | dict[str, bytes], what: str) -> None:
        if len(found) > self.limits.files:
            raise TreeError(Fault.LIMIT, f"has more than {self.limits.files} {what}")


def _bounded(handle: int, most: int) -> bytes:
    parts = []
    while most > 0 and (part := os.read(handle, min(most, 1 << 20))):
        parts.append(part)
        most -= len(part)
    return b"".join(parts)


def shown_name(name: str) -> str:
    """A name on one line, with nothing in it that steers a terminal or hides."""
    return visible(name).replace("\n", "\\n").replace("\t", "\\t")


def _is_special(mode: int) -> bool:
    return not stat.S_ISDIR(mode) and not stat.S_ISREG(mode)


def _kind(mode: int) -> str:
    if stat.S_ISLNK(mode):
        return "is a symbolic link"
    if stat.S_ISFIFO(mode):
        return "is a named pipe"
    return "is a socket" if stat.S_ISSOCK(mode) else "is a device"


def _unreadable(what: str, error: OSError) -> TreeError:
    if error.errno == errno.ELOOP:  # it became one after it was looked at
        return TreeError(Fault.SPECIAL, f"{what}: is a symbolic link")
    return TreeError(Fault.UNREADABLE, f"{what}: cannot be read ({os.strerror(error.errno or 0)})")
