"""Text that comes in pieces, as whole lines: a line is given when it ends, the rest when its stream is done.

For output where nothing can be taken back: withdrawn text is followed by a line that says so.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from golem_forge.ui.rendering.lines import DISPLAY_CUT, Line, Style, prose

_MOST_OUTPUT: Final = 64 * 1024
_WITHDRAWN: Final = "(withdrawn: the text above does not count)"


class LineStream:
    """One stream. `text` is everything that came and still counts."""

    def __init__(self, style: Style = "") -> None:
        self.text = ""
        self._style = style
        self._given = 0

    def add(self, delta: str) -> list[Line]:
        self.text += delta
        return self._ended() if "\n" in delta else []  # a line without end is not searched again for each piece

    def replace(self, whole: str) -> list[Line]:
        """`whole` stands for all that was shown."""
        if whole.startswith(self.text[: self._given]):
            self.text = whole
            return self._ended()
        rows = self.withdraw()
        return [*rows, *self.add(whole)]

    def withdraw(self) -> list[Line]:
        rows: list[Line] = [[("dim", _WITHDRAWN)]] if self._given else []
        self.text, self._given = "", 0
        return rows

    def finish(self) -> list[Line]:
        return self._upto(len(self.text)) if len(self.text) > self._given else []

    def _ended(self) -> list[Line]:
        end = self.text.rfind("\n") + 1
        return self._upto(end) if end > self._given else []

    def _upto(self, end: int) -> list[Line]:
        rows = prose(self.text[self._given : end], self._style)
        self._given = end
        return rows


class ModelStreams:
    """`streaming` events: a request's thinking, then its text. The end of a request ends both."""

    def __init__(self) -> None:
        self._open: dict[str, dict[str, LineStream]] = {}
        self._spoken: dict[str, str] = {}
        """Worker → the last text that was streamed to its end."""

    def add(self, data: Mapping[str, Any], worker_id: str) -> list[Line]:
        request = _text(data.get("requestId"))
        thinking = data.get("channel") == "thinking"
        streams = self._open.setdefault(request, {"thinking": LineStream("thinking"), "text": LineStream()})
        if data.get("discarded"):
            del self._open[request]
            return [row for stream in streams.values() for row in stream.withdraw()][:1]
        whole, delta = data.get("whole"), _text(data.get("delta"))
        rows = streams["thinking"].finish() if not thinking and (delta or whole) else []
        stream = streams["thinking" if thinking else "text"]
        rows += stream.replace(whole) if isinstance(whole, str) else stream.add(delta)
        if data.get("done"):
            rows += [row for each in streams.values() for row in each.finish()]
            del self._open[request]
            if streams["text"].text:
                self._spoken[worker_id] = streams["text"].text
        return rows

    def rest(self) -> list[Line]:
        """Of streams that were not ended."""
        return [row for streams in self._open.values() for stream in streams.values() for row in stream.finish()]

    def unspoken(self, text: str, worker_id: str) -> str:
        """What of a message was not streamed just before; asked once a message."""
        spoken = self._spoken.pop(worker_id, "").strip()
        said = text.strip()
        return said[len(spoken) :].lstrip("\n") if spoken and said.startswith(spoken) else text


class OutputStreams:
    """`toolOutput` events, by call and stream; of each the first 64 KiB are shown."""

    def __init__(self) -> None:
        self._open: dict[str, dict[str, LineStream]] = {}

    def add(self, data: Mapping[str, Any]) -> list[Line]:
        call, name = _text(data.get("toolCallId")), "stderr" if data.get("stream") == "stderr" else "stdout"
        streams = self._open.setdefault(call, {})
        stream = streams.setdefault(name, LineStream("warn" if name == "stderr" else "dim"))
        before = len(stream.text)
        if before > _MOST_OUTPUT:
            return []
        whole = data.get("whole")
        rows = stream.replace(whole) if isinstance(whole, str) else stream.add(_text(data.get("delta")))
        if len(stream.text) > _MOST_OUTPUT >= before:
            rows.append([("dim", "..."), ("dim", DISPLAY_CUT)])
        return rows

    def __contains__(self, call_id: Any) -> bool:
        return _text(call_id) in self._open

    def finish(self, call_id: Any) -> list[Line]:
        return [row for stream in self._open.pop(_text(call_id), {}).values() for row in stream.finish()]


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""
