"""A HOME that stays between runs: a directory of the person's cache that belongs to one server and nobody else.

Takes a base and the names below it; gives a real host path, made 0700 where it was missing, with git's word on who the
person is in it. Refuses (WALLS_UNAVAILABLE) what is not a directory of this user's own. Threat: who ran in there left
what it liked, links above all; so no link is followed here, and nothing is written through one.
"""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from golem_forge.sandbox.errors import SandboxError, walls_unavailable

_DIRECTORY: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_GITCONFIG: Final = ".gitconfig"
_LONGEST: Final = 1 << 16


def cache_directory(environ: Mapping[str, str], home: Path) -> Path:
    """The person's, as the XDG rules have it: `XDG_CACHE_HOME` if it is an absolute path."""
    named = environ.get("XDG_CACHE_HOME", "")
    return Path(named) if named.startswith("/") else home / ".cache"


def kept_home(base: Path, *names: str) -> str:
    """`names` below `base`: what is above them is the person's own affair, links included."""
    try:
        base.mkdir(mode=0o700, parents=True, exist_ok=True)
        real = os.path.realpath(base)
        handle = os.open(real, _DIRECTORY)
    except OSError:
        raise _refused("the cache directory could not be made") from None
    try:
        for name in names:
            handle = _below(handle, name)
    finally:
        os.close(handle)
    return os.path.join(real, *names)


def introduce(home: str, gitconfig: str) -> None:
    """The `.gitconfig` of a kept home says who the person is now, whatever it said before."""
    if not gitconfig:
        return
    content = gitconfig.encode()
    try:
        handle = os.open(home, _DIRECTORY)
        try:
            if _content(handle, _GITCONFIG) != content:
                _replace(handle, _GITCONFIG, content)
        finally:
            os.close(handle)
    except OSError:
        raise _refused("its .gitconfig could not be written") from None


def _below(parent: int, name: str) -> int:
    """Closes `parent`, unless it raises."""
    try:
        with contextlib.suppress(FileExistsError):
            os.mkdir(name, 0o700, dir_fd=parent)
        handle = os.open(name, _DIRECTORY, dir_fd=parent)
    except OSError:
        raise _refused("something that is not a directory stands in its place") from None
    found = os.fstat(handle)
    if found.st_uid != os.geteuid():
        os.close(handle)
        raise _refused("it belongs to another user")
    if stat.S_IMODE(found.st_mode) & 0o077:
        with contextlib.suppress(OSError):
            os.fchmod(handle, 0o700)
    os.close(parent)
    return handle


def _content(directory: int, name: str) -> bytes | None:
    try:
        file = os.open(name, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=directory)
    except OSError:
        return None
    try:
        return os.read(file, _LONGEST) if stat.S_ISREG(os.fstat(file).st_mode) else None
    except OSError:
        return None
    finally:
        os.close(file)


def _replace(directory: int, name: str, content: bytes) -> None:
    with contextlib.suppress(FileNotFoundError):
        try:
            os.unlink(name, dir_fd=directory)
        except IsADirectoryError:
            return  # its own affair: git will say so
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    file = os.open(name, flags, 0o600, dir_fd=directory)
    try:
        os.write(file, content)
    finally:
        os.close(file)


def _refused(why: str) -> SandboxError:
    return walls_unavailable(
        f"a directory for it in your cache directory cannot be used: {why}",
        "Remove what is there (golem-forge/mcp), or set XDG_CACHE_HOME.",
    )
