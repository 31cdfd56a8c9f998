"""The content store: read-only snapshots below FORGE_HOME/store, each named by the digest of what is in it.

`put` takes name → bytes and gives a Snapshot; `check` holds one against its digest before it is used, `read` gives
back its bytes, `known` finds one by digest, `remove` forgets one. Refuses (StoreError) names that leave the snapshot
and a snapshot that was changed. What runs is what was judged: code is started from here and never from the folder
somebody may still be editing.

Threats: a half-written snapshot (it gets its name when it is complete), and one that was edited in place: it is hashed
once by each store object, afterwards its files and folders must keep their times, sizes and inodes.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import stat
import time
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from golem_forge.config.home import ForgeHome
from golem_forge.core.canonical import digest
from golem_forge.core.errors import ForgeError
from golem_forge.sandbox.tree import Limits, Mark, Tree, TreeError, mark_of, read_tree, unsettled

_FOLDER: Final = "store"
_UNFINISHED: Final = ".new-"
_DIGEST: Final = re.compile(r"sha256:([0-9a-f]{64})")
_LIMITS: Final = Limits(files=100_000, total_bytes=1 << 30)

Fact = tuple[str, bool, int, str]
"""(relative name, may be executed, size, SHA-256 in hex) of one file."""


class StoreError(ForgeError):
    """A snapshot that cannot be made or is not what its name says."""

    stated_name = "StoreError"

    def __init__(self, message: str) -> None:
        super().__init__(message, code="STORE")


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    digest: str
    path: Path


def content_digest(files: Mapping[str, bytes], executable: Collection[str] = ()) -> str:
    """`sha256:` over names, exec bits, sizes and bytes."""
    return facts_digest(content_facts(files, executable))


def content_facts(files: Mapping[str, bytes], executable: Collection[str] = ()) -> list[Fact]:
    return [
        (name, name in executable, len(files[name]), hashlib.sha256(files[name]).hexdigest()) for name in sorted(files)
    ]


def facts_digest(facts: Iterable[Fact]) -> str:
    """Of facts in the order of their names."""
    return f"sha256:{digest([list(fact) for fact in facts])}"


class ContentStore:
    def __init__(self, home: ForgeHome) -> None:
        self._home = home
        self._whole: dict[str, tuple[Snapshot, tuple[str, ...], list[Mark]]] = {}
        """Digest → a snapshot that was hashed, its paths, and their marks at that time."""

    def put(self, files: Mapping[str, bytes], *, executable: Collection[str] = ()) -> Snapshot:
        """The snapshot of exactly these files; one that is there already and still whole is used again."""
        for name in files:
            _check_name(name)
        snapshot = self._place(content_digest(files, executable))
        if self._is_whole(snapshot):
            return snapshot
        made = self._unfinished()
        made.mkdir(mode=0o700)
        try:
            _fill(made, files, executable)
            self._name(made, snapshot)
        finally:
            _remove(made)
        return snapshot

    def known(self, digest: str) -> Snapshot | None:
        """The snapshot with that digest, if there is one; whether it is whole, `check` and `read` say."""
        if not _DIGEST.fullmatch(digest):
            return None
        snapshot = self._place(digest)
        return snapshot if snapshot.path.is_dir() and not snapshot.path.is_symlink() else None

    def still_whole(self, digest: str) -> Snapshot | None:
        """The snapshot that this object hashed before, if it bears the marks it had then: as good as `known` and
        `check`, and a few stats. None: it must be looked at."""
        hashed = self._whole.get(digest)
        return hashed[0] if hashed is not None and _marks(hashed[1]) == hashed[2] else None

    def names(self) -> frozenset[str]:
        """The digests, without `sha256:`, of all snapshots there are."""
        return frozenset(name for name in os.listdir(self._folder()) if not name.startswith("."))

    def check(self, snapshot: Snapshot) -> None:
        """Raises StoreError unless the files on disk are the ones the digest was made of."""
        if not self._is_whole(snapshot):
            raise _not_whole()

    def read(self, snapshot: Snapshot) -> tuple[dict[str, bytes], frozenset[str]]:
        """The files, and which of them may be executed: exactly those the digest was made of."""
        tree = _tree(snapshot)
        if tree is None or content_digest(tree.files, tree.executable) != snapshot.digest:
            raise _not_whole()
        return tree.files, frozenset(tree.executable)

    def remove(self, digest: str) -> bool:
        """Forgets one snapshot for good; False if there was none."""
        snapshot = self.known(digest)
        if snapshot is None:
            return False
        self._whole.pop(digest, None)
        self._set_aside(snapshot)
        return True

    def _is_whole(self, snapshot: Snapshot) -> bool:
        if self.still_whole(snapshot.digest) is not None:
            return True
        self._whole.pop(snapshot.digest, None)
        now = time.time_ns()
        tree = _tree(snapshot)
        if tree is None or content_digest(tree.files, tree.executable) != snapshot.digest:
            return False
        if not unsettled(tree.marks.values(), since=now):
            top = os.fspath(snapshot.path)
            self._whole[snapshot.digest] = (
                snapshot,
                tuple(os.path.join(top, name) if name else top for name in tree.marks),
                list(tree.marks.values()),
            )
        return True

    def _name(self, made: Path, snapshot: Snapshot) -> None:
        try:
            os.rename(made, snapshot.path)
        except OSError:  # somebody was faster, or what is there is not whole
            if self._is_whole(snapshot):
                return
            self._set_aside(snapshot)
            os.rename(made, snapshot.path)

    def _set_aside(self, snapshot: Snapshot) -> None:
        """Takes the name from it first: whoever looks meanwhile finds the whole of it or nothing."""
        aside = self._unfinished()
        with contextlib.suppress(FileNotFoundError):
            os.rename(snapshot.path, aside)
            _remove(aside)

    def _unfinished(self) -> Path:
        return self._folder() / f"{_UNFINISHED}{os.urandom(8).hex()}"

    def _place(self, digest: str) -> Snapshot:
        return Snapshot(digest=digest, path=self._folder() / digest.removeprefix("sha256:"))

    def _folder(self) -> Path:
        return self._home.ensure(_FOLDER)


def _not_whole() -> StoreError:
    return StoreError("A snapshot in the content store was changed or is incomplete; it was not used.")


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


def _tree(snapshot: Snapshot) -> Tree | None:
    try:
        return read_tree(snapshot.path, _LIMITS)
    except TreeError:
        return None


def _marks(paths: Iterable[str]) -> list[Mark]:
    try:
        return list(map(mark_of, map(os.lstat, paths)))
    except OSError:
        return []


def _remove(folder: Path) -> None:
    """Its own directories are read-only, which would keep their entries from being removed."""
    import shutil

    with contextlib.suppress(OSError):
        if not stat.S_ISDIR(os.lstat(folder).st_mode):
            os.unlink(folder)
            return
        for place, directories, _ in os.walk(folder):
            os.chmod(place, 0o700)
            for name in directories:
                if not os.path.islink(path := os.path.join(place, name)):
                    os.chmod(path, 0o700)
        shutil.rmtree(folder)
