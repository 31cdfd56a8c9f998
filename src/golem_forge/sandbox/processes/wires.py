"""Wires: the descriptors between Forge and one child while it is being started, and who closes which.

Takes what a launch needs; gives the child's ends by their fixed numbers (`theirs`) and ours by the same numbers
(`ours`). Nothing leaks if laying them fails half-way: `close` closes whatever is still here.
"""

from __future__ import annotations

import os
from typing import Final

from golem_forge.sandbox.processes.launch import CONTROL, GO, INFO, READY, Launch, Root
from golem_forge.sandbox.processes.terminal import open_pair
from golem_forge.sandbox.walls.job import Streams

KEYBOARD: Final = 0
OUTPUT: Final = 1
ERRORS: Final = 2


class Wires:
    def __init__(self) -> None:
        self.theirs: dict[int, int] = {}
        self.ours: dict[int, int] = {}

    def lay(self, launch: Launch, streams: Streams, stdin: bytes | int | None, stdout: int | None) -> None:
        if streams is Streams.TERMINAL:
            self.ours[OUTPUT], self.theirs[KEYBOARD] = open_pair()
            self.ours[KEYBOARD] = os.dup(self.ours[OUTPUT])
            self.theirs[OUTPUT] = self.theirs[ERRORS] = self.theirs[KEYBOARD]
        elif stdout is not None:
            self.theirs[KEYBOARD] = _standard_input(stdin)
            self.theirs[OUTPUT] = os.dup(stdout)
            self._from_child(ERRORS)
        else:
            self.theirs[KEYBOARD] = _standard_input(stdin)
            self._from_child(OUTPUT)
            if streams is Streams.APART:
                self._from_child(ERRORS)
            else:
                self.theirs[ERRORS] = self.theirs[OUTPUT]
        self._from_child(READY)
        if launch.root is Root.NAMESPACE:
            self._noted_by_child(INFO)
        else:
            self._to_child(CONTROL)
        if launch.before_go is not None:
            self._to_child(GO)

    def keep_only(self, *numbers: int) -> None:
        """The others of ours have a new owner, who closes them."""
        self.ours = {number: self.ours[number] for number in numbers if number in self.ours}

    def close_theirs(self) -> None:
        for descriptor in set(self.theirs.values()):
            os.close(descriptor)
        self.theirs.clear()

    def close(self) -> None:
        self.close_theirs()
        for descriptor in self.ours.values():
            os.close(descriptor)
        self.ours.clear()

    def _from_child(self, number: int) -> None:
        self.ours[number], self.theirs[number] = os.pipe()
        os.set_blocking(self.ours[number], False)

    def _noted_by_child(self, number: int) -> None:
        """A file in memory, for what the child must be able to write also when nobody reads any more.

        Threat: Forge is killed while bwrap starts. On a broken pipe bwrap would end before it lets its inner process go
        on, and that one would wait for ever.
        """
        self.ours[number] = os.memfd_create("noted", os.MFD_CLOEXEC)
        self.theirs[number] = os.dup(self.ours[number])

    def _to_child(self, number: int) -> None:
        self.theirs[number], self.ours[number] = os.pipe()


def _standard_input(given: bytes | int | None) -> int:
    """Content, a descriptor of ours that the child shall read from, or nothing."""
    if isinstance(given, int):
        return os.dup(given)
    return _filled(given) if given else os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)


def _filled(content: bytes) -> int:
    """A file in memory: the child reads at its own pace, and nobody has to feed it."""
    descriptor = os.memfd_create("stdin", os.MFD_CLOEXEC)
    try:
        view = memoryview(content)
        while view:
            view = view[os.write(descriptor, view) :]
        os.lseek(descriptor, 0, os.SEEK_SET)
    except OSError:
        os.close(descriptor)
        raise
    return descriptor
