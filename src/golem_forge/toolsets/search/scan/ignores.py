"""`.gitignore` files: which entries of a tree they leave out.

One Ignores per directory that has such a file, linked to the one above. The nearest file that says anything decides,
in it the last line that matches; `!` takes an entry back in. A line that cannot be understood is skipped.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from .globs import GlobError, compiled

FILE_NAME = ".gitignore"
LARGEST = 1 << 20


@dataclass(frozen=True, slots=True)
class _Line:
    pattern: re.Pattern[str]
    keeps: bool
    only_directories: bool


class Ignores:
    def __init__(self, text: str, depth: int, above: Ignores | None = None) -> None:
        """`depth`: how many components of a path lead to the directory that the file is in."""
        lines = (_line(line) for line in text.removeprefix("\ufeff").split("\n"))
        self._lines = [line for line in reversed(list(lines)) if line is not None]
        self._depth = depth
        self._above = above

    def leave_out(self, parts: tuple[str, ...], is_directory: bool) -> bool:
        """Whether an entry is to be left out; of what is above it nothing is asked."""
        here: Ignores | None = self
        while here is not None:
            path = _by_bytes("/".join(parts[here._depth :]))
            for line in here._lines:
                if (is_directory or not line.only_directories) and line.pattern.fullmatch(path):
                    return not line.keeps
            here = here._above
        return False


def _by_bytes(text: str) -> str:
    """One character per byte: that is what `?` and sets stand for in these files, for git as for ripgrep."""
    return text if text.isascii() else text.encode("utf-8", "surrogateescape").decode("latin-1")


def _line(line: str) -> _Line | None:
    if line.startswith("#"):
        return None
    if not line.endswith("\\ "):
        line = line.rstrip()
    if not line:
        return None
    keeps = anchored = only_directories = False
    if line.startswith(("\\!", "\\#")):
        line = line[1:]
    else:
        if line.startswith("!"):
            keeps, line = True, line[1:]
        if line.startswith("/"):
            anchored, line = True, line[1:]
    if line.endswith("/"):
        only_directories, line = True, line[:-1].removesuffix("\\")
    if not anchored and "/" not in line and line != "**":
        line = f"**/{line}"
    if line.endswith("/**"):
        line += "/*"  # what is in the directory, not the directory itself
    try:
        return _Line(compiled(_by_bytes(line)), keeps, only_directories)
    except (GlobError, re.error):
        return None
