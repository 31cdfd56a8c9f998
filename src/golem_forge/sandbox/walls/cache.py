"""Caches that children write and that stay: a HOME for one server, Python's bytecode, and the `~/.cache` of commands.

`kept_home`, BytecodeCache and PackageCache each give a real host directory, made 0700 where it was missing. A cache
belongs to one set of zones; an empty path means that this job has none. Each decides which jobs may use it.

Threat: whoever ran in there left what it liked, links above all. No link is followed here and nothing is written
through one, and a poisoned cache must give no child more than the poisoner had.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import json
import os
import shutil
import stat
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Final

from golem_forge.core.lazy_dataclass import dataclass
from golem_forge.sandbox.errors import SandboxError, walls_unavailable
from golem_forge.sandbox.handles import LISTING, Handle, best_opener, identity_of
from golem_forge.sandbox.host import is_below
from golem_forge.sandbox.process.cleanup import empty_directory, remove_tree
from golem_forge.sandbox.walls.layout import CACHE, SIGNING
from golem_forge.sandbox.walls.model import Job
from golem_forge.sandbox.zones import Zone
from golem_forge.storage.home import create_private, read_private, touch_private, write_private

_GITCONFIG: Final = ".gitconfig"
_LONGEST: Final = 1 << 16


def cache_directory(environ: Mapping[str, str], home: Path) -> Path:
    """The person's, as the XDG rules have it: `XDG_CACHE_HOME` if it is an absolute path."""
    named = environ.get("XDG_CACHE_HOME", "")
    return Path(named) if named.startswith("/") else home / ".cache"


def kept_home(base: Path, *names: str) -> str:
    """`names` below `base`: what is above them is the person's own affair, links included. Raises WALLS_UNAVAILABLE for
    what is not a directory of this user's own."""
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
    """Opens a subdirectory and creates it if it is missing. Closes `parent`, unless it raises."""
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
_PRUNE_EVERY_S: Final = 24 * 3600
_BYTECODE_LARGEST: Final = 512 << 20
_BYTECODE_FILES: Final = 200_000
_BYTECODE_KEPT: Final = 32
"""Trees of that many sets of zones; those not used for longest go."""


class BytecodeCache:
    """One directory for bytecode for each set of zones; for one worker's walls.

    Threat: bytecode in a zone would run outside the walls with the user's next `python`, unseen by git; so children
    write it here, where only children of the same zones find it. They can poison it for each other, so a job that may
    do more than an ordinary command (reach hosts, read a secret, be a tool with files of its own) does not use it.
    """

    def __init__(self, cache: Path, forge_home: Path, zones: Sequence[Zone]) -> None:
        self._cache = cache
        self._forge_home = forge_home
        self._zones = zones
        self._known: dict[str, str] = {}

    def directory(self, job: Job, writable: Iterable[Zone]) -> str:
        """Returns the job's directory, created if missing; empty if this job has none. `writable`: the zones that the
        job may write.
        """
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
    """Prunes the cache once a day and not with every command: counting thousands of files takes longer than a start."""
    stamp = os.path.join(own, _LOOKED)
    try:
        if abs(time.time() - os.lstat(stamp).st_mtime) < _PRUNE_EVERY_S:
            return
    except FileNotFoundError:
        touch_private(stamp)
    os.utime(stamp, follow_symlinks=False)
    tree = os.path.join(own, _TREE)
    if _is_too_large(tree):
        handle = Handle(os.open(tree, LISTING))
        empty_directory(handle.fd)
    above = os.path.dirname(own)
    used = sorted(os.listdir(above), key=lambda name: _time_of(os.path.join(above, name, _LOOKED)), reverse=True)
    for name in used[_BYTECODE_KEPT:]:
        remove_tree(os.path.join(above, name))


def _is_too_large(tree: str) -> bool:
    size, files = 0, 0
    waiting = [tree]
    while waiting:
        try:
            with os.scandir(waiting.pop()) as entries:
                for entry in entries:
                    files += 1
                    size += entry.stat(follow_symlinks=False).st_blocks * _BLOCK
                    if size > _BYTECODE_LARGEST or files > _BYTECODE_FILES:
                        return True
                    if entry.is_dir(follow_symlinks=False):
                        waiting.append(entry.path)
        except OSError:  # deeper than a path is long, or closed to its owner: no cache that Python made
            return True
    return False


FOLDER: Final = ("cache", "commands")
_TREE: Final = "tree"
_ZONES: Final = "zones.json"
_USED: Final = "used"
"""A file beside the tree; its time is that of the last command that had the cache."""
_LOOKED: Final = "looked"
"""A file whose time is that of the last check of the size."""
_REMOVED: Final = "removed-"
LOOK_EVERY_S: Final = 600.0
LARGEST: Final = 4 << 30
MOST_FILES: Final = 400_000
MOST_KEPT: Final = 32
"""Maximum number of caches, one for each set of zones."""
_BLOCK: Final = 512
_LONGEST_RECORD: Final = 1 << 16


class PackageCache:
    """The `~/.cache` of commands, kept below FORGE_HOME/cache/commands for the next command of the same zones; for one
    worker's walls. Without one, a job's `~/.cache` is gone with the job. `look_after` keeps the bounds.

    Threat: the next install of the same zones takes code from it. So a cache belongs to exactly one set of directories
    with the same rights to write: whoever can poison it can change the files of those zones, too, which the next
    install runs as well. It is not the person's own, no build of Forge's sees it, and a job that may read a secret does
    not use it.
    """

    def __init__(self, forge_home: Path, zones: Sequence[Zone]) -> None:
        self._forge_home = forge_home
        self._zones = zones

    def directory(self, job: Job, writable: Iterable[Zone]) -> str:
        """`writable`: the zones that the job may write."""
        writes = {zone.name for zone in writable}
        if not writes or job.own_program or job.reads_only or job.shares_network or job.lifted or job.home:
            return ""
        zones = [[zone.host, *zone.root.identity(), zone.name in writes] for zone in self._zones]
        key = hashlib.sha256(json.dumps(zones).encode("utf-8", "surrogateescape")).hexdigest()[:32]
        try:
            tree = kept_home(self._forge_home, *FOLDER, key, _TREE)
            own = os.path.dirname(tree)
            if not os.path.lexists(os.path.join(own, _ZONES)):
                write_private(Path(own, _ZONES), json.dumps(zones).encode())
            touch_private(os.path.join(own, _USED))
            os.utime(os.path.join(own, _USED), follow_symlinks=False)
        except (SandboxError, OSError):  # a full disk, something else in its place: the command runs all the same
            return ""
        return tree


def cache_variables(tree: str, toolchains: Mapping[str, str], *, hosts: bool) -> dict[str, str]:
    """Returns variables for package managers that cache elsewhere than in `~/.cache`. `tree`: the kept cache on the
    host. The person's own crates and Go modules are read-only inside; they are used until a command may fetch, or did.
    """
    variables = {
        "npm_config_cache": f"{CACHE}/npm",
        "YARN_GLOBAL_FOLDER": f"{CACHE}/yarn-berry",
        "pnpm_config_store_dir": f"{CACHE}/pnpm",  # else below node_modules, and gone with it
        "UV_LINK_MODE": "copy",  # a hard link cannot lead into a zone
    }
    for name, folder, fetched in (("CARGO_HOME", "cargo", "cargo/registry"), ("GOMODCACHE", "go-mod", "go-mod/cache")):
        if name not in toolchains or hosts or os.path.isdir(os.path.join(tree, fetched)):
            variables[name] = f"{CACHE}/{folder}"
    if "GOMODCACHE" in variables:
        variables["GOFLAGS"] = "-modcacherw"
    return variables


def is_look_due(tree: str) -> bool:
    stamp = os.path.join(os.path.dirname(tree), _LOOKED)
    return abs(time.time() - _time_of(stamp)) >= LOOK_EVERY_S


def look_after(tree: str) -> None:
    """Keeps the bounds of the cache with this tree, and of all that lie beside it. Of one cache goes what no program
    used for longest, always whole (`~/.cache/uv`), never a file out of the middle: half a package would be installed
    without a word. Of all caches go those of zones that are gone and those not used for longest. Blocks: it looks at
    every file."""
    own = os.path.dirname(tree)
    stamp = os.path.join(own, _LOOKED)
    with contextlib.suppress(OSError):
        touch_private(stamp)
        os.utime(stamp, follow_symlinks=False)
        _keep_small(own)
    with contextlib.suppress(OSError):
        remove_unused(os.path.dirname(own), kept=os.path.basename(own))


def remove_unused(above: str, *, kept: str = "") -> None:
    """Caches whose zones are gone, or other directories by now; and beyond a number those not used for longest."""
    used: dict[str, float] = {}
    for name in os.listdir(above):
        own = os.path.join(above, name)
        if name != kept and not _zones_are_there(own):
            remove_tree(own)
        else:
            used[name] = _time_of(os.path.join(own, _USED))
    for name in sorted(used, key=lambda name: used[name], reverse=True)[MOST_KEPT:]:
        if name != kept:
            remove_tree(os.path.join(above, name))


def _zones_are_there(own: str) -> bool:
    try:
        record = read_private(os.path.join(own, _ZONES), _LONGEST_RECORD)
        return all(identity_of(os.stat(host)) == (device, inode) for host, device, inode, _ in json.loads(record))
    except (OSError, ValueError, TypeError):
        return False


def _time_of(path: str) -> float:
    try:
        return os.lstat(path).st_mtime
    except OSError:
        return 0.0


@dataclass(slots=True)
class _Part:
    """One entry at the top of a cache, with all that is in it."""

    name: str
    size: int = 0
    files: int = 0
    used: float = 0.0


def _keep_small(own: str) -> None:
    top = os.open(os.path.join(own, _TREE), LISTING)
    try:
        parts = [_measured(top, name) for name in os.listdir(top)]
        size, files = sum(part.size for part in parts), sum(part.files for part in parts)
        largest = min(LARGEST, (shutil.disk_usage(own).free + size) // 10)
        for number, part in enumerate(sorted(parts, key=lambda part: part.used)):
            if size <= largest and files <= MOST_FILES:
                break
            # Out of sight at once: nobody finds half of it.
            aside = os.path.join(own, f"{_REMOVED}{os.getpid()}-{time.time_ns()}-{number}")
            try:
                os.rename(part.name, aside, src_dir_fd=top)
            except OSError:  # its owner may not change it, as Go's modules
                remove_tree(part.name, dir_fd=top)
            size, files = size - part.size, files - part.files
    finally:
        os.close(top)
    for name in os.listdir(own):
        if name.startswith(_REMOVED):
            aside = os.path.join(own, name)
            remove_tree(aside)
            with contextlib.suppress(OSError):
                os.unlink(aside)


def _measured(top: int, name: str) -> _Part:
    """Measures a part of the cache. A part that cannot be read counts as too large. Its age is that of its last change
    or read; a time in the future was set by somebody and does not count.
    """
    part, ahead = _Part(name), time.time() + 60
    waiting: list[tuple[str, ...]] = [(name,)]
    while waiting and part.files <= MOST_FILES:
        here = waiting.pop()
        try:
            handle = best_opener()(top, here, LISTING)
        except OSError as error:
            if error.errno not in (errno.ENOTDIR, errno.ELOOP, errno.ENOENT):
                part.files = MOST_FILES + 1
            continue
        try:
            with os.scandir(handle) as entries:
                for entry in entries:
                    status = entry.stat(follow_symlinks=False)
                    part.files += 1
                    part.size += status.st_blocks * _BLOCK
                    part.used = max(part.used, status.st_ctime, status.st_atime if status.st_atime < ahead else 0.0)
                    if entry.is_dir(follow_symlinks=False):
                        waiting.append((*here, entry.name))
        except OSError:
            part.files = MOST_FILES + 1
        finally:
            os.close(handle)
    with contextlib.suppress(OSError):
        status = os.stat(name, dir_fd=top, follow_symlinks=False)
        part.size += status.st_blocks * _BLOCK
        part.used = max(part.used, status.st_ctime)
    return part
