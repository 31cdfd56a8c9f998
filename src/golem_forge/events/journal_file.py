"""JournalFile: the locked file of a journal, which holds whole lines only. Takes sealed lines, raises JournalError.

After a write that failed it is cut back to its last whole line. A file that was deleted or replaced refuses: a record
in it survives nothing, and under its name another session may write by now.
"""

from __future__ import annotations

import os
from pathlib import Path
from time import monotonic
from typing import Final

from golem_forge.events.journal_errors import JournalError
from golem_forge.events.session_files import is_named

_LOOK_EVERY_S: Final = 0.5
"""So often, at most, a write looks whether its file is still there."""


class JournalFile:
    def __init__(self, path: Path, fd: int, *, size: int, sync: bool) -> None:
        """`sync`: what is written survives a power cut too."""
        self.fd = fd
        self.refused = False
        """Whether the last write failed."""
        self._path = path
        self._size = size
        self._sync = sync
        self._look_again = 0.0
        self._torn = False

    def write(self, data: bytes) -> None:
        now = monotonic()
        if now >= self._look_again:
            self._refuse_if_gone()
            self._look_again = now + _LOOK_EVERY_S
        if self._torn:
            self._cut_back()
        try:
            done = os.write(self.fd, data)
            while done < len(data):
                done += os.write(self.fd, data[done:])
            if self._sync:
                os.fdatasync(self.fd)
        except OSError as error:
            self._torn = self.refused = True
            self._cut_back()
            raise JournalError(
                f"The journal could not be written ({error.strerror}); the call was not run. Free disk space and retry."
            ) from error
        self.refused = False
        self._size += len(data)

    def close(self) -> None:
        os.close(self.fd)

    def _refuse_if_gone(self) -> None:
        if not is_named(self.fd, self._path):
            self.refused = True
            raise JournalError(
                "The journal's file was deleted or replaced, so nothing can be recorded. Start a new session."
            )

    def _cut_back(self) -> None:
        """Removes what a failed write left behind: half a line would look like tampering once more follows it."""
        try:
            os.ftruncate(self.fd, self._size)
        except OSError as error:
            raise JournalError(f"The journal could not be repaired ({error.strerror}).") from error
        self._torn = False
