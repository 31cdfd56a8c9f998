"""Rooms: full walls around one private directory that nothing else has to do with, for builds and tests.

`room` takes a directory and gives Walls whose only zone it is, writable, at `/<zone>` and nowhere else. There is no way
to switch a room's walls off: code runs in it that nobody has approved for more, so without full walls nothing starts.
`private_directory` makes such a directory below FORGE_HOME/cache and removes it afterwards, whatever was done to it;
`filled_directory` does so where a program may have left a great deal.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import time
from collections.abc import AsyncIterator, Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

from golem_forge.core.verdict import Verdict
from golem_forge.sandbox.access import best_opener
from golem_forge.sandbox.protected import PROTECTED_NAMES
from golem_forge.sandbox.sandbox import Sandbox
from golem_forge.sandbox.walls.levels import Level, WallsReport
from golem_forge.sandbox.walls.settings import WallSettings
from golem_forge.sandbox.zones import Mode, ZoneSpec, open_zone

if TYPE_CHECKING:
    from golem_forge.config.home import ForgeHome
    from golem_forge.events.redaction import Redactor
    from golem_forge.sandbox.walls.walls import Walls

_FORGOTTEN_S: Final = 7 * 24 * 3600.0
"""Longer than anything here is in use: a directory of that age was left by a Forge that was killed."""
_CLAIMED_WITHIN_S: Final = 60.0
"""By this age a directory is claimed by whoever made it."""
_REMOVED_WITHIN_S: Final = 0.3
_INNER: Final = "room"
_LOOK: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


def room(
    directory: Path,
    *,
    zone: str,
    home: ForgeHome,
    settings: WallSettings | None = None,
    redactor: Redactor | None = None,
    report: WallsReport | None = None,
) -> Walls:
    """`report`: what is known of this machine already. Raises OSError if the directory cannot be opened."""
    from golem_forge.sandbox.walls.walls import Walls

    spec = ZoneSpec(
        name=zone,
        path=directory,
        mode=Mode.RW,
        write=Verdict.PRE_APPROVED,
        delete=Verdict.PRE_APPROVED,
        # Nobody runs later what was written here, and placeholders would be files that nobody put there.
        unprotect=PROTECTED_NAMES,
        at_host_path=False,
    )
    sandbox = Sandbox((open_zone(spec, best_opener()),), zone, hidden=(os.path.realpath(home.path),))
    switched_off = report is not None and report.level is Level.OFF
    return Walls(
        sandbox,
        replace(settings or WallSettings(), off=False),
        forge_home=home.path,
        redactor=redactor,
        report=None if switched_off else report,
    )


@contextlib.contextmanager
def private_directory(home: ForgeHome, purpose: str) -> Iterator[Path]:
    """A new directory for its owner alone, gone afterwards."""
    with _made(home, purpose) as (made, inner):
        try:
            yield inner
        finally:
            remove_tree(made)


@contextlib.asynccontextmanager
async def filled_directory(home: ForgeHome, purpose: str) -> AsyncIterator[Path]:
    """The same for a program to write in, which may leave a great deal: a thread removes it, and whoever was cancelled
    does not wait for that."""
    import asyncio

    def removal() -> asyncio.Future[None]:
        return asyncio.get_running_loop().run_in_executor(None, remove_tree, made)

    with _made(home, purpose) as (made, inner):
        try:
            yield inner
        except BaseException:
            await asyncio.wait((removal(),), timeout=_REMOVED_WITHIN_S)
            raise
        await asyncio.shield(removal())


@contextlib.contextmanager
def _made(home: ForgeHome, purpose: str) -> Iterator[tuple[Path, Path]]:
    """What is to be removed, and the directory in it: walls lock that one for themselves."""
    import tempfile

    parent = home.ensure("cache", purpose)
    remove_forgotten(parent, after_s=_FORGOTTEN_S)
    made = Path(tempfile.mkdtemp(dir=parent))
    with claimed(made):
        inner = made / _INNER
        inner.mkdir(mode=0o700)
        yield made, inner


@contextlib.contextmanager
def claimed(directory: Path) -> Iterator[None]:
    """In use from now on; a Forge that is killed claims nothing any more."""
    handle = os.open(directory, _LOOK)
    try:
        with contextlib.suppress(OSError):  # a file system without locks: its age alone counts
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    finally:
        os.close(handle)


def remove_forgotten(parent: Path, *, after_s: float, prefix: str = "") -> None:
    """What a Forge that was killed left: old enough, or claimed by nobody."""
    with contextlib.suppress(OSError), os.scandir(parent) as entries:
        for entry in entries:
            if entry.name.startswith(prefix) and entry.is_dir(follow_symlinks=False):
                age = time.time() - entry.stat(follow_symlinks=False).st_mtime
                if age > after_s or (age > _CLAIMED_WITHIN_S and _is_unclaimed(entry.path)):
                    remove_tree(Path(entry.path))


def _is_unclaimed(path: str) -> bool:
    try:
        handle = os.open(path, _LOOK)
    except OSError:
        return False
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    finally:
        os.close(handle)
    return True


def remove_tree(directory: Path) -> None:
    """However deep it is, and also where a program took away its own right to change what it had made. Links are
    removed, not followed; what cannot be removed stays."""
    from golem_forge.sandbox.processes.clearing import clear

    with contextlib.suppress(OSError):
        if not directory.is_symlink():
            directory.chmod(0o700)
    clear(os.fspath(directory))
