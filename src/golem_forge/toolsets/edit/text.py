"""A text file as a patch sees it: lines without their ends, and how to write them back byte for byte.

Refuses what is not UTF-8 text. The byte order mark, every kept line's own end and a file's first line end survive.
"""

from __future__ import annotations

import codecs
from collections.abc import Sequence
from functools import cached_property
from typing import NamedTuple

from golem_forge.core.line_diff import Change
from golem_forge.toolsets.edit.failures import PatchFailed
from golem_forge.toolsets.edit.ladder import Readings
from golem_forge.toolsets.numbered import bare, split_lines


class Edit(NamedTuple):
    """Lines `start:stop` of the file (counted from 0) give way to `added`."""

    start: int
    stop: int
    added: tuple[str, ...]


class Written(NamedTuple):
    data: bytes
    changes: list[Change] | None
    """What became of which lines, for the diff; None where lines end in a lone CR, which a diff does not split at."""


class PatchedText:
    def __init__(self, data: bytes, path: str) -> None:
        mark = codecs.BOM_UTF8 if data.startswith(codecs.BOM_UTF8) else b""
        try:
            text = data[len(mark) :].decode()
        except UnicodeDecodeError:
            raise PatchFailed(f"'{path}' is not UTF-8 text.", "NOT_TEXT") from None
        if "\0" in text:
            raise PatchFailed(f"'{path}' is not UTF-8 text.", "NOT_TEXT")
        self.path = path
        self._mark = mark
        self._lines = split_lines(text)
        self._has_lone_cr = "\r" in text.replace("\r\n", "")

    @cached_property
    def readings(self) -> Readings:
        return Readings([bare(line) for line in self._lines])

    @property
    def line_end(self) -> str:
        """That of the first line; a file without any gets LF."""
        first = self._lines[0] if self._lines else ""
        return first[len(bare(first)) :] or "\n"

    def written(self, edits: Sequence[Edit]) -> Written:
        """The new content. Edits are in file order and do not overlap."""
        end = self.line_end
        made: list[str] = []
        changes: list[Change] = []
        at = 0
        for edit in edits:
            made += self._lines[at : edit.start]
            if edit.added:
                self._end_last_line(made, end, changes, edit.start)
            before = len(made)
            made += [line + end for line in edit.added]
            at = edit.stop
            changes.append(Change(edit.start, edit.stop, before, len(made)))
        made += self._lines[at:]
        self._end_last_line(made, end, changes, len(self._lines))
        usable = not self._has_lone_cr and not any("\r" in line for edit in edits for line in edit.added)
        return Written(self._mark + "".join(made).encode(), changes if usable else None)

    @staticmethod
    def _end_last_line(made: list[str], end: str, changes: list[Change], old_count: int) -> None:
        """Only the file's own last line can lack its end; with something after it, or at the end, it gets one."""
        if made and not made[-1].endswith(("\n", "\r")):
            made[-1] += end
            changes.append(Change(old_count - 1, old_count, len(made) - 1, len(made)))
