"""Bundle: gathers the files of one tool from an archive or a repository, and refuses as soon as it is too much.

Takes (name, executable, bytes) one by one and gives FolderFiles. Refuses (Unusable, SharingError) more than 200 files
or 50 MiB, absolute names, `..`, names that no file system shares with another, duplicates, names that differ only in
case, and a file that is also a folder. Threats: a name that leaves the folder, two names that become one on another
machine, an archive that unpacks into more than a disk holds.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable
from typing import Final

from golem_forge.custom.diagnostic import Code, Unusable
from golem_forge.custom.registry.folder import LIMITS, FolderFiles
from golem_forge.custom.sharing.refusal import SharingError, quoted
from golem_forge.sandbox.tree import shown_name

MAX_FILES: Final = LIMITS.files
MAX_BYTES: Final = LIMITS.total_bytes
_MAX_DEPTH: Final = LIMITS.depth + 1
"""An archive may have one folder around the tool's."""
_MAX_PART_BYTES: Final = 255


class Bundle:
    def __init__(self) -> None:
        self._files: dict[str, bytes] = {}
        self._executable: set[str] = set()
        self._room = MAX_BYTES

    @property
    def room(self) -> int:
        """How many bytes may still come: whoever unpacks reads no more than one byte beyond."""
        return self._room

    def expect(self, size: int) -> None:
        """Refuses a file by the size it claims, before it is read."""
        if len(self._files) >= MAX_FILES:
            raise too_large(f"more than {MAX_FILES} files")
        if size > self._room:
            raise too_large(f"more than {MAX_BYTES >> 20} MiB")

    def add(self, name: str, content: bytes, *, executable: bool) -> None:
        self.expect(len(content))
        if name in self._files:
            raise SharingError(f"{quoted(name)} is there twice; nothing was taken over.")
        self._files[name] = content
        self._room -= len(content)
        if executable:
            self._executable.add(name)

    def whole(self) -> FolderFiles:
        check_names(self._files)
        return FolderFiles(self._files, frozenset(self._executable))


def too_large(what: str) -> Unusable:
    return Unusable(Code.TOO_LARGE, f"{what}: a tool may have {MAX_FILES} files and {MAX_BYTES >> 20} MiB")


def plain_name(name: str) -> str:
    """`name` as a path below the folder, without the `./` some archivers put first. Refuses what leads out."""
    while name.startswith("./"):
        name = name[2:]
    parts = name.split("/")
    if name.startswith("/") or ".." in parts or (name[1:2] == ":" and name[:1].isalpha()):
        raise SharingError(f"{quoted(name)} leads out of the tool's folder; nothing was taken over.")
    if any(part in ("", ".") for part in parts) or "\\" in name or shown_name(name) != name:
        raise SharingError(f"{quoted(name)} is no usable file name; nothing was taken over.")
    if len(parts) > _MAX_DEPTH or any(len(part.encode()) > _MAX_PART_BYTES for part in parts):
        raise SharingError(f"{quoted(name)} is too long or too deep; nothing was taken over.")
    return name


def check_names(names: Iterable[str]) -> None:
    """Refuses names that cannot stand side by side on every file system."""
    seen: dict[str, str] = {}
    folders: dict[str, str] = {}
    for name in sorted(names):
        parts = plain_name(name).split("/")
        if other := seen.get(same := _same(name)):
            raise SharingError(f"{quoted(other)} and {quoted(name)} differ only in case; rename one of them.")
        seen[same] = name
        for end in range(1, len(parts)):
            folder = "/".join(parts[:end])
            if folders.setdefault(_same(folder), folder) != folder:
                raise SharingError(
                    f"The folder {quoted(folder)} is there twice, in different case; rename one of them."
                )
    if both := seen.keys() & folders.keys():
        raise SharingError(f"{quoted(seen[min(both)])} is both a file and a folder; nothing was taken over.")


def _same(name: str) -> str:
    return unicodedata.normalize("NFC", unicodedata.normalize("NFC", name).casefold())
