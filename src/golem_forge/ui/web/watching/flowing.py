"""Flow: something that grows while pages look at it. Each page is sent what it has not seen, by position.

A page that lags gets several pieces as one, a page that is new gets the whole, and nothing is ever sent twice or left
out, because what is sent depends on what this page has and not on which events it was told. What pages at the same
place are sent is made once for all of them.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from golem_forge.events.envelope import Event
from golem_forge.ui.web.watching.frames import event_text
from golem_forge.ui.web.watching.growing_text import GrowingText
from golem_forge.ui.web.watching.rendered_stream import RenderedStream

_AT_ONCE: Final = 256 * 1024
"""Characters in one frame; the rest follows in the next."""
MOST_TEXT: Final = 4 << 20
"""Of one answer; the recorded message has what comes after it."""
KEPT_OUTPUT: Final = 64 * 1024
_MOST_CACHED: Final = 8


@dataclass(frozen=True, slots=True)
class Place:
    """How far one page has seen a flow."""

    edition: int = -1
    """Which text it was: a text that was replaced is another edition. −1: it has seen nothing."""
    at: int = 0
    blocks: int = 0
    over: bool = False


NOWHERE: Final = Place()


@dataclass(frozen=True, slots=True)
class Piece:
    """One frame, and where the page stands after it."""

    text: str
    place: Place
    rest: bool
    """Whether there is more already."""


class Flow(ABC):
    """The newest event says which call or request this is, and how it ended."""

    def __init__(self, event: Event) -> None:
        self.event = event
        self.ended = False
        self._made: dict[Place, Piece] = {}

    def seen(self, event: Event) -> None:
        self.event = event
        self._made = {}

    def due_in(self, place: Place) -> float:
        """Seconds until it is worth telling a page that stands there; 0: now."""
        return 0.0

    async def piece(self, place: Place) -> Piece | None:
        """What a page that stands there is sent next; None: it has everything."""
        kept = self._made
        made = kept.get(place)
        if made is None:
            made = await self._make(place)
            if made is not None and len(kept) < _MOST_CACHED:
                kept[place] = made  # where it has grown meanwhile, nobody looks there any more
        return made

    @abstractmethod
    async def _make(self, place: Place) -> Piece | None:
        """The same, made anew."""

    def _written(self, data: Mapping[str, Any], view: Mapping[str, Any] | None = None) -> str:
        event = self.event
        made = Event(event.type, data, None, event.seq, event.ts, event.session_id, event.worker_id)
        return event_text(made.to_dict(), view or {})


class ModelText(Flow):
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
            self._text.replace(whole[:MOST_TEXT])
        elif isinstance(delta, str):
            self._text.add(delta[: max(MOST_TEXT - self._text.end, 0)])
        self._discarded = bool(wire.get("discarded"))
        self.ended = bool(wire.get("done"))
        self.seen(event)

    def due_in(self, place: Place) -> float:
        if self.ended or self._rendering is None or place == NOWHERE or place in self._made:
            return 0.0
        return self._rendering.due_in(self._text)

    async def piece(self, place: Place) -> Piece | None:
        if self._rendering is None:
            return await super().piece(place)
        async with self._rendering.turn:  # who waits for it finds it made
            return await super().piece(place)

    async def _make(self, place: Place) -> Piece | None:
        text = self._text
        anew = place.edition != text.edition
        position = 0 if anew else place.at
        if place.over or (not anew and position >= text.end and not self.ended):
            return None
        data: dict[str, Any] = {"requestId": self.event.wire.get("requestId"), "delta": "", "done": self.ended}
        data["channel"] = "thinking" if self._rendering is None else "text"
        if self._discarded:
            return Piece(self._written({**data, "discarded": True}), Place(text.edition, text.end, over=True), False)
        more = text.since(position)
        rest = len(more) > _AT_ONCE
        data["whole" if anew else "delta"] = more = more[:_AT_ONCE]
        data["done"] = self.ended and not rest
        blocks, edition = 0 if anew else place.blocks, text.edition
        view: Mapping[str, Any] = {}
        if self._rendering is not None and not rest:
            blocks, view = await self._rendering.view(text, blocks)
        return Piece(self._written(data, view), Place(edition, position + len(more), blocks, over=data["done"]), rest)


class CallOutput(Flow):
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
        self.seen(event)

    async def _make(self, place: Place) -> Piece | None:
        text, wire = self._text, self.event.wire
        data = {"toolCallId": wire.get("toolCallId"), "stream": wire.get("stream"), "delta": ""}
        start, kept = text.tail()
        if place.edition != text.edition or place.at < start:
            data["whole"] = kept
        elif place.at >= text.end:
            return None
        else:
            data["delta"] = text.since(place.at)
        return Piece(self._written(data), Place(text.edition, text.end), False)


class CallProgress(Flow):
    """How far a running call is; only the newest word counts."""

    def __init__(self, event: Event) -> None:
        super().__init__(event)
        self._said = 0

    def take(self, event: Event) -> None:
        self._said += 1
        self.seen(event)

    async def _make(self, place: Place) -> Piece | None:
        if place.at >= self._said:
            return None
        return Piece(self._written(self.event.wire), Place(0, self._said), False)
