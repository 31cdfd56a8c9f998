"""Commands as they are started: in other words than they were given where the walls need it, with the same meaning.

Where zones stand at their host directories only (level landlock, no walls), path operands are written that way. Where a
command is proven to only read, git is told to start no diff driver and to leave secret names out. Only texts that the
strict parser reads are touched; whatever it cannot read runs as it is, and finds no `/workspace` at those levels.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from golem_forge.policy.shell import Parsed, parse_strict, quote
from golem_forge.policy.shell.operands import file_words
from golem_forge.policy.shell.strict import REDIRECTIONS, render

if TYPE_CHECKING:
    from golem_forge.policy.facts import CommandFacts

_TOKEN: Final = re.compile(
    r"(?P<operator>&&|\|\||;|\|)"
    rf"|(?P<redirection>(?:{'|'.join(map(re.escape, REDIRECTIONS))})(?=[ ;|&]|$))"
    r"|(?P<word>(?:'[^']*'|\"[^\"]*\"|[^ ;|&'\"])+)"
)
_QUOTED: Final = re.compile(r"'([^']*)'|\"([^\"]*)\"")


def rewritten(text: str, host_path: Callable[[str], str]) -> str:
    """`host_path` gives a path operand as the host knows it, or unchanged."""
    parsed = parse_strict(text)
    if not isinstance(parsed, Parsed):
        return text
    if parsed.segments[0].shells:  # `bash -c '…'` around the whole: the script inside is what runs
        words = [_bare(match["word"]) for match in _TOKEN.finditer(text) if match["word"]]
        return rewritten(words[2], host_path)
    segments = iter(parsed.segments)
    files = _files_of(next(segments).words)
    pieces: list[str] = []
    end = 0
    for match in _TOKEN.finditer(text):
        pieces.append(text[end : match.start()])
        end = match.end()
        written = match[0]
        if match["operator"]:
            files = _files_of(next(segments).words)
        elif match["word"] and (word := _bare(written)) in files and (path := host_path(word)) != word:
            written = quote(path)
        pieces.append(written)
    return "".join(pieces) + text[end:]


def started_text(facts: CommandFacts) -> str:
    """A command that is proven to only read in the words that the proof is of."""
    if facts.started is None or facts.started == facts.parsed:
        return facts.text
    return render(facts.started)


def rewritten_words(words: tuple[str, ...], host_path: Callable[[str], str]) -> tuple[str, ...]:
    files = _files_of(words)
    return tuple(host_path(word) if word in files else word for word in words)


def _files_of(words: tuple[str, ...]) -> frozenset[str]:
    program = words[:1] if "/" in words[0] else ()
    return frozenset((*program, *file_words(posixpath.basename(words[0]), words[1:])))


def _bare(word: str) -> str:
    return _QUOTED.sub(lambda match: match[1] or match[2] or "", word)
