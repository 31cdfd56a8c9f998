"""Files beside a judged one, in the same directory handle: new content that waits for its name, old content kept.

All are called `.forge-<16 hex>.tmp`, made with O_EXCL and readable by nobody else until they have the rights of the
file they stand for. Raises OSError and, where a target changed, SandboxError.
"""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Callable, Iterable, Iterator
from typing import Final

from golem_forge.sandbox.access import Handle, Identity, identity_of
from golem_forge.sandbox.errors import path_changed, permission_denied
from golem_forge.sandbox.target import Target

_NEW_FILE: Final = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_CHUNK: Final = 1024 * 1024
_PERMISSIONS: Final = 0o777
"""Of the old mode, what is kept. Set-id bits are not: new content must not inherit the old one's powers."""


def temp_name() -> str:
    return f".forge-{os.urandom(8).hex()}.tmp"


def new_file(
    name: str,
    directory: Handle,
    chunks: Iterable[bytes],
    rights: os.stat_result | None,
    attributes: Handle | None,
    times: tuple[int, int] | None,
) -> Identity:
    """The name is the caller's, who may have to note it where a crash leaves it."""
    file = Handle(os.open(name, _NEW_FILE, 0o600, dir_fd=directory.fd))
    try:
        for chunk in chunks:
            rest = memoryview(chunk)
            while rest:
                rest = rest[os.write(file.fd, rest) :]
        _take_over_rights(file.fd, rights)
        _take_over_attributes(file.fd, attributes)
        if times:
            os.utime(file.fd, ns=times)
        os.fsync(file.fd)
        return file.identity()
    except BaseException:
        unlink_if_there(name, directory)
        raise
    finally:
        file.close()  # at once: on a full disk the space is given back only then


def second_name(name: str, target: Target, directory: Handle, old: Callable[[], Handle | None]) -> None:
    """A hard link, which keeps everything about the file; where the system allows none, a copy of `old`."""
    assert target.stat is not None
    try:
        os.link(target.name, name, src_dir_fd=directory.fd, dst_dir_fd=directory.fd, follow_symlinks=False)
    except OSError:
        content = None if target.unreadable else old()
        if content is None:
            raise permission_denied(target.virtual) from None
        new_file(name, directory, content_of(content), target.stat, content, times_of(target.stat))
        return
    if identity_of(os.stat(name, dir_fd=directory.fd, follow_symlinks=False)) != target.identity:
        unlink_if_there(name, directory)
        raise path_changed(target.virtual)


def times_of(stat: os.stat_result) -> tuple[int, int]:
    return stat.st_atime_ns, stat.st_mtime_ns


def unlink_if_there(name: str, directory: Handle) -> None:
    if name:
        with contextlib.suppress(OSError):
            os.unlink(name, dir_fd=directory.fd)


def is_there(name: str, directory: Handle) -> bool:
    try:
        os.stat(name, dir_fd=directory.fd, follow_symlinks=False)
    except FileNotFoundError:
        return False
    return True


def _take_over_rights(fd: int, old: os.stat_result | None) -> None:
    """The old file's permissions and owner, or those any new file gets; never more for anyone than before."""
    if old is None:
        os.fchmod(fd, 0o666 & ~_umask())
        return
    mode = old.st_mode & _PERMISSIONS
    mine = os.fstat(fd)
    if (old.st_uid, old.st_gid) != (mine.st_uid, mine.st_gid):
        with contextlib.suppress(PermissionError):  # as root: do not take people's files away from them
            os.fchown(fd, old.st_uid, old.st_gid)
        if os.fstat(fd).st_gid != old.st_gid:
            mode &= ~0o070 | (mode & 0o007) << 3  # another group now: it may do what everybody may
    os.fchmod(fd, mode)


def _take_over_attributes(fd: int, old: Handle | None) -> None:
    """Access lists and other extended attributes. An access list that cannot be kept costs the group its rights.

    With an access list the group bits of the mode are its mask: kept alone they would open the file to the group.
    """
    if old is None:
        return
    try:
        names = os.listxattr(old.fd)
    except OSError:
        return
    for name in names:
        try:
            os.setxattr(fd, name, os.getxattr(old.fd, name))
        except OSError:
            if name == "system.posix_acl_access":
                os.fchmod(fd, os.fstat(fd).st_mode & 0o707)


def content_of(file: Handle) -> Iterator[bytes]:
    done = 0
    while chunk := os.pread(file.fd, _CHUNK, done):
        yield chunk
        done += len(chunk)


def sync(directory: Handle) -> None:
    """Make a rename last. A directory we may enter but not read cannot be synced; its system writes it in time."""
    try:
        readable = Handle(os.open(".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=directory.fd))
    except PermissionError:
        return
    try:
        os.fsync(readable.fd)
    except OSError as error:
        if error.errno != errno.EINVAL:  # some file systems cannot sync a directory; the rename itself is done
            raise


def _umask() -> int:
    """The umask, read without setting it: os.umask would change it for every thread. Unknown: private files."""
    try:
        with open("/proc/self/status", "rb") as status:
            for line in status:
                if line.startswith(b"Umask:"):
                    return int(line.split()[1], 8)
    except OSError:
        pass
    return 0o077
