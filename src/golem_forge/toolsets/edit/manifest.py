"""Manifest: what a running patch is about to do, on disk until it is done, so that a crash can be taken back.

`write` before the first file is made, `done` after the last rename, `remove` at the end. Lives in FORGE_HOME/patches,
private to its owner, and is locked while its process lives: a session that starts meanwhile leaves it alone.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final, Self

_FOLDER: Final = "patches"
_VERSION: Final = 1
_PLAIN_ID: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,99}")
_DONE: Final = b"\ndone\n"


@dataclass(frozen=True, slots=True, kw_only=True)
class FileRecord:
    """One file of a patch: enough to tell its old from its new content, and to find both."""

    path: str
    real: str
    existed: bool
    before: str
    """SHA-256; empty: no file, or too large to be read."""
    after: str
    """SHA-256; empty: the file goes away."""
    kept: str
    """The old file's second name, in the same directory; it may not have come to it."""
    temp: str
    """Name under which the new content waits, if it came to it."""
    made: int
    """How many of the directories above the file did not exist before."""


class Manifest:
    def __init__(self, file: Path, fd: int) -> None:
        self._file = file
        self._fd = fd

    @classmethod
    def write(cls, home: Path, call_id: str, records: Sequence[FileRecord]) -> Self:
        folder = home / _FOLDER
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        name = _file_name(call_id)
        flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        file = folder / f"{name}.json"
        try:
            fd = os.open(file, flags, 0o600)
        except FileExistsError:  # the same call, tried again after a crash that nobody has looked at yet
            file = folder / f"{name}.{os.urandom(4).hex()}.json"
            fd = os.open(file, flags, 0o600)
        manifest = cls(file, fd)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            content = {"version": _VERSION, "files": [asdict(record) for record in records]}
            manifest._append(json.dumps(content).encode())
            _sync_folder(folder)
        except BaseException:
            manifest.remove()
            raise
        return manifest

    def done(self) -> None:
        """Everything is in place: after a crash from here on only kept copies are cleared away."""
        with contextlib.suppress(OSError):
            self._append(_DONE)

    def remove(self) -> None:
        with contextlib.suppress(OSError):
            self._file.unlink()
        self.close()

    def close(self) -> None:
        """Leave it for a later session."""
        fd, self._fd = self._fd, -1
        if fd >= 0:
            os.close(fd)

    def _append(self, data: bytes) -> None:
        while data:
            data = data[os.write(self._fd, data) :]
        os.fsync(self._fd)


@dataclass(frozen=True, slots=True, kw_only=True)
class LeftBehind:
    """A manifest whose process is gone."""

    manifest: Manifest
    files: tuple[FileRecord, ...]
    done: bool


def left_behind(home: Path) -> Iterator[LeftBehind]:
    """Each is locked while the caller looks at it. One that was not even written whole changed nothing: it goes."""
    for file in sorted((home / _FOLDER).glob("*.json")):
        try:
            fd = os.open(file, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
        except OSError:
            continue
        manifest = Manifest(file, fd)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            data = os.pread(fd, os.fstat(fd).st_size, 0)
        except OSError:  # its process lives
            manifest.close()
            continue
        records = _records(data.removesuffix(_DONE))
        if records is None:
            manifest.remove()
            continue
        try:
            yield LeftBehind(manifest=manifest, files=records, done=data.endswith(_DONE))
        finally:
            manifest.close()


def _records(data: bytes) -> tuple[FileRecord, ...] | None:
    try:
        content: Any = json.loads(data)
        if content["version"] != _VERSION:
            return None
        return tuple(FileRecord(**record) for record in content["files"])
    except (ValueError, TypeError, KeyError):
        return None


def _file_name(call_id: str) -> str:
    """Ids come from models and programs: one that is no plain name is hashed."""
    if _PLAIN_ID.fullmatch(call_id):
        return call_id
    return hashlib.sha256(call_id.encode("utf-8", "replace") or os.urandom(16)).hexdigest()[:32]


def _sync_folder(folder: Path) -> None:
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        with contextlib.suppress(OSError):
            os.fsync(fd)
    finally:
        os.close(fd)
