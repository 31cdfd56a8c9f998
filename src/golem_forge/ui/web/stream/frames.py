"""Frames: what goes over the socket to a page, one JSON object each.

An event is encoded once for all pages, and off the loop when it is long, so that it delays neither the session nor
another page. Every frame is bounded, because what `web.views` gives is.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Mapping
from typing import Any, Final

from golem_forge.events.serialization import Event, encode_json
from golem_forge.tools.threads import run_in_thread
from golem_forge.ui.web.views import event_with_view

_log = logging.getLogger(__name__)
_MAX_GREETING: Final = 900_000
"""Characters of the events in one greeting; of workers and servers beyond it the oldest are left out."""
_MANY_PER_SESSION: Final = frozenset({"workerUpdate", "usageUpdated", "planUpdated", "mcpStatus"})


def frame_text(kind: str, **members: Any) -> str:
    return encode_json({"kind": kind, **members}).decode()


def shown_text(event: Event, **more: bool) -> str:
    return frame_text("event", **shown_members(event), **more)


def hello_text(session: Mapping[str, Any], seq: int, standing: Iterable[Event], **more: bool) -> str:
    room = _MAX_GREETING
    fitting: list[tuple[int, str]] = []
    for event in sorted(standing, key=lambda event: (event.type in _MANY_PER_SESSION, -event.seq)):
        text = encode_json(shown_members(event)).decode()
        if len(text) <= room:
            room -= len(text)
            fitting.append((event.seq, text))
    head = frame_text("hello", session=session, seq=seq, **more)
    return f'{head[:-1]},"standing":[{",".join(text for _, text in sorted(fitting))}]}}'


def answer_text(action_id: str, problem: str = "", fields: Mapping[str, str] | None = None) -> str:
    more = {"problem": problem, "fields": fields}
    return frame_text("answer", id=action_id, ok=not problem, **{name: said for name, said in more.items() if said})


def bye_text(reason: str, session: str = "") -> str:
    """`session`: under which id it goes on."""
    return frame_text("bye", reason=reason, **({"session": session} if session else {}))


PONG: Final = '{"kind":"pong"}'


class Frame:
    """One event on its way to any number of pages."""

    __slots__ = ("_event", "_making", "_short", "_text", "weight")

    def __init__(self, event: Event) -> None:
        self._event: Event | None = event
        self._short = is_short(event.wire)
        self.weight = 0 if self._short else characters_in(event.wire)
        """Characters that are kept for whoever has not been sent it; a short one does not count."""
        self._text = ""
        self._making: asyncio.Future[str] | None = None

    async def text(self) -> str:
        if self._text:
            return self._text
        if self._making is None:
            event = self._event
            assert event is not None
            if self._short:
                return self._keep(shown_text(event))
            self._making = run_in_thread(lambda: shown_text(event))
        return self._keep(await asyncio.shield(self._making))

    def _keep(self, text: str) -> str:
        self._text = text
        self._event = self._making = None  # what it was made of may be long
        return text


def shown_members(event: Event) -> dict[str, Any]:
    """`event` and `view`."""
    try:
        return dict(event_with_view(event))
    except Exception as error:  # a record of somebody else's making must not end the page that looks at it
        _log.warning("event %s of type %r cannot be shown: %s", event.seq, event.type[:80], type(error).__name__)
        return {"event": {**event.to_dict(), "data": {}}, "view": {"cut": True}}


_SHORT_MAX_CHARACTERS: Final = 4096
_SHORT_MAX_PARTS: Final = 200
_PART_CHARACTERS: Final = 16


def is_short(value: Any) -> bool:
    """Few parts, little text. Looks at no more than that."""
    room, parts = _SHORT_MAX_CHARACTERS, 0
    open_parts = [value]
    while open_parts:
        part = open_parts.pop()
        parts += 1
        if isinstance(part, str):
            room -= len(part)
        elif isinstance(part, Mapping | list | tuple):
            parts += len(part)
            if parts <= _SHORT_MAX_PARTS:
                open_parts += part.values() if isinstance(part, Mapping) else part
        if room < 0 or parts > _SHORT_MAX_PARTS:
            return False
    return True


def characters_in(value: object) -> int:
    total, parts = 0, [value]
    while parts:
        part = parts.pop()
        total += len(part) if isinstance(part, str) else _PART_CHARACTERS
        if isinstance(part, Mapping):
            parts += part.values()
        elif isinstance(part, list | tuple):
            parts += part
    return total
