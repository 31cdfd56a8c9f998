"""Writing a judged Target so that a reader, or a crash, meets the old content or the new, never a mix.

`write_atomic` does it whole. `stage` does all that can fail for want of space or rights and changes nothing under the
target's name; `commit` renames; `undo` takes a committed change back (a patch of several files needs the three).
Threats: a hard link of a file outside must not be written through, so the name always gets a new inode; a directory
may be moved while we write, so its place is checked again right before the rename (`Target.must_be_in_place`).
"""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Iterable, Iterator
from typing import Final

from golem_forge.core.effects import Verb
from golem_forge.sandbox.access import DIRECTORY, Handle, Identity, identity_of
from golem_forge.sandbox.errors import from_os_error, path_changed, permission_denied, too_large
from golem_forge.sandbox.target import Target

WRITE_LIMIT: Final = 10 * 1024 * 1024
_NEW_FILE: Final = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_CHUNK: Final = 1024 * 1024
_PERMISSIONS: Final = 0o777
"""Of the old mode, what is kept. Set-id bits are not: new content must not inherit the old one's powers."""


def write_atomic(target: Target, data: bytes) -> None:
    """Put `data` under the target's name, making the directories it lacks."""
    stage(target, data).commit()


def stage(target: Target, data: bytes) -> Staged:
    """The new content, safe on disk beside its destination under a temporary name."""
    if target.access is not Verb.WRITE:
        raise ValueError("this target was not judged for write")
    if len(data) > WRITE_LIMIT:
        raise too_large(target.virtual, len(data), WRITE_LIMIT, "Write it as several files.")
    staged = Staged(target)
    with staged._cleaned_up_on_failure():
        target.must_be_in_place()
        staged._make_directories()
        staged._temp_file([data])
    return staged


class Staged:
    """New content waiting for its name: made by `stage`, ended by `commit` or `discard`."""

    def __init__(self, target: Target) -> None:
        assert target.parent is not None
        self.target = target
        self._directory = target.parent
        self._made: list[tuple[Handle, str]] = []
        """Directories made for this write: each by the one it is in and its name."""
        self._temp = ""
        self._new: Identity | None = None

    def commit(self) -> None:
        """Give the content its name, after one last look that the judged place is still the judged place."""
        with self._cleaned_up_on_failure():
            self.target.must_be_in_place(self._directory)
            self._rename()

    def discard(self) -> None:
        """Leave nothing behind: neither the temporary file nor directories made for it."""
        if self._temp:
            with contextlib.suppress(OSError):
                os.unlink(self._temp, dir_fd=self._directory.fd)
            self._temp = ""
        self._remove_made_directories()

    def undo(self) -> None:
        """Take a commit back: the old content, mode and times under the name again, or nothing where nothing was."""
        target = self.target
        with self._cleaned_up_on_failure():
            now = os.stat(target.name, dir_fd=self._directory.fd, follow_symlinks=False)
            if identity_of(now) != self._new:
                raise path_changed(target.virtual)
            if target.stat is None:
                os.unlink(target.name, dir_fd=self._directory.fd)
                self._remove_made_directories()
                return
            if target.unreadable or target.entry is None:
                raise permission_denied(target.virtual)
            self._temp_file(_content(target.entry), times=(target.stat.st_atime_ns, target.stat.st_mtime_ns))
            self._rename()

    def _make_directories(self) -> None:
        """One handle at a time. One that appeared meanwhile serves as well, if it is a directory and no link."""
        for name in self.target.parts[len(self.target.parts) - self.target.missing : -1]:
            try:
                os.mkdir(name, 0o777, dir_fd=self._directory.fd)
                self._made.append((self._directory, name))
            except FileExistsError:
                pass
            try:
                self._directory = Handle(os.open(name, DIRECTORY, dir_fd=self._directory.fd))
            except OSError as error:
                if error.errno in (errno.ENOTDIR, errno.ELOOP, errno.ENOENT):
                    raise path_changed(self.target.virtual) from None
                raise

    def _temp_file(self, chunks: Iterable[bytes], times: tuple[int, int] | None = None) -> None:
        """Content in a file nobody else can open yet; on disk, with its final mode, before it gets its name."""
        temp = f".forge-{os.urandom(8).hex()}.tmp"
        file = Handle(os.open(temp, _NEW_FILE, 0o600, dir_fd=self._directory.fd))
        self._temp = temp
        try:
            for chunk in chunks:
                rest = memoryview(chunk)
                while rest:
                    rest = rest[os.write(file.fd, rest) :]
            _take_over_rights(file.fd, self.target.stat)
            _take_over_attributes(file.fd, self.target.entry)
            if times:
                os.utime(file.fd, ns=times)
            os.fsync(file.fd)
            self._new = file.identity()
        finally:
            file.close()  # at once: on a full disk the space is given back only then

    def _rename(self) -> None:
        os.rename(self._temp, self.target.name, src_dir_fd=self._directory.fd, dst_dir_fd=self._directory.fd)
        self._temp = ""
        for directory in (self._directory, *(above for above, _ in reversed(self._made))):
            _sync(directory)

    def _remove_made_directories(self) -> None:
        while self._made:
            above, name = self._made.pop()
            with contextlib.suppress(OSError):  # not empty: someone else uses it by now
                os.rmdir(name, dir_fd=above.fd)

    @contextlib.contextmanager
    def _cleaned_up_on_failure(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            self.discard()
            raise from_os_error(error, self.target.virtual) from None
        except BaseException:
            self.discard()
            raise


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


def _content(file: Handle) -> Iterator[bytes]:
    done = 0
    while chunk := os.pread(file.fd, _CHUNK, done):
        yield chunk
        done += len(chunk)


def _sync(directory: Handle) -> None:
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
