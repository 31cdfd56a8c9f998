"""Routes: for each event type, what the bus must know to carry it, worked out once between two subscriptions."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

from golem_forge.events.envelope import Event
from golem_forge.events.wire import EventData, quick_check

Handler = Callable[[Event], object]
ALL: Final = "*"


class Subscription:
    __slots__ = ("active", "handler", "type")

    def __init__(self, type: str, handler: Handler) -> None:
        self.type = type
        self.handler = handler
        self.active = True
        """False once ended: an event that is being handed out passes it by."""


def _anything(data: Mapping[str, Any]) -> bool:
    return True


class Route:
    __slots__ = ("action", "fits", "private", "recorded", "required", "targets", "type")

    def __init__(self, name: str, kind: type[EventData] | None, subscriptions: Iterable[Subscription]) -> None:
        self.type = name
        self.recorded = kind is None or kind.RECORDED
        self.action = kind is not None and kind.ACTION
        self.private = name == "formResponse"
        """A form may ask for a password under any name: what was typed is for the runtime alone."""
        self.fits: Callable[[Any], bool] = _anything if kind is None else quick_check(kind)
        """Whether every required field holds what it may, at a glance. KeyError: one is missing."""
        self.required = 0 if kind is None else len(kind.REQUIRED)
        self.targets = tuple(one for one in subscriptions if one.type == name or one.type == ALL)
