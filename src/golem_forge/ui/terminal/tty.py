"""The terminal device: styled lines as ANSI text, the terminal's modes, and sys.stdout while the screen is drawn.

A style is a meaning (`ok`, `dim`, `title`) or a look (`bold red`); without colour (`NO_COLOR`, a dumb terminal) only
the text is given. `safe_text` escapes text that comes straight from a model or a tool.
`TerminalModes` restores the modes on return, exception, exit and SIGTERM; only `kill -9` cannot be caught. It leaves a
signal handler that others set alone.
While the screen is drawn, what other code prints appears above it in whole lines, from any thread, escaped.
"""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import io
import os
import signal
import sys
import termios
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from types import FrameType
from typing import Any, Final, TextIO

from golem_forge.core.text import escape_control_chars, escape_control_chars_in_prose

StyledLine = Sequence[tuple[str, str]]

_CODES: Final = {
    "bold": "1",
    "dim": "2",
    "italic": "3",
    "reverse": "7",
    "red": "31",
    "green": "32",
    "yellow": "33",
    "blue": "34",
    "magenta": "35",
    "cyan": "36",
}
_MEANINGS: Final = {
    "ok": "green",
    "fail": "red",
    "warn": "yellow",
    "add": "green",
    "del": "red",
    "title": "bold",
    "code": "cyan",
    "user": "bold",
    "thinking": "dim italic",
    "choice": "cyan",
    "keyword": "blue",
    "string": "green",
    "number": "cyan",
    "low": "green",
    "medium": "blue",
    "high": "yellow",
    "critical": "bold red",
}
_SHAPES: Final = frozenset({"bold", "dim", "italic", "reverse"})


def colour_wanted(environ: Mapping[str, str] = os.environ) -> bool:
    return not environ.get("NO_COLOR") and environ.get("TERM", "") != "dumb"


def ansi(lines: Iterable[StyledLine], *, colour: bool) -> str:
    def styled(style: str, text: str) -> str:
        codes = ";".join(_CODES[word] for word in _style_words(style)) if colour else ""
        return f"\x1b[{codes}m{text}\x1b[0m" if codes else text

    return "".join("".join(styled(*span) for span in line) + "\n" for line in lines)


def toolkit_style(style: str) -> str:
    """The same style in prompt_toolkit's words."""
    return " ".join(word if word in _SHAPES else f"fg:ansi{word}" for word in _style_words(style))


def _style_words(style: str) -> list[str]:
    return [word for part in style.split() for word in _MEANINGS.get(part, part).split() if word in _CODES]


def safe_text(text: str) -> str:
    return escape_control_chars(text.replace("\r\n", "\n").expandtabs(4))


def safe_prose(text: str) -> str:
    """`safe_text` for answers and the person's own words: emoji stay whole."""
    return escape_control_chars_in_prose(text.replace("\r\n", "\n").expandtabs(4))


_END_SIGNALS: Final = (signal.SIGTERM, signal.SIGHUP)
_RESET_SEQUENCE: Final = b"\x1b[0m\x1b[?25h\x1b[?2004l\x1b[?7h"
"""No attributes, cursor shown, pastes unmarked, lines wrapped."""


class TerminalModes:
    def __init__(self, input_fd: int, output_fd: int) -> None:
        """Saves the modes of both ends as they are now."""
        self._output_fd = output_fd
        self._saved: dict[int, list[Any]] = {}
        self._owner = os.getpid()
        self._restored = False
        self._signals: dict[int, Any] = {}
        for fd in (input_fd, output_fd):
            with contextlib.suppress(termios.error, OSError):
                self._saved[fd] = termios.tcgetattr(fd)
        atexit.register(self.restore)
        if threading.current_thread() is threading.main_thread():
            for number in _END_SIGNALS:
                if signal.getsignal(number) is signal.SIG_DFL:
                    self._signals[number] = signal.signal(number, self._ended_by)

    def restore(self) -> None:
        """Safe to call any number of times; a forked child never touches its parent's terminal."""
        if self._restored or os.getpid() != self._owner:
            return
        self._restored = True
        with contextlib.suppress(OSError):
            os.write(self._output_fd, _RESET_SEQUENCE)
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


class StdoutProxy(io.TextIOBase):
    def __init__(self, original: TextIO, put: Callable[[str], None], loop: asyncio.AbstractEventLoop) -> None:
        self._original = original
        self._put = put
        self._loop = loop
        self._rest = ""

    def write(self, text: str) -> int:
        whole, separator, self._rest = (self._rest + text).rpartition("\n")
        if separator:
            with contextlib.suppress(RuntimeError):  # the loop is closed: nothing is drawn any more
                self._loop.call_soon_threadsafe(self._put, safe_text(whole) + "\n")
        return len(text)

    def fileno(self) -> int:
        return self._original.fileno()

    @property
    def encoding(self) -> str:  # type: ignore[override]
        return self._original.encoding

    def isatty(self) -> bool:
        return self._original.isatty()

    @property
    def rest(self) -> str:
        """What has no line end yet."""
        return safe_text(self._rest)


@contextlib.contextmanager
def redirect_standard_streams(put: Callable[[str], None]) -> Iterator[None]:
    loop = asyncio.get_running_loop()
    originals = {name: getattr(sys, name) for name in ("stdout", "stderr")}
    proxies = {name: StdoutProxy(original, put, loop) for name, original in originals.items()}
    sys.stdout, sys.stderr = proxies.values()
    try:
        yield
    finally:
        for name, proxy in proxies.items():
            if getattr(sys, name) is proxy:  # nobody else replaced it meanwhile
                setattr(sys, name, originals[name])
            if proxy.rest:
                put(proxy.rest + "\n")
