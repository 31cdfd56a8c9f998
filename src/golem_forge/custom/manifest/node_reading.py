"""What a key of a manifest may hold: each function takes a node and gives the value, or raises Fault where it stands.

The key decides what a scalar is. Text is taken as written (`007` stays `007`); a number or a boolean is read by the
YAML 1.2 core schema and must not be in quotes. Everything has a bound.

Threat: whoever wrote a manifest chooses what a person and a model read. Text that names or describes something is one
line without characters that steer a terminal or hide words.
"""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Mapping
from enum import StrEnum
from typing import Any, Final, TypeVar

from golem_forge.core.nearest import nearest
from golem_forge.core.visible import count_hidden, visible
from golem_forge.custom.manifest.nodes import Fault, Fields, Items, Node, Place, Said, Scalar

_INTEGER: Final = re.compile(r"[-+]?[0-9]+|0o[0-7]+|0x[0-9a-fA-F]+")
_NUMBER: Final = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?")
_NO_NUMBER: Final = re.compile(r"[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)")
_MOST_DIGITS: Final = 1000
_BOOLEANS: Final = {"true": True, "True": True, "TRUE": True, "false": False, "False": False, "FALSE": False}
_NOTHING: Final = frozenset({"", "~", "null", "Null", "NULL"})
_MARKS_OF_ORDINARY_WRITING: Final = dict.fromkeys(map(ord, "\u00ad\u200c\u200d\u200e\u200f"))
"""Soft hyphens, joiners and direction marks: Persian, Arabic and emoji are not written without them."""

Choice = TypeVar("Choice", bound=StrEnum)


def fields(node: Node, place: Place, known: Collection[str], required: Collection[str] = ()) -> dict[str, Node]:
    """A mapping with these keys and no others."""
    found = mapping(node, place)
    for key in found.nodes:
        if key not in known:
            raise Fault(place, _unknown(key, known), found.lines[key])
    for key in required:
        if key not in found.nodes:
            raise Fault((*place, key), "missing required key", found.line)
    return found.nodes


def _unknown(key: str, known: Collection[str]) -> str:
    close = nearest(key, known)
    hint = f"did you mean '{close}'?" if close else f"known: {', '.join(known)}"
    return f"unknown key '{visible(key[:80])}' ({hint})"


def mapping(node: Node, place: Place, most: int = 256) -> Fields:
    if not isinstance(node, Fields):
        raise Fault(place, "must be a mapping (`key: value` lines)", node.line)
    if len(node.nodes) > most:
        raise Fault(place, f"must have at most {most} keys", node.line)
    return node


def items(node: Node, place: Place, most: int) -> list[Node]:
    if not isinstance(node, Items):
        raise Fault(place, "must be a list ([] for an empty one)", node.line)
    if len(node.nodes) > most:
        raise Fault(place, f"must have at most {most} entries, not {len(node.nodes)}", node.line)
    return node.nodes


def exact(node: Node, place: Place, most: int) -> str:
    """Any text, character for character: what a program is given or must print."""
    if not isinstance(node, Scalar) or node.said is Said.VALUE:
        raise Fault(place, "must be a string", node.line)
    if len(node.text) > most:
        raise Fault(place, f"must have at most {most} characters, not {len(node.text)}", node.line)
    return node.text


def prose(node: Node, place: Place, most: int) -> str:
    """Text over several lines that a person and a model read."""
    text = exact(node, place, most)
    if count_hidden(text) and count_hidden(text.translate(_MARKS_OF_ORDINARY_WRITING)):
        raise Fault(place, "must not contain control or hidden characters other than newline and tab", node.line)
    return text


def one_line(node: Node, place: Place, most: int) -> str:
    text = exact(node, place, most).rstrip("\n")  # a block of one line ends in a newline nobody meant
    if "\n" in text:
        raise Fault(place, "must be one line", node.line)
    if "\t" in text or count_hidden(text):
        raise Fault(place, "must not contain control, bidi or zero-width characters", node.line)
    return text


def filled(text: str, place: Place, line: int) -> str:
    if not text.strip():
        raise Fault(place, "must not be empty", line)
    return text


def flag(node: Node, place: Place) -> bool:
    if isinstance(node, Scalar) and node.said is not Said.TEXT and node.text in _BOOLEANS:
        return _BOOLEANS[node.text]
    raise Fault(place, "must be true or false", node.line)


def number(node: Node, place: Place) -> float | int:
    found = plain_value(node, place) if isinstance(node, Scalar) else None
    if isinstance(found, bool) or not isinstance(found, (int, float)):
        raise Fault(place, "must be a number", node.line)
    return found


def integer(node: Node, place: Place) -> int:
    found = plain_value(node, place) if isinstance(node, Scalar) else None
    if isinstance(found, bool) or not isinstance(found, int):
        raise Fault(place, "must be an integer", node.line)
    return found


def seconds(node: Node, place: Place, least: float, most: float) -> float:
    found = number(node, place)
    if not least <= found <= most:
        raise Fault(place, f"must be a number of seconds from {least:g} to {most:g}", node.line)
    return float(found)


def choice(node: Node, place: Place, words: type[Choice]) -> Choice:
    if isinstance(node, Scalar) and node.said is not Said.VALUE:
        for word in words:
            if word.value == node.text:
                return word
    raise Fault(place, f"must be one of {', '.join(words)}", node.line)


def plain_value(node: Node, place: Place) -> Any:
    """The JSON value a node stands for where no key says what it should be."""
    if isinstance(node, Fields):
        return {key: plain_value(item, (*place, key)) for key, item in node.nodes.items()}
    if isinstance(node, Items):
        return [plain_value(item, (*place, index)) for index, item in enumerate(node.nodes)]
    if node.said is Said.TEXT:
        return node.text
    return _core_value(node, place)


def _core_value(node: Scalar, place: Place) -> Any:
    text = node.text
    if text in _NOTHING:
        return None
    if text in _BOOLEANS:
        return _BOOLEANS[text]
    if _INTEGER.fullmatch(text):
        if len(text) > _MOST_DIGITS:
            raise Fault(place, "is a number with too many digits", node.line)
        return int(text, 0) if text[:2] in ("0o", "0x") else int(text)
    if _NUMBER.fullmatch(text) and math.isfinite(found := float(text)):
        return found
    if _NUMBER.fullmatch(text) or _NO_NUMBER.fullmatch(text) or node.said is Said.VALUE:
        raise Fault(place, "is not a finite number", node.line)
    return text


def needs_quotes(text: str) -> bool:
    """Whether a plain scalar with these characters would be no text where no key says so."""
    return bool(
        text in _NOTHING
        or text in _BOOLEANS
        or _INTEGER.fullmatch(text)
        or _NUMBER.fullmatch(text)
        or _NO_NUMBER.fullmatch(text)
    )


def texts(node: Node, place: Place, *, entries: int, most: int) -> Mapping[str, str]:
    """Name → text, both as written; the names are for the caller to judge."""
    found = mapping(node, place, entries)
    return {name: exact(item, (*place, name), most) for name, item in found.nodes.items()}
