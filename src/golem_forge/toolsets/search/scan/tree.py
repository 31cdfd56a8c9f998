"""Every file of a tree that a search looks at, in the order of the paths, by directory descriptors.

Threat: while the tree is walked another process changes it. Nothing here opens a path of more than one component or
follows a link, so whatever is put in the way, the walk stays below the directory it was handed.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator

from .ignores import FILE_NAME, LARGEST, Ignores

_OPEN = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
Parts = tuple[str, ...]


def ignores_above(root: int, parts: Parts) -> Ignores | None:
    """What the files between a zone's root and a directory in it say; the directory's own is read by `files_below`."""
    known: Ignores | None = None
    here = os.open(".", _OPEN | os.O_DIRECTORY, dir_fd=root)
    try:
        for depth, name in enumerate(parts):
            known = ignores_in(here, depth, known)
            below = os.open(name, _OPEN | os.O_DIRECTORY, dir_fd=here)
            os.close(here)
            here = below
    except OSError:
        pass
    finally:
        os.close(here)
    return known


def ignores_in(directory: int, depth: int, above: Ignores | None) -> Ignores | None:
    data = content(FILE_NAME, directory, LARGEST)
    return Ignores(data.decode("utf-8", "replace"), depth, above) if data else above


def files_below(directory: int, parts: Parts, ignores: Ignores | None, levels: int) -> Iterator[tuple[Parts, int]]:
    """(path, its directory's descriptor), for as long as the next one is not asked for. Closes `directory`."""
    try:
        ignores = ignores_in(directory, len(parts), ignores)
        for name, is_directory in _entries(directory):
            path = (*parts, name)
            if ignores is not None and ignores.leave_out(path, is_directory):
                continue
            if not is_directory:
                yield path, directory
            elif levels > 1:
                try:
                    below = os.open(name, _OPEN | os.O_DIRECTORY, dir_fd=directory)
                except OSError:  # not ours to read, or no directory any more
                    continue
                yield from files_below(below, path, ignores, levels - 1)
    finally:
        os.close(directory)


def content(name: str, directory: int, largest: int) -> bytes | None:
    """A regular file's bytes; None if it is none, cannot be read or is larger than that."""
    try:
        file = os.open(name, _OPEN, dir_fd=directory)
    except OSError:
        return None
    try:
        info = os.fstat(file)
        if not stat.S_ISREG(info.st_mode) or info.st_size > largest:
            return None
        with open(file, "rb", buffering=0, closefd=False) as stream:
            return stream.readall()
    except OSError:
        return None
    finally:
        os.close(file)


def _entries(directory: int) -> list[tuple[str, bool]]:
    """Directories and files, so that walking them in this order gives paths in the order of their text."""
    found: list[tuple[str, str, bool]] = []
    try:
        with os.scandir(directory) as entries:
            for entry in entries:
                name = entry.name
                if name == ".git" or (not name.isprintable() and _unaddressable(name)):
                    continue
                if entry.is_dir(follow_symlinks=False):
                    found.append((f"{name}/", name, True))
                elif entry.is_file(follow_symlinks=False):
                    found.append((name, name, False))
    except OSError:
        return []
    return [(name, is_directory) for _, name, is_directory in sorted(found)]


def _unaddressable(name: str) -> bool:
    """Control characters, and bytes that are not UTF-8: no tool can open such a name."""
    return any(char < " " or "\x7f" <= char <= "\x9f" or "\ud800" <= char <= "\udfff" for char in name)
