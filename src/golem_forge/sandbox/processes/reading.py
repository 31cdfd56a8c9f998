"""Reader: takes one descriptor of a child's output, gives decoded and filtered text to a Keeper.

Reads without blocking, whenever the loop finds something there; so a child that writes faster than Forge reads waits.
Threats: a character or a secret divided between two reads (decoder and filter carry over), output without end (all
readers of a child share one Budget; what is past it is read and dropped, and so is an end the filter held back: it
may be the beginning of a secret). Bytes that are no text pass as lone surrogates and are the same bytes in a Capture.
"""

from __future__ import annotations

import asyncio
import codecs
import os
from collections.abc import Callable
from typing import Final, Protocol

from golem_forge.sandbox.processes.capture import Capture, as_bytes

_AT_ONCE: Final = 1 << 18


def _decoder() -> codecs.IncrementalDecoder:
    return codecs.getincrementaldecoder("utf-8")("surrogateescape")


class TextFilter(Protocol):
    """What every piece of text goes through on its way; may hold back an end that could become something to hide."""

    def feed(self, chunk: str, /) -> str: ...

    def finish(self) -> str: ...


class Keeper(Protocol):
    """Where the text goes."""

    def append(self, text: str, /) -> None: ...

    def finish(self) -> None: ...


class Budget:
    """How many bytes the streams of one child may still give together, as they come and as text that is kept."""

    def __init__(self, size: int, exceeded: Callable[[], None]) -> None:
        self._left = size
        self._room = size
        self._exceeded = exceeded
        self.over = False

    def take(self, data: bytes) -> bytes:
        """As much of `data` as may be kept."""
        if len(data) <= self._left:
            self._left -= len(data)
            return data
        kept, self._left = data[: self._left], 0
        self.exceed()
        return kept

    def fit(self, text: str) -> str:
        """As much of a text as may be kept."""
        if text.isascii() and len(text) <= self._room:
            self._room -= len(text)
            return text
        data = as_bytes(text)
        if len(data) <= self._room:
            self._room -= len(data)
            return text
        kept, self._room = _decoder().decode(data[: self._room]), 0  # without a character that the cut divides
        self.exceed()
        return kept

    def exceed(self) -> None:
        if not self.over:
            self.over = True
            self._exceeded()


class Reader:
    def __init__(self, descriptor: int, text_filter: TextFilter, budget: Budget, keeper: Keeper | None = None) -> None:
        """Without a `keeper` everything is kept, in `capture`."""
        self.capture = Capture()
        self._keeper = keeper or self.capture
        self._descriptor = descriptor
        self._open = True
        self._filter = text_filter
        self._budget = budget
        self._decoder = _decoder()
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(descriptor, self._read)

    def catch_up(self) -> None:
        """Takes what waits already; a pipe holds less than is read at once."""
        if self._open:
            self._read()

    def finish(self) -> None:
        """The tree is gone: takes what is still there, then closes, whoever else may hold the other end."""
        while self._open and self._read():
            pass
        self._stop()
        if not self._budget.over:  # a character or a secret cut by the budget is neither
            self._keep(self._filter.feed(self._decoder.decode(b"", final=True)) + self._filter.finish())
        self._keeper.finish()

    def _read(self) -> bool:
        try:
            data = os.read(self._descriptor, _AT_ONCE)
        except BlockingIOError:
            return False
        except InterruptedError:
            return True
        except OSError:  # EIO: nobody holds the terminal's other side any more
            data = b""
        if not data:
            self._stop()
            return False
        if not self._budget.over and (kept := self._budget.take(data)):
            self._keep(self._filter.feed(self._decoder.decode(kept)))
        return not self._budget.over

    def _keep(self, text: str) -> None:
        try:
            self._keeper.append(self._budget.fit(text))
        except OSError:  # no room for the temporary file: the end of what can be kept
            self._budget.exceed()

    def _stop(self) -> None:
        if self._open:
            self._open = False
            self._loop.remove_reader(self._descriptor)
            os.close(self._descriptor)
