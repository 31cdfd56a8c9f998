"""One spelling for one value: the canonical JSON behind fingerprints, digests and rule ids.

`canonical` writes sorted keys, no blanks, real Unicode, and a float with an integral value as that integer, so that
`1.0` and `1` are one call: exactly what `json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False,
allow_nan=False)` writes for the folded value, at a third of its cost for the small values that calls are made of.
It refuses (ValueError) what JSON cannot hold.
"""

from __future__ import annotations

import hashlib
from json.encoder import encode_basestring as quoted
from math import isfinite
from typing import Any

_PLAIN: tuple[type[Any], ...] = (str, int, dict, list, tuple)
__all__ = ["canonical", "digest", "quoted", "sha256_hex"]


def canonical(value: Any) -> str:
    kind = type(value)
    if kind is str:
        return quoted(value)
    if value is None:
        return "null"
    if kind is bool:
        return "true" if value else "false"
    if kind is int:
        return int.__repr__(value)
    if kind is dict:
        return _object(value)
    if kind is list or kind is tuple:
        return "[" + ",".join([canonical(item) for item in value]) + "]"
    return _unusual(value)


def _object(value: dict[str, Any]) -> str:
    parts = []
    for key in sorted(value):
        item = value[key]
        kind = type(item)
        text = quoted(item) if kind is str else int.__repr__(item) if kind is int else canonical(item)
        parts.append(f"{quoted(key)}:{text}")
    return "{" + ",".join(parts) + "}"


def _unusual(value: Any) -> str:
    """Floats, and subclasses of the plain types, which are written as what they extend."""
    if isinstance(value, float):
        if not isfinite(value):
            raise ValueError(f"{value} is not JSON")
        return int.__repr__(int(value)) if value.is_integer() else float.__repr__(value)
    for plain in _PLAIN:
        if isinstance(value, plain):
            return canonical(plain(value))
    raise ValueError(f"a value of type {type(value).__name__} is not JSON")


def sha256_hex(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def digest(value: Any) -> str:
    """The SHA-256 (64 hex) of a value's canonical JSON."""
    return sha256_hex(canonical(value))
