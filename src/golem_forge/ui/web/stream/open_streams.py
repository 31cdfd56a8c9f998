"""What streams right now and is in no journal: answers being written, output and progress of running calls.

Each page is sent what it has not seen, by position: one that lags gets several pieces as one, a new one the whole, and
nothing is sent twice or left out. What pages at the same position are sent is made once. Markdown is rendered once for
all pages, off the loop when it is long. An answer ends with `done`, a call's output and progress with its result.
Bounded in number and in text.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from bisect import bisect_right
from collections.abc import Callable, Hashable, Mapping
from math import isfinite
from typing import TYPE_CHECKING, Any, Final, TypeVar

from golem_forge.core.lazy_dataclass import dataclass
from golem_forge.events.envelope import Event
from golem_forge.tools.threads import run_in_thread
from golem_forge.ui.web.stream.frames import event_text

if TYPE_CHECKING:
    from golem_forge.ui.web.markdown import MarkdownStream

MAX_OPEN: Final = 256
_Key = TypeVar("_Key", bound=Hashable)
_Stream = TypeVar("_Stream", bound="OpenStream")


class OpenStreams:
    def __init__(self) -> None:
        self._answers: dict[tuple[str, str], ModelText] = {}
        self._output: dict[tuple[str, str], CallOutput] = {}
        self._progress: dict[str, CallProgress] = {}

    def take(self, event: Event) -> OpenStream | None:
        if event.type == "streaming":
            return self._take_answer(event)
        if event.type not in ("toolOutput", "toolProgress", "toolResult"):
            return None
        call = str(event.wire.get("toolCallId"))[:200]
        if event.type == "toolOutput":
            stream = "stderr" if event.wire.get("stream") == "stderr" else "stdout"
            return _grow(self._output, (call, stream), CallOutput, event)
        if event.type == "toolProgress":
            return _grow(self._progress, call, CallProgress, event)
        self._output.pop((call, "stdout"), None)
        self._output.pop((call, "stderr"), None)
        self._progress.pop(call, None)
        return None

    def flows(self) -> list[OpenStream]:
        return [*self._answers.values(), *self._output.values(), *self._progress.values()]

    def ids(self) -> list[str]:
        """Of the requests and calls that are open here."""
        calls = [call for call, _ in self._output]
        return list(dict.fromkeys([*(request for request, _ in self._answers), *calls, *self._progress]))

    def clear(self) -> None:
        self._answers.clear()
        self._output.clear()
        self._progress.clear()

    def _take_answer(self, event: Event) -> OpenStream:
        request = str(event.wire.get("requestId"))[:200]
        channel = "thinking" if event.wire.get("channel") == "thinking" else "text"
        answer = _grow(self._answers, (request, channel), ModelText, event)
        if answer.ended:  # it ends what was thought for it too
            self._answers.pop((request, "text"), None)
            self._answers.pop((request, "thinking"), None)
        return answer


def _grow(streams: dict[_Key, _Stream], key: _Key, make: Callable[[Event], _Stream], event: Event) -> _Stream:
    """Adds an event to its stream, which it may open; the oldest one gives way where there are too many."""
    stream = streams.get(key)
    if stream is None:
        if len(streams) >= MAX_OPEN:
            del streams[next(iter(streams))]
        stream = streams[key] = make(event)
    stream.take(event)
    return stream


_MAX_CHUNK: Final = 256 * 1024
"""Characters in one frame; the rest follows in the next."""
MAX_ANSWER_TEXT: Final = 4 << 20
"""Of one answer; the recorded message has what comes after it."""
KEPT_OUTPUT: Final = 64 * 1024
_MAX_CACHED: Final = 8


@dataclass(frozen=True, slots=True)
class StreamPosition:
    """How far one page has seen a flow."""

    edition: int = -1
    """Which text it was: a text that was replaced is another edition. −1: it has seen nothing."""
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
    """Whether there is more already."""


class OpenStream(ABC):
    """`event` is the newest one: it says which call or request this is, and how it ended."""

    def __init__(self, event: Event) -> None:
        self.event = event
        self.ended = False
        self._made: dict[StreamPosition, StreamChunk] = {}

    def take(self, event: Event) -> None:
        """It has grown, or ended."""
        self.event = event
        self._made = {}

    def due_in(self, place: StreamPosition) -> float:
        """Seconds until it is worth telling a page that stands there; 0: now."""
        return 0.0

    async def piece(self, place: StreamPosition) -> StreamChunk | None:
        """What a page that stands there is sent next; None: it has everything."""
        cache = self._made
        made = cache.get(place)
        if made is None:
            made = await self._make(place)
            if made is not None and len(cache) < _MAX_CACHED:
                cache[place] = made  # where it has grown meanwhile, `self._made` is another one by now
        return made

    @abstractmethod
    async def _make(self, place: StreamPosition) -> StreamChunk | None:
        """The same, made anew."""

    def _written(self, data: Mapping[str, Any], view: Mapping[str, Any] | None = None) -> str:
        event = self.event
        made = Event(event.type, data, None, event.seq, event.ts, event.session_id, event.worker_id)
        return event_text(made.to_dict(), view or {})


class ModelText(OpenStream):
    """What a model says (`text`, rendered) or thinks (`thinking`, plain) in one request."""

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
    """How far a running call is; only the newest word counts."""

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


_CHUNK_CHARACTERS: Final = 4096


class GrowingText:
    """Text by position. With `keep`, only its last so many characters are there; positions count from its start."""

    def __init__(self, keep: int | None = None) -> None:
        self._keep = keep
        self._chunks: list[str] = []
        self._starts: list[int] = []
        self.end = 0
        self.edition = 0

    @property
    def start(self) -> int:
        return self._starts[0] if self._starts else self.end

    def add(self, text: str) -> None:
        if not text:
            return
        if self._chunks and len(self._chunks[-1]) < _CHUNK_CHARACTERS:
            self._chunks[-1] += text
        else:
            self._chunks.append(text)
            self._starts.append(self.end)
        self.end += len(text)
        if self._keep is not None and self.end - self.start > 2 * self._keep:
            start, kept = self.tail()
            self._chunks, self._starts = [kept], [start]

    def replace(self, text: str) -> None:
        self._chunks, self._starts, self.end = [], [], 0
        self.edition += 1
        self.add(text)

    def since(self, position: int) -> str:
        if position >= self.end:
            return ""
        first = max(bisect_right(self._starts, position) - 1, 0)
        text = "".join(self._chunks[first:])
        return text[max(position - self._starts[first], 0) :]

    def tail(self) -> tuple[int, str]:
        """(where it begins, what is kept)."""
        text = self.since(self.start)
        kept = text if self._keep is None else text[-self._keep :]
        return self.end - len(kept), kept


_MAX_INLINE_CHARACTERS: Final = 2048
"""So many characters are rendered within a millisecond or two."""


class RenderedStream:
    def __init__(self) -> None:
        self.turn = asyncio.Lock()
        """Held by whoever makes a view; while it is held, the text is fed by nobody else."""
        self._stream: MarkdownStream | None = None
        self._fed = 0
        self._fed_edition = 0
        self._sent_last = 0

    def due_in(self, text: GrowingText) -> float:
        """0 also while a view is being made: whoever asks then waits for its turn."""
        if self._stream is None or self.turn.locked():
            return 0.0
        self._feed(self._stream, text)
        wait = self._stream.due_in()
        return wait if isfinite(wait) else 0.0  # rendered already, for another page

    async def view(self, text: GrowingText, blocks: int) -> tuple[int, dict[str, Any]]:
        """(what a page that held `blocks` of it holds then, how it gets there). Only by who has the turn."""
        if self._stream is None:
            self._stream = await run_in_thread(_new_stream)
        stream, before = self._stream, self._fed
        self._feed(stream, text)
        if text.end - before + self._sent_last <= _MAX_INLINE_CHARACTERS:
            keep, html = stream.view(blocks)
        else:
            keep, html = await run_in_thread(lambda: stream.view(blocks))
        self._sent_last = len(html)
        return stream.settled, {"keep": keep, "html": html}

    def _feed(self, stream: MarkdownStream, text: GrowingText) -> None:
        if self._fed_edition != text.edition:
            stream.replace(text.since(0))
        elif self._fed < text.end:
            stream.add(text.since(self._fed))
        self._fed, self._fed_edition = text.end, text.edition


def _new_stream() -> MarkdownStream:
    """Off the loop: the first one loads the libraries."""
    from golem_forge.ui.web.markdown import MarkdownStream

    first = MarkdownStream()  # its cost would count as that of every answer
    first.add("a")
    first.view(0)
    return MarkdownStream()
