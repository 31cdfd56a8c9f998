"""The content store: read-only snapshots below FORGE_HOME/store, each named by the digest of what is in it.

`put` takes name → bytes and gives a Snapshot; `check` holds one against its digest before it is used. Refuses
(StoreError) names that leave the snapshot and a snapshot that was changed. What runs is what was judged: code is
started from here and never from the folder somebody may still be editing.

Threats: a half-written snapshot (it gets its name when it is complete), and one that was edited in place.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
import stat
import tempfile
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from golem_forge.config.home import ForgeHome
from golem_forge.core.canonical import digest
from golem_forge.core.errors import ForgeError

_FOLDER: Final = "store"
_UNFINISHED: Final = ".new-"


class StoreError(ForgeError):
    """A snapshot that cannot be made or is not what its name says."""

    def __init__(self, message: str) -> None:
        super().__init__(message, code="STORE")


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    digest: str
    path: Path


def content_digest(files: Mapping[str, bytes], executable: Collection[str] = ()) -> str:
    """Over names and bytes, and which files may be executed."""
    found = [[name, hashlib.sha256(files[name]).hexdigest(), name in executable] for name in sorted(files)]
    return digest({"v": 1, "files": found})


class ContentStore:
    def __init__(self, home: ForgeHome) -> None:
        self._home = home

    def put(self, files: Mapping[str, bytes], *, executable: Collection[str] = ()) -> Snapshot:
        """The snapshot of exactly these files; one that is there already and still whole is used again."""
        for name in files:
            _check_name(name)
        snapshot = Snapshot(digest=(name := content_digest(files, executable)), path=self._folder() / name)
        if _found(snapshot.path) == name:
            return snapshot
        made = Path(tempfile.mkdtemp(prefix=_UNFINISHED, dir=self._folder()))
        try:
            _fill(made, files, executable)
            self._name(made, snapshot)
        finally:
            _remove(made)
        return snapshot

    def check(self, snapshot: Snapshot) -> None:
        """Raises StoreError unless the files on disk are the ones the digest was made of."""
        if _found(snapshot.path) != snapshot.digest:
            raise StoreError("A snapshot in the content store was changed or is incomplete; it was not used.")

    def _name(self, made: Path, snapshot: Snapshot) -> None:
        try:
            os.rename(made, snapshot.path)
        except OSError:  # somebody was faster, or what is there is not whole
            if _found(snapshot.path) == snapshot.digest:
                return
            aside = Path(tempfile.mkdtemp(prefix=_UNFINISHED, dir=self._folder()))
            with contextlib.suppress(FileNotFoundError):
                os.rename(snapshot.path, aside / "changed")
            _remove(aside)
            os.rename(made, snapshot.path)

    def _folder(self) -> Path:
        return self._home.ensure(_FOLDER)


def _check_name(name: str) -> None:
    parts = name.split("/")
    if not name or "\0" in name or any(part in ("", ".", "..") for part in parts):
        raise StoreError(f"{name!r} is no name of a file in a snapshot.")


def _fill(folder: Path, files: Mapping[str, bytes], executable: Collection[str]) -> None:
    for name, content in files.items():
        path = folder / name
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        with open(handle, "wb") as file:
            file.write(content)
            os.fchmod(handle, 0o500 if name in executable else 0o400)
    for place, _, _ in os.walk(folder, topdown=False):
        os.chmod(place, 0o500)


def _found(folder: Path) -> str:
    """The digest of what is on disk; empty if it is no snapshot at all."""
    files: dict[str, bytes] = {}
    executable: set[str] = set()
    try:
        for path, name in _names(folder):
            handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
            with open(handle, "rb") as file:
                mode = os.fstat(handle).st_mode
                if not stat.S_ISREG(mode):
                    return ""
                files[name] = file.read()
            if mode & stat.S_IXUSR:
                executable.add(name)
    except OSError:
        return ""
    return content_digest(files, executable)


def _names(folder: Path) -> Iterator[tuple[str, str]]:
    if not stat.S_ISDIR(os.lstat(folder).st_mode):
        raise NotADirectoryError
    start = os.fspath(folder)
    for place, directories, names in os.walk(folder):
        # A link to a directory is listed among the directories and cannot be opened as the file it is not.
        links = [name for name in directories if os.path.islink(os.path.join(place, name))]
        for name in (*names, *links):
            path = os.path.join(place, name)
            yield path, os.path.relpath(path, start)


def _remove(folder: Path) -> None:
    """Its own directories are read-only, which would keep their entries from being removed."""
    with contextlib.suppress(OSError):
        for place, directories, _ in os.walk(folder):
            os.chmod(place, 0o700)
            for name in directories:
                if not os.path.islink(path := os.path.join(place, name)):
                    os.chmod(path, 0o700)
        shutil.rmtree(folder)
