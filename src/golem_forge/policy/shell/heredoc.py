"""Heredocs for the lenient reader: announced by `<<` in a command, their text comes after the line."""

from __future__ import annotations

import re
from dataclasses import dataclass

from .scope import Redirect

_DELIMITER = re.compile(r"(?:\\.|'[^']*'|\"[^\"]*\"|[^ \t\n\r;&|<>()\\'\"])+", re.DOTALL)


@dataclass(slots=True)
class Heredoc:
    """One announced heredoc; `redirects` are its command's, and the entry at `place` gets the text."""

    redirects: list[Redirect]
    place: int
    written: str
    strip_tabs: bool

    @classmethod
    def announced(cls, operator: str, redirects: list[Redirect], text: str, position: int) -> Heredoc:
        match = _DELIMITER.match(text, position)
        heredoc = cls(redirects, len(redirects), match[0] if match else "", operator == "<<-")
        redirects.append(Redirect(operator, heredoc.ending))
        return heredoc

    @property
    def ending(self) -> str:
        return re.sub(r"[\\'\"]", "", self.written)

    @property
    def expands(self) -> bool:
        """Substitutions in the text are run unless any part of the ending was quoted."""
        return self.written == self.ending

    def take_body(self, text: str, position: int) -> tuple[str, int, bool]:
        """The text from `position` on, where it stops, and whether its ending was found."""
        endings = {self.ending, self.ending.removeprefix("$")}  # `<<$'E'`: shells disagree
        lines: list[str] = []
        ended = False
        while position < len(text) and not ended:
            newline = text.find("\n", position)
            end = newline if newline >= 0 else len(text)
            line = text[position:end].rstrip("\r")
            shown = line.lstrip("\t") if self.strip_tabs else line
            if shown in endings:
                position, ended = min(end + 1, len(text)), True
            elif any(word and re.match(re.escape(word) + r"\s*\)", shown) for word in endings):
                position, ended = position + line.index(")"), True  # `$(cat <<E … E)`: the bracket still counts
            else:
                lines.append(shown)
                position = end + 1
        body = "\n".join(lines)
        self.redirects[self.place] = Redirect(self.redirects[self.place].operator, self.ending, body)
        return body, min(position, len(text)), ended
