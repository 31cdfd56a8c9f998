"""A tool's folder written anew, every file of it.

Takes names that were checked. Raises OSError, also where something is there already; what was written so far stays
then, and is the caller's to remove. Threat: a process that may write there (an export goes into a zone) puts a link
where a folder was just made, and the rest of the files lands wherever it leads. So every folder is held open, and
nothing is ever named by more than its last part.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Collection, Mapping
from enum import Enum
from typing import Final

_DIRECTORY: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_NEW_FILE: Final = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_RUN: Final = 0o777
_READ: Final = 0o666


class ForWhom(Enum):
    """The bits that nobody gets; whoever is left, the umask decides."""

    OWNER = 0o077
    ANYBODY = 0


def write_folder(
    parent: int,
    folder: str,
    files: Mapping[str, bytes],
    executable: Collection[str],
    for_whom: ForWhom = ForWhom.OWNER,
) -> None:
    """On the disk when this returns. `parent`: a descriptor of the directory that the folder is made in; `files`:
    content by path inside of it."""
    with contextlib.ExitStack() as held:
        folders = {"": _made(held, parent, folder, for_whom)}
        for file, content in files.items():
            *above, name = file.split("/")
            inside = ""
            for part in above:
                outside, inside = inside, f"{inside}{part}/"
                if inside not in folders:
                    folders[inside] = _made(held, folders[outside], part, for_whom)
            mode = (_RUN if file in executable else _READ) & ~for_whom.value
            handle = os.open(name, _NEW_FILE, mode, dir_fd=folders[inside])
            with open(handle, "wb") as stream:
                stream.write(content)
                stream.flush()
                _settle(handle, mode, for_whom)
        for each in folders.values():
            _settle(each, _RUN & ~for_whom.value, for_whom)


def _made(held: contextlib.ExitStack, parent: int, name: str, for_whom: ForWhom) -> int:
    os.mkdir(name, _RUN & ~for_whom.value, dir_fd=parent)
    handle = os.open(name, _DIRECTORY, dir_fd=parent)
    held.callback(os.close, handle)
    return handle


def _settle(handle: int, mode: int, for_whom: ForWhom) -> None:
    if for_whom is ForWhom.OWNER:  # the umask may have left the owner less
        os.fchmod(handle, mode)
    os.fsync(handle)
