"""The grammar of one XML call, read as it arrives, and where in Markdown a tag is only quoted.

CallScanner takes text in pieces of any size, from behind `<tool>` to `</tool>`, and builds a tree of Elements or a
`problem`. It is lenient where nothing else can be meant (a bare `&`, a `<` that begins no tag); attributes, comments,
DTDs, processing instructions and tags that do not match are refused, and then only the end of the call is looked for.
Time is linear; bytes, elements and levels are bounded.

FenceTracker says whether a position in streamed Markdown lies in a fenced code block. A fence begins a line, at any
indentation, with three or more backticks or tildes, and ends with at least as many on a line of their own.
"""

from __future__ import annotations

import re
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
BLANKS: Final = " \t\r\n"

_CDATA: Final = "<![CDATA["
_NAME: Final = r"[^\W\d][\w.:-]{0,127}"
_TAG: Final = regex(rf"<(/?)({_NAME})[ \t\r\n]{{0,100}}(/?)>")
_TAG_SO_FAR: Final = regex(rf"</?(?:{_NAME}(?:[ \t\r\n]{{0,100}}/?)?)?\Z")
_STARTS_TAG: Final = regex(r"[^\W\d]|[/!?]")
_REFERENCE: Final = regex(r"&(?:(amp|lt|gt|quot|apos)|#([0-9]{1,7})|#[xX]([0-9a-fA-F]{1,6}));")
_NAMED_REFERENCES: Final = {"amp": "&", "lt": "<", "gt": ">", "quot": '"', "apos": "'"}
ELEMENT_NAME: Final = regex(_NAME)


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
        """No text of its own besides blanks between its children."""
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
        self._elements = 1
        self._bytes = len("<tool>")
        self._written = ["<tool>"]

    def feed(self, data: str, at: int) -> int:
        """Reads on from `at`; gives where it stopped: behind the call, or before an unfinished tag."""
        start = at
        while at < len(data) and not self.done:
            after = self._cdata(data, at) if self._in_cdata else self._markup(data, at)
            if after == at:
                break
            at = after
        self._keep(data[start:at])
        return at

    def close(self, rest: str) -> None:
        """The stream ended inside the call; `rest` is what was held back."""
        self._keep(rest)
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
        if not self.problem and self._open[-1].name != name:
            self._refuse(f"</{name}> where </{self._open[-1].name}> was expected")
        self._open_tools -= name == TOOL
        if self.problem:
            self.done = self._open_tools <= 0
        else:
            self._open.pop()
            self.done = not self._open

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


_LINE_BLANKS = " \t\r"


class _LineState(Enum):
    START = auto()
    """Nothing but blanks so far."""
    RUN = auto()
    """In the backticks or tildes that begin the line."""
    INFO = auto()
    """Behind a run that opens a fence unless a further backtick makes it a code span."""
    CLOSING = auto()
    """Behind a run that closes the fence if nothing else is on the line."""
    OTHER = auto()


class FenceTracker:
    def __init__(self) -> None:
        self._fence: tuple[str, int] | None = None
        self._line = _LineState.START
        self._mark = ""
        self._run = 0

    @property
    def quoted(self) -> bool:
        return self._fence is not None or self._line is _LineState.INFO or self._opens

    @property
    def _opens(self) -> bool:
        return self._line in (_LineState.RUN, _LineState.INFO) and self._fence is None and self._run >= 3

    @property
    def _closes(self) -> bool:
        enough = self._fence is not None and self._run >= self._fence[1]
        return enough and self._line in (_LineState.RUN, _LineState.CLOSING)

    def advance(self, text: str) -> None:
        first, *rest = text.split("\n")
        self._go_on(first)
        for part in rest:
            self._end_line()
            self._go_on(part)

    def interrupt_line(self) -> None:
        """A call stood here: what follows it on the line begins no fence."""
        self._line = _LineState.OTHER

    def _end_line(self) -> None:
        if self._opens:
            self._fence = (self._mark, self._run)
        elif self._closes:
            self._fence = None
        self._line = _LineState.START
        self._run = 0

    def _go_on(self, part: str) -> None:
        if self._line is _LineState.START and (part := part.lstrip(_LINE_BLANKS)):
            marks = ("`", "~") if self._fence is None else (self._fence[0],)
            self._line = _LineState.RUN if part[0] in marks else _LineState.OTHER
            self._mark = part[0]
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
