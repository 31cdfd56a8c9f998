"""What the lenient reader builds: words without their quotes, and the statements of one list of commands (groups,
pipelines, functions) as `RawCommand`s.

Nothing here refuses anything. Malformed input is read as literally as possible; a bracket that does not fit is ignored,
and whatever stands in command position becomes a command.

`AnalysisReport` is what one whole analysis found besides commands. It holds the budget too. Threat: a text made to be
read for hours. Every read is paid from the budget first; an empty budget means `too_deep`.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections import Counter
from collections.abc import Container
from itertools import pairwise

from golem_forge.core.lazy_dataclass import dataclass, field
from golem_forge.core.regex import regex
from golem_forge.policy.shell.arguments import names

Span = tuple[int, int]  # a range of commands, by index
NOTHING: Span = (0, 0)

_RESERVED_SKIPPED = names("! then do else elif coproc nocorrect noglob always - --")
_OPENERS = {"if": "if", "while": "loop", "until": "loop", "for": "loop", "select": "loop", "foreach": "loop"}
_OPENERS |= {"case": "case", "{": "{"}
_CLOSERS = {"fi": "if", "done": "loop", "end": "loop", "esac": "case", "}": "{"}
_HEADERS = names("for select foreach case")
_ASSIGNMENT = regex(r"([A-Za-z_]\w*)(\[[^\]]*\])?\+?=")
_OWN_SCRIPT = frozenset((word,) for word in ("$0", "./$0", "$BASH_SOURCE"))
_MAX_FRAMES = 40  # past this the text is `too_deep` anyway, and looking for fork bombs would take long


@dataclass(frozen=True, slots=True)
class Redirect:
    """`operator` without its descriptor; `body` is what a heredoc or herestring feeds."""

    operator: str
    target: str
    body: str | None = None


@dataclass(slots=True)
class RawCommand:
    """A command as written. `fed` are the commands whose output it reads, `inner` those inside its words,
    `group` those of the group that this command's redirections belong to."""

    words: tuple[str, ...]
    assignments: tuple[tuple[str, str], ...]
    redirects: list[Redirect]
    inner: Span
    fed: Span
    group: Span = NOTHING
    background: bool = False


@dataclass(slots=True)
class _Frame:
    kind: str
    inherited: Span
    start: int
    pipe_start: int
    fed: Span
    function: str = ""


@dataclass(slots=True)
class _Draft:
    start: int
    words: list[str] = field(default_factory=list)
    assignments: list[tuple[str, str]] = field(default_factory=list)
    redirects: list[Redirect] = field(default_factory=list)
    sinks: list[Span] = field(default_factory=list)
    header: bool = False


class StatementBuilder:
    def __init__(self, raws: list[RawCommand], fed: Span) -> None:
        self.raws = raws
        self.frames = [_Frame("top", fed, len(raws), len(raws), fed)]
        self.kinds: Counter[str] = Counter()
        self.draft = _Draft(len(raws))
        self.function = ""  # a name was given, its body comes next
        self.function_next = False
        self.last_group = NOTHING
        self.fork_bomb = False

    @property
    def nesting(self) -> int:
        return len(self.frames) - 1

    @property
    def at_command(self) -> bool:
        return not self.draft.words

    def inside(self, kind: str) -> bool:
        return self.kinds[kind] > 0

    def add_word(self, word: ShellWord) -> None:
        text = word.text
        if word.is_bare and text == "{":
            self.open("{")
        elif self.at_command and word.is_bare and self.reserved(text):
            return
        elif self.at_command and self.function_next:
            self.function, self.function_next = text, False
        elif self.at_command and (match := _ASSIGNMENT.match(text)) and word.mask[: match.end()].strip("b") == "":
            self.draft.assignments.append((match[1], text[match.end() :]))
        else:
            self.draft.words.append(text)

    def reserved(self, text: str) -> bool:
        if text in _RESERVED_SKIPPED:
            return True
        if text == "function":
            self.function_next = True
            return True
        if text in _CLOSERS:
            self.finish()
            self.close(_CLOSERS[text])
            return True
        if text in _OPENERS:
            self.open(_OPENERS[text])
            if text in _HEADERS:
                self.draft.header = True
                self.draft.words.append(text)
            return True
        return False

    def open(self, kind: str) -> None:
        self.finish()
        top = self.frames[-1]
        here = len(self.raws)
        self.frames.append(_Frame(kind, top.fed, here, here, top.fed, self.function))
        self.kinds[kind] += 1
        self.function = ""

    def close(self, kind: str) -> None:
        if not self.inside(kind):
            return
        while True:
            frame = self.frames.pop()
            self.kinds[frame.kind] -= 1
            if frame.function and self.nesting < _MAX_FRAMES:
                self.check_self_starts(frame.start, {(frame.function,)})
            if frame.kind == kind:
                break
        self.last_group = (frame.start, len(self.raws))

    def open_paren(self, *, empty: bool) -> None:
        """`(`; `empty` when `)` follows at once, as in the head of a function."""
        draft = self.draft
        if empty and len(draft.words) <= 1:
            self.function = draft.words[0] if draft.words else self.function
            self.draft = _Draft(len(self.raws))
        else:
            self.open("(")

    def close_paren(self) -> None:
        if self.frames[-1].kind == "case":
            if self.draft.header or len(self.draft.words) <= 1:  # a pattern, not a command
                self.draft = _Draft(len(self.raws))
            self.end_statement()
        else:
            self.finish()
            self.close("(")

    def pipe(self) -> None:
        self.finish()
        top = self.frames[-1]
        start = top.inherited[0] if top.inherited != NOTHING else top.pipe_start
        top.fed = (start, len(self.raws))

    def end_statement(self, *, background: bool = False) -> None:
        self.finish()
        top = self.frames[-1]
        if background and self.nesting < _MAX_FRAMES:
            for raw in self.raws[top.pipe_start :]:
                raw.background = True
        top.pipe_start = len(self.raws)
        top.fed = top.inherited

    def finish(self) -> None:
        draft = self.draft
        if draft.header:
            draft.words.clear()
        if draft.words or draft.assignments or draft.redirects:
            top, index = self.frames[-1], len(self.raws)
            group = NOTHING if draft.words else self.last_group
            written = (tuple(draft.words), tuple(draft.assignments), draft.redirects)
            self.raws.append(RawCommand(*written, (draft.start, index), top.fed, group))
            start = top.fed[0] if top.fed != NOTHING else draft.start
            for first, last in draft.sinks:
                for raw in self.raws[first:last]:
                    if raw.fed == NOTHING:
                        raw.fed = (start, index + 1)
        self.last_group = NOTHING
        self.draft = _Draft(len(self.raws))

    def end(self) -> None:
        """The text is over: what is still open ends here."""
        self.end_statement()
        while len(self.frames) > 1:
            self.close(self.frames[-1].kind)
        self.check_self_starts(self.frames[0].start, _OWN_SCRIPT, at_least=2)

    def check_self_starts(self, start: int, own: Container[tuple[str, ...]], *, at_least: int = 1) -> None:
        """Detects a fork bomb in the commands from `start` on: one that starts itself in the background, or twice in
        one pipeline.
        """
        calls = [index for index in range(start, len(self.raws)) if self.raws[index].words[:1] in own]
        for index in calls if len(calls) >= at_least else ():
            first, end = self.raws[index].fed
            feeding = bisect_left(calls, min(end, index)) - bisect_left(calls, first)
            if self.raws[index].background or feeding > 0:
                self.fork_bomb = True
                return


BARE, QUOTED, POSITIONAL = "b", "q", "p"
SPLIT = "\0"  # stands where an unquoted `$IFS` ends a word; NUL itself never reaches a reader

MAX_BRACE_WORDS = 256

_ESCAPE = regex(
    r"\\(?:x(?P<hex>[0-9a-fA-F]{1,2})|u(?P<u4>[0-9a-fA-F]{1,4})|U(?P<u8>[0-9a-fA-F]{1,8})"
    r"|0?(?P<octal>[0-7]{1,3})|c(?P<control>.)|(?P<letter>.))",
    re.DOTALL,
)
_LETTERS = dict(zip("ntrabeEfv", "\n\t\r\a\b\x1b\x1b\f\v", strict=True))
_BRACE = regex(r"[{},]")
_CONVERSION = regex(r"%(?:%|[-+ #0-9.*']*[a-zA-Z])")


@dataclass(slots=True)
class ShellWord:
    """A word without its quotes; `mask` holds one of BARE, QUOTED, POSITIONAL for each character."""

    text: str
    mask: str

    @property
    def is_bare(self) -> bool:
        return QUOTED not in self.mask and POSITIONAL not in self.mask


@dataclass(slots=True)
class WordBuilder:
    """Collects the pieces of a word."""

    text: list[str] = field(default_factory=list)
    mask: list[str] = field(default_factory=list)

    def add(self, text: str, kind: str) -> None:
        self.text.append(text)
        self.mask.append(kind * len(text))

    def word(self) -> ShellWord:
        return ShellWord("".join(self.text), "".join(self.mask))


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


def has_too_many_braces(word: ShellWord) -> bool:
    """Whether the word has so many braces that `finish_word` does not expand them."""
    opening = word.text.find("{")
    return opening >= 0 and (word.text.count("{") > 64 or word.text.count(",", opening) > 512)


def finish_word(word: ShellWord) -> list[ShellWord]:
    """The words one written word becomes: positional parameters dropped, `$IFS` and braces expanded."""
    text, mask = word.text, word.mask
    if POSITIONAL in mask and (BARE in mask or QUOTED in mask):
        kept = [i for i, kind in enumerate(mask) if kind != POSITIONAL]
        text, mask = "".join(text[i] for i in kept), "".join(mask[i] for i in kept)
    words: list[ShellWord] = []
    start = 0
    for part in text.split(SPLIT):
        piece = ShellWord(part, mask[start : start + len(part)])
        start += len(part) + 1
        if part or SPLIT not in text:
            words.extend(_expand_braces(piece))
    return words


def _expand_braces(word: ShellWord) -> list[ShellWord]:
    if has_too_many_braces(word):
        return [word]
    done: list[ShellWord] = []
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
                ShellWord(
                    current.text[:opening] + current.text[left + 1 : right] + current.text[closing + 1 :],
                    current.mask[:opening] + current.mask[left + 1 : right] + current.mask[closing + 1 :],
                )
            )
    return done + waiting[::-1]


def _first_brace(word: ShellWord) -> tuple[int, list[int], int] | None:
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
    """Returns what `echo`, `yes` or `printf` may print, in each way that a shell may read it."""
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

    def converted(match: re.Match[str]) -> str:
        if match[0] == "%%":
            return "%"
        return values.pop(0) if values else ""

    for _ in range(100):
        before = len(values)
        printed.append(_CONVERSION.sub(converted, form))
        if not values or len(values) == before:
            break
    text = "".join(printed)
    return tuple(dict.fromkeys((text, decode_escapes(text))))


@dataclass(slots=True)
class AnalysisReport:
    budget: int  # how many characters may still be read
    too_deep: bool = False
    fork_bomb: bool = False
    certain: bool = True
    has_quoted_lines: bool = False  # were whole lines taken for text, in quotes or a heredoc?

    def spend(self, amount: int) -> bool:
        self.budget -= amount + 16
        if self.budget < 0:
            self.too_deep = True
        return self.budget >= 0
