"""What streams right now and is in no journal: answers being written, output and progress of running calls.

Each page is sent what it has not seen, by position: one that lags gets several pieces as one, a new one the whole, and
nothing is sent twice or left out. What pages at the same position are sent is made once. Markdown is rendered once for
all pages, off the loop when it is long. An answer ends with `done`, a call's output and progress with its result.
Bounded in number and in text.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from io import SEEK_END, StringIO
from math import isfinite
from typing import Any, Final

from golem_forge.core.lazy_dataclass import dataclass
from golem_forge.events.serialization import Event
from golem_forge.tools.threads import run_in_thread
from golem_forge.ui.web.markdown import MarkdownStream
from golem_forge.ui.web.views import frame_text

MAX_OPEN: Final = 256
"""Maximum open streams of each event type."""


class OpenStreams:
    def __init__(self) -> None:
        self._open: dict[tuple[str, str, str], OpenStream] = {}
        """By type of event, request or call, and channel."""

    def take(self, event: Event) -> OpenStream | None:
        """The stream that this event belongs to, which it may open or end; the oldest of its type gives way where there
        are too many."""
        if event.type == "toolResult":
            self._end(_id_in(event, "toolCallId"), ("toolOutput", "toolProgress"))
        if event.type not in _KINDS:
            return None
        make, id_member, channels = _KINDS[event.type]
        channel = str(event.wire.get("channel" if event.type == "streaming" else "stream"))
        key = (event.type, _id_in(event, id_member), channel if channel in channels else channels[0])
        if key not in self._open:
            same = [each for each in self._open if each[0] == event.type]
            if len(same) >= MAX_OPEN:
                del self._open[same[0]]
            self._open[key] = make(event)
        stream = self._open[key]
        stream.take(event)
        if stream.ended:  # it ends what was thought for it too
            self._end(key[1], (event.type,))
        return stream

    def flows(self) -> list[OpenStream]:
        return list(self._open.values())

    def ids(self) -> list[str]:
        """Returns the ids of the open requests and calls."""
        return list(dict.fromkeys(id for _, id, _ in self._open))

    def clear(self) -> None:
        self._open.clear()

    def _end(self, id: str, types: Sequence[str]) -> None:
        for key in [each for each in self._open if each[1] == id and each[0] in types]:
            del self._open[key]


def _id_in(event: Event, member: str) -> str:
    return str(event.wire.get(member))[:200]


_MAX_CHUNK: Final = 256 * 1024
"""Characters in one frame; the rest follows in the next."""
MAX_ANSWER_TEXT: Final = 4 << 20
"""Maximum characters of one streamed answer; the recorded message has the rest."""
KEPT_OUTPUT: Final = 64 * 1024
_MAX_CACHED: Final = 8


@dataclass(frozen=True, slots=True)
class StreamPosition:
    """How much of a stream one page has seen."""

    edition: int = -1
    """The number of the text, which changes when the text is replaced; −1 if the page has seen nothing."""
    at: int = 0
    blocks: int = 0
    over: bool = False


START_POSITION: Final = StreamPosition()


@dataclass(frozen=True, slots=True)
class StreamChunk:
    """One frame, and where the page stands after it."""

    text: str
    place: StreamPosition
    rest: bool
    """Whether there is already more."""


class OpenStream(ABC):
    """`event` is the newest one: it says which call or request this is, and how it ended."""

    def __init__(self, event: Event) -> None:
        self.event = event
        self.ended = False
        self._made: dict[StreamPosition, StreamChunk] = {}

    def take(self, event: Event) -> None:
        """Stores the newest event after the stream has grown or ended."""
        self.event = event
        self._made = {}

    def due_in(self, place: StreamPosition) -> float:
        """Seconds until it is worth telling a page that stands there; 0: now."""
        return 0.0

    async def piece(self, place: StreamPosition) -> StreamChunk | None:
        """Returns the next chunk for a page at this position; None if it has everything."""
        cache = self._made
        made = cache.get(place)
        if made is None:
            made = await self._make(place)
            if made is not None and len(cache) < _MAX_CACHED:
                cache[place] = made  # where it has grown meanwhile, `self._made` is another one by now
        return made

    @abstractmethod
    async def _make(self, place: StreamPosition) -> StreamChunk | None:
        """Makes the chunk, without the cache."""

    def _written(self, data: Mapping[str, Any], view: Mapping[str, Any] | None = None) -> str:
        event = self.event
        made = Event(event.type, data, None, event.seq, event.ts, event.session_id, event.worker_id)
        return frame_text("event", event=made.to_dict(), view=view or {})


class ModelText(OpenStream):
    """The text (rendered) or thinking (plain) of a model in one request."""

    def __init__(self, event: Event) -> None:
        super().__init__(event)
        self._text = GrowingText()
        self._discarded = False
        self._rendering = RenderedStream() if event.wire.get("channel") != "thinking" else None

    def take(self, event: Event) -> None:
        wire = event.wire
        whole, delta = wire.get("whole"), wire.get("delta")
        if isinstance(whole, str):
            self._text.replace(whole[:MAX_ANSWER_TEXT])
        elif isinstance(delta, str):
            self._text.add(delta[: max(MAX_ANSWER_TEXT - self._text.end, 0)])
        self._discarded = bool(wire.get("discarded"))
        self.ended = bool(wire.get("done"))
        super().take(event)

    def due_in(self, place: StreamPosition) -> float:
        if self.ended or self._rendering is None or place == START_POSITION or place in self._made:
            return 0.0
        return self._rendering.due_in(self._text)

    async def piece(self, place: StreamPosition) -> StreamChunk | None:
        if self._rendering is None:
            return await super().piece(place)
        async with self._rendering.turn:  # who waits for it finds it made
            return await super().piece(place)

    async def _make(self, place: StreamPosition) -> StreamChunk | None:
        text = self._text
        anew = place.edition != text.edition
        position = 0 if anew else place.at
        if place.over or (not anew and position >= text.end and not self.ended):
            return None
        data: dict[str, Any] = {"requestId": self.event.wire.get("requestId"), "delta": "", "done": self.ended}
        data["channel"] = "thinking" if self._rendering is None else "text"
        if self._discarded:
            return StreamChunk(
                self._written({**data, "discarded": True}), StreamPosition(text.edition, text.end, over=True), False
            )
        more = text.since(position)
        rest = len(more) > _MAX_CHUNK
        data["whole" if anew else "delta"] = more = more[:_MAX_CHUNK]
        data["done"] = self.ended and not rest
        blocks, edition = 0 if anew else place.blocks, text.edition
        view: Mapping[str, Any] = {}
        if self._rendering is not None and not rest:
            blocks, view = await self._rendering.view(text, blocks)
        return StreamChunk(
            self._written(data, view), StreamPosition(edition, position + len(more), blocks, over=data["done"]), rest
        )


class CallOutput(OpenStream):
    """One stream of a running call's output, of which the last 64 KiB are there."""

    def __init__(self, event: Event) -> None:
        super().__init__(event)
        self._text = GrowingText(keep=KEPT_OUTPUT)

    def take(self, event: Event) -> None:
        whole, delta = event.wire.get("whole"), event.wire.get("delta")
        if isinstance(whole, str):
            self._text.replace(whole)
        elif isinstance(delta, str):
            self._text.add(delta)
        super().take(event)

    async def _make(self, place: StreamPosition) -> StreamChunk | None:
        text, wire = self._text, self.event.wire
        data = {"toolCallId": wire.get("toolCallId"), "stream": wire.get("stream"), "delta": ""}
        start, kept = text.tail()
        if place.edition != text.edition or place.at < start:
            data["whole"] = kept
        elif place.at >= text.end:
            return None
        else:
            data["delta"] = text.since(place.at)
        return StreamChunk(self._written(data), StreamPosition(text.edition, text.end), False)


class CallProgress(OpenStream):
    """The progress of a running call; only the newest report counts."""

    def __init__(self, event: Event) -> None:
        super().__init__(event)
        self._count = 0

    def take(self, event: Event) -> None:
        self._count += 1
        super().take(event)

    async def _make(self, place: StreamPosition) -> StreamChunk | None:
        if place.at >= self._count:
            return None
        return StreamChunk(self._written(self.event.wire), StreamPosition(0, self._count), False)


_KINDS: Final[Mapping[str, tuple[Callable[[Event], OpenStream], str, tuple[str, ...]]]] = {
    "streaming": (ModelText, "requestId", ("text", "thinking")),
    "toolOutput": (CallOutput, "toolCallId", ("stdout", "stderr")),
    "toolProgress": (CallProgress, "toolCallId", ("",)),
}
"""Type of event → its stream, which member says whose it is, and the channels (the first unless one is named)."""


class GrowingText:
    """Text by position. With `keep`, only its last so many characters are there; positions count from its start."""

    def __init__(self, keep: int | None = None) -> None:
        self._keep = keep
        self._kept = StringIO()
        self.start = 0
        self.end = 0
        self.edition = 0

    def add(self, text: str) -> None:
        self._kept.seek(0, SEEK_END)
        self._kept.write(text)
        self.end += len(text)
        if self._keep is not None and self.end - self.start > 2 * self._keep:
            self.start, kept = self.tail()
            self._kept = StringIO()
            self._kept.write(kept)

    def replace(self, text: str) -> None:
        self._kept = StringIO()
        self.start = self.end = 0
        self.edition += 1
        self.add(text)

    def since(self, position: int) -> str:
        self._kept.seek(max(position - self.start, 0))
        return self._kept.read()

    def tail(self) -> tuple[int, str]:
        """Returns the kept text and where it begins."""
        start = self.start if self._keep is None else max(self.end - self._keep, self.start)
        return start, self.since(start)


_MAX_INLINE_CHARACTERS: Final = 2048
"""Characters that are rendered within a millisecond or two, so without a thread."""


class RenderedStream:
    def __init__(self) -> None:
        self.turn = asyncio.Lock()
        """Held by whoever makes a view; while it is held, the text is fed by nobody else."""
        self._stream = MarkdownStream()
        self._fed = 0
        self._fed_edition = 0
        self._sent_last = 0

    def due_in(self, text: GrowingText) -> float:
        """0 also while a view is being made: whoever asks then waits for its turn."""
        if self.turn.locked():
            return 0.0
        self._feed(text)
        wait = self._stream.due_in()
        return wait if isfinite(wait) else 0.0  # rendered already, for another page

    async def view(self, text: GrowingText, blocks: int) -> tuple[int, dict[str, Any]]:
        """(what a page that held `blocks` of it holds then, how it gets there). Only by who has the turn."""
        stream, before = self._stream, self._fed
        self._feed(text)
        if text.end - before + self._sent_last <= _MAX_INLINE_CHARACTERS:
            keep, html = stream.view(blocks)
        else:
            keep, html = await run_in_thread(lambda: stream.view(blocks))
        self._sent_last = len(html)
        return stream.settled, {"keep": keep, "html": html}

    def _feed(self, text: GrowingText) -> None:
        if self._fed_edition != text.edition:
            self._stream.replace(text.since(0))
        elif self._fed < text.end:
            self._stream.add(text.since(self._fed))
        self._fed, self._fed_edition = text.end, text.edition
