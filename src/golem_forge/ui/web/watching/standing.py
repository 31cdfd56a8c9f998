"""Standing: the recorded events that still hold, so that a page knows where things stand without the whole past.

Takes events in any order and keeps the latest of each key: what the session is, the plan of each worker, each worker,
what each used, the state of each server, and so on. Bounded: of very many workers those that ended go first.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from golem_forge.events.envelope import Event

MOST_OF_A_KIND: Final = 500
_ENDED: Final = frozenset({"complete", "error"})
_Key = tuple[str, str]


def _only(event: Event) -> str:
    return ""


def _by(member: str) -> Callable[[Event], str]:
    return lambda event: str(event.wire.get(member) or event.worker_id)[:200]


_KEYS: Final[Mapping[str, Callable[[Event], str]]] = {
    "sessionStarted": _only,
    "sessionEnd": _only,
    "planUpdated": lambda event: event.worker_id[:200],
    "workerUpdate": _by("workerId"),
    "usageUpdated": _by("workerId"),
    "contextUsage": lambda event: event.worker_id[:200],
    "manualToolsAvailable": _only,
    "mcpStatus": _by("server"),
    "wallsReport": _only,
}
KINDS: Final = frozenset(_KEYS)
_OF_ONE_RUN: Final = frozenset(KINDS - {"sessionStarted", "planUpdated", "usageUpdated"})
"""What a session that goes on later says anew; what it does not say is not so any more."""


class Standing:
    def __init__(self) -> None:
        self._events: dict[_Key, Event] = {}
        self._counts: dict[str, int] = {}
        self._went_on_after = -1

    def take(self, event: Event) -> None:
        find = _KEYS.get(event.type)
        if find is None:
            return
        key = (event.type, find(event))
        known = self._events.get(key)
        if known is not None and known.seq > event.seq:
            return
        if known is None:
            self._make_room(event.type)
            self._counts[event.type] = self._counts.get(event.type, 0) + 1
        self._events[key] = event
        started, ended = self._events.get(("sessionStarted", "")), self._events.get(("sessionEnd", ""))
        if started is not None and ended is not None and ended.seq < started.seq:
            self._drop(("sessionEnd", ""))

    def go_on(self, after: int) -> None:
        """The session was taken up again after event `after`: its workers and servers are not those of before."""
        self._went_on_after = max(after, self._went_on_after)
        for key in [key for key, event in self._events.items() if key[0] in _OF_ONE_RUN and event.seq <= after]:
            self._drop(key)

    def merge(self, news: Standing) -> None:
        """`news`: what was found out elsewhere since."""
        self.go_on(news._went_on_after)
        for event in news.events():
            self.take(event)

    def events(self) -> list[Event]:
        return sorted(self._events.values(), key=lambda event: event.seq)

    def last(self, type: str) -> Event | None:
        """The newest of this type."""
        return max((each for each in self._events.values() if each.type == type), key=lambda one: one.seq, default=None)

    def _make_room(self, type: str) -> None:
        if self._counts.get(type, 0) < MOST_OF_A_KIND:
            return
        same = [key for key in self._events if key[0] == type]
        self._drop(next((key for key in same if _ended(self._events[key].wire)), same[0]))

    def _drop(self, key: _Key) -> None:
        if self._events.pop(key, None) is not None:
            self._counts[key[0]] -= 1


def _ended(wire: Mapping[str, Any]) -> bool:
    return wire.get("status") in _ENDED
