"""The line under the input: worker, model, how full the context is and what the session cost so far."""

from __future__ import annotations

from collections.abc import Sequence

from golem_forge.events.envelope import Event
from golem_forge.ui.rendering.lines import fitted, one_line, width_of
from golem_forge.ui.terminal.palette import Line


class Foot:
    def __init__(self) -> None:
        self._worker = ""
        self._model = ""
        self._root = ""
        self._context = ""
        self._cost = ""

    def take(self, event: Event) -> None:
        wire = event.wire
        if event.type == "sessionStarted":
            self._root = event.worker_id
            self._worker, self._model = (one_line(wire.get(name) or "") for name in ("worker", "model"))
        elif event.type == "contextUsage" and wire["tokenLimit"] and event.worker_id in (self._root, ""):
            self._context = f"context {100 * wire['tokensUsed'] / wire['tokenLimit']:.0f} %"
        elif event.type == "usageUpdated":
            cost = wire["session"].get("cost")
            self._cost = f"${cost:.4f}" if isinstance(cost, (int, float)) else ""

    def lines(self, width: int) -> list[Line]:
        """One row: what does not fit is left out, the model first, the worker never."""
        parts = [self._worker, self._model, self._context, self._cost]
        for left_out in (1, 3, 2):
            if width_of(_joined(parts)) < width:
                break
            parts[left_out] = ""
        text = _joined(parts)
        if not text:
            return []
        return [[("dim", text if width_of(text) < width else fitted(text, width - 1).rstrip())]]


def _joined(parts: Sequence[str]) -> str:
    return " · ".join(part for part in parts if part)
