"""Which lines of a file's bytes does a pattern match? Text is UTF-8, or UTF-16 with a mark; lines end at LF.

A file with a NUL byte near its beginning is binary and has no lines. One further on is a character like others, only
that a walk through a tree takes it for a line's end while it chooses files: what ripgrep can do without keeping a
binary file's endless line in memory.
"""

from __future__ import annotations

import codecs
import re
from collections.abc import Iterator

SAMPLE = 8192
_PLAIN = re.compile(r"[^.^$*+?{}\[\]\\|()]+")
_CAREFUL = re.compile(r"\(\?(?!:|P?<[A-Za-z_])|\\[AZzsWDxuUNnrtfv0-9]|\[\^|[*+?}]\+|[\x00-\x1f]")
"""What may match a line by itself but not in the middle of a text, or could run over many lines there."""


_UTF_16 = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)


def is_binary(sample: bytes) -> bool:
    return b"\0" in sample and not sample.startswith(_UTF_16)


class Matcher:
    def __init__(self, pattern: str, ignore_case: bool) -> None:
        flags = re.IGNORECASE if ignore_case else 0
        self._line = re.compile(pattern, flags)
        self._literal = pattern.encode() if _PLAIN.fullmatch(pattern) and not ignore_case else b""
        self._anywhere = None if _CAREFUL.search(pattern) else re.compile(pattern, flags | re.MULTILINE)

    def finds(self, data: bytes, *, named: bool) -> bool:
        """Whether a file is one of those found. `named`: it was asked for itself, not met on a walk."""
        if is_binary(data[:SAMPLE]):
            return False
        if not named and b"\0" in data and not data.startswith(_UTF_16):
            data = data.replace(b"\0", b"\n")
        return next(self._matches(data), None) is not None

    def lines(self, data: bytes, *, named: bool) -> Iterator[tuple[int, str]]:
        """(number from 1, text without its end), of a file that is found."""
        if named or b"\0" not in data or self.finds(data, named=False):
            yield from self._matches(data)

    def _matches(self, data: bytes) -> Iterator[tuple[int, str]]:
        text = self._text(data)
        if text is None or (self._anywhere is not None and not self._anywhere.search(text)):
            return
        search = self._line.search
        lines = text.split("\n")
        if not lines[-1]:
            lines.pop()
        for number, line in enumerate(lines, 1):
            if search(line):
                yield number, line.removesuffix("\r")

    def _text(self, data: bytes) -> str | None:
        """None: nothing to find here."""
        if data.startswith(_UTF_16):
            return data.decode("utf-16", "replace")
        if is_binary(data[:SAMPLE]):
            return None
        if self._literal and self._literal not in data:
            return None
        return data.removeprefix(codecs.BOM_UTF8).decode("utf-8", "replace")
