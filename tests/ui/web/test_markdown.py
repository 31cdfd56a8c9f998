"""Markdown of strangers on a page: what is said is shown, nothing of it acts."""

from __future__ import annotations

import re
import time
from html.parser import HTMLParser

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from golem_forge.ui.web.markdown import LANGUAGES, highlight, html_blocks, language_name, language_of_file, to_html

TAGS = {
    *("p", "h3", "h4", "h5", "h6", "ul", "ol", "li", "blockquote", "hr", "br", "pre", "code", "span"),
    *("em", "strong", "s", "a", "table", "thead", "tbody", "tr", "th", "td"),
}


class Seen(HTMLParser):
    """What a browser makes of it: tags with attributes, and text."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        self.text += data


def links(html: str) -> list[str | None]:
    return [attributes.get("href") for tag, attributes in Seen(html).tags if tag == "a"]


def assert_inert(html: str) -> None:
    for tag, attributes in Seen(html).tags:
        assert tag in TAGS
        assert set(attributes) <= {"href", "rel", "target", "class", "start", "align"}
        if tag == "a" and "href" in attributes:
            assert re.match(r"https?://|mailto:", attributes["href"] or "", re.IGNORECASE)
            assert attributes["rel"] == "noopener noreferrer"
            assert attributes["target"] == "_blank"


@pytest.mark.parametrize(
    "text",
    [
        "<img src=x onerror=alert(1)>",
        "<script>alert(1)</script>",
        "<a href='javascript:alert(1)'>x</a>",
        "[a](javascript:alert(1))",
        "[a](JaVaScRiPt:alert(1))",
        "[a](data:text/html,<script>alert(1)</script>)",
        "[a](vbscript:x)",
        "[a](file:///etc/passwd)",
        "[a](&#106;avascript:alert(1))",
        "[a](java%73cript:alert(1))",
        "<javascript:alert(1)>",
        "[a][1]\n\n[1]: javascript:alert(1)",
        "![a](javascript:alert(1))",
        "![a](data:image/svg+xml;base64,AAAA)",
        "[a](/api/sessions)",
        "[a](#/s/1/settings)",
        "[a](//evil.test)",
        "[a](\\\\evil.test)",
    ],
)
def test_u33_what_could_act_is_text(text: str) -> None:
    html = to_html(text)
    assert_inert(html)
    assert links(html) == []


def test_u33_an_image_is_a_link_with_its_words() -> None:
    html = to_html("![a *cat*](https://evil.test/x.png?s=1) and [![badge](https://a.test/b)](https://c.test)")
    assert "<img" not in html
    assert links(html) == ["https://evil.test/x.png?s=1", "https://c.test"]
    assert Seen(html).text == "a cat and badge"


def test_links_lead_out_and_say_nothing_about_us() -> None:
    html = to_html('[a](https://x.test "t") <https://y.test> <a@b.test> https://z.test/q_(r)). (https://w.test)')
    assert_inert(html)
    found = ["https://x.test", "https://y.test", "mailto:a@b.test", "https://z.test/q_(r)", "https://w.test"]
    assert links(html) == found
    assert "title" not in html


def test_html_in_code_and_names_of_languages_stays_text() -> None:
    html = to_html('```python"><script>alert(1)</script>\n</code><img src=x>\n```\n\n`<b>`')
    assert_inert(html)
    assert "</code><img src=x>" in Seen(html).text


def test_what_markdown_has() -> None:
    html = to_html(
        "# One\n\n###### Six\n\n*a* **b** ~~c~~ `d`\n\n- [ ] open\n- [x] done\n\n7. seven\n\n> quoted\n\n---\n\n"
        "| l | r |\n|---|--:|\n| 1 | 2 |\n\n```py\nx = 1\n```\n"
    )
    assert_inert(html)
    for part in (
        "<h3>One</h3>",
        "<h6>Six</h6>",
        "<em>a</em> <strong>b</strong> <s>c</s> <code>d</code>",
        "<li>☐ open</li>",
        "<li>☑ done</li>",
        '<ol start="7">',
        "<blockquote>",
        "<hr>",
        '<td align="right">2</td>',
        '<code class="language-python"><span class="n">x</span>',
    ):
        assert part in html


def test_a_late_link_target_and_an_unknown_language() -> None:
    assert links(to_html("[a][b]\n\n[b]: https://x.test")) == ["https://x.test"]
    assert to_html("```klingon\nx < 1\n```") == "<pre><code>x &lt; 1\n</code></pre>"


@pytest.mark.parametrize("spelling", ["\u202e", "&#x202e;", "&#8238;", "`\u202e`", "```\n\u202e\n```", "# \u202e"])
def test_hidden_characters_are_seen(spelling: str) -> None:
    assert "\\u202e" in Seen(to_html(f"a {spelling} b" if "\n" not in spelling else spelling)).text
    assert "\u202e" not in to_html(spelling)


def test_a_hidden_character_in_an_address_is_seen_and_an_emoji_stays_whole() -> None:
    assert "\\u202e" in Seen(to_html("<https://x.test/%E2%80%AE>")).text
    assert "👩\u200d🚒" in to_html("hi 👩\u200d🚒")
    assert "\\x1b[2J" in to_html("a\x1b[2J")
    assert "a\\x0db" in to_html("a\rb")
    assert to_html("a\r\n\r\nb") == "<p>a</p><p>b</p>"


def test_what_is_nested_too_deep_is_shown_as_written_and_the_rest_as_ever() -> None:
    html = html_blocks("*a*\n\n" + "> " * 300 + "hidden words\n\n*b*")
    assert html[0] == "<p><em>a</em></p>" and html[-1] == "<p><em>b</em></p>"
    assert "hidden words" in html[1] and html[1].startswith("<pre>&gt; &gt;")
    deep = "".join("  " * level + "- a\n" for level in range(200)) + "\nthe end"
    assert "the end" in to_html(deep)


SLOW = {
    "quotes": ">" * 10_000,
    "brackets": "[" * 50_000,
    "pictures": "![" * 40_000,
    "links": "[a](" * 20_000,
    "stars": "*a **b " * 12_000,
    "underlines": "_a" * 40_000,
    "ticks": "".join("`" * n + " " for n in range(400)),
    "blocks": "a\n\n" * 33_000,
    "headings": "# a\n" * 20_000,
    "table": "|a" * 5_000 + "\n" + "|-" * 5_000 + "\n" + "|b\n" * 2_000,
    "lists": "".join("  " * level + "- a\n" for level in range(300)),
    "address": "http://a" + ")" * 90_000,
    "addresses": "http://a" * 10_000,
    "targets": "[a]: b\n" * 14_000,
    "entities": "&amp;" * 20_000,
    "code": ("```py\n" + "(\n" * 400 + "```\n\n") * 20,
    "huge": "*a* " * 2_000_000,
}


ALWAYS_TRIED = ("links", "stars", "table", "lists", "addresses", "code", "huge")
"""One of each kind; the others with --long."""


@pytest.mark.parametrize(
    "name", [name if name in ALWAYS_TRIED else pytest.param(name, marks=pytest.mark.long) for name in SLOW]
)
def test_text_made_to_be_slow_is_not(name: str) -> None:
    started = time.process_time()
    html = to_html(SLOW[name])
    assert time.process_time() - started < 20  # of the processor's time: read without bounds it would be minutes
    assert_inert(html[:20_000])
    assert len(html) < 1 << 20


PIECES = st.sampled_from(
    [
        *("<", ">", "[a](", "javascript:", "](", ")", "![", "`", "```\n", "\n\n", "\n", "*", "&#60;", "script"),
        *("<img src=x", " onerror=1", '"', "'", "> ", "- ", "https://x.test", "| a |\n|---|\n", "\\", "\u202e"),
        *("\x00", "style=", "<!--"),
    ]
)


@settings(derandomize=True)
@given(st.lists(PIECES | st.text(max_size=5), max_size=25).map("".join))
def test_no_text_at_all_makes_anything_that_acts(text: str) -> None:
    for block in html_blocks(text):
        assert_inert(block)
        assert "\u202e" not in block


def test_code_keeps_its_words() -> None:
    text = "if (a < b && \"<c>\") { /* é \u202e */ }\n\t# <script>\n\n$x = 'y'; --z\n<?php ?>\n"
    for name in ("bash", "c", "diff", "go", "html", "javascript", "json", "python", "rust", "sql", "toml", "yaml"):
        assert name in LANGUAGES
        html = highlight(text, name)
        assert Seen(html).text == text.replace("\u202e", "\\u202e"), name
        assert {tag for tag, _ in Seen(html).tags} <= {"span"}


def test_code_that_is_long_or_has_long_lines_is_not_highlighted() -> None:
    assert "<span" in highlight("x = 1\n", "python")
    assert "<span" not in highlight("x = 1\n" * 20_000, "python")
    assert "<span" not in highlight("x" * 3_000 + " = 1", "python")


def test_languages_by_many_names() -> None:
    assert [language_name(name) for name in ("PY", "sh", "c++", "", "brainfuck", "x" * 9_999)] == [
        "python",
        "bash",
        "cpp",
        "",
        "",
        "",
    ]
    assert [language_of_file(path) for path in ("/a/b.rs", "Makefile", "x", "a.unknown")] == ["rust", "make", "", ""]
