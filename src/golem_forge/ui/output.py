"""Text to a stream that may be a pipe, a file or a terminal of any encoding. Flushed; never raises.

A reader that went away (`| head`) ends the writing, not the run.
"""

from __future__ import annotations

import re
from typing import Final, TextIO

from golem_forge.events.envelope import Event

_BEYOND_ASCII: Final = re.compile(r"[^\x20-\x7e]")


class Output:
    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self.gone = False
        """Nobody reads any more."""

    def write(self, text: str) -> None:
        if self.gone or not text:
            return
        try:
            self._stream.write(self._encodable(text))
            self._stream.flush()
        except (OSError, ValueError):  # closed at the other end, or at this one
            self.gone = True

    def _encodable(self, text: str) -> str:
        encoding = getattr(self._stream, "encoding", None) or "utf-8"
        try:
            text.encode(encoding)
        except UnicodeEncodeError:
            return text.encode(encoding, "backslashreplace").decode(encoding)
        return text


def json_line(event: Event) -> str:
    """An envelope on one line, in ASCII: no reader can take a character in it for the end of the line."""
    return _BEYOND_ASCII.sub(_escaped, event.to_json()) + "\n"


def _escaped(match: re.Match[str]) -> str:
    """Outside strings JSON is ASCII, so a character that is not stands in a string, where an escape is the same."""
    code = ord(match.group())
    if code < 0x10000:
        return f"\\u{code:04x}"
    code -= 0x10000
    return f"\\u{0xD800 + (code >> 10):04x}\\u{0xDC00 + (code & 0x3FF):04x}"
