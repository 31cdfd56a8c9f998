"""Reads, lists, describes, writes and deletes a checked Target, always through the handles that the target holds.

Reading refuses what is too large or of the wrong kind. `write_atomic` writes so that a reader, or a crash, sees the
old content or the new, never a mix. A patch of several files uses StagedWrite and StagedDelete in steps: `prepare`
does everything that can fail for lack of space or permission and changes nothing under the target's name, `keep`
gives the old file a second name that is found again after a crash, `commit` renames, `undo` takes a commit back,
`release` drops the second name. Temporary files are called `.forge-<16 hex>.tmp`, made with O_EXCL and private
until they have the permissions of the file they replace. No operating system message is passed on.

Threats: a hard link to a file outside must not be written through, so the name always gets a new inode; a directory
may be moved while we write, so its place is checked again right before the rename (`Target.must_be_in_place`);
`undo` never overwrites what somebody else put there meanwhile (PATH_CHANGED).
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat as st
from collections.abc import Callable, Iterable, Iterator
from typing import Final

from golem_forge.core.effects import Verb
from golem_forge.core.lazy_dataclass import dataclass
from golem_forge.core.regex import regex
from golem_forge.sandbox import errors
from golem_forge.sandbox.handles import DIRECTORY, Handle, Identity, identity_of
from golem_forge.sandbox.target import FileKind, Target

READ_LIMIT: Final = 64 * 1024 * 1024
LISTING_LIMIT: Final = 10_000
_CHUNK: Final = 1024 * 1024
_UNPRINTABLE: Final = regex(r"[\x00-\x1f\x7f-\x9f\ud800-\udfff]")


@dataclass(frozen=True, slots=True)
class DirectoryEntry:
    name: str
    """As it can be shown: bytes that are no printable text are written `\\xNN`."""
    kind: FileKind
    addressable: bool = True
    """False if the name holds control characters or is not UTF-8; tools cannot open such an entry."""


@dataclass(frozen=True, slots=True)
class FileInfo:
    kind: FileKind
    size: int
    modified: float
    """Time of the last change, in seconds since the epoch (UTC)."""
    mode: int
    """Permission bits."""


def read_bytes(target: Target, limit: int = READ_LIMIT) -> bytes:
    """The whole content; TOO_LARGE if it is, or grows, over the limit."""
    target.must_be_file()
    entry = target.entry or target.content()
    assert entry is not None
    if target.unreadable:
        raise errors.permission_denied(target.virtual)
    try:
        size = os.fstat(entry.fd).st_size
        chunks: list[bytes] = []
        done = 0
        while size <= limit and (chunk := os.pread(entry.fd, min(_CHUNK, limit + 1 - done), done)):
            chunks.append(chunk)
            done += len(chunk)
            size = max(size, done)
    except OSError as error:
        raise errors.from_os_error(error, target.virtual) from None
    if size > limit:
        raise errors.too_large(target.virtual, size, limit, "Search it with grep_files, or read a smaller file.")
    return b"".join(chunks)


def list_dir(target: Target, limit: int = LISTING_LIMIT) -> list[DirectoryEntry]:
    """One level, sorted by name; `/` lists the zones."""
    if target.zone is None:
        return [DirectoryEntry(name, FileKind.DIRECTORY) for name in sorted(target.zones)]
    target.must_exist()
    if target.kind is not FileKind.DIRECTORY:
        raise errors.not_a_directory(target.virtual)
    assert target.entry is not None
    if target.unreadable:
        raise errors.permission_denied(target.virtual)
    try:
        with os.scandir(target.entry.fd) as found:
            entries: list[DirectoryEntry] = []
            for entry in found:
                if target.zone.hides(entry):
                    continue
                if len(entries) == limit:
                    count = limit + 1 + sum(1 for _ in found)
                    raise errors.too_large(target.virtual, count, limit, "Name a directory below it.", unit="entries")
                entries.append(_directory_entry(entry))
    except OSError as error:
        raise errors.from_os_error(error, target.virtual) from None
    return sorted(entries, key=lambda entry: entry.name)


def file_info(target: Target) -> FileInfo:
    """Returns the present state of a target, read through the handle that was judged."""
    if target.zone is None:
        return FileInfo(FileKind.DIRECTORY, 0, 0.0, 0o555)
    target.must_exist()
    assert target.entry is not None
    assert target.kind is not None
    try:
        info = os.fstat(target.entry.fd)
    except OSError as error:
        raise errors.from_os_error(error, target.virtual) from None
    return FileInfo(target.kind, info.st_size, info.st_mtime, st.S_IMODE(info.st_mode))


def delete(target: Target) -> None:
    """Remove the judged entry (a file, or a link itself) from its judged directory."""
    _must_be_judged(target, Verb.DELETE)
    directory = target.parent  # held: a call that gives up meanwhile closes the target under us
    target.must_be_in_place()
    if directory is None:
        raise errors.path_changed(target.virtual)
    try:
        os.unlink(target.name, dir_fd=directory.fd)
    except IsADirectoryError:
        raise errors.is_a_directory(target.virtual) from None
    except OSError as error:
        raise errors.from_os_error(error, target.virtual) from None


def printable_name(name: str) -> str:
    """A name from disk as text without control characters, and without bytes that are not UTF-8."""
    return _UNPRINTABLE.sub(lambda found: "".join(f"\\x{byte:02x}" for byte in os.fsencode(found[0])), name)


def _directory_entry(entry: os.DirEntry[str]) -> DirectoryEntry:
    if entry.is_symlink():
        kind = FileKind.LINK
    elif entry.is_dir(follow_symlinks=False):
        kind = FileKind.DIRECTORY
    else:
        kind = FileKind.FILE if entry.is_file(follow_symlinks=False) else FileKind.OTHER
    name = printable_name(entry.name)
    return DirectoryEntry(name, kind, name == entry.name)


WRITE_LIMIT: Final = 10 * 1024 * 1024


def write_atomic(target: Target, data: bytes) -> None:
    """Put `data` under the target's name, making the directories it lacks."""
    stage(target, data).commit()


def stage(target: Target, data: bytes) -> StagedWrite:
    """The new content, safe on disk beside its destination under a temporary name."""
    staged = StagedWrite(target, data)
    staged.prepare()
    return staged


def _must_be_judged(target: Target, access: Verb) -> None:
    if target.access is not access:
        raise ValueError(f"this target was not judged for {access}")


class _StagedChange:
    """A change of one name in the directory that was judged with it."""

    def __init__(self, target: Target, access: Verb) -> None:
        _must_be_judged(target, access)
        assert target.parent is not None
        self.target = target
        self._at: Handle | None = target.parent
        self.applied = False
        """The change is there, whether or not `commit` came to its end."""

    @property
    def _directory(self) -> Handle:
        if self._at is None:
            raise ValueError("this change is over")
        return self._at

    def _move(self, name: str, other: str) -> None:
        os.rename(name, other, src_dir_fd=self._directory.fd, dst_dir_fd=self._directory.fd)

    def close(self) -> None:
        """Closes every handle; the change cannot be used afterwards."""
        self._at = None


class StagedWrite(_StagedChange):
    """New content waiting for its name: made ready by `prepare`, ended by `commit` or `discard`, then `close`. It gets
    the rights of the file it replaces, or of `like`: the one a move takes away. `executable`: whether whoever may read
    it may run it; None: as those rights say."""

    def __init__(
        self, target: Target, data: bytes, *, like: Target | None = None, executable: bool | None = None
    ) -> None:
        super().__init__(target, Verb.WRITE)
        if len(data) > WRITE_LIMIT:
            raise errors.too_large(target.virtual, len(data), WRITE_LIMIT, "Write it as several files.")
        assert target.zone is not None
        self._data = data
        self._like = like or target
        self._executable = executable
        self._opener = target.zone.opener
        self._held: dict[Target, Handle | None] = {each: each.entry for each in (target, self._like)}
        """Ours too: a call that gives up meanwhile closes the target under us."""
        self._base: Handle | None = target.parent
        self._made: list[tuple[str, ...]] = []
        """Directories made for this write, each by its components below `_base`; a handle for each is too many."""
        self._new: Identity | None = None
        self.temp = temp_name()
        """Where the new content waits; empty once it waits no more."""
        self.second = temp_name() if target.stat is not None else ""
        """The name `keep` will give the old file, in its own directory."""
        self.kept = ""
        """The same, while the old file has it."""

    @property
    def made(self) -> int:
        """How many parent directories have to be created for the file."""
        return max(self.target.missing - 1, 0)

    def prepare(self) -> None:
        with self._cleaned_up_on_failure():
            self.target.must_be_in_place()
            self._make_directories()
            attributes = self._content(self._like)
            self._new = new_file(
                self.temp, self._directory, [self._data], self._like.stat, attributes, None, self._executable
            )

    def keep(self) -> None:
        """Give the old file a second name until `release`, so that `undo` can put that very file back."""
        if self.target.stat is None:
            return
        with self._cleaned_up_on_failure():
            self.target.must_be_in_place(self._directory)
            link_second_name(self.second, self.target, self._directory, lambda: self._content(self.target))
            self.kept = self.second

    def commit(self) -> None:
        """Give the content its name, after one last look that the judged place is still the judged place."""
        with self._cleaned_up_on_failure():
            self.target.must_be_in_place(self._directory)
            self._move(self.temp, self.target.name)
            self.temp, self.applied = "", True
            self._sync_directories()

    def discard(self) -> None:
        """Leave nothing behind: neither the temporary file nor directories made for it."""
        unlink_if_there(self.temp, self._directory)
        self.temp = ""
        if not self.applied:
            self._at = self._base  # where descriptors ran out, this one is needed to remove what was made
        self._remove_made_directories()

    def undo(self) -> None:
        """Take a commit back: the old content, mode and times under the name again, or nothing where nothing was."""
        target = self.target
        with self._cleaned_up_on_failure():
            now = os.stat(target.name, dir_fd=self._directory.fd, follow_symlinks=False)
            if identity_of(now) != self._new:
                raise errors.path_changed(target.virtual)
            if target.stat is None:
                os.unlink(target.name, dir_fd=self._directory.fd)
                self._remove_made_directories()
            elif self.kept:
                self._move(self.kept, target.name)
                self.kept = ""
            elif target.unreadable or (old := self._held[target]) is None:
                raise errors.permission_denied(target.virtual)
            else:
                self.temp, times = temp_name(), times_of(target.stat)
                self._new = new_file(self.temp, self._directory, read_chunks(old), target.stat, old, times)
                self._move(self.temp, target.name)
                self.temp = ""
            self.applied = False
            with contextlib.suppress(OSError):  # it is back; making that last is all that failed
                self._sync_directories()

    def release(self) -> None:
        unlink_if_there(self.kept, self._directory)
        self.kept = ""

    def close(self) -> None:
        super().close()
        self._base = None
        self._held.clear()

    def _content(self, target: Target) -> Handle | None:
        return self._held[target] or target.content()

    def _make_directories(self) -> None:
        """One handle at a time. One that appeared meanwhile serves as well, if it is a directory and no link."""
        names = self.target.parts[len(self.target.parts) - self.target.missing : -1]
        for depth, name in enumerate(names, 1):
            try:
                os.mkdir(name, 0o777, dir_fd=self._directory.fd)
                self._made.append(names[:depth])
            except FileExistsError:
                pass
            try:
                self._at = Handle(os.open(name, DIRECTORY, dir_fd=self._directory.fd))
            except OSError as error:
                if error.errno in (errno.ENOTDIR, errno.ELOOP, errno.ENOENT):
                    raise errors.path_changed(self.target.virtual) from None
                raise

    def _sync_directories(self) -> None:
        sync_directory(self._directory)
        for made in reversed(self._made):
            sync_directory(self._above(made))

    def _above(self, made: tuple[str, ...]) -> Handle:
        if self._base is None:
            raise ValueError("this change is over")
        return Handle(self._opener(self._base.fd, made[:-1], DIRECTORY))

    def _remove_made_directories(self) -> None:
        while self._made:
            try:
                above = self._above(self._made[-1])
                os.rmdir(self._made[-1][-1], dir_fd=above.fd)
            except OSError:  # not empty: another file of the same patch is still there, or someone else uses it
                return
            self._made.pop()

    @contextlib.contextmanager
    def _cleaned_up_on_failure(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            self.discard()
            raise errors.from_os_error(error, self.target.virtual) from None
        except BaseException:
            self.discard()
            raise


class StagedDelete(_StagedChange):
    """A delete that can be taken back: the file waits under a second name beside its own."""

    temp = ""
    made = 0

    def __init__(self, target: Target) -> None:
        super().__init__(target, Verb.DELETE)
        self.second = self.kept = temp_name()

    def prepare(self) -> None:
        """Does nothing: the file stays until `commit`."""

    def keep(self) -> None:
        """Does nothing: `commit` keeps the file when it removes it."""

    def commit(self) -> None:
        target = self.target
        target.must_be_in_place()
        try:
            self._move(target.name, self.kept)
            self.applied = True
            now = os.stat(self.kept, dir_fd=self._directory.fd, follow_symlinks=False)
            if identity_of(now) != target.identity:  # put there between the look and the rename: not ours to take
                self.undo()
                raise errors.path_changed(target.virtual)
            sync_directory(self._directory)
        except OSError as error:
            raise errors.from_os_error(error, target.virtual) from None

    def undo(self) -> None:
        """The file under its name again, unless something else stands there by now."""
        name, fd = self.target.name, self._directory.fd
        try:
            try:
                os.link(self.kept, name, src_dir_fd=fd, dst_dir_fd=fd, follow_symlinks=False)
                os.unlink(self.kept, dir_fd=fd)
            except FileExistsError:
                raise errors.path_changed(self.target.virtual) from None
            except OSError:  # no second names here, or not for us
                if is_there(name, self._directory):
                    raise errors.path_changed(self.target.virtual) from None
                self._move(self.kept, name)
        except OSError as error:
            raise errors.from_os_error(error, self.target.virtual) from None
        self.applied = False
        with contextlib.suppress(OSError):  # it is back; making that last is all that failed
            sync_directory(self._directory)

    def discard(self) -> None:
        """Does nothing: nothing was prepared on disk."""

    def release(self) -> None:
        if self.applied:
            unlink_if_there(self.kept, self._directory)


_NEW_FILE: Final = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_PERMISSIONS: Final = 0o777
"""The bits of the old mode that new content keeps. Set-id bits are dropped: new content must not inherit them."""
_CAPABILITIES: Final = "security.capability"
"""Rights of root that a program has by its file. Dropped likewise, as the kernel does whenever a file is written."""


def temp_name() -> str:
    return f".forge-{os.urandom(8).hex()}.tmp"


def new_file(
    name: str,
    directory: Handle,
    chunks: Iterable[bytes],
    rights: os.stat_result | None,
    attributes: Handle | None,
    times: tuple[int, int] | None,
    executable: bool | None = None,
) -> Identity:
    """Content in a file nobody else can open yet; on disk, with its final mode, before it gets its name. The temporary
    name is the caller's, who may have to note it where a crash leaves it."""
    file = Handle(os.open(name, _NEW_FILE, 0o600, dir_fd=directory.fd))
    try:
        for chunk in chunks:
            rest = memoryview(chunk)
            while rest:
                rest = rest[os.write(file.fd, rest) :]
        _copy_permissions(file.fd, rights)
        _copy_xattrs(file.fd, attributes)
        if executable is not None:
            mode = os.fstat(file.fd).st_mode & _PERMISSIONS & ~0o111
            os.fchmod(file.fd, mode | ((mode & 0o444) >> 2 if executable else 0))
        if times:
            os.utime(file.fd, ns=times)
        os.fsync(file.fd)
        return file.identity()
    except BaseException:
        unlink_if_there(name, directory)
        raise
    finally:
        file.close()  # at once: on a full disk the space is given back only then


def link_second_name(name: str, target: Target, directory: Handle, old: Callable[[], Handle | None]) -> None:
    """A hard link, which keeps everything about the file; where the system allows none, a copy of `old`."""
    assert target.stat is not None
    try:
        os.link(target.name, name, src_dir_fd=directory.fd, dst_dir_fd=directory.fd, follow_symlinks=False)
    except OSError:
        content = None if target.unreadable else old()
        if content is None:
            raise errors.permission_denied(target.virtual) from None
        new_file(name, directory, read_chunks(content), target.stat, content, times_of(target.stat))
        return
    if identity_of(os.stat(name, dir_fd=directory.fd, follow_symlinks=False)) != target.identity:
        unlink_if_there(name, directory)
        raise errors.path_changed(target.virtual)


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


def _copy_permissions(fd: int, old: os.stat_result | None) -> None:
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


def _copy_xattrs(fd: int, old: Handle | None) -> None:
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
        if name == _CAPABILITIES:
            continue
        try:
            os.setxattr(fd, name, os.getxattr(old.fd, name))
        except OSError:
            if name == "system.posix_acl_access":
                os.fchmod(fd, os.fstat(fd).st_mode & 0o707)


def read_chunks(file: Handle) -> Iterator[bytes]:
    done = 0
    while chunk := os.pread(file.fd, _CHUNK, done):
        yield chunk
        done += len(chunk)


def sync_directory(directory: Handle) -> None:
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
