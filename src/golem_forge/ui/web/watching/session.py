"""WatchedSession: one session as pages see it. Live ones run in this process; the others are read from their journals.

Both have a bus to subscribe to, the events that still hold (`standing`), what streams just now (`streams`) and the past
in pages (`history`). Only a live one can be answered.
"""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from golem_forge.events.bus import EventBus
    from golem_forge.events.envelope import Event
    from golem_forge.ui.web.watching.audience import Audience
    from golem_forge.ui.web.watching.history import History
    from golem_forge.ui.web.watching.open_streams import OpenStreams
    from golem_forge.ui.web.watching.standing import Standing


class SessionState(StrEnum):
    LIVE = "live"
    """It runs in this process, and can be answered here."""
    ELSEWHERE = "elsewhere"
    """Another process runs it; here it can be watched."""
    CLOSED = "closed"
    """Nobody runs it."""


class WatchedSession(Protocol):
    @property
    def id(self) -> str: ...
    @property
    def state(self) -> SessionState: ...
    @property
    def answerable(self) -> bool: ...
    @property
    def bus(self) -> EventBus: ...
    @property
    def standing(self) -> Standing: ...
    @property
    def streams(self) -> OpenStreams: ...
    @property
    def history(self) -> History: ...
    @property
    def audience(self) -> Audience: ...
    @property
    def last_seq(self) -> int:
        """The number of the last event that a page which comes now finds in the history."""

    def open_questions(self) -> list[Event]:
        """Same ids, original order."""

    async def arrive(self) -> None:
        """A page is about to look."""

    async def close(self) -> None:
        """Pages are told."""
