"""Gateway to markdown-it, nh3 and Pygments: the only module that imports them, when the first text is shown.

`parser()` reads CommonMark with tables and strikethrough and never passes HTML on; `sanitizer()` is the second barrier:
only these tags, classes and link schemes leave it, whatever a fault of the parser lets through.
Threat: a parser takes quadratic time, or drops what is nested too deep; `markdown` bounds both.
"""

from __future__ import annotations

from functools import cache
from typing import Final

import nh3
from markdown_it import MarkdownIt
from markdown_it.token import Token
from pygments import token as pygments_token
from pygments.lexer import Lexer
from pygments.lexers import get_lexer_by_name
from pygments.util import ClassNotFound

__all__ = ["ClassNotFound", "Lexer", "Token", "get_lexer_by_name", "parser", "sanitizer", "token_class"]

MAX_LEVELS: Final = 40
_LINKS: Final = ("http://", "https://", "mailto:")
_TAGS: Final = {
    *("p", "h3", "h4", "h5", "h6", "ul", "ol", "li", "blockquote", "hr", "br", "pre", "code", "span"),
    *("em", "strong", "s", "a", "table", "thead", "tbody", "tr", "th", "td"),
}


@cache
def parser() -> MarkdownIt:
    made = MarkdownIt("commonmark", {"html": False, "xhtmlOut": False, "maxNesting": MAX_LEVELS})
    made.enable(["strikethrough", "table"])
    made.validateLink = _is_safe_link  # type: ignore[method-assign]
    return made


@cache
def sanitizer() -> nh3.Cleaner:
    from golem_forge.ui.web.markdown import LANGUAGES

    return nh3.Cleaner(
        tags=_TAGS,
        attributes={"*": set(), "a": {"href", "target"}, "ol": {"start"}, "th": {"align"}, "td": {"align"}},
        allowed_classes={
            "span": set(pygments_token.STANDARD_TYPES.values()) - {""},
            "code": {f"language-{name}" for name in LANGUAGES},
        },
        url_schemes={"http", "https", "mailto"},
        url_relative="deny",  # an address without a scheme would lead into this page
        link_rel="noopener noreferrer",
        set_tag_attribute_values={"a": {"target": "_blank"}},
        strip_comments=True,
    )


def token_class(kind: pygments_token._TokenType) -> str:
    """The class of a token of code: that of the nearest kind above it that has one."""
    above: pygments_token._TokenType | None = kind
    while above is not None:
        if above in pygments_token.STANDARD_TYPES:
            return str(pygments_token.STANDARD_TYPES[above])
        above = above.parent
    return ""


def _is_safe_link(url: str) -> bool:
    """What is not one of these stays the text that it is written as."""
    return url.lower().startswith(_LINKS)
