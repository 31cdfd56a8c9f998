"""Heredocs for the lenient reader: announced by `<<` in a command, their text comes after the line.

An ending that is misread either runs data as commands or, worse, hides commands as data. So the rules are the
shell's own, and whatever shells read differently makes the heredoc not `certain`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from .scope import Redirect

_DELIMITER = re.compile(
    r"(?:\\.|'[^']*'|\"(?:[^\"\\]|\\.)*\"|\$\([^)\n]*\)|`[^`\n]*`|[^ \t\n;&|<>()\\'\"])+", re.DOTALL
)
_PLAIN = re.compile(r"\\?[\w.!%+-]+|'[\w.!%+ -]+'|\"[\w.!%+ -]+\"")
_QUOTED_PART = re.compile(r"\\(.)|'([^']*)'|\"((?:[^\"\\]|\\.)*)\"", re.DOTALL)


@dataclass(slots=True)
class Heredoc:
    """One announced heredoc; `redirects` are its command's, and the entry at `place` gets the text."""

    redirects: list[Redirect]
    place: int
    written: str
    strip_tabs: bool
    certain: bool = True

    @classmethod
    def announced(cls, operator: str, redirects: list[Redirect], text: str, position: int) -> Heredoc:
        match = _DELIMITER.match(text, position)
        written = match[0] if match else ""
        heredoc = cls(redirects, len(redirects), written, operator == "<<-", bool(_PLAIN.fullmatch(written)))
        redirects.append(Redirect(operator, heredoc.ending))
        return heredoc

    @property
    def ending(self) -> str:
        def unquoted(part: re.Match[str]) -> str:
            if part[3] is not None:
                return re.sub(r"\\([$`\"\\])", r"\1", part[3])
            return (part[1] or "") + (part[2] or "")

        return _QUOTED_PART.sub(unquoted, self.written)

    @property
    def expands(self) -> bool:
        """Substitutions in the text are run unless any part of the ending was quoted."""
        return not re.search(r"[\\'\"]", self.written)

    def take_body(self, text: str, position: int, *, in_brackets: bool) -> tuple[str, int, bool]:
        """The text from `position` on, where it stops, and whether its ending was found."""
        endings = {self.ending, self.ending.removeprefix("$")}  # `<<$'E'`: shells disagree
        lines: list[str] = []
        ended = continued = False
        while position < len(text) and not ended:
            newline = text.find("\n", position)
            end = newline if newline >= 0 else len(text)
            line = text[position:end]
            shown = line.lstrip("\t") if self.strip_tabs else line
            if shown in endings and not continued:
                position, ended = min(end + 1, len(text)), True
            elif in_brackets and any(word and re.match(re.escape(word) + r"\s*\)", shown) for word in endings):
                # `$(cat <<E … E)`: the bracket still counts
                position, ended, self.certain = position + line.index(")"), True, False
            else:
                lines.append(shown)
                position = end + 1
                # A backslash joins the next line to this one, so that line cannot be the ending.
                continued = self.expands and (len(line) - len(line.rstrip("\\"))) % 2 == 1
                self.certain = self.certain and not continued
        body = "\n".join(lines)
        self.redirects[self.place] = Redirect(self.redirects[self.place].operator, self.ending, body)
        return body, min(position, len(text)), ended
