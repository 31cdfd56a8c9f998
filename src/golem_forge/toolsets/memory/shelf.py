"""Shelf: the memories of one scope, each a file `<id>.md` in a directory of FORGE_HOME, for its owner alone.

Takes checked ids only, so an id is never a path. A write is whole or not at all; two Forge processes that write at the
same time do so one after the other.
"""

from __future__ import annotations

import contextlib
import os
import re
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Final

from golem_forge.core.errors import ToolFailed
from golem_forge.sandbox.sandbox import Sandbox
from golem_forge.tools.context import ToolContext

LARGEST: Final = 64 * 1024
MOST: Final = 200
ID_PATTERN: Final = "[a-z0-9][a-z0-9_-]{0,63}"
_ID: Final = re.compile(ID_PATTERN)
_SUFFIX: Final = ".md"
_READ: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_NEW: Final = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_DIGEST_LENGTH: Final = 32


class Scope(StrEnum):
    PROJECT = "project"
    USER = "user"


@dataclass(frozen=True, slots=True)
class Entry:
    id: str
    size: int
    modified: float
    """Seconds since the epoch."""


class Shelf:
    def __init__(self, directory: Path, scope: Scope) -> None:
        self._directory = directory
        self.scope = scope

    def place(self, memory_id: str) -> str:
        """Where a memory lies, for the fingerprint only."""
        return str(self._directory / memory_id)

    def read(self, memory_id: str) -> bytes | None:
        if not _ID.fullmatch(memory_id):
            return None
        try:
            file = os.open(self._directory / f"{memory_id}{_SUFFIX}", _READ)
        except OSError:
            return None
        with open(file, "rb") as stream:
            if not stat.S_ISREG(os.fstat(stream.fileno()).st_mode):
                return None
            return stream.read(LARGEST + 1)

    def entries(self) -> list[Entry]:
        """By id."""
        found: list[Entry] = []
        with contextlib.suppress(FileNotFoundError), os.scandir(self._directory) as files:
            for file in files:
                name = file.name.removesuffix(_SUFFIX)
                if name != file.name and _ID.fullmatch(name) and file.is_file(follow_symlinks=False):
                    info = file.stat(follow_symlinks=False)
                    found.append(Entry(name, info.st_size, info.st_mtime))
        return sorted(found, key=lambda entry: entry.id)

    def must_have_room(self, memory_id: str) -> None:
        known = [entry.id for entry in self.entries()]
        if memory_id not in known and len(known) >= MOST:
            raise ToolFailed(f"Scope '{self.scope}' has {MOST} memories already; replace or extend one of them.")

    def write(self, memory_id: str, data: bytes, *, instead_of: bytes | None) -> None:
        """Raises ToolFailed unless what is there is still what it was when the change was planned."""
        if not _ID.fullmatch(memory_id):
            raise ValueError("not an id of a memory")
        try:
            self._make_directory()
            with self._alone():
                if self.read(memory_id) != instead_of:
                    raise ToolFailed(f"Memory '{memory_id}' changed while it was being used; nothing was saved.")
                self.must_have_room(memory_id)
                self._replace(self._directory / f"{memory_id}{_SUFFIX}", data)
        except OSError:
            raise ToolFailed(f"Memory '{memory_id}' could not be written; the old one is intact.") from None

    def _make_directory(self) -> None:
        for directory in (self._directory.parent.parent, self._directory.parent, self._directory):
            directory.mkdir(mode=0o700, exist_ok=True)

    @contextlib.contextmanager
    def _alone(self) -> Iterator[None]:
        from fcntl import LOCK_EX, flock

        lock = os.open(self._directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            flock(lock, LOCK_EX)
            yield
            os.fsync(lock)
        finally:
            os.close(lock)

    def _replace(self, path: Path, data: bytes) -> None:
        staged = path.with_name(f".forge-{os.urandom(8).hex()}.tmp")
        try:
            with open(os.open(staged, _NEW, 0o600), "wb") as stream:
                stream.write(data)
                stream.flush()
                os.fsync(stream.fileno())
            os.rename(staged, path)
        except BaseException:
            with contextlib.suppress(OSError):
                os.unlink(staged)
            raise


def open_shelf(scope: Scope, own: Sandbox | None, ctx: ToolContext) -> Shelf:
    """The shelf a call means. A project is the directory its relative paths start from."""
    if ctx.home is None:
        raise ToolFailed("There is no FORGE_HOME here, so nothing can be remembered.", code="NO_MEMORY")
    if scope is Scope.USER:
        return Shelf(ctx.home / "memory" / "user", scope)
    sandbox = own or ctx.sandbox
    zone = sandbox.zones[sandbox.default_zone] if sandbox and sandbox.default_zone else None
    if zone is None:
        raise ToolFailed("This worker has no zone and so no project to remember for; use scope 'user'.", code="NO_ZONE")
    from hashlib import sha256

    digest = sha256(os.fsencode(zone.host)).hexdigest()[:_DIGEST_LENGTH]
    return Shelf(ctx.home / "memory" / f"project-{digest}", scope)
