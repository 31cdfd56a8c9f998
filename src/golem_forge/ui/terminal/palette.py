"""Styled lines as bytes for a terminal. A style is a meaning (`ok`, `dim`, `title`) or a look (`bold red`).

Without colour (`NO_COLOR`, a dumb terminal) the text alone is given. The text was made safe by whoever wrote the line;
`plain` does it for words that come straight from a model or a tool.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from golem_forge.core.visible import visible, visible_prose

Line = Sequence[tuple[str, str]]

_CODES: Final = {
    "bold": "1",
    "dim": "2",
    "italic": "3",
    "reverse": "7",
    "red": "31",
    "green": "32",
    "yellow": "33",
    "cyan": "36",
}
_MEANINGS: Final = {
    "ok": "green",
    "fail": "red",
    "warn": "yellow",
    "add": "green",
    "del": "red",
    "title": "bold",
    "code": "cyan",
    "user": "bold",
    "thinking": "dim italic",
    "choice": "cyan",
}
_SHAPES: Final = frozenset({"bold", "dim", "italic", "reverse"})


def colour_wanted(environ: Mapping[str, str] = os.environ) -> bool:
    return not environ.get("NO_COLOR") and environ.get("TERM", "") != "dumb"


def ansi(lines: Iterable[Line], *, colour: bool) -> str:
    return "".join("".join(_painted(style, text, colour) for style, text in line) + "\n" for line in lines)


def _painted(style: str, text: str, colour: bool) -> str:
    codes = ";".join(_CODES[word] for word in _words(style)) if colour else ""
    return f"\x1b[{codes}m{text}\x1b[0m" if codes else text


def toolkit_style(style: str) -> str:
    """The same style in prompt_toolkit's words."""
    return " ".join(word if word in _SHAPES else f"fg:ansi{word}" for word in _words(style))


def _words(style: str) -> list[str]:
    return [word for part in style.split() for word in _MEANINGS.get(part, part).split() if word in _CODES]


def plain(text: str) -> str:
    return visible(text.replace("\r\n", "\n").expandtabs(4))


def spoken(text: str) -> str:
    """`plain` for answers and the person's own words: emoji stay whole."""
    return visible_prose(text.replace("\r\n", "\n").expandtabs(4))
