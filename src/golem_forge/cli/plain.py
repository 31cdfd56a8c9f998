"""What every verb prints with: aligned columns, JSON, and paths the way their owner knows them.

Text of others (names, descriptions, arguments) goes through `visible`, so that nothing printed can steer a terminal.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from golem_forge.core.visible import visible

if TYPE_CHECKING:
    from argparse import ArgumentParser

_GAP: Final = "  "


def parser(verb: str, text: str) -> ArgumentParser:
    """A parser whose help is `text`, written by hand: people read one page, not generated fragments of it."""
    from argparse import ArgumentParser, HelpFormatter

    def formatter(prog: str) -> HelpFormatter:
        return HelpFormatter(prog, width=120)  # asking for the terminal's width would load what nothing else here needs

    class Parser(ArgumentParser):
        def format_help(self) -> str:
            return text + "\n"

        def error(self, message: str) -> Any:
            print(f"{self.prog}: {visible(message)}. `{self.prog} --help` says more.", file=sys.stderr)
            raise SystemExit(2)

    return Parser(prog=f"forge {verb}", allow_abbrev=False, formatter_class=formatter)


def columns(rows: Iterable[Sequence[str]], indent: str = "") -> str:
    """Rows with each column as wide as its widest cell; the last one is as long as it is."""
    table = [[one_line(cell) for cell in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(*(row[:-1] for row in table), strict=False)]
    lines = []
    for row in table:
        cells = [cell.ljust(width) for cell, width in zip(row, widths, strict=False)] + row[len(widths) :]
        lines.append((indent + _GAP.join(cells)).rstrip())
    return "\n".join(lines)


def one_line(text: str) -> str:
    return visible(text).replace("\n", " ").replace("\t", " ")


def shortened(text: str, limit: int) -> str:
    return text if len(text) <= limit else text[: limit - 1] + "…"


def print_json(value: Any) -> None:
    """Real characters into a pipe or file; on a terminal, and for text that is not valid Unicode, escapes."""
    text = json.dumps(value, ensure_ascii=sys.stdout.isatty(), indent=2, default=str)
    try:
        text.encode()
    except UnicodeEncodeError:
        text = json.dumps(value, ensure_ascii=True, indent=2, default=str)
    print(text)


def can_ask() -> bool:
    return bool(sys.stdin and sys.stdin.isatty() and sys.stderr and sys.stderr.isatty())


def ask_line(question: str) -> str | None:
    """Asks on the terminal (standard error) and gives the answer; None at the end of input.

    Threat: what was typed or pasted before the question was there must not answer it, so it is thrown away first.
    """
    import contextlib

    with contextlib.suppress(ImportError, OSError):
        import termios

        termios.tcflush(sys.stdin.fileno(), termios.TCIFLUSH)
    sys.stderr.write(question)
    sys.stderr.flush()
    line = sys.stdin.readline()
    return line.rstrip("\n") if line else None


def complain(verb: str, text: str) -> None:
    """One line (or more) for the person, on standard error, so that standard output stays the answer."""
    print(f"forge {verb}: {visible(text)}", file=sys.stderr)


def homely(path: Path | str) -> str:
    """`~/src/app`: a host path as the person at this machine writes it, safe to print."""
    text, home = os.fspath(path), os.path.expanduser("~")
    if home != "/" and (text == home or text.startswith(home + "/")):
        text = "~" + text[len(home) :]
    return one_line(text)
