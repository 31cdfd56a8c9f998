"""Code as HTML: each token a `<span>` with a class of Pygments, never a style. Escaped whatever happens.

Threat: highlighters are made of regular expressions, and some text takes them forever. So only languages that people
use, 100 kB at most, no line beyond 2,000 characters, and a time after which the rest stands as it is.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from functools import lru_cache
from html import escape
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Final

from golem_forge.core.visible import visible

if TYPE_CHECKING:
    from golem_forge.ui.web.showing.libraries import Lexer

MOST_CODE: Final = 100_000
_MOST_LINE: Final = 2_000
_MOST_SECONDS: Final = 0.25
_MOST_HTML: Final = 400_000
_CACHED: Final = 64
_CACHED_CODE: Final = 20_000

LANGUAGES: Final = frozenset(
    (
        *("bash", "c", "cpp", "csharp", "css", "dart", "diff", "docker", "elixir", "erlang", "fish", "go"),
        *("graphql", "groovy", "haskell", "hcl", "html", "http", "ini", "java", "javascript", "json"),
        *("jsx", "kotlin", "latex", "lua", "make", "markdown", "nginx", "nix", "objective-c", "ocaml", "perl"),
        *("php", "powershell", "protobuf", "python", "pycon", "r", "ruby", "rust", "scala", "scss", "console"),
        *("sql", "swift", "terraform", "toml", "tsx", "typescript", "vim", "xml", "yaml", "zig"),
    )
)
_OTHER_NAMES: Final[Mapping[str, str]] = {
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
_ALSO: Final = {other: name for name, others in _OTHER_NAMES.items() for other in others.split()}
_BY_NAME: Final[Mapping[str, str]] = {"makefile": "make", "dockerfile": "docker", "containerfile": "docker"}


def language(word: str) -> str:
    """The language that a fence, hint or ending names; empty for one that is not highlighted."""
    name = word.strip().lower()[:40]
    name = _ALSO.get(name, name)
    return name if name in LANGUAGES else ""


def language_of(path: str) -> str:
    """By the name of a file."""
    file = PurePosixPath(path[-300:])
    return _BY_NAME.get(file.name.lower()) or language(file.suffix.removeprefix("."))


def plain_code(text: str) -> str:
    return escape(visible(text.replace("\r\n", "\n")), quote=False)


def highlighted(text: str, name: str) -> str:
    """The HTML that stands inside `<code>`; `name` as `language` gives it."""
    if not name or len(text) > MOST_CODE or max(map(len, text.split("\n"))) > _MOST_LINE:
        return plain_code(text)
    return _remembered(text, name) if len(text) <= _CACHED_CODE else _spans(text, name)


@lru_cache(_CACHED)
def _remembered(text: str, name: str) -> str:
    return _spans(text, name)


def _spans(text: str, name: str) -> str:
    from golem_forge.ui.web.showing.libraries import token_class

    lexer = _lexer(name)
    text = text.replace("\r\n", "\n")
    if lexer is None:
        return plain_code(text)
    shown: list[str] = []
    done, size, limit = 0, 0, time.monotonic() + _MOST_SECONDS
    for at, kind, part in lexer.get_tokens_unprocessed(text):
        if at != done or size > _MOST_HTML or time.monotonic() > limit:
            break  # `at`: a lexer that leaves something out is not believed
        done += len(part)
        marked = token_class(kind)
        words = plain_code(part)
        shown.append(f'<span class="{marked}">{words}</span>' if marked and words.strip() else words)
        size += len(shown[-1])
    return "".join(shown) + plain_code(text[done:])


@lru_cache(len(LANGUAGES))
def _lexer(name: str) -> Lexer | None:
    from golem_forge.ui.web.showing.libraries import ClassNotFound, get_lexer_by_name

    try:
        return get_lexer_by_name(name)
    except ClassNotFound:  # of an older or newer release
        return None
