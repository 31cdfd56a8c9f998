"""Opens files below a directory handle without ever following a symbolic link: by `openat2`, or one component at a
time.

Takes a directory descriptor and the components of a path (no `.`, `..` or empty ones), returns a descriptor, raises
OSError (ELOOP or ENOTDIR where a link is found). Threat: another process swaps a directory for a link between a
check and an open; here check and open are one step. Linux only (O_PATH).
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

Parts = tuple[str, ...]
"""A path below some directory, by its components."""
Opener = Callable[[int, Sequence[str], int], int]
Identity = tuple[int, int]
"""Device and inode: what a name stood for, as long as a handle on it is held (the number is not reused till then)."""

DIRECTORY = os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
"""A place to start from. O_PATH needs no read permission, only the right to pass through."""
ENTRY = os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC
"""Opens an entry of any kind, also a link itself, without its content, so that no device or fifo reacts."""
LISTING = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
"""Opens a directory to list it."""
CONTENT = os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_NOCTTY | os.O_CLOEXEC

_SYS_OPENAT2 = 437
_NO_MAGICLINKS, _NO_SYMLINKS, _BENEATH = 0x02, 0x04, 0x08


class Handle:
    """Owns one descriptor. Closed with its last reference, so a handle in use cannot become another file's number."""

    __slots__ = ("_fd", "_identity")

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._identity: Identity | None = None

    @property
    def fd(self) -> int:
        if self._fd < 0:
            raise ValueError("this handle is closed")
        return self._fd

    def identity(self) -> Identity:
        """Device and inode; read once, because an open descriptor never changes its file."""
        fd = self.fd
        if self._identity is None:
            self._identity = identity_of(os.fstat(fd))
        return self._identity

    def close(self) -> None:
        fd, self._fd = self._fd, -1
        if fd >= 0:
            os.close(fd)

    __del__ = close


def identity_of(stat: os.stat_result) -> Identity:
    return stat.st_dev, stat.st_ino


def path_identity(path: str | os.PathLike[str]) -> Identity | None:
    """Of what a path leads to now; None: nothing is there, or it cannot be seen."""
    try:
        return identity_of(os.stat(path))
    except OSError:
        return None


def entry_stat(path: str, directory: int | None = None) -> os.stat_result | None:
    """Returns the stat of an entry, of a link itself and not its target; None if it is missing or cannot be read."""
    try:
        return os.stat(path, dir_fd=directory, follow_symlinks=False)
    except (OSError, ValueError):
        return None


def read_regular(file: int, limit: int) -> bytes | None:
    """The first `limit` bytes of an open file; None: it is no regular one. Raises OSError."""
    if not stat.S_ISREG(os.fstat(file).st_mode):
        return None
    data = b""
    while len(data) < limit and (more := os.read(file, limit - len(data))):
        data += more
    return data


def call_libc(name: str, *arguments: Any) -> int:
    """A call of the C library that answers -1 and `errno` where it fails. Raises OSError, ENOSYS where the library has
    no such call."""
    import ctypes

    call = getattr(_libc(), name, None)
    if call is None or (result := int(call(*arguments))) < 0:
        number = errno.ENOSYS if call is None else ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return result


@cache
def _libc() -> Any:
    import ctypes

    return ctypes.CDLL(None, use_errno=True)


def open_by_walk(root: int, parts: Sequence[str], flags: int) -> int:
    """The portable way: every directory on the way is opened no-follow from the one before it."""
    if not parts:
        return os.open(".", flags | os.O_NOFOLLOW, dir_fd=root)
    here = root
    try:
        for name in parts[:-1]:
            below = os.open(name, DIRECTORY, dir_fd=here)
            if here != root:
                os.close(here)
            here = below
        return os.open(parts[-1], flags | os.O_NOFOLLOW, dir_fd=here)
    finally:
        if here != root:
            os.close(here)


def open_by_kernel(root: int, parts: Sequence[str], flags: int) -> int:
    """The whole path in one `openat2`, refused by the kernel if any component is a link or leads out."""
    syscall, get_errno = _openat2()
    fd: int = syscall(_SYS_OPENAT2, root, os.fsencode("/".join(parts) or "."), _how(flags), 24)
    if fd >= 0:
        return fd
    number = get_errno()
    if number == errno.EAGAIN:  # the kernel saw a rename in mid-walk and will not say what it found
        return open_by_walk(root, parts, flags)
    raise OSError(number, os.strerror(number))


def reopen_entry(entry: Handle, flags: int) -> int | None:
    """The very thing an O_PATH handle stands for, opened anew; None where /proc is not there to do it."""
    try:
        return os.open(f"/proc/self/fd/{entry.fd}", flags & ~os.O_NOFOLLOW)
    except (FileNotFoundError, NotADirectoryError):
        return None


@cache
def _how(flags: int) -> Any:
    """struct open_how: flags, mode, resolve. Only read by the kernel, so one serves every call."""
    import ctypes

    return (ctypes.c_uint64 * 3)(flags | os.O_NOFOLLOW | os.O_CLOEXEC, 0, _BENEATH | _NO_SYMLINKS | _NO_MAGICLINKS)


@cache
def _openat2() -> tuple[Any, Callable[[], int]]:
    import ctypes

    call = ctypes.CDLL(None, use_errno=True).syscall  # one of its own: the types below are this caller's
    call.argtypes = (ctypes.c_long, ctypes.c_int, ctypes.c_char_p, ctypes.c_void_p, ctypes.c_size_t)
    call.restype = ctypes.c_long
    return call, ctypes.get_errno


@cache
def best_opener() -> Opener:
    """`openat2` where it works. Tried, not assumed: old kernels lack it and some containers forbid it."""
    try:
        root = os.open("/", DIRECTORY)
        try:
            os.close(open_by_kernel(root, (), DIRECTORY))
        finally:
            os.close(root)
    except (OSError, ImportError, AttributeError):
        return open_by_walk
    return open_by_kernel
