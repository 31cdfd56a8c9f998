"""Where a session's journal is, and the lock that says one process writes it.

`FORGE_HOME/sessions/<session id>.jsonl`, mode 0600 in a directory of mode 0700, locked with `flock` by its writer.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import stat
import time
from pathlib import Path

from golem_forge.events.journal_errors import SessionExists, SessionInUse, SessionNotFound

_SESSION_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,127}")
_LOCK_TRIES = 5
_LOCK_PAUSE_S = 0.02


def sessions_dir(home: Path) -> Path:
    return home / "sessions"


def journal_path(home: Path, session_id: str) -> Path:
    """ValueError for an id that could name anything but a file in that directory."""
    if not _SESSION_ID.fullmatch(session_id):
        raise ValueError(f"{session_id!r} is not a session id (letters, digits, '-' and '_')")
    return sessions_dir(home) / f"{session_id}.jsonl"


def list_journals(home: Path) -> list[Path]:
    """Every journal, newest change first. What is no file is none: a pipe of that name is never read to its end."""
    found = []
    for path in sessions_dir(home).glob("*.jsonl"):
        with contextlib.suppress(OSError):  # gone meanwhile, or a link that leads nowhere
            status = path.stat()
            if stat.S_ISREG(status.st_mode):
                found.append((status.st_mtime_ns, path))
    return [path for _, path in sorted(found, reverse=True)]


def make_private_dir(path: Path) -> None:
    path.mkdir(mode=0o700, parents=True, exist_ok=True)
    if stat.S_IMODE(path.stat().st_mode) != 0o700:
        path.chmod(0o700)


def create_locked(path: Path, session_id: str) -> int:
    """A descriptor of a new, empty, locked journal."""
    make_private_dir(path.parent)
    flags = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        fd = os.open(path, flags, 0o600)
    except FileExistsError:
        if is_held(path):
            raise SessionInUse(session_id) from None
        raise SessionExists(session_id) from None
    try:
        os.fchmod(fd, 0o600)
        _lock(fd)
        if is_named(fd, path):
            return fd
    except BlockingIOError:
        pass  # another process opened it at once, before it was locked
    except BaseException:
        os.close(fd)
        raise
    os.close(fd)
    raise SessionInUse(session_id)


def open_locked(path: Path, session_id: str) -> int:
    """A descriptor of an existing journal, locked; SessionInUse while another process has it."""
    try:
        fd = os.open(path, os.O_RDWR | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC)
    except FileNotFoundError:
        raise SessionNotFound(session_id) from None
    try:
        _lock(fd)
    except BlockingIOError:
        os.close(fd)
        raise SessionInUse(session_id) from None
    if is_named(fd, path):
        return fd
    os.close(fd)
    if path.exists():
        raise SessionInUse(session_id)
    raise SessionNotFound(session_id)


def _lock(fd: int) -> None:
    """BlockingIOError while another process has it."""
    for attempt in range(_LOCK_TRIES):
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except BlockingIOError:
            # `is_held` of another process may have touched the lock for an instant.
            if attempt + 1 == _LOCK_TRIES:
                raise
            time.sleep(_LOCK_PAUSE_S)


def is_named(fd: int, path: Path) -> bool:
    """Whether the open file is still the one under this name: a lock on a file that was deleted keeps nobody out."""
    try:
        return os.path.samestat(os.fstat(fd), os.lstat(path))
    except FileNotFoundError:
        return False


def is_held(path: Path) -> bool:
    """Whether some process writes this journal now."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:
        return True
    finally:
        os.close(fd)
    return False
