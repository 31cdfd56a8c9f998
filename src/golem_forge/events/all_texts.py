"""all_texts: every text of a few small JSON values, names of members too, as one text with a line for each.

Whoever looks for something that may stand in any of them looks once. What is found may also stand across two lines:
then each part is looked at by itself, as it is for whatever this gives None for: much, deep, or no plain JSON.
"""

from __future__ import annotations

from typing import Any, Final

_LITTLE: Final = 4096
_A_LEVEL: Final = 64
"""What a container weighs: so little holds no nesting that matters, and no value that contains itself."""
_SAFE_INTEGER: Final = 1 << 63
_TEXTS: Final = {str}


def all_texts(*values: Any) -> str | None:
    room = _LITTLE
    texts: list[str] = []
    found = list(values)
    for value in found:  # it grows meanwhile: a loop costs a fraction of a call for each part
        kind = type(value)
        if kind is str:
            room -= len(value)
            texts.append(value)
        elif kind is dict or kind is list:
            room -= _A_LEVEL + len(value)
            if room < 0:
                return None
            if kind is dict:
                texts += value
                found += value.values()
            else:
                found += value
        elif kind is int:
            if not -_SAFE_INTEGER < value < _SAFE_INTEGER:
                return None
        elif kind is float:
            if value - value != 0.0:
                return None
        elif value is not None and kind is not bool:
            return None
    if room < 0 or not _TEXTS.issuperset(map(type, texts)):  # a name may be anything in a tool's own value
        return None
    whole = "\n".join(texts)
    return whole if len(whole) <= _LITTLE else None
