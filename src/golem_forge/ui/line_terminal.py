"""A terminal used line by line: questions on standard error, answers from standard input, standard output untouched.

Light: every command imports it.
Threat: text typed or pasted before a question must not answer it, nor may the rest of a line that was no answer. So
pending input is discarded until nothing was typed for half a second; only then the question is asked. A line that comes
together with others is the beginning of a pasted text and no answer, whatever it says.
"""

from __future__ import annotations

import os
import select
import sys
import termios
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Final

from golem_forge.core.text import escape_control_chars
from golem_forge.ui.render.lines import Line, Style, plain_text

_COLOURS: Final[Mapping[Style, str]] = {
    "add": "32",
    "del": "31",
    "low": "32",
    "medium": "34",
    "high": "33",
    "critical": "1;31",
}
_ASSUMED_WIDTH: Final = 80
_SILENCE_S: Final = 0.5
_TOGETHER_S: Final = 0.05
"""Input within this time after a line counts as part of it."""
_MAX_READ: Final = 4096
_YES: Final = ("y", "yes")
_NO: Final = ("", "n", "no")


def can_ask() -> bool:
    return bool(sys.stdin and sys.stdin.isatty() and sys.stderr and sys.stderr.isatty())


def ask_line(question: str) -> str | None:
    """Asks and gives the answer; None at the end of input. Asks again after several lines at once."""
    if _discard_input(0):
        discard_until_idle()
        sys.stderr.write("(Forge ignores what you typed before the question.)\n")
    while True:
        sys.stderr.write(question)
        sys.stderr.flush()
        text = _read_lines()
        line, ended, more = text.partition("\n")
        if not more and not (ended and _discard_input(_TOGETHER_S)):
            return line if text else None
        discard_until_idle()
        sys.stderr.write("(Forge ignores several lines at once.)\n")


def _read_lines() -> str:
    """A line; where several came, maybe more of them. Empty at the end of input.

    Threat: `sys.stdin` keeps what it read beyond a line, and would give it as the answer to the next question.
    """
    if not sys.stdin.isatty():
        return sys.stdin.readline()
    try:
        return os.read(sys.stdin.fileno(), _MAX_READ).decode(sys.stdin.encoding, "surrogateescape")
    except OSError:  # the terminal is gone
        return ""


def ask_yes(question: str) -> bool:
    """y or yes: True. n, no, Enter alone and the end of input: False. Any other line is no answer: asks again."""
    while True:
        line = ask_line(question)
        word = (line or "").strip().lower()
        if word in _YES or word in _NO:
            return word in _YES
        sys.stderr.write(
            f"'{escape_control_chars(word)}' is not an answer: y means yes; n, or Enter alone, means no.\n"
        )
        discard_until_idle()


def discard_until_idle() -> None:
    """Throws away what is typed until nothing was for half a second."""
    while _discard_input(_SILENCE_S):
        pass


def _discard_input(within: float) -> bool:
    """Reads what lies in the terminal's buffer, or comes within so many seconds. True: there was something."""
    try:
        terminal = sys.stdin.fileno()
        before = termios.tcgetattr(terminal)
    except (OSError, ValueError, termios.error):
        return False
    by_key = [*before]
    by_key[3] &= ~termios.ICANON  # else a line that is not finished yet cannot be seen
    try:
        termios.tcsetattr(terminal, termios.TCSANOW, by_key)
        return bool(select.select([terminal], [], [], within)[0] and os.read(terminal, _MAX_READ))
    except (OSError, termios.error):  # the terminal is gone
        return False
    finally:
        with suppress(OSError, termios.error):
            termios.tcsetattr(terminal, termios.TCSANOW, before)


def print_lines(rows: Sequence[Line]) -> None:
    """Removed and added lines in colour, where there is colour; the rest as it is."""
    if not may_colour():
        sys.stderr.write(plain_text(rows))
        return
    for row in rows:
        parts = (f"\x1b[{_COLOURS[style]}m{text}\x1b[0m" if style in _COLOURS else text for style, text in row)
        sys.stderr.write("".join(parts) + "\n")


_colourless: list[bool] = []


def forbid_colour() -> None:
    """Switches colour off for the rest of the process."""
    _colourless.append(True)


def may_colour() -> bool:
    return (
        not _colourless
        and sys.stderr.isatty()
        and not os.environ.get("NO_COLOR")
        and os.environ.get("TERM", "dumb") != "dumb"
    )


def terminal_width() -> int:
    try:
        return os.get_terminal_size(sys.stderr.fileno()).columns
    except (OSError, ValueError):
        return _ASSUMED_WIDTH
