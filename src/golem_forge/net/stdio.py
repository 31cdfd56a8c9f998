"""Standard input and output as a connection: `own_pipes` takes both away from everything else in this process.

While it holds them, descriptor 1 leads to stderr and 0 to nothing: a stray print or a child cannot break a frame.
`forge mcp serve` and `forge acp` speak over the two descriptors that it gives.
"""

from __future__ import annotations

import contextlib
import os
import select
import sys
from collections.abc import Iterator

from golem_forge.core.lazy_dataclass import dataclass


@dataclass(frozen=True, slots=True)
class StdioDescriptors:
    read: int
    write: int


@contextlib.contextmanager
def own_pipes() -> Iterator[StdioDescriptors]:
    sys.stdout.flush()
    read, write = os.dup(0), os.dup(1)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    os.dup2(2, 1)
    try:
        yield StdioDescriptors(read, write)
    finally:
        with contextlib.suppress(OSError, ValueError):
            sys.stdout.flush()  # what was printed meanwhile follows the rest to stderr
        os.dup2(write, 1)  # neither is closed: a thread may still use it, and would get another file's


def hung_up(descriptor: int) -> bool:
    """Also while there is something left to read."""
    poll = select.poll()
    poll.register(descriptor, 0)
    return bool(poll.poll(0))


def write_whole(descriptor: int, data: bytes) -> None:
    left = memoryview(data)
    while left:
        left = left[os.write(descriptor, left) :]
