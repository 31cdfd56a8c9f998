"""OpenStreams: what streams just now, i.e. is in no journal: answers being written, output and progress of calls.

`take` gives the flow that an event belongs to, or None; `flows` are those that are open, for a page that has just come.
An answer ends with `done`, a call's output and progress with its result. Bounded in number and in text.
"""

from __future__ import annotations

from typing import Final

from golem_forge.events.envelope import Event
from golem_forge.ui.web.watching.flowing import CallOutput, CallProgress, Flow, ModelText

MOST_OPEN: Final = 256
_ENDING: Final = "toolResult"


class OpenStreams:
    def __init__(self) -> None:
        self._said: dict[tuple[str, str], ModelText] = {}
        self._output: dict[tuple[str, str], CallOutput] = {}
        self._progress: dict[str, CallProgress] = {}

    def take(self, event: Event) -> Flow | None:
        if event.type == "streaming":
            return self._take_said(event)
        if event.type == "toolOutput":
            stream = "stderr" if event.wire.get("stream") == "stderr" else "stdout"
            key = (_id(event, "toolCallId"), stream)
            output = self._output.get(key)
            if output is None:
                _make_room(self._output)
                output = self._output[key] = CallOutput(event)
            output.take(event)
            return output
        if event.type == "toolProgress":
            call = _id(event, "toolCallId")
            progress = self._progress.get(call)
            if progress is None:
                _make_room(self._progress)
                progress = self._progress[call] = CallProgress(event)
            progress.take(event)
            return progress
        if event.type == _ENDING and (self._output or self._progress):
            self._end_call(_id(event, "toolCallId"))
        return None

    def flows(self) -> list[Flow]:
        return [*self._said.values(), *self._output.values(), *self._progress.values()]

    def ids(self) -> list[str]:
        """Of the requests and calls that are open here."""
        calls = [call for call, _ in self._output]
        return list(dict.fromkeys([*(request for request, _ in self._said), *calls, *self._progress]))

    def clear(self) -> None:
        self._said.clear()
        self._output.clear()
        self._progress.clear()

    def _take_said(self, event: Event) -> Flow:
        request = _id(event, "requestId")
        key = (request, "thinking" if event.wire.get("channel") == "thinking" else "text")
        said = self._said.get(key)
        if said is None:
            _make_room(self._said)
            said = self._said[key] = ModelText(event)
        said.take(event)
        if said.ended:  # it ends what was thought for it too
            for channel in ("text", "thinking"):
                self._said.pop((request, channel), None)
        return said

    def _end_call(self, call: str) -> None:
        for stream in ("stdout", "stderr"):
            self._output.pop((call, stream), None)
        self._progress.pop(call, None)


def _id(event: Event, member: str) -> str:
    return str(event.wire.get(member))[:200]


def _make_room(
    open_ones: dict[str, CallProgress] | dict[tuple[str, str], ModelText] | dict[tuple[str, str], CallOutput],
) -> None:
    if len(open_ones) >= MOST_OPEN:
        del open_ones[next(iter(open_ones))]  # type: ignore[arg-type]
