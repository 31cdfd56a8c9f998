"""What changed between two texts, as the rows of a unified diff.

Threat: comparing can take quadratic time and worse, and whoever wrote a tool may have chosen both texts. So what is the
same at both ends is left out first, and beyond a fixed amount of work the rest is one change: longer than it could be,
and just as true.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

_MOST_COMPARISONS: Final = 250_000
_CONTEXT: Final = 3
_Opcode = tuple[str, int, int, int, int]


def unified(name: str, old: str | None, new: str | None) -> Iterator[str]:
    """None: there is no such file. Lines end at LF only: another line end is a change that must be seen."""
    yield f"--- {'/dev/null' if old is None else f'a/{name}'}"
    yield f"+++ {'/dev/null' if new is None else f'b/{name}'}"
    before, after = _ended_lines(old), _ended_lines(new)
    for row in _rows(before, after):
        yield row[:-1] if row.endswith("\n") else f"{row}\n\\ No newline at end of file"


def _rows(old: list[str], new: list[str]) -> Iterator[str]:
    """Hunks; each row has the line end that its line has."""
    for group in _groups(old, new):
        first, last = group[0], group[-1]
        yield f"@@ -{_span(first[1], last[2])} +{_span(first[3], last[4])} @@\n"
        for tag, old_from, old_to, new_from, new_to in group:
            if tag == "equal":
                yield from (f" {line}" for line in old[old_from:old_to])
                continue
            yield from (f"-{line}" for line in old[old_from:old_to])
            yield from (f"+{line}" for line in new[new_from:new_to])


def _groups(old: list[str], new: list[str]) -> Iterator[list[_Opcode]]:
    shortest = min(len(old), len(new))
    head = 0
    while head < shortest and old[head] == new[head]:
        head += 1
    tail = 0
    while tail < shortest - head and old[-1 - tail] == new[-1 - tail]:
        tail += 1
    start, kept = max(0, head - _CONTEXT), min(tail, _CONTEXT)
    old_end, new_end = len(old) - tail, len(new) - tail
    if (old_end - head) * (new_end - head) > _MOST_COMPARISONS:
        whole: _Opcode = ("replace", head, old_end, head, new_end)
        before: _Opcode = ("equal", start, head, start, head)
        yield [before, whole, ("equal", old_end, old_end + kept, new_end, new_end + kept)]
        return
    from difflib import SequenceMatcher

    matcher = SequenceMatcher(None, old[start : old_end + kept], new[start : new_end + kept])
    for group in matcher.get_grouped_opcodes(_CONTEXT):
        yield [(tag, a + start, b + start, c + start, d + start) for tag, a, b, c, d in group]


def _span(start: int, end: int) -> str:
    """Counted from 1; an empty span stands after the line before it."""
    count = end - start
    first = start + 1 if count else start
    return str(first) if count == 1 else f"{first},{count}"


def _ended_lines(text: str | None) -> list[str]:
    return [] if not text else re.findall(r"[^\n]*\n|[^\n]+$", text)
