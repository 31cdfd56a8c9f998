"""Sockets: the sockets and FIFOs of a zone that lead to somebody, asked again at every look of its scan.

Nothing in a directory changes when a program ends that had a socket in it bound. Its file never leads anywhere again,
and the next command has to remove it, which it could not if a mask stood on it.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Final

from golem_forge.sandbox.walls.changes import ScanMark
from golem_forge.sandbox.walls.listing import EntryKind, Finding, Parts, Stamp, is_fifo, leads_nowhere, stamp_at

_MOST_PROBED: Final = 16


class Sockets:
    def __init__(self, host: str) -> None:
        self._host = host
        self._found: tuple[Parts, ...] = ()
        self._next = 0
        self.own_fifos: dict[Parts, Stamp] = {}
        """Those that appeared while a command in walls ran that could have made them, and are the same as then."""

    def learn(self, findings: tuple[Finding, ...]) -> None:
        self._found = tuple(one.parts for one in findings if one.kind is EntryKind.SOCKET)

    def left_behind(self) -> Iterator[Parts]:
        """Some at each look."""
        start = self._next if self._next < len(self._found) else 0
        self._next = start + _MOST_PROBED
        for parts in self._found[start : start + _MOST_PROBED]:
            if leads_nowhere(os.path.join(self._host, *parts)):
                yield parts

    def are_exchanged(self) -> bool:
        """Whether one of our own FIFOs is another now, and ours no more."""
        gone = [parts for parts, stamp in self.own_fifos.items() if self._stamp(parts) != stamp]
        for parts in gone:
            del self.own_fifos[parts]
        return bool(gone)

    def adopt(self, mark: ScanMark) -> bool:
        """What appeared while a command ran it could use, whoever made it; so may the next, which has to remove it."""
        if mark.position < 0 or not self._found:
            return False
        known = {one.parts for one in mark.findings} - mark.own_fifos
        new = [parts for parts in self._found if parts not in known and parts not in self.own_fifos]
        fifos = {parts: self._stamp(parts) for parts in new if is_fifo(os.path.join(self._host, *parts))}
        self.own_fifos |= fifos
        return bool(fifos)

    def _stamp(self, parts: Parts) -> Stamp:
        return stamp_at(os.path.join(self._host, *parts))
