"""Numbered lines: how every tool that shows text by line shows it (`L12: text`), pages it and says where it stopped."""

from __future__ import annotations

import io
from typing import Any, Final

from golem_forge.core.errors import ToolFailed

PAGE_BYTES: Final = 30 * 1024
"""Below the caller's 32 KiB, so that a page with its closing note is never cut in the middle."""


def split_lines(text: str) -> list[str]:
    """Lines with their ends. LF, CRLF and CR end a line, nothing else does; a final one begins no further line."""
    return list(io.StringIO(text, newline=""))


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
