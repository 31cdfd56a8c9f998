"""How much a value is: whether it is cheap to show, and roughly how many characters it holds."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

_SHORT_CHARACTERS: Final = 4096
_SHORT_PARTS: Final = 200
_A_PART: Final = 16


def is_short(value: Any) -> bool:
    """Few parts, little text. Looks at no more than that."""
    room, parts = _SHORT_CHARACTERS, 0
    open_parts = [value]
    while open_parts:
        part = open_parts.pop()
        parts += 1
        if isinstance(part, str):
            room -= len(part)
        elif isinstance(part, Mapping):
            parts += len(part)
            if parts <= _SHORT_PARTS:
                open_parts += part.values()
        elif isinstance(part, list | tuple):
            parts += len(part)
            if parts <= _SHORT_PARTS:
                open_parts += part
        if room < 0 or parts > _SHORT_PARTS:
            return False
    return True


def characters_in(value: object) -> int:
    total, parts = 0, [value]
    while parts:
        part = parts.pop()
        total += len(part) if isinstance(part, str) else _A_PART
        if isinstance(part, Mapping):
            parts += part.values()
        elif isinstance(part, list | tuple):
            parts += part
    return total
