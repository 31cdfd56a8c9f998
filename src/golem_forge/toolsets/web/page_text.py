"""The readable text of an HTML page: headings, lists, tables, quotations, preformatted text and `[text](url)`.

Takes decoded HTML and its URL, gives text and title. Scripts, styles, form parts and what a browser would not show
are dropped. Threat: words hidden from people but not from a model; what is hidden by attribute or inline style goes,
what a style sheet hides cannot be known, which is why the caller fences the page as untrusted.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from golem_forge.toolsets.web.layout import Layout
from golem_forge.toolsets.web.markup import Open, read_markup

_VOID: Final = frozenset(
    "area base br col embed hr img input link meta param source track wbr basefont bgsound frame keygen".split()  # noqa: SIM905
)
_DROPPED: Final = frozenset(
    "script style template svg iframe object embed applet canvas audio video map noembed noframes head "  # noqa: SIM905
    "button select textarea datalist option optgroup input label legend meter progress dialog".split()
)
_IN_HEAD: Final = frozenset({"title", "meta", "link", "style", "script", "noscript", "base", "template"})
_HEADINGS: Final = {f"h{level}": "#" * level for level in range(1, 7)}
_APART: Final = frozenset("p ul ol dl table pre blockquote figure address hr main article section details".split())  # noqa: SIM905
"""With an empty line before and after."""
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
    **{name: frozenset({"p"}) for name in (_APART | _OWN_LINE | _HEADINGS.keys()) - {"li", "dt", "dd", "tr"}},
}
"""An opening tag ends the element it stands in, if that is one of these: their end tags may be left out."""
_SHOWS_A_FORM_IS_THE_PAGE: Final = frozenset({"h1", "h2", "h3", "main", "article"})
_UNSEEN_STYLE: Final = re.compile(
    r"display:none|visibility:(hidden|collapse)|(opacity|font-size):0(\.0*)?(px|em|rem|pt|%)?(;|!|$)"
)


@dataclass(frozen=True, slots=True)
class Page:
    text: str
    title: str


def page_text(source: str, url: str) -> Page:
    reading = _Reading(url)
    for token in read_markup(source):
        if isinstance(token, str):
            reading.text(token)
        elif isinstance(token, Open):
            reading.open(token)
        else:
            reading.close(token.name)
    return reading.finish()


class _Reading:
    """Where in the page we are: which elements are open, and from which one on nothing is shown."""

    def __init__(self, url: str) -> None:
        self._layout = Layout(url)
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

    def open(self, tag: Open) -> None:
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

    def finish(self) -> Page:
        while self._open:
            self.close(self._open[-1])
        return Page(self._layout.finish(), self._title)

    def _begin(self, name: str, tag: Open) -> None:
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
        elif name in _APART:
            layout.apart()
        elif name in _OWN_LINE:
            layout.line()
        if name == "form" and self._form_at < 0:
            self._form_at, self._form_mark, self._form_is_the_page = len(self._open) - 1, layout.mark(), False

    def _end(self, name: str) -> None:
        layout = self._layout
        if name in _HEADINGS or name in _APART:
            if name == "pre":
                layout.preformatted(False)
            elif name == "blockquote":
                layout.quotation(False)
            elif name in ("ul", "ol"):
                layout.end_list()
            else:
                layout.apart()
        elif name == "a":
            layout.link_end()
        elif name in _OWN_LINE:
            layout.line()
        if self._form_at == len(self._open):
            self._form_at = -1
            if not self._form_is_the_page:
                layout.cut(self._form_mark)


def _is_hidden(tag: Open) -> bool:
    attributes = tag.attributes
    if not attributes:
        return False
    if "hidden" in attributes or attributes.get("aria-hidden", "").strip().lower() == "true":
        return True
    style = attributes.get("style")
    return bool(style) and _UNSEEN_STYLE.search("".join(str(style).lower().split())) is not None
