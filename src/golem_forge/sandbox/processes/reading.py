"""Reader: takes one descriptor of a child's output, gives decoded and filtered text to a Capture.

Reads without blocking, whenever the loop finds something there; so a child that writes faster than Forge reads waits.
Threats: a character or a secret divided between two reads (decoder and filter carry over), output without end (all
readers of a child share one Budget of raw bytes; what is past it is read and dropped).
"""

from __future__ import annotations

import asyncio
import codecs
import os
from collections.abc import Callable
from typing import Final, Protocol

from golem_forge.sandbox.processes.capture import Capture

_AT_ONCE: Final = 1 << 18


class TextFilter(Protocol):
    """What every piece of text goes through on its way; may hold back an end that could become something to hide."""

    def feed(self, chunk: str, /) -> str: ...

    def finish(self) -> str: ...


class Budget:
    """How many raw bytes the streams of one child may still give together."""

    def __init__(self, size: int, exceeded: Callable[[], None]) -> None:
        self._left = size
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

    def exceed(self) -> None:
        if not self.over:
            self.over = True
            self._exceeded()


class Reader:
    def __init__(self, descriptor: int, text_filter: TextFilter, budget: Budget) -> None:
        self.capture = Capture()
        self._descriptor = descriptor
        self._open = True
        self._filter = text_filter
        self._budget = budget
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(descriptor, self._read)

    def finish(self) -> None:
        """The tree is gone: takes what is still there, then closes, whoever else may hold the other end."""
        while self._open and self._read():
            pass
        self._stop()
        # A character cut by the budget is no character.
        rest = "" if self._budget.over else self._decoder.decode(b"", final=True)
        self._keep(self._filter.feed(rest) + self._filter.finish())
        self.capture.finish()

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
            self.capture.append(text)
        except OSError:  # no room for the temporary file: the end of what can be kept
            self._budget.exceed()

    def _stop(self) -> None:
        if self._open:
            self._open = False
            self._loop.remove_reader(self._descriptor)
            os.close(self._descriptor)
