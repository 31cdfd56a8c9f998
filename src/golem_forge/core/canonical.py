"""One spelling for one value: the canonical JSON behind fingerprints, digests and rule ids.

`canonical` writes sorted keys, no blanks, real Unicode, and a float with an integral value as that integer, so that
`1.0` and `1` are one call. It refuses (ValueError) what JSON cannot hold.
"""

from __future__ import annotations

import hashlib
import json
from typing import Any

_encode = json.JSONEncoder(sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False).encode


def _numbers_folded(value: Any) -> Any:
    kind = type(value)
    if kind is float:
        return int(value) if value.is_integer() else value
    if kind is dict:
        return {key: _numbers_folded(item) for key, item in value.items()}
    if kind is list or kind is tuple:
        return [_numbers_folded(item) for item in value]
    return value


def canonical(value: Any) -> str:
    return _encode(_numbers_folded(value))


def sha256_hex(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def digest(value: Any) -> str:
    """The SHA-256 (64 hex) of a value's canonical JSON."""
    return sha256_hex(canonical(value))
