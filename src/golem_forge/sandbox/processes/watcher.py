"""Watcher: the limits of a whole tree, which no kernel limit gives without cgroups and not at all to root.

Takes the tree's root and its limits; every 50 ms counts who is below and what memory of their own they hold, less often
what they have in files in memory that nobody maps, asks whether the walls still hold, and calls `reached` with a code.
It also notices used-up CPU time, which sessions members made, and a root that was stopped. Threat: a fork bomb; so a
count stops as soon as it is over.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import time
from collections.abc import Callable
from typing import Final

from golem_forge.sandbox.limits import Limits
from golem_forge.sandbox.processes.ending import MEMORY_LIMIT, PROCESS_LIMIT, WALLS_CHANGED
from golem_forge.sandbox.processes.tree import (
    all_shared_memory,
    descendants,
    mapped_of,
    memory_files,
    own_memory,
    page_tables,
    proportional_memory,
    resident_memory,
    stat,
)

INTERVAL_S: Final = 0.05
_LOOKS_PER_CLOSE_LOOK: Final = 5
_SHARE_OF_EXACT_LOOKS: Final = 5
"""An exact look at memory is slow: the next one waits this many times as long as it took, half a second at most."""
_SHARE_OF_GUARD: Final = 9
"""The same for the guard, so that it never takes more than a tenth of the time; it is asked once more at the end."""
_THREADS_PER_PROCESS: Final = 32
_FEWEST_THREADS: Final = 256
"""Threads of the whole tree: so many for each process that it may have, and never fewer than one program needs."""


class Watcher:
    def __init__(
        self,
        root: int,
        limits: Limits,
        sessions: set[int],
        reached: Callable[[str], None],
        guard: Callable[[], bool] | None = None,
    ) -> None:
        """The first look is after 50 ms: a short command costs nothing. `sessions` is added to. `guard`: whether the
        walls are still what they were."""
        self.cpu_spent = False
        """A process was seen that had used up its CPU time."""
        self._root = root
        self._limits = limits
        self._sessions = sessions
        self._reached = reached
        self._guard = guard
        self._looks = 0
        self._no_exact_look_before = 0.0
        self._no_guard_before = 0.0
        self._loop = asyncio.get_running_loop()
        self._next = self._loop.call_later(INTERVAL_S, self._look)

    def stop(self) -> None:
        self._next.cancel()
        self._guard = None  # it may hold files open

    def _look(self) -> None:
        self._looks += 1
        # Before the verdict, which may stop this watcher.
        self._next = self._loop.call_later(INTERVAL_S, self._look)
        if self._guard is not None and not self._walls_hold(self._guard):
            self._reached(WALLS_CHANGED)
            return
        members = descendants(self._root, self._limits.processes)
        close = self._looks % _LOOKS_PER_CLOSE_LOOK == 1
        if close:
            self._look_for_files(members)
        if len(members) > self._limits.processes:
            self._reached(PROCESS_LIMIT)
        elif self._may_be_over(members, close) and self._really_over(members):
            self._reached(MEMORY_LIMIT)
        elif close:
            self._keep_awake()
            facts = [found for found in map(stat, members) if found]
            self._sessions.update(found.session for found in facts)
            self.cpu_spent = self.cpu_spent or any(found.cpu_s >= self._limits.cpu_s for found in facts)
            most = max(_FEWEST_THREADS, _THREADS_PER_PROCESS * self._limits.processes)
            if sum(found.threads for found in facts) > most:
                self._reached(PROCESS_LIMIT)

    def _walls_hold(self, guard: Callable[[], bool]) -> bool:
        """Threat: a child that changes thousands of files makes each look slow; it must not take Forge's time."""
        began = time.monotonic()
        if began < self._no_guard_before:
            return True
        held = guard()
        ended = time.monotonic()
        self._no_guard_before = ended + (ended - began) * _SHARE_OF_GUARD
        return held

    def _keep_awake(self) -> None:
        """A launcher that was stopped by what it watches over could not end it if Forge died."""
        found = stat(self._root)
        if found is not None and found.state == "T":
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(self._root, signal.SIGCONT)

    def _may_be_over(self, members: list[int], close: bool) -> bool:
        """The quicker sum first, which counts pages of program files too; a close look does without it."""
        limit = self._limits.memory - sum(self._files.values())
        return (close or sum(map(resident_memory, members)) > limit) and sum(map(own_memory, members)) > limit

    def _look_for_files(self, members: list[int]) -> None:
        """Only where the system has so much shared memory that it could matter: most have less than any limit."""
        mapped = sum(map(own_memory, members[: self._limits.processes]))
        matters = mapped + all_shared_memory() > self._limits.memory
        self._files = memory_files(members[: self._limits.processes]) if matters else {}

    def _really_over(self, members: list[int]) -> bool:
        """The quick sums count memory that a fork shares with its parent twice; nobody is ended for that."""
        began = time.monotonic()
        if began < self._no_exact_look_before:
            return False
        held = sum(self._files.values())
        for pid in members:
            mapped = 0
            exact = proportional_memory(pid)
            if self._files:
                mapped = mapped_of(pid, self._files.keys())
            if self._files and exact is not None:
                # One that ends between the looks has nothing mapped any more, and what it had would count twice.
                exact = min(exact, proportional_memory(pid) or 0)
            own = own_memory(pid) if exact is None else exact + page_tables(pid)
            held += max(0, own - mapped)
        took = time.monotonic() - began
        self._no_exact_look_before = began + min(took * _SHARE_OF_EXACT_LOOKS, 0.5)
        return held > self._limits.memory
