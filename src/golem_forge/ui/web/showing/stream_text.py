"""Markdown while it streams: what can no longer change is rendered once, what can is rendered again.

A page that holds the first `sent` settled blocks asks `view(sent)` and gets `(keep, html)`: it keeps its first `keep`
top-level elements and puts `html` in the place of everything behind them. Then it holds `settled` of them: that number,
and no other, goes into its next `view`. (It is a mark, not always a count: when text is replaced, or a link target
that comes late changes what stands before it, old marks are no longer worth anything and `keep` is 0.)

Blocks are settled by whole lines only: `a` and `#` are a paragraph and a heading until the line goes on as `#x`.
Code is coloured when its block is settled. `due_in` keeps the cost of rendering at a fraction of the time that passes.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, Final

from golem_forge.ui.web.showing.markdown import (
    MOST_SHOWN,
    grouped,
    is_too_long,
    normal,
    parsed,
    pieces,
    plain_pieces,
    rendered,
)

_ENDED_BY_A_BLANK: Final = frozenset({"paragraph_open", "heading_open", "hr", "fence", "table_open"})
_SOONEST: Final = 0.03
_SHARE: Final = 8
"""Rendering may take one part in so many of the time."""
_CHARACTERS_A_SECOND: Final = 400_000
"""Of what is sent again and again to every page."""


class StreamText:
    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._pieces: list[str] = []
        self._changed = False
        self._rendered_at = float("-inf")
        self._cost = 0.0
        self._first = 0
        """The mark of a page that holds nothing yet of what is valid now."""
        self._blocks: list[str] = []
        self._start = 0
        """Where in the text the first block begins that may still change."""
        self._targets: dict[str, Any] = {}
        """Of links: all that the text has, as far as it is rendered."""
        self._tail = ""
        self._plain = False

    @property
    def text(self) -> str:
        if len(self._pieces) > 1:
            self._pieces = ["".join(self._pieces)]
        return self._pieces[0] if self._pieces else ""

    @property
    def settled(self) -> int:
        """What a page that was given a view holds now, for its next one."""
        return self._first + len(self._blocks)

    def add(self, delta: str) -> None:
        if delta:
            self._pieces.append(delta)
            self._changed = True

    def replace(self, whole: str) -> None:
        """`whole` stands for everything that was shown."""
        if not whole.startswith(self.text):
            self._begin_again()
        self._pieces = [whole]
        self._changed = True

    def view(self, sent: int) -> tuple[int, str]:
        self._render()
        keep = sent - self._first if self._first <= sent <= self.settled else 0
        return keep, "".join(self._blocks[keep:]) + self._tail

    def due_in(self) -> float:
        """Seconds until another view is worth its cost; 0: now. Infinite while nothing is new."""
        if not self._changed:
            return float("inf")
        pause = max(_SOONEST, self._cost * _SHARE, len(self._tail) / _CHARACTERS_A_SECOND)
        return max(0.0, self._rendered_at + pause - self._clock())

    # ---- rendering

    def _begin_again(self) -> None:
        """Marks that pages hold are smaller than every one from now on."""
        self._first = self.settled + 1
        self._blocks, self._start, self._targets, self._tail = [], 0, {}, ""

    def _render(self) -> None:
        if not self._changed:
            return
        started = time.perf_counter()
        text = self.text
        if is_too_long(text):
            self._render_plain(text)
        else:
            self._plain = False
            self._render_markdown(text)
        self._changed = False
        self._rendered_at = self._clock()
        self._cost = time.perf_counter() - started

    def _render_plain(self, text: str) -> None:
        if not self._plain:
            self._begin_again()
            self._plain = True
        shown = text[self._start : MOST_SHOWN]
        borders = list(pieces(shown))
        for begin, end in borders[:-1]:
            self._blocks += plain_pieces(shown[begin:end])
        last = borders[-1][0] if borders else len(shown)
        self._start += last
        self._tail = "".join(plain_pieces(shown[last:]))
        if len(text) > MOST_SHOWN:
            self._tail += list(plain_pieces(text))[-1]

    def _render_markdown(self, text: str) -> None:
        border = self._border(text)
        targets: dict[str, Any] = {}
        for part in (text[:border], text[border:]) if "]:" in text else ():
            parsed(normal(part), {"references": targets})
        if targets != self._targets:
            self._begin_again()
            self._targets = targets
        self._blocks += rendered(text[self._start : border], dict(targets))
        self._start = border
        self._tail = "".join(rendered(text[border:], dict(targets), fast=True))

    def _border(self, text: str) -> int:
        """Up to where nothing that comes can change the blocks: the last of the whole lines may still go on."""
        lines = text[self._start : text.rfind("\n") + 1]
        groups = list(grouped(parsed(normal(lines), {}))) if lines else []
        if not groups:
            return self._start
        last = groups[-1][0]
        first, end = last.map or (0, 0)
        if last.type in _ENDED_BY_A_BLANK and end < lines.count("\n"):
            return self._start + _after_lines(lines, end)
        return self._start + _after_lines(lines, first)


def _after_lines(text: str, count: int) -> int:
    at = 0
    for _ in range(count):
        at = text.index("\n", at) + 1
    return at
