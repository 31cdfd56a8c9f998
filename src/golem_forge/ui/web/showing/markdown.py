"""Markdown of models and tools as HTML that a page may show: `to_html(text)`, or its top-level blocks one by one.

Two walls: the parser never passes HTML on, and a sanitiser lets only known tags, classes and link schemes leave.
Images are never loaded: a link with their words stands in their place. Control, bidi and invisible characters become
visible escapes before parsing, and again behind it because Markdown has spellings of its own for them (`&#x202e;`).
Threat: nesting and brackets that take forever. Text that is too long or nested too deep is shown as it is written.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, MutableMapping
from html import escape
from typing import TYPE_CHECKING, Any, Final

from golem_forge.core.visible import visible, visible_prose
from golem_forge.ui.web.showing.code import highlighted, language, plain_code
from golem_forge.ui.web.showing.links import made_safe

if TYPE_CHECKING:
    from golem_forge.ui.web.showing.libraries import Token

MOST_MARKDOWN: Final = 100_000
MOST_LINES: Final = 10_000
MOST_SHOWN: Final = 160_000
"""Characters of one text that are shown at all."""
_MOST_HTML: Final = 700_000
_PIECE: Final = 8_192
_MOST_TOKENS: Final = 60_000
"""A table fills up each short row: a few characters a row become thousands of cells."""
_MOST_MARKS: Final = 20_000
_MOST_MARKS_A_BLOCK: Final = 4_000
"""Brackets, stars and the like are what parsing takes its time for."""
_MARK: Final = re.compile(r"[\[\]!*_~`<&\\]")
_DEMOTED: Final = {"h1": "h3", "h2": "h4", "h3": "h5", "h4": "h6", "h5": "h6"}
_TASK: Final = re.compile(r"\[([ xX])\](?=[ \t])")

References = MutableMapping[str, Any]


def to_html(text: str) -> str:
    return "".join(blocks(text))


def blocks(text: str) -> list[str]:
    """Each top-level block as one element."""
    if is_too_long(text):
        return list(plain_pieces(text))
    for fast in (False, True):  # a bracket of code is two dozen characters of HTML
        made = rendered(text, {}, fast=fast)
        if sum(map(len, made)) <= _MOST_HTML:
            return made
    return list(plain_pieces(text))


def is_too_long(text: str) -> bool:
    return len(text) > MOST_MARKDOWN or text.count("\n") > MOST_LINES


def rendered(text: str, references: References, *, fast: bool = False) -> list[str]:
    """The blocks of a text that is short enough. `references` are the link targets known so far; those of this text
    are put in. `fast` leaves code as it is."""
    source = normal(text)
    env: dict[str, Any] = {"references": references}
    tokens = parsed(source, env)
    lines = source.split("\n")
    groups = [(group, _is_too_much(group)) for group in grouped(tokens)]
    _read_inline([token for group, too_much in groups if not too_much for token in group], env)
    return [_as_written(group, lines) if too_much else _html(group, fast=fast) for group, too_much in groups]


def normal(text: str) -> str:
    return visible_prose(text.replace("\r\n", "\n"))


def parsed(source: str, env: dict[str, Any]) -> list[Token]:
    """The blocks as tokens, their words not read yet; the link targets are in `env["references"]` then."""
    from golem_forge.ui.web.showing.libraries import parser

    tokens: list[Token] = []
    parser().block.parse(source, parser(), env, tokens)
    return tokens


def grouped(tokens: list[Token]) -> Iterator[list[Token]]:
    """The tokens of each top-level block."""
    group: list[Token] = []
    for token in tokens:
        group.append(token)
        if token.level == 0 and token.nesting != 1:
            yield group
            group = []


def _is_too_much(group: list[Token]) -> bool:
    """Of what is nested too deep the parser leaves words out."""
    from golem_forge.ui.web.showing.libraries import MOST_LEVELS

    return len(group) > _MOST_TOKENS or any(token.nesting == 1 and token.level >= MOST_LEVELS - 1 for token in group)


def _as_written(group: list[Token], lines: list[str]) -> str:
    first, end = group[0].map or (0, 0)
    return f"<pre>{plain_code(chr(10).join(lines[first:end]))}</pre>"


def plain_pieces(text: str) -> Iterator[str]:
    """Text as it is written, in pieces whose borders do not move when more is added."""
    for start, end in pieces(text[:MOST_SHOWN]):
        yield f"<pre>{plain_code(text[start:end])}</pre>"
    if len(text) > MOST_SHOWN:
        yield f"<p>… {len(text) - MOST_SHOWN:,} more characters · display cut</p>"


def pieces(text: str) -> Iterator[tuple[int, int]]:
    """A piece ends with the first line that ends behind 8,192 characters, or at twice as many."""
    start = 0
    while start < len(text):
        line = text.find("\n", start + _PIECE, start + 2 * _PIECE)
        end = line + 1 if line >= 0 else min(start + 2 * _PIECE, len(text))
        yield start, end
        start = end


# ---- from tokens to HTML


def _read_inline(tokens: list[Token], env: dict[str, Any]) -> None:
    from golem_forge.ui.web.showing.libraries import Token, parser

    read = 0
    for token in tokens:
        if token.type != "inline":
            continue
        marks = len(_MARK.findall(token.content))
        read += marks
        if marks > _MOST_MARKS_A_BLOCK or read > _MOST_MARKS:
            token.children = [Token("text", "", 0, content=token.content)]
            continue
        token.children = []
        parser().inline.parse(token.content, parser(), env, token.children)


def _make_safe(tokens: list[Token]) -> None:
    item = False
    for token in tokens:
        token.tag = _DEMOTED.get(token.tag, token.tag)
        if token.type in ("fence", "code_block"):
            token.content = visible(token.content)
        aligned = str(token.attrs.pop("style", "")).removeprefix("text-align:")
        if aligned:
            token.attrs["align"] = aligned
        if token.type == "inline":
            if item and (task := _TASK.match(token.content)) and token.children:
                token.children[0].content = _task(token.children[0].content, done=task[1] != " ")
            token.children = list(made_safe(token.children or []))
        item = token.type == "list_item_open" or (item and token.type == "paragraph_open")


def _task(words: str, *, done: bool) -> str:
    return ("☑" if done else "☐") + words[3:] if _TASK.match(words) else words


def _html(tokens: list[Token], *, fast: bool) -> str:
    from golem_forge.ui.web.showing.libraries import wall

    _make_safe(tokens)
    shown: list[str] = []
    start = 0
    for at, token in enumerate(tokens):
        if token.type in ("fence", "code_block"):
            shown += [_drawn(tokens[start:at]), _code(token, fast=fast)]
            start = at + 1
    shown.append(_drawn(tokens[start:]))
    return wall().clean("".join(shown)).strip("\n")


def _drawn(tokens: list[Token]) -> str:
    from golem_forge.ui.web.showing.libraries import parser

    return str(parser().renderer.render(tokens, parser().options, {})) if tokens else ""


def _code(token: Token, *, fast: bool) -> str:
    name = language(token.info.strip().split(" ", 1)[0])
    inside = plain_code(token.content) if fast else highlighted(token.content, name)
    marked = f' class="language-{escape(name)}"' if name else ""
    return f"<pre><code{marked}>{inside}</code></pre>"
