"""Pipes: standard input and output of a server, ours to write to and to read from, without blocking."""

from __future__ import annotations

import os


class Pipes:
    def __init__(self) -> None:
        """Raises OSError where no descriptor is left."""
        self._ends: dict[str, int] = {}
        self._make("their stdin", "stdin")
        self._make("stdout", "their stdout")
        for ours in (self.stdin, self.stdout):
            os.set_blocking(ours, False)

    @property
    def stdin(self) -> int:
        return self._ends["stdin"]

    @property
    def stdout(self) -> int:
        return self._ends["stdout"]

    @property
    def theirs(self) -> tuple[int, int]:
        """What the child reads from and writes to; it gets copies."""
        return self._ends["their stdin"], self._ends["their stdout"]

    def close_theirs(self) -> None:
        self._close("their stdin", "their stdout")

    def close_stdin(self) -> None:
        self._close("stdin")

    def close(self) -> None:
        self._close(*self._ends)

    def _make(self, reading: str, writing: str) -> None:
        try:
            self._ends[reading], self._ends[writing] = os.pipe()
        except OSError:
            self.close()
            raise

    def _close(self, *ends: str) -> None:
        for end in ends:
            if end in self._ends:
                os.close(self._ends.pop(end))
