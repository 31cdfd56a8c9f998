"""PendingInput: what was typed into a terminal and not yet submitted, because a line is judged whole.

A newline or carriage return submits, unless a shell would go on reading the same command on the next line. Threat: a
dangerous line sent in pieces, over several lines, or after an interrupt that the program may or may not have obeyed;
so every possible reading of the line is judged.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from golem_forge.toolsets.exec.unfinished import is_unfinished

_SUBMITS: Final = re.compile(r"[\r\n]")
_CONTROL: Final = re.compile(r"[\x00-\x09\x0b\x0c\x0e-\x1f\x7f-\x9f]")
_HISTORY: Final = re.compile(r"!(?![\s=('\"]|\Z)|^[ ]*\^", re.MULTILINE)
_LITERAL: Final = re.compile(r"'[^'\n]*'")
"""`!!`, `!rm`, `^old^new`: a shell puts an earlier line in their place."""
INTERRUPTS: Final = frozenset({"\x03", "\x04"})
"""Ctrl-C and Ctrl-D, alone."""
MOST_PENDING: Final = 64 * 1024
_MOST_LINES: Final = 16
_MOST_UNFINISHED: Final = 16 * 1024
"""Lines and characters that are taken as one unfinished command. Whatever reads them need not be a shell, so there is
an end to it: the next line is asked about, and then it counts as submitted."""


@dataclass(frozen=True, slots=True)
class Judged:
    """What new characters would make of the line."""

    line: str
    """Everything not yet submitted, and what is new."""
    readings: tuple[str, ...]
    """Each text that a program may take it for; more than one after an interrupt, or if it began on an earlier line."""
    opaque: bool
    """What it stands for is not known: it holds control characters that edit the line, names an earlier line, or begins
    in a place that is not known."""


class PendingInput:
    def __init__(self) -> None:
        self.text = ""
        """May hold lines that were sent, if the command they begin is not finished."""
        self._since_interrupt: str | None = None
        """What was typed after the last interrupt; None: there was none since the last submitted line."""

    def with_new(self, chars: str) -> Judged:
        line = self.text + chars
        outside_quotes = _LITERAL.sub("''", line.replace("\r", "\n"))
        opaque = _CONTROL.search(line) is not None or _HISTORY.search(outside_quotes) is not None
        starts = [match.end() for match in _SUBMITS.finditer(self.text)]
        readings = [line, *(line[start:] for start in starts[-_MOST_LINES:])]
        if self._since_interrupt is not None:
            readings.append(self._since_interrupt + chars)
        unknown = self._since_interrupt is not None or self._goes_on_too_long()
        return Judged(line, tuple(dict.fromkeys(readings)), opaque or unknown)

    def delivered(self, chars: str) -> None:
        """The characters reached the program."""
        if chars in INTERRUPTS:
            if self.text:
                self._since_interrupt = ""
            return
        if self._since_interrupt is not None:
            self._since_interrupt += chars
        too_long = self._goes_on_too_long()
        self.text += chars
        ends = [match.start() for match in _SUBMITS.finditer(self.text)]
        begins = 0
        for end in ends[-2 * _MOST_LINES :]:
            if not is_unfinished(self.text[begins:end].replace("\r", "\n")):
                begins = end + 1
        if too_long and ends:  # given up as one command; a last line that goes on is the beginning of another
            last = ends[-2] + 1 if len(ends) > 1 else 0
            begins = last if is_unfinished(self.text[last : ends[-1]].replace("\r", "\n")) else ends[-1] + 1
        if begins:
            self.text, self._since_interrupt = self.text[begins:], None

    def _goes_on_too_long(self) -> bool:
        lines = len(_SUBMITS.findall(self.text))
        return lines >= _MOST_LINES or (lines > 0 and len(self.text) > _MOST_UNFINISHED)
