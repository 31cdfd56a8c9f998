"""The lines a person typed, across runs: FORGE_HOME/history, for its owner alone, the last 1000.

One entry a line; line breaks and backslashes inside an entry are written `\\n` and `\\\\`. A file that cannot be
read or written, a link and a pipe among them, costs the history, never the session.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import stat
from pathlib import Path
from typing import Final

MOST_LINES: Final = 1000
_MOST_BYTES: Final = 4 * 1024 * 1024
_MOST_CHARS: Final = 16 * 1024
"""A longer entry is a pasted document, not a line to type again."""


class HistoryFile:
    def __init__(self, path: Path) -> None:
        self._path = path

    def lines(self) -> list[str]:
        """Oldest first."""
        with contextlib.suppress(OSError), open(_opened(self._path, os.O_RDONLY), "rb") as file:
            return _entries(file.read(_MOST_BYTES))
        return []

    def add(self, line: str) -> None:
        if not line.strip() or len(line) > _MOST_CHARS:
            return
        with contextlib.suppress(OSError):
            self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            handle = _opened(self._path, os.O_RDWR | os.O_CREAT)
            with open(handle, "r+b") as file:
                os.fchmod(handle, 0o600)
                fcntl.flock(handle, fcntl.LOCK_EX)  # two sessions may add at once
                known = _entries(file.read(_MOST_BYTES))
                if known and known[-1] == line:
                    return
                if len(known) < MOST_LINES:
                    file.seek(0, os.SEEK_END)
                    file.write(_written(line))
                    return
                file.seek(0)
                file.write(b"".join(_written(entry) for entry in [*known, line][-MOST_LINES:]))
                file.truncate()


def _opened(path: Path, flags: int) -> int:
    """A file and nothing else: reading a pipe would wait for ever."""
    handle = os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, 0o600)
    if stat.S_ISREG(os.fstat(handle).st_mode):
        return handle
    os.close(handle)
    raise OSError("not a file")


def _entries(data: bytes) -> list[str]:
    written = data.decode(errors="replace").split("\n")
    return [_read(entry) for entry in written if entry][-MOST_LINES:]


def _written(line: str) -> bytes:
    escaped = line.replace("\\", "\\\\").replace("\r", "").replace("\n", "\\n")
    return escaped.encode(errors="replace") + b"\n"


def _read(entry: str) -> str:
    return "\\".join(part.replace("\\n", "\n") for part in entry.split("\\\\"))
