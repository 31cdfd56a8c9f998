"""sys.stdout and sys.stderr while the screen is drawn: what other code prints appears above it, whole lines at a time.

May be written from any thread. What is printed there is shown with its control characters escaped.
"""

from __future__ import annotations

import asyncio
import contextlib
import io
import sys
from collections.abc import Callable, Iterator
from typing import TextIO

from golem_forge.ui.terminal.palette import plain


class LinesAbove(io.TextIOBase):
    def __init__(self, original: TextIO, put: Callable[[str], None], loop: asyncio.AbstractEventLoop) -> None:
        self._original = original
        self._put = put
        self._loop = loop
        self._rest = ""

    def write(self, text: str) -> int:
        whole, separator, self._rest = (self._rest + text).rpartition("\n")
        if separator:
            with contextlib.suppress(RuntimeError):  # the loop is closed: nothing is drawn any more
                self._loop.call_soon_threadsafe(self._put, plain(whole) + "\n")
        return len(text)

    def fileno(self) -> int:
        return self._original.fileno()

    @property
    def encoding(self) -> str:  # type: ignore[override]
        return self._original.encoding

    def isatty(self) -> bool:
        return self._original.isatty()

    @property
    def rest(self) -> str:
        """What has no line end yet."""
        return plain(self._rest)


@contextlib.contextmanager
def printed_above(put: Callable[[str], None]) -> Iterator[None]:
    originals = sys.stdout, sys.stderr
    loop = asyncio.get_running_loop()
    borrowed = [LinesAbove(original, put, loop) for original in originals]
    sys.stdout, sys.stderr = borrowed
    try:
        yield
    finally:
        if sys.stdout is borrowed[0]:
            sys.stdout = originals[0]
        if sys.stderr is borrowed[1]:
            sys.stderr = originals[1]
        for each in borrowed:
            if each.rest:
                put(each.rest + "\n")
