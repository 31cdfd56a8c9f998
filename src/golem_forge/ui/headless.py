"""The two UIs that never ask: `HeadlessAdapter` for `forge run` without a terminal, `PlainAdapter` for plain lines.

Headless: standard output is the final answer and nothing else; diagnostics go to standard error by trace level. With
`json` standard output is one event envelope a line, the last of type `runResult`. The caller must call
`finished(result)` while the session is still open.
Plain: the session as lines without escape codes, for an output that is not a terminal.
Neither attaches to the RuntimeUI: approvals are answered by the mode or denied, forms cancelled, input unavailable.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Mapping
from typing import Any, TextIO

from golem_forge.agent.run_result import RunResult, RunStatus
from golem_forge.core.calls import LEFTOVERS
from golem_forge.core.text import escape_control_chars, escape_control_chars_in_prose
from golem_forge.events.bus import EventBus
from golem_forge.events.serialization import Event
from golem_forge.ui.render.lines import plain_text
from golem_forge.ui.trace import Output, TraceLevel, create_trace_formatter, json_line

_WITH_ANSWER = frozenset({RunStatus.COMPLETED, RunStatus.LIMIT})
"""Runs that leave something to print: a limit leaves the partial answer."""


class _OutputUI:
    """Base of both output UIs: it listens from `initialize` to `shutdown`."""

    answers = False
    """Whether it can ask a person; it cannot."""

    def __init__(self, bus: EventBus, trace: TraceLevel | str) -> None:
        self.bus = bus
        self.formatter = create_trace_formatter(trace)
        self.exit_requested = asyncio.Event()
        self.exit_code = 0
        self._unsubscribe: Callable[[], None] | None = None

    async def initialize(self) -> None:
        if self._unsubscribe is None:
            self._unsubscribe = self.bus.on("*", self._on_event)

    async def shutdown(self) -> None:
        if self._unsubscribe is not None:
            self._unsubscribe()
            self._unsubscribe = None

    async def stay(self, result: RunResult) -> None:
        """Returns immediately."""

    def _on_event(self, event: Event) -> None:
        raise NotImplementedError


class HeadlessAdapter(_OutputUI):
    def __init__(
        self,
        bus: EventBus,
        *,
        json: bool = False,
        trace: TraceLevel | str = TraceLevel.NORMAL,
        stdout: TextIO | None = None,
        stderr: TextIO | None = None,
    ) -> None:
        super().__init__(bus, trace)
        self.formatter.changes.commands = "forge changes · forge undo"
        self._json = json
        self._out = Output(stdout if stdout is not None else sys.stdout)
        self._err = Output(stderr if stderr is not None else sys.stderr)
        self._last_message: Event | None = None
        """The root worker's, while it may be the final answer: that one is not a diagnostic."""
        self._children: set[str] = set()
        self._complained = False
        self._closed = False

    def finished(self, result: RunResult) -> None:
        """Prints the answer, or with `json` emits `runResult`, the last line. Once."""
        if self._closed:
            return
        if self._json:
            self.bus.emit("runResult", run_result_data(result))
        elif result.status in _WITH_ANSWER:
            answer = (result.response or result.partial).replace("\r\n", "\n").rstrip("\n")
            self._out.write(f"{escape_control_chars_in_prose(answer)}\n" if answer else "")
        elif self._last_message is not None:  # the last words of a run without an answer are a diagnostic
            self._diagnose(self._last_message)
        self._closed = True
        if result.error and not self._complained:
            self._err.write(f"error: {escape_control_chars(result.error)}\n")
        if result.warning and self.formatter.level is TraceLevel.QUIET:  # else its event was shown
            self._err.write(f"warning: {escape_control_chars(result.warning)}\n")

    def request_exit(self, code: int = 0) -> None:
        """Does nothing: a headless run ends with its one answer."""

    def _diagnose(self, event: Event) -> None:
        self._err.write(plain_text(self.formatter.format(event)))

    def _on_event(self, event: Event) -> None:
        if self._closed:
            if not self._json and event.wire.get("code") == LEFTOVERS:  # of a command that ended with the session
                self._diagnose(event)
            return
        if self._json:
            self._out.write(json_line(event))
            self._closed = event.type == "runResult"
        if event.type == "workerUpdate" and event.wire.get("depth") != 0:
            self._children.add(str(event.wire.get("workerId")))
        self._complained = self._complained or _reports_error(event)
        if not self._is_answer_so_far(event):
            self._diagnose(event)

    def _is_answer_so_far(self, event: Event) -> bool:
        """Holds the root worker's words back; shows those that more work followed after all."""
        if event.worker_id in self._children:
            return False
        if event.type == "streaming":
            return self._is_streamed_answer(event)
        message = event.wire.get("message") if event.type == "message" else None
        speaks = isinstance(message, Mapping) and message.get("role") == "assistant"
        works = event.type == "toolResult" or (event.type == "toolStarted" and event.wire.get("caller") == "llm")
        if speaks or works:  # a refused call has a result and no start
            if self._last_message is not None:
                self._diagnose(self._last_message)
            self._last_message = event if speaks else None
        return speaks

    def _is_streamed_answer(self, event: Event) -> bool:
        if event.wire.get("channel") == "thinking":
            return False
        if event.wire.get("done"):  # ends the thinking of the same request too
            ended = {"requestId": event.wire.get("requestId"), "delta": "", "done": True, "channel": "text"}
            self._diagnose(Event("streaming", ended, worker_id=event.worker_id))
        return True


def run_result_data(result: RunResult) -> dict[str, Any]:
    usage = result.usage
    data: dict[str, Any] = {
        "success": result.success,
        "status": result.status.value,
        "response": result.response,
        "usage": {"input": usage.input, "output": usage.output, "cached": usage.cached, "cost": result.cost},
    }
    texts = {"partial": result.partial, "error": result.error, "warning": result.warning}
    return data | {name: text for name, text in texts.items() if text}


def _reports_error(event: Event) -> bool:
    """Whether standard error already reports this event."""
    if event.type == "status":
        return event.wire.get("type") == "error" and event.wire.get("code") != "command"
    return event.type == "sessionEnd" and event.wire.get("reason") == "error" and bool(event.wire.get("message"))


class PlainAdapter(_OutputUI):
    stated_name = "PlainAdapter"
    """The name in warnings."""

    def __init__(
        self, bus: EventBus, *, output: TextIO | None = None, trace: TraceLevel | str = TraceLevel.NORMAL
    ) -> None:
        super().__init__(bus, trace)
        self._output = Output(output if output is not None else sys.stdout)

    def finished(self, result: RunResult) -> None:
        """Prints what the formatter still holds back."""
        self._output.write(plain_text(self.formatter.rest()))

    def request_exit(self, code: int = 0) -> None:
        self.exit_code = code
        self.exit_requested.set()

    def _on_event(self, event: Event) -> None:
        if not self._output.gone:
            self._output.write(plain_text(self.formatter.format(event)))
