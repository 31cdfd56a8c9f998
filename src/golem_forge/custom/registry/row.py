"""The marks of everything the registry has looked at, in one row: comparing them is all that most refreshes do.

`changed` names the folders of which something bears another mark, with one stat for each folder and file. It stays in
C from end to end and makes no list that the garbage collector would look through: it is asked before every request.
"""

from __future__ import annotations

import os
from bisect import bisect_right
from collections import deque
from collections.abc import Iterator, Mapping
from itertools import accumulate, chain, islice
from operator import eq, length_hint

from golem_forge.custom.registry.scan import Look
from golem_forge.sandbox.tree import Mark, mark_of


class MarkRow:
    def __init__(self, looks: Mapping[str, Look]) -> None:
        self._names = tuple(looks)
        self._paths = [path for look in looks.values() for path in look.paths]
        self._marks = [mark for look in looks.values() for mark in look.marks]
        self._ends = list(accumulate(len(look.paths) for look in looks.values()))
        """For each name, where in the row the next one begins."""

    def changed(self) -> frozenset[str]:
        found: set[str] = set()
        paths, marks = iter(self._paths), iter(self._marks)
        while not _same(paths, marks):
            at = len(self._paths) - length_hint(paths)  # the one after that which differs
            owner = bisect_right(self._ends, at - 1)
            found.add(self._names[owner])
            left = self._ends[owner] - at
            deque(chain(islice(paths, left), islice(marks, left)), maxlen=0)
        return frozenset(found)


def _same(paths: Iterator[str], marks: Iterator[Mark]) -> bool:
    """Whether all that is left in both is so; else both have gone past the first that is not."""
    try:
        return all(map(eq, map(mark_of, map(os.lstat, paths)), marks))
    except OSError:
        next(marks)
        return False
