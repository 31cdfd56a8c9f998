"""Any value as JSON text, never an exception: what JSON cannot hold becomes a short description of it.

Threat: the text of an unknown object may carry a host path or a secret, so only its type is named.
`pydantic_core` (four times faster than `json`) is loaded when the first value is encoded.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from typing import Any

MAX_DEPTH = 100
_MAX_INT_DIGITS = 4000

_strict = json.JSONEncoder(allow_nan=False, separators=(",", ":")).encode
_to_json: Callable[..., bytes] | None = None


def _describe(value: object) -> str:
    return f"<{type(value).__name__}>"


def plain(value: Any, _above: frozenset[int] = frozenset()) -> Any:
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
        return {key if type(key) is str else str(plain(key)): plain(item, above) for key, item in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        above = _above | {id(value)}
        return [plain(item, above) for item in value]
    if isinstance(value, bytes | bytearray | memoryview):
        return f"<{len(value)} bytes>"
    return _describe(value)


def _load() -> Callable[..., bytes]:
    global _to_json
    from pydantic_core import to_json

    _to_json = to_json
    return to_json


def encode(value: Any) -> bytes:
    """Compact UTF-8 JSON."""
    try:
        return (_to_json or _load())(value, inf_nan_mode="strings", fallback=_describe)
    except Exception:  # cycles, lone surrogates, raw bytes: whatever it was, the record must not be lost
        return _strict(plain(value)).encode()


def _bounded_int(digits: str) -> int | str:
    return int(digits) if len(digits) <= _MAX_INT_DIGITS else digits


def decode(text: bytes | str) -> Any:
    """The reverse of `encode`; ValueError for text that is not JSON."""
    try:
        return json.loads(text)
    except json.JSONDecodeError:
        raise
    except ValueError:  # an integer longer than the interpreter's own limit
        return json.loads(text, parse_int=_bounded_int)
