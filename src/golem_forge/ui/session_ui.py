"""`SessionUI`: what `forge run` drives to show a session; the two that never ask; several combined; and the exit codes.

    initialize        before the runtime's: from now on it shows what happens, and may be asked
    finished(result)  the worker has answered; the session is still open
    stay(result)      returns once the session may be closed: at once, or when the person has seen the answer
    shutdown          after the runtime's end

`exit_requested` is set when the person leaves, or by `request_exit`. Of combined UIs the first one decides when the
person leaves. `exit_code` maps a RunResult, `exit_code_for` an exception that ended the run before it had a result.

`HeadlessAdapter` is for `forge run` without a terminal: standard output is the final answer and nothing else;
diagnostics go to standard error by trace level. With `json` standard output is one event envelope a line, the last of
type `runResult`. The caller must call `finished(result)` while the session is still open. `PlainAdapter` shows the
session as lines without escape codes, for an output that is not a terminal. Neither attaches to the RuntimeUI:
approvals are answered by the mode or denied, forms cancelled, input unavailable.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Mapping
from typing import Any, Final, Protocol, TextIO

from golem_forge.agent.model.interface import ModelError
from golem_forge.agent.run_result import RunResult, RunStatus
from golem_forge.agent.trust import NotTrusted
from golem_forge.core.calls import LEFTOVERS
from golem_forge.core.errors import ConfigError, ForgeError
from golem_forge.core.text import escape_control_chars, escape_control_chars_in_prose
from golem_forge.events.bus import EventBus
from golem_forge.events.serialization import Event
from golem_forge.ui.render.lines import plain_text
from golem_forge.ui.trace import Output, TraceLevel, create_trace_formatter, json_line


class SessionUI(Protocol):
    @property
    def exit_requested(self) -> asyncio.Event: ...

    @property
    def exit_code(self) -> int:
        """The exit code with which the person left; 0 before."""

    async def initialize(self) -> None: ...

    def finished(self, result: RunResult) -> None: ...

    async def stay(self, result: RunResult) -> None: ...

    def request_exit(self, code: int = 0) -> None: ...

    async def shutdown(self) -> None: ...


class CombinedUI:
    def __init__(self, leading: SessionUI, *others: SessionUI) -> None:
        self._leading = leading
        self._all = [leading, *others]

    @property
    def bus(self) -> Any:
        """The bus, which all of them share."""
        return getattr(self._leading, "bus", None)

    async def initialize(self) -> None:
        for adapter in self._all:
            await adapter.initialize()

    async def join(self, adapter: SessionUI) -> None:
        """Adds a UI during the session."""
        await adapter.initialize()
        self._all.append(adapter)

    async def shutdown(self) -> None:
        failed: list[Exception] = []
        for adapter in reversed(self._all):
            try:
                await adapter.shutdown()
            except Exception as error:
                failed.append(error)
        if failed:
            raise failed[0]

    def finished(self, result: RunResult) -> None:
        for adapter in self._all:
            adapter.finished(result)

    async def stay(self, result: RunResult) -> None:
        await self._leading.stay(result)

    @property
    def exit_requested(self) -> asyncio.Event:
        return self._leading.exit_requested

    @property
    def exit_code(self) -> int:
        return self._leading.exit_code

    def request_exit(self, code: int = 0) -> None:
        self._leading.request_exit(code)


ANSWER: Final = 0
FAILED: Final = 1
CONFIGURATION: Final = 2
"""Exit code for configuration problems and wrong usage."""
NOT_TRUSTED: Final = 3
LIMIT: Final = 4
MODEL_UNAVAILABLE: Final = 5
INTERRUPTED: Final = 130
TERMINATED: Final = 143

_BY_STATUS: Final[Mapping[RunStatus, int]] = {
    RunStatus.COMPLETED: ANSWER,
    RunStatus.FAILED: FAILED,
    RunStatus.INVALID_CONFIG: CONFIGURATION,
    RunStatus.NOT_TRUSTED: NOT_TRUSTED,
    RunStatus.LIMIT: LIMIT,
    RunStatus.MODEL_UNAVAILABLE: MODEL_UNAVAILABLE,
    RunStatus.INTERRUPTED: INTERRUPTED,
    RunStatus.TERMINATED: TERMINATED,
}
_BY_CODE: Final[Mapping[str, int]] = {
    "NOT_TRUSTED": NOT_TRUSTED,
    "BUDGET_EXCEEDED": LIMIT,
    "SESSION_NOT_FOUND": CONFIGURATION,
    "SESSION_AMBIGUOUS": CONFIGURATION,
    "NOTHING_TO_RESUME": CONFIGURATION,
    "START_INTERRUPTED": INTERRUPTED,
    "START_TERMINATED": TERMINATED,
}
"""ForgeError.code → exit code, for errors that end a run before it has a result."""


def exit_code(result: RunResult) -> int:
    return _BY_STATUS[result.status]


def exit_code_for(error: BaseException) -> int:
    match error:
        case KeyboardInterrupt() | asyncio.CancelledError():
            return INTERRUPTED
        case ConfigError():
            return CONFIGURATION
        case NotTrusted():
            return NOT_TRUSTED
        case ModelError():
            return MODEL_UNAVAILABLE
        case ForgeError():
            return _BY_CODE.get(error.code, FAILED)
    return FAILED


def status_for(error: BaseException) -> RunStatus:
    """The status of a run that ended like this before it began."""
    code = exit_code_for(error)
    return next(status for status, each in _BY_STATUS.items() if each == code)


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
