"""Checks on text that a server wrote: characters a model reads and a person does not see, and bounded display.

`hidden_in` names the first hidden character of a text; `hidden_in_schema` and `hidden_in_json` also say where it is,
because all of a schema goes to the model. An empty string means that there is none. `display_text` escapes hidden
characters and cuts a text at a byte limit.

Threat: instructions in tag characters, bidi controls, escape sequences in a description, and bytes encoded as rows of
variation selectors or zero-width characters. One or two of those are normal in scripts and emoji; three in a row are
not. In a schema's data (names, `default`, `enum`, `pattern`) ASCII control characters are allowed, since JSON escapes
them visibly; in titles and descriptions they are not.
"""

from __future__ import annotations

import re
from enum import Enum, auto
from typing import Any, Final

from golem_forge.core.regex import regex
from golem_forge.core.text import escape_control_chars

_TAGS: Final = "\U000e0000-\U000e007f"
_BIDI: Final = "\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069"
_ROW: Final = "[\u200b-\u200d\u2060-\u2064\ufe00-\ufe0f\ufeff\U000e0100-\U000e01ef]{3}"
_HIDDEN: Final = regex(f"[\x00-\x08\x0b-\x1f\x7f-\x9f{_BIDI}{_TAGS}]|{_ROW}")
_HIDDEN_IN_DATA: Final = regex(f"[\x7f-\x9f{_BIDI}{_TAGS}]|{_ROW}")
_SUSPICIOUS: Final = regex(rf"[\x7f-\x9f{_BIDI}{_TAGS}]|{_ROW}|\\[bfru]")
"""In JSON text, where the other control characters are escapes."""
_MAX_PATH: Final = 200

_PROSE: Final = frozenset({"title", "description", "$comment"})
_DATA: Final = frozenset({"default", "enum", "const", "examples"})
_NAMED_SCHEMAS: Final = frozenset(
    {"properties", "patternProperties", "$defs", "definitions", "dependentSchemas", "dependencies"}
)


class _SchemaPosition(Enum):
    """What stands somewhere in a schema."""

    SCHEMA = auto()
    NAMED_SCHEMAS = auto()
    """Its keys are names, not keywords: a property may be called `description`."""
    DATA = auto()
    PROSE = auto()

    def below(self, key: str) -> _SchemaPosition:
        if self in (_SchemaPosition.DATA, _SchemaPosition.PROSE):
            return self
        if self is _SchemaPosition.NAMED_SCHEMAS:
            return _SchemaPosition.SCHEMA
        if key in _NAMED_SCHEMAS:
            return _SchemaPosition.NAMED_SCHEMAS
        if key in _PROSE:
            return _SchemaPosition.PROSE
        return _SchemaPosition.DATA if key in _DATA else _SchemaPosition.SCHEMA

    @property
    def hidden(self) -> re.Pattern[str]:
        return _HIDDEN if self is _SchemaPosition.PROSE else _HIDDEN_IN_DATA


def hidden_in(text: str) -> str:
    """`a tag character (U+E0041)`, or nothing."""
    return "" if text.isascii() and text.isprintable() else _describe_match(_HIDDEN.search(text))


def hidden_in_schema(schema: Any, written: str) -> str:
    """`a bidi control (U+202E) at properties.path.description`, or nothing. `written`: the same as JSON text."""
    return _search(schema, _SchemaPosition.SCHEMA) if _SUSPICIOUS.search(written) else ""


def hidden_in_json(value: Any, written: str) -> str:
    return _search(value, _SchemaPosition.PROSE) if _SUSPICIOUS.search(written) else ""


def _search(root: Any, place: _SchemaPosition) -> str:
    """Without recursion, in the order of the text."""
    stack: list[tuple[Any, _SchemaPosition, str]] = [(root, place, "")]
    while stack:
        value, place, path = stack.pop()
        if isinstance(value, str) and (found := place.hidden.search(value)):
            return f"{_describe_match(found)} at {_display_path(path)}"
        if isinstance(value, dict):
            for key in value:
                if found := place.hidden.search(key):
                    return f"{_describe_match(found)} in a key at {_display_path(path)}"
            stack += [(item, place.below(key), f"{path}.{key}"[-_MAX_PATH:]) for key, item in reversed(value.items())]
        elif isinstance(value, list):
            items = reversed(list(enumerate(value)))
            stack += [(item, place, f"{path}[{index}]"[-_MAX_PATH:]) for index, item in items]
    return ""


def _display_path(path: str) -> str:
    return escape_control_chars(path.removeprefix(".")) or "its root"


def _describe_match(found: re.Match[str] | None) -> str:
    if found is None:
        return ""
    code = ord(found.group()[0])
    if len(found.group()) > 1:
        return f"a row of characters without a shape (from U+{code:04X} on)"
    kind = "a tag character" if code >= 0xE0000 else "a bidi control" if code > 0x9F else "a control character"
    return f"{kind} (U+{code:04X})"


def display_text(text: str, most_bytes: int) -> str:
    """Every hidden character visible; what is too long is cut between characters and says so."""
    clear = escape_control_chars(text)
    encoded = clear.encode("utf-8", "replace")
    if len(encoded) <= most_bytes:
        return clear
    return encoded[:most_bytes].decode("utf-8", "ignore") + f"… [{len(encoded) - most_bytes} bytes more]"
