"""The UIs that write lines: `HeadlessAdapter` and `PlainAdapter`, which never ask, and `LineAdapter`, which does.

Headless, for `forge run` without a terminal: standard output is the final answer and nothing else; diagnostics go to
standard error by trace level. With `json` standard output is one event envelope a line, the last of type `runResult`.
The caller must call `finished(result)` while the session is still open.
Plain: the session as lines without escape codes, for an output that is not a terminal.
Neither attaches to the RuntimeUI: approvals are answered by the mode or denied, forms cancelled, input unavailable.

Line: a conversation line by line, for a terminal that cannot move its cursor (`TERM=dumb`), or a person who wants none
of that (`--plain`): no escape codes, no spinner, nothing is drawn twice. It prints events as the formatter gives them,
and asks one thing after the other: the next message, a card, a form. Each is a line that is read to its end in a
thread, so the session goes on meanwhile. A question that somebody answered elsewhere is left out; one whose line is
being read stays until Enter.
Threat: as at every terminal, what was typed before a question was asked never answers it (`ask_line`).
"""

from __future__ import annotations

import asyncio
import json
import sys
import threading
from collections.abc import Callable, Mapping
from typing import Any, Final, TextIO, TypeVar

from golem_forge.agent.run_result import RunResult, RunStatus
from golem_forge.agent.slash.parser import is_command
from golem_forge.core.calls import LEFTOVERS
from golem_forge.core.ids import new_id
from golem_forge.core.text import escape_control_chars, escape_control_chars_in_prose
from golem_forge.events.bus import EventBus
from golem_forge.events.runtime_ui import create_runtime_ui
from golem_forge.events.serialization import Event
from golem_forge.ui.approval_prompt import ask_card
from golem_forge.ui.line_terminal import ask_line, print_lines
from golem_forge.ui.render.lines import line, lines_of, mappings_in, plain_text, to_text
from golem_forge.ui.trace import TERMINAL, Output, TraceLevel, create_trace_formatter, json_line

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


_COMMAND_S: Final = 0.3
"""Seconds that the next prompt waits for the output or question of a command."""
_Answer = TypeVar("_Answer")
Wire = Mapping[str, Any]


class LineAdapter(PlainAdapter):
    stated_name = "LineAdapter"
    answers = True

    def __init__(self, bus: EventBus, *, trace: TraceLevel | str = TraceLevel.NORMAL) -> None:
        super().__init__(bus, trace=trace)
        self._waiting: asyncio.Queue[Event] = asyncio.Queue()
        self._closed: set[str] = set()
        """Questions that were answered, by whomever."""
        self._sent: list[str] = []
        self._asking: asyncio.Task[None] | None = None
        self._detach: Callable[[], None] = lambda: None

    async def initialize(self) -> None:
        if self._asking is not None:
            return
        self.bus.bind_loop()
        await super().initialize()
        ui = create_runtime_ui(self.bus)
        self._detach = ui.attach(TERMINAL)
        ui.replay_open(self._on_event)
        self._asking = asyncio.create_task(self._ask_all())

    async def shutdown(self) -> None:
        """A line that is being read is left to its thread: nobody waits for it."""
        self._detach()
        if self._asking is not None:
            self._asking.cancel()
        await super().shutdown()

    def _on_event(self, event: Event) -> None:
        wire = event.wire
        if event.type in _CLOSED:
            self._closed.add(str(wire["requestId"]))
        if event.type in _ASKED:
            self._closed.discard(str(wire["requestId"]))  # asked again, with what was wrong
            self._waiting.put_nowait(event)
        if event.type == "message" and self._is_own(wire["message"]):
            return
        if event.type not in ("approvalRequired", "formRequired"):  # those are printed when their turn comes
            super()._on_event(event)

    def _is_own(self, message: Wire) -> bool:
        """Its words stand on the screen already, as they were typed."""
        content = str(message.get("content", ""))
        if message.get("role") != "user" or content not in self._sent:
            return False
        self._sent.remove(content)
        return True

    # ---- asking

    async def _ask_all(self) -> None:
        while True:
            event = await self._waiting.get()
            if str(event.wire["requestId"]) not in self._closed:
                await _ASKED[event.type](self, event)

    async def _ask_input(self, event: Event) -> None:
        text = await _in_thread(lambda: ask_line("> "))
        if text is None:
            self.request_exit()
            return
        if text.strip() and not is_command(text):
            self._sent.append(text)
            self._emit("userInput", {"requestId": event.wire["requestId"], "content": text})
            return
        if text.strip():
            self._emit("command", {"requestId": new_id(), "text": text})
            await asyncio.sleep(_COMMAND_S)
        self._waiting.put_nowait(event)  # behind what came meanwhile

    async def _ask_approval(self, event: Event) -> None:
        answer = await _in_thread(lambda: ask_card(event.wire, mappings_in(event.wire.get("choices"))))
        given = {name: value for name, value in answer.items() if value != ""}
        self._emit("approvalResponse", {"requestId": event.wire["requestId"], **given})

    async def _ask_form(self, event: Event) -> None:
        answer = await _in_thread(lambda: _fill(event.wire))
        self._emit("formResponse", {"requestId": event.wire["requestId"], **answer})

    def _emit(self, type: str, data: dict[str, Any]) -> None:
        if str(data["requestId"]) not in self._closed:
            self.bus.emit(type, data, source=TERMINAL)


_CLOSED: Final = frozenset({"approvalResolved", "formResolved", "inputResolved"})
_ASKED: Final = {
    "inputPrompt": LineAdapter._ask_input,
    "approvalRequired": LineAdapter._ask_approval,
    "formRequired": LineAdapter._ask_form,
}


def _fill(wire: Wire) -> dict[str, Any]:
    """A form's answer: y or n where it says what they mean, else its values as one JSON object."""
    print_lines([line(f"── {to_text(wire.get('title', ''))}", "title"), *lines_of(to_text(wire.get("message") or ""))])
    fields = mappings_in(wire.get("fields"))
    if not fields:
        print_lines([line(f"{key}  {to_text(wire[name])}", indent="  ") for key, name in _CHOICES if wire.get(name)])
        word = (ask_line("y or n? (Enter: not now) ") or "").strip().lower()
        return {"action": "accept", "values": {}} if word == "y" else {"action": "decline" if word == "n" else "cancel"}
    print_lines([line(to_text(one.get("label") or one.get("name") or ""), indent="  ") for one in fields])
    while text := (ask_line("values as one JSON object (empty: cancel): ") or "").strip():
        try:
            values = json.loads(text)
        except (ValueError, RecursionError) as error:
            print_lines([line(f"✗ not JSON: {error}", "fail", "  ")])
            continue
        if isinstance(values, dict):
            return {"action": "accept", "values": values}
        print_lines([line("✗ the values are one JSON object", "fail", "  ")])
    return {"action": "cancel"}


_CHOICES: Final = (("y", "accept"), ("n", "decline"))


async def _in_thread(ask: Callable[[], _Answer]) -> _Answer:
    """Runs a blocking call in a daemon thread, because reading a line may never end."""
    loop = asyncio.get_running_loop()
    answered: asyncio.Future[_Answer] = loop.create_future()

    def put(answer: _Answer) -> None:
        if not answered.done():
            answered.set_result(answer)

    def work() -> None:
        answer = ask()
        if not loop.is_closed():
            loop.call_soon_threadsafe(put, answer)

    threading.Thread(target=work, name="line", daemon=True).start()
    return await answered
