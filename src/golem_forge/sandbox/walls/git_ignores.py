"""`.gitignore` lines as git reads them: which entries of a work tree git does not show.

One Ignores per file, linked to the one above. The nearest file that says anything decides, in it the last line that
matches; `!` takes an entry back. Threat: the child whose files are looked for wrote these lines. So they are read as
git reads them, to the letter (character classes, escapes, no braces: ripgrep's dialect, which the search tools follow,
differs in these), and no pattern takes longer than one step for each character of the path: it is a set of states
moved along by bit operations, never a regular expression.
"""

from __future__ import annotations

import string
from collections.abc import Callable
from typing import Final

LARGEST: Final = 1 << 16
"""Bytes of a file that are read; one that has more counts as hiding everything."""
_LONGEST: Final = 1024
"""Characters of a line that is compared: one that has more matches everything, or nothing if it begins with `!`."""
_LINES_PER_CLOCK: Final = 32
_LITERAL, _ONE, _STAR, _SLASH_STAR, _ENTER = range(5)
_WILD: Final = frozenset("*?[\\")
_CLASSES: Final = {
    "alnum": string.ascii_letters + string.digits,
    "alpha": string.ascii_letters,
    "blank": " \t",
    "cntrl": "".join(map(chr, (*range(32), 127))),
    "digit": string.digits,
    "graph": "".join(map(chr, range(33, 127))),
    "lower": string.ascii_lowercase,
    "print": "".join(map(chr, range(32, 127))),
    "punct": string.punctuation,
    "space": " \t\n\r\f\v",
    "upper": string.ascii_uppercase,
    "xdigit": string.hexdigits,
}
_ANY: Final = frozenset(map(chr, range(256))) - {"/"}

Token = tuple[int, frozenset[str]]


class Ignores:
    def __init__(self, data: bytes, depth: int, above: Ignores | None = None) -> None:
        """`data`: a file's content; `depth`: how many components lead to the directory that the file is in."""
        text = data.removeprefix(b"\xef\xbb\xbf").decode("latin-1")
        lines = (_line(line) for line in text.split("\n"))
        self._lines = [line for line in reversed(list(lines)) if line is not None]
        self._depth = depth
        self._above = above

    def leave_out(
        self, parts: tuple[str, ...], is_directory: bool, is_over: Callable[[], bool] = lambda: False
    ) -> bool:
        """Whether git leaves an entry out; of what is above it nothing is asked. `is_over`: no time is left to compare;
        the entry then counts as left out."""
        here: Ignores | None = self
        compared = 0
        while here is not None:
            path = "/".join(parts[here._depth :]).encode("utf-8", "surrogateescape").decode("latin-1")
            name = path.rpartition("/")[2]
            for line in here._lines:
                compared += 1
                if not compared % _LINES_PER_CLOCK and is_over():
                    return True
                if (is_directory or not line.only_directories) and line.matches(path, name):
                    return not line.keeps
            here = here._above
        return False


class _Line:
    def __init__(self, pattern: str, *, keeps: bool, only_directories: bool) -> None:
        self.keeps = keeps
        self.only_directories = only_directories
        self._by_name = "/" not in pattern
        pattern = pattern.removeprefix("/")
        wild = next((index for index, char in enumerate(pattern) if char in _WILD), len(pattern))
        self._whole = pattern if wild == len(pattern) else None
        """A pattern without wildcards is compared as it is."""
        tail = pattern[1:]
        self._ending = tail if self._by_name and pattern[:1] == "*" and not _WILD & set(tail) else None
        self._literal = pattern[:wild]
        """Git compares what stands before the first wildcard, and begins to match after it."""
        rest = None if self._whole is not None else _tokens(pattern[wild:], by_name=self._by_name)
        self._states = None if rest is None else _States(rest)

    def matches(self, path: str, name: str) -> bool:
        text = name if self._by_name else path
        if self._whole is not None:
            return text == self._whole
        if self._ending is not None:
            return text.endswith(self._ending)
        if self._states is None or not text.startswith(self._literal):
            return False
        return self._states.match(text[len(self._literal) :])


class _States:
    """Which tokens may come next, as bits, while a text is read."""

    def __init__(self, tokens: list[Token]) -> None:
        self._tokens = tokens
        self._steps: dict[str, int] = {}
        self._end = 1 << len(tokens)
        self._stars = self._mask(_STAR)
        self._slash_stars = self._mask(_SLASH_STAR)
        self._enters = self._mask(_ENTER)

    def match(self, text: str) -> bool:
        now = self._without_reading(1)
        for char in text:
            kept = now & self._slash_stars
            if char != "/":
                kept |= now & self._stars
            now = self._without_reading(kept | (now & self._step(char)) << 1)
            if not now:
                return False
        return bool(now & self._end)

    def _without_reading(self, now: int) -> int:
        while True:
            wider = now | (now & (self._stars | self._slash_stars | self._enters)) << 1 | (now & self._enters) << 3
            if wider == now:
                return now
            now = wider

    def _step(self, char: str) -> int:
        found = self._steps.get(char)
        if found is None:
            found = sum(1 << index for index, (_, chars) in enumerate(self._tokens) if char in chars)
            self._steps[char] = found
        return found

    def _mask(self, wanted: int) -> int:
        return sum(1 << index for index, (kind, _) in enumerate(self._tokens) if kind == wanted)


def _line(line: str) -> _Line | None:
    if not line or line.startswith("#"):
        return None
    line = _trimmed(line.removesuffix("\r").partition("\0")[0])
    keeps = line.startswith("!")
    line = line[keeps:]
    only_directories = line.endswith("/")
    line = line.removesuffix("/")
    if len(line) > _LONGEST:
        return None if keeps else _Line("*", keeps=False, only_directories=False)
    return _Line(line, keeps=keeps, only_directories=only_directories) if line else None


def _trimmed(line: str) -> str:
    """Without the spaces at its end, but for one that a backslash keeps."""
    end, index = len(line), 0
    spaces = -1
    while index < len(line):
        if line[index] == " ":
            spaces = index if spaces < 0 else spaces
        else:
            spaces = -1
            if line[index] == "\\":
                index += 1
                if index == len(line):
                    return line
        index += 1
    return line[: end if spaces < 0 else spaces]


def _tokens(pattern: str, *, by_name: bool) -> list[Token] | None:
    """None: git never matches it."""
    tokens: list[Token] = []
    at = 0
    while at < len(pattern):
        char = pattern[at]
        if char == "*":
            start = at
            while pattern[at : at + 1] == "*":
                at += 1
            after = pattern[at : at + 1] in ("", "/") or pattern[at : at + 2] == "\\/"
            if at - start > 1 and not by_name and (start == 0 or pattern[start - 1] == "/") and after:
                if pattern[at : at + 1] == "/":
                    tokens.append((_ENTER, frozenset()))  # `**/` may stand for nothing
                tokens.append((_SLASH_STAR, frozenset()))
            else:
                tokens.append((_STAR, frozenset()))
            continue
        at += 1
        if char == "?":
            tokens.append((_ONE, _ANY))
        elif char == "[":
            found = _set(pattern, at)
            if found is None:
                return None
            members, at = found
            tokens.append((_ONE, members))
        else:
            if char == "\\":
                if at == len(pattern):
                    return None
                char = pattern[at]
                at += 1
            tokens.append((_LITERAL, frozenset(char)))
    return tokens


def _set(pattern: str, at: int) -> tuple[frozenset[str], int] | None:
    """After a `[`: its members and where it ends. A set never stands for a slash."""
    negated = pattern[at : at + 1] in ("!", "^") and at < len(pattern)
    at += negated
    members: set[str] = set()
    before = ""
    first = True
    while first or pattern[at : at + 1] != "]":
        first = False
        if at >= len(pattern):
            return None
        char = pattern[at]
        if char == "-" and before and pattern[at + 1 : at + 2] not in ("", "]"):
            at += 1
            if pattern[at] == "\\":
                at += 1
            if at >= len(pattern):
                return None
            members |= set(map(chr, range(ord(before), ord(pattern[at]) + 1)))
            before = ""
        elif char == "[" and pattern[at + 1 : at + 2] == ":":
            end = pattern.find("]", at + 2)
            if end < 0:
                return None
            name = pattern[at + 2 : end]
            if name.endswith(":"):
                if name[:-1] not in _CLASSES:
                    return None
                members |= set(_CLASSES[name[:-1]])
                at, before = end, ""
            else:  # no `:]`: an ordinary bracket
                members.add("[")
                before = "["
        else:
            if char == "\\":
                at += 1
                if at >= len(pattern):
                    return None
                char = pattern[at]
            members.add(char)
            before = char
        at += 1
    return (_ANY - members if negated else frozenset(members) - {"/"}), at + 1
