"""Markdown of models and tools as safe HTML, whole (`to_html`), block by block, or while it streams; code highlighted.

Gateway to markdown-it, nh3 and Pygments: the only module that imports them; imported when the first text is shown.
Two barriers: the parser never passes HTML on, and a sanitizer lets only known tags, classes and link schemes through.
Images are never loaded; a link with their text replaces them. Control, bidi and invisible characters are escaped before
parsing and again afterwards, because Markdown can spell them (`&#x202e;`).
`MarkdownStream` renders what can no longer change once and the rest again. A page that holds `sent` settled blocks asks
`view(sent)` for `(keep, html)`: it keeps its first `keep` top-level elements and replaces the rest by `html`; its next
`sent` is `settled`. That is a mark, not always a count: replaced text or a late link target makes old marks invalid,
and `keep` is 0. Only whole lines settle. `due_in` bounds the cost of rendering to a fraction of the time that passes.
Threat: nesting, brackets and highlighters that take forever. Long or deeply nested text is shown as written; only known
languages are highlighted, at most 100 kB, no line over 2,000 characters, within a time limit.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator, Mapping, MutableMapping
from functools import lru_cache
from html import escape
from itertools import groupby
from pathlib import PurePosixPath
from typing import Any, Final

import nh3
from markdown_it import MarkdownIt
from markdown_it.rules_core import StateCore, text_join
from markdown_it.token import Token
from pygments import token as pygments_token
from pygments.lexer import Lexer
from pygments.lexers import get_lexer_by_name
from pygments.util import ClassNotFound

from golem_forge.core.regex import regex
from golem_forge.core.text import escape_control_chars, escape_control_chars_in_prose

MAX_LEVELS: Final = 40
_LINKS: Final = ("http://", "https://", "mailto:")
_TAGS: Final = {
    *("p", "h3", "h4", "h5", "h6", "ul", "ol", "li", "blockquote", "hr", "br", "pre", "code", "span"),
    *("em", "strong", "s", "a", "table", "thead", "tbody", "tr", "th", "td"),
}
LANGUAGES: Final = frozenset(
    (
        *("bash", "c", "cpp", "csharp", "css", "dart", "diff", "docker", "elixir", "erlang", "fish", "go"),
        *("graphql", "groovy", "haskell", "hcl", "html", "http", "ini", "java", "javascript", "json"),
        *("jsx", "kotlin", "latex", "lua", "make", "markdown", "nginx", "nix", "objective-c", "ocaml", "perl"),
        *("php", "powershell", "protobuf", "python", "pycon", "r", "ruby", "rust", "scala", "scss", "console"),
        *("sql", "swift", "terraform", "toml", "tsx", "typescript", "vim", "xml", "yaml", "zig"),
    )
)
MAX_MARKDOWN: Final = 100_000
MAX_LINES: Final = 10_000
MAX_SHOWN: Final = 160_000
"""Characters of one text that are shown at all."""
_MAX_HTML: Final = 700_000
_PIECE: Final = 8_192
_MAX_TOKENS: Final = 60_000
"""A table fills up each short row: a few characters a row become thousands of cells."""
_MAX_MARKS: Final = 20_000
_MAX_MARKS_PER_BLOCK: Final = 4_000
"""Brackets, stars and the like are what parsing takes its time for."""
_MARK: Final = regex(r"[\[\]!*_~`<&\\]")
_DEMOTED: Final = {"h1": "h3", "h2": "h4", "h3": "h5", "h4": "h6", "h5": "h6"}
_TASK: Final = regex(r"\[([ xX])\](?=[ \t])")

References = MutableMapping[str, Any]


_PARSER: Final = MarkdownIt("commonmark", {"html": False, "xhtmlOut": False, "maxNesting": MAX_LEVELS})
"""Reads CommonMark with tables and strikethrough; never passes HTML on."""
_PARSER.enable(["strikethrough", "table"])
# What is no such link stays the text that it is written as.
_PARSER.validateLink = lambda url: url.lower().startswith(_LINKS)  # type: ignore[method-assign]
_SANITIZER: Final = nh3.Cleaner(
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
"""The second barrier: only these leave it, whatever a fault of the parser lets through."""


def to_html(text: str) -> str:
    return "".join(html_blocks(text))


def html_blocks(text: str) -> list[str]:
    """Renders each top-level block as one element."""
    if is_too_long(text):
        return list(plain_pieces(text))
    for fast in (False, True):  # a bracket of code is two dozen characters of HTML
        made = render_blocks(text, {}, fast=fast)
        if sum(map(len, made)) <= _MAX_HTML:
            return made
    return list(plain_pieces(text))


def is_too_long(text: str) -> bool:
    return len(text) > MAX_MARKDOWN or text.count("\n") > MAX_LINES


def render_blocks(text: str, references: References, *, fast: bool = False) -> list[str]:
    """The blocks of a text that is short enough. `references` are the link targets known so far; those of this text
    are put in. `fast` leaves code as it is."""
    source = normalize(text)
    env: dict[str, Any] = {"references": references}
    tokens = parse_blocks(source, env)
    lines = source.split("\n")
    groups = [(group, _is_too_large(group)) for group in top_level_groups(tokens)]
    _read_inline([token for group, too_large in groups if not too_large for token in group], env)
    return [_as_written(group, lines) if too_large else _html(group, fast=fast) for group, too_large in groups]


def normalize(text: str) -> str:
    return escape_control_chars_in_prose(text.replace("\r\n", "\n"))


def parse_blocks(source: str, env: dict[str, Any]) -> list[Token]:
    """The blocks as tokens, their words not read yet; the link targets are in `env["references"]` then."""
    tokens: list[Token] = []
    _PARSER.block.parse(source, _PARSER, env, tokens)
    return tokens


def top_level_groups(tokens: list[Token]) -> Iterator[list[Token]]:
    group: list[Token] = []
    for token in tokens:
        group.append(token)
        if token.level == 0 and token.nesting != 1:
            yield group
            group = []


def _is_too_large(group: list[Token]) -> bool:
    """Too many tokens, or nested so deep that the parser leaves words out."""
    return len(group) > _MAX_TOKENS or any(token.nesting == 1 and token.level >= MAX_LEVELS - 1 for token in group)


def _as_written(group: list[Token], lines: list[str]) -> str:
    first, end = group[0].map or (0, 0)
    return f"<pre>{escape_code(chr(10).join(lines[first:end]))}</pre>"


def plain_pieces(text: str) -> Iterator[str]:
    """Text as it is written, in pieces whose borders do not move when more is added."""
    for start, end in pieces(text[:MAX_SHOWN]):
        yield f"<pre>{escape_code(text[start:end])}</pre>"
    if len(text) > MAX_SHOWN:
        yield f"<p>… {len(text) - MAX_SHOWN:,} more characters · display cut</p>"


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
    read = 0
    for token in tokens:
        if token.type != "inline":
            continue
        marks = len(_MARK.findall(token.content))
        read += marks
        if marks > _MAX_MARKS_PER_BLOCK or read > _MAX_MARKS:
            token.children = [Token("text", "", 0, content=token.content)]
            continue
        token.children = []
        _PARSER.inline.parse(token.content, _PARSER, env, token.children)
    text_join(StateCore("", _PARSER, env, tokens))  # escapes and entities become one text with what is around them


def _make_safe(tokens: list[Token]) -> None:
    item = False
    for token in tokens:
        token.tag = _DEMOTED.get(token.tag, token.tag)
        if token.type in ("fence", "code_block"):
            token.content = escape_control_chars(token.content)
        if aligned := str(token.attrs.pop("style", "")).removeprefix("text-align:"):
            token.attrs["align"] = aligned
        if token.type == "inline":
            if item and (task := _TASK.match(token.content)) and token.children:
                first = token.children[0]
                if _TASK.match(first.content):
                    first.content = ("☐" if task[1] == " " else "☑") + first.content[3:]
            token.children = list(safe_inline_tokens(token.children or []))
        item = token.type == "list_item_open" or (item and token.type == "paragraph_open")


def _html(tokens: list[Token], *, fast: bool) -> str:
    _make_safe(tokens)
    shown = ""
    for is_code, group in groupby(tokens, key=lambda token: token.type in ("fence", "code_block")):
        if is_code:
            shown += "".join(_code_html(token, fast=fast) for token in group)
        else:
            shown += str(_PARSER.renderer.render(list(group), _PARSER.options, {}))
    return _SANITIZER.clean(shown).strip("\n")


def _code_html(token: Token, *, fast: bool) -> str:
    name = language_name(token.info.strip().split(" ", 1)[0])
    inside = escape_code(token.content) if fast else highlight(token.content, name)
    marked = f' class="language-{escape(name)}"' if name else ""
    return f"<pre><code{marked}>{inside}</code></pre>"


_ENDED_BY_BLANK_LINE: Final = frozenset({"paragraph_open", "heading_open", "hr", "fence", "table_open"})
_MIN_PAUSE_S: Final = 0.03
_TIME_SHARE: Final = 8
"""Rendering may take one part in so many of the time."""
_CHARACTERS_PER_SECOND: Final = 400_000
"""Maximum characters per second of text that is sent repeatedly to every page."""


class MarkdownStream:
    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._pieces: list[str] = []
        self._changed = False
        self._rendered_at = float("-inf")
        self._cost = 0.0
        self._first = 0
        """The mark of a page that holds nothing yet of what is valid now."""
        self._blocks: list[str] = []
        self._start = 0
        """Where in the text the first block begins that may still change."""
        self._targets: dict[str, Any] = {}
        """Of links: all that the text has, as far as it is rendered."""
        self._tail = ""
        self._plain = False

    @property
    def text(self) -> str:
        if len(self._pieces) > 1:
            self._pieces = ["".join(self._pieces)]
        return self._pieces[0] if self._pieces else ""

    @property
    def settled(self) -> int:
        """The number of blocks that a page has after this view, for its next one."""
        return self._first + len(self._blocks)

    def add(self, delta: str) -> None:
        if delta:
            self._pieces.append(delta)
            self._changed = True

    def replace(self, whole: str) -> None:
        """`whole` stands for everything that was shown."""
        if not whole.startswith(self.text):
            self._begin_again()
        self._pieces = [whole]
        self._changed = True

    def view(self, sent: int) -> tuple[int, str]:
        self._render()
        keep = sent - self._first if self._first <= sent <= self.settled else 0
        return keep, "".join(self._blocks[keep:]) + self._tail

    def due_in(self) -> float:
        """Seconds until another view is worth its cost; 0: now. Infinite while nothing is new."""
        if not self._changed:
            return float("inf")
        pause = max(_MIN_PAUSE_S, self._cost * _TIME_SHARE, len(self._tail) / _CHARACTERS_PER_SECOND)
        return max(0.0, self._rendered_at + pause - self._clock())

    # ---- rendering

    def _begin_again(self) -> None:
        """Marks that pages hold are smaller than every one from now on."""
        self._first = self.settled + 1
        self._blocks, self._start, self._targets, self._tail = [], 0, {}, ""

    def _render(self) -> None:
        if not self._changed:
            return
        started = time.perf_counter()
        text = self.text
        if is_too_long(text):
            self._render_plain(text)
        else:
            self._plain = False
            self._render_markdown(text)
        self._changed = False
        self._rendered_at = self._clock()
        self._cost = time.perf_counter() - started

    def _render_plain(self, text: str) -> None:
        if not self._plain:
            self._begin_again()
            self._plain = True
        shown = text[self._start : MAX_SHOWN]
        borders = list(pieces(shown))
        for begin, end in borders[:-1]:
            self._blocks += plain_pieces(shown[begin:end])
        last = borders[-1][0] if borders else len(shown)
        self._start += last
        self._tail = "".join(plain_pieces(shown[last:]))
        if len(text) > MAX_SHOWN:
            self._tail += list(plain_pieces(text))[-1]

    def _render_markdown(self, text: str) -> None:
        border = self._border(text)
        targets: dict[str, Any] = {}
        for part in (text[:border], text[border:]) if "]:" in text else ():
            parse_blocks(normalize(part), {"references": targets})
        if targets != self._targets:
            self._begin_again()
            self._targets = targets
        self._blocks += render_blocks(text[self._start : border], dict(targets))
        self._start = border
        self._tail = "".join(render_blocks(text[border:], dict(targets), fast=True))

    def _border(self, text: str) -> int:
        """Up to where nothing that comes can change the blocks: the last of the whole lines may still go on."""
        lines = text[self._start : text.rfind("\n") + 1]
        groups = list(top_level_groups(parse_blocks(normalize(lines), {}))) if lines else []
        if not groups:
            return self._start
        last = groups[-1][0]
        first, end = last.map or (0, 0)
        ended = last.type in _ENDED_BY_BLANK_LINE and end < lines.count("\n")
        at = 0
        for _ in range(end if ended else first):
            at = lines.index("\n", at) + 1
        return self._start + at


_ADDRESS: Final = regex(r"https?://[\w\-.~:/?#@!$&*+,;=%()\[\]]+", re.ASCII)


def safe_inline_tokens(children: list[Token]) -> Iterator[Token]:
    within = 0
    for token in children:
        if token.type in ("link_open", "link_close"):
            within += token.nesting
        if token.type == "image":
            words = escape_control_chars_in_prose(_alt_text(token)) or "image"
            yield from [_text_token(words)] if within else _link_tokens(str(token.attrs.get("src", "")), words)
        elif token.type == "text" and not within:
            yield from _link_addresses(escape_control_chars_in_prose(token.content))
        else:
            clean = escape_control_chars if token.type == "code_inline" else escape_control_chars_in_prose
            token.content = clean(token.content)
            yield token


def _link_addresses(words: str) -> Iterator[Token]:
    done = 0
    for match in _ADDRESS.finditer(words):
        address = _trim_punctuation(match[0])
        if len(address) <= len("https://"):
            continue
        yield _text_token(words[done : match.start()])
        yield from _link_tokens(address, address)
        done = match.start() + len(address)
    yield _text_token(words[done:])


def _trim_punctuation(address: str) -> str:
    """Removes the punctuation that ends a sentence, and a closing bracket that was opened before the address."""
    unopened = {close: address.count(close) - address.count(opening) for opening, close in ("()", "[]")}
    end = len(address)
    while end and (address[end - 1] in ".,;:!?*_~" or unopened.get(address[end - 1], 0) > 0):
        end -= 1
        if address[end] in unopened:
            unopened[address[end]] -= 1
    return address[:end]


def _alt_text(token: Token) -> str:
    return "".join(
        _alt_text(child) if child.type == "image" else "\n" if child.type == "softbreak" else child.content
        for child in token.children or []
    )


def _link_tokens(url: str, words: str) -> list[Token]:
    return [Token("link_open", "a", 1, attrs={"href": url}), _text_token(words), Token("link_close", "a", -1)]


def _text_token(words: str) -> Token:
    return Token("text", "", 0, content=words)


MAX_CODE: Final = 100_000
_MAX_CODE_LINE: Final = 2_000
_MAX_SECONDS: Final = 0.25
"""Limit in CPU seconds, so that the result does not depend on the load of the machine."""
_MAX_CODE_HTML: Final = 400_000
_CACHED: Final = 64
_CACHED_CODE: Final = 20_000

_ALIAS_TABLE: Final[Mapping[str, str]] = {
    "bash": "sh shell zsh ksh",
    "c": "h",
    "console": "shell-session",
    "cpp": "c++ cc cxx hpp",
    "csharp": "cs c#",
    "diff": "patch",
    "docker": "dockerfile",
    "elixir": "ex exs",
    "erlang": "erl",
    "go": "golang",
    "haskell": "hs",
    "html": "htm",
    "ini": "cfg conf",
    "javascript": "js mjs cjs",
    "json": "jsonl json5 jsonc",
    "kotlin": "kt kts",
    "latex": "tex",
    "make": "makefile mk",
    "markdown": "md",
    "objective-c": "objc",
    "ocaml": "ml",
    "perl": "pl pm",
    "powershell": "ps1",
    "protobuf": "proto",
    "python": "py python3 pyi",
    "ruby": "rb",
    "rust": "rs",
    "terraform": "tf",
    "typescript": "ts mts",
    "xml": "svg xsd",
    "yaml": "yml",
}
_ALIASES: Final = {other: name for name, others in _ALIAS_TABLE.items() for other in others.split()}
_BY_FILE_NAME: Final[Mapping[str, str]] = {"makefile": "make", "dockerfile": "docker", "containerfile": "docker"}


def language_name(word: str) -> str:
    """The language that a fence, hint or ending names; empty for one that is not highlighted."""
    name = word.strip().lower()[:40]
    name = _ALIASES.get(name, name)
    return name if name in LANGUAGES else ""


def language_of_file(path: str) -> str:
    file = PurePosixPath(path[-300:])
    return _BY_FILE_NAME.get(file.name.lower()) or language_name(file.suffix.removeprefix("."))


def escape_code(text: str) -> str:
    return escape(escape_control_chars(text.replace("\r\n", "\n")), quote=False)


def highlight(text: str, name: str) -> str:
    """The HTML that stands inside `<code>`; `name` as `language` gives it."""
    if not name or len(text) > MAX_CODE or max(map(len, text.split("\n"))) > _MAX_CODE_LINE:
        return escape_code(text)
    return _cached_token_spans(text, name) if len(text) <= _CACHED_CODE else _token_spans(text, name)


def _token_spans(text: str, name: str) -> str:
    lexer = _lexer(name)
    text = text.replace("\r\n", "\n")
    if lexer is None:
        return escape_code(text)
    shown: list[str] = []
    done, size, limit = 0, 0, time.thread_time() + _MAX_SECONDS
    for at, kind, part in lexer.get_tokens_unprocessed(text):
        if at != done or size > _MAX_CODE_HTML or time.thread_time() > limit:
            break  # `at`: a lexer that leaves something out is not believed
        done += len(part)
        marked = _token_class(kind)
        words = escape_code(part)
        shown.append(f'<span class="{marked}">{words}</span>' if marked and words.strip() else words)
        size += len(shown[-1])
    return "".join(shown) + escape_code(text[done:])


def _token_class(kind: pygments_token._TokenType) -> str:
    """The class of a token of code: that of the nearest kind above it that has one."""
    above: pygments_token._TokenType | None = kind
    while above is not None:
        if above in pygments_token.STANDARD_TYPES:
            return str(pygments_token.STANDARD_TYPES[above])
        above = above.parent
    return ""


_cached_token_spans = lru_cache(_CACHED)(_token_spans)


@lru_cache(len(LANGUAGES))
def _lexer(name: str) -> Lexer | None:
    try:
        return get_lexer_by_name(name)
    except ClassNotFound:  # of an older or newer release
        return None
