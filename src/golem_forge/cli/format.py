"""Output that every verb uses: aligned columns, JSON, error lines.

Text of others (names, descriptions, arguments) is escaped, so that nothing printed can steer a terminal.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterable, Sequence
from itertools import zip_longest
from typing import Any

from golem_forge.core.table import GAP
from golem_forge.core.text import escape_control_chars, one_line


def print_columns(rows: Callable[[], Iterable[Sequence[str]]]) -> None:
    """The same table for rows that are too many to be held: they are gone through twice, for the widths first."""
    widths: list[int] = []
    for row in rows():
        measured = [len(one_line(cell)) for cell in row[:-1]]
        widths = [max(pair) for pair in zip_longest(widths, measured, fillvalue=0)]
    for row in rows():
        *cells, last = (one_line(cell) for cell in row)
        print(GAP.join([*(cell.ljust(width) for cell, width in zip(cells, widths, strict=False)), last]).rstrip())


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


def fail(verb: str, text: str, code: int) -> int:
    """Says why, and returns the exit code."""
    print_error(verb, text)
    return code
