"""PlainAdapter: a session as plain lines, for an output that is not a terminal. No escape codes, no questions.

It never attaches to the RuntimeUI, so nothing waits for it: approvals are denied, forms cancelled, input unavailable.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable
from typing import TextIO

from golem_forge.events.bus import EventBus
from golem_forge.events.envelope import Event
from golem_forge.ui.output import Output
from golem_forge.ui.rendering.lines import plain_text
from golem_forge.ui.trace import TraceLevel, create_trace_formatter
from golem_forge.workers.run_result import RunResult


class PlainAdapter:
    stated_name = "PlainAdapter"
    """In a warning."""
    answers = False
    """It asks nobody anything."""

    def __init__(
        self, bus: EventBus, *, output: TextIO | None = None, trace: TraceLevel | str = TraceLevel.NORMAL
    ) -> None:
        self.bus = bus
        self._output = Output(output if output is not None else sys.stdout)
        self.formatter = create_trace_formatter(trace)
        self._unsubscribe: Callable[[], None] | None = None
        self.exit_requested = asyncio.Event()
        self.exit_code = 0

    async def initialize(self) -> None:
        if self._unsubscribe is None:
            self._unsubscribe = self.bus.on("*", self._show)

    async def shutdown(self) -> None:
        if self._unsubscribe is not None:
            self._unsubscribe()
            self._unsubscribe = None

    def finished(self, result: RunResult) -> None:
        """The events of the run have said it all."""
        self._output.write(plain_text(self.formatter.rest()))

    async def stay(self, result: RunResult) -> None:
        """What was printed stays by itself."""

    def request_exit(self, code: int = 0) -> None:
        self.exit_code = code
        self.exit_requested.set()

    def _show(self, event: Event) -> None:
        if not self._output.gone:
            self._output.write(plain_text(self.formatter.format(event)))
