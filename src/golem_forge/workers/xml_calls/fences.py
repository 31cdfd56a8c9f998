"""FenceTracker: whether a place in streamed Markdown lies in a fenced code block, where `<tool>` is only a quotation.

Takes text in pieces of any size, gives `quoted` for the place after them. A fence begins a line, at any indentation
(lists indent them), with three or more backticks or tildes, and ends with at least as many on a line of their own.
"""

from __future__ import annotations

from enum import Enum, auto

_BLANKS = " \t\r"


class _Line(Enum):
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
        self._line = _Line.START
        self._mark = ""
        self._run = 0

    @property
    def quoted(self) -> bool:
        return self._fence is not None or self._line is _Line.INFO or self._opens

    @property
    def _opens(self) -> bool:
        return self._line in (_Line.RUN, _Line.INFO) and self._fence is None and self._run >= 3

    @property
    def _closes(self) -> bool:
        enough = self._fence is not None and self._run >= self._fence[1]
        return enough and self._line in (_Line.RUN, _Line.CLOSING)

    def advance(self, text: str) -> None:
        first, *rest = text.split("\n")
        self._go_on(first)
        for part in rest:
            self._end_line()
            self._go_on(part)

    def interrupt_line(self) -> None:
        """A call stood here: what follows it on the line begins no fence."""
        self._line = _Line.OTHER

    def _end_line(self) -> None:
        if self._opens:
            self._fence = (self._mark, self._run)
        elif self._closes:
            self._fence = None
        self._line = _Line.START
        self._run = 0

    def _go_on(self, part: str) -> None:
        if self._line is _Line.START and (part := part.lstrip(_BLANKS)):
            marks = ("`", "~") if self._fence is None else (self._fence[0],)
            self._line = _Line.RUN if part[0] in marks else _Line.OTHER
            self._mark = part[0]
        if self._line is _Line.RUN:
            after = part.lstrip(self._mark)
            self._run += len(part) - len(after)
            part = after
            if part and self._fence is None:
                self._line = _Line.INFO if self._run >= 3 else _Line.OTHER
            elif part:
                self._line = _Line.CLOSING if self._closes else _Line.OTHER
        is_span = self._line is _Line.INFO and self._mark == "`" and "`" in part
        if is_span or (self._line is _Line.CLOSING and part.strip(_BLANKS)):
            self._line = _Line.OTHER
