"""The output store: whatever is too long for a caller is kept whole on disk, by handle, before the result is returned.

Kept until the session is 7 days old or the store passes 1 GiB, oldest first, never one of a live session.
"""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from golem_forge.core.errors import ToolFailed

MAX_AGE_SECONDS: Final = 7 * 24 * 3600
MAX_TOTAL_BYTES: Final = 1 << 30
MAX_SESSION_BYTES: Final = 512 << 20
"""What one session may keep: its own outputs are never pruned while it lives."""
_INDEX: Final = "index.jsonl"


@dataclass(frozen=True, slots=True)
class KeptOutput:
    handle: str
    worker: str
    path: Path


class OutputStore:
    def __init__(self, root: Path, session_id: str) -> None:
        self._root = root
        self._folder = root / session_id
        self._kept: dict[str, KeptOutput] = {}
        self._kept_bytes = 0

    def keep(self, text: str, worker: str) -> str:
        """Writes the whole text and gives its handle. Raises OSError when it cannot be kept."""
        return self.keep_pieces((text.encode("utf-8", "surrogateescape"),), worker)

    def keep_pieces(self, pieces: Iterable[bytes], worker: str) -> str:
        """The same for UTF-8 text that arrives in pieces; only one piece at a time is in memory."""
        if not self._folder.is_dir():
            self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            self.prune()
        handle = f"out_{secrets.token_hex(6)}"
        path = self._folder / handle
        with open(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600), "wb") as file:
            for piece in pieces:
                self._kept_bytes += len(piece)
                if self._kept_bytes > MAX_SESSION_BYTES:
                    self._kept_bytes -= file.tell() + len(piece)
                    path.unlink()
                    raise ToolFailed(
                        f"The session already keeps {MAX_SESSION_BYTES >> 20} MiB of outputs and has no room for this "
                        "one. Ask for less at a time, or start a new session.",
                        code="TOO_MUCH_OUTPUT",
                    )
                file.write(piece)
        line = json.dumps({"handle": handle, "worker": worker}) + "\n"
        with open(os.open(self._folder / _INDEX, os.O_CREAT | os.O_APPEND | os.O_WRONLY, 0o600), "a") as index:
            index.write(line)
        self._kept[handle] = KeptOutput(handle, worker, path)
        return handle

    def find(self, handle: str, worker: str, *, any_session: bool = False) -> KeptOutput | None:
        """An output of this worker or of one below it. `any_session` is for the person at the keyboard."""
        kept = self._kept.get(handle) or self._from_index(self._folder, handle)
        if kept is None and any_session and self._root.is_dir():
            folders = (folder for folder in self._root.iterdir() if folder.is_dir())
            return next((found for f in folders if (found := self._from_index(f, handle))), None)
        if kept is None or not (kept.worker == worker or kept.worker.startswith(f"{worker}/")):
            return None
        return kept

    def _from_index(self, folder: Path, handle: str) -> KeptOutput | None:
        with contextlib.suppress(OSError, ValueError), open(folder / _INDEX, encoding="utf-8") as index:
            for line in index:
                entry = json.loads(line)
                if entry["handle"] == handle and (folder / handle).is_file():
                    return KeptOutput(handle, entry["worker"], folder / handle)
        return None

    def prune(self) -> None:
        """Removes what is too old or too much; sessions that are still being written to stay."""
        folders = [f for f in self._root.iterdir() if f.is_dir() and f != self._folder] if self._root.is_dir() else []
        sized = sorted(((f.stat().st_mtime, _size(f), f) for f in folders), key=lambda item: item[0])
        total = sum(size for _, size, _ in sized)
        now = time.time()
        for modified, size, folder in sized:
            too_much = now - modified > MAX_AGE_SECONDS or total > MAX_TOTAL_BYTES
            if too_much and not _is_live(self._root, folder):
                _remove(folder)
                total -= size


def _is_live(root: Path, folder: Path) -> bool:
    """A session is live while a process holds the lock on its journal."""
    import fcntl

    journal = root.parent / "sessions" / f"{folder.name}.jsonl"
    try:
        with open(journal, "rb") as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return False
    return False


def _size(folder: Path) -> int:
    return sum(entry.stat().st_size for entry in os.scandir(folder) if entry.is_file(follow_symlinks=False))


def _remove(folder: Path) -> None:
    with contextlib.suppress(OSError):
        for entry in os.scandir(folder):
            os.unlink(entry.path)
        folder.rmdir()
