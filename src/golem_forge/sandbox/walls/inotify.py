"""Inotify: what changed in the directories that are watched, asked without waiting.

`open_inotify` gives an instance, or None where the kernel or the person's limits give none; `watch` adds a directory
by its descriptor; `read` gives the events since the last read, or None if some may be missing. Threats: a child floods
the queue (the kernel drops events and says so; one read ends after `_MOST_EVENTS`), or a file system is mounted inside
a watched tree, of which no event tells, so the table of mounts is watched too. Changes that another machine makes on a
network file system cause no event either: `tells_all` says of which file systems the events are complete.
"""

from __future__ import annotations

import contextlib
import os
import re
import select
import struct
from collections.abc import Callable
from functools import cache
from typing import Any, Final

MODIFY: Final = 0x002
ATTRIB: Final = 0x004
CLOSE_WRITE: Final = 0x008
MOVED_FROM: Final = 0x040
MOVED_TO: Final = 0x080
CREATE: Final = 0x100
DELETE: Final = 0x200
DELETE_SELF: Final = 0x400
MOVE_SELF: Final = 0x800
UNMOUNT: Final = 0x2000
_OVERFLOW: Final = 0x4000
IGNORED: Final = 0x8000
IS_DIRECTORY: Final = 0x4000_0000
_ONLY_DIRECTORIES: Final = 0x0100_0000
_NOT_OF_REMOVED_FILES: Final = 0x0400_0000
_CHANGES: Final = MODIFY | ATTRIB | CLOSE_WRITE | MOVED_FROM | MOVED_TO | CREATE | DELETE | DELETE_SELF | MOVE_SELF
_MASK: Final = _CHANGES | _ONLY_DIRECTORIES | _NOT_OF_REMOVED_FILES

_HEADER: Final = struct.Struct("iIII")
_AT_ONCE: Final = 1 << 16
_MOST_EVENTS: Final = 65_536
"""Of one read; a child that makes events as quickly as they are read would never let it end."""
_LIMIT: Final = "/proc/sys/fs/inotify/max_user_watches"
_MOUNTS: Final = "/proc/self/mountinfo"
_ESCAPED: Final = re.compile(r"\\([0-7]{3})")
_LOCAL: Final = frozenset(
    ("ext2", "ext3", "ext4", "xfs", "btrfs", "tmpfs", "ramfs", "overlay", "zfs", "f2fs", "bcachefs", "jfs", "reiserfs")
)

Event = tuple[int, int, str]
"""The watch, the mask, and the name in the watched directory; without a name it is about the directory itself."""


class Inotify:
    def __init__(self, fd: int, mounts: int) -> None:
        self._fd = fd
        self._mounts = mounts
        self._poll = select.poll()
        self._poll.register(mounts, select.POLLPRI)
        self._poll.poll(0)

    def watch(self, directory: int) -> int:
        """Watch what an open descriptor stands for; the same directory has the same number. Raises OSError: ENOSPC
        where the person's watches are used up, and where /proc is missing."""
        libc, get_errno = _libc()
        number: int = libc.inotify_add_watch(self._fd, b"/proc/self/fd/%d" % directory, _MASK)
        if number < 0:
            raise OSError(get_errno(), "inotify_add_watch")
        return number

    def forget(self, number: int) -> None:
        _libc()[0].inotify_rm_watch(self._fd, number)

    def read(self) -> list[Event] | None:
        """None: events were lost, or something was mounted or unmounted; look at everything again."""
        events: list[Event] = []
        lost = bool(self._poll.poll(0))
        while len(events) < _MOST_EVENTS:
            try:
                data = os.read(self._fd, _AT_ONCE)
            except BlockingIOError:
                return None if lost else events
            place = 0
            while place < len(data):
                number, mask, _, length = _HEADER.unpack_from(data, place)
                place += _HEADER.size
                lost = lost or bool(mask & _OVERFLOW)
                events.append((number, mask, os.fsdecode(data[place : place + length].rstrip(b"\0"))))
                place += length
        return None

    def close(self) -> None:
        fd, self._fd = self._fd, -1
        if fd >= 0:
            os.close(fd)
            os.close(self._mounts)

    __del__ = close


def open_inotify(directories: int) -> Inotify | None:
    """None where there is none, or where so many watches would leave other programs of the person too few."""
    try:
        with open(_LIMIT, encoding="ascii") as file:
            if directories > int(file.read()) // 2:
                return None
        mounts = os.open(_MOUNTS, os.O_RDONLY | os.O_CLOEXEC)
        fd = _libc()[0].inotify_init1(os.O_CLOEXEC | os.O_NONBLOCK)
    except (OSError, ValueError, AttributeError):
        return None
    if fd < 0:  # 128 instances are usual for one person
        os.close(mounts)
        return None
    return Inotify(fd, mounts)


def tells_all(path: str) -> bool:
    """Whether every change on the file system of a directory causes an event here."""
    kind, longest = "", -1
    with contextlib.suppress(OSError, ValueError), open(_MOUNTS, encoding="utf-8", errors="surrogateescape") as file:
        for line in file:
            own, _, further = line.partition(" - ")
            place = _ESCAPED.sub(lambda found: chr(int(found[1], 8)), own.split(" ")[4])
            # Later lines are mounted on top of earlier ones.
            if len(place) >= longest and f"{path}/".startswith(f"{place.rstrip('/')}/"):
                kind, longest = further.split(" ")[0], len(place)
    return kind in _LOCAL


@cache
def _libc() -> tuple[Any, Callable[[], int]]:
    import ctypes

    libc = ctypes.CDLL(None, use_errno=True)
    libc.inotify_add_watch.argtypes = (ctypes.c_int, ctypes.c_char_p, ctypes.c_uint32)
    return libc, ctypes.get_errno
