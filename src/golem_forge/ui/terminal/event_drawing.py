"""Which event is drawn where: streamed text by the transcript, running calls live, all else as lines of the formatter.

What this terminal sent itself is on the screen already, so the message that repeats it is not drawn again.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

from golem_forge.events.envelope import Event
from golem_forge.ui.terminal.activity import Activity
from golem_forge.ui.terminal.palette import Line
from golem_forge.ui.terminal.transcript import Transcript
from golem_forge.ui.trace import TraceFormatter, TraceLevel

_ELSEWHERE: Final = frozenset({"approvalRequired", "approvalResolved", "formRequired", "formResolved"})
"""Drawn as questions."""


class EventDrawing:
    def __init__(
        self,
        formatter: TraceFormatter,
        transcript: Transcript,
        activity: Activity,
        say: Callable[[Iterable[Line]], None],
    ) -> None:
        self._formatter = formatter
        self._transcript = transcript
        self._activity = activity
        self._say = say
        self._sent: deque[str] = deque(maxlen=20)

    def sent(self, text: str) -> None:
        self._sent.append(text)

    def draw(self, event: Event) -> None:
        wire, kind = event.wire, event.type
        detailed = self._formatter.level in (TraceLevel.NORMAL, TraceLevel.DEBUG)
        if kind in _ELSEWHERE or wire.get("code") == "prefill":  # that one is in the input line
            return
        if kind == "streaming" and detailed:
            self._transcript.take(wire, event.worker_id)
        elif kind == "message" and self._drawn_message(wire["message"], event.worker_id, detailed):
            return
        elif kind in ("toolProgress", "toolOutput"):
            (self._activity.progressed if kind == "toolProgress" else self._activity.put_out)(wire)
        else:
            self._follow(event)
            self._say(self._formatter.format(event))

    def _drawn_message(self, message: Mapping[str, Any], worker: str, detailed: bool) -> bool:
        """Whether nothing is left to draw of it."""
        role, content = message.get("role"), str(message.get("content", ""))
        if role == "user" and content in self._sent:
            self._sent.remove(content)
            return True
        if role == "assistant" and detailed:
            self._transcript.message(content, worker)
            return True
        return False

    def _follow(self, event: Event) -> None:
        kind, wire = event.type, event.wire
        if kind == "toolStarted":
            self._transcript.finish_of(event.worker_id)
            self._activity.started(wire, self._transcript.names.get(event.worker_id, ""))
        elif kind == "toolResult":
            self._activity.ended(str(wire["toolCallId"]))
        elif kind == "workerUpdate" and wire["depth"] > 0:
            self._transcript.names[str(wire["workerId"])] = str(wire["name"])
        elif kind in ("interrupt", "inputPrompt", "sessionEnd"):
            self._transcript.finish_all()
