"""Excerpt: of two streams that may be 64 MiB, what a caller reads, and the whole on disk by handle.

Reads only what it shows; the rest streams through once, to be kept and counted. The whole is also kept where nothing
was cut but bytes are no text: in what is shown they are U+FFFD, in what is kept they are themselves.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from golem_forge.sandbox.processes.capture import Capture

LIMIT: Final = 32 * 1024
"""Bytes of both streams together."""
Keep = Callable[[Iterable[bytes]], str]
"""Keeps a whole output and gives its handle; empty where nothing can be kept."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Shown:
    out: str = ""
    err: str = ""
    cut: bool = False
    handle: str = ""


def shown_streams(out: Capture, err: Capture, *, keep: Keep) -> Shown:
    cut = out.size + err.size > LIMIT
    if not cut and _is_text(out) and _is_text(err):
        return Shown(out=out.read().decode(), err=err.read().decode())
    handle = keep(_whole(out, err))
    if not cut:
        return Shown(out=_text(out.read()), err=_text(err.read()), handle=handle)
    half = LIMIT // 2
    room = max(half, LIMIT - err.size), max(half, LIMIT - out.size)
    return Shown(out=_excerpt(out, room[0], handle), err=_excerpt(err, room[1], handle), cut=True, handle=handle)


def _excerpt(stream: Capture, room: int, handle: str) -> str:
    """Head and tail, each half of the room, cut between lines where one ends near."""
    from golem_forge.orchestrator.bound import cut_head, cut_tail

    if stream.size <= room:
        return _text(stream.read())
    head = cut_tail(stream.read(0, room // 2))
    tail = cut_head(stream.read(stream.size - room // 2))
    start, end = len(head), stream.size - len(tail)
    lines, last = 0, b""
    for piece in stream.pieces(start, end):
        lines += piece.count(b"\n")
        last = piece[-1:] or last
    lines += last != b"\n"
    where = f"; whole output: read_output handle={handle}" if handle else ""
    first = _text(head).rstrip("\n")
    before = f"{first}\n" if first else ""
    return f"{before}[… {lines} lines, {end - start} bytes left out{where}]\n{_text(tail)}"


def _whole(out: Capture, err: Capture) -> Iterator[bytes]:
    """One stream alone is kept as it is; two, one after the other, each under its name."""
    if not out.size or not err.size:
        yield from (out if out.size else err).pieces()
        return
    yield b"Stdout:\n"
    yield from out.pieces()
    if out.read(out.size - 1) != b"\n":
        yield b"\n"
    yield b"Stderr:\n"
    yield from err.pieces()


def _is_text(stream: Capture) -> bool:
    try:
        stream.read().decode()
    except UnicodeDecodeError:
        return False
    return True


def _text(data: bytes) -> str:
    return data.decode("utf-8", "replace")
