"""HTML as a stream of Open, Close and text, read the way browsers read it: nothing is ever an error.

Threat: a page made to be slow to read. Every construct that does not end swallows the rest of the page, as in a
browser, so each character is looked at a bounded number of times; the reader of the standard library goes back and
tries again, which takes hours on a few megabytes of `<!--`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple

_NAME: Final = re.compile(r"[a-zA-Z][^\s/>]*")
_GAP: Final = re.compile(r"[\s/]*")
_ATTRIBUTE: Final = re.compile(r"=?[^\s/>=]*")
_EQUALS: Final = re.compile(r"\s*=\s*")
_BARE_VALUE: Final = re.compile(r"[^\s>]*")
_RAW: Final = {
    name: re.compile(rf"</{name}(?=[\s/>])", re.IGNORECASE)
    for name in ("script", "style", "xmp", "iframe", "noembed", "noframes", "title", "textarea")
}
"""Elements whose content is not markup."""
_LONGEST_NAME: Final = 40


class Open(NamedTuple):
    name: str
    attributes: Mapping[str, str]


class Close(NamedTuple):
    name: str


def read_markup(source: str) -> Iterator[Open | Close | str]:
    place, end = 0, len(source)
    while place < end:
        bracket = source.find("<", place)
        if bracket < 0:
            yield unescaped(source[place:])
            return
        if bracket > place:
            yield unescaped(source[place:bracket])
        following = source[bracket + 1 : bracket + 2]
        if following == "/":
            place = bracket + 2
            name = _NAME.match(source, place)
            if name is not None:
                yield Close(name[0][:_LONGEST_NAME].lower())
            place = _after(source, ">", place)
        elif following == "!" and source.startswith("--", bracket + 2):
            place = _after(source, "-->", bracket + 2)
        elif following in ("!", "?"):
            place = _after(source, ">", bracket)
        elif following.isascii() and following.isalpha():
            tag, place = _open(source, bracket + 1)
            if place > end:
                return
            yield tag
            if ending := _RAW.get(tag.name):
                found = ending.search(source, place)
                stop = found.start() if found else end
                yield unescaped(source[place:stop])
                place = stop
        else:
            yield "<"
            place = bracket + 1


def unescaped(text: str) -> str:
    if "&" not in text:
        return text
    from html import unescape

    try:
        return unescape(text)
    except ValueError:  # a number too long to be read at all
        return text


def _after(source: str, what: str, place: int) -> int:
    found = source.find(what, place)
    return len(source) if found < 0 else found + len(what)


def _open(source: str, place: int) -> tuple[Open, int]:
    """The tag, and where it ends; beyond the end of the source if it never does."""
    found = _NAME.match(source, place)
    assert found is not None
    end, place = len(source), found.end()
    attributes: dict[str, str] = {}
    while True:
        place = _end(_GAP.match(source, place))
        if place >= end:
            return Open(found[0], {}), end + 1
        if source[place] == ">":
            return Open(found[0][:_LONGEST_NAME].lower(), attributes), place + 1
        name = _ATTRIBUTE.match(source, place)
        assert name is not None
        place, value = name.end(), ""
        if equals := _EQUALS.match(source, place):
            place = equals.end()
            quote = source[place : place + 1]
            if quote in ('"', "'"):
                close = source.find(quote, place + 1)
                if close < 0:
                    return Open(found[0], {}), end + 1
                value, place = source[place + 1 : close], close + 1
            else:
                bare = _BARE_VALUE.match(source, place)
                value, place = (bare[0], bare.end()) if bare else ("", place)
        attributes.setdefault(name[0][:_LONGEST_NAME].lower(), unescaped(value))


def _end(found: re.Match[str] | None) -> int:
    assert found is not None  # its pattern matches the empty text too
    return found.end()
