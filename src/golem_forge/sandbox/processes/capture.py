"""Capture: the text of one output stream, kept whole and readable while it grows.

Up to 1 MiB stays in memory; past that everything is in an unlinked temporary file, so a loud child costs disk and not
Forge's memory. Only whole characters come in, and no read divides one. Bytes that are no text are kept as they came,
so whoever wants text decodes with `replace`.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import tempfile
from collections.abc import Iterator
from typing import Final

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
        """The same text in pieces of at most 256 KiB, each of whole characters."""
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
    """What a child wrote, of which this text was decoded. A filter's own words may hold a surrogate that stands for no
    byte."""
    try:
        return text.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        return text.encode("utf-8", "replace")


def _write_all(file: int, data: bytes | bytearray, place: int) -> None:
    view = memoryview(data)
    while view:
        written = os.pwrite(file, view, place)
        view, place = view[written:], place + written
