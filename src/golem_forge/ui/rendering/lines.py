"""Styled lines: what every rendering gives. A UI with colours maps the styles, one without joins the texts.

Each text is safe to print: control, bidi and invisible characters are escaped, and no text holds a line end.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, Literal, TypeVar

from golem_forge.core.visible import visible, visible_prose

Style = Literal["", "ok", "fail", "warn", "dim", "add", "del", "title", "code", "user", "thinking", "choice"]
Span = tuple[Style, str]
Line = list[Span]

_AnyStyle = TypeVar("_AnyStyle", bound=str)
_COLUMN: Final = re.compile(r"(?<=\S) {2,}(?=\S)")
_HANG: Final = 2

DISPLAY_CUT: Final = " · display cut"


def one_line(value: Any) -> str:
    """A value as one safe line; what is not text is written as JSON."""
    return visible(words(value)).replace("\n", " ").replace("\t", " ")


def line(text: Any, style: Style = "", indent: str = "") -> Line:
    """Whatever it holds stays one line: text of others cannot look like a line of ours."""
    return [(style, indent + one_line(text))]


def lines_of(text: str, style: Style = "", indent: str = "") -> list[Line]:
    """Text as the lines it has; a line end at its end begins no further line. Empty text has no line."""
    if not text:
        return []
    rows = visible(text).split("\n")
    if rows[-1] == "" and len(rows) > 1:
        rows.pop()
    return [[(style, indent + row)] for row in rows]


def prose(text: str, style: Style = "", indent: str = "") -> list[Line]:
    """The same for text where CR LF is only another way to end a line."""
    return lines_of(text.replace("\r\n", "\n"), style, indent)


def speech(text: str, style: Style = "", indent: str = "") -> list[Line]:
    """Prose that a model or a person said: emoji stay whole."""
    rows = visible_prose(text.replace("\r\n", "\n")).split("\n") if text else []
    if len(rows) > 1 and rows[-1] == "":
        rows.pop()
    return [[(style, indent + row)] for row in rows]


def excerpt(rows: list[Line], first: int = 20, last: int = 5) -> list[Line]:
    """Of many lines the first and the last, and how many are between."""
    left_out = len(rows) - first - last
    if left_out <= 1:
        return rows
    return [*rows[:first], [("dim", f"… {left_out:,} lines …")], *rows[-last:]]


def wrapped(row: Sequence[tuple[_AnyStyle, str]], width: int) -> list[list[tuple[_AnyStyle, str]]]:
    """One line as rows of at most `width` columns, broken between words; a longer word stays whole.

    Further rows hang deeper than the line begins, or below its last column: no text can look like a line of its own.
    """
    text = "".join(part for _, part in row)
    if width_of(text) <= width:
        return [list(row)]
    hang = _hang(text, width)
    rows: list[list[tuple[_AnyStyle, str]]] = []
    for start, end in _broken(text, width, hang):
        spans = list(_part(row, start, end))
        rows.append([(spans[0][0], " " * hang + spans[0][1]), *spans[1:]] if rows and spans else spans)
    return rows


def _hang(text: str, width: int) -> int:
    columns = [match.end() for match in _COLUMN.finditer(text) if match.end() <= width // 2]
    return columns[-1] if columns else min(len(text) - len(text.lstrip(" ")), width // 2) + _HANG


def _broken(text: str, width: int, hang: int) -> Iterator[tuple[int, int]]:
    """Where each row starts and ends."""
    start, end, used = 0, 0, 0
    for word in re.finditer(r" *[^ ]+", text):
        columns = width_of(word[0])
        if end > start and used + columns > width:
            yield start, end
            start = word.start() + len(word[0]) - len(word[0].lstrip(" "))
            used = hang + width_of(word[0].lstrip(" "))
        else:
            used += columns
        end = word.end()
    yield start, end


def _part(row: Sequence[tuple[_AnyStyle, str]], start: int, end: int) -> Iterator[tuple[_AnyStyle, str]]:
    at = 0
    for style, text in row:
        if piece := text[max(start - at, 0) : max(end - at, 0)]:
            yield style, piece
        at += len(text)


def indented(rows: Iterable[Line], indent: str = "  ") -> list[Line]:
    return [[(row[0][0], indent + row[0][1]), *row[1:]] if row else row for row in rows]


def plain_text(rows: Iterable[Line]) -> str:
    """The lines without their styles, each with its line end."""
    return "".join("".join(text for _, text in row) + "\n" for row in rows)


def words(value: Any) -> str:
    """A string as it is, anything else as compact JSON. Never raises."""
    if isinstance(value, str):
        return value
    from golem_forge.tools.json_values import compact, safe_json

    data, _ = safe_json(value)
    return data if isinstance(data, str) else compact(data)


def number(value: Any) -> float:
    """A finite number; 0 for everything else."""
    return value if type(value) in (int, float) and abs(value) < 1e300 and math.isfinite(value) else 0


def mappings(value: Any) -> list[Mapping[str, Any]]:
    """The objects of a list; nothing else of it."""
    return [item for item in value if isinstance(item, Mapping)] if isinstance(value, (list, tuple)) else []


def width_of(text: str) -> int:
    """Columns on a terminal: a wide character takes two, a combining one none."""
    if text.isascii():
        return len(text)
    from rich.cells import cell_len

    return cell_len(text)


def fitted(text: str, width: int) -> str:
    """Exactly `width` columns: filled up with blanks, or cut with `…` at its end."""
    length = width_of(text)
    if length <= width:
        return text + " " * (width - length)
    kept, used = "", 0
    for character in text[: width * 4]:
        step = width_of(character)
        if used + step > width - 1:
            break
        kept, used = kept + character, used + step
    return kept + "…" + " " * (width - 1 - used)


def chopped(text: str, width: int | None) -> list[str]:
    """In pieces of at most `width` columns, wherever that breaks it; None: whole."""
    if width is None:
        return [text]
    text = text.expandtabs(4)
    if text.isascii():
        return [text[at : at + width] for at in range(0, len(text), width)] or [""]
    from rich.cells import chop_cells

    return chop_cells(text, width)


def shortened(text: str, limit: int) -> str:
    """At most `limit` characters, the last of them `…` where something was left out."""
    return text if len(text) <= limit else text[: limit - 1] + "…"
