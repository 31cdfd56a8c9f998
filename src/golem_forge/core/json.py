"""JSON values: canonical text and digests, copies, and any Python value as JSON.

`canonical` is the text behind fingerprints, digests and rule ids: sorted keys, no blanks, real Unicode, and a float
with an integral value as that integer, so that `1.0` and `1` are the same call. It writes exactly what
`json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)` writes for the folded
value, at a third of its cost for small values. Raises ValueError for what JSON cannot hold.

`copy_json` copies a value. Threat: another holder of a reference could change a call after it was judged.

`as_json` gives pure JSON data or raises NotJson; `safe_json` always gives something. Pure means: dict with str keys,
list, str, int, float, bool and None; finite numbers that fit a double; valid Unicode; at most 100 levels. The output
shares nothing with the input. Threat: a tool's value may be cyclic, very deep, or hold objects whose `str` raises; none
of them may end a session.
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Callable, Mapping
from datetime import date, time
from enum import Enum
from json.encoder import encode_basestring as quoted
from math import isfinite
from typing import Any, Final, NoReturn

from golem_forge.core.lazy_module import hashlib
from golem_forge.core.regex import regex

__all__ = ["canonical", "digest", "quoted", "sha256_hex"]

_PLAIN: tuple[type[Any], ...] = (str, int, dict, list, tuple)


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
        return _canonical_object(value)
    if kind is list or kind is tuple:
        return "[" + ",".join([canonical(item) for item in value]) + "]"
    return _canonical_other(value)


def _canonical_object(value: dict[str, Any]) -> str:
    parts = []
    for key in sorted(value):
        item = value[key]
        kind = type(item)
        text = quoted(item) if kind is str else int.__repr__(item) if kind is int else canonical(item)
        parts.append(f"{quoted(key)}:{text}")
    return "{" + ",".join(parts) + "}"


def _canonical_other(value: Any) -> str:
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


def copy_json(value: Any) -> Any:
    """Returns a deep copy of a JSON value; values of other types are not copied."""
    kind = type(value)
    if kind is dict:
        return {key: copy_json(item) for key, item in value.items()}
    if kind is list:
        return [copy_json(item) for item in value]
    return value


def same_json(one: Any, other: Any) -> bool:
    """Whether two values are equal as JSON, where `True` is not `1`."""
    try:
        return canonical(one) == canonical(other)
    except (ValueError, TypeError):
        return False


def restore_hidden_values(edited: Any, shown: Any, original: Any) -> Any:
    """Edited values where a person changed them, the original where they left what they were shown.

    What is shown may hold placeholders for secrets; sending one back means "as it was".
    """
    if same_json(edited, shown):
        return original
    if isinstance(edited, dict) and isinstance(shown, dict) and isinstance(original, dict):
        return {
            key: restore_hidden_values(item, shown[key], original[key]) if key in shown and key in original else item
            for key, item in edited.items()
        }
    lists = isinstance(edited, list) and isinstance(shown, list) and isinstance(original, list)
    if lists and len(edited) == len(shown) == len(original):
        return [restore_hidden_values(*three) for three in zip(edited, shown, original, strict=True)]
    return edited


MAX_LEVELS: Final = 100
MAX_INTEGER_BITS: Final = 1024
"""Beyond this a JSON reader that uses doubles sees Infinity."""
_MAX_NODES: Final = 200_000
_MAX_DESCRIPTION_CHARS: Final = 10_000
_CONTAINERS: Final = (dict, list, tuple)
_MANY_DIGITS: Final = regex(r"[0-9]{300}")


class NotJson(ValueError):
    """The value has a cycle, NaN or infinity, bytes, a huge integer, broken Unicode or too many levels."""

    stated_name = "NotJson"


def as_json(value: Any) -> Any:
    if not _is_within_bounds(value):
        raise NotJson("too deep, cyclic, or too many values")
    try:
        text = _encode(value)
        if not text.isascii():
            text.encode()  # a lone surrogate fails here
    except (ValueError, TypeError, RecursionError):
        data, lossy = safe_json(value)
        if lossy:
            raise NotJson("not a JSON value") from None
        return data
    if _MANY_DIGITS.search(text) and safe_json(value)[1]:
        raise NotJson("an integer is too large for JSON")
    return json.loads(text)


def safe_json(value: Any) -> tuple[Any, bool]:
    """(pure JSON, whether something JSON cannot hold was replaced by words). Never raises."""
    cleaner = _Cleaner()
    data = cleaner.clean(value, 0)
    return data, cleaner.lossy


def strict_json(data: str | bytes) -> Any:
    """Reads JSON; NaN and Infinity, which Python takes too, are a ValueError as anything else that is not JSON."""
    return json.loads(data, parse_constant=_refuse_constant)


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not a JSON number")


def unique_members(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """An `object_pairs_hook`: raises ValueError for a key that stands twice in one object.

    Threats: two readers of such an object may take different values; a program that puts a path into the text of its
    answer may print one verdict and, from the path, another.
    """
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("a key stands twice in one object")
    return found


def compact_json(data: Any) -> str:
    """JSON text without blanks, for pure JSON data."""
    return _encode(data)


def valid_unicode(text: str) -> str:
    """The text with lone surrogates written as escapes; the text itself in almost every case."""
    if text.isascii():
        return text
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-8", "backslashreplace").decode()
    return text


def _to_plain_value(value: Any) -> Any:
    """One level of JSON for an object json does not know; raises NotJson for bytes."""
    if isinstance(value, (bytes, bytearray, memoryview)):
        raise NotJson("bytes")
    dump = getattr(value, "model_dump", None)
    if callable(dump) and not isinstance(value, type):
        return dump(mode="json")
    if isinstance(value, Mapping):
        return dict(value)
    if isinstance(value, (set, frozenset)):
        return sorted(value, key=lambda item: (type(item).__name__, repr(item)))
    fields = getattr(value, "__dataclass_fields__", None)
    if fields is not None and not isinstance(value, type):
        return {name: getattr(value, name) for name in fields}
    return _known_type_value(value)


def _known_type_value(value: Any) -> Any:
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, (date, time)):
        return value.isoformat()
    if isinstance(value, (deque, type({}.keys()), type({}.values()), type({}.items()))):
        return list(value)
    return _describe_object(value)


def _describe_object(value: Any) -> str:
    kind: Any = type(value)
    if kind.__str__ is object.__str__ and kind.__repr__ is object.__repr__:
        return f"<{kind.__name__}>"  # the default text is a memory address: different on every run
    try:
        return valid_unicode(str(value)[:_MAX_DESCRIPTION_CHARS])
    except Exception:
        return f"<{kind.__name__}>"


_encode: Final[Callable[[Any], str]] = json.JSONEncoder(
    separators=(",", ":"), ensure_ascii=False, allow_nan=False, check_circular=False
).encode


def _is_within_bounds(value: Any) -> bool:
    """At most MAX_LEVELS of containers and _MAX_NODES of them in all, counted before anything else walks them.

    Threat: sixty lists that hold each other twice are small in memory and endless to write down.
    """
    layer = [value] if isinstance(value, _CONTAINERS) else []
    total = 0
    for _ in range(MAX_LEVELS):
        total += len(layer)
        if not layer or total > _MAX_NODES:
            return not layer
        layer = [
            item
            for node in layer
            for item in (node.values() if isinstance(node, dict) else node)
            if isinstance(item, _CONTAINERS)
        ]
    return not layer


class _Cleaner:
    """Walks any value once; remembers whether it had to replace something."""

    def __init__(self) -> None:
        self.lossy = False
        self._nodes = 0
        self._path: set[int] = set()

    def clean(self, value: Any, level: int) -> Any:
        if value is None or value is True or value is False:
            return value
        if isinstance(value, str):
            text = valid_unicode(str(value) if type(value) is str else str.__str__(value))
            self.lossy = self.lossy or text != value
            return text
        if isinstance(value, int):
            return self._integer(int(value))
        if isinstance(value, float):
            return self._number(float(value))
        if isinstance(value, (bytes, bytearray, memoryview)):
            return self._lost(bytes(value).decode("utf-8", "backslashreplace"))
        return self._container(value, level)

    def _integer(self, value: int) -> Any:
        if value.bit_length() <= MAX_INTEGER_BITS:
            return value
        try:
            return self._lost(str(value))
        except ValueError:  # Python refuses decimal text beyond some thousand digits
            return self._lost(hex(value))

    def _number(self, value: float) -> Any:
        if value - value == 0.0:
            return value
        return self._lost("NaN" if value != value else "Infinity" if value > 0 else "-Infinity")

    def _container(self, value: Any, level: int) -> Any:
        if id(value) in self._path:
            return self._lost("(cycle)")
        self._nodes += 1
        if level >= MAX_LEVELS or self._nodes > _MAX_NODES:
            return self._lost("(too deep)" if level >= MAX_LEVELS else "(too many values)")
        self._path.add(id(value))
        try:
            if isinstance(value, (list, tuple)):
                return [self.clean(item, level + 1) for item in value]
            if not isinstance(value, Mapping):
                return self._object(value, level)
            return {self._key(key): self.clean(item, level + 1) for key, item in value.items()}
        except Exception:  # a foreign object may raise anything while it is read
            return self._lost(_describe_object(value))
        finally:
            self._path.discard(id(value))

    def _object(self, value: Any, level: int) -> Any:
        plain = _to_plain_value(value)
        return plain if type(plain) is str else self.clean(plain, level + 1)

    def _key(self, key: Any) -> str:
        if isinstance(key, str):
            return str(self.clean(key, 0))
        plain = self.clean(key, MAX_LEVELS - 1)
        return plain if isinstance(plain, str) else _encode(plain)

    def _lost(self, words: str) -> str:
        self.lossy = True
        return words
