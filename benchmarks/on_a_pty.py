"""A command on a pseudo-terminal, as a person has it: what it writes, when it was written, and keys."""

from __future__ import annotations

import contextlib
import fcntl
import os
import pty
import select
import signal
import struct
import termios
from collections.abc import Mapping, Sequence
from time import perf_counter
from types import TracebackType

ROWS, COLUMNS = 30, 100


class Terminal:
    def __init__(self, command: Sequence[str], *, cwd: str, env: Mapping[str, str]) -> None:
        self.started = perf_counter()
        self.pid, self._descriptor = pty.fork()
        if self.pid == 0:
            with contextlib.suppress(OSError):
                os.chdir(cwd)
                os.execve(command[0], list(command), dict(env))
            os._exit(127)
        fcntl.ioctl(self._descriptor, termios.TIOCSWINSZ, struct.pack("HHHH", ROWS, COLUMNS, 0, 0))
        self._unread = b""

    def until(self, text: bytes, within: float = 30.0) -> float:
        """When `text` came, by `perf_counter`; what came before it counts as read."""
        written = self._unread
        end = perf_counter() + within
        while text not in written:
            if not select.select([self._descriptor], [], [], max(0.0, end - perf_counter()))[0]:
                raise AssertionError(f"{text!r} did not come within {within} s; there was {written!r}")
            try:
                written += os.read(self._descriptor, 65536)
            except OSError:  # how Linux says that the other side is closed
                raise AssertionError(f"the command ended before {text!r}; there was {written!r}") from None
        now = perf_counter()
        self._unread = written[written.index(text) + len(text) :]
        return now

    def quiet(self, seconds: float) -> None:
        """Until nothing has been written for that long; all of it counts as read."""
        while select.select([self._descriptor], [], [], seconds)[0]:
            os.read(self._descriptor, 65536)
        self._unread = b""

    def press(self, keys: bytes) -> float:
        """When they were sent."""
        now = perf_counter()
        os.write(self._descriptor, keys)
        return now

    def __enter__(self) -> Terminal:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Killed: how a command ends is not what is measured here."""
        os.kill(self.pid, signal.SIGKILL)
        os.close(self._descriptor)
        os.waitpid(self.pid, 0)
