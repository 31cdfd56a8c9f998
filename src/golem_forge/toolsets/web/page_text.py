"""The readable text of an HTML page: headings, lists, tables, quotations, preformatted text and `[text](url)`.

Takes decoded HTML and its URL, gives text and title. Scripts, styles, form parts and what a browser would not show are
dropped. Threat: words hidden from people but not from a model; what is hidden by attribute or inline style goes, what a
style sheet hides cannot be known, which is why the caller fences the page as untrusted.

HTML is read the way browsers read it: nothing is ever an error. Threat: a page made to be slow to read. Every construct
that does not end swallows the rest of the page, as in a browser, so each character is looked at a bounded number of
times; the parser of the standard library goes back and tries again, which takes hours on a few megabytes of `<!--`.

Layout puts the pieces on lines. Links are absolute; other schemes than http, https and mailto leave only their text.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple
from urllib.parse import urljoin

from golem_forge.core.lazy_dataclass import dataclass
from golem_forge.core.regex import regex

_VOID: Final = frozenset(
    "area base br col embed hr img input link meta param source track wbr basefont bgsound frame keygen".split()  # noqa: SIM905
)
_DROPPED: Final = frozenset(
    "script style template svg iframe object embed applet canvas audio video map noembed noframes head "  # noqa: SIM905
    "button select textarea datalist option optgroup input label legend meter progress dialog".split()
)
_IN_HEAD: Final = frozenset({"title", "meta", "link", "style", "script", "noscript", "base", "template"})
_HEADINGS: Final = {f"h{level}": "#" * level for level in range(1, 7)}
_PARAGRAPHS: Final = frozenset("p ul ol dl table pre blockquote figure address hr main article section details".split())  # noqa: SIM905
"""Elements with an empty line before and after."""
_OWN_LINE: Final = frozenset(
    "div li dt dd tr caption header footer nav aside form fieldset figcaption summary center body html".split()  # noqa: SIM905
)
_ENDED_BY: Final = {
    "li": frozenset({"li"}),
    "dt": frozenset({"dt", "dd"}),
    "dd": frozenset({"dt", "dd"}),
    "td": frozenset({"td", "th"}),
    "th": frozenset({"td", "th"}),
    "tr": frozenset({"tr", "td", "th"}),
    "tbody": frozenset({"tr", "td", "th"}),
    "option": frozenset({"option"}),
    "a": frozenset({"a"}),
    **{name: frozenset({"p"}) for name in (_PARAGRAPHS | _OWN_LINE | _HEADINGS.keys()) - {"li", "dt", "dd", "tr"}},
}
"""An opening tag ends the element it stands in, if that is one of these: their end tags may be left out."""
_SHOWS_A_FORM_IS_THE_PAGE: Final = frozenset({"h1", "h2", "h3", "main", "article"})
_UNSEEN_STYLE: Final = regex(
    r"display:none|visibility:(hidden|collapse)|(opacity|font-size):0(\.0*)?(px|em|rem|pt|%)?(;|!|$)"
)


@dataclass(frozen=True, slots=True)
class PageText:
    text: str
    title: str


def html_to_text(source: str, url: str) -> PageText:
    reading = _PageReader(url)
    for token in read_markup(source):
        if isinstance(token, str):
            reading.text(token)
        elif isinstance(token, OpenTag):
            reading.open(token)
        else:
            reading.close(token.name)
    return reading.finish()


class _PageReader:
    """Tracks which elements are open, and from which one on nothing is shown."""

    def __init__(self, url: str) -> None:
        self._layout = TextLayout(url)
        self._open: list[str] = []
        self._counts: dict[str, int] = {}
        self._dropped_from = -1
        """The number of the open element whose content is dropped; -1: none is."""
        self._title = ""
        self._form_at = -1
        """The number of the open form among the open elements; forms in forms do not count."""
        self._form_mark = 0
        self._form_is_the_page = False

    def text(self, data: str) -> None:
        if self._open and self._open[-1] == "title":
            if not self._title and not self._counts.get("svg"):
                self._title = " ".join(data.split())[:500]
            return
        if self._open and self._open[-1] == "head" and data.strip():
            self.close("head")
        if self._dropped_from < 0:
            self._layout.text(data)

    def open(self, tag: OpenTag) -> None:
        name = tag.name
        if self._open and self._open[-1] == "head" and name not in _IN_HEAD:
            self.close("head")
        ended = _ENDED_BY.get(name)
        while ended and self._open and self._open[-1] in ended:
            self.close(self._open[-1])
        if name == "base" and "href" in tag.attributes:
            self._layout.set_base(tag.attributes["href"])
        dropped = self._dropped_from >= 0
        if name not in _VOID:
            self._open.append(name)
            self._counts[name] = self._counts.get(name, 0) + 1
        if dropped:
            return
        if name in _DROPPED or _is_hidden(tag):
            if name not in _VOID:
                self._dropped_from = len(self._open) - 1
            return
        if name in _SHOWS_A_FORM_IS_THE_PAGE:
            self._form_is_the_page = True
        self._begin(name, tag)

    def close(self, name: str) -> None:
        if name == "br":
            self._layout.line()
        if not self._counts.get(name):
            return  # was never opened
        while True:
            ended = self._open.pop()
            self._counts[ended] -= 1
            if self._dropped_from < 0:
                self._end(ended)
            elif self._dropped_from == len(self._open):
                self._dropped_from = -1
            if ended == name:
                return

    def finish(self) -> PageText:
        while self._open:
            self.close(self._open[-1])
        return PageText(self._layout.finish(), self._title)

    def _begin(self, name: str, tag: OpenTag) -> None:
        layout = self._layout
        if name in _HEADINGS:
            layout.heading(_HEADINGS[name])
        elif name == "br":
            layout.line()
        elif name == "hr":
            layout.rule()
        elif name == "img":
            layout.text(tag.attributes.get("alt", ""))
        elif name == "a":
            layout.link(tag.attributes.get("href", ""))
        elif name in ("td", "th"):
            layout.cell()
        elif name == "pre":
            layout.preformatted(True)
        elif name == "blockquote":
            layout.quotation(True)
        elif name in ("ul", "ol"):
            layout.begin_list(ordered=name == "ol", start=tag.attributes.get("start", ""))
        elif name == "li":
            layout.item()
        elif name in _PARAGRAPHS:
            layout.paragraph()
        elif name in _OWN_LINE:
            layout.line()
        if name == "form" and self._form_at < 0:
            self._form_at, self._form_mark, self._form_is_the_page = len(self._open) - 1, layout.position(), False

    def _end(self, name: str) -> None:
        layout = self._layout
        if name in _HEADINGS or name in _PARAGRAPHS:
            if name == "pre":
                layout.preformatted(False)
            elif name == "blockquote":
                layout.quotation(False)
            elif name in ("ul", "ol"):
                layout.end_list()
            else:
                layout.paragraph()
        elif name == "a":
            layout.link_end()
        elif name in _OWN_LINE:
            layout.line()
        if self._form_at == len(self._open):
            self._form_at = -1
            if not self._form_is_the_page:
                layout.truncate(self._form_mark)


def _is_hidden(tag: OpenTag) -> bool:
    attributes = tag.attributes
    if not attributes:
        return False
    if "hidden" in attributes or attributes.get("aria-hidden", "").strip().lower() == "true":
        return True
    style = attributes.get("style")
    return bool(style) and _UNSEEN_STYLE.search("".join(str(style).lower().split())) is not None


_BLANKS: Final = regex(r"[ \t\n\r\f\v]+")
_MAX_DEPTH: Final = 8
_MAX_LINK: Final = 2000
_SCHEMES: Final = ("http://", "https://", "mailto:")


class TextLayout:
    def __init__(self, url: str) -> None:
        self._base = url
        self._lines: list[str] = []
        self._pieces: list[str] = []
        """Of the line that is being written."""
        self._gap = False
        """An empty line is due before the next one."""
        self._prefix = ""
        """A heading's marks or a list's marker, for the next line alone."""
        self._lists: list[int] = []
        """For each open list the number of its next item; 0: bullets."""
        self._quotations = 0
        self._preformatted = 0
        self._url = ""
        self._link_from = 0
        """Which of the pieces begin the open link's text."""
        self._cells = 0

    # What the page says

    def text(self, data: str) -> None:
        if self._preformatted:
            self._pieces.append(data.replace("\r\n", "\n").replace("\r", "\n"))
        elif data:
            self._pieces.append(_BLANKS.sub(" ", data))

    def line(self) -> None:
        if self._preformatted:
            self._pieces.append("\n")
        else:
            self._flush()

    def paragraph(self) -> None:
        self._flush()
        self._gap = bool(self._lines)

    def heading(self, marks: str) -> None:
        self.paragraph()
        self._prefix = f"{marks} "

    def rule(self) -> None:
        self.paragraph()
        self._write("---")
        self.paragraph()

    def cell(self) -> None:
        self._cells += 1
        if self._cells > 1 or any(piece.strip() for piece in self._pieces):
            self._pieces.append(" | ")

    def preformatted(self, on: bool) -> None:
        if on:
            self.paragraph()
            self._preformatted += 1
            return
        self._end_link_text()
        whole = "".join(self._pieces).removeprefix("\n").rstrip()
        self._pieces, self._link_from = [], 0
        for line in whole.split("\n") if whole else ():
            self._write(line.rstrip())
        self._preformatted -= 1
        self.paragraph()

    def quotation(self, on: bool) -> None:
        self.paragraph()
        self._quotations += 1 if on else -1

    def begin_list(self, *, ordered: bool, start: str) -> None:
        self._flush()
        if not self._lists:
            self._gap = bool(self._lines)
        number = int(start) if re.fullmatch(r"[0-9]{1,9}", start, re.ASCII) else 1
        self._lists.append(number if ordered else 0)

    def item(self) -> None:
        self._flush()
        marker = "- "
        if self._lists and self._lists[-1]:
            marker = f"{self._lists[-1]}. "
            self._lists[-1] += 1
        self._prefix = "  " * (min(len(self._lists), _MAX_DEPTH) - 1) + marker

    def end_list(self) -> None:
        self._flush()
        if self._lists:
            self._lists.pop()
        self._prefix = ""
        self._gap = bool(self._lines) and not self._lists

    def link(self, href: str) -> None:
        self.link_end()
        self._url = self._absolute(href)
        self._link_from = len(self._pieces)

    def link_end(self) -> None:
        self._end_link_text()
        self._url = ""

    def set_base(self, href: str) -> None:
        self._base = self._absolute(href) or self._base

    # Taking back what turned out to be no part of the page

    def position(self) -> int:
        self._flush()
        return len(self._lines)

    def truncate(self, mark: int) -> None:
        self._flush()
        del self._lines[mark:]
        self._gap = bool(self._lines)

    def finish(self) -> str:
        while self._preformatted:
            self.preformatted(False)
        self._flush()
        return "\n".join(self._lines).strip("\n")

    # From pieces to lines

    def _flush(self) -> None:
        """Ends the line. An open link goes on with the next one."""
        self._cells = 0
        if not self._pieces:
            return
        self._end_link_text()
        text = _BLANKS.sub(" ", "".join(self._pieces)).strip()
        self._pieces, self._link_from = [], 0
        if text.strip("| "):
            self._write(text)

    def _write(self, text: str) -> None:
        if self._gap and self._lines:
            self._lines.append("")
        self._gap = False
        indent = "" if self._prefix or not self._lists else "  " * min(len(self._lists), _MAX_DEPTH)
        quoted = "> " * min(self._quotations, _MAX_DEPTH)
        self._lines.append(f"{quoted}{indent}{self._prefix}{text}" if text else quoted.rstrip())
        self._prefix = ""

    def _end_link_text(self) -> None:
        if not self._url:
            return
        words = "".join(self._pieces[self._link_from :])
        if text := words.strip():
            before, after = words[: len(words) - len(words.lstrip())], words[len(words.rstrip()) :]
            self._pieces[self._link_from :] = [f"{before}[{text}]({self._url}){after}"]
        self._link_from = len(self._pieces)

    def _absolute(self, href: str) -> str:
        """Empty for what is no address to follow, or one on this very page."""
        href = "".join(href.split("\n")).strip()
        if not href or href.startswith("#") or len(href) > _MAX_LINK:
            return ""
        try:
            url = urljoin(self._base, href)
        except ValueError:
            return ""
        if not url.lower().startswith(_SCHEMES):
            return ""
        return "".join(f"%{ord(char):02X}" if char in " <>()\t\r\x0b\x0c" else char for char in url)


_NAME: Final = regex(r"[a-zA-Z][^\s/>]*")
_GAP: Final = regex(r"[\s/]*")
_ATTRIBUTE: Final = regex(r"=?[^\s/>=]*")
_EQUALS: Final = regex(r"\s*=\s*")
_BARE_VALUE: Final = regex(r"[^\s>]*")
_RAW_TEXT: Final = {
    name: regex(rf"</{name}(?=[\s/>])", re.IGNORECASE)
    for name in ("script", "style", "xmp", "iframe", "noembed", "noframes", "title", "textarea")
}
"""Elements whose content is not markup."""
_MAX_NAME: Final = 40


class OpenTag(NamedTuple):
    name: str
    attributes: Mapping[str, str]


class CloseTag(NamedTuple):
    name: str


def read_markup(source: str) -> Iterator[OpenTag | CloseTag | str]:
    place, end = 0, len(source)
    while place < end:
        bracket = source.find("<", place)
        if bracket < 0:
            yield unescape_entities(source[place:])
            return
        if bracket > place:
            yield unescape_entities(source[place:bracket])
        following = source[bracket + 1 : bracket + 2]
        if following == "/":
            place = bracket + 2
            name = _NAME.match(source, place)
            if name is not None:
                yield CloseTag(name[0][:_MAX_NAME].lower())
            place = _position_after(source, ">", place)
        elif following == "!" and source.startswith("--", bracket + 2):
            place = _position_after(source, "-->", bracket + 2)
        elif following in ("!", "?"):
            place = _position_after(source, ">", bracket)
        elif following.isascii() and following.isalpha():
            tag, place = _read_tag(source, bracket + 1)
            if place > end:
                return
            yield tag
            if ending := _RAW_TEXT.get(tag.name):
                found = ending.search(source, place)
                stop = found.start() if found else end
                yield unescape_entities(source[place:stop])
                place = stop
        else:
            yield "<"
            place = bracket + 1


def unescape_entities(text: str) -> str:
    if "&" not in text:
        return text
    from html import unescape

    try:
        return unescape(text)
    except ValueError:  # a number too long to be read at all
        return text


def _position_after(source: str, what: str, place: int) -> int:
    found = source.find(what, place)
    return len(source) if found < 0 else found + len(what)


def _read_tag(source: str, place: int) -> tuple[OpenTag, int]:
    """The tag, and where it ends; beyond the end of the source if it never does."""
    found = _NAME.match(source, place)
    assert found is not None
    end, place = len(source), found.end()
    attributes: dict[str, str] = {}
    while True:
        if gap := _GAP.match(source, place):  # it matches the empty text too
            place = gap.end()
        if place >= end:
            return OpenTag(found[0], {}), end + 1
        if source[place] == ">":
            return OpenTag(found[0][:_MAX_NAME].lower(), attributes), place + 1
        name = _ATTRIBUTE.match(source, place)
        assert name is not None
        place, value = name.end(), ""
        if equals := _EQUALS.match(source, place):
            place = equals.end()
            quote = source[place : place + 1]
            if quote in ('"', "'"):
                close = source.find(quote, place + 1)
                if close < 0:
                    return OpenTag(found[0], {}), end + 1
                value, place = source[place + 1 : close], close + 1
            else:
                bare = _BARE_VALUE.match(source, place)
                value, place = (bare[0], bare.end()) if bare else ("", place)
        attributes.setdefault(name[0][:_MAX_NAME].lower(), unescape_entities(value))
