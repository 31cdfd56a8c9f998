"""Styled lines, the result of every renderer, and diffs as such lines.

A line is a list of (style, text); a UI with colours maps the styles, one without joins the texts. Each text is safe to
print: control, bidi and invisible characters are escaped, and no text holds a line end.
The summary of a change is `new file`, `no changes` or `+A −D`; `+? −?` where the old content is not known.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, Literal, TypeVar

from golem_forge.core.json import compact_json, safe_json
from golem_forge.core.lazy_dataclass import dataclass, field
from golem_forge.core.regex import regex
from golem_forge.core.text import escape_control_chars, escape_control_chars_in_prose, shorten
from golem_forge.core.text import one_line as one_text_line
from golem_forge.toolsets.file_access import unified_diff

Style = Literal[
    "", "ok", "fail", "warn", "dim", "add", "del", "title", "code", "user", "thinking", "choice",
    "keyword", "string", "number",
    "low", "medium", "high", "critical",
]  # fmt: skip
"""The last four are risks."""
Span = tuple[Style, str]
Line = list[Span]

_AnyStyle = TypeVar("_AnyStyle", bound=str)
_COLUMN: Final = regex(r"(?<=\S) {2,}(?=\S)")
_HANG: Final = 2

DISPLAY_CUT: Final = " · display cut"


def one_line(value: Any) -> str:
    """A value as one safe line; what is not text is written as JSON."""
    return one_text_line(to_text(value))


def line(text: Any, style: Style = "", indent: str = "") -> Line:
    """Makes a single line of any text, so that text of others cannot look like a line of Forge."""
    return [(style, indent + one_line(text))]


def lines_of(text: str, style: Style = "", indent: str = "") -> list[Line]:
    """Text as the lines it has; a line end at its end begins no further line. Empty text has no line."""
    return [[(style, indent + row)] for row in _rows(escape_control_chars(text))]


def prose_lines(text: str, style: Style = "", indent: str = "") -> list[Line]:
    """Splits text into lines; CR LF counts as an ordinary line end."""
    return lines_of(text.replace("\r\n", "\n"), style, indent)


def chat_lines(text: str, style: Style = "", indent: str = "") -> list[Line]:
    """Prose that a model or a person said: emoji stay whole."""
    return [[(style, indent + row)] for row in _rows(escape_control_chars_in_prose(text.replace("\r\n", "\n")))]


def _rows(text: str) -> list[str]:
    return text.removesuffix("\n").split("\n") if text else []


def excerpt(rows: list[Line], first: int = 20, last: int = 5) -> list[Line]:
    """Returns the first and last lines, and the number of those between."""
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
    for start, end in _row_ranges(text, width, hang):
        spans = list(_span_slice(row, start, end))
        rows.append([(spans[0][0], " " * hang + spans[0][1]), *spans[1:]] if rows and spans else spans)
    return rows


def wrapped_lines(
    rows: Iterable[Sequence[tuple[_AnyStyle, str]]], columns: int | None
) -> list[list[tuple[_AnyStyle, str]]]:
    """Lines for a terminal of so many columns, whose last one stays free; None: as long as they are."""
    if columns is None:
        return [list(row) for row in rows]
    return [part for row in rows for part in wrapped(row, max(columns - 1, 20))]


def _hang(text: str, width: int) -> int:
    columns = [match.end() for match in _COLUMN.finditer(text) if match.end() <= width // 2]
    return columns[-1] if columns else min(len(text) - len(text.lstrip(" ")), width // 2) + _HANG


def _row_ranges(text: str, width: int, hang: int) -> Iterator[tuple[int, int]]:
    """Yields the start and end of each row."""
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


def _span_slice(row: Sequence[tuple[_AnyStyle, str]], start: int, end: int) -> Iterator[tuple[_AnyStyle, str]]:
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


def to_text(value: Any) -> str:
    """A string as it is, anything else as compact JSON. Never raises."""
    if isinstance(value, str):
        return value
    data, _ = safe_json(value)
    return data if isinstance(data, str) else compact_json(data)


def as_json(value: Any) -> str:
    """Indented JSON, as the payload of a tool without one of its own is written. Never raises."""
    try:
        return json.dumps(value, ensure_ascii=False, indent=2, default=str)
    except (TypeError, ValueError, RecursionError):
        return to_text(value)


def finite_number(value: Any) -> float:
    """Returns a finite number; 0 for everything else."""
    return value if type(value) in (int, float) and abs(value) < 1e300 and math.isfinite(value) else 0


def mappings_in(value: Any) -> list[Mapping[str, Any]]:
    """Returns the mappings in a list."""
    return [item for item in value if isinstance(item, Mapping)] if isinstance(value, (list, tuple)) else []


def width_of(text: str) -> int:
    """Columns on a terminal: a wide character takes two, a combining one none."""
    if text.isascii():
        return len(text)
    from rich.cells import cell_len

    return cell_len(text)


def fit_width(text: str, width: int) -> str:
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


def chop_columns(text: str, width: int | None) -> list[str]:
    """Splits text into pieces of at most `width` columns; None means no limit."""
    if width is None:
        return [text]
    text = text.expandtabs(4)
    if text.isascii():
        return [text[at : at + width] for at in range(0, len(text), width)] or [""]
    from rich.cells import chop_cells

    return chop_cells(text, width)


MAX_DIFF_LINES: Final = 40
_MAX_DIFF_LINE: Final = 500
_STYLES: Final[Mapping[str, Style]] = {"+": "add", "-": "del", "@": "title", "\\": "dim", "#": "warn", "h": "dim"}
_HUNK: Final = regex(r"@@ -\d+(?:,(\d{1,9}))? \+\d+(?:,(\d{1,9}))? @@")


def styled_diff(diff: str) -> list[Line]:
    rows = lines_of(diff)
    marks = line_marks(row[0][1] for row in rows)
    return [[(_STYLES.get(mark, ""), row[0][1])] for mark, row in zip(marks, rows, strict=True)]


def compact_diff(diff: str) -> tuple[list[Line], set[str]]:
    """(rows, paths): a line with path and counts for each file, then what changes, with a line of context around it.
    All that is no context stays: remarks, and lines outside of hunks."""
    texts = [row[0][1] for row in lines_of(diff)]
    marks = list(line_marks(texts))
    heads = [at for at in range(len(texts) - 1) if _is_head(texts, marks, at)]
    near = {at + step for at, mark in enumerate(marks) if mark in ("+", "-", "\\") for step in (-1, 0, 1)}
    shown: list[Line] = []
    paths: set[str] = set()
    for at, (text, mark) in enumerate(zip(texts, marks, strict=True)):
        if at in heads:
            end = next((head for head in heads if head > at), len(texts))
            path, said = _file_head(text[4:], texts[at + 1][4:], marks[at:end])
            paths.add(path)
            shown.append([("title", f"{path} {said}")])
        elif mark == "@":
            shown += [[("dim", "…")]] if marks[at - 1] in ("+", "-", " ", "\\") else []
        elif at - 1 not in heads and (mark != " " or (at in near and text.strip())):
            shown.append([(_STYLES.get(mark, ""), text)])
    return shown, paths


def _is_head(texts: Sequence[str], marks: Sequence[str], at: int) -> bool:
    return marks[at] == marks[at + 1] == "h" and texts[at].startswith("--- ") and texts[at + 1].startswith("+++ ")


def _file_head(old: str, new: str, marks: Sequence[str]) -> tuple[str, str]:
    counts = change_counts(-1, -1) if "#" in marks else change_counts(marks.count("+"), marks.count("-"))
    path = (old if new == _NO_FILE else new)[1:]
    return path, f"new file {counts}" if old == _NO_FILE else f"deleted {counts}" if new == _NO_FILE else counts


def ends_of_diff(rows: list[Line], between: str) -> list[Line]:
    """The first and the last 20 lines: an end that is not shown is where a trick would hide."""
    if len(rows) <= MAX_DIFF_LINES:
        return rows
    half = MAX_DIFF_LINES // 2
    return [*rows[:half], [("dim", between.format(count=len(rows) - MAX_DIFF_LINES))], *rows[-half:]]


def content_diff(path: str, original: str | None, modified: str) -> str:
    """The unified diff of a result. `original` None: there was no file."""
    old = None if original is None else original.encode("utf-8", "backslashreplace")
    return unified_diff(path, old, modified.encode("utf-8", "backslashreplace"))


def count_changes(diff: str) -> tuple[int, int]:
    """Returns (added, removed) lines of a unified diff."""
    marks = list(line_marks(diff.split("\n")))
    return marks.count("+"), marks.count("-")


def change_counts(added: int, removed: int) -> str:
    """`+3 −1`; a negative count is one that nobody knows."""
    return f"+{added if added >= 0 else '?'} −{removed if removed >= 0 else '?'}"


def diff_summary(*, original: str | None, modified: str, is_new: bool) -> str:
    if is_new:
        return "new file"
    if original is None:
        return change_counts(-1, -1)
    if original == modified:
        return "no changes"
    return change_counts(*count_changes(content_diff("", original, modified)))


def diff_excerpt(diff: str) -> list[Line]:
    """Returns a shortened diff for a result and says that it is shortened."""
    rows = ends_of_diff(styled_diff(diff), "... ({count} lines between) · display cut")
    return [[(style, shorten(text, _MAX_DIFF_LINE)) for style, text in row] for row in rows]


def diff_content_lines(data: Mapping[str, Any]) -> list[Line]:
    path, modified, original = str(data.get("path", "")), data.get("modified"), data.get("original")
    modified = modified if isinstance(modified, str) else ""
    original = original if isinstance(original, str) else None
    is_new = bool(data.get("isNew"))
    summary = diff_summary(original=original, modified=modified, is_new=is_new)
    head = lines_of(f"{path}: {summary}".replace("\n", " "), "title")
    if original is None and not is_new:
        return head
    return [*head, *diff_excerpt(content_diff(path, None if is_new else original, modified))]


def diff_summary_lines(summaries: Iterable[Mapping[str, Any]]) -> list[Line]:
    """Formats a `diffSummary` event, one line a file."""
    rows: list[Line] = []
    for one in summaries:
        added, removed = int(finite_number(one.get("additions"))), int(finite_number(one.get("deletions")))
        done = one.get("operation")
        summary = "new file" if done == "create" else change_counts(added, removed)
        if done == "update" and added == removed == 0:
            summary = "no changes"
        deleted = " (deleted)" if done == "delete" else ""
        rows += lines_of(f"{one.get('path', '')}: {summary}{deleted}".replace("\n", " "))
    return rows


def line_marks(rows: Iterable[str]) -> Iterator[str]:
    """What each line is: `+`, `-`, a blank for context, `@` for the head of a hunk, `\\` for a missing last line end,
    `#` for a remark, `h` for all else outside of hunks.

    A hunk says how many lines it has. Threat: a removed line `-- a/x` must not pass for the heading of another file.
    """
    old = new = 0
    for row in rows:
        mark = row[:1]
        if mark == "\\":
            yield mark
        elif old > 0 or new > 0:
            yield mark if mark in ("+", "-") else " "
            old -= mark != "+"
            new -= mark != "-"
        elif hunk := _HUNK.match(row):
            old, new = (int(count) if count else 1 for count in hunk.groups())
            yield "@"
        else:
            yield "#" if mark == "#" else "h"


_NO_FILE: Final = "/dev/null"
_NEW_START: Final = regex(r"@@ -[\d,]+ \+(\d{1,9})")


@dataclass(frozen=True, slots=True, kw_only=True)
class DiffHunk:
    line: int
    """Its first line in the new file, counted from 1."""
    old: str
    new: str


@dataclass(slots=True, kw_only=True)
class FileDiff:
    path: str
    is_new: bool
    is_deleted: bool
    old_shown: bool = True
    """False if the diff leaves the old content out and says so."""
    hunks: list[DiffHunk] = field(default_factory=list)


def file_diffs(diff: str) -> list[FileDiff]:
    """The files of a unified diff, each with its hunks as old and new text."""
    files: list[FileDiff] = []
    heading = last = ""
    old: list[str] = []
    new: list[str] = []
    start = 1

    def close_hunk() -> None:
        if files and (old or new):
            files[-1].hunks.append(DiffHunk(line=start, old="".join(old), new="".join(new)))
        old.clear()
        new.clear()

    rows = diff.split("\n")
    for row, mark in zip(rows, line_marks(rows), strict=True):
        if mark == "h" and row.startswith("--- "):
            heading = row[4:]
        elif mark == "h" and row.startswith("+++ "):
            close_hunk()
            deleted = row[4:] == _NO_FILE
            files.append(
                FileDiff(path=(heading if deleted else row[4:])[1:], is_new=heading == _NO_FILE, is_deleted=deleted)
            )
        elif not files:
            continue
        elif mark in ("+", "-", " "):
            last = mark
            if mark != "+":
                old.append(f"{row[1:]}\n")
            if mark != "-":
                new.append(f"{row[1:]}\n")
        elif mark == "\\":  # `\ No newline at end of file`, about the line before
            for side in (old,) if last == "-" else (new,) if last == "+" else (old, new):
                if side:
                    side[-1] = side[-1].removesuffix("\n")
        elif mark == "@":
            close_hunk()
            start = int(found[1]) if (found := _NEW_START.match(row)) else 1
        elif row.startswith("# "):
            files[-1].old_shown = False
    close_hunk()
    return files
