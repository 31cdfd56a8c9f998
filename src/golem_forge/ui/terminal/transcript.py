"""Streamed answers: complete blocks are drawn above for good, the unfinished one stands in the live part as it arrives.

Takes `streaming` events and the messages that repeat them; gives text to `put`. A message whose text was streamed is
not shown again. Text of a worker other than the one that spoke last begins with that worker's name.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from typing import Any, Final

from golem_forge.ui.rendering.lines import width_of, wrapped
from golem_forge.ui.terminal.markdown import rendered
from golem_forge.ui.terminal.palette import Line, ansi, plain, spoken
from golem_forge.ui.terminal.streams import BlockStream

_REMEMBERED: Final = 50


class _Voice:
    """One channel of one request."""

    def __init__(self, channel: str, worker: str) -> None:
        self.channel = channel
        self.worker = worker
        self.stream = BlockStream()
        self.spoke = False


class Transcript:
    def __init__(self, put: Callable[[str], None], width: Callable[[], int], *, colour: bool) -> None:
        self._put = put
        self._width = width
        self._colour = colour
        self._voices: dict[tuple[str, str], _Voice] = {}
        self._done: deque[str] = deque(maxlen=_REMEMBERED)
        self._last_worker = ""
        self.names: dict[str, str] = {}
        """Sub-workers by id."""

    @property
    def streaming(self) -> bool:
        return any(voice.stream.pending.strip() for voice in self._voices.values())

    def take(self, wire: Mapping[str, Any], worker: str) -> None:
        request, channel = str(wire["requestId"]), str(wire["channel"])
        if wire.get("discarded"):
            self._withdraw(request)
            return
        if channel == "text":
            self._finish((request, "thinking"))
        key = (request, channel)
        voice = self._voices.get(key)
        if voice is None:
            if not wire["delta"] and wire.get("whole") is None:
                return
            voice = self._voices[key] = _Voice(channel, worker)
        self._feed(key, voice, wire)
        if wire["done"]:
            self._finish(key)

    def message(self, content: str, worker: str) -> None:
        """An assistant's message as a whole; of one that was just streamed, what it has besides (`[interrupted]`)."""
        text = content.strip()
        if not text or text in self._done:
            return
        if self._done and self._done[-1] and text.startswith(f"{self._done[-1]}\n"):
            text = text[len(self._done[-1]) :].strip("\n")
        self._done.append(text)
        self._speaker(worker)
        self._put(rendered(text, self._width(), colour=self._colour) + "\n")

    def finish_all(self) -> None:
        """A turn ended: what was left open stays readable."""
        for key in list(self._voices):
            self._finish(key)

    def finish_of(self, worker: str) -> None:
        """A worker goes on to something else: its words stand before that."""
        for key in [key for key, voice in self._voices.items() if voice.worker == worker]:
            self._finish(key)

    def live_lines(self, width: int, rows: int) -> list[Line]:
        """The unfinished blocks; of a long one its last rows."""
        lines: list[Line] = []
        voices = [voice for voice in self._voices.values() if voice.stream.pending.strip()]
        for voice in voices:
            style = "thinking" if voice.channel == "thinking" else ""
            name = self.names.get(voice.worker, "")
            if name and (len(voices) > 1 or name != self._last_worker):
                lines.append([("dim", f"{plain(name)} ›")])
            pending = spoken(voice.stream.pending.strip("\n")[-(width * rows + 1) :])
            lines += [[(style, row)] for row in _last_rows(pending, width, max(rows // len(voices), 2))]
        return lines

    def _feed(self, key: tuple[str, str], voice: _Voice, wire: Mapping[str, Any]) -> None:
        whole = wire.get("whole")
        if whole is None:
            blocks: list[str] | None = voice.stream.feed(str(wire["delta"]))
        else:
            blocks = voice.stream.replace(str(whole))
            if blocks is None:
                self._put(ansi([[("dim", "(the text above is replaced by this:)")]], colour=self._colour))
                voice = self._voices[key] = _Voice(voice.channel, voice.worker)
                blocks = voice.stream.feed(str(whole))
        for block in blocks or ():
            self._speak(voice, block)

    def _finish(self, key: tuple[str, str]) -> None:
        voice = self._voices.pop(key, None)
        if voice is None:
            return
        rest = voice.stream.finish()
        if rest:
            self._speak(voice, rest)
        if voice.channel == "text":
            self._done.append(voice.stream.text.strip())

    def _withdraw(self, request: str) -> None:
        """What is on the screen cannot be taken back; that it no longer counts can be said."""
        voices = [self._voices.pop((request, channel), None) for channel in ("thinking", "text")]
        if any(voice is not None and voice.stream.text.strip() for voice in voices):
            above = any(voice is not None and voice.spoke for voice in voices)
            words = (
                "withdrawn: the unfinished answer above does not count" if above else "withdrawn: an unfinished answer"
            )
            self._put(ansi([[("warn", f"✗ {words}")]], colour=self._colour))

    def _speak(self, voice: _Voice, block: str) -> None:
        self._speaker(voice.worker)
        voice.spoke = True
        if voice.channel == "thinking":
            width = max(self._width() - 1, 20)
            lines = [row for line in spoken(block).split("\n") for row in wrapped([("thinking", line)], width)]
            self._put(ansi(lines, colour=self._colour) + "\n")
        else:
            self._put(rendered(block, self._width(), colour=self._colour) + "\n")

    def _speaker(self, worker: str) -> None:
        name = self.names.get(worker, "")
        if name != self._last_worker:
            self._last_worker = name
            self._put(ansi([[("dim", f"{plain(name) or 'main'} ›")]], colour=self._colour))


def _last_rows(text: str, width: int, rows: int) -> list[str]:
    kept: list[str] = []
    left = rows
    for line in reversed(text.split("\n")):
        needed = max(-(-width_of(line) // max(width, 1)), 1)
        if needed > left:
            room = left * width - 1
            while line and width_of(line) > room:
                line = line[max((width_of(line) - room) // 2, 1) :]
            if line:
                kept.append("…" + line)
            break
        kept.append(line)
        left -= needed
        if not left:
            break
    return kept[::-1]
