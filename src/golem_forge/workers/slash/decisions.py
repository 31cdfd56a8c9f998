"""The Decisions of this session's last calls, as the UIs were shown them, for `/why`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from golem_forge.events.bus import EventBus
from golem_forge.events.envelope import Event

_MOST: Final = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class Decided:
    call_id: str
    tool: str
    status: str
    error: str
    decision: Mapping[str, Any] | None


class Decisions:
    """Listens to a bus until `close`."""

    def __init__(self, bus: EventBus) -> None:
        self._by_id: dict[str, Decided] = {}
        self._forget = bus.on("toolResult", self._keep)

    def take_over(self, earlier: Decisions) -> None:
        self._by_id.update(earlier._by_id)

    def _keep(self, event: Event) -> None:
        wire = event.wire
        call_id = str(wire["toolCallId"])
        self._by_id.pop(call_id, None)
        self._by_id[call_id] = Decided(
            call_id=call_id,
            tool=str(wire["toolName"]),
            status=str(wire["status"]),
            error=str(wire.get("error") or ""),
            decision=wire["decision"],
        )
        if len(self._by_id) > _MOST:
            del self._by_id[next(iter(self._by_id))]

    def last(self) -> Decided | None:
        return next(reversed(self._by_id.values()), None)

    def find(self, typed: str) -> list[Decided]:
        """Those whose id begins like this, or of the tool with this name, newest first; an exact id is alone."""
        if typed in self._by_id:
            return [self._by_id[typed]]
        newest_first = list(reversed(self._by_id.values()))
        by_id = [each for each in newest_first if each.call_id.startswith(typed)]
        return by_id or [each for each in newest_first if each.tool == typed][:1]

    def close(self) -> None:
        self._forget()
