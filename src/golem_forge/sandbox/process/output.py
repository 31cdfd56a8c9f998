"""A child's output: read without blocking, decoded, filtered, kept whole (Capture) or only its end (TailBuffer).

OutputReader takes one descriptor and feeds an OutputSink; a child that writes faster than Forge reads waits.
Capture keeps up to 1 MiB in memory and everything past that in an unlinked temporary file. Only whole characters
come in, and no read divides one; bytes that are not UTF-8 pass as lone surrogates and are the same bytes in a
Capture. Threats: a character or a secret divided between two reads (decoder and filter carry over); output without
end (all readers of a child share one OutputBudget; what is past it is dropped, and so is an end the filter held
back: it may be the beginning of a secret).
"""

from __future__ import annotations

import asyncio
import codecs
import contextlib
import os
import tempfile
from collections.abc import Callable, Iterator
from typing import Final, Protocol

IN_MEMORY: Final = 1 << 20
_PIECE: Final = 1 << 18
_LONGEST_CHARACTER: Final = 4


class Capture:
    def __init__(self) -> None:
        self.size = 0
        """Bytes so far."""
        self.complete = False
        """Nothing more will come."""
        self._memory = bytearray()
        self._file: int | None = None
        self._waiters: set[asyncio.Future[None]] = set()

    def append(self, text: str) -> None:
        """`text`: bytes that are none come as lone surrogates (`surrogateescape`). May raise OSError when the
        temporary file cannot grow; what came before stays readable."""
        data = as_bytes(text)
        if not data:
            return
        if self._file is None and self.size + len(data) <= IN_MEMORY:
            self._memory += data
        else:
            self._spool(data)
        self.size += len(data)
        self._wake()

    def finish(self) -> None:
        self.complete = True
        self._wake()

    def read(self, start: int = 0, end: int | None = None) -> bytes:
        """A bound inside a character counts as the beginning of that character."""
        start, end = self._bounds(start, end)
        return self._raw(start, end)

    def pieces(self, start: int = 0, end: int | None = None) -> Iterator[bytes]:
        """Yields the text in pieces of at most 256 KiB, each of whole characters."""
        start, end = self._bounds(start, end)
        while start < end:
            cut = end if end - start <= _PIECE else self._character_start(start + _PIECE)
            yield self._raw(start, cut)
            start = cut

    async def more(self, than: int, seconds: float) -> bool:
        """Waits until there are more than `than` bytes, the end, or `seconds` are over; whether there are more."""
        loop = asyncio.get_running_loop()
        until = loop.time() + seconds
        while self.size <= than and not self.complete and (left := until - loop.time()) > 0:
            waiter: asyncio.Future[None] = loop.create_future()
            self._waiters.add(waiter)
            try:
                await asyncio.wait([waiter], timeout=left)
            finally:
                self._waiters.discard(waiter)
        return self.size > than

    def close(self) -> None:
        """Forgets the text; what was kept elsewhere is not touched."""
        self.size = 0
        self._memory = bytearray()
        if self._file is not None:
            os.close(self._file)
            self._file = None

    def __del__(self) -> None:
        if self._file is not None:
            with contextlib.suppress(OSError):
                os.close(self._file)

    def _wake(self) -> None:
        for waiter in self._waiters:
            if not waiter.done():
                waiter.set_result(None)

    def _spool(self, data: bytes) -> None:
        if self._file is None:
            with tempfile.TemporaryFile(prefix="forge-output-", buffering=0) as made:
                _write_all(made.fileno(), self._memory, 0)
                self._file = os.dup(made.fileno())
            self._memory = bytearray()
        _write_all(self._file, data, self.size)

    def _bounds(self, start: int, end: int | None) -> tuple[int, int]:
        last = self.size if end is None else min(max(end, 0), self.size)
        return self._character_start(min(max(start, 0), self.size)), self._character_start(last)

    def _character_start(self, place: int) -> int:
        if place >= self.size:
            return self.size
        first = max(0, place - _LONGEST_CHARACTER + 1)
        around = self._raw(first, place + 1)
        while around and around[-1] & 0xC0 == 0x80:
            around = around[:-1]
        return first + len(around) - 1 if around else place

    def _raw(self, start: int, end: int) -> bytes:
        if self._file is None:
            return bytes(self._memory[start:end])
        found = bytearray()
        while len(found) < end - start:
            data = os.pread(self._file, end - start - len(found), start + len(found))
            if not data:
                break
            found += data
        return bytes(found)


def as_bytes(text: str) -> bytes:
    """Returns the bytes that a child wrote, from which this text was decoded. Text from a filter may hold a surrogate
    that stands for no byte; it is replaced.
    """
    try:
        return text.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        return text.encode("utf-8", "replace")


def _write_all(file: int, data: bytes | bytearray, place: int) -> None:
    view = memoryview(data)
    while view:
        written = os.pwrite(file, view, place)
        view, place = view[written:], place + written


_AT_ONCE: Final = 1 << 18


def _decoder() -> codecs.IncrementalDecoder:
    return codecs.getincrementaldecoder("utf-8")("surrogateescape")


class TextFilter(Protocol):
    """A filter for every piece of text; it may hold back an end that could become something to hide."""

    def feed(self, chunk: str, /) -> str: ...

    def finish(self) -> str: ...


class OutputSink(Protocol):
    """The destination of the text."""

    def append(self, text: str, /) -> None: ...

    def finish(self) -> None: ...


class OutputBudget:
    """The bytes that all streams of one child may still produce, both raw and as stored text."""

    def __init__(self, size: int, exceeded: Callable[[], None]) -> None:
        self._left = size
        self._room = size
        self._exceeded = exceeded
        self.over = False

    def take(self, data: bytes) -> bytes:
        """Returns the part of `data` that fits into the budget."""
        if len(data) <= self._left:
            self._left -= len(data)
            return data
        kept, self._left = data[: self._left], 0
        self.exceed()
        return kept

    def fit(self, text: str) -> str:
        """Returns the part of a text that fits into the budget."""
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


class OutputReader:
    def __init__(
        self, descriptor: int, text_filter: TextFilter, budget: OutputBudget, keeper: OutputSink | None = None
    ) -> None:
        """Without a `keeper` everything is stored in `capture`."""
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


TAIL_BYTES: Final = 64 << 10


class TailBuffer:
    def __init__(self, size: int = TAIL_BYTES) -> None:
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
        """Does nothing: the text stays readable."""

    def text(self) -> str:
        """Returns the text without a first line whose beginning is lost, unless it is the only line."""
        text = self._kept.decode("utf-8", "replace")
        _, end, after = text.partition("\n")
        return after if not self._whole and end and after else text

    def lines(self, most: int) -> tuple[str, ...]:
        """Returns the last lines that are not empty."""
        return tuple(line for line in self.text().splitlines() if line.strip())[-most:]
