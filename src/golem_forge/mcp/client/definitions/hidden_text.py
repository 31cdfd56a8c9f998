"""Hidden text: characters that a model reads and a person does not see, or that steer the terminal of whoever looks.

`hidden_in` names the first one in a text, `hidden_in_schema` and `hidden_in_json` also say where: all of a schema goes
to the model. Empty: there is none.
Threat: instructions written in tag characters, words turned around by bidi controls, escape sequences in a description,
and bytes written as rows of variation selectors or zero-width characters. One or two of those have their use in scripts
and emoji; three in a row have none.
In a schema's data (names, `default`, `enum`, `pattern` …) the old control characters are let through, a line end to
choose for example: JSON writes them as escapes, plain to see. In its titles and descriptions they are not.
"""

from __future__ import annotations

import re
from enum import Enum, auto
from typing import Any, Final

from golem_forge.core.visible import visible

_TAGS: Final = "\U000e0000-\U000e007f"
_BIDI: Final = "\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069"
_ROW: Final = "[\u200b-\u200d\u2060-\u2064\ufe00-\ufe0f\ufeff\U000e0100-\U000e01ef]{3}"
_HIDDEN: Final = re.compile(f"[\x00-\x08\x0b-\x1f\x7f-\x9f{_BIDI}{_TAGS}]|{_ROW}")
_HIDDEN_IN_DATA: Final = re.compile(f"[\x7f-\x9f{_BIDI}{_TAGS}]|{_ROW}")
_SUSPICIOUS: Final = re.compile(rf"[\x7f-\x9f{_BIDI}{_TAGS}]|{_ROW}|\\[bfru]")
"""In JSON text, where the other control characters are escapes."""
_MAX_PATH: Final = 200

_PROSE: Final = frozenset({"title", "description", "$comment"})
_DATA: Final = frozenset({"default", "enum", "const", "examples"})
_NAMED_SCHEMAS: Final = frozenset(
    {"properties", "patternProperties", "$defs", "definitions", "dependentSchemas", "dependencies"}
)


class _Place(Enum):
    """What stands somewhere in a schema."""

    SCHEMA = auto()
    NAMED_SCHEMAS = auto()
    """Its keys are names, not keywords: a property may be called `description`."""
    DATA = auto()
    PROSE = auto()

    def below(self, key: str) -> _Place:
        if self in (_Place.DATA, _Place.PROSE):
            return self
        if self is _Place.NAMED_SCHEMAS:
            return _Place.SCHEMA
        if key in _NAMED_SCHEMAS:
            return _Place.NAMED_SCHEMAS
        return _Place.PROSE if key in _PROSE else _Place.DATA if key in _DATA else _Place.SCHEMA

    @property
    def hidden(self) -> re.Pattern[str]:
        return _HIDDEN if self is _Place.PROSE else _HIDDEN_IN_DATA


def hidden_in(text: str) -> str:
    """`a tag character (U+E0041)`, or nothing."""
    return "" if text.isascii() and text.isprintable() else _named(_HIDDEN.search(text))


def hidden_in_schema(schema: Any, written: str) -> str:
    """`a bidi control (U+202E) at properties.path.description`, or nothing. `written`: the same as JSON text."""
    return _search(schema, _Place.SCHEMA) if _SUSPICIOUS.search(written) else ""


def hidden_in_json(value: Any, written: str) -> str:
    return _search(value, _Place.PROSE) if _SUSPICIOUS.search(written) else ""


def _search(root: Any, place: _Place) -> str:
    """Without recursion, in the order of the text."""
    stack: list[tuple[Any, _Place, str]] = [(root, place, "")]
    while stack:
        value, place, path = stack.pop()
        if isinstance(value, str) and (found := place.hidden.search(value)):
            return f"{_named(found)} at {_shown(path)}"
        if isinstance(value, dict):
            for key in value:
                if found := place.hidden.search(key):
                    return f"{_named(found)} in a key at {_shown(path)}"
            stack += [(item, place.below(key), f"{path}.{key}"[-_MAX_PATH:]) for key, item in reversed(value.items())]
        elif isinstance(value, list):
            stack += [
                (item, place, f"{path}[{index}]"[-_MAX_PATH:]) for index, item in reversed(list(enumerate(value)))
            ]
    return ""


def _shown(path: str) -> str:
    return visible(path.removeprefix(".")) or "its root"


def _named(found: re.Match[str] | None) -> str:
    if found is None:
        return ""
    code = ord(found.group()[0])
    if len(found.group()) > 1:
        return f"a row of characters without a shape (from U+{code:04X} on)"
    kind = "a tag character" if code >= 0xE0000 else "a bidi control" if code > 0x9F else "a control character"
    return f"{kind} (U+{code:04X})"
