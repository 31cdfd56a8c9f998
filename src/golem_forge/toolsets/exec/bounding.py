"""Bounding output that is too large for memory: head and tail for the caller, the whole kept on disk by handle.

Reads only what it shows; the middle streams through once, to be kept and counted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol


class Stretch(Protocol):
    """A text somewhere, as UTF-8; `sandbox.processes.capture.Capture` is one."""

    @property
    def size(self) -> int: ...
    def read(self, start: int = 0, end: int | None = None) -> bytes: ...
    def pieces(self, start: int = 0, end: int | None = None) -> Iterator[bytes]: ...


Keep = Callable[[Iterable[bytes]], str]
"""Keeps a whole text and gives its handle; empty where nothing can be kept."""


@dataclass(frozen=True, slots=True)
class Part:
    """What lies between two offsets of a text that may still grow."""

    whole: Stretch
    start: int
    end: int

    @property
    def size(self) -> int:
        return self.end - self.start

    def read(self, start: int = 0, end: int | None = None) -> bytes:
        return self.whole.read(self.start + start, self.start + (self.size if end is None else min(end, self.size)))

    def pieces(self, start: int = 0, end: int | None = None) -> Iterator[bytes]:
        return self.whole.pieces(self.start + start, self.start + (self.size if end is None else min(end, self.size)))


@dataclass(frozen=True, slots=True)
class Fixed:
    """A text of our own."""

    data: bytes

    @property
    def size(self) -> int:
        return len(self.data)

    def read(self, start: int = 0, end: int | None = None) -> bytes:
        return self.data[start:end]

    def pieces(self, start: int = 0, end: int | None = None) -> Iterator[bytes]:
        yield self.data[start:end]


@dataclass(frozen=True, slots=True)
class Joined:
    """Several texts one after the other."""

    parts: Sequence[Stretch]

    @property
    def size(self) -> int:
        return sum(part.size for part in self.parts)

    def read(self, start: int = 0, end: int | None = None) -> bytes:
        return b"".join(self.pieces(start, end))

    def pieces(self, start: int = 0, end: int | None = None) -> Iterator[bytes]:
        end = self.size if end is None else end
        for part in self.parts:
            if start < part.size and end > 0:
                yield from part.pieces(max(0, start), min(end, part.size))
            start, end = start - part.size, end - part.size


@dataclass(frozen=True, slots=True)
class Bounded:
    text: str
    handle: str = ""
    """The whole, if the text is not."""
    cut: bool = False


def bounded(whole: Stretch, limit: int, keep: Keep) -> Bounded:
    """At most `limit` bytes of it, head and tail half each."""
    size = whole.size
    if size <= limit:
        return Bounded(whole.read().decode("utf-8", "replace"))
    return with_handle(whole, limit, keep(whole.pieces()))


def with_handle(whole: Stretch, limit: int, handle: str) -> Bounded:
    """The same for a text that was kept already, alone or as part of another."""
    from golem_forge.orchestrator.bound import cut_head, cut_tail

    size = whole.size
    if size <= limit:
        return Bounded(whole.read().decode("utf-8", "replace"))
    half = limit // 2
    head = cut_tail(whole.read(0, half))
    tail = cut_head(whole.read(size - half, size)[-half:]) if half else b""
    start, end = len(head), size - len(tail)
    lines, last = 0, b""
    for piece in whole.pieces(start, end):
        lines += piece.count(b"\n")
        last = piece[-1:] or last
    lines += last != b"\n"
    where = f"; whole output: read_output handle={handle}" if handle else ""
    joint = f"[… {lines} lines, {end - start} bytes left out{where}]"
    first = head.decode("utf-8", "replace").rstrip("\n")
    before = f"{first}\n" if first else ""
    return Bounded(f"{before}{joint}\n{tail.decode('utf-8', 'replace')}", handle, cut=True)
