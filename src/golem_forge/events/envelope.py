"""Event: the envelope `{type, seq, ts, sessionId, workerId, data}` around what one event says.

An Event is made from a wire mapping or a typed object and gives both views; each is built when it is first read, so
that an event nobody looks at costs neither. `data` of a type this version does not know is the plain mapping.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from golem_forge.events.model import REGISTRY, EventData, from_wire, to_wire
from golem_forge.events.serialization import decode_json, encode_json, iso_time


class Event:
    __slots__ = ("_data", "_make", "_ts", "_wire", "seq", "session_id", "source", "type", "worker_id")

    def __init__(
        self,
        type: str,
        wire: Mapping[str, Any] | None,
        data: EventData | None = None,
        seq: int = 0,
        ts: float | str = "",
        session_id: str = "",
        worker_id: str = "",
        source: str = "",
        make: Callable[[], Mapping[str, Any]] | None = None,
    ) -> None:
        """`ts` in seconds is written out, and `make` is called for the wire mapping, when they are first read."""
        self.type = type
        self._wire = wire
        self._data = data
        self._make = make
        self.seq = seq
        self._ts = ts
        self.session_id = session_id
        self.worker_id = worker_id
        self.source = source
        """The UI that emitted an action; not part of the wire."""

    @property
    def ts(self) -> str:
        if not isinstance(self._ts, str):
            self._ts = iso_time(self._ts)
        return self._ts

    @property
    def wire(self) -> Mapping[str, Any]:
        """The data by wire names. Shared by every reader: never change it."""
        if self._wire is None:
            if self._make is not None:
                self._wire = self._make()
            else:
                assert self._data is not None
                self._wire = to_wire(self._data)
        return self._wire

    @property
    def data(self) -> Any:
        """The data by attributes."""
        if self._data is None:
            if self.type not in REGISTRY:
                return self._wire
            self._data = from_wire(self.type, self.wire)
        return self._data

    def to_dict(self) -> dict[str, Any]:
        return {
            "type": self.type,
            "seq": self.seq,
            "ts": self.ts,
            "sessionId": self.session_id,
            "workerId": self.worker_id,
            "data": self.wire,
        }

    def to_json(self) -> str:
        return encode_json(self.to_dict()).decode()

    @classmethod
    def from_dict(cls, envelope: Mapping[str, Any]) -> Event:
        """Refuses (ValueError) an envelope without type or data, or data without a required field."""
        kind, data = envelope.get("type"), envelope.get("data")
        if not isinstance(kind, str) or not isinstance(data, Mapping):
            raise ValueError("an event envelope needs a 'type' and an object as 'data'")
        typed = from_wire(kind, data) if kind in REGISTRY else None
        return cls(
            kind,
            data,
            typed,
            int(envelope.get("seq", 0)),
            str(envelope.get("ts", "")),
            str(envelope.get("sessionId", "")),
            str(envelope.get("workerId", "")),
        )

    @classmethod
    def from_json(cls, text: str | bytes) -> Event:
        envelope = decode_json(text)
        if not isinstance(envelope, Mapping):
            raise ValueError("an event envelope is a JSON object")
        return cls.from_dict(envelope)

    def __eq__(self, other: object) -> bool:
        return self.to_dict() == other.to_dict() if isinstance(other, Event) else NotImplemented

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        # Without its data: an error text or a log line that shows an event must not show what a person typed.
        return f"Event({self.type!r}, seq={self.seq})"
