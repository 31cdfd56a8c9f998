"""Tail: the last 64 KiB of a text stream. For a child that runs for days and whose words matter only when it fails."""

from __future__ import annotations

from typing import Final

from golem_forge.sandbox.processes.capture import as_bytes

KEPT: Final = 64 << 10


class Tail:
    def __init__(self, size: int = KEPT) -> None:
        self._size = size
        self._kept = bytearray()
        self._whole = True

    def append(self, text: str) -> None:
        data = as_bytes(text)
        self._kept += data[-self._size :]
        if len(data) > self._size or len(self._kept) > self._size:
            self._whole = False
            del self._kept[: len(self._kept) - self._size]

    def finish(self) -> None:
        """Nothing more will come; what is there stays readable."""

    def text(self) -> str:
        """Without the line whose beginning is gone, unless there is no other."""
        text = self._kept.decode("utf-8", "replace")
        _, end, after = text.partition("\n")
        return after if not self._whole and end and after else text

    def lines(self, most: int) -> tuple[str, ...]:
        """The last ones that are not empty."""
        return tuple(line for line in self.text().splitlines() if line.strip())[-most:]
