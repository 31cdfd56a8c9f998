"""A person at a terminal: a command on a real pty, its screen as a terminal would show it, keys, and a size to change.

`wait_for` polls with a deadline and, when it fails, shows the whole screen. Load it with `importlib` by its path, or by
the `terminal` fixture beside it.
"""

from __future__ import annotations

import fcntl
import os
import re
import select
import signal
import struct
import termios
import time
from collections.abc import Callable, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import ptyprocess
import pyte
from tests.deadlines import PATIENCE

ESC = "\x1b"
ENTER = "\r"
CTRL_C = "\x03"
CTRL_D = "\x04"
TAB = "\t"


class Terminal:
    def __init__(
        self,
        command: Sequence[str],
        *,
        cwd: Path | str | None = None,
        env: Mapping[str, str] | None = None,
        columns: int = 100,
        rows: int = 30,
        spawn: Callable[..., Any] = ptyprocess.PtyProcess.spawn,
    ) -> None:
        """`spawn`: another way to start it, such as `ready_forge.on_a_terminal`."""
        self.screen = pyte.HistoryScreen(columns, rows, history=5000, ratio=0.001)
        self._stream = pyte.ByteStream(self.screen)
        self._shown: dict[int, str] = {}
        self._above: list[str] = []
        self.raw = b""
        """Everything the command wrote."""
        environ = dict(os.environ if env is None else env)
        environ.setdefault("TERM", "xterm-256color")
        self.started = time.monotonic()
        self.process = spawn(
            list(command), cwd=None if cwd is None else str(cwd), env=environ, dimensions=(rows, columns)
        )

    @property
    def pid(self) -> int:
        return int(self.process.pid)

    # ---- seeing

    def pump(self, seconds: float = 0.02) -> bool:
        """Reads what there is within `seconds`; False: the command closed its side."""
        if not select.select([self.process.fd], [], [], seconds)[0]:
            return True
        try:
            data = os.read(self.process.fd, 65536)
        except OSError:
            return False
        if not data:
            return False
        self.raw += data
        # pyte takes the cursor's shape for text
        self._stream.feed(re.sub(rb"\x1b\[\d* q", b"", data))
        return True

    def settle(self, seconds: float = 0.15) -> None:
        """Reads for so long: for keys that must not come together, and for what must not happen."""
        end = time.monotonic() + seconds
        while (left := end - time.monotonic()) > 0:
            if not self.pump(min(left, 0.02)):
                return

    @property
    def visible(self) -> str:
        """The rows on the screen, without blanks at their ends."""
        return "\n".join(self._rows()).rstrip()

    @property
    def text(self) -> str:
        """What scrolled away, then the screen."""
        top = self.screen.history.top
        if len(top) == top.maxlen or len(top) < len(self._above):  # the oldest go, or it was cleared
            self._above.clear()
        self._above += [_row(line, self.screen.columns) for line in islice(top, len(self._above), None)]
        return "\n".join([*self._above, *self._rows()]).rstrip()

    def _rows(self) -> list[str]:
        """Those on the screen; only what was written since the last look is read anew."""
        screen = self.screen
        for at in screen.dirty:
            self._shown[at] = _row(screen.buffer[at], screen.columns)
        screen.dirty.clear()
        return [self._shown.get(at, "") for at in range(screen.lines)]

    @property
    def unwrapped(self) -> str:
        """The screen's characters without line breaks and blanks: text however it is broken into rows."""
        return re.sub(r"\s+", "", self.text)

    def wait_for(self, text: str | re.Pattern[str], within: float = PATIENCE, *, anywhere: bool = True) -> float:
        """Until `text` is shown (`anywhere`: also scrolled away); gives the seconds it took."""
        began = time.monotonic()
        searched = -1
        while True:
            if searched != len(self.raw):  # the screen is costly to read and changes only by what is written
                searched, seen = len(self.raw), self.text if anywhere else self.visible
                if text in seen if isinstance(text, str) else text.search(seen):
                    return time.monotonic() - began
            if time.monotonic() - began > within:
                raise AssertionError(
                    f"not on the screen within {within} s: {text!r}\n{'-' * 40}\n{self.text}\n{'-' * 40}"
                )
            if not self.pump():
                self.pump(0)
                seen = self.text
                if text in seen if isinstance(text, str) else text.search(seen):
                    return time.monotonic() - began
                raise AssertionError(f"the command ended before {text!r} was shown\n{'-' * 40}\n{self.text}")

    def wait_until(self, condition: Callable[[], bool], what: str, within: float = PATIENCE) -> None:
        """For what one text does not say."""
        end = time.monotonic() + within
        while not condition():
            if time.monotonic() > end:
                raise AssertionError(f"not within {within} s: {what}\n{'-' * 40}\n{self.text}")
            if not self.pump() and not condition():
                raise AssertionError(f"the command ended before: {what}\n{'-' * 40}\n{self.text}")

    def wait_gone(self, text: str, within: float = PATIENCE) -> None:
        """Until `text` is on no visible row any more."""
        end = time.monotonic() + within
        while text in self.visible:
            if time.monotonic() > end:
                raise AssertionError(f"still on the screen after {within} s: {text!r}\n{'-' * 40}\n{self.visible}")
            self.pump()

    # ---- doing

    def send(self, keys: str) -> None:
        self.process.write(keys.encode())

    def type(self, text: str, pause: float = 0.015) -> None:
        """One key after the other, as a person would."""
        for key in text:
            self.send(key)
            end = time.monotonic() + pause
            while time.monotonic() < end:
                self.pump(0.005)

    def enter(self, text: str = "") -> None:
        self.type(text)
        self.send(ENTER)

    def paste(self, text: str) -> None:
        self.send(f"\x1b[200~{text}\x1b[201~")

    def resize(self, columns: int, rows: int) -> None:
        self.settle(0.05)
        self.screen.resize(rows, columns)
        fcntl.ioctl(self.process.fd, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    @property
    def modes(self) -> list[Any]:
        """The terminal's modes as `stty` would see them."""
        return termios.tcgetattr(self.process.fd)

    def wait_end(self, within: float = PATIENCE) -> int:
        """The exit code; a signal counts as 128 + its number."""
        end = time.monotonic() + within
        while self.process.isalive():
            if time.monotonic() > end:
                raise AssertionError(f"still running after {within} s\n{'-' * 40}\n{self.text}")
            self.pump()
        for _ in range(100):
            if not select.select([self.process.fd], [], [], 0)[0] or not self.pump(0):
                break
        status = self.process.exitstatus
        return int(status) if status is not None else 128 + int(self.process.signalstatus or 0)

    def close(self) -> None:
        if self.process.isalive():
            self.process.kill(signal.SIGKILL)
        self.process.close(force=True)

    def __enter__(self) -> Terminal:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _row(line: Mapping[int, Any], columns: int) -> str:
    return "".join(line[at].data for at in range(columns)).rstrip()
