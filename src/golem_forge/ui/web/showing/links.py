"""Links and pictures in a line of Markdown, and every word of it made visible.

A picture is never loaded: a link with its words stands in its place, and inside a link only the words. A bare address
becomes a link to itself. What a link may lead to the parser has decided (`libraries.parser`).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from golem_forge.core.visible import visible, visible_prose

if TYPE_CHECKING:
    from golem_forge.ui.web.showing.libraries import Token

_ADDRESS: Final = re.compile(r"https?://[\w\-.~:/?#@!$&*+,;=%()\[\]]+", re.ASCII)


def made_safe(children: list[Token]) -> Iterator[Token]:
    """The tokens of one line of Markdown, as a page may show them."""
    within = 0
    for token in _joined(children):
        if token.type in ("link_open", "link_close"):
            within += token.nesting
        if token.type == "image":
            words = visible_prose(_alternative(token)) or "image"
            yield from [_text(words)] if within else _link(str(token.attrs.get("src", "")), words)
        elif token.type == "text" and not within:
            yield from _addresses(visible_prose(token.content))
        else:
            token.content = visible(token.content) if token.type == "code_inline" else visible_prose(token.content)
            yield token


def _joined(children: list[Token]) -> Iterator[Token]:
    """Escapes and entities are tokens of their own until here; with the text around them they are one text."""
    words: list[str] = []
    for token in children:
        if token.type in ("text", "text_special"):
            words.append(token.content)
            continue
        if words:
            yield _text("".join(words))
            words = []
        yield token
    if words:
        yield _text("".join(words))


def _addresses(words: str) -> Iterator[Token]:
    done = 0
    for match in _ADDRESS.finditer(words):
        address = _without_stops(match[0])
        if len(address) <= len("https://"):
            continue
        yield _text(words[done : match.start()])
        yield from _link(address, address)
        done = match.start() + len(address)
    yield _text(words[done:])


def _without_stops(address: str) -> str:
    """What ends a sentence, and a bracket that was opened before the address, are not its part."""
    unopened = {close: address.count(close) - address.count(opening) for opening, close in ("()", "[]")}
    end = len(address)
    while end and (address[end - 1] in ".,;:!?*_~" or unopened.get(address[end - 1], 0) > 0):
        end -= 1
        if address[end] in unopened:
            unopened[address[end]] -= 1
    return address[:end]


def _alternative(token: Token) -> str:
    return "".join(
        _alternative(child) if child.type == "image" else "\n" if child.type == "softbreak" else child.content
        for child in token.children or []
    )


def _link(url: str, words: str) -> list[Token]:
    from golem_forge.ui.web.showing.libraries import Token

    return [Token("link_open", "a", 1, attrs={"href": url}), _text(words), Token("link_close", "a", -1)]


def _text(words: str) -> Token:
    from golem_forge.ui.web.showing.libraries import Token

    return Token("text", "", 0, content=words)
