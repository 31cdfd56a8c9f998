"""Where commands keep Python's bytecode: a directory of the person's cache, one for each set of zones.

Takes a job and the zones around it; gives a host directory that stands at `layout.BYTECODE` inside, or nothing, and
then the child writes none. Threat: bytecode in a zone would run outside the walls with the person's next `python`,
unseen by git; so children write it here instead, where only children of the same zones find it. They can poison it for
each other, inside walls, and that must give nobody more than the poisoner had: a job that may do more than an ordinary
command (reach hosts, read a secret, be a tool with files of its own) does not use it. No link is followed here.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import stat
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final

from golem_forge.core.ids import new_id
from golem_forge.sandbox.errors import SandboxError
from golem_forge.sandbox.walls.job import Job
from golem_forge.sandbox.walls.kept_home import kept_home
from golem_forge.sandbox.zones import Zone

_PLACE: Final = ("golem-forge", "bytecode")
_TREE: Final = "tree"
_LOOKED: Final = "looked"
"""A file beside the tree; its time is that of the last look at how large the tree is."""
_EVERY_S: Final = 24 * 3600
_LARGEST: Final = 512 << 20
_MOST_FILES: Final = 200_000
_MOST_KEPT: Final = 32
"""Trees of that many sets of zones; those not used for longest go."""
_LIST: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_BLOCK: Final = 512


class KeptBytecode:
    """For one worker's walls."""

    def __init__(self, cache: Path, forge_home: Path, zones: Sequence[Zone]) -> None:
        self._cache = cache
        self._forge_home = forge_home
        self._zones = zones
        self._known: dict[str, str] = {}

    def directory(self, job: Job, writable: Iterable[Zone]) -> str:
        """Made if it is missing. Empty: this job has none. `writable`: the zones that the job may write."""
        writes = {zone.name for zone in writable}
        if not _is_ordinary(job) or not all(zone.at_host_path for zone in self._zones):
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
        if any(f"{cache}/".startswith(f"{one.rstrip('/')}/") for one in apart):
            return ""
        try:
            path = kept_home(self._cache, *_PLACE, key, _TREE)
        except SandboxError:  # no home, a full disk: the command runs all the same
            return ""
        with contextlib.suppress(OSError):
            _look_now_and_then(os.path.dirname(path))
        return path


def _is_ordinary(job: Job) -> bool:
    more = job.hosts or job.shares_network or job.lifted or job.shown or job.home
    return not (job.own_program or job.reads_only or more)


def _look_now_and_then(own: str) -> None:
    """Once a day, not with every command: to count some thousand files takes longer than to start one."""
    stamp = os.path.join(own, _LOOKED)
    try:
        if abs(time.time() - os.lstat(stamp).st_mtime) < _EVERY_S:
            return
    except FileNotFoundError:
        os.close(os.open(stamp, os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600))
    os.utime(stamp, follow_symlinks=False)
    tree = os.path.join(own, _TREE)
    if _is_too_large(tree):
        _empty(tree)
    above = os.path.dirname(own)
    used = sorted(os.listdir(above), key=lambda name: _last_used(os.path.join(above, name)), reverse=True)
    for name in used[_MOST_KEPT:]:
        with contextlib.suppress(OSError):
            _empty(os.path.join(above, name))
            os.rmdir(os.path.join(above, name))


def _last_used(own: str) -> float:
    try:
        return os.lstat(os.path.join(own, _LOOKED)).st_mtime
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


def _empty(tree: str) -> None:
    """Whatever a child left in it. Directories are brought to the top before they are emptied: so it takes no stack
    and no path, however deep they lie."""
    top = os.open(tree, _LIST)
    try:
        while directories := [name for name in os.listdir(top) if not _unlinked(name, top)]:
            for name in directories:
                _open_up(name, top)
                below = os.open(name, _LIST, dir_fd=top)
                try:
                    for inner in os.listdir(below):
                        if not _unlinked(inner, below):
                            _open_up(inner, below)
                            os.rename(inner, new_id(), src_dir_fd=below, dst_dir_fd=top)
                finally:
                    os.close(below)
                os.rmdir(name, dir_fd=top)
    finally:
        os.close(top)


def _unlinked(name: str, directory: int) -> bool:
    """False: it is a directory."""
    if stat.S_ISDIR(os.stat(name, dir_fd=directory, follow_symlinks=False).st_mode):
        return False
    os.unlink(name, dir_fd=directory)
    return True


def _open_up(name: str, parent: int) -> None:
    """Its owner may list and change it again; by handle, so that no link in its place is followed."""
    handle = os.open(name, os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=parent)
    try:
        os.chmod(f"/proc/self/fd/{handle}", 0o700)
    finally:
        os.close(handle)
