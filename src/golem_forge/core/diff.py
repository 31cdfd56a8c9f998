"""Changes between two texts, line by line, and the unified diff that shows them. Pure.

Takes lines with their line ends. Threat: comparing can take quadratic time and worse, and an attacker may have chosen
both texts. So the common beginning and end are left out first, and above the amount of work the caller sets, the rest
is reported as one change: longer than necessary, but correct.

`file_diff` shows what changed in a file that a user trusted. Threats: the two texts may differ by a line end that only
some readers accept, which turns a comment into code; a file name with a line end in it would write rows of its own.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

_CONTEXT: Final = 3


class LineChange(NamedTuple):
    """Lines `old_from:old_to` become `new_from:new_to` (counted from 0, ends not included)."""

    old_from: int
    old_to: int
    new_from: int
    new_to: int


def line_changes(old: list[str], new: list[str], *, most_comparisons: int) -> list[LineChange]:
    """Beyond `most_comparisons` the differing middle is one change."""
    shortest = min(len(old), len(new))
    head = 0
    while head < shortest and old[head] == new[head]:
        head += 1
    tail = 0
    while tail < shortest - head and old[-1 - tail] == new[-1 - tail]:
        tail += 1
    old_middle, new_middle = old[head : len(old) - tail], new[head : len(new) - tail]
    if not old_middle and not new_middle:
        return []
    if not old_middle or not new_middle or len(old_middle) * len(new_middle) > most_comparisons:
        return [LineChange(head, len(old) - tail, head, len(new) - tail)]
    from difflib import SequenceMatcher  # 2 ms, and few calls compare texts

    opcodes = SequenceMatcher(None, old_middle, new_middle).get_opcodes()
    return [LineChange(head + a, head + b, head + c, head + d) for tag, a, b, c, d in opcodes if tag != "equal"]


def covers_all_changes(changes: Sequence[LineChange], old: list[str], new: list[str]) -> bool:
    """Whether nothing else differs: what stands between the changes, before and after them is the same in both."""
    old_at = new_at = 0
    for change in (*changes, LineChange(len(old), len(old), len(new), len(new))):
        if change.old_from < old_at or change.new_from < new_at:
            return False
        if old[old_at : change.old_from] != new[new_at : change.new_from]:
            return False
        old_at, new_at = change.old_to, change.new_to
    return True


def unified_hunks(old: list[str], new: list[str], changes: Sequence[LineChange]) -> Iterator[str]:
    """Rows that end with a line end; a line without one is followed by the row that says so, in the same text."""
    for group in _hunk_groups(changes):
        start, end = group[0], group[-1]
        before = min(_CONTEXT, start.old_from)
        after = min(_CONTEXT, len(old) - end.old_to)
        old_span = _span(start.old_from - before, end.old_to + after)
        new_span = _span(start.new_from - before, end.new_to + after)
        yield f"@@ -{old_span} +{new_span} @@\n"
        position = start.old_from - before
        for change in group:
            yield from (_row(" ", line) for line in old[position : change.old_from])
            yield from (_row("-", line) for line in old[change.old_from : change.old_to])
            yield from (_row("+", line) for line in new[change.new_from : change.new_to])
            position = change.old_to
        yield from (_row(" ", line) for line in old[position : end.old_to + after])


def _row(mark: str, line: str) -> str:
    return f"{mark}{line}" if line.endswith("\n") else f"{mark}{line}\n\\ No newline at end of file\n"


def _span(start: int, end: int) -> str:
    """Counted from 1; an empty span stands after the line before it."""
    count = end - start
    first = start + 1 if count else start
    return str(first) if count == 1 else f"{first},{count}"


def _hunk_groups(changes: Sequence[LineChange]) -> Iterator[list[LineChange]]:
    """Changes whose context would touch belong into one hunk."""
    group: list[LineChange] = []
    for change in changes:
        if group and change.old_from - group[-1].old_to > 2 * _CONTEXT:
            yield group
            group = []
        group.append(change)
    if group:
        yield group


_MAX_COMPARISONS: Final = 250_000


def file_diff(name: str, old: str | None, new: str | None) -> Iterator[str]:
    """Yields the lines of a unified diff. None stands for a missing file. Lines end at LF only, so that a changed line
    end is shown.
    """
    shown = name.replace("\n", "\\n").replace("\t", "\\t")
    yield f"--- {'/dev/null' if old is None else f'a/{shown}'}"
    yield f"+++ {'/dev/null' if new is None else f'b/{shown}'}"
    before, after = _lines_with_ends(old), _lines_with_ends(new)
    changes = line_changes(before, after, most_comparisons=_MAX_COMPARISONS)
    yield from (row.removesuffix("\n") for row in unified_hunks(before, after, changes))


def _lines_with_ends(text: str | None) -> list[str]:
    return [] if not text else re.findall(r"[^\n]*\n|[^\n]+$", text)
