"""Any value made small enough for one frame: long texts lose their middle, long lists theirs, and each says how much.

Head and tail stay: an end that is not shown is where a trick would hide. Nothing disappears but what a marker counts.
Gives pure JSON (NaN, bytes, cycles and foreign objects become words). Costs as much as what it gives, not as what it is
given: a 50 MB result is neither copied nor written down. What is small enough comes back as it is.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any, Final, TypeVar

from golem_forge.tools.json_values import MAX_INTEGER_BITS, valid_unicode

MOST_TEXT: Final = 1 << 16
MOST_FRAME: Final = 1 << 19
"""Bytes of JSON that an event may take; its view may take as many again."""
_TIGHTER: Final = 4
_LEAST_TEXT: Final = 16
_LEAST: Final = 3
_FEW: Final = 60
_MARKER_KEY: Final = "…"
_Value = TypeVar("_Value")


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    text: int = MOST_TEXT
    items: int = 500
    nodes: int = 20_000
    levels: int = 60
    total: int = MOST_FRAME


EVENT: Final = Limits()


def bounded(value: Any, limits: Limits = EVENT) -> tuple[Any, bool]:
    """(the value within the limits, whether something was left out). Never raises."""
    while True:
        walk = _Walk(limits)
        try:
            return walk.small(value, 0), walk.cut
        except _TooMuch as too_much:
            limits = _tighter(limits, too_much)


def shortened_middle(text: str, limit: int) -> tuple[str, bool]:
    """At most about `limit` characters: the first and the last of them, and how many are between."""
    if len(text) <= limit:
        return valid_unicode(text), False
    half = max(limit // 2, 1)
    between = len(text) - 2 * half
    return valid_unicode(f"{text[:half]}\n… {between:,} characters …\n{text[-half:]}"), True


class _TooMuch(Exception):
    """Of bytes."""


class _TooMany(_TooMuch):
    """Of nodes."""


def _tighter(limits: Limits, too_much: _TooMuch) -> Limits:
    """Where there are too many bytes, texts get shorter before anything is missing; levels go last."""
    least = limits.text == _LEAST_TEXT and limits.items == _LEAST and limits.levels == _LEAST
    if least:  # a budget for less than the least
        return replace(limits, nodes=limits.nodes * 2, total=limits.total * 2)
    if isinstance(too_much, _TooMany):
        return replace(limits, items=max(limits.items // 4, _LEAST), levels=max(limits.levels // 2, _LEAST))
    return replace(
        limits,
        text=max(limits.text // _TIGHTER, _LEAST_TEXT),
        items=max(limits.items // 2, _LEAST),
        levels=limits.levels if limits.items > _FEW else max(limits.levels // 2, _LEAST),
    )


class _Walk:
    def __init__(self, limits: Limits) -> None:
        self.cut = False
        self._limits = limits
        self._left = limits.total
        self._nodes = limits.nodes
        self._above: set[int] = set()

    def small(self, value: Any, level: int) -> Any:
        self._nodes -= 1
        if self._nodes < 0:
            raise _TooMany
        if isinstance(value, str):
            return self._text(value, self._limits.text)
        if value is None or value is True or value is False:
            return self._spent(value, 5)
        if isinstance(value, int):
            if value.bit_length() <= MAX_INTEGER_BITS:
                return self._spent(int(value), 8 + value.bit_length() // 3)
            return self._words(f"(integer of {value.bit_length()} bits)")
        if isinstance(value, float):
            return self._spent(float(value), 24) if value - value == 0.0 else self._words(str(float(value)))
        if isinstance(value, (bytes, bytearray, memoryview)):
            return self._words(f"({len(value)} bytes)")
        return self._container(value, level)

    def _container(self, value: Any, level: int) -> Any:
        if id(value) in self._above:
            return self._words("(cycle)")
        if not isinstance(value, (Mapping, list, tuple)):
            return self._words(f"({type(value).__name__})")
        if level >= self._limits.levels:
            self.cut = True
            return self._words(f"({len(value)} members, nested too deep)")
        self._above.add(id(value))
        try:
            if isinstance(value, Mapping):
                return self._object(value, level)
            return [self.small(item, level + 1) for item in self._items(value)]
        except _TooMuch:
            raise
        except Exception:  # a foreign mapping may raise while it is read
            return self._words(f"({type(value).__name__})")
        finally:
            self._above.discard(id(value))

    def _object(self, value: Mapping[Any, Any], level: int) -> dict[str, Any]:
        small: dict[str, Any] = {}
        for key in islice(value, self._limits.items):
            name = self._text(key if isinstance(key, str) else str(self.small(key, level + 1)), 200)
            small[name] = self.small(value[key], level + 1)
        if (left := len(value) - self._limits.items) > 0:
            self.cut = True
            small[_MARKER_KEY] = self._words(f"… {left:,} more …")
        return small

    def _items(self, value: list[Any] | tuple[Any, ...]) -> Iterator[Any]:
        most = self._limits.items
        if len(value) <= most:
            yield from value
            return
        self.cut = True
        half = max(most // 2, 1)
        yield from value[:half]
        yield f"… {len(value) - 2 * half:,} more …"
        yield from value[-half:]

    def _text(self, text: str, limit: int) -> str:
        shown, cut = shortened_middle(text, limit)
        self.cut = self.cut or cut
        return self._words(shown)

    def _words(self, text: str) -> str:
        return self._spent(text, _written(text))

    def _spent(self, value: _Value, size: int) -> _Value:
        self._left -= size + 2
        if self._left < 0:
            raise _TooMuch
        return value


def _written(text: str) -> int:
    """Bytes of the text in JSON."""
    if text.isascii() and text.isprintable():
        return len(text) + 2 + text.count('"') + text.count("\\")
    from golem_forge.events.jsontext import encode

    return len(encode(text))
