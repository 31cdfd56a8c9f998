"""Which words of a command may name files, and in how many spellings: shared by prover and detector.

Both sides use the same reading, so what the detector calls a secret is never proven harmless. The reading is
wide: a word counts as a file name unless its program can only treat it as text.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator
from fnmatch import fnmatchcase

from .names import names

# Programs that never open a file named in their arguments.
TEXT_ONLY = names("echo printf tr expr seq which id whoami uname pwd true false")

# Programs whose first operand is a pattern, with the short flags that take a value (so the word after them
# is not that operand) and the flags that give the pattern in another way.
_PATTERN_FIRST = {
    "grep": "ABCDdefm",
    "egrep": "ABCDdefm",
    "fgrep": "ABCDdefm",
    "rg": "ABCEMTdefgjmrt",
}
_PATTERN_FLAGS = ("--regexp", "--file", "--files", "--type-list")

# Names a shell pattern is tried against: `cat .e*` reads `.env` as surely as spelling it out.
_SECRET_SAMPLES = names(
    ".env id_rsa id_ed25519 id_ecdsa .netrc .npmrc .pgpass .pypirc .git-credentials .ssh .aws .gnupg"
)

_SYSTEM_SECRET = re.compile(r"(^|/)(proc/[^/]+/(task/[^/]+/)?environ|etc/g?shadow-?)$")


def file_words(program: str, arguments: tuple[str, ...]) -> tuple[str, ...]:
    """The arguments of `program` that may name files."""
    if program in TEXT_ONLY:
        return ()
    valued = _PATTERN_FIRST.get(program)
    if valued is None:
        return arguments
    pattern = _pattern_index(arguments, valued)
    return arguments if pattern is None else arguments[:pattern] + arguments[pattern + 1 :]


def _pattern_index(arguments: tuple[str, ...], valued: str) -> int | None:
    first: int | None = None
    index = 0
    while index < len(arguments):
        word = arguments[index]
        if word == "--":
            return index + 1 if first is None and index + 1 < len(arguments) else first
        if word.startswith("--"):
            if word.startswith(_PATTERN_FLAGS):
                return None
        elif word.startswith("-") and len(word) > 1:
            for place, letter in enumerate(word[1:], 1):
                if letter in "ef":
                    return None
                if letter in valued:
                    index += place == len(word) - 1
                    break
        elif first is None:
            first = index
        index += 1
    return first


def spellings(word: str) -> Iterator[str]:
    """The paths `word` may stand for: itself, a flag's value, `name=path`, `@path`, `host:path`."""
    yield word
    if word.startswith("-") and not word.startswith("--") and len(word) > 2:
        yield word[2:]
    if any(char.isspace() for char in word):
        return  # prose or code, not a path with something before it
    for piece in re.split(r"[=@:,]", word):
        if piece and piece != word:
            yield piece


def secret_by_shape(path: str) -> bool:
    """Secrets known by shape alone: process environments, shadow files, patterns over secret names."""
    normal = posixpath.normpath(path) if path else path
    if _SYSTEM_SECRET.search(normal):
        return True
    if not any(char in "*?[" for char in normal):
        return False
    return any(_pattern_over_secret(part) for part in normal.split("/"))


def _pattern_over_secret(part: str) -> bool:
    literal = re.sub(r"\[[^\]]*\]|[*?]", "", part)
    if len(literal) < 2 or part[0] in "*?":
        return False
    return any(fnmatchcase(sample, part) for sample in _SECRET_SAMPLES)
