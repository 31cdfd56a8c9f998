"""Layout: puts the pieces of a page on lines. Knows of paragraphs, indents and links, and nothing of HTML.

Text is collected until something ends the line; then the line gets what stands before it (a list's marker, quotation
marks, a heading's `#`) and a link's text its address. Links are absolute; other schemes than http, https and mailto
leave only their text.
"""

from __future__ import annotations

import re
from typing import Final

_BLANKS: Final = re.compile(r"[ \t\n\r\f\v]+")
_MOST_DEPTH: Final = 8
_LONGEST_URL: Final = 2000
_SCHEMES: Final = ("http://", "https://", "mailto:")


class Layout:
    def __init__(self, url: str) -> None:
        self._base = url
        self._lines: list[str] = []
        self._pieces: list[str] = []
        """Of the line that is being written."""
        self._gap = False
        """An empty line is due before the next one."""
        self._prefix = ""
        """A heading's marks or a list's marker, for the next line alone."""
        self._lists: list[int] = []
        """For each open list the number of its next item; 0: bullets."""
        self._quotations = 0
        self._preformatted = 0
        self._url = ""
        self._link_from = 0
        """Which of the pieces begin the open link's text."""
        self._cells = 0

    # What the page says

    def text(self, data: str) -> None:
        if self._preformatted:
            self._pieces.append(data.replace("\r\n", "\n").replace("\r", "\n"))
        elif data:
            self._pieces.append(_BLANKS.sub(" ", data))

    def line(self) -> None:
        if self._preformatted:
            self._pieces.append("\n")
        else:
            self._flush()

    def apart(self) -> None:
        self._flush()
        self._gap = bool(self._lines)

    def heading(self, marks: str) -> None:
        self.apart()
        self._prefix = f"{marks} "

    def rule(self) -> None:
        self.apart()
        self._write("---")
        self.apart()

    def cell(self) -> None:
        self._cells += 1
        if self._cells > 1 or any(piece.strip() for piece in self._pieces):
            self._pieces.append(" | ")

    def preformatted(self, on: bool) -> None:
        if on:
            self.apart()
            self._preformatted += 1
            return
        self._end_link_text()
        whole = "".join(self._pieces).removeprefix("\n").rstrip()
        self._pieces, self._link_from = [], 0
        for line in whole.split("\n") if whole else ():
            self._write(line.rstrip())
        self._preformatted -= 1
        self.apart()

    def quotation(self, on: bool) -> None:
        self.apart()
        self._quotations += 1 if on else -1

    def begin_list(self, *, ordered: bool, start: str) -> None:
        self._flush()
        if not self._lists:
            self._gap = bool(self._lines)
        number = int(start) if re.fullmatch(r"[0-9]{1,9}", start, re.ASCII) else 1
        self._lists.append(number if ordered else 0)

    def item(self) -> None:
        self._flush()
        marker = "- "
        if self._lists and self._lists[-1]:
            marker = f"{self._lists[-1]}. "
            self._lists[-1] += 1
        self._prefix = "  " * (min(len(self._lists), _MOST_DEPTH) - 1) + marker

    def end_list(self) -> None:
        self._flush()
        if self._lists:
            self._lists.pop()
        self._prefix = ""
        self._gap = bool(self._lines) and not self._lists

    def link(self, href: str) -> None:
        self.link_end()
        self._url = self._absolute(href)
        self._link_from = len(self._pieces)

    def link_end(self) -> None:
        self._end_link_text()
        self._url = ""

    def set_base(self, href: str) -> None:
        self._base = self._absolute(href) or self._base

    # Taking back what turned out to be no part of the page

    def mark(self) -> int:
        self._flush()
        return len(self._lines)

    def cut(self, mark: int) -> None:
        self._flush()
        del self._lines[mark:]
        self._gap = bool(self._lines)

    def finish(self) -> str:
        while self._preformatted:
            self.preformatted(False)
        self._flush()
        return "\n".join(self._lines).strip("\n")

    # From pieces to lines

    def _flush(self) -> None:
        """Ends the line. An open link goes on with the next one."""
        self._cells = 0
        if not self._pieces:
            return
        self._end_link_text()
        text = _BLANKS.sub(" ", "".join(self._pieces)).strip()
        self._pieces, self._link_from = [], 0
        if text.strip("| "):
            self._write(text)

    def _write(self, text: str) -> None:
        if self._gap and self._lines:
            self._lines.append("")
        self._gap = False
        indent = "" if self._prefix or not self._lists else "  " * min(len(self._lists), _MOST_DEPTH)
        quoted = "> " * min(self._quotations, _MOST_DEPTH)
        self._lines.append(f"{quoted}{indent}{self._prefix}{text}" if text else quoted.rstrip())
        self._prefix = ""

    def _end_link_text(self) -> None:
        if not self._url:
            return
        words = "".join(self._pieces[self._link_from :])
        if text := words.strip():
            before, after = words[: len(words) - len(words.lstrip())], words[len(words.rstrip()) :]
            self._pieces[self._link_from :] = [f"{before}[{text}]({self._url}){after}"]
        self._link_from = len(self._pieces)

    def _absolute(self, href: str) -> str:
        """Empty for what is no address to follow, or one on this very page."""
        from urllib.parse import urljoin

        href = "".join(href.split("\n")).strip()
        if not href or href.startswith("#") or len(href) > _LONGEST_URL:
            return ""
        try:
            url = urljoin(self._base, href)
        except ValueError:
            return ""
        if not url.lower().startswith(_SCHEMES):
            return ""
        return "".join(f"%{ord(char):02X}" if char in " <>()\t\r\x0b\x0c" else char for char in url)
