"""The terminal's modes, kept while Forge draws and given back however it ends: return, exception, exit, SIGTERM.

Only `kill -9` of Forge itself cannot be caught. A signal handler that somebody else has set is left alone.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import signal
import threading
from types import FrameType
from typing import Any, Final

_ENDING: Final = (signal.SIGTERM, signal.SIGHUP)
_PLAIN_AGAIN: Final = b"\x1b[0m\x1b[?25h\x1b[?2004l\x1b[?7h"
"""No attributes, cursor shown, pastes unmarked, lines wrapped."""


class TerminalModes:
    def __init__(self, input_fd: int, output_fd: int) -> None:
        """Saves the modes of both ends as they are now."""
        self._output_fd = output_fd
        self._saved: dict[int, list[Any]] = {}
        self._owner = os.getpid()
        self._restored = False
        self._signals: dict[int, Any] = {}
        import termios

        for fd in (input_fd, output_fd):
            with contextlib.suppress(termios.error, OSError):
                self._saved[fd] = termios.tcgetattr(fd)
        atexit.register(self.restore)
        if threading.current_thread() is threading.main_thread():
            for number in _ENDING:
                if signal.getsignal(number) is signal.SIG_DFL:
                    self._signals[number] = signal.signal(number, self._ended_by)

    def restore(self) -> None:
        """Safe to call any number of times; a forked child never touches its parent's terminal."""
        if self._restored or os.getpid() != self._owner:
            return
        self._restored = True
        import termios

        with contextlib.suppress(OSError):
            os.write(self._output_fd, _PLAIN_AGAIN)
        for fd, modes in self._saved.items():
            with contextlib.suppress(termios.error, OSError):
                termios.tcsetattr(fd, termios.TCSADRAIN, modes)
        atexit.unregister(self.restore)
        with contextlib.suppress(ValueError):  # not the main thread: the handlers stay, and find nothing to do
            for number, handler in self._signals.items():
                if signal.getsignal(number) == self._ended_by:
                    signal.signal(number, handler)

    def _ended_by(self, number: int, _frame: FrameType | None) -> None:
        self.restore()
        signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)
