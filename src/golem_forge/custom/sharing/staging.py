"""Staging: a tool's files become the folder `tools/<name>` all at once, or not at all.

Takes checked files; writes them into a private folder below FORGE_HOME that is not `tools`, so that no refresh ever
sees a part, reads them back, and renames. `place` never replaces anything; `exchange` swaps the folder that is there
for the new one in one step and gives back what was there. Refuses (SharingError) a name that is taken, also in other
case. Threats: a crash in the middle, a folder that changes while a person reads its diff.
"""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from golem_forge.config.home import ForgeHome
from golem_forge.custom.folder_writing import write_folder
from golem_forge.custom.registry.folder import FolderFiles, read_folder
from golem_forge.custom.sharing.refusal import SharingError

TOOLS: Final = "tools"
_STAGING: Final = ".staging-"
_FORGOTTEN_S: Final = 24 * 3600
_AT_FDCWD: Final = -100
_RENAME_EXCHANGE: Final = 2


@contextlib.contextmanager
def private_folder(home: ForgeHome) -> Iterator[Path]:
    """A folder of the person's own below FORGE_HOME, gone afterwards."""
    _sweep(home.ensure())
    folder = Path(tempfile.mkdtemp(prefix=_STAGING, dir=home.path))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _sweep(place: Path) -> None:
    """What an import that was killed left behind."""
    import time

    for folder in place.glob(f"{_STAGING}*"):
        with contextlib.suppress(OSError):
            if time.time() - folder.lstat().st_mtime > _FORGOTTEN_S:
                shutil.rmtree(folder)


@contextlib.contextmanager
def staged(home: ForgeHome, name: str, files: FolderFiles) -> Iterator[Path]:
    """The complete folder, on disk and read back, ready to be renamed."""
    with private_folder(home) as room:
        folder = room / name
        with _opened(room) as parent:
            write_folder(parent, name, files.files, files.executable)
        if read_folder(folder).digest != files.digest:
            raise SharingError("The files could not be written as they are; nothing was taken over.")
        yield folder


@contextlib.contextmanager
def _opened(room: Path) -> Iterator[int]:
    handle = os.open(room, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield handle
    finally:
        os.close(handle)


def place(home: ForgeHome, name: str, folder: Path) -> None:
    """Renames a staged folder to `tools/<name>`."""
    check_free(home, name)
    try:
        os.rename(folder, home.ensure(TOOLS) / name)
    except OSError as error:
        if error.errno in (errno.EEXIST, errno.ENOTEMPTY, errno.ENOTDIR):
            raise _taken(home, name) from None
        raise


def exchange(home: ForgeHome, name: str, folder: Path) -> None:
    """`tools/<name>` becomes the staged folder, and the staged folder what was there; no moment without either."""
    _swap(folder, home.path / TOOLS / name)


def check_free(home: ForgeHome, name: str) -> None:
    for present in os.listdir(home.ensure(TOOLS)):
        if present.casefold() == name.casefold():
            raise _taken(home, present)


def _taken(home: ForgeHome, name: str) -> SharingError:
    folder = home.shown(home.path / TOOLS / name)
    return SharingError(f"tool '{name}' already exists at {folder}; import it under another name with --as NAME")


def _swap(one: Path, other: Path) -> None:
    import ctypes

    libc = ctypes.CDLL(None, use_errno=True)
    first, second = os.fsencode(one), os.fsencode(other)
    if not hasattr(libc, "renameat2"):
        _swap_in_steps(one, other)
    elif libc.renameat2(_AT_FDCWD, first, _AT_FDCWD, second, _RENAME_EXCHANGE) != 0:
        number = ctypes.get_errno()
        if number not in (errno.EINVAL, errno.ENOSYS):
            raise OSError(number, os.strerror(number))
        _swap_in_steps(one, other)


def _swap_in_steps(one: Path, other: Path) -> None:
    """For a file system that cannot exchange two names."""
    aside = one.with_name(f"{one.name}.aside")
    os.rename(other, aside)
    try:
        os.rename(one, other)
    except BaseException:
        os.rename(aside, other)
        raise
    os.rename(aside, one)
