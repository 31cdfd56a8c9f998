"""GrowingText: text that comes in pieces, by position: what a reader who has seen so much has not seen yet."""

from __future__ import annotations

from bisect import bisect_right
from typing import Final

_CHUNK: Final = 4096


class GrowingText:
    """Text by position. With `keep`, only its last so many characters are there; positions count from its start."""

    def __init__(self, keep: int | None = None) -> None:
        self._keep = keep
        self._chunks: list[str] = []
        self._starts: list[int] = []
        self.end = 0
        self.edition = 0

    @property
    def start(self) -> int:
        return self._starts[0] if self._starts else self.end

    def add(self, text: str) -> None:
        if not text:
            return
        if self._chunks and len(self._chunks[-1]) < _CHUNK:
            self._chunks[-1] += text
        else:
            self._chunks.append(text)
            self._starts.append(self.end)
        self.end += len(text)
        if self._keep is not None and self.end - self.start > 2 * self._keep:
            self._trim(self._keep)

    def replace(self, text: str) -> None:
        self._chunks, self._starts, self.end = [], [], 0
        self.edition += 1
        self.add(text)

    def since(self, position: int) -> str:
        if position >= self.end:
            return ""
        first = max(bisect_right(self._starts, position) - 1, 0)
        text = "".join(self._chunks[first:])
        return text[max(position - self._starts[first], 0) :]

    def tail(self) -> tuple[int, str]:
        """(where it begins, what is kept)."""
        text = self.since(self.start)
        kept = text if self._keep is None else text[-self._keep :]
        return self.end - len(kept), kept

    def _trim(self, keep: int) -> None:
        start, text = self.tail()
        self._chunks, self._starts = [text], [start]
