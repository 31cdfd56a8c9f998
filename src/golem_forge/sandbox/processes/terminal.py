"""Terminal: our side of a pseudo-terminal of 40 rows and 120 columns, and what is typed into it.

Typing never blocks: what the program does not read yet waits in a bounded buffer. Refuses with INPUT_NOT_READ what
does not fit there; nothing of it is typed then. Ctrl-C and Ctrl-D are plain bytes: the terminal itself acts on them.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import termios
from typing import Final

from golem_forge.sandbox.errors import SandboxError

ROWS: Final = 40
COLUMNS: Final = 120
WAITING_AT_MOST: Final = 1 << 16


class Terminal:
    def __init__(self, descriptor: int) -> None:
        """`descriptor` becomes ours to close."""
        self._descriptor = descriptor
        self._waiting = bytearray()
        self._loop = asyncio.get_running_loop()

    def write(self, data: bytes) -> None:
        if len(self._waiting) + len(data) > WAITING_AT_MOST:
            raise SandboxError(
                "INPUT_NOT_READ",
                f"The program does not read its input ({len(self._waiting)} bytes are waiting); nothing was written. "
                "Wait until it does, or end it.",
            )
        idle = not self._waiting
        self._waiting += data
        if idle:
            self._type()
            if self._waiting:
                self._loop.add_writer(self._descriptor, self._type)

    def resize(self, rows: int, columns: int) -> None:
        with contextlib.suppress(OSError):
            termios.tcsetwinsize(self._descriptor, (rows, columns))

    def foreground(self) -> int | None:
        """The process group that reads from this terminal now, by its number on the host."""
        try:
            return os.tcgetpgrp(self._descriptor) or None
        except OSError:
            return None

    def close(self) -> None:
        self._loop.remove_writer(self._descriptor)
        os.close(self._descriptor)

    def _type(self) -> None:
        try:
            while self._waiting:
                del self._waiting[: os.write(self._descriptor, self._waiting)]
        except (BlockingIOError, InterruptedError):
            return
        except OSError:  # nobody is at the other side any more
            self._waiting.clear()
        self._loop.remove_writer(self._descriptor)


def open_pair() -> tuple[int, int]:
    """Ours (reads do not block) and the program's. Neither becomes Forge's own controlling terminal."""
    ours, theirs = os.openpty()
    with contextlib.ExitStack() as undo:
        undo.callback(os.close, ours)
        undo.callback(os.close, theirs)
        termios.tcsetwinsize(theirs, (ROWS, COLUMNS))
        os.set_blocking(ours, False)
        undo.pop_all()
    return ours, theirs
