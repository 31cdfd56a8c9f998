"""The program: reads one line of JSON from standard input, writes one line of JSON per match, as it finds them.

The order is `{pattern, ignore_case, lines, longest, places, include, seconds, memory}`; a place is `{zone, parts,
entry, levels}` with inherited descriptors of the zone's root and of what is searched, `levels` 0 for a single file.
A match is `[place, path in the zone]` and, where lines are wanted, `number, text`.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from typing import Any

from .include import Include
from .matching import Matcher
from .tree import Parts, content, files_below, ignores_above

_LARGEST = 256 << 20


def main() -> None:
    import resource

    order = json.loads(sys.stdin.buffer.readline())
    _end_with_forge()
    resource.setrlimit(resource.RLIMIT_CPU, (order["seconds"], order["seconds"]))
    resource.setrlimit(resource.RLIMIT_AS, (order["memory"], order["memory"]))
    matcher = Matcher(order["pattern"], order["ignore_case"])
    for index, place in enumerate(order["places"]):
        for path, data in _contents(place, order["include"]):
            named = not place["levels"]
            for match in _matches(matcher, data, named, order["longest"] if order["lines"] else 0):
                sys.stdout.write(json.dumps([index, path, *match]) + "\n")
                sys.stdout.flush()


def _end_with_forge() -> None:
    """Standard input stays open as long as Forge lives; its end is a signal that ends this process.

    A thread that waits for it would not do: a pattern that is being matched lets no other thread run.
    """
    import fcntl
    import select

    fcntl.fcntl(0, fcntl.F_SETOWN, os.getpid())
    fcntl.fcntl(0, fcntl.F_SETFL, fcntl.fcntl(0, fcntl.F_GETFL) | os.O_ASYNC)
    if select.select([0], [], [], 0)[0]:  # it ended before
        os._exit(1)


def _contents(place: dict[str, Any], include: str) -> Iterator[tuple[str, bytes]]:
    parts = tuple(place["parts"])
    if not place["levels"]:
        yield "/".join(parts), _whole(place["entry"])
        return
    wanted = Include(include, len(parts)) if include else None
    start = os.open(".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=place["entry"])
    path: Parts
    for path, directory in files_below(start, parts, ignores_above(place["zone"], parts), place["levels"]):
        if wanted is None or wanted(path):
            try:
                if data := content(path[-1], directory, _LARGEST):
                    yield "/".join(path), data
            except MemoryError:  # one file too large must not end the search
                continue


def _whole(file: int) -> bytes:
    """By position: the descriptor's own place in the file is shared with the process that opened it."""
    chunks: list[bytes] = []
    done = 0
    while done < _LARGEST and (chunk := os.pread(file, 1 << 20, done)):
        chunks.append(chunk)
        done += len(chunk)
    return b"".join(chunks)


def _matches(matcher: Matcher, data: bytes, named: bool, longest: int) -> Iterator[tuple[Any, ...]]:
    """`longest` 0: only whether there is one."""
    try:
        if longest:
            for number, text in matcher.lines(data, named=named):
                yield number, text[:longest]
        elif matcher.finds(data, named=named):
            yield ()
    except (MemoryError, RecursionError):
        return
