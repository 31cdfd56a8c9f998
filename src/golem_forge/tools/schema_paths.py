"""Where in a value something is: `items[0].name` for people and forms, `$.items[0].name` for a whole value."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from typing import Any, Final

_BARE_IN_PATH: Final = re.compile(r"[A-Za-z_$][A-Za-z0-9_$]*")
_BARE_FIELD: Final = re.compile(r"[^\s.\[\]\"'\x00-\x1f\x7f]+")
_MAX_PARTS: Final = 40
_MAX_KEY: Final = 100


def field_path(parts: Iterable[str | int]) -> str:
    """Empty for the value itself. A field name such as `dry-run` stays as it is."""
    text = _joined(parts, _BARE_FIELD)
    return text[1:] if text.startswith(".") else text


def json_path(parts: Iterable[str | int]) -> str:
    """`$` for the value itself; keys that are not identifiers are quoted: `$["a b"][0]`."""
    return "$" + _joined(parts, _BARE_IN_PATH)


def real_path(value: Any, location: Sequence[str | int], is_missing: bool) -> list[str | int]:
    """pydantic's location without the names of union members and models it puts between real keys."""
    path: list[str | int] = []
    inner = value
    for part in location:
        try:
            inner = inner[part] if hasattr(inner, "__getitem__") else getattr(inner, str(part))
            path.append(part)
        except (KeyError, IndexError, TypeError, AttributeError):
            continue
    return [*path, location[-1]] if is_missing and location else path


def _joined(parts: Iterable[str | int], bare: re.Pattern[str]) -> str:
    pieces = []
    for number, part in enumerate(parts):
        if number == _MAX_PARTS:
            pieces.append("…")
            break
        if isinstance(part, int):
            pieces.append(f"[{part}]")
        elif bare.fullmatch(part) and len(part) <= _MAX_KEY:
            pieces.append(f".{part}")
        else:
            pieces.append(f"[{json.dumps(part if len(part) <= _MAX_KEY else part[:_MAX_KEY] + '…')}]")
    return "".join(pieces)
