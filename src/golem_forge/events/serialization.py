"""Events and values as text: JSON, timestamps, raw arguments, and the envelope of an event.

`encode_json` takes any value and never raises: what JSON cannot hold becomes a short description. Threat: the text of
an unknown object may hold a host path or a secret, so only its type is named. `pydantic_core` is four times faster than
`json`, and loading it takes as long as encoding thousands of records: a command that writes a few does without. Both
write the same bytes.

`iso_time` writes UTC, ISO 8601, milliseconds, `Z`. It keeps the text of the last second: formatting costs more than the
rest of a record.

`Event` is the envelope `{type, seq, ts, sessionId, workerId, data}`. It is made from a wire mapping or a typed object
and gives both views, each built when it is first read. `data` of a type this version does not know is the plain
mapping.
"""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Callable, Mapping
from hashlib import sha256
from time import gmtime, strftime, time
from typing import Any, Final

from golem_forge.events.model import REGISTRY, EventData, from_wire, to_wire

MAX_DEPTH = 100
_MAX_INT_DIGITS = 4000

_encode_strict = json.JSONEncoder(allow_nan=False, separators=(",", ":")).encode
_encode_plain = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode
_to_json: Callable[..., bytes] | None = None
_WITHOUT_LIBRARY: Final = 100
"""Number of values that are encoded before `pydantic_core` is loaded, unless something else has loaded it."""
_encoded = 0


def _describe_type(value: object) -> str:
    return f"<{type(value).__name__}>"


def to_plain_json(value: Any, _above: frozenset[int] = frozenset()) -> Any:
    """A copy that JSON can hold. The slow way, for values that the encoders refused."""
    kind = type(value)
    if value is None or kind is bool:
        return value
    if isinstance(value, str):
        return str(value)
    if isinstance(value, int):
        return int(value) if value.bit_length() < 3 * _MAX_INT_DIGITS else f"<integer of {value.bit_length()} bits>"
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else str(value)
    if id(value) in _above:
        return "<contains itself>"
    if len(_above) >= MAX_DEPTH:
        return "<nested too deep>"
    if isinstance(value, Mapping):
        above = _above | {id(value)}
        return {
            key if type(key) is str else str(to_plain_json(key)): to_plain_json(item, above)
            for key, item in value.items()
        }
    if isinstance(value, list | tuple | set | frozenset):
        above = _above | {id(value)}
        return [to_plain_json(item, above) for item in value]
    if isinstance(value, bytes | bytearray | memoryview):
        return f"<{len(value)} bytes>"
    return _describe_type(value)


def encode_json(value: Any) -> bytes:
    """Encodes a value as compact UTF-8 JSON."""
    global _encoded, _to_json
    try:
        if _to_json is None:
            _encoded += 1
            if _encoded <= _WITHOUT_LIBRARY and "pydantic_core" not in sys.modules and _is_plain(value):
                return _encode_plain(value).encode()
            from pydantic_core import to_json

            _to_json = to_json
        return _to_json(value, inf_nan_mode="strings", fallback=_describe_type)
    except Exception:  # cycles, lone surrogates, raw bytes: whatever it was, the record must not be lost
        return _encode_strict(to_plain_json(value)).encode()


def _is_plain(value: Any, depth: int = 0) -> bool:
    """Whether `json` writes the same text for it as `pydantic_core`: numbers are those without an exponent."""
    kind = type(value)
    if kind is str or kind is bool or value is None:
        return True
    if kind is int:
        return bool(-(1 << 53) <= value <= 1 << 53)
    if kind is float:
        return bool(value == 0 or 1e-4 <= abs(value) < 1e15)
    if depth > MAX_DEPTH // 2:
        return False
    if kind is dict:
        return all(type(key) is str and _is_plain(item, depth + 1) for key, item in value.items())
    return kind is list and all(_is_plain(item, depth + 1) for item in value)


def _bounded_int(digits: str) -> int | str:
    return int(digits) if len(digits) <= _MAX_INT_DIGITS else digits


def decode_json(text: bytes | str) -> Any:
    """The reverse of `encode_json`; ValueError for text that is not JSON."""
    try:
        return json.loads(text)
    except json.JSONDecodeError:
        raise
    except ValueError:  # an integer longer than the interpreter's own limit
        return json.loads(text, parse_int=_bounded_int)


_last_second: tuple[int, str] = (-1, "")


def iso_time(moment: float) -> str:
    global _last_second
    second, millis = divmod(int(moment * 1000), 1000)
    last = _last_second  # one read: another thread may replace the pair at any time
    if last[0] != second:
        last = _last_second = second, strftime("%Y-%m-%dT%H:%M:%S.", gmtime(second))
    return f"{last[1]}{millis:03d}Z"


def iso_now() -> str:
    return iso_time(time())


_MAX_CHARS = 1024 * 1024


def parse_raw_args(text: Any) -> Any:
    """Arguments that arrived as JSON text as the value it holds, so that they can be redacted; anything else as it is.
    Threat: in invalid JSON a credential cannot be recognised, so only length and digest are kept."""
    if not isinstance(text, str):
        return text
    if len(text) <= _MAX_CHARS:
        try:
            return json.loads(text)
        except (ValueError, RecursionError):
            pass
    digest = sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
    return f"[unreadable {len(text)} chars sha256:{digest[:8]}]"


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
        """Returns the data as an object with attributes; as a mapping for an unknown type."""
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
