"""What is going on right now, as lines above the input: running calls with their time, progress and last output.

Fed by the events of calls; gives styled lines whenever the screen is drawn. Only the tail of the output is kept here.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from golem_forge.ui.rendering.lines import one_line
from golem_forge.ui.terminal.palette import Line, plain

_SPINNER: Final = "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏"
_STEP_S: Final = 0.1
_TAIL_CHARS: Final = 2000
_TAIL_LINES: Final = 3
_MOST_SHOWN: Final = 6


@dataclass(slots=True, kw_only=True)
class _Call:
    name: str
    since: float
    progress: str = ""
    tail: str = ""
    held: bool = field(default=False)


class Activity:
    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._calls: dict[str, _Call] = {}
        self._since: float | None = None

    @property
    def busy(self) -> bool:
        return bool(self._calls) or self._since is not None

    @property
    def calls(self) -> int:
        return len(self._calls)

    def turn_began(self) -> None:
        if self._since is None:
            self._since = self._clock()

    def turn_ended(self) -> None:
        self._since = None

    def started(self, data: Mapping[str, Any], worker: str = "") -> None:
        """`worker`: the name of the sub-worker that calls."""
        tool = str(data.get("label") or data["toolName"])
        name = f"{worker} │ {tool}" if worker else tool
        self._calls[str(data["toolCallId"])] = _Call(name=one_line(name), since=self._clock())

    def progressed(self, data: Mapping[str, Any]) -> None:
        if call := self._calls.get(str(data["toolCallId"])):
            call.progress = _progress(data)

    def put_out(self, data: Mapping[str, Any]) -> None:
        if call := self._calls.get(str(data["toolCallId"])):
            whole = data.get("whole")
            call.tail = (str(whole) if whole is not None else call.tail + str(data["delta"]))[-_TAIL_CHARS:]

    def ended(self, call_id: str) -> None:
        self._calls.pop(call_id, None)

    def clear(self) -> None:
        self._calls.clear()
        self._since = None

    def lines(self, *, waiting: bool, streaming: bool) -> list[Line]:
        """`waiting`: a person is asked, so nothing spins; `streaming`: the text itself shows that it goes on."""
        now = self._clock()
        mark = "·" if waiting else _SPINNER[int(now / _STEP_S) % len(_SPINNER)]
        lines: list[Line] = []
        for call in list(self._calls.values())[:_MOST_SHOWN]:
            lines.append(
                [("cyan", f"{mark} "), ("", call.name), ("dim", f"  {_elapsed(now - call.since)}{call.progress}")]
            )
            lines += [[("dim", f"  │ {line}")] for line in _last_lines(call.tail)]
        if len(self._calls) > _MOST_SHOWN:
            lines.append([("dim", f"  and {len(self._calls) - _MOST_SHOWN} more")])
        if not lines and self._since is not None and not waiting and not streaming:
            lines.append([("cyan", f"{mark} "), ("dim", f"working  {_elapsed(now - self._since)} · Esc interrupts")])
        return lines


def _progress(data: Mapping[str, Any]) -> str:
    done, total, message = data["progress"], data.get("total"), data.get("message")
    shown = f"{100 * done / total:.0f} %" if total else f"{done:g}"
    return f" · {shown}" + (f" · {plain(str(message)).splitlines()[0][:100]}" if message else "")


def _last_lines(tail: str) -> list[str]:
    """Of each line what a carriage return left of it."""
    lines = [plain(line.rsplit("\r", 1)[-1]) for line in tail.replace("\r\n", "\n").split("\n") if line.strip()]
    return lines[-_TAIL_LINES:]


def _elapsed(seconds: float) -> str:
    if seconds < 60:
        return f"{seconds:.1f} s"
    return f"{int(seconds // 60)} min {int(seconds % 60)} s"
