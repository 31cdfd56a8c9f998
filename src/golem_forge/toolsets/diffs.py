"""Unified diffs for approval: over virtual paths, from the very bytes that are there and that will be written.

Complete in what is written, always. What is replaced is shown line by line unless it is binary or too large; then a
line says so. Threat: comparing can take quadratic time, and a plan cannot be interrupted, so beyond a fixed amount of
work the differing middle is shown as one block: longer than it could be, and just as true.
"""

from __future__ import annotations

import hashlib
import io
from collections.abc import Sequence
from typing import Final

from golem_forge.core.line_diff import Change, changes_between, hunks, is_all
from golem_forge.toolsets.content import looks_binary

COMPARE_LIMIT: Final = 16 * 1024 * 1024
"""Old content up to this size is compared; a larger one is replaced whole."""
DIFF_LIMIT: Final = 1024 * 1024
"""A longer diff is given up for the new content alone: nobody reads a megabyte of removed lines."""
_MOST_COMPARISONS: Final = 4_000_000


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
    if changes is None or not is_all(changes, old_lines, new_lines):
        changes = changes_between(old_lines, new_lines, most_comparisons=_MOST_COMPARISONS)
    text = header + "".join(hunks(old_lines, new_lines, changes))
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
    whole = [Change(0, 0, 0, len(lines))] if lines else []
    return _without_stray_bytes(f"# {why}; it is {what}.\n" + "".join(hunks([], lines, whole)))


def _lines(data: bytes | None) -> list[str]:
    """Split at LF only: a changed line end is a change that must be seen. Bytes that are no UTF-8 are kept apart."""
    return list(io.StringIO((data or b"").decode("utf-8", "surrogateescape"), newline="\n"))


def _without_stray_bytes(text: str) -> str:
    return text if text.isascii() else text.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")
