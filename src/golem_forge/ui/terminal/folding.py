"""What the terminal folds to one line, and how a person sees it again.

A call ends with its result in the place of its first line; one whose card was answered, in the place of card and
answer, too. The start of a session becomes
one line once the walls are known. `CallFolds` keeps the last cards and results that were folded or cut; Ctrl+O shows
the newest of them whole, pressed again the one before it.
Folding changes what is on the screen and nothing else: the journal has all of it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, Protocol

from golem_forge.events.serialization import Event
from golem_forge.ui.render.card import answer_line, approval_card, asked_because, full_card
from golem_forge.ui.render.lines import DISPLAY_CUT, Line, one_line, wrapped_lines
from golem_forge.ui.render.reports import session_line, walls_lines
from golem_forge.ui.render.results import answered_result, whole_result
from golem_forge.ui.terminal.tty import StyledLine

_MAX_KEPT: Final = 30
_MAX_OPEN: Final = 200
_SHOWS_ALL: Final = " · Ctrl+O shows all"
_START: Final = "start"
_CONFINED: Final = ("full", "landlock")


class FoldingScreen(Protocol):
    @property
    def width(self) -> int: ...
    def say(self, lines: Iterable[StyledLine], key: str = "") -> None: ...
    def fold(self, key: str, lines: Iterable[StyledLine]) -> None: ...
    def can_fold(self, key: str) -> bool: ...


class CallFolds:
    def __init__(self, screen: FoldingScreen, here: str) -> None:
        self._screen = screen
        self._here = here
        self._cards: dict[str, Mapping[str, Any]] = {}
        """The request of a card by its id, until it is answered."""
        self._answered: dict[str, Mapping[str, Any]] = {}
        """The request by its call, from the answer to the result."""
        self.answers: dict[str, str] = {}
        """How a card was answered, by its call, until the call has a result."""
        self._kept: deque[tuple[Mapping[str, Any] | None, Mapping[str, Any]]] = deque(maxlen=_MAX_KEPT)
        self._shown = 0
        """How many of them, from the newest on, were shown again."""
        self._start: Line = []
        self._running: dict[str, str] = {}
        """Call whose first line is shown → its worker, while nothing that belongs below that line was shown."""

    # ---- events

    def take(self, event: Event) -> None:
        """Cards and their answers; called before they are drawn."""
        wire = event.wire
        if event.type == "approvalRequired" and wire.get("toolCallId"):
            self._cards[str(wire["requestId"])] = wire
        elif event.type == "approvalResolved" and (request := self._cards.pop(str(wire["requestId"]), None)):
            call = str(request["toolCallId"])
            said = answer_line(request, wire, here=self._here)[0][1]
            self.answers[call] = "approved once" if said == "approved" else said
            self._answered[call] = request
            while len(self.answers) > _MAX_OPEN:  # of calls that never had a result
                oldest = next(iter(self.answers))
                del self.answers[oldest], self._answered[oldest]

    def key_of(self, wire: Mapping[str, Any]) -> str:
        """What the lines of an event are to be folded with; empty: with nothing."""
        call = str(wire.get("toolCallId") or "")
        return call if call in self.answers or call in self._running else ""

    def started(self, wire: Mapping[str, Any], worker: str) -> None:
        """The line of the call is replaced by its result; not where calls inside it stand below that line."""
        self._running.pop(str(wire.get("parentCallId") or ""), None)
        self._running[str(wire["toolCallId"])] = worker
        while len(self._running) > _MAX_OPEN:
            del self._running[next(iter(self._running))]

    def worker_came(self, parent: str) -> None:
        """What a sub-worker says stands below the call that started it."""
        self._running = {call: worker for call, worker in self._running.items() if worker != parent}

    def draw_result(self, wire: Mapping[str, Any], rows: list[Line]) -> None:
        """The lines of a result, folded where its card was answered, and kept where they are not all of it."""
        call = self.key_of(wire)
        self._running.pop(call, None)
        cut = [at for at, row in enumerate(rows) if any(DISPLAY_CUT in text for _, text in row)]
        for at in cut:
            rows[at] = [*rows[at], ("dim", _SHOWS_ALL)]
        if call or cut:
            self._kept.append((self._answered.pop(call, None), wire))
            self._shown = 0
        if call:
            self.answers.pop(call, None)
            self._screen.fold(call, rows)
        else:
            self._screen.say(rows)

    def draw_start(self, event: Event, rows: list[Line]) -> None:
        """`sessionStarted` and `wallsReport` as one line, where the walls lack nothing and nothing is open in them."""
        wire = event.wire
        if event.type == "sessionStarted":
            self._start = session_line(wire) if rows else []
            self._screen.say(rows, _START)
        elif rows and self._start and wire.get("level") in _CONFINED and not (wire.get("missing") or wire.get("exits")):
            walls = walls_lines(wire)[0][0][1]
            if self._screen.can_fold(_START):
                rows = wrapped_lines([[*self._start, ("dim", f" · {walls}")]], self._screen.width)
                self._screen.fold(_START, rows)
            else:
                self._screen.say(rows)
        else:
            self._screen.say(rows)

    # ---- again

    def show(self, say: Callable[[Iterable[StyledLine]], None]) -> None:
        if not self._kept:
            say([[("dim", "Nothing is folded.")]])
            return
        self._shown = self._shown % len(self._kept) + 1
        request, result = self._kept[-self._shown]
        more = " · Ctrl+O shows the one before" if self._shown < len(self._kept) else ""
        name = one_line(result.get("toolName", ""))
        say([[("title", f"── {name}, again, {self._shown} of {len(self._kept)}"), ("dim", more)]])
        if request is None:
            say(wrapped_lines(whole_result(result), self._screen.width))
            return
        card = {**request, "choices": []}  # what could have been remembered is over
        say([*approval_card(card, width=self._screen.width)[:1], *full_card(card)])
        say([[("dim", asked_because(request.get("why", "")))]])
        say(wrapped_lines(answered_result(result), self._screen.width))
