"""Changes of files: coloured unified diffs, and what changed in a few characters.

The summary is `new file`, `no changes` or `+A −D`; `+? −?` where the old content is not known.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from golem_forge.ui.rendering.lines import Line, Style, lines_of, number, shortened

MOST_LINES: Final = 40
_MOST_LINE: Final = 500
_STYLES: Final[Mapping[str, Style]] = {"+": "add", "-": "del", "@": "title", "\\": "dim", "#": "warn", "h": "dim"}
_HUNK: Final = re.compile(r"@@ -\d+(?:,(\d{1,9}))? \+\d+(?:,(\d{1,9}))? @@")


def coloured(diff: str) -> list[Line]:
    rows = lines_of(diff)
    marks = _marks(row[0][1] for row in rows)
    return [[(_STYLES.get(mark, ""), row[0][1])] for mark, row in zip(marks, rows, strict=True)]


def bounded(rows: list[Line], between: str) -> list[Line]:
    """The first and the last 20 lines: an end that is not shown is where a trick would hide."""
    if len(rows) <= MOST_LINES:
        return rows
    half = MOST_LINES // 2
    return [*rows[:half], [("dim", between.format(count=len(rows) - MOST_LINES))], *rows[-half:]]


def content_diff(path: str, original: str | None, modified: str) -> str:
    """The unified diff of a result. `original` None: there was no file."""
    from golem_forge.toolsets.diffs import unified_diff

    old = None if original is None else original.encode("utf-8", "backslashreplace")
    return unified_diff(path, old, modified.encode("utf-8", "backslashreplace"))


def counted(diff: str) -> tuple[int, int]:
    """(added, removed) lines of a unified diff."""
    marks = list(_marks(diff.split("\n")))
    return marks.count("+"), marks.count("-")


def amounts(added: int, removed: int) -> str:
    """`+3 −1`; a negative count is one that nobody knows."""
    return f"+{added if added >= 0 else '?'} −{removed if removed >= 0 else '?'}"


def diff_summary(*, original: str | None, modified: str, is_new: bool) -> str:
    if is_new:
        return "new file"
    if original is None:
        return amounts(-1, -1)
    if original == modified:
        return "no changes"
    return amounts(*counted(content_diff("", original, modified)))


def shown_diff(diff: str) -> list[Line]:
    """For a result: bounded in lines and in their length, and it says so."""
    rows = bounded(coloured(diff), "... ({count} lines between) · display cut")
    return [[(style, shortened(text, _MOST_LINE)) for style, text in row] for row in rows]


def diff_content(data: Mapping[str, Any]) -> list[Line]:
    """A `diffContent` event."""
    path, modified, original = str(data.get("path", "")), data.get("modified"), data.get("original")
    modified = modified if isinstance(modified, str) else ""
    original = original if isinstance(original, str) else None
    is_new = bool(data.get("isNew"))
    said = diff_summary(original=original, modified=modified, is_new=is_new)
    head = lines_of(f"{path}: {said}".replace("\n", " "), "title")
    if original is None and not is_new:
        return head
    return [*head, *shown_diff(content_diff(path, None if is_new else original, modified))]


def diff_summaries(summaries: Iterable[Mapping[str, Any]]) -> list[Line]:
    """A `diffSummary` event: one line a file."""
    rows: list[Line] = []
    for one in summaries:
        added, removed = int(number(one.get("additions"))), int(number(one.get("deletions")))
        said = "new file" if one.get("operation") == "create" else amounts(added, removed)
        if one.get("operation") == "update" and added == removed == 0:
            said = "no changes"
        deleted = " (deleted)" if one.get("operation") == "delete" else ""
        rows += lines_of(f"{one.get('path', '')}: {said}{deleted}".replace("\n", " "))
    return rows


def _marks(rows: Iterable[str]) -> Iterator[str]:
    """What each line is: `+`, `-`, a blank for context, `@` for the head of a hunk, `h` for all that stands outside.

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
