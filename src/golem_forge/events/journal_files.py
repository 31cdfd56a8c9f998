"""The files of a journal: where they are, the writer's lock, the hash chain, the anchor, and what can go wrong.

`FORGE_HOME/sessions/<session id>.jsonl`, mode 0600 in a directory of mode 0700, is locked with `flock` by its writer.
`JournalFile` holds whole lines only: after a failed write it is cut back to its last whole line. A file that was
deleted or replaced refuses to be written: a record in it survives nothing, and another session may use its name by now.

Each line ends with the SHA-256 of the previous hash and of its own body:

    {"n":7,"ts":"…","type":"note",…,"hash":"<64 hex>"}        hash = sha256(previous 64 hex digits + body)

The body is every byte before `,"hash":"`. A line that is changed, removed, inserted or moved breaks the chain at its
number. The chain has no key: someone who rewrites the whole file can rewrite every hash. So the number of lines and the
last hash are also kept in an anchor, `<session id>.head`, written on orderly close and on resume, never per record. It
shows lines missing at the end and a rewritten file. It guards against accidents and careless edits; whoever can replace
both files can replace both.
"""

from __future__ import annotations

import contextlib
import os
import stat
import time
from collections.abc import Iterable
from hashlib import sha256
from pathlib import Path
from time import monotonic
from typing import Final, NamedTuple, Protocol

from golem_forge.core.errors import ForgeError
from golem_forge.core.regex import regex
from golem_forge.events.serialization import decode_json
from golem_forge.storage.home import make_private_dir, try_lock, write_private

_SESSION_ID = regex(r"[A-Za-z0-9][A-Za-z0-9_-]{0,127}")
_OPEN_FLAGS: Final = os.O_RDWR | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC
_LOCK_TRIES: Final = 5
_LOCK_PAUSE_S: Final = 0.02


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


def create_locked(path: Path, session_id: str) -> int:
    """A descriptor of a new, empty, locked journal. Raises SessionInUse, SessionExists, OSError."""
    make_private_dir(path.parent)
    try:
        fd = os.open(path, _OPEN_FLAGS | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        raise (SessionInUse if is_locked(path) else SessionExists)(session_id) from None
    try:
        os.fchmod(fd, 0o600)
        if _lock(fd) and is_same_file(fd, path):
            return fd
        raise SessionInUse(session_id)  # another process opened it before it was locked
    except BaseException:
        os.close(fd)
        raise


def open_locked(path: Path, session_id: str) -> int:
    """A descriptor of an existing journal, locked. Raises SessionInUse, SessionNotFound, OSError."""
    try:
        fd = os.open(path, _OPEN_FLAGS)
    except FileNotFoundError:
        raise SessionNotFound(session_id) from None
    locked = _lock(fd)
    if locked and is_same_file(fd, path):
        return fd
    os.close(fd)
    raise (SessionNotFound if locked and not path.exists() else SessionInUse)(session_id)


def _lock(fd: int) -> bool:
    """Tries for a tenth of a second: `is_locked` of another process may hold the lock for an instant."""
    for _ in range(_LOCK_TRIES):
        if try_lock(fd):
            return True
        time.sleep(_LOCK_PAUSE_S)
    return False


def is_same_file(fd: int, path: Path) -> bool:
    """Whether the open file is still the one under this name: a lock on a file that was deleted keeps nobody out."""
    try:
        return os.path.samestat(os.fstat(fd), os.lstat(path))
    except FileNotFoundError:
        return False


def is_locked(path: Path) -> bool:
    """Whether some process writes this journal now."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        return not try_lock(fd, shared=True)
    except OSError:
        return True
    finally:
        os.close(fd)


_CHECK_INTERVAL_S: Final = 0.5
"""Minimum seconds between two checks of a write whether its file still exists."""


class JournalWriter(Protocol):
    """The destination of a session's sealed lines: a file, or the database of shared sessions (`team.journal`)."""

    refused: bool
    """Whether the last write failed."""
    commits_later: bool
    """Whether `write` returns before the lines are kept; `committed` waits for that."""

    def write(self, data: bytes) -> None:
        """Takes whole lines, in order. Raises JournalError."""

    async def committed(self) -> None:
        """Returns when all that was written is kept. Raises JournalError where that will never be."""

    def end(self, anchor: Anchor) -> None:
        """The last line is written: keeps the anchor and lets the session go."""

    def close(self) -> None:
        """Releases the session without an end record, as a crash would."""


class JournalFile:
    commits_later = False

    def __init__(self, path: Path, fd: int, *, size: int, sync: bool) -> None:
        """`sync`: what is written survives a power cut too."""
        self.fd = fd
        self.refused = False
        """Whether the last write failed."""
        self._path = path
        self._size = size
        self._sync = sync
        self._look_again = 0.0
        self._torn = False

    def write(self, data: bytes) -> None:
        now = monotonic()
        if now >= self._look_again:
            if not is_same_file(self.fd, self._path):
                self.refused = True
                raise JournalError(
                    "The journal's file was deleted or replaced, so nothing can be recorded. Start a new session."
                )
            self._look_again = now + _CHECK_INTERVAL_S
        if self._torn:
            self._cut_back()
        try:
            done = os.write(self.fd, data)
            while done < len(data):
                done += os.write(self.fd, data[done:])
            if self._sync:
                os.fdatasync(self.fd)
        except OSError as error:
            self._torn = self.refused = True
            self._cut_back()
            raise JournalError(
                f"The journal could not be written ({error.strerror}); the call was not run. Free disk space and retry."
            ) from error
        self.refused = False
        self._size += len(data)

    async def committed(self) -> None:
        return None

    def end(self, anchor: Anchor) -> None:
        try:
            write_anchor(self._path, anchor)
        finally:
            self.close()

    def close(self) -> None:
        os.close(self.fd)

    def _cut_back(self) -> None:
        """Removes what a failed write left behind: half a line would look like tampering once more follows it."""
        try:
            os.ftruncate(self.fd, self._size)
        except OSError as error:
            raise JournalError(f"The journal could not be repaired ({error.strerror}).") from error
        self._torn = False


CHAIN_START: Final = "0" * 64
"""The hash that the first line follows."""
_HASH_KEY: Final = b',"hash":"'
_HASH_LENGTH: Final = len(_HASH_KEY) + 64 + len(b'"}')


def seal_records(records: Iterable[str], lines: int, hash: str) -> tuple[bytes, int, str]:
    """Finished lines for records (JSON without braces), following line number `lines` with hash `hash`.

    Gives their bytes, and the number and hash of the last of them.
    """
    written = []
    for record in records:
        lines += 1
        body = f'{{"n":{lines},{record}'
        hash = sha256(f"{hash}{body}".encode()).hexdigest()
        written.append(f'{body},"hash":"{hash}"}}\n')
    return "".join(written).encode(), lines, hash


def unseal_line(line: bytes) -> tuple[bytes, str] | None:
    """(body, hash) of a line without its newline; None when it does not end in a hash."""
    body, tail = line[:-_HASH_LENGTH], line[-_HASH_LENGTH:]
    if len(tail) != _HASH_LENGTH or not tail.startswith(_HASH_KEY) or not tail.endswith(b'"}'):
        return None
    return body, tail[len(_HASH_KEY) : -2].decode("ascii", "replace")


def next_hash(previous: str, body: bytes) -> str:
    return sha256(previous.encode() + body).hexdigest()


class Anchor(NamedTuple):
    lines: int
    hash: str
    """The hash of line `lines`, as 64 hex digits."""


def anchor_path(journal: Path) -> Path:
    return journal.with_suffix(".head")


def write_anchor(journal: Path, anchor: Anchor) -> None:
    text = f'{{"lines":{anchor.lines},"hash":"{anchor.hash}"}}\n'
    write_private(anchor_path(journal), text.encode(), durable=False)


def read_anchor(journal: Path) -> Anchor | None:
    """Returns the anchor of a journal; None if it is missing or unreadable and so proves nothing."""
    try:
        kept = decode_json(anchor_path(journal).read_bytes())
        return Anchor(int(kept["lines"]), str(kept["hash"]))
    except (OSError, ValueError, KeyError, TypeError):
        return None


class JournalError(ForgeError):
    """A record could not be written. No record, no run: the call it belongs to must not start."""

    stated_name = "JournalError"

    def __init__(self, message: str) -> None:
        super().__init__(message, code="JOURNAL_UNAVAILABLE")


class SessionInUse(ForgeError):
    """Raised if another process holds this session."""

    def __init__(self, session_id: str) -> None:
        super().__init__(f"session is in use: {session_id}", code="SESSION_IN_USE")


class SessionExists(ForgeError):
    def __init__(self, session_id: str) -> None:
        super().__init__(f"session {session_id} exists already; resume it, or choose another id", code="SESSION_EXISTS")


class SessionNotFound(ForgeError):
    def __init__(self, session_id: str) -> None:
        super().__init__(f"no session {session_id!r}; `forge sessions list` shows them", code="SESSION_NOT_FOUND")


class SessionAmbiguous(ForgeError):
    def __init__(self, typed: str) -> None:
        super().__init__(
            f"several sessions start with {typed!r}; type more of the id (`forge sessions list` shows them)",
            code="SESSION_AMBIGUOUS",
        )


class JournalDamaged(ForgeError):
    """The file is not what was written. It can be read, not continued."""

    def __init__(self, session_id: str, line: int, what: str) -> None:
        super().__init__(
            f"session {session_id}: line {line} of its journal: {what}; "
            f"it can be shown and exported, but not resumed. Start a new session.",
            code="JOURNAL_DAMAGED",
        )
        self.line = line
