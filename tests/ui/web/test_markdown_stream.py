"""Text that streams ends as the text that was said, however it was cut and whoever looked when."""

from __future__ import annotations

import re
from html.parser import HTMLParser

from hypothesis import given, settings
from hypothesis import strategies as st

from golem_forge.ui.web.markdown import MAX_MARKDOWN, MAX_SHOWN, MarkdownStream, to_html

SPAN = re.compile(r"</?span[^>]*>")


class Elements(HTMLParser):
    """The top-level elements, as a page counts them."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.found: list[str] = []
        self._html, self._depth, self._start = html, 0, 0
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: object) -> None:
        if tag in ("hr", "br"):
            if self._depth == 0:
                self.found.append(f"<{tag}>")
            return
        if self._depth == 0:
            self._start = self.getpos()[1] if self.getpos()[0] == 1 else self._offset()
        self._depth += 1

    def handle_endtag(self, tag: str) -> None:
        self._depth -= 1
        if self._depth == 0:
            end = self._offset() + len(f"</{tag}>")
            self.found.append(self._html[self._start : end])

    def _offset(self) -> int:
        line, column = self.getpos()
        return sum(len(one) + 1 for one in self._html.split("\n")[: line - 1]) + column


class Page:
    """What one page holds."""

    def __init__(self) -> None:
        self.elements: list[str] = []
        self._sent = 0

    def look(self, stream: MarkdownStream) -> None:
        keep, html = stream.view(self._sent)
        assert keep <= len(self.elements)
        self.elements = self.elements[:keep] + Elements(html).found
        self._sent = stream.settled

    @property
    def html(self) -> str:
        return "".join(self.elements)


PIECES = st.sampled_from(
    [
        *("a", "# ", "#", "x", "- ", "1. ", "> ", "```", "```py\n", "\n", "\n\n", "    ", "| a | b |\n", "|---|---|\n"),
        *("---", "===", "[a]", "[a]: ", "http://x.test", "*", "**", "`", "\r\n", "\\", "<b>", "👩", "\u200d", "🚒"),
        *("\u202e", "\t", "~~", "[ ] "),
    ]
)
TEXTS = st.lists(PIECES, max_size=30).map("".join)


@settings(derandomize=True)
@given(TEXTS, st.lists(st.integers(1, 9), min_size=1, max_size=30), st.lists(st.booleans(), min_size=1, max_size=8))
def test_the_end_is_the_whole_text_however_it_came(text: str, lengths: list[int], looks: list[bool]) -> None:
    stream, often, seldom = MarkdownStream(), Page(), Page()
    at = turn = 0
    while at < len(text):
        length = lengths[turn % len(lengths)]
        stream.add(text[at : at + length])
        at += length
        often.look(stream)
        if looks[turn % len(looks)]:
            seldom.look(stream)
        turn += 1
    late = Page()
    for page in (often, seldom, late):
        page.look(stream)
    assert stream.text == text
    expected = "".join(Elements(SPAN.sub("", to_html(text))).found)
    assert SPAN.sub("", late.html) == expected
    assert often.html == seldom.html == late.html


@settings(derandomize=True)
@given(st.lists(TEXTS, min_size=2, max_size=4))
def test_a_replaced_text_counts_alone(wholes: list[str]) -> None:
    stream, page = MarkdownStream(), Page()
    for whole in wholes:
        stream.replace(whole)
        page.look(stream)
        stream.add("\n\nmore")
        page.look(stream)
    expected = "".join(Elements(SPAN.sub("", to_html(wholes[-1] + "\n\nmore"))).found)
    assert SPAN.sub("", page.html) == expected


def test_blocks_that_are_done_are_sent_once_and_coloured() -> None:
    stream = MarkdownStream()
    stream.add("one\n\n```py\nx = 1\n```\n\nthr")
    keep, html = stream.view(0)
    assert keep == 0 and '<span class="n">x</span>' in html
    sent = stream.settled
    stream.add("ee")
    assert stream.view(sent) == (2, "<p>three</p>")
    stream.add("\n\n```py\ny = 2")
    keep, html = stream.view(sent)
    assert (keep, html) == (2, '<p>three</p><pre><code class="language-python">y = 2</code></pre>')


def test_a_target_that_comes_late_changes_what_stands_before() -> None:
    stream, page = MarkdownStream(), Page()
    stream.add("see [the page][1]\n\nmore\n\n")
    page.look(stream)
    assert "[the page][1]" in page.html
    stream.add("[1]: https://x.test\n\nend")
    page.look(stream)
    assert 'href="https://x.test"' in page.html
    assert len(page.elements) == 3


def test_a_long_text_is_plain_bounded_and_still_sent_in_parts() -> None:
    stream, page = MarkdownStream(), Page()
    sizes = []
    line = "*word* " * 10 + "\n"
    while len(stream.text) < MAX_SHOWN * 2:
        stream.add(line * 800)
        sizes.append(len(stream.view(page._sent)[1]))
        page.look(stream)
    assert page.html == to_html(stream.text)
    assert "more characters · display cut" in page.html
    assert len(page.html) < MAX_SHOWN * 1.2
    assert sorted(sizes)[-2] < 2 * MAX_MARKDOWN  # sent once more when it became plain, else in pieces


def test_rendering_takes_a_share_of_the_time() -> None:
    now = [0.0]
    stream = MarkdownStream(clock=lambda: now[0])
    assert stream.due_in() == float("inf")
    stream.add("a")
    assert stream.due_in() == 0
    stream.view(0)
    assert stream.due_in() == float("inf")
    stream.add("b")
    assert 0 < stream.due_in() <= 1
    now[0] += 1
    assert stream.due_in() == 0
    stream.add("x" * 90_000)
    stream.view(0)
    stream.add("y")
    assert stream.due_in() > 0.2
