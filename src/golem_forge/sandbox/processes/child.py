"""Child: a running process tree behind one object: its output, its time and limits, and its end.

Made by `processes.start`. Everything goes by callbacks of the loop, so an end that was decided takes place whoever
stops waiting for it. From the decision to the Ending: TERM to the command's group, 300 ms, then KILL to everybody;
memory and process limits give no such time, because the machine would not have it, nor do walls that no longer hold.
"""

from __future__ import annotations

import asyncio
import signal
import time
from collections.abc import Sequence
from typing import Final

from golem_forge.sandbox.errors import SandboxError
from golem_forge.sandbox.processes.capture import Capture
from golem_forge.sandbox.processes.ending import ENDED, OUTPUT_LIMIT, TIMEOUT, WALLS_CHANGED, Ending, ending_of
from golem_forge.sandbox.processes.holder import Holder
from golem_forge.sandbox.processes.launch import Launch
from golem_forge.sandbox.processes.reading import Budget, Reader, TextFilter
from golem_forge.sandbox.processes.tail import Tail
from golem_forge.sandbox.processes.terminal import Terminal
from golem_forge.sandbox.processes.watcher import Watcher

GRACE_S: Final = 0.3
GIVE_UP_S: Final = 1.5
"""After KILL. Only a process stuck inside the kernel lasts so long; its tree's Ending is not kept back for it."""


class Child:
    def __init__(
        self,
        launch: Launch,
        pid: int,
        *,
        output: int | None,
        errors: int | None,
        keyboard: int | None,
        info: int | None,
        control: int | None,
        filters: Sequence[TextFilter],
    ) -> None:
        """`pid`: the outer process. The descriptors become ours to close, unless this raises OSError. `filters`: one
        for each stream. Without `output` only the end of `errors` is kept."""
        self.ending: Ending | None = None
        """Set once the whole tree is gone and output is complete."""
        self.holder = Holder(pid, launch.root, info=info, control=control, gone=self._gone, marker=launch.marker)
        self._launch = launch
        self._loop = asyncio.get_running_loop()
        self.ended: asyncio.Future[Ending] = self._loop.create_future()
        self._code = ""
        self._ending_began = False
        self._timers: list[asyncio.TimerHandle] = []
        self._watcher: Watcher | None = None
        self._began = time.monotonic()
        self._terminal = None if keyboard is None else Terminal(keyboard)
        budget = Budget(launch.limits.output, lambda: self.begin_end(OUTPUT_LIMIT))
        streams = (each for each in (output, errors) if each is not None)
        self.tail = Tail() if output is None else None
        """Of standard error, where standard output goes to the caller as it is."""
        self._readers = [
            Reader(each, text_filter, budget, self.tail) for each, text_filter in zip(streams, filters, strict=True)
        ]
        self.holder.watch()

    @property
    def pid(self) -> int:
        """The root of the tree, as the host sees it."""
        return self.holder.root or 0

    @property
    def output(self) -> Capture:
        """Not where there is a `tail`."""
        return self._readers[0].capture

    @property
    def errors(self) -> Capture | None:
        return self._readers[1].capture if len(self._readers) > 1 else None

    def complaint(self, longest: int) -> str:
        """What it said on standard error, or at all where that is not kept apart."""
        if self.tail is not None:
            return self.tail.text()[:longest]
        return (self.errors or self.output).read(0, longest).decode("utf-8", "replace")

    def catch_up(self) -> None:
        """`output` holds all that was written until now, also if the loop had no time for it yet."""
        for reader in self._readers:
            reader.catch_up()

    def begin(self) -> None:
        """The command starts now; time and limits count from here."""
        self._began = time.monotonic()
        if self.ending is not None:
            return
        limits = self._launch.limits
        self._watcher = Watcher(self.pid, limits, self.holder.sessions, self._hurts, self._launch.guard)
        if limits.timeout_s is not None:
            self._timers.append(self._loop.call_later(max(limits.timeout_s, 0), self.begin_end, TIMEOUT))

    async def wait(self, seconds: float | None = None) -> Ending | None:
        """None: it still runs after `seconds`."""
        if self.ending is None:
            await asyncio.wait([self.ended], timeout=seconds)
        return self.ending

    async def end(self, code: str = ENDED) -> Ending:
        """The first reason given is the Ending's."""
        self.begin_end(code or ENDED)
        return await self.gone()

    async def gone(self) -> Ending:
        """Once the end was decided: returns when nobody is left. A caller who is cancelled meanwhile, also by a scope
        that does it again and again, hears of it only then: nothing of a call outlives it."""
        cancelled: asyncio.CancelledError | None = None
        while self.ending is None:
            try:
                await asyncio.wait([self.ended])
            except asyncio.CancelledError as error:
                cancelled = cancelled or error
        if cancelled is not None:
            raise cancelled
        return self.ending

    def signal(self, number: int) -> None:
        """To the command's process group, in a terminal to the foreground group; nothing once it ended."""
        if self.ending is None:
            self.holder.signal(number, self._terminal.foreground() if self._terminal else None)

    async def write(self, data: bytes) -> None:
        """Types into the terminal; after the end it is ignored."""
        if self._terminal is None:
            raise SandboxError("NO_TERMINAL", "This process has no terminal; start it with one to type into it.")
        if self.ending is None:
            self._terminal.write(data)

    def resize(self, rows: int, columns: int) -> None:
        """The window of the person who looks at this terminal changed."""
        if self._terminal is not None and self.ending is None:
            self._terminal.resize(rows, columns)

    def kill(self, code: str = ENDED) -> None:
        """Like `end`, without TERM, without the time after it, and without waiting."""
        if not self._ending_began:
            self._ending_began = True
            self._code = code
        self._kill()

    def begin_end(self, code: str) -> None:
        """Like `end`, without waiting."""
        if self._ending_began or self.ending is not None:
            return
        self._ending_began = True
        self._code = code
        self.holder.signal(signal.SIGTERM)
        if self._terminal is not None and (group := self._terminal.foreground()) is not None:
            self.holder.signal(signal.SIGTERM, group)
        self._timers.append(self._loop.call_later(GRACE_S, self._kill))

    def _hurts(self, code: str) -> None:
        self.kill(code)

    def _kill(self) -> None:
        if self.ending is None:
            self.holder.kill()
            self._timers.append(self._loop.call_later(GIVE_UP_S, self._finish))

    def _gone(self) -> None:
        self._finish()
        self._launch.guard = None
        if self._launch.afterwards is not None:
            afterwards, self._launch.afterwards = self._launch.afterwards, None
            afterwards()

    def _finish(self) -> None:
        if self.ending is not None:
            return
        for timer in self._timers:
            timer.cancel()
        if self._watcher is not None:
            self._watcher.stop()
        if not self._code and self._launch.guard is not None and not self._launch.guard():
            self._code = WALLS_CHANGED  # between two looks, or before the first one
        self._ending_began = True  # a limit reached by the last of the output decides nothing any more
        for reader in self._readers:
            reader.finish()
        if self._terminal is not None:
            self._terminal.close()
        self.ending = ending_of(
            self.holder.status,
            code=self._code,
            seconds=time.monotonic() - self._began,
            cpu_spent=self._watcher is not None and self._watcher.cpu_spent,
        )
        if not self.ended.done():
            self.ended.set_result(self.ending)
