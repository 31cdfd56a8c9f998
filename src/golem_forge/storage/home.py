"""FORGE_HOME, where a person's own config, rules, grants and trust live, and the private files that Forge keeps there.

`FORGE_HOME` in the environment names it, else it is `~/.forge`. No zone and no child process reaches it. Directories
are made when first needed, for their owner alone (0700); files have mode 0600.

`read_private` and `read_json` read a whole file or raise; they never return a part of it. `write_private` and
`replacing` replace a file in one step, so a reader sees the old content or the new one, also after a crash. `locked`
holds the lock of a file and gives up after LOCK_SECONDS with LockTimeout. A file that is replaced is locked by a file
beside it, because a lock belongs to the file and not to its name. `JsonFile` combines all of these.

Threat: a link at the path that leads elsewhere, a pipe that is never written to, a file without end, and a process that
holds a lock for ever.

File stamps say whether a file is still the one that was read, without reading it again. A file that was changed a
moment ago may change again within one tick of the file system's clock and look the same, so the stamp of such a file is
not `settled` and must not be relied on.

`CredentialFolder` keeps secrets of the person in the system keyring where there is one, else in files of a folder here.
An index in the folder says which records there are, so nobody asks the keyring only to find out that there is nothing.
A record that cannot be read counts as missing. One that is too large raises ForgeError: it may hold secrets that are
still in use. Blocking; call it off the event loop. `keyring` is optional and loads on first use.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import os
import stat
import time
from collections.abc import Callable, Iterator, Mapping
from io import BufferedReader, BufferedWriter
from pathlib import Path
from typing import Any, Final, Generic, NamedTuple, TypeVar

from golem_forge.core.errors import ForgeError
from golem_forge.core.lazy_dataclass import dataclass

# --- stamps

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
    """Returns the stamp of a link's target."""
    return _stamp(os.stat, path)


def _stamp(look: Callable[[str | os.PathLike[str]], os.stat_result], path: str | os.PathLike[str]) -> FileStamp | None:
    try:
        return stamp_from_stat(look(path))
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError:
        return FileStamp(0, 0, time.time_ns(), 0, 0)


# --- constants, errors, directories

LOCK_SECONDS: Final = 2.0
_LOCK_POLL_SECONDS: Final = 0.005
_READ_BYTES: Final = 1 << 16
READ_FLAGS: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
CREATE_FLAGS: Final = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
DIRECTORY_FLAGS: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_LOCK_FLAGS: Final = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
JSON_FILE_ERRORS: Final = (OSError, ValueError, TypeError, KeyError, AttributeError, RecursionError)
"""Errors of reading a JSON file that is missing or was not written by Forge."""
_T = TypeVar("_T")


class LockTimeout(ForgeError, OSError):
    """Another process held a lock for LOCK_SECONDS. It is an OSError too: code that handles a file that cannot be
    written handles this. It is no TimeoutError: that would be taken for the end of a wait of the caller's own."""

    stated_name = "LockTimeout"

    def __init__(self, name: str) -> None:
        message = f"{name} is in use by another process; try again, or end the Forge process that keeps it locked"
        super().__init__(message, code="FILE_LOCKED")
        self.strerror = message


def make_private_dir(path: Path) -> None:
    """Creates a directory of mode 0700, with its parents; an existing one gets that mode."""
    path.mkdir(mode=0o700, parents=True, exist_ok=True)
    if stat.S_IMODE(path.stat().st_mode) != 0o700:
        path.chmod(0o700)


# --- read


def open_private(
    path: str | os.PathLike[str], limit: int, *, dir_fd: int | None = None, owned: bool = False
) -> BufferedReader:
    """Opens a regular file of at most `limit` bytes. `owned`: only one that no other user could have written.

    Raises OSError for anything else.
    """
    handle = os.open(path, READ_FLAGS, dir_fd=dir_fd)
    try:
        status = os.fstat(handle)
        if not stat.S_ISREG(status.st_mode):
            raise OSError(errno.EINVAL, "it is no file")
        if status.st_size > limit:
            raise _too_large()
        if owned and (status.st_uid != os.geteuid() or status.st_mode & 0o022):
            raise PermissionError(errno.EPERM, "another user may have written it")
    except BaseException:
        os.close(handle)
        raise
    return open(handle, "rb")


def read_private(path: str | os.PathLike[str], limit: int, *, dir_fd: int | None = None) -> bytes:
    """The whole content of a regular file of at most `limit` bytes. Raises OSError."""
    with open_private(path, limit, dir_fd=dir_fd) as file:
        return read_bounded(file, limit)


def read_json(path: str | os.PathLike[str], limit: int) -> Any:
    """Reads a private JSON file. Raises OSError, ValueError, RecursionError."""
    return json.loads(read_private(path, limit))


def read_bounded(file: BufferedReader, limit: int) -> bytes:
    """The rest of an open file. Takes no more memory than there is to read. Raises OSError beyond `limit` bytes."""
    content = file.read(min(os.fstat(file.fileno()).st_size, limit) + 1)
    while len(content) <= limit and (more := file.read(min(_READ_BYTES, limit + 1 - len(content)))):
        content += more  # it has grown since it was opened
    if len(content) > limit:
        raise _too_large()
    return content


def _too_large() -> OSError:
    return OSError(errno.EFBIG, "it is too large")


# --- write


def create_private(path: str | os.PathLike[str], *, dir_fd: int | None = None, mode: int = 0o600) -> BufferedWriter:
    """A new file. Raises FileExistsError if anything stands at `path`, a link too."""
    return open(os.open(path, CREATE_FLAGS, mode, dir_fd=dir_fd), "wb")


def touch_private(path: str | os.PathLike[str]) -> None:
    """Creates an empty file of mode 0600 unless there is one. Raises OSError for a link."""
    os.close(open_lock(path))


@contextlib.contextmanager
def replacing(path: Path, *, durable: bool = True, mode: int = 0o600) -> Iterator[BufferedWriter]:
    """A new file that becomes `path` when the block ends; on an exception it is removed instead.

    `durable`: its content is on the disk before it gets its name. `mode`: 0o666 for a file that is not Forge's own.
    """
    temporary = path.with_name(f".{path.name}-{os.urandom(8).hex()}.tmp")
    try:
        with create_private(temporary, mode=mode) as file:
            yield file
            file.flush()
            if durable:
                os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException:
        with contextlib.suppress(OSError):
            temporary.unlink()
        raise


def write_private(path: Path, content: bytes, *, durable: bool = True) -> None:
    """Replaces the file in one step. Raises OSError."""
    with replacing(path, durable=durable) as file:
        file.write(content)


# --- lock


def open_lock(path: str | os.PathLike[str]) -> int:
    """A descriptor of a lock file, which is created if it is missing. Each one excludes all others, in this process
    too."""
    return os.open(path, _LOCK_FLAGS, 0o600)


def try_lock(handle: int, *, shared: bool = False) -> bool:
    """Locks the open file without waiting; False while somebody else has it locked. Closing the file unlocks it.

    Raises OSError on a file system without locks.
    """
    try:
        fcntl.flock(handle, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def wait_for_lock(handle: int, name: str, seconds: float | None = None) -> None:
    """Locks the open file, which texts call `name`. Raises LockTimeout after `seconds`, or else LOCK_SECONDS."""
    end = time.monotonic() + (LOCK_SECONDS if seconds is None else seconds)
    while not try_lock(handle):
        if time.monotonic() > end:
            raise LockTimeout(name) from None
        time.sleep(_LOCK_POLL_SECONDS)


@contextlib.contextmanager
def locked(path: Path, name: str = "", *, seconds: float | None = None) -> Iterator[None]:
    """Holds the lock file `path`; `name` is what texts call it. Blocks the thread. `seconds`: of those who hold it for
    longer than a moment. Raises LockTimeout, OSError."""
    handle = open_lock(path)
    try:
        wait_for_lock(handle, name or path.name, seconds)
        yield
    finally:
        os.close(handle)


# --- JSON file


class JsonFile(Generic[_T]):
    """One JSON file: parsed once for each change, changed under the lock `lock`.

    `parse` takes the decoded JSON; `name` is what texts call the file.
    """

    def __init__(self, path: Path, parse: Callable[[Any], _T], *, limit: int, lock: Path, name: str = "") -> None:
        self.path = path
        self._parse = parse
        self._limit = limit
        self._lock = lock
        self._name = name or path.name
        self._place = os.fspath(path)
        self._parsed: tuple[FileStamp, _T] | None = None

    @property
    def stamp(self) -> FileStamp | None:
        """Changes whenever the file was written, by this process or another."""
        return file_stamp(self._place)

    def read(self) -> _T | None:
        """Returns the content; None if there is no file. Costs one `stat` while the file stays the same.

        Raises OSError, ValueError, RecursionError, and what `parse` raises.
        """
        if self._parsed is not None and self._parsed[0] == self.stamp:
            return self._parsed[1]
        self._parsed = None
        try:
            with open_private(self.path, self._limit) as file:
                stamp = stamp_from_stat(os.fstat(file.fileno()))
                value = self._parse(json.loads(read_bounded(file, self._limit)))
        except (FileNotFoundError, NotADirectoryError):
            return None
        if stamp.settled:
            self._parsed = stamp, value
        return value

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """Locks the file: what is read inside the block stays true until it ends. Raises LockTimeout, OSError."""
        with locked(self._lock, self._name):
            self._parsed = None
            yield

    def write(self, text: str) -> None:
        """Replaces the file; call it inside `locked`. Raises OSError, also for a text over the limit."""
        content = text.encode()
        if len(content) > self._limit:
            raise _too_large()
        write_private(self.path, content)


HOME_ADVICE: Final = "correct that, or set FORGE_HOME to another directory"
"""The end of every text about a home that cannot be used."""


@dataclass(frozen=True, slots=True)
class ForgeHome:
    path: Path

    @property
    def config(self) -> Path:
        return self.path / "config.yaml"

    @property
    def rules(self) -> Path:
        return self.path / "rules.yaml"

    @property
    def remembered(self) -> Path:
        return self.path / "remembered.yaml"

    @property
    def trust_dir(self) -> Path:
        return self.path / "trust"

    def ensure(self, *parts: str) -> Path:
        """The directory below the home, made 0700 with everything above it that is missing."""
        directory = self.path
        _make_private_dir(directory, parents=True)
        for part in parts:
            directory = directory / part
            _make_private_dir(directory, parents=False)
        return directory

    def shown(self, path: Path) -> str:
        """A file of the home as its owner knows it; texts of Forge carry no other host path."""
        relative = path.relative_to(self.path)
        try:
            return f"~/{(self.path / relative).relative_to(Path.home())}"
        except (ValueError, RuntimeError):
            return f"$FORGE_HOME/{relative}"


def _make_private_dir(directory: Path, *, parents: bool) -> None:
    try:
        directory.mkdir(mode=0o700, parents=parents, exist_ok=True)
    except FileExistsError:  # for whoever asks, that is not "it is there already"
        raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), os.fspath(directory)) from None


def forge_home(environ: Mapping[str, str] = os.environ) -> ForgeHome:
    named = environ.get("FORGE_HOME", "")
    return ForgeHome(Path(os.path.abspath(os.path.expanduser(named or "~/.forge"))))


CredentialRecord = dict[str, Any]
MAX_CREDENTIAL: Final = 1 << 20
"""Maximum bytes of one record, and of the index."""
_SERVICE: Final = "golem-forge"
_INDEX: Final = "index.json"
_LOCK: Final = "lock"


class CredentialFolder:
    """`again`: what the person does about a file that is too large."""

    def __init__(self, home: ForgeHome, *folder: str, again: str) -> None:
        self._home = home
        self._folder = folder
        self._again = again

    def index(self) -> CredentialRecord:
        """Entry → what the owner of the folder keeps about it. No secret."""
        return self._read(_INDEX) or {}

    def load(self, name: str) -> CredentialRecord | None:
        return _from_keyring(name) or self._read(name)

    def save(self, entry: str, about: Any, name: str, record: CredentialRecord) -> Any:
        """Stores the record under `name` and `about` in the index. Returns what the index had; None: nothing."""
        text = json.dumps(record)
        in_keyring = _to_keyring(name, text)  # without the lock: the keyring may ask its user first
        with self._locked():
            index = self.index()
            before = index.get(entry)
            if in_keyring:
                self._path(name).unlink(missing_ok=True)
            else:
                self._write(name, text)
            self._write(_INDEX, json.dumps({**index, entry: about}))
        return before

    def read_entry(self, entry: str) -> Any:
        """Waits for a save that is under way. None: there is no such entry."""
        with self._locked():
            return self.index().get(entry)

    def remove_entry(self, entry: str) -> None:
        with self._locked():
            index = self.index()
            index.pop(entry, None)
            self._write(_INDEX, json.dumps(index))

    def forget(self, name: str) -> None:
        """Takes the record out of the keyring and off the disk."""
        _keyring("delete_password", name)
        self._path(name).unlink(missing_ok=True)

    def has_file(self, name: str) -> bool:
        return self._path(name).is_file()

    @contextlib.contextmanager
    def _locked(self) -> Iterator[None]:
        """Two sessions may write at once; neither may lose the other's entry of the index."""
        lock = self._home.ensure(*self._folder) / _LOCK
        with locked(lock, self._home.shown(lock)):
            yield

    def _path(self, name: str) -> Path:
        return self._home.path.joinpath(*self._folder, name)

    def _read(self, name: str) -> CredentialRecord | None:
        path = self._path(name)
        try:
            return _mapping(read_json(path, MAX_CREDENTIAL))
        except JSON_FILE_ERRORS as error:
            if isinstance(error, OSError) and error.errno == errno.EFBIG:
                raise ForgeError(
                    f"{self._home.shown(path)} is larger than {MAX_CREDENTIAL} bytes; remove it and {self._again}",
                    code="LOGIN_UNREADABLE",
                ) from None
            return None

    def _write(self, name: str, text: str) -> None:
        self._home.ensure(*self._folder)
        write_private(self._path(name), text.encode())


def _mapping(value: Any) -> CredentialRecord | None:
    return value if isinstance(value, dict) else None


def _keyring(operation: str, *args: str) -> Any:
    """Calls the system keyring; None if the package is missing, has no real keyring behind it, or fails."""
    with contextlib.suppress(Exception):  # its back ends raise what they like
        import keyring  # type: ignore[import-not-found, unused-ignore]

        if keyring.get_keyring().priority >= 1:
            return getattr(keyring, operation)(_SERVICE, *args)
    return None


def _from_keyring(name: str) -> CredentialRecord | None:
    try:
        return _mapping(json.loads(_keyring("get_password", name)))
    except (TypeError, ValueError, RecursionError):
        return None


def _to_keyring(name: str, text: str) -> bool:
    """Stores a text in the keyring. Returns False if there is none, or it did not store it."""
    _keyring("set_password", name, text)
    return bool(_keyring("get_password", name) == text)
