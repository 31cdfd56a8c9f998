"""The grammar of one XML call, read as it arrives, and where in Markdown a tag is only quoted.

CallScanner takes text in pieces of any size, from behind `<tool>` to `</tool>`, and builds a tree of Elements or a
`problem`. It is lenient where nothing else can be meant: a bare `&`, a `<` that begins no tag, and a name without its
own tags, or with half of them, as small models write it: `<tool>read_file</tool_name>…`. Attributes, comments, DTDs,
processing instructions and tags that do not match are refused, and then only the end of the call is looked for.
Time is linear; bytes, elements and levels are bounded.

CodeTracker says whether a position in streamed Markdown is code. A fence begins a line, at any indentation, in block
quotes and list items too, with three or more backticks or tildes, and ends with at least as many on a line of their
own, or with its block quote. A code span is text between two runs of as many backticks in one paragraph.
"""

from __future__ import annotations

import re
from copy import copy
from enum import Enum, auto
from typing import Final

from golem_forge.core.lazy_dataclass import dataclass, field
from golem_forge.core.regex import regex
from golem_forge.core.text import shorten

MAX_CALL_BYTES: Final = 10 * 1024 * 1024
MAX_LEVELS: Final = 64
MAX_ELEMENTS: Final = 100_000
MAX_SHOWN: Final = 200
TOOL: Final = "tool"
TOOL_NAME: Final = "tool_name"
ARGUMENTS: Final = "arguments"
BLANKS: Final = " \t\r\n"

_CDATA: Final = "<![CDATA["
_NAME: Final = r"[^\W\d][\w.:-]{0,127}"
_TAG: Final = regex(rf"<(/?)({_NAME})[ \t\r\n]{{0,100}}(/?)>")
_TAG_SO_FAR: Final = regex(rf"</?(?:{_NAME}(?:[ \t\r\n]{{0,100}}/?)?)?\Z")
_STARTS_TAG: Final = regex(r"[^\W\d]|[/!?]")
_REFERENCE: Final = regex(r"&(?:(amp|lt|gt|quot|apos)|#([0-9]{1,7})|#[xX]([0-9a-fA-F]{1,6}));")
_NAMED_REFERENCES: Final = {"amp": "&", "lt": "<", "gt": ">", "quot": '"', "apos": "'"}
ELEMENT_NAME: Final = regex(_NAME)
_BARE_NAME: Final = regex(r"[\w.:-]{1,128}")
_ARGUMENTS_TAG: Final = f"<{ARGUMENTS}>"


@dataclass(slots=True)
class TextRun:
    """A stretch of text, in the pieces it arrived in."""

    cdata: bool
    pieces: list[str] = field(default_factory=list)

    def text(self) -> str:
        return "".join(self.pieces)


@dataclass(slots=True, eq=False)
class Element:
    name: str
    children: list[Element] = field(default_factory=list)
    runs: list[TextRun] = field(default_factory=list)

    @property
    def has_cdata(self) -> bool:
        return any(run.cdata for run in self.runs)

    def text(self) -> str:
        """Plain text stripped at both ends and its references decoded; CDATA exact."""
        last = len(self.runs) - 1
        parts = []
        for index, run in enumerate(self.runs):
            text = run.text()
            if not run.cdata:
                text = text.lstrip(BLANKS) if index == 0 else text
                text = decode_references(text.rstrip(BLANKS) if index == last else text)
            parts.append(text)
        return "".join(parts)

    def is_blank(self) -> bool:
        """Whether it has no text besides blanks between its children."""
        return not any(run.cdata or run.text().strip(BLANKS) for run in self.runs)


def decode_references(text: str) -> str:
    """The five named and the numeric references; any other `&` is itself."""
    return _REFERENCE.sub(_referenced, text) if "&" in text else text


def _referenced(match: re.Match[str]) -> str:
    name, decimal, hexadecimal = match.groups()
    if name:
        return _NAMED_REFERENCES[name]
    code = int(decimal) if decimal else int(hexadecimal, 16)
    is_text = code in (9, 10, 13) or 0x20 <= code < 0xD800 or 0xE000 <= code <= 0x10FFFF
    return chr(code) if is_text else match.group()


def shorten_problem(text: str) -> str:
    return shorten(text, MAX_SHOWN)


class CallScanner:
    """Give it the text behind `<tool>` until it is `done`."""

    def __init__(self) -> None:
        self.root = Element(TOOL)
        self.problem = ""
        self.done = False
        self._open = [self.root]
        self._open_tools = 1
        self._in_cdata = False
        self._named = False
        """`</tool>` stood where the name ended: the arguments may follow."""
        self._elements = 1
        self._bytes = len("<tool>")
        self._written = ["<tool>"]

    def feed(self, data: str, at: int) -> int:
        """Reads on from `at`; gives where it stopped: behind the call, or before an unfinished tag."""
        start = at
        while at < len(data) and not self.done:
            if self._named and (after := self._behind_name(data, at)) >= 0:
                if after == at:
                    break
                at = after
                continue
            after = self._cdata(data, at) if self._in_cdata else self._markup(data, at)
            if after == at:
                break
            at = after
        self._keep(data[start:at])
        return at

    def close(self, rest: str) -> None:
        """The stream ended inside the call; `rest` is what was held back."""
        self._keep(rest)
        if self._named and not rest:
            self.done = True
            return
        self._refuse(f"tool call without </tool>: {''.join(self._written)[:MAX_SHOWN]}")

    def written(self) -> str:
        """The call as the model wrote it; one over the limit only by its beginning."""
        text = "".join(self._written)
        return f"{shorten_problem(text)} [{self.problem}]" if self._is_too_large() else text

    def _is_too_large(self) -> bool:
        return self._bytes > MAX_CALL_BYTES

    def _keep(self, text: str) -> None:
        self._written.append(text[: MAX_SHOWN + 1] if self._is_too_large() else text)
        if self._is_too_large():
            self._written = ["".join(self._written)[: MAX_SHOWN + 1]]

    def _behind_name(self, data: str, at: int) -> int:
        """Where to go on behind `<tool>name</tool>`; -1: the arguments begin here. Anything else ends the call."""
        rest = data[at : at + len(_ARGUMENTS_TAG)]
        if rest[0] in BLANKS:
            return at + 1
        if rest == _ARGUMENTS_TAG:
            self._named = False
            return -1
        self.done = not _ARGUMENTS_TAG.startswith(rest)
        return at

    def _cdata(self, data: str, at: int) -> int:
        end = data.find("]]>", at)
        if end >= 0:
            self._text(data[at:end])
            self._count("]]>")
            self._in_cdata = False
            return end + 3
        tail = data[max(at, len(data) - 2) :]
        held = 2 if tail == "]]" else 1 if tail.endswith("]") else 0
        self._text(data[at : len(data) - held])
        return len(data) - held

    def _markup(self, data: str, at: int) -> int:
        start = data.find("<", at)
        if start != at:
            end = len(data) if start < 0 else start
            self._text(data[at:end])
            return end
        if at + 1 == len(data):
            return at
        if not _STARTS_TAG.match(data, at + 1):
            self._text("<")
            return at + 1
        return self._special(data, at) if data[at + 1] in "!?" else self._tag(data, at)

    def _special(self, data: str, at: int) -> int:
        if data.startswith(_CDATA, at):
            self._count(_CDATA)
            self._in_cdata = True
            if not self.problem:
                self._open[-1].runs.append(TextRun(cdata=True))
            return at + len(_CDATA)
        if _CDATA.startswith(data[at : at + len(_CDATA)]):
            return at
        what = "processing instructions" if data[at + 1] == "?" else "comments, DTDs and entities"
        self._refuse(f"{what} are not read in a tool call; write text that holds {data[at : at + 2]} in CDATA")
        self._count(data[at : at + 2])
        return at + 2

    def _tag(self, data: str, at: int) -> int:
        match = _TAG.match(data, at)
        if match is None:
            if _TAG_SO_FAR.match(data, at):
                return at
            self._refuse("a < that begins no plain tag; tags have no attributes, and text that holds < goes in CDATA")
            self._count("<")
            return at + 1
        closing, name, empty = match.groups()
        if closing and empty:
            self._refuse(f"</{name}/> is no tag")
        elif closing:
            self._end(name)
        else:
            self._begin(name)
            if empty:
                self._end(name)
        self._count(match.group())
        return match.end()

    def _begin(self, name: str) -> None:
        self._elements += 1
        self._open_tools += name == TOOL
        if self.problem:
            return
        if len(self._open) >= MAX_LEVELS:
            self._refuse(f"tool call nested more than {MAX_LEVELS} levels deep")
        elif self._elements > MAX_ELEMENTS:
            self._refuse(f"tool call of more than {MAX_ELEMENTS} elements")
        else:
            element = Element(name)
            self._open[-1].children.append(element)
            self._open.append(element)

    def _end(self, name: str) -> None:
        if name in (TOOL, TOOL_NAME) and self._takes_bare_name():
            self._named = name == TOOL
            return
        if not self.problem and self._open[-1].name != name:
            self._refuse(f"</{name}> where </{self._open[-1].name}> was expected")
        self._open_tools -= name == TOOL
        if self.problem:
            self.done = self._open_tools <= 0
        else:
            self._open.pop()
            self.done = not self._open

    def _takes_bare_name(self) -> bool:
        """Whether all that the call holds so far is a name without tags of its own, which then gets them."""
        root = self.root
        if self.problem or self._open != [root] or root.children or not _BARE_NAME.fullmatch(root.text()):
            return False
        root.children, root.runs = [Element(TOOL_NAME, runs=root.runs)], []
        return True

    def _text(self, text: str) -> None:
        self._count(text)
        if self.problem or not text:
            return
        runs = self._open[-1].runs
        if not runs or (runs[-1].cdata and not self._in_cdata):
            runs.append(TextRun(cdata=False))
        runs[-1].pieces.append(text)

    def _count(self, text: str) -> None:
        if self._is_too_large():
            return
        self._bytes += len(text) if text.isascii() else len(text.encode("utf-8", "surrogatepass"))
        if self._is_too_large():
            self._refuse("tool call over 10 MiB")

    def _refuse(self, problem: str) -> None:
        """The first problem is the one to tell; of what was read so far only the name is still of use."""
        if not self.problem:
            self.problem = shorten_problem(problem)
            self.root = Element(TOOL, [e for e in self.root.children if e.name == TOOL_NAME and e not in self._open])
            self._open = []


_LINE_BLANKS: Final = " \t\r"
_DIGITS: Final = "0123456789"


class _LineState(Enum):
    START = auto()
    """Only blanks so far."""
    RUN = auto()
    """In the backticks or tildes that begin the line."""
    INFO = auto()
    """Behind a run that opens a fence unless a further backtick makes it a code span."""
    CLOSING = auto()
    """Behind a run that closes the fence if nothing else is on the line."""
    OTHER = auto()


_LIST_MARKS: Final = "-*+"
_LONGEST_NUMBER: Final = 9
_INLINE_MARK: Final = regex(r"[`\\]")
_TICKS: Final = regex(r"`+")


class CodeTracker:
    """Tracks where streamed Markdown is code. Call `settle` first if what follows is known to be no backtick."""

    def __init__(self) -> None:
        self._fence: tuple[str, int, int] | None = None
        """Its mark, how many of them, and in how many block quotes it stands."""
        self._line = _LineState.START
        self._quotes = 0
        self._quotes_before = 0
        self._item = ""
        """The beginning of a list marker: `1`, `1.` or `-`."""
        self._mark = ""
        self._run = 0
        self._openers: list[int] = []
        """Runs of backticks in this paragraph that begin a code span if one of the same length follows, by length. If
        it follows, what stands after that opener was inside."""
        self._ticks = 0
        self._escaped = False
        self._watched: tuple[int, ...] = ()
        self.verdict: bool | None = None
        """After `watch`: whether the place where it was called is code; None while that is open."""

    @property
    def quoted(self) -> bool:
        """Whether the position is certainly in a fence."""
        inside = self._fence is not None and not (self._line is _LineState.START and self._leaves_quote)
        return inside or self._line is _LineState.INFO or self._opens

    @property
    def in_doubt(self) -> bool:
        """Whether the position is in a code span, if that is closed before the paragraph ends."""
        return bool(self._openers)

    def watch(self) -> None:
        self._watched, self.verdict = tuple(self._openers), None

    def watch_nothing(self) -> None:
        self._watched, self.verdict = (), None

    def without_openers(self) -> CodeTracker:
        """Returns a copy for the case that the open backticks were ordinary text."""
        other = copy(self)
        other._openers = []
        return other

    @property
    def _opens(self) -> bool:
        return self._line in (_LineState.RUN, _LineState.INFO) and self._fence is None and self._run >= 3

    @property
    def _closes(self) -> bool:
        enough = self._fence is not None and self._run >= self._fence[1]
        return enough and self._line in (_LineState.RUN, _LineState.CLOSING)

    @property
    def _leaves_quote(self) -> bool:
        return self._fence is not None and self._quotes < self._fence[2]

    def advance(self, text: str) -> None:
        first, *rest = text.split("\n")
        self._go_on(first)
        for part in rest:
            self._end_line()
            self._go_on(part)

    def interrupt_line(self) -> None:
        """A call stood here: what follows it on the line begins no fence."""
        self._line = _LineState.OTHER
        self._ticks, self._escaped = 0, False

    def settle(self) -> None:
        """A run of backticks, if there is one, has ended."""
        run, self._ticks = self._ticks, 0
        if not run:
            return
        if run in self._openers:
            del self._openers[self._openers.index(run) :]
        else:
            self._openers.append(run)
        if run in self._watched and self.verdict is None:
            self.verdict = True

    def _end_paragraph(self) -> None:
        self._openers, self._ticks, self._escaped = [], 0, False
        if self._watched and self.verdict is None:
            self.verdict = False

    def _end_line(self) -> None:
        self.settle()
        self._escaped = False
        if self._opens:
            self._fence = (self._mark, self._run, self._quotes)
            self._end_paragraph()
        elif self._closes or (self._line is _LineState.START and self._leaves_quote):
            self._fence = None
        elif self._line is _LineState.START:  # a blank line
            self._end_paragraph()
        self._line = _LineState.START
        self._quotes_before, self._quotes = self._quotes, 0
        self._item = ""
        self._run = 0

    def _go_on(self, part: str) -> None:
        text = part
        if self._line is _LineState.START:
            part = part[self._containers(part) :]
        if self._line is _LineState.RUN:
            after = part.lstrip(self._mark)
            self._run += len(part) - len(after)
            part = after
            if part and self._fence is None:
                self._line = _LineState.INFO if self._run >= 3 else _LineState.OTHER
            elif part:
                self._line = _LineState.CLOSING if self._closes else _LineState.OTHER
        is_span = self._line is _LineState.INFO and self._mark == "`" and "`" in part
        if is_span or (self._line is _LineState.CLOSING and part.strip(_LINE_BLANKS)):
            self._line = _LineState.OTHER
        if self._fence is None:
            self._spans(text)

    def _containers(self, part: str) -> int:
        """Reads block quotes and list items at the beginning of a line; gives where its own text begins."""
        for at, character in enumerate(part):
            if self._item:
                if not self._item_goes_on(character):
                    self._line = _LineState.OTHER
                    return at
            elif character in _LINE_BLANKS:
                continue
            elif character == ">" and (self._fence is None or self._leaves_quote):
                self._quotes += 1
            else:
                if self._leaves_quote:
                    self._fence = None
                if self._quotes > self._quotes_before:
                    self._end_paragraph()
                if self._fence is None and (character in _LIST_MARKS or character in _DIGITS):
                    self._item = character
                    continue
                self._line = _LineState.RUN if character in self._marks else _LineState.OTHER
                self._mark = character
                return at
        return len(part)

    @property
    def _marks(self) -> str:
        return "`~" if self._fence is None else self._fence[0]

    def _item_goes_on(self, character: str) -> bool:
        last = self._item[-1]
        if last in _DIGITS:
            self._item += character
            return character in ".)" or (character in _DIGITS and len(self._item) <= _LONGEST_NUMBER)
        if character in _LINE_BLANKS:
            self._item = ""
            self._end_paragraph()
            return True
        return False

    def _spans(self, part: str) -> None:
        at = 0
        while at < len(part):
            if part[at] == "`" and not self._escaped:
                run = _TICKS.match(part, at)
                assert run is not None
                self._ticks += run.end() - at
                at = run.end()
                continue
            self.settle()
            if self._escaped:
                self._escaped = False
                at += 1
                continue
            found = _INLINE_MARK.search(part, at)
            if found is None:
                return
            at = found.start()
            if part[at] == "\\":
                self._escaped = not self._openers  # a backslash is itself in code
                at += 1
