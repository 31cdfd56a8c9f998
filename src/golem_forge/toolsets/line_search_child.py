"""Which lines does a pattern match? Runs as a program of its own, so that it can be killed; knows nothing of Forge.

Reads from standard input one line of JSON `{pattern, long, seconds, memory, file, first, after, most}` and the text
from the descriptor `file`, piece by piece, from the line with index `first` on. Writes a JSON list
`[index, [start, end], …]` per matching line; spans only for lines of more than `long` characters. Ends after `most`
matches in lines behind the one with index `after`.
"""

from __future__ import annotations

import codecs
import json
import re
import sys
from collections.abc import Iterable, Iterator
from typing import Protocol

Span = tuple[int, int]
_MERGE_DISTANCE = 1024
"""Matches nearer to each other than this are told as one span: a line of a million matches needs no million spans."""
_PIECE_BYTES = 1 << 18


class Readable(Protocol):
    def read(self, size: int, /) -> bytes | None: ...


def clean_pieces(file: Readable) -> Iterator[bytes]:
    """The text in pieces of whole characters: what is not UTF-8 is U+FFFD, and LF, CRLF and CR are all LF."""
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    held = b""
    while data := file.read(_PIECE_BYTES):
        piece = held + _only_utf8(decoder, data)
        held = b"\r" if piece.endswith(b"\r") else b""  # half of a CRLF, perhaps
        yield _only_lf(piece[:-1] if held else piece)
    yield _only_lf(held + decoder.decode(b"", final=True).encode())


def _only_utf8(decoder: codecs.IncrementalDecoder, data: bytes) -> bytes:
    """The characters that are whole so far."""
    begun = decoder.getstate()[0]
    if not begun and data.isascii():
        return data
    text = decoder.decode(data)
    if "\ufffd" in text:
        return text.encode()
    data = begun + data  # which is what `text` would be encoded to
    return data[: len(data) - len(decoder.getstate()[0])]


def _only_lf(piece: bytes) -> bytes:
    """By counting first: replacing two bytes by one takes ten times as long as dropping one."""
    if not (carriage_returns := piece.count(b"\r")):
        return piece
    if carriage_returns == piece.count(b"\r\n"):
        return piece.replace(b"\r", b"")
    return piece.replace(b"\r\n", b"\n").replace(b"\r", b"\n")


def lines_from(pieces: Iterable[bytes], first: int) -> Iterator[str]:
    """The lines without their ends, from index `first` on; those before it are only counted."""
    begun: list[str] = []
    for piece in pieces:
        if first:
            ends = piece.count(b"\n")
            if ends < first:
                first -= ends
                continue
            piece, first = piece.split(b"\n", first)[first], 0
        begin, *lines = piece.decode().split("\n")
        begun.append(begin)
        if lines:
            yield "".join(begun)
            begun = [lines.pop()]
            yield from lines
    if last := "".join(begun):
        yield last


def matching_lines(pattern: str, lines: Iterable[str], long: int, first: int) -> Iterator[tuple[int, list[Span]]]:
    """(index, spans), the first line having index `first`. May take for ever: see `line_search.py`."""
    compiled = re.compile(pattern)
    for index, line in enumerate(lines, first):
        if len(line) > long:
            if spans := _spans(compiled, line):
                yield index, spans
        elif compiled.search(line):
            yield index, []


def _spans(pattern: re.Pattern[str], line: str) -> list[Span]:
    spans: list[Span] = []
    for match in pattern.finditer(line):
        start, end = match.span()
        if spans and start - spans[-1][1] < _MERGE_DISTANCE:
            spans[-1] = (spans[-1][0], end)
        else:
            spans.append((start, end))
    return spans


def main() -> None:
    import resource

    order = json.loads(sys.stdin.buffer.readline())
    # Ends this process even if the one that started it was killed and cannot do so any more.
    resource.setrlimit(resource.RLIMIT_CPU, (order["seconds"], order["seconds"]))
    resource.setrlimit(resource.RLIMIT_AS, (order["memory"], order["memory"]))
    with open(order["file"], "rb", buffering=0) as file:
        lines = lines_from(clean_pieces(file), order["first"])
        missing = order["most"]
        for index, spans in matching_lines(order["pattern"], lines, order["long"], order["first"]):
            sys.stdout.write(f"{json.dumps([index, *spans])}\n")
            missing -= index > order["after"]
            if not missing:
                break


if __name__ == "__main__":
    main()
