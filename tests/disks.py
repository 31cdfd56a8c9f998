"""The disk need not be waited for: what was written counts as kept, as it does for everybody who reads it afterwards.

`fsync` matters when a machine loses its power, which no test can do to it; a process that is killed loses nothing of
what it wrote. The tests write tens of thousands of small files, and waiting for each was a good part of their time. A
test of who waits for what, and when, puts its own function in this place. The real command waits.
"""

from __future__ import annotations

import ctypes
import functools
import os
import sqlite3
import time
from pathlib import Path
from typing import Any

_CLONE_NEWNS, _MS_REC, _MS_PRIVATE = 0x20000, 0x4000, 1 << 18
_ENOUGH_KB = 12_000_000
"""Memory that must be left: all tests write about a gigabyte, and each of their processes takes half of one."""


def keep_in_memory(folder: Path) -> None:
    """From now on, for this process and those it starts, the folder is in memory, where root has enough of it: that is
    a sixth of the processor time of the tests of walls. It is empty for everybody else."""
    kernel = ctypes.CDLL(None)
    if os.geteuid() or _memory_kb() < _ENOUGH_KB or kernel.unshare(_CLONE_NEWNS):
        return
    if kernel.mount(b"none", b"/", None, _MS_REC | _MS_PRIVATE, None) == 0:  # else the others would see it too
        kernel.mount(b"tmpfs", os.fsencode(folder), b"tmpfs", 0, b"mode=0700")


def _memory_kb() -> int:
    lines = Path("/proc/meminfo").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("MemAvailable:"))


def need_no_waiting() -> None:
    """From now on, in this process and in those forked from it."""
    os.fsync, os.fdatasync = _is_open, _a_moment
    sqlite3.connect = functools.partial(sqlite3.connect, factory=_Connection)  # type: ignore[misc,assignment]


def _is_open(file: Any) -> None:
    """A descriptor that is none is still refused."""
    os.fstat(file if isinstance(file, int) else file.fileno())


def _a_moment(file: Any) -> None:
    """What is journalled before and after it has different times, as with the quickest of disks."""
    _is_open(file)
    time.sleep(0.001)


class _Connection(sqlite3.Connection):
    def execute(self, words: str, *given: Any) -> sqlite3.Cursor:
        how_sure = words.startswith("PRAGMA synchronous =")
        return super().execute("PRAGMA synchronous = OFF" if how_sure else words, *given)
