"""PackageCache: the `~/.cache` of commands, kept for the next command of the same zones, and what leads programs there.

`directory` gives a real host directory below FORGE_HOME/cache/commands, made 0700 where it was missing; empty: this job
has none, and its `~/.cache` is gone with it. `look_after` keeps the bounds: of one cache by removing what no program
used for longest, of all by removing those of zones that are gone and those not used for longest.

Threat: whoever ran there left what it liked, and the next install of the same zones takes code from it. So a cache
belongs to exactly one set of directories with the same rights to write: whoever can poison it can change the files of
those zones, too, which the next install runs as well. It is not the person's own, no build of Forge's sees it, and a
job that may read a secret does not use it. Nothing here is opened through a link. What is removed of a cache is removed
whole (`~/.cache/uv`), never a file out of the middle: half a package would be installed without a word.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import json
import os
import shutil
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Final

from golem_forge.core.lazy_dataclass import dataclass
from golem_forge.sandbox.errors import SandboxError
from golem_forge.sandbox.handles import LISTING, best_opener, identity_of
from golem_forge.sandbox.process.cleanup import remove_tree
from golem_forge.sandbox.walls.cache import kept_home
from golem_forge.sandbox.walls.layout import CACHE
from golem_forge.sandbox.walls.model import Job
from golem_forge.sandbox.zones import Zone
from golem_forge.storage.private_file import read_private, touch_private, write_private

FOLDER: Final = ("cache", "commands")
_TREE: Final = "tree"
_ZONES: Final = "zones.json"
_USED: Final = "used"
"""A file beside the tree; its time is that of the last command that had the cache."""
_LOOKED: Final = "looked"
"""The same for the last look at its size."""
_REMOVED: Final = "removed-"
LOOK_EVERY_S: Final = 600.0
LARGEST: Final = 4 << 30
MOST_FILES: Final = 400_000
MOST_KEPT: Final = 32
"""Caches of that many sets of zones."""
_BLOCK: Final = 512
_LONGEST_RECORD: Final = 1 << 16


class PackageCache:
    """For one worker's walls."""

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
    """For package managers that keep what they fetched elsewhere than in `~/.cache`. `tree`: the kept cache, on the
    host. The person's own crates and Go modules are read-only inside: they serve until a command may fetch, or did."""
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
    """Keeps the bounds of the cache with this tree, and of all that lie beside it. Blocks: it looks at every file."""
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
    """What cannot be looked through counts as too large. Its age is that of what was changed or read last; a time that
    lies ahead was set by somebody, and does not count."""
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
