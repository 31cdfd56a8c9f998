"""Standard input for `forge sandbox exec`, through a pipe of its own.

Threat: a child that inherits our descriptor opens it anew through /proc/self/fd and writes into the person's file,
although it was opened for reading only. So the child gets the end of a pipe, and a thread copies into it.
"""

from __future__ import annotations

import contextlib
import os
import sys
import threading
from typing import Final

from golem_forge.cli.plain import complain

_PIECE: Final = 64 * 1024


class Feed:
    def __init__(self, source: int) -> None:
        self._source = source
        self.theirs, self._ours = os.pipe()
        """`theirs`: what the child reads from; our copy of it closes with `begin`."""

    def begin(self) -> None:
        """The child has its end. The thread ends with our input, with its reader, or with this process."""
        os.close(self.theirs)
        threading.Thread(target=self._copy, daemon=True).start()

    def _copy(self) -> None:
        try:
            while data := self._read():
                view = memoryview(data)
                while view:
                    view = view[os.write(self._ours, view) :]
        except OSError:
            pass  # nobody reads it any more
        finally:
            with contextlib.suppress(OSError):
                os.close(self._ours)

    def _read(self) -> bytes:
        try:
            return os.read(self._source, _PIECE)
        except OSError as error:
            complain("sandbox exec", f"standard input cannot be read: {os.strerror(error.errno or 0)}")
            return b""


def standard_input() -> Feed | None:
    """What was piped or redirected to us is the command's to read; a keyboard, or nothing at all, is not."""
    if sys.stdin is None or sys.stdin.isatty():
        return None
    return Feed(sys.stdin.fileno())
