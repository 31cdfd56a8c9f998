"""Reading a file of a program: only what really lies inside it.

Threat: the files come from strangers, and a link in a program could make Forge read (and a person trust) what lies
outside. What is judged is what is read: the place of a file is asked of its open handle.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import Final

from golem_forge.core.errors import ConfigError

MAX_FILE_BYTES: Final = 1 << 20


def read_inside(root: Path, path: Path, name: str) -> bytes:
    """The whole file; `root` is a real path, `name` what messages call the file. Raises ConfigError."""
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        raise ConfigError(f"{name}: file not found") from None
    except (OSError, ValueError) as error:
        raise ConfigError(f"{name}: cannot be read ({getattr(error, 'strerror', '') or 'bad name'})") from None
    with os.fdopen(handle, "rb") as file:
        if not Path(os.readlink(f"/proc/self/fd/{handle}")).is_relative_to(root):
            raise ConfigError(
                f"{name}: is reached through a link that leads outside the program; put the file itself there"
            )
        if not stat.S_ISREG(os.fstat(handle).st_mode):
            raise ConfigError(f"{name}: is not a regular file")
        data = file.read(MAX_FILE_BYTES + 1)
    if len(data) > MAX_FILE_BYTES:
        raise ConfigError(f"{name}: is larger than {MAX_FILE_BYTES} bytes")
    return data


def below_root(root: Path, path: Path) -> Path | None:
    """The path as text below the real root, links not resolved; None where even its text leads outside."""
    real = Path(os.path.realpath(root))
    written = Path(os.path.abspath(path if path.is_absolute() else real / path))
    for start in (real, Path(os.path.abspath(root))):
        if written.is_relative_to(start):
            return real / written.relative_to(start)
    return None
