"""Numbered lines: how every tool that shows text by line shows it (`L12: text`), pages it and says where it stopped."""

from __future__ import annotations

import io
import re
from itertools import islice
from typing import Any, Final

from golem_forge.core.errors import ToolFailed

_END: Final = re.compile(r"\r\n|\n|\r")
_CHUNK: Final = 1 << 20
PAGE_BYTES: Final = 30 * 1024
"""Below the caller's 32 KiB, so that a page with its closing note is never cut in the middle."""


def split_lines(text: str) -> list[str]:
    """Lines with their ends. LF, CRLF and CR end a line, nothing else does; a final one begins no further line."""
    return list(io.StringIO(text, newline=""))


def count_lines(text: str) -> int:
    """How many `split_lines` would give, without making them: as a list, short lines take thirty times their space."""
    unended = 0 if not text or text[-1] in "\r\n" else 1
    return _ends(text, 0, len(text)) + unended


def some_lines(text: str, first: int, limit: int) -> list[str]:
    """At most `limit` lines with their ends, from number `first` (counted from 1) on."""
    start = _start_of(text, first)
    lines: list[str] = []
    for end in _END.finditer(text, start):
        if len(lines) == limit:
            return lines
        lines.append(text[start : end.end()])
        start = end.end()
    if start < len(text) and len(lines) < limit:
        lines.append(text[start:])
    return lines


def _start_of(text: str, number: int) -> int:
    """Where a line begins: whole chunks are passed by counting, only the last one is looked at end by end."""
    missing, position = number - 1, 0
    while missing and position < len(text):
        stop = min(len(text), position + _CHUNK)
        if text[stop - 1] == "\r" and text[stop : stop + 1] == "\n":
            stop += 1
        ends = _ends(text, position, stop)
        if ends >= missing:
            return next(islice(_END.finditer(text, position, stop), missing - 1, None)).end()
        missing, position = missing - ends, stop
    return position


def _ends(text: str, start: int, stop: int) -> int:
    return text.count("\n", start, stop) + text.count("\r", start, stop) - text.count("\r\n", start, stop)


def bare(line: str) -> str:
    return line.rstrip("\r\n")


def first_line(offset: int, total: int) -> int:
    """The line an offset means: from the end if negative, at most back to the first. Refuses one past the end."""
    if offset > max(total, 1):
        lines = "1 line" if total == 1 else f"{total} lines"
        raise ToolFailed(f"offset {offset} is past the end ({lines})", code="PAST_THE_END")
    return offset if offset > 0 else max(1, total + 1 + offset)


def closing_note(first: int, last: int, total: int) -> str:
    """Empty when everything was shown."""
    if first <= 1 and last >= total:
        return ""
    rest = f"; continue with offset={last + 1}" if last < total else ""
    return f"[lines {first}-{last} of {total}{rest}]"


def offset_field(what: str) -> tuple[Any, Any]:
    """The `offset` argument for pydantic's `create_model`: any whole number but 0."""
    from typing import Annotated

    from pydantic import AfterValidator, Field
    from pydantic_core import PydanticCustomError

    def not_zero(value: int) -> int:
        if value == 0:
            raise PydanticCustomError("not_zero", "must not be 0; the first line is 1, the last one -1")
        return value

    text = f"First line to {what}; negative counts from the end (-1 is the last line). Not 0."
    return Annotated[int, AfterValidator(not_zero)], Field(default=1, description=text)
