"""Globs as `.gitignore` files and ripgrep write them, turned into regular expressions.

`*` and `?` stay within one component, `**` between slashes stands for any number of them, `[a-z]` and `[!a]` are one
character of a set, `{a,b}` one of several, `\\` takes a character as it is. Raises GlobError, which names the position.
"""

from __future__ import annotations

import re
from functools import lru_cache

_PREFIX, _MIDDLE, _SUFFIX = "(?:.*/)?", "(?:/|/.*/)", "/.*"


class GlobError(ValueError):
    """The text names what is wrong and where."""


@lru_cache(maxsize=512)
def compiled(glob: str) -> re.Pattern[str]:
    return re.compile(_Translation(glob).whole(), re.DOTALL)


class _Translation:
    def __init__(self, glob: str) -> None:
        self._glob = glob
        self._at = 0
        self._open: list[int] = []
        """Positions of braces that are not closed yet."""

    def whole(self) -> str:
        parts: list[str] = []
        while self._at < len(self._glob):
            parts.append(self._next())
        if self._open:
            raise GlobError(f"'{{' is never closed at position {self._open[-1]}")
        return "".join(parts)

    def _next(self) -> str:
        char = self._glob[self._at]
        self._at += 1
        if char == "*":
            return self._stars()
        if char == "?":
            return "[^/]"
        if char == "[":
            return self._set()
        if char == "{":
            self._open.append(self._at - 1)
            return "(?:"
        if char == "}":
            if not self._open:
                raise GlobError(f"'}}' closes nothing at position {self._at - 1}")
            self._open.pop()
            return ")"
        if char == "," and self._open:
            return "|"
        if char == "\\":
            if self._at == len(self._glob):
                raise GlobError(f"nothing follows the '\\' at position {self._at - 1}")
            char = self._glob[self._at]
            self._at += 1
        elif char == "/" and self._glob.startswith("**", self._at) and self._glob[self._at + 2 : self._at + 3] in "/":
            return self._between_slashes()
        return re.escape(char)

    def _stars(self) -> str:
        """After one `*`. Two are special only where they fill a whole component."""
        glob, start = self._glob, self._at - 1
        if glob[self._at : self._at + 1] != "*":
            return "[^/]*"
        self._at += 1
        if start == 0 and glob[2:3] in ("", "/"):
            self._at = min(3, len(glob))
            self._skip_more()
            return _PREFIX if self._at < len(glob) else ".*"
        return "[^/]*"

    def _between_slashes(self) -> str:
        """At `/**` that a slash or the end follows."""
        self._at += 2
        if self._at == len(self._glob):
            return _SUFFIX
        self._at += 1
        self._skip_more()
        return _MIDDLE

    def _skip_more(self) -> None:
        """`**/**/` means no more than `**/`, and costs a lot less."""
        while self._glob.startswith("**/", self._at):
            self._at += 3

    def _set(self) -> str:
        glob, start = self._glob, self._at
        negated = glob[start : start + 1] in ("!", "^") and start < len(glob)
        first = start + negated
        end = glob.find("]", first + 1)
        if end < 0:  # never closed: the bracket itself
            return re.escape("[")
        self._at = end + 1
        members = _members(glob[first:end])
        # A set never stands for `/`: the component boundary is what these globs promise to keep.
        return f"(?!/)[{'^' if negated else ''}{members}]"


def _members(inner: str) -> str:
    members: list[str] = []
    while inner:
        if len(inner) > 2 and inner[1] == "-":
            low, high, inner = inner[0], inner[2], inner[3:]
            if low > high:
                raise GlobError(f"the range {low}-{high} is empty")
            members.append(f"{re.escape(low)}-{re.escape(high)}")
        else:
            members.append(re.escape(inner[0]))
            inner = inner[1:]
    return "".join(members)
