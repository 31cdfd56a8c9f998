"""A terminal used line by line: questions on standard error, answers from standard input, standard output untouched.

Threat: what was typed or pasted before a question was there must not answer it, so it is thrown away first.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from typing import Final

from golem_forge.ui.rendering.lines import Line, Style, plain_text

_COLOURS: Final[Mapping[Style, str]] = {"add": "32", "del": "31"}
_ASSUMED_WIDTH: Final = 80


def can_ask() -> bool:
    return bool(sys.stdin and sys.stdin.isatty() and sys.stderr and sys.stderr.isatty())


def ask_line(question: str) -> str | None:
    """Asks and gives the answer; None at the end of input."""
    import contextlib

    with contextlib.suppress(ImportError, OSError):
        import termios

        termios.tcflush(sys.stdin.fileno(), termios.TCIFLUSH)
    sys.stderr.write(question)
    sys.stderr.flush()
    line = sys.stdin.readline()
    return line.rstrip("\n") if line else None


def say_lines(rows: Sequence[Line]) -> None:
    """Removed and added lines in colour, where there is colour; the rest as it is."""
    if not may_colour():
        sys.stderr.write(plain_text(rows))
        return
    for row in rows:
        sys.stderr.write("".join(_painted(style, text) for style, text in row) + "\n")


def may_colour() -> bool:
    return sys.stderr.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM", "dumb") != "dumb"


def terminal_width() -> int:
    try:
        return os.get_terminal_size(sys.stderr.fileno()).columns
    except (OSError, ValueError):
        return _ASSUMED_WIDTH


def _painted(style: Style, text: str) -> str:
    colour = _COLOURS.get(style)
    return f"\x1b[{colour}m{text}\x1b[0m" if colour else text
