"""Unified diffs for approval: over virtual paths, from the very bytes that are there and that will be written.

Complete in what is written, always. What is replaced is shown line by line unless it is binary or too large; then a
line says so. Threat: comparing can take quadratic time, and a plan cannot be interrupted, so beyond a fixed amount of
work the differing middle is shown as one block: longer than it could be, and just as true.
"""

from __future__ import annotations

import hashlib
import io
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from golem_forge.toolsets.content import looks_binary

COMPARE_LIMIT: Final = 16 * 1024 * 1024
"""Old content up to this size is compared; a larger one is replaced whole."""
DIFF_LIMIT: Final = 1024 * 1024
"""A longer diff is given up for the new content alone: nobody reads a megabyte of removed lines."""
_MOST_COMPARISONS: Final = 4_000_000
_CONTEXT: Final = 3


class Change(NamedTuple):
    """Lines `old_from:old_to` become `new_from:new_to` (counted from 0, ends not included)."""

    old_from: int
    old_to: int
    new_from: int
    new_to: int


def unified_diff(
    path: str, old: bytes | None, new: bytes | None, *, changes: Sequence[Change] | None = None, moved_from: str = ""
) -> str:
    """What changes at a virtual path; None: no file there. Empty when nothing changes.

    Who knows which lines changed says so (`changes`, in order) and saves the search; what is not true is not believed.
    `moved_from` is the path the old content has.
    """
    if old == new:
        return ""
    header = _header(path, old is not None, new is not None, moved_from)
    if old and looks_binary(old):
        return header + _replaced(f"{_described(old)} is binary", new)
    if old and len(old) > COMPARE_LIMIT:
        return header + _replaced(f"{_described(old)} is too large to show", new)
    old_lines, new_lines = _lines(old), _lines(new)
    if changes is None or not _is_all(changes, old_lines, new_lines):
        changes = _changes(old_lines, new_lines)
    text = header + "".join(_hunks(old_lines, new_lines, changes))
    if old and len(text) > DIFF_LIMIT:
        return header + _replaced(f"{_described(old)} is too large to show", new)
    return _without_stray_bytes(text)


def replaced_whole(path: str, old_size: int, new: bytes) -> str:
    """The same for an old content too large even to be read."""
    return _header(path, True, True) + _replaced(f"The old content ({old_size} bytes) is too large to show", new)


def replaced_secret(path: str, old_size: int, new: bytes) -> str:
    """The same for an old content that nobody asked to read: a write must not show it to a prompt, event or log."""
    return _header(path, True, True) + _replaced(f"The old content ({old_size} bytes) is a secret and not shown", new)


def _header(path: str, had: bool, has: bool, moved_from: str = "") -> str:
    return f"--- {f'a{moved_from or path}' if had else '/dev/null'}\n+++ {f'b{path}' if has else '/dev/null'}\n"


def _described(old: bytes) -> str:
    return f"The old content ({len(old)} bytes, sha256 {hashlib.sha256(old).hexdigest()})"


def _replaced(why: str, new: bytes | None) -> str:
    what = "removed" if new is None else "replaced whole"
    lines = _lines(new)
    return _without_stray_bytes(f"# {why}; it is {what}.\n" + "".join(_hunks([], lines, _changes([], lines))))


def _lines(data: bytes | None) -> list[str]:
    """Split at LF only: a changed line end is a change that must be seen. Bytes that are no UTF-8 are kept apart."""
    return list(io.StringIO((data or b"").decode("utf-8", "surrogateescape"), newline="\n"))


def _without_stray_bytes(text: str) -> str:
    return text if text.isascii() else text.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")


def _hunks(old: list[str], new: list[str], changes: Sequence[Change]) -> Iterator[str]:
    for group in _grouped(changes):
        start, end = group[0], group[-1]
        before = min(_CONTEXT, start.old_from)
        after = min(_CONTEXT, len(old) - end.old_to)
        spans = (
            _span(start.old_from - before, end.old_to + after),
            _span(start.new_from - before, end.new_to + after),
        )
        yield f"@@ -{spans[0]} +{spans[1]} @@\n"
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


def _grouped(changes: Sequence[Change]) -> Iterator[list[Change]]:
    """Changes whose context would touch belong into one hunk."""
    group: list[Change] = []
    for change in changes:
        if group and change.old_from - group[-1].old_to > 2 * _CONTEXT:
            yield group
            group = []
        group.append(change)
    if group:
        yield group


def _is_all(changes: Sequence[Change], old: list[str], new: list[str]) -> bool:
    """Whether nothing else differs: what stands between the changes, before and after them is the same in both."""
    old_at = new_at = 0
    for change in (*changes, Change(len(old), len(old), len(new), len(new))):
        if change.old_from < old_at or change.new_from < new_at:
            return False
        if old[old_at : change.old_from] != new[new_at : change.new_from]:
            return False
        old_at, new_at = change.old_to, change.new_to
    return True


def _changes(old: list[str], new: list[str]) -> list[Change]:
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
    if not old_middle or not new_middle or len(old_middle) * len(new_middle) > _MOST_COMPARISONS:
        return [Change(head, len(old) - tail, head, len(new) - tail)]
    from difflib import SequenceMatcher

    opcodes = SequenceMatcher(None, old_middle, new_middle).get_opcodes()
    return [Change(head + a, head + b, head + c, head + d) for tag, a, b, c, d in opcodes if tag != "equal"]
