"""A conversation line by line, for a terminal that cannot move its cursor (`TERM=dumb`), or a person who wants none of
that (`--plain`): no escape codes, no spinner, nothing is drawn twice.

`LineAdapter` prints events as the formatter gives them, and asks one thing after the other: the next message, a card, a
form. Each is a line that is read to its end in a thread, so the session goes on meanwhile. A question that somebody
answered elsewhere is left out; one whose line is being read stays until Enter.
Threat: as at every terminal, what was typed before a question was asked never answers it (`ask_line`).
"""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Callable, Mapping
from typing import Any, Final, TypeVar

from golem_forge.agent.slash.parser import is_command
from golem_forge.core.ids import new_id
from golem_forge.events.bus import EventBus
from golem_forge.events.runtime_ui import create_runtime_ui
from golem_forge.events.serialization import Event
from golem_forge.ui.approval_prompt import ask_card
from golem_forge.ui.headless import PlainAdapter
from golem_forge.ui.line_terminal import ask_line, print_lines
from golem_forge.ui.render.lines import line, lines_of, mappings_in, to_text
from golem_forge.ui.trace import TERMINAL, TraceLevel

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
        self._emit("approvalResponse", {"requestId": event.wire["requestId"], **_without_empty(answer)})

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


def _without_empty(answer: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in answer.items() if value != ""}


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
