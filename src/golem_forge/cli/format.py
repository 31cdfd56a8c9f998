"""Output that every verb uses: aligned columns, JSON, error lines.

Text of others (names, descriptions, arguments) is escaped, so that nothing printed can steer a terminal.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterable, Sequence
from itertools import zip_longest
from typing import Any, Final

from golem_forge.core.text import closest_match, escape_control_chars

_GAP: Final = "  "


def columns(rows: Iterable[Sequence[str]], indent: str = "") -> str:
    """Rows with each column as wide as its widest cell; the last one is as long as it is."""
    table = [[one_line(cell) for cell in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(*(row[:-1] for row in table), strict=False)]
    lines = []
    for row in table:
        cells = [cell.ljust(width) for cell, width in zip(row, widths, strict=False)] + row[len(widths) :]
        lines.append((indent + _GAP.join(cells)).rstrip())
    return "\n".join(lines)


def print_columns(rows: Callable[[], Iterable[Sequence[str]]]) -> None:
    """The same table for rows that are too many to be held: they are gone through twice, for the widths first."""
    widths: list[int] = []
    for row in rows():
        measured = [len(one_line(cell)) for cell in row[:-1]]
        widths = [max(pair) for pair in zip_longest(widths, measured, fillvalue=0)]
    for row in rows():
        *cells, last = (one_line(cell) for cell in row)
        print(_GAP.join([*(cell.ljust(width) for cell, width in zip(cells, widths, strict=False)), last]).rstrip())


def one_line(text: str) -> str:
    return escape_control_chars(text).replace("\n", " ").replace("\t", " ")


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """` (did you mean 'x'?)`; empty where nothing is close."""
    close = closest_match(name, known)
    return f" (did you mean '{close}'?)" if close else ""


def shortened(text: str, limit: int) -> str:
    return text if len(text) <= limit else text[: limit - 1] + "…"


def print_json(value: Any) -> None:
    """Real characters into a pipe or file; on a terminal, and for text that is not valid Unicode, escapes."""
    print(_json_text(value))


def print_json_list(items: Iterable[Any]) -> None:
    """A list the same way, printed one by one as they come."""
    before = "["
    for item in items:
        print(before, _json_text(item).replace("\n", "\n  "), sep="\n  ", end="")
        before = ","
    print("[]" if before == "[" else "\n]")


def _json_text(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=sys.stdout.isatty(), indent=2, default=str)
    try:
        text.encode()
    except UnicodeEncodeError:
        text = json.dumps(value, ensure_ascii=True, indent=2, default=str)
    return text


def describe_os_error(error: OSError) -> str:
    """What the system refused, with the file's name alone: texts of Forge carry no host path."""
    name = error.filename if isinstance(error.filename, str | bytes) else ""  # it may be the number of a handle
    named = f"'{os.path.basename(os.fsdecode(name))}': " if name else ""
    return f"{named}{error.strerror or type(error).__name__}"


def print_error(verb: str, text: str) -> None:
    """One line (or more) for the person, on standard error, so that standard output stays the answer."""
    print(f"forge {verb}: {escape_control_chars(text)}", file=sys.stderr)
