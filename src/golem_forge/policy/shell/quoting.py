"""Small pure readings of shell text: escapes, brace expansion, what `echo` and `printf` would print.

Nothing here refuses anything: malformed input is read as literally as possible.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from itertools import pairwise

BARE, QUOTED, POSITIONAL = "b", "q", "p"
SPLIT = "\0"  # stands where an unquoted `$IFS` ends a word; NUL itself never reaches a reader

MAX_BRACE_WORDS = 256

_ESCAPE = re.compile(
    r"\\(?:x(?P<hex>[0-9a-fA-F]{1,2})|u(?P<u4>[0-9a-fA-F]{1,4})|U(?P<u8>[0-9a-fA-F]{1,8})"
    r"|0?(?P<octal>[0-7]{1,3})|c(?P<control>.)|(?P<letter>.))",
    re.DOTALL,
)
_LETTERS = {
    "n": "\n",
    "t": "\t",
    "r": "\r",
    "a": "\a",
    "b": "\b",
    "e": "\x1b",
    "E": "\x1b",
    "f": "\f",
    "v": "\v",
}
_BRACE = re.compile(r"[{},]")
_CONVERSION = re.compile(r"%(?:%|[-+ #0-9.*']*[a-zA-Z])")


@dataclass(slots=True)
class Word:
    """A word without its quotes; `mask` holds one of BARE, QUOTED, POSITIONAL for each character."""

    text: str
    mask: str

    @property
    def is_bare(self) -> bool:
        return QUOTED not in self.mask and POSITIONAL not in self.mask


@dataclass(slots=True)
class Pieces:
    """A word in the making."""

    text: list[str] = field(default_factory=list)
    mask: list[str] = field(default_factory=list)

    def add(self, text: str, kind: str) -> None:
        self.text.append(text)
        self.mask.append(kind * len(text))

    def word(self) -> Word:
        return Word("".join(self.text), "".join(self.mask))


def decode_escapes(text: str) -> str:
    """`\\x72`, `\\162`, `\\u0072`, `\\n` … as `$'…'`, `echo -e` and `printf` read them."""
    return _ESCAPE.sub(_decode_one, text).replace("\0", "")


def _decode_one(match: re.Match[str]) -> str:
    for group, base in (("hex", 16), ("u4", 16), ("u8", 16), ("octal", 8)):
        if digits := match[group]:
            code = int(digits, base)
            return chr(code) if code <= 0x10FFFF else ""
    if control := match["control"]:
        return chr(ord(control) & 0x1F)
    letter = match["letter"] or ""
    return _LETTERS.get(letter, letter)


def has_too_many_braces(word: Word) -> bool:
    """More braces than an honest word has: `finish_word` leaves them as they are."""
    opening = word.text.find("{")
    return opening >= 0 and (word.text.count("{") > 64 or word.text.count(",", opening) > 512)


def finish_word(word: Word) -> list[Word]:
    """The words one written word becomes: positional parameters dropped, `$IFS` and braces expanded."""
    text, mask = word.text, word.mask
    if POSITIONAL in mask and (BARE in mask or QUOTED in mask):
        kept = [i for i, kind in enumerate(mask) if kind != POSITIONAL]
        text, mask = "".join(text[i] for i in kept), "".join(mask[i] for i in kept)
    words: list[Word] = []
    start = 0
    for part in text.split(SPLIT):
        piece = Word(part, mask[start : start + len(part)])
        start += len(part) + 1
        if part or SPLIT not in text:
            words.extend(_expand_braces(piece))
    return words


def _expand_braces(word: Word) -> list[Word]:
    if has_too_many_braces(word):
        return [word]
    done: list[Word] = []
    waiting = [word]
    while waiting and len(done) + len(waiting) <= MAX_BRACE_WORDS:
        current = waiting.pop()
        found = _first_brace(current)
        if found is None:
            done.append(current)
            continue
        opening, commas, closing = found
        cuts = [opening, *commas, closing]
        for left, right in reversed(list(pairwise(cuts))):
            waiting.append(
                Word(
                    current.text[:opening] + current.text[left + 1 : right] + current.text[closing + 1 :],
                    current.mask[:opening] + current.mask[left + 1 : right] + current.mask[closing + 1 :],
                )
            )
    return done + waiting[::-1]


def _first_brace(word: Word) -> tuple[int, list[int], int] | None:
    """The first complete unquoted `{a,b}`: where it opens, its own commas, where it closes."""
    open_braces: list[tuple[int, list[int]]] = []
    best: tuple[int, list[int], int] | None = None
    for match in _BRACE.finditer(word.text):
        index, char = match.start(), match[0]
        if word.mask[index] != BARE:
            continue
        if char == "{":
            open_braces.append((index, []))
        elif char == "," and open_braces:
            open_braces[-1][1].append(index)
        elif char == "}" and open_braces:
            opening, commas = open_braces.pop()
            if commas and (best is None or opening < best[0]):
                best = (opening, commas, index)
    return best


def printed_texts(program: str, arguments: tuple[str, ...]) -> tuple[str, ...]:
    """What `echo`, `yes` or `printf` may print, in each reading a shell might choose."""
    if program == "printf":
        return _printf_texts(arguments[1:] if arguments[:1] == ("--",) else arguments)
    start = 0
    while start < len(arguments) and re.fullmatch(r"-[neE]+", arguments[start]):
        start += 1
    plain = " ".join(arguments[start:])
    return tuple(dict.fromkeys((plain, decode_escapes(plain))))


def _printf_texts(arguments: tuple[str, ...]) -> tuple[str, ...]:
    if not arguments:
        return ()
    form, values = decode_escapes(arguments[0]), list(arguments[1:])
    printed: list[str] = []
    for _ in range(100):
        before = len(values)
        printed.append(_CONVERSION.sub(lambda match: _converted(match, values), form))
        if not values or len(values) == before:
            break
    text = "".join(printed)
    return tuple(dict.fromkeys((text, decode_escapes(text))))


def _converted(match: re.Match[str], values: list[str]) -> str:
    if match[0] == "%%":
        return "%"
    return values.pop(0) if values else ""
