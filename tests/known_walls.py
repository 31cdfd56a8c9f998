"""What this machine's walls hold is tried once for all tests of a run, not by every one that has a home of its own.

A try is two real sets of walls and most of a second. Its result is kept in FORGE_HOME, and nearly every test has a
FORGE_HOME of its own; there the result of the one real try is put, which is what another try would have put there too.
Nothing is told of another machine, backend or setting than the one that was tried: the file itself says which that is.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

_TRY = """\
import asyncio, pathlib, sys
from golem_forge.sandbox.walls.probe import probe_with_retry as probe_patiently
asyncio.run(probe_patiently(cache=pathlib.Path(sys.argv[1])))
"""


def file_in(folder: Path) -> Path:
    from golem_forge.sandbox.walls.probe import CACHE_FILE

    return folder / CACHE_FILE


def tried(folder: Path) -> Path:
    """The file with the result of a real try, which is made by a process in which nothing is replaced; or of the try
    that somebody else made there."""
    from .deadlines import PATIENCE

    if not (file := file_in(folder)).exists():
        command = [sys.executable, "-c", _TRY, str(folder)]
        subprocess.run(command, stdin=subprocess.DEVNULL, check=True, timeout=PATIENCE)
    return file


def told(known: Path, replace: Callable[[Any, str, Any], None] = setattr) -> None:
    """From now on a home in which nothing is kept yet gets what is known. `replace`: as `setattr`."""
    from golem_forge.sandbox.walls import probe

    kept, keep = probe._kept, probe._keep

    def kept_or_known(file: Path, key: list[Any]) -> Any:
        found = kept(file, key)
        if found is not None or os.path.lexists(file):
            return found
        found = kept(known, key)
        if found is not None and file.parent.parent.is_dir():  # whoever only looks makes no home
            keep(file, key, found)
        return found

    replace(probe, "_kept", kept_or_known)


def put(known: Path, home: Path) -> None:
    """For a process that starts by itself: into its FORGE_HOME, unless there is something already."""
    cache = home / "cache"
    if known.exists() and not cache.exists():
        cache.mkdir(mode=0o700, parents=True)
        home.chmod(0o700)
        shutil.copy(known, cache)


def always(known: Path) -> None:
    """Also where nothing is to be kept and each time is a new try, for tests of something else."""
    from golem_forge.sandbox.walls import probe

    tried = probe.probe

    async def known_or_tried(*, cache: Path | None, within: float = probe.WITHIN_S) -> Any:
        found = probe._kept(known, probe._key(probe.find_bwrap()))
        return found if found is not None else await tried(cache=cache, within=within)

    probe.probe = known_or_tried
