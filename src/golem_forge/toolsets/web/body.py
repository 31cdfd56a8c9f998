"""The body of one answer: unchunked, inflated, bounded. Takes a reader and the headers, gives the plain bytes.

Raises BodyTooLarge as soon as there is one byte too many, and ToolFailed for a body that ends early or is damaged.
Threat: a server may lie about lengths, never stop, or send a small archive of something huge; so nothing is inflated
further than one piece beyond the limit, and no length is believed.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Final

from golem_forge.core.errors import ToolFailed

if TYPE_CHECKING:
    from asyncio import StreamReader

ACCEPTED: Final = "gzip, deflate"
"""What can be inflated piece by piece with a bound; nothing else is asked for."""
_PIECE: Final = 1 << 16
_SIZE_LINE: Final = re.compile(rb"([0-9A-Fa-f]{1,15})[ \t]*(;[^\r\n]*)?\r?\n")
_MOST_TRAILERS: Final = 100
_DAMAGED: Final = "The server's page is damaged (chunked encoding)."


class BodyTooLarge(Exception):
    pass


async def read_body(reader: StreamReader, headers: Mapping[str, str], limit: int) -> bytes:
    encoding = headers.get("content-encoding", "").strip().lower()
    body = bytearray()

    def keep(piece: bytes) -> None:
        body.extend(piece)
        if len(body) > limit:
            raise BodyTooLarge

    if encoding in ("", "identity"):
        await _receive(reader, headers, keep)
    elif encoding in ("gzip", "x-gzip", "deflate"):
        inflating = _Inflating(keep, gzip=encoding != "deflate")
        await _receive(reader, headers, inflating.feed)
        inflating.finish()
    else:
        raise ToolFailed(f"The server sent an encoding that was not asked for: {encoding[:40]!a}.")
    return bytes(body)


def declared_length(headers: Mapping[str, str]) -> int | None:
    """How many bytes the server says it will send; None where it does not say."""
    text = headers.get("content-length", "")
    if "transfer-encoding" in headers or not text:
        return None
    values = {each.strip() for each in text.split(",")}
    only = values.pop()
    if values or not re.fullmatch(r"[0-9]{1,15}", only, re.ASCII):
        raise ToolFailed("The server's Content-Length is not a number.")
    return int(only)


async def _receive(reader: StreamReader, headers: Mapping[str, str], take: Callable[[bytes], None]) -> None:
    if transfer := headers.get("transfer-encoding", "").strip().lower():
        if transfer != "chunked":
            raise ToolFailed(f"The server sent a transfer encoding that is not known: {transfer[:40]!a}.")
        await _receive_chunks(reader, take)
    elif (length := declared_length(headers)) is not None:
        await _receive_exactly(reader, length, take)
    else:
        while piece := await reader.read(_PIECE):
            take(piece)


async def _receive_exactly(reader: StreamReader, length: int, take: Callable[[bytes], None]) -> None:
    while length:
        piece = await reader.read(min(length, _PIECE))
        if not piece:
            raise ToolFailed(f"The connection ended {length} bytes before the end of the page.")
        length -= len(piece)
        take(piece)


async def _receive_chunks(reader: StreamReader, take: Callable[[bytes], None]) -> None:
    while True:
        found = _SIZE_LINE.fullmatch(await _line(reader))
        if found is None:
            raise ToolFailed(_DAMAGED)
        size = int(found[1], 16)
        if not size:
            break
        await _receive_exactly(reader, size, take)
        if (await _line(reader)).strip():
            raise ToolFailed(_DAMAGED)
    for _ in range(_MOST_TRAILERS):
        if not (await _line(reader)).strip():
            return


async def _line(reader: StreamReader) -> bytes:
    try:
        return await reader.readline()
    except ValueError:  # longer than the reader's limit
        raise ToolFailed(_DAMAGED) from None


class _Inflating:
    """gzip (also several archives in a row) or deflate (with its header or bare)."""

    def __init__(self, take: Callable[[bytes], None], *, gzip: bool) -> None:
        self._take = take
        self._gzip = gzip
        self._inflater = zlib.decompressobj(31) if gzip else None
        self._whole = False
        """One archive came to its end."""
        self._done = False

    def feed(self, data: bytes) -> None:
        while data and not self._done:
            data = self._feed_one(data)

    def _feed_one(self, data: bytes) -> bytes:
        """What of the data belongs to the next archive."""
        if self._inflater is None:  # "deflate" is used for two formats; the first byte of one ends in 8
            self._inflater = zlib.decompressobj(31 if self._gzip else 15 if data[0] & 0x0F == 8 else -15)
        inflater, full = self._inflater, True
        while (data or full) and not inflater.eof:
            try:
                plain = inflater.decompress(data, _PIECE)
            except zlib.error:
                if not self._whole:
                    raise ToolFailed("The compressed page is damaged.") from None
                self._done = True  # what follows a whole archive is padding
                return b""
            self._take(plain)
            data, full = inflater.unconsumed_tail, len(plain) == _PIECE
        if not inflater.eof:
            return b""
        self._whole, self._inflater = True, None
        self._done = not self._gzip
        return inflater.unused_data

    def finish(self) -> None:
        if self._inflater is not None and not self._done and not self._whole:
            raise ToolFailed("The compressed page ended early.")
