"""Directories in the user's cache that children write and that stay: a HOME for one server, Python's bytecode.

`kept_home` returns a real host path, made 0700 where it was missing. Refuses (WALLS_UNAVAILABLE) what is not a
directory of this user's own. Threat: whoever ran in there left what it liked, links above all; so no link is
followed here and nothing is written through one.

BytecodeCache gives each set of zones one directory for bytecode. Threat: bytecode in a zone would run outside the
walls with the user's next `python`, unseen by git; so children write it here, where only children of the same zones
find it. They can poison it for each other, and that must give no child more than the poisoner had: a job that may
do more than an ordinary command (reach hosts, read a secret, be a tool with files of its own) does not use it.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import stat
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Final

from golem_forge.sandbox.errors import SandboxError, walls_unavailable
from golem_forge.sandbox.handles import LISTING, Handle
from golem_forge.sandbox.host import is_below
from golem_forge.sandbox.process.cleanup import empty_directory, remove_tree
from golem_forge.sandbox.walls.layout import SIGNING
from golem_forge.sandbox.walls.model import Job
from golem_forge.sandbox.zones import Zone
from golem_forge.storage.private_file import create_private, read_private, touch_private

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
        handle = os.open(real, LISTING)
    except OSError:
        raise _unavailable("the cache directory could not be made") from None
    try:
        for name in names:
            handle = _open_below(handle, name)
    finally:
        os.close(handle)
    return os.path.join(real, *names)


def write_gitconfig(home: str, gitconfig: str) -> None:
    """The `.gitconfig` of a kept home says who the person is now, whatever it said before."""
    if not gitconfig:
        return
    content = gitconfig.encode()
    try:
        handle = os.open(home, LISTING)
        try:
            if _read_file(handle, _GITCONFIG) != content:
                _replace_file(handle, _GITCONFIG, content)
        finally:
            os.close(handle)
    except OSError:
        raise _unavailable("its .gitconfig could not be written") from None


def _open_below(parent: int, name: str) -> int:
    """Closes `parent`, unless it raises."""
    try:
        with contextlib.suppress(FileExistsError):
            os.mkdir(name, 0o700, dir_fd=parent)
        handle = os.open(name, LISTING, dir_fd=parent)
    except OSError:
        raise _unavailable("something that is not a directory stands in its place") from None
    found = os.fstat(handle)
    if found.st_uid != os.geteuid():
        os.close(handle)
        raise _unavailable("it belongs to another user")
    if stat.S_IMODE(found.st_mode) & 0o077:
        with contextlib.suppress(OSError):
            os.fchmod(handle, 0o700)
    os.close(parent)
    return handle


def _read_file(directory: int, name: str) -> bytes | None:
    try:
        return read_private(name, _LONGEST, dir_fd=directory)
    except OSError:
        return None


def _replace_file(directory: int, name: str, content: bytes) -> None:
    with contextlib.suppress(FileNotFoundError):
        try:
            os.unlink(name, dir_fd=directory)
        except IsADirectoryError:
            return  # its own affair: git will say so
    with create_private(name, dir_fd=directory) as file:
        file.write(content)


def _unavailable(why: str) -> SandboxError:
    return walls_unavailable(
        f"a directory for it in your cache directory cannot be used: {why}",
        "Remove what is there (golem-forge/mcp), or set XDG_CACHE_HOME.",
    )


_CACHE_PLACE: Final = ("golem-forge", "bytecode")
_TREE: Final = "tree"
_PRUNED: Final = "looked"
"""A file beside the tree; its time is that of the last look at how large the tree is."""
_EVERY_S: Final = 24 * 3600
_LARGEST: Final = 512 << 20
_MOST_FILES: Final = 200_000
_MOST_KEPT: Final = 32
"""Trees of that many sets of zones; those not used for longest go."""
_BLOCK: Final = 512


class BytecodeCache:
    """For one worker's walls."""

    def __init__(self, cache: Path, forge_home: Path, zones: Sequence[Zone]) -> None:
        self._cache = cache
        self._forge_home = forge_home
        self._zones = zones
        self._known: dict[str, str] = {}

    def directory(self, job: Job, writable: Iterable[Zone]) -> str:
        """Made if it is missing. Empty: this job has none. `writable`: the zones that the job may write."""
        writes = {zone.name for zone in writable}
        shown = [one for one in job.shown if one.inner not in (SIGNING, one.host)]  # every command has the signer
        more = job.own_program or job.reads_only or job.hosts or job.shares_network or job.lifted or shown
        if more or job.home or not all(zone.at_host_path for zone in self._zones):
            return ""  # a zone away from its own path asks that no path of the host be seen
        named = "\0".join((*(f"{zone.host}\1{zone.name in writes}" for zone in self._zones), "", *sorted(job.env)))
        key = hashlib.sha256(named.encode("utf-8", "surrogateescape")).hexdigest()[:32]
        path = self._known.get(key)
        if path is None or not os.path.isdir(path):
            path = self._known[key] = self._made(key)
        return path

    def _made(self, key: str) -> str:
        cache = os.path.realpath(self._cache)
        apart = (os.path.realpath(self._forge_home), *(zone.host for zone in self._zones))
        if any(is_below(cache, one) for one in apart):
            return ""
        try:
            path = kept_home(self._cache, *_CACHE_PLACE, key, _TREE)
        except SandboxError:  # no home, a full disk: the command runs all the same
            return ""
        with contextlib.suppress(OSError):
            _prune_daily(os.path.dirname(path))
        return path


def _prune_daily(own: str) -> None:
    """Once a day, not with every command: to count some thousand files takes longer than to start one."""
    stamp = os.path.join(own, _PRUNED)
    try:
        if abs(time.time() - os.lstat(stamp).st_mtime) < _EVERY_S:
            return
    except FileNotFoundError:
        touch_private(stamp)
    os.utime(stamp, follow_symlinks=False)
    tree = os.path.join(own, _TREE)
    if _is_too_large(tree):
        handle = Handle(os.open(tree, LISTING))
        empty_directory(handle.fd)
    above = os.path.dirname(own)
    used = sorted(os.listdir(above), key=lambda name: _last_used(os.path.join(above, name)), reverse=True)
    for name in used[_MOST_KEPT:]:
        remove_tree(os.path.join(above, name))


def _last_used(own: str) -> float:
    try:
        return os.lstat(os.path.join(own, _PRUNED)).st_mtime
    except OSError:
        return 0.0


def _is_too_large(tree: str) -> bool:
    size, files = 0, 0
    waiting = [tree]
    while waiting:
        try:
            with os.scandir(waiting.pop()) as entries:
                for entry in entries:
                    files += 1
                    size += entry.stat(follow_symlinks=False).st_blocks * _BLOCK
                    if size > _LARGEST or files > _MOST_FILES:
                        return True
                    if entry.is_dir(follow_symlinks=False):
                        waiting.append(entry.path)
        except OSError:  # deeper than a path is long, or closed to its owner: no cache that Python made
            return True
    return False
