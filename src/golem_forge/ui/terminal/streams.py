"""Streamed text in blocks: what is complete can be drawn as Markdown for good, the rest is shown as it stands.

A block ends at a blank line that is followed by text at the margin, or at the end of a code fence. Nothing is lost or
doubled: the blocks given plus `pending` are the text that was fed, except for blank lines between blocks.
"""

from __future__ import annotations

import re
from typing import Final

_FENCE: Final = re.compile(r" {0,3}(`{3,}|~{3,})")


class BlockStream:
    def __init__(self) -> None:
        self.text = ""
        """Everything fed so far."""
        self._taken = 0
        self._begin_block()

    @property
    def pending(self) -> str:
        return self.text[self._taken :]

    @property
    def taken(self) -> str:
        """What was given out as blocks."""
        return self.text[: self._taken]

    def feed(self, delta: str) -> list[str]:
        """The blocks that this text completed."""
        may_end = "\n" in delta or self.text[-1:] in ("", "\n")
        self.text += delta
        return self._complete() if may_end else []

    def finish(self) -> str:
        """What was left; the stream is over."""
        rest = self.pending
        self._taken = len(self.text)
        return rest.strip("\n") if rest.strip() else ""

    def replace(self, whole: str) -> list[str] | None:
        """The text as it is instead. None: what was given out already differs from it, start anew."""
        if not whole.startswith(self.taken):
            return None
        self.text = whole
        self._begin_block()
        return self._complete()

    def _complete(self) -> list[str]:
        blocks = []
        while (end := self._block_end()) is not None:
            block = self.text[self._taken : end].strip("\n")
            self._taken = end
            self._begin_block()
            if block.strip():
                blocks.append(block)
        return blocks

    # ---- the first block that was not given out yet

    def _begin_block(self) -> None:
        self._read = self._taken
        """Up to here its lines were looked at: a long block is read once, not again for each piece of it."""
        self._fence = ""
        self._started = self._blank = False

    def _block_end(self) -> int | None:
        """Where it ends, its blank lines included; None: not yet."""
        while self._read < len(self.text):
            end = self.text.find("\n", self._read) + 1
            line = self.text[self._read : end or len(self.text)]
            if self._blank and line.strip() and not line[0].isspace():
                return self._read
            if not end:
                return None
            self._read = end
            if self._is_last(line):
                return end
        return None

    def _is_last(self, line: str) -> bool:
        """Whether this whole line closes the block's fence."""
        opened = _FENCE.match(line)
        if self._fence:
            return bool(opened and opened.group(1).startswith(self._fence) and not line.strip().strip(self._fence[0]))
        if not line.strip():
            self._blank = self._blank or self._started
        else:
            self._started, self._blank = True, False
            self._fence = opened.group(1) if opened else ""
        return False
