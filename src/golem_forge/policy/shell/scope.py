"""The statements of one list of commands while it is read: groups, pipelines, functions.

It turns words, operators and brackets, in the order the reader meets them, into `RawCommand`s. It keeps no
grammar: a bracket that does not fit is ignored, and whatever stands in command position becomes a command.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections import Counter
from dataclasses import dataclass, field

from .names import names
from .quoting import Word

Span = tuple[int, int]  # a range of commands, by index
NOTHING: Span = (0, 0)

_SKIPPED = names("! then do else elif coproc nocorrect noglob always - --")
_OPENERS = {"if": "if", "while": "loop", "until": "loop", "for": "loop", "select": "loop", "foreach": "loop"}
_OPENERS |= {"case": "case", "{": "{"}
_CLOSERS = {"fi": "if", "done": "loop", "end": "loop", "esac": "case", "}": "{"}
_HEADERS = names("for select foreach case")
_ASSIGNMENT = re.compile(r"([A-Za-z_]\w*)(\[[^\]]*\])?\+?=")
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


class Scope:
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

    def add_word(self, word: Word) -> None:
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
        if text in _SKIPPED:
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
                self.check_fork_bomb(frame)
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
            self.raws.append(
                RawCommand(
                    tuple(draft.words),
                    tuple(draft.assignments),
                    draft.redirects,
                    (draft.start, index),
                    top.fed,
                    group,
                )
            )
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
        own = [i for i in range(self.frames[0].start, len(self.raws)) if self.raws[i].words[:1] in _OWN_SCRIPT]
        if len(own) > 1:
            self.check_self_starts(own)

    def check_fork_bomb(self, frame: _Frame) -> None:
        own = (frame.function,)
        self.check_self_starts([i for i in range(frame.start, len(self.raws)) if self.raws[i].words[:1] == own])

    def check_self_starts(self, calls: list[int]) -> None:
        """Something that starts itself in the background, or twice in one pipeline."""
        for index in calls:
            start, end = self.raws[index].fed
            feeding = bisect_left(calls, min(end, index)) - bisect_left(calls, start)
            if self.raws[index].background or feeding > 0:
                self.fork_bomb = True
                return
