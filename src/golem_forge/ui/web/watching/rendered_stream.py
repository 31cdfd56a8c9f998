"""RenderedStream: the Markdown of an answer while it streams, rendered once for all pages, and off the loop when it is
long: neither the session nor another page may wait for it. One view is made at a time (`turn`).
"""

from __future__ import annotations

import asyncio
from math import isfinite
from typing import TYPE_CHECKING, Any, Final

from golem_forge.tools.threads import run_in_thread
from golem_forge.ui.web.watching.growing_text import GrowingText

if TYPE_CHECKING:
    from golem_forge.ui.web.showing.stream_text import StreamText

_QUICK: Final = 2048
"""So many characters are rendered within a millisecond or two."""


class RenderedStream:
    def __init__(self) -> None:
        self.turn = asyncio.Lock()
        """Held by whoever makes a view; while it is held, the text is fed by nobody else."""
        self._stream: StreamText | None = None
        self._fed = 0
        self._fed_edition = 0
        self._sent_last = 0

    def due_in(self, text: GrowingText) -> float:
        """0 also while a view is being made: whoever asks then waits for its turn."""
        if self._stream is None or self.turn.locked():
            return 0.0
        self._feed(self._stream, text)
        wait = self._stream.due_in()
        return wait if isfinite(wait) else 0.0  # rendered already, for another page

    async def view(self, text: GrowingText, blocks: int) -> tuple[int, dict[str, Any]]:
        """(what a page that held `blocks` of it holds then, how it gets there). Only by who has the turn."""
        if self._stream is None:
            self._stream = await run_in_thread(_new_stream)
        stream, before = self._stream, self._fed
        self._feed(stream, text)
        if text.end - before + self._sent_last <= _QUICK:
            keep, html = stream.view(blocks)
        else:
            keep, html = await run_in_thread(lambda: stream.view(blocks))
        self._sent_last = len(html)
        return stream.settled, {"keep": keep, "html": html}

    def _feed(self, stream: StreamText, text: GrowingText) -> None:
        if self._fed_edition != text.edition:
            stream.replace(text.since(0))
        elif self._fed < text.end:
            stream.add(text.since(self._fed))
        self._fed, self._fed_edition = text.end, text.edition


def _new_stream() -> StreamText:
    """Off the loop: the first one loads the libraries."""
    from golem_forge.ui.web.showing.stream_text import StreamText

    first = StreamText()  # its cost would count as that of every answer
    first.add("a")
    first.view(0)
    return StreamText()
