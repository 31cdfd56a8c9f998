"""File stamps: whether a file is still the one that was read, without reading it again.

A file that was changed a moment ago may change again within one tick of the file system's clock and look the same, so
the stamp of such a file is not `settled` and must not be relied on.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from typing import Final, NamedTuple

_TICK_NS: Final = 100_000_000
"""Generous: kernels stamp files at 1 to 10 ms, some network file systems at worse."""


class FileStamp(NamedTuple):
    inode: int
    size: int
    modified: int
    changed: int
    device: int

    @property
    def settled(self) -> bool:
        now = time.time_ns()  # each by itself: anybody can set `modified`, and a late one must not hide `changed`
        return abs(now - self.modified) > _TICK_NS and abs(now - self.changed) > _TICK_NS


def stamp_from_stat(status: os.stat_result) -> FileStamp:
    return FileStamp(status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns, status.st_dev)


def file_stamp(path: str | os.PathLike[str]) -> FileStamp | None:
    """The stamp of what stands at `path` itself (a link is not followed); None if nothing stands there.

    What may not be looked at is not missing: it gets a stamp that is never settled, so it is looked at again and again.
    """
    return _stamp(os.lstat, path)


def target_stamp(path: str | os.PathLike[str]) -> FileStamp | None:
    """The same of what links lead to."""
    return _stamp(os.stat, path)


def _stamp(look: Callable[[str | os.PathLike[str]], os.stat_result], path: str | os.PathLike[str]) -> FileStamp | None:
    try:
        return stamp_from_stat(look(path))
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError:
        return FileStamp(0, 0, time.time_ns(), 0, 0)
