"""Markdown and code as styled lines: what the display hints `markdown` and `code` of a result mean in a terminal.

`markdown_lines` takes Markdown (CommonMark, tables, strikethrough) and gives it laid out, without its marks.
`code_lines` takes a text and the name of its language and gives its lines with keywords, strings, numbers and comments
in styles of their own; a language that nobody knows gives plain lines. Both never raise. A text over 16 KiB, or one
with a very long line, is given as it is: parsing takes the screen's own thread.
Threat: the text is a tool's. Control characters are escaped after parsing too, because Markdown can spell them; HTML is
text; a link is written out with its address.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Final

from golem_forge.core.text import escape_control_chars
from golem_forge.ui.render.lines import Line, Span, Style, prose_lines, width_of

if TYPE_CHECKING:
    from markdown_it.token import Token

MAX_MARKUP: Final = 16 * 1024
_MAX_LINE: Final = 2000
_MAX_LEVELS: Final = 20
_MAX_CELL: Final = 40
_GAP: Final = "  "


def code_lines(text: str, language: str = "") -> list[Line]:
    plain = prose_lines(text, "code")
    if not language or not _is_readable(text):
        return plain
    from pygments.lexers import get_lexer_by_name
    from pygments.util import ClassNotFound

    try:
        lexer = get_lexer_by_name(language, stripnl=False, ensurenl=False)
    except ClassNotFound:
        return plain
    rows: list[Line] = [[]]
    for kind, value in lexer.get_tokens(text.replace("\r\n", "\n").removesuffix("\n")):
        style = _code_style(str(kind))
        first, *others = value.split("\n")
        _add(rows[-1], style, first)
        for each in others:
            rows.append([])
            _add(rows[-1], style, each)
    return [row or [("", "")] for row in rows]


_CODE_STYLES: Final[tuple[tuple[str, Style], ...]] = (
    ("Token.Comment", "dim"),
    ("Token.Keyword", "keyword"),
    ("Token.Operator.Word", "keyword"),
    ("Token.Name.Tag", "keyword"),
    ("Token.Literal.String", "string"),
    ("Token.Literal.Number", "number"),
    ("Token.Name.Function", "title"),
    ("Token.Name.Class", "title"),
)


def _code_style(kind: str) -> Style:
    return next((style for name, style in _CODE_STYLES if kind.startswith(name)), "")


def _is_readable(text: str) -> bool:
    return len(text) <= MAX_MARKUP and max(map(len, text.split("\n"))) <= _MAX_LINE


def _add(row: list[Span], style: Style, text: str) -> None:
    if shown := escape_control_chars(text):
        if row and row[-1][0] == style:
            row[-1] = (style, row[-1][1] + shown)
        else:
            row.append((style, shown))


def markdown_lines(text: str) -> list[Line]:
    if not _is_readable(text):
        return prose_lines(text)
    from markdown_it import MarkdownIt

    parser = MarkdownIt("commonmark", {"html": False, "maxNesting": _MAX_LEVELS}).enable(["strikethrough", "table"])
    rows = list(_Blocks(parser.parse(text.replace("\r\n", "\n"))).lines())
    while rows and not _text(rows[-1]).strip():
        rows.pop()
    return rows


def _text(row: Sequence[Span]) -> str:
    return "".join(part for _, part in row)


class _Blocks:
    """The block tokens of a document, one after the other, with what stands before each line of theirs."""

    def __init__(self, tokens: Sequence[Token]) -> None:
        self._tokens = tokens
        self._prefix: list[str] = []
        self._lists: list[int | None] = []
        """The number of the next item; None: bullets."""
        self._mark = ""
        """Of an item whose first line is still to come."""

    def lines(self) -> Iterator[Line]:
        table: list[list[Line]] = []
        heading = False
        for token in self._tokens:
            kind = token.type
            if kind == "heading_open":
                heading = True
            elif kind == "heading_close":
                heading = False
                yield self._placed([])
            elif kind == "inline":
                if table:
                    table[-1].append(next(iter(_inline(token.children or ())), []))
                    continue
                for row in _inline(token.children or (), "title" if heading else ""):
                    yield self._placed(row)
            elif kind == "paragraph_close" and not token.hidden:
                yield self._placed([])
            elif kind in ("fence", "code_block"):
                for row in code_lines(token.content, token.info.split(" ")[0] if kind == "fence" else ""):
                    yield self._placed([("", _GAP), *row])
                yield self._placed([])
            elif kind == "hr":
                yield self._placed([("dim", "─" * 20)])
            elif kind == "tr_open":
                table.append([])
            elif kind == "table_close":
                for row in _table(table):
                    yield self._placed(row)
                table = []
                yield self._placed([])
            else:
                self._step(kind, token)
                if kind in ("bullet_list_close", "ordered_list_close") and not self._lists:
                    yield self._placed([])

    def _step(self, kind: str, token: Token) -> None:
        if kind in ("bullet_list_open", "ordered_list_open"):
            self._lists.append(int(token.attrs.get("start", 1)) if kind.startswith("ordered") else None)
        elif kind in ("bullet_list_close", "ordered_list_close"):
            self._lists.pop()
        elif kind == "list_item_open":
            number = self._lists[-1]
            self._mark = "• " if number is None else f"{number}. "
            if number is not None:
                self._lists[-1] = number + 1
            self._prefix.append(" " * len(self._mark))
        elif kind == "blockquote_open":
            self._prefix.append("▎ ")
        elif kind in ("list_item_close", "blockquote_close"):
            self._prefix.pop()
            self._mark = ""

    def _placed(self, row: Line) -> Line:
        before = "".join(self._prefix[:-1] if self._mark else self._prefix) + self._mark
        self._mark = ""
        return [("dim", before), *row] if before and row else row or [("", before.rstrip())]


def _inline(children: Iterable[Token], base: Style = "") -> list[Line]:
    rows: list[Line] = [[]]
    styles: list[Style] = [base]
    links: list[str] = []
    for token in children:
        kind = token.type
        if kind in ("strong_open", "em_open", "s_open"):
            styles.append("title" if kind == "strong_open" else "dim" if kind == "s_open" else styles[-1])
        elif kind in ("strong_close", "em_close", "s_close"):
            styles.pop()
        elif kind == "code_inline":
            _add(rows[-1], "code", token.content)
        elif kind in ("softbreak", "hardbreak"):
            rows.append([])
        elif kind == "link_open":
            links.append(str(token.attrs.get("href", "")))
        elif kind == "link_close":
            address = links.pop()
            if address and address not in _text(rows[-1]):
                _add(rows[-1], "dim", f" ({address})")
        elif kind == "image":
            _add(rows[-1], "dim", f"[image: {token.content or token.attrs.get('src', '')}]")
        else:
            _add(rows[-1], styles[-1], token.content)
    return rows


def _table(rows: Sequence[Sequence[Line]]) -> Iterator[Line]:
    columns = max(map(len, rows), default=0)
    widths = [
        min(max(width_of(_text(row[at])) if at < len(row) else 0 for row in rows), _MAX_CELL) for at in range(columns)
    ]
    for number, row in enumerate(rows):
        shown: Line = []
        for at, cell in enumerate(row):
            spans: Line = [("title", _text(cell))] if number == 0 else list(cell)
            gap = " " * max(widths[at] - width_of(_text(cell)), 0) + _GAP
            shown += [*spans, ("", gap if at + 1 < len(row) else "")]
        yield shown
        if number == 0:
            yield [("dim", _GAP.join("─" * width for width in widths))]
