"""The lines around the input: running calls with time, progress and last output above it, the status line below it.

The status line has worker, model, context use and cost. Fed by events; gives styled lines whenever the screen is drawn.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any, Final

from golem_forge.core.lazy_dataclass import dataclass
from golem_forge.core.text import cost_text, duration
from golem_forge.events.serialization import Event
from golem_forge.ui.render.lines import fit_width, one_line, width_of
from golem_forge.ui.terminal.tty import StyledLine, safe_text

_SPINNER: Final = "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏"
_STEP_S: Final = 0.1
_TAIL_CHARS: Final = 2000
_TAIL_LINES: Final = 3
_MAX_SHOWN: Final = 6


@dataclass(slots=True, kw_only=True)
class _RunningCall:
    name: str
    since: float
    progress: str = ""
    tail: str = ""


class Activity:
    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._calls: dict[str, _RunningCall] = {}
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
        self._calls[str(data["toolCallId"])] = _RunningCall(name=one_line(name), since=self._clock())

    def progressed(self, data: Mapping[str, Any]) -> None:
        if call := self._calls.get(str(data["toolCallId"])):
            done, total, message = data["progress"], data.get("total"), data.get("message")
            call.progress = f" · {100 * done / total:.0f} %" if total else f" · {done:g}"
            if message:
                call.progress += f" · {safe_text(str(message)).splitlines()[0][:100]}"

    def add_output(self, data: Mapping[str, Any]) -> None:
        if call := self._calls.get(str(data["toolCallId"])):
            whole = data.get("whole")
            call.tail = (str(whole) if whole is not None else call.tail + str(data["delta"]))[-_TAIL_CHARS:]

    def ended(self, call_id: str) -> None:
        self._calls.pop(call_id, None)

    def clear(self) -> None:
        self._calls.clear()
        self._since = None

    def lines(self, *, waiting: bool, streaming: bool) -> list[StyledLine]:
        """`waiting`: a person is asked, so nothing spins; `streaming`: the text itself shows that it goes on."""
        now = self._clock()
        mark = "·" if waiting else _SPINNER[int(now / _STEP_S) % len(_SPINNER)]
        lines: list[StyledLine] = []
        for call in list(self._calls.values())[:_MAX_SHOWN]:
            lines.append(
                [("cyan", f"{mark} "), ("", call.name), ("dim", f"  {_elapsed(now - call.since)}{call.progress}")]
            )
            # Of each line what a carriage return left of it.
            tail = [line.rsplit("\r", 1)[-1] for line in call.tail.replace("\r\n", "\n").split("\n") if line.strip()]
            lines += [[("dim", f"  │ {safe_text(line)}")] for line in tail[-_TAIL_LINES:]]
        if len(self._calls) > _MAX_SHOWN:
            lines.append([("dim", f"  and {len(self._calls) - _MAX_SHOWN} more")])
        if not lines and self._since is not None and not waiting and not streaming:
            lines.append([("cyan", f"{mark} "), ("dim", f"working  {_elapsed(now - self._since)} · Esc interrupts")])
        return lines


def _elapsed(seconds: float) -> str:
    """Seconds from the first moment on: a number that goes on must not change its unit."""
    return f"{seconds:.1f} s" if seconds < 1 else duration(1000 * seconds)


class StatusLine:
    def __init__(self) -> None:
        self._worker = self._model = self._root = self._context = self._cost = self._mode = ""

    def take(self, event: Event) -> None:
        wire = event.wire
        if event.type == "sessionStarted":
            self._root = event.worker_id
            self._worker, self._model = (one_line(wire.get(name) or "") for name in ("worker", "model"))
            self._mode = one_line(wire.get("approvalMode") or "")
        elif event.type == "status" and wire.get("mode"):
            self._mode = one_line(wire["mode"])
        elif event.type == "contextUsage" and wire["tokenLimit"] and event.worker_id in (self._root, ""):
            self._context = f"context {100 * wire['tokensUsed'] / wire['tokenLimit']:.0f} %"
        elif event.type == "usageUpdated":
            sums = wire["session"]
            self._cost = cost_text(sums["cost"], sums.get("prices")) if sums.get("cost") is not None else ""

    def lines(self, width: int, hint: str = "") -> list[StyledLine]:
        """One row: what does not fit is left out, the model first, the worker, the mode and the hint never."""
        parts = [self._worker, self._model, self._context, self._cost, self._mode, hint]
        text = ""
        for left_out in (None, 1, 3, 2):
            if left_out is not None:
                parts[left_out] = ""
            text = " · ".join(part for part in parts if part)
            if width_of(text) < width:
                return [[("dim", text)]] if text else []
        return [[("dim", fit_width(text, width - 1).rstrip())]] if text else []
