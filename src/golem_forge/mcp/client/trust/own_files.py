"""Small files of Forge's own below FORGE_HOME: read whole within a bound, replaced whole, for their owner alone.

Threat: what stands at the path may be a link, a pipe that never ends, or far larger than anything Forge wrote.
"""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path


def read_whole(path: Path, most_bytes: int) -> tuple[bytes, os.stat_result]:
    """(content, what was opened). OSError for a missing file, a link, what is no file, and one that is too large."""
    handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        status = os.fstat(handle)
        if not stat.S_ISREG(status.st_mode):
            raise OSError(errno.EINVAL, "it is no file")
        with open(handle, "rb", closefd=False) as file:
            content = file.read(most_bytes + 1)
        if len(content) > most_bytes:
            raise OSError(errno.EFBIG, "it is too large")
        return content, status
    finally:
        os.close(handle)


def replace_whole(path: Path, content: bytes) -> None:
    """Readers see the old file or the new one, never a part, also after a crash."""
    temporary = path.with_name(f".{path.name}-{os.urandom(8).hex()}.tmp")
    try:
        with open(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600), "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
