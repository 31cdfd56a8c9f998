"""One block of a model's Markdown as terminal text, as wide as the terminal.

Threat: the text is the model's. Control characters become visible escapes before it is read as Markdown and again
behind it, because Markdown has spellings of its own for them (`&#x202e;`, `<http://x/%1b[2J>`). Links are written out
with their address, never as terminal hyperlinks; HTML is text. A block too large to lay out at once is shown as it is.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Final

from golem_forge.ui.terminal.palette import spoken

if TYPE_CHECKING:
    from markdown_it.token import Token

_MOST_MARKDOWN: Final = 16 * 1024
"""Laying out takes the screen's own thread: tables, brackets and code take up to a second for so many characters."""


def rendered(text: str, width: int, *, colour: bool) -> str:
    shown = spoken(text)
    if len(shown) > _MOST_MARKDOWN:
        return shown.strip("\n") + "\n"
    from io import StringIO

    from rich.console import Console

    out = StringIO()
    console = Console(
        file=out,
        width=max(width, 10),
        force_terminal=colour,
        color_system="standard" if colour else None,
        no_color=not colour,
        legacy_windows=False,
        highlight=False,
    )
    console.print(_markdown(shown))
    return "\n".join(line.rstrip(" ") for line in out.getvalue().split("\n")).strip("\n") + "\n"


def _markdown(text: str) -> Any:
    from markdown_it import MarkdownIt
    from rich.markdown import Markdown

    markdown = Markdown("", hyperlinks=False, code_theme="ansi_dark")
    markdown.parsed = MarkdownIt("commonmark", {"html": False}).enable(["strikethrough", "table"]).parse(text)
    _make_safe(markdown.parsed)
    return markdown


def _make_safe(tokens: Iterable[Token]) -> None:
    for token in tokens:
        token.content = spoken(token.content)
        token.attrs = {name: spoken(value) if isinstance(value, str) else value for name, value in token.attrs.items()}
        _make_safe(token.children or ())


def warm_up() -> None:
    """Loads what `rendered` needs, so that the first block does not wait for it."""
    rendered("`x`\n\n```python\nx = 1\n```", 40, colour=True)
