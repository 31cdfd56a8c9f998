"""The device nodes that walls bind from the host, and their modes: put back after each child where Forge runs as root.

Threat: root inside walls owns these nodes and can change their mode, though nothing else of the host. bubblewrap binds
them writable, and read-only it would bind them without their devices; so a change lasts until that child has ended.
"""

from __future__ import annotations

import contextlib
import os
import stat
from functools import lru_cache
from typing import Final

_NODES: Final = tuple(f"/dev/{name}" for name in ("null", "zero", "full", "random", "urandom", "tty"))


@lru_cache(maxsize=1)
def known_modes() -> tuple[tuple[str, int], ...]:
    """As they are now; call it before the first child starts. Nobody but root can change them."""
    if os.geteuid() != 0:
        return ()
    return tuple((path, mode) for path in _NODES if (mode := _mode(path)) is not None)


def put_back_modes() -> None:
    for path, mode in known_modes():
        if _mode(path) not in (mode, None):
            with contextlib.suppress(OSError):
                os.chmod(path, mode)


def _mode(path: str) -> int | None:
    try:
        info = os.lstat(path)
    except OSError:
        return None
    return stat.S_IMODE(info.st_mode) if stat.S_ISCHR(info.st_mode) else None
