"""Origins: a source opened for reading. Whatever it is, it gives the files below one of its folders, or a single file.

Takes a Source; gives an Origin for as long as the context lasts. Refuses links on the way to a folder, and what is
neither a folder nor an archive. Nothing is written but a private folder that git fetches into.
"""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Protocol

from golem_forge.config.home import ForgeHome
from golem_forge.custom.diagnostic import Code, Unusable
from golem_forge.custom.registry.folder import FolderFiles, read_folder
from golem_forge.custom.sharing import git
from golem_forge.custom.sharing.archive import SUFFIXES, read_archive
from golem_forge.custom.sharing.bundle import check_names
from golem_forge.custom.sharing.refusal import SharingError, quoted
from golem_forge.custom.sharing.sources import HTTPS, GitSource, Source


class Origin(Protocol):
    def files(self, below: str) -> FolderFiles:
        """All files below a folder (empty: the top), named from there."""
        ...

    def one(self, name: str, limit: int) -> bytes | None:
        """A single file of at most `limit` bytes; None if there is none."""
        ...


class FolderOrigin:
    def __init__(self, path: Path) -> None:
        self._path = path

    def files(self, below: str) -> FolderFiles:
        found = read_folder(self._inside(below))
        check_names(found.files)
        return found

    def one(self, name: str, limit: int) -> bytes | None:
        try:
            handle = os.open(self._path / name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        except FileNotFoundError:
            return None
        except OSError:
            raise Unusable(Code.SYMLINK, f"{quoted(name)} cannot be read as a regular file") from None
        with open(handle, "rb") as file:
            if not stat.S_ISREG(os.fstat(handle).st_mode):
                raise Unusable(Code.SYMLINK, f"{quoted(name)} is not a regular file")
            content = file.read(limit + 1)
        if len(content) > limit:
            raise SharingError(f"{quoted(name)} is larger than {limit >> 10} KiB.")
        return content

    def _inside(self, below: str) -> Path:
        path = self._path
        for part in below.split("/") if below else ():
            path = path / part
            if not path.is_dir() or path.is_symlink():
                raise SharingError(f"There is no folder {quoted(below)} in it.")
        return path


class UnpackedOrigin:
    """An archive, whole in memory; the single top folder that most archives have is left away."""

    def __init__(self, files: FolderFiles) -> None:
        tops = {name.partition("/")[0] for name in files.files}
        single = len(tops) == 1 and all("/" in name for name in files.files)
        self._files = below_of(files, tops.pop()) if single else files

    def files(self, below: str) -> FolderFiles:
        found = below_of(self._files, below) if below else self._files
        if not found.files:
            raise SharingError(f"There is no folder {quoted(below)} in it." if below else "The archive is empty.")
        return found

    def one(self, name: str, limit: int) -> bytes | None:
        content = self._files.files.get(name)
        if content is not None and len(content) > limit:
            raise SharingError(f"{quoted(name)} is larger than {limit >> 10} KiB.")
        return content


def below_of(files: FolderFiles, folder: str) -> FolderFiles:
    """The files below one folder, named from there."""
    start = f"{folder}/"
    inside = {name.removeprefix(start): content for name, content in files.files.items() if name.startswith(start)}
    marked = frozenset(name.removeprefix(start) for name in files.executable if name.startswith(start))
    return FolderFiles(inside, marked)


@contextlib.contextmanager
def opened(
    source: Source, *, home: ForgeHome, environ: Mapping[str, str] = os.environ, transports: frozenset[str] = HTTPS
) -> Iterator[Origin]:
    if isinstance(source, GitSource):
        with git.fetched(source, home=home, environ=environ, transports=transports) as commit:
            yield commit
        return
    path = Path(os.path.realpath(source.path))
    if path.is_dir():
        yield FolderOrigin(path)
    elif path.name.lower().endswith(SUFFIXES):
        yield UnpackedOrigin(read_archive(path))
    else:
        found = "is neither a folder nor a .tar.gz or .zip" if path.exists() else "does not exist"
        raise SharingError(f"{quoted(source.path.name)} {found}.")
