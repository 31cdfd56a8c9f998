"""Private directories for builds, tests and sockets, walls around one of them, and a lock without a time limit.

`scratch_walls` takes a directory and gives Walls whose only zone it is, writable, at `/<zone>`. These walls cannot be
switched off: code runs there that nobody has approved for more, so without full walls nothing starts.
`private_directory` makes a directory below FORGE_HOME/cache and removes it afterwards, whatever was done to it;
`program_directory` does so where a program may have left a great deal. `file_lock` excludes tasks and processes alike,
waits as long as a build takes without blocking the event loop, and is released when its holder is done, cancelled or
gone.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import tempfile
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Final

from golem_forge.config.sandbox_block import WallSettings
from golem_forge.core.decisions import Verdict
from golem_forge.core.lazy_dataclass import replace
from golem_forge.events.redaction import Redactor
from golem_forge.sandbox.handles import best_opener
from golem_forge.sandbox.host import person_environ, safe_path
from golem_forge.sandbox.process import cleanup
from golem_forge.sandbox.protected import PROTECTED_NAMES
from golem_forge.sandbox.sandbox import Sandbox
from golem_forge.sandbox.walls.model import Level, ProbeReport
from golem_forge.sandbox.walls.walls import Walls
from golem_forge.sandbox.zones import AccessMode, ZoneSpec, open_zone
from golem_forge.storage.home import ForgeHome
from golem_forge.storage.private_file import DIRECTORY_FLAGS, open_lock, try_lock

_ABANDONED_S: Final = 7 * 24 * 3600.0
"""Longer than anything here is in use: a directory of that age was left by a Forge that was killed."""
_LOCKED_WITHIN_S: Final = 60.0
"""By this age a directory is claimed by whoever made it."""
_REMOVED_WITHIN_S: Final = 0.3
_INNER: Final = "room"


def scratch_walls(
    directory: Path,
    *,
    zone: str,
    home: ForgeHome,
    settings: WallSettings | None = None,
    redactor: Redactor | None = None,
    report: ProbeReport | None = None,
) -> Walls:
    """`report`: what is known of this machine already. Raises OSError if the directory cannot be opened."""
    spec = ZoneSpec(
        name=zone,
        path=directory,
        mode=AccessMode.RW,
        write=Verdict.PRE_APPROVED,
        delete=Verdict.PRE_APPROVED,
        # Nobody runs later what was written here, and placeholders would be files that nobody put there.
        unprotect=PROTECTED_NAMES,
        at_host_path=False,
    )
    sandbox = Sandbox((open_zone(spec, best_opener()),), zone, hidden=(os.path.realpath(home.path),))
    environ = person_environ()  # of a project's environment, which is no zone here, nothing is started either
    switched_off = report is not None and report.level is Level.OFF
    return Walls(
        sandbox,
        replace(settings or WallSettings(), off=False),
        forge_home=home.path,
        redactor=redactor,
        report=None if switched_off else report,
        environ={**environ, "PATH": safe_path(environ.get("PATH", ""))},
    )


@contextlib.contextmanager
def private_directory(home: ForgeHome, purpose: str) -> Iterator[Path]:
    """A new directory for its owner alone, gone afterwards."""
    with held_directory(home.ensure("cache", purpose), after_s=_ABANDONED_S) as (made, inner):
        try:
            yield inner
        finally:
            remove_tree(made)


@contextlib.asynccontextmanager
async def program_directory(home: ForgeHome, purpose: str) -> AsyncIterator[Path]:
    """The same for a program to write in, which may leave a great deal: a thread removes it, and whoever was cancelled
    does not wait for that."""

    def removal() -> asyncio.Future[None]:
        return asyncio.get_running_loop().run_in_executor(None, remove_tree, made)

    with held_directory(home.ensure("cache", purpose), after_s=_ABANDONED_S) as (made, inner):
        try:
            yield inner
        except BaseException:
            await asyncio.wait((removal(),), timeout=_REMOVED_WITHIN_S)
            raise
        await asyncio.shield(removal())


@contextlib.contextmanager
def held_directory(parent: Path, *, after_s: float, prefix: str = "") -> Iterator[tuple[Path, Path]]:
    """What is to be removed, and the directory in it: walls lock that one for themselves. In use from now on; a Forge
    that is killed claims nothing any more, and what it left goes after `after_s`."""
    remove_abandoned(parent, after_s=after_s, prefix=prefix)
    made = Path(tempfile.mkdtemp(prefix=prefix, dir=parent.resolve()))
    handle = os.open(made, DIRECTORY_FLAGS)
    try:
        with contextlib.suppress(OSError):  # a file system without locks: its age alone counts
            try_lock(handle)
        inner = made / _INNER
        inner.mkdir(mode=0o700)
        yield made, inner
    finally:
        os.close(handle)


def remove_abandoned(parent: Path, *, after_s: float, prefix: str = "") -> None:
    """What a Forge that was killed left: old enough, or claimed by nobody."""
    with contextlib.suppress(OSError), os.scandir(parent) as entries:
        for entry in entries:
            if entry.name.startswith(prefix) and entry.is_dir(follow_symlinks=False):
                age = time.time() - entry.stat(follow_symlinks=False).st_mtime
                if age > after_s or (age > _LOCKED_WITHIN_S and _is_unlocked(entry.path)):
                    remove_tree(Path(entry.path))


def _is_unlocked(path: str) -> bool:
    with contextlib.suppress(OSError):
        handle = os.open(path, DIRECTORY_FLAGS)
        try:
            return try_lock(handle)
        finally:
            os.close(handle)
    return False


def remove_tree(directory: Path) -> None:
    """However deep it is, and also where a program took away its own right to change what it had made. Links are
    removed, not followed; what cannot be removed stays."""
    with contextlib.suppress(OSError):
        if not directory.is_symlink():
            directory.chmod(0o700)
    cleanup.remove_tree(os.fspath(directory))


_POLL_S: Final = 0.02


@contextlib.asynccontextmanager
async def file_lock(file: Path) -> AsyncIterator[None]:
    handle = open_lock(file)
    try:
        while not try_lock(handle):  # noqa: ASYNC110 - nobody is told when a lock gets free
            await asyncio.sleep(_POLL_S)
        yield
    finally:
        os.close(handle)
