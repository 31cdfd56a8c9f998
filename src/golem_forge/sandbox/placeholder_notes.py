"""Notes of placeholders: the empty directories that Forge itself makes in a person's zones, for walls to stand on.

`PlaceholderNotes` keeps them in FORGE_HOME/placeholders, one file per zone directory, written before a directory is
made, so that a Forge that is killed leaves word of what it leaves. Write while the zone's lock is shared, remove while
it is had alone. Threat: taking away, or not showing, what a person made since; so a directory is ours only as long as
its number and the time of its last change are the noted ones, and only empty ones can be removed at all. A home that
cannot be written costs the note, never the walls.
"""

from __future__ import annotations

import contextlib
import json
import os
import stat
import time
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from golem_forge.sandbox.access import DIRECTORY, best_opener

GIT: Final = ".git"
HOOKS: Final = "hooks"
HEAD: Final = "HEAD"
NAMES: Final = frozenset({GIT, HOOKS, HEAD})
"""What placeholders are called, but for those at paths that git's settings name."""
_FOLDER: Final = "placeholders"
_APPEND: Final = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
_NEW_FILE: Final = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_LOOK: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_LARGEST: Final = 1 << 16
_NOT_MADE_YET: Final = 0
_BEFORE_NS: Final = 50_000_000
"""So far the clock of files may be behind the one that is read."""
_AFTER_NS: Final = 1_000_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Note:
    zone: str
    """Its host directory."""
    parts: tuple[str, ...]
    inode: int = _NOT_MADE_YET
    """Without one it says what was about to be made, and when."""
    changed: int
    """Nanoseconds since the epoch."""
    file: bool = False
    """An empty file, where git would stumble over a directory."""

    def is_about(self, info: os.stat_result) -> bool:
        if not (stat.S_ISREG(info.st_mode) and info.st_size == 0 if self.file else stat.S_ISDIR(info.st_mode)):
            return False
        if self.inode == _NOT_MADE_YET:
            return -_BEFORE_NS <= info.st_ctime_ns - self.changed <= _AFTER_NS
        return (info.st_ino, info.st_ctime_ns) == (self.inode, self.changed)


class PlaceholderNotes:
    def __init__(self, forge_home: Path) -> None:
        self._folder = os.path.join(forge_home, _FOLDER)
        self._names: dict[str, str] = {}

    def make(self, zone: str, parts: tuple[str, ...], parent: int, *, file: bool = False) -> None:
        """Make the directory (or empty file) `parts[-1]` in `parent` unless something stands there. Raises OSError for
        its sake, not for the note's."""
        name = parts[-1]
        with contextlib.suppress(FileNotFoundError):
            os.stat(name, dir_fd=parent, follow_symlinks=False)
            return
        with self._opened(zone) as note:
            _write(note, Note(zone=zone, parts=parts, changed=time.time_ns(), file=file))
            if file:
                os.close(os.open(name, _NEW_FILE, 0o644, dir_fd=parent))
            else:
                os.mkdir(name, 0o755, dir_fd=parent)
            info = os.stat(name, dir_fd=parent, follow_symlinks=False)
            _write(note, Note(zone=zone, parts=parts, inode=info.st_ino, changed=info.st_ctime_ns, file=file))

    def include(self, info: os.stat_result) -> bool:
        """Whether this directory is a placeholder that nobody touched since, of whichever Forge with this home."""
        return any(note.inode == info.st_ino and note.is_about(info) for file in self._files() for note in _read(file))

    def know(self, zone: str) -> bool:
        return os.path.exists(self._file(zone))

    def zones(self) -> Iterator[str]:
        """Host directories of zones with notes."""
        for file in self._files():
            yield from {note.zone for note in _read(file)}

    def remove(self, zone: str, root: int, removed: Collection[tuple[str, ...]] = ()) -> None:
        """Remove the noted directories of a zone that are still ours, and the note. `root`: the zone's directory;
        `removed`: places where nothing is left to do."""
        file = self._file(zone)
        for note in _latest(_read(file)):
            if note.parts in removed:
                continue
            with contextlib.suppress(OSError):
                parent = best_opener()(root, note.parts[:-1], DIRECTORY)
                try:
                    if note.is_about(os.stat(note.parts[-1], dir_fd=parent, follow_symlinks=False)):
                        (os.unlink if note.file else os.rmdir)(note.parts[-1], dir_fd=parent)
                finally:
                    os.close(parent)
        _unlink(file)

    def forget(self, zone: str) -> None:
        """Its directory is gone, and what was in it."""
        _unlink(self._file(zone))

    @contextlib.contextmanager
    def _opened(self, zone: str) -> Iterator[int | None]:
        path = self._file(zone)
        try:
            try:
                file = os.open(path, _APPEND, 0o600)
            except FileNotFoundError:
                os.makedirs(os.path.dirname(self._folder), mode=0o700, exist_ok=True)
                os.makedirs(self._folder, mode=0o700, exist_ok=True)
                file = os.open(path, _APPEND, 0o600)
        except OSError:
            yield None
            return
        try:
            yield file
        finally:
            os.close(file)

    def _file(self, zone: str) -> str:
        name = self._names.get(zone)
        if name is None:
            from hashlib import sha256  # slow to load, and few processes come here

            name = self._names[zone] = os.path.join(self._folder, sha256(os.fsencode(zone)).hexdigest()[:32])
        return name

    def _files(self) -> list[str]:
        try:
            return [os.path.join(self._folder, name) for name in os.listdir(self._folder)]
        except OSError:
            return []


def _write(file: int | None, note: Note) -> None:
    """One write per line: several Forges may have the same file open."""
    if file is not None:
        said = {"zone": note.zone, "parts": note.parts, "inode": note.inode, "changed": note.changed, "file": note.file}
        with contextlib.suppress(OSError):
            os.write(file, json.dumps(said).encode() + b"\n")


def _read(file: str) -> list[Note]:
    try:
        descriptor = os.open(file, _LOOK)
        try:
            lines = os.read(descriptor, _LARGEST).splitlines()
        finally:
            os.close(descriptor)
    except OSError:
        return []
    found = []
    for line in lines:
        with contextlib.suppress(ValueError, KeyError, TypeError):
            said = json.loads(line)
            parts = tuple(map(str, said["parts"]))
            is_file = said.get("file") is True
            if parts:
                inode, changed = int(said["inode"]), int(said["changed"])
                found.append(Note(zone=str(said["zone"]), parts=parts, inode=inode, changed=changed, file=is_file))
    return found


def _latest(notes: Iterable[Note]) -> list[Note]:
    """Of each place, the deepest first: what was made there counts instead of what was about to be."""
    known = {note.parts: note for note in notes}
    return sorted(known.values(), key=lambda note: len(note.parts), reverse=True)


def _unlink(file: str) -> None:
    with contextlib.suppress(OSError):
        os.unlink(file)
