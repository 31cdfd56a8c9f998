"""HTML as text: what is kept, what is dropped, and pages made to be slow."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from tests.deadlines import within
from tests.tables import table

from golem_forge.toolsets.web.page_text import html_to_text

URL = "https://site.test/dir/page"


def text(source: str) -> str:
    return html_to_text(source, URL).text


@table(
    ("source", "expected"),
    [
        ("<h1>One</h1><p>two\n  three<h3>Four</h3>five", "# One\n\ntwo three\n\n### Four\n\nfive"),
        ("<p>a<br>b<p>c", "a\nb\n\nc"),
        ("<div>a</div><div>b<div>c</div></div>", "a\nb\nc"),
        ("<p>a <b>b</b><i>c</i> d</p>", "a bc d"),
        ("x<ul><li>a<li>b<ul><li>c</li></ul><li>d</ul>y", "x\n\n- a\n- b\n  - c\n- d\n\ny"),
        ("<ol><li>a<li>b</ol><ol start=7><li>c</ol>", "1. a\n2. b\n\n7. c"),
        ("<table><tr><th>a<th>b<tr><td>1<td>2</table>", "a | b\n1 | 2"),
        ("<table><tr><td></td><td>x</td></tr><tr><td></td></tr></table>", "| x"),
        ("<pre>\n  a\n\n   b &lt;\n</pre>c", "  a\n\n   b <\n\nc"),
        ("<blockquote>a<p>b</blockquote>c", "> a\n\n> b\n\nc"),
        ("a<hr>b", "a\n\n---\n\nb"),
        ("&lt;b&gt; &amp;amp; &eacute;&#x41;&#66;&nbsp;x&bogus;", "<b> &amp; éAB\xa0x&bogus;"),
        ("a &#" + "9" * 5000 + "; b", "a &#" + "9" * 5000 + "; b"),
        ("&#xD800;", "\ufffd"),
        ("<dl><dt>a<dd>b<dt>c<dd>d</dl>", "a\nb\nc\nd"),
        ("<img alt='A cat' src=x> <img src=y>", "A cat"),
        ("1 < 2 <3> </ x>ok<!x>", "1 < 2 <3> ok"),
        ("", ""),
        ("just text", "just text"),
    ],
)
def test_layout(source: str, expected: str) -> None:
    assert text(source) == expected


@table(
    ("source", "expected"),
    [
        ("<a href='/x'>a</a>", "[a](https://site.test/x)"),
        ("<a href=other>a  b</a>!", "[a b](https://site.test/dir/other)!"),
        ("<a href='?q=1&amp;r=2'>a</a>", "[a](https://site.test/dir/page?q=1&r=2)"),
        ("see <a href='//cdn.test/(x) y'> a </a>b", "see [a](https://cdn.test/%28x%29%20y) b"),
        ("<base href='https://base.test/z/'><a href=q>a</a>", "[a](https://base.test/z/q)"),
        ("<a href='mailto:a@b.test'>a</a>", "[a](mailto:a@b.test)"),
        ("<a href='javascript:x()'>a</a> <a href='#top'>b</a> <a name=q>c</a> <a href='data:x'>d</a>", "a b c d"),
        ("<a href='http://[bad'>a</a>", "a"),
        ("<a href=/x></a><a href=/y><img alt=logo></a>", "[logo](https://site.test/y)"),
        ("<a href=/x><h2>Title</h2><p>more</a>", "## [Title](https://site.test/x)\n\n[more](https://site.test/x)"),
        ("<h2><a href=/x>T</a></h2>", "## [T](https://site.test/x)"),
        ("<a href=/x>one<a href=/y>two", "[one](https://site.test/x)[two](https://site.test/y)"),
        ("<a href='/a\nb'>x</a>", "[x](https://site.test/ab)"),
    ],
)
def test_links(source: str, expected: str) -> None:
    assert text(source) == expected


@table(
    "source",
    [
        "<script>bad('</p>')</script>ok",
        "<SCRIPT src=x>bad</sCript >ok",
        "<style>bad</style>ok",
        "<template><p>bad</p></template>ok",
        "<svg><title>bad</title><text>bad</text></svg>ok",
        "<iframe>bad</iframe>ok",
        "<!-- bad -->ok<!-- bad > <b> -->",
        "<!-->ok",
        "<p hidden>bad</p>ok",
        "<p hidden>bad<p>ok",
        "<li hidden>bad<li>ok",
        "<div hidden><div>bad</div>bad</div>ok",
        "<div><span hidden>bad</div>ok",
        "<p aria-hidden=TRUE>bad</p>ok",
        "<p style='color: red; DISPLAY : none'>bad</p>ok",
        "<p style='visibility:hidden'>bad</p>ok",
        "<p style='font-size:0px'>bad</p>ok",
        "<p style='opacity: 0;'>bad</p>ok",
        "<form>bad<label>bad</label><input value=bad><button>bad</button></form>ok",
        "<select><option>bad<option>bad</select>ok",
        "<textarea><p>bad</textarea>ok",
        "<button>bad</button>ok<input value=bad>",
        "<head><title>t</title><style>bad</style></head><body>ok",
        "<head><meta name=bad><noscript>bad</noscript><p>ok",
        "<head>ok",
        "<input hidden>ok",
        "ok<script>bad",
        "ok<!-- bad",
        "ok<div hidden>bad",
        "ok<a href='bad",
        "<p style='opacity:0.5;font-size:0.9em'>ok</p>",
    ],
)
def test_what_nobody_would_see_is_dropped(source: str) -> None:
    found = text(source)
    assert "bad" not in found
    assert found.removeprefix("- ") == "ok"


def test_a_form_around_the_whole_page_is_the_page() -> None:
    assert text("<form><h1>News</h1><p>words<input><button>x</button></form>") == "# News\n\nwords"
    assert text("<h1>a</h1><form>search</form>b") == "# a\n\nb"


def test_the_title() -> None:
    page = html_to_text("<html><head><title> A &amp;\n B </title></head><svg><title>no</title></svg>x", URL)
    assert (page.title, page.text) == ("A & B", "x")
    assert html_to_text("<p>x", URL).title == ""


HOSTILE = (
    "<!--|<a |<a b='|<|</|<p>|</p>|<b></i>|<ul><li>|<form>|<h1><form>|&|&#|<td>|<a href=/x>a|<pre>|<blockquote>|"
    "<x y=z |<title>|<script|<script>|<textarea><|<![CDATA[|<div hidden>|"
    "<p\n\n\n|\n \n|<table>|<a x|<svg><title>|<li>a|<a></p>"
)


@table("unit", HOSTILE.split("|"))
def test_hostile_pages_take_time_in_proportion(unit: str) -> None:
    """What grows with the square of the length would take many seconds here."""
    source = unit * (16 * 1024 // len(unit))
    with within(1):
        html_to_text(source, URL)


@given(st.text("<>/!-='\" abpli&#;hrefdivx\n", max_size=200))
def test_nothing_is_an_error(source: str) -> None:
    assert isinstance(text(source), str)


_TAGS = "p|ul|li|div hidden|div|form|a href=x|a|pre|td|tr|table|blockquote|h2|head|br|ol|select|title"
_PIECES = [f"{before}{tag}>" for tag in _TAGS.split("|") for before in ("<", "</")]


@given(st.lists(st.sampled_from([*_PIECES, "x", " ", "\n"]), max_size=30))
def test_tags_in_any_order_never_stop_it(pieces: list[str]) -> None:
    found = text("".join(pieces))
    assert "<" not in found and not found.startswith("\n") and not found.endswith("\n")
