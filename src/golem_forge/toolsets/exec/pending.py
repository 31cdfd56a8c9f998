"""PendingInput: what was typed into a terminal and not yet submitted, because a line is judged whole.

A newline or carriage return submits. Threat: a dangerous line sent in pieces, or after an interrupt that the program
may or may not have obeyed; so every possible reading of the line is judged.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

_SUBMITS: Final = re.compile(r"[\r\n]")
_CONTROL: Final = re.compile(r"[\x00-\x09\x0b\x0c\x0e-\x1f\x7f-\x9f]")
INTERRUPTS: Final = frozenset({"\x03", "\x04"})
"""Ctrl-C and Ctrl-D, alone."""
MOST_PENDING: Final = 64 * 1024


@dataclass(frozen=True, slots=True)
class Judged:
    """What new characters would make of the line."""

    line: str
    """Everything not yet submitted, and what is new."""
    readings: tuple[str, ...]
    """Each text that a program may take it for; more than one after an interrupt."""
    opaque: bool
    """It holds control characters that edit the line, or begins in a place that is not known."""


class PendingInput:
    def __init__(self) -> None:
        self.text = ""
        self._since_interrupt: str | None = None
        """What was typed after the last interrupt; None: there was none since the last submitted line."""

    def with_new(self, chars: str) -> Judged:
        line = self.text + chars
        if self._since_interrupt is None:
            return Judged(line, (line,), _CONTROL.search(line) is not None)
        return Judged(line, (line, self._since_interrupt + chars), True)

    def delivered(self, chars: str) -> None:
        """The characters reached the program."""
        if chars in INTERRUPTS:
            if self.text:
                self._since_interrupt = ""
            return
        parts = _SUBMITS.split(chars)
        if len(parts) > 1:
            self.text, self._since_interrupt = parts[-1], None
            return
        self.text += chars
        if self._since_interrupt is not None:
            self._since_interrupt += chars
