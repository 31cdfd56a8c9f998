"""Between the questions and the screen: draws a question when it comes, gives it the keyboard, says how it ended.

Takes question events and what tells that a command of this terminal was answered; keeps no answer. A form that such a
command asked for is wanted by the person, so it has the keyboard at once; every other question waits its turn.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any

from golem_forge.events.envelope import Event
from golem_forge.ui.rendering.card import answered
from golem_forge.ui.terminal.answering import FORM, NAME, Answering
from golem_forge.ui.terminal.palette import Line, plain
from golem_forge.ui.terminal.screen import Screen
from golem_forge.ui.trace import COMMAND, PERSON

_OF_COMMAND = "command"
"""The source of a form that a slash command asks for."""


class Asking:
    def __init__(self, screen: Screen, emit: Callable[[str, dict[str, Any]], None]) -> None:
        self.answering = Answering(emit, self._ask, lambda: screen.width)
        self._screen = screen
        self._asked_at = 0
        self._command_open = False
        """One was sent from here and has neither answered nor begun to run."""
        self._typed_ahead = False
        """Nothing was asked since: what is in the input line was typed after the command."""
        screen.keyboard.start = lambda: self.answering.start
        screen.keyboard.draw_again = self._uncover

    def take(self, event: Event) -> None:
        kind, wire = event.type, event.wire
        if kind in ("approvalRequired", "formRequired"):
            self._opened(event)
        elif kind in ("approvalResolved", "formResolved"):
            if self.answering.closed(str(wire["requestId"]), partial(_how_it_ended, event)):
                self._screen.keyboard.question_changed()
        elif (kind == "status" and wire.get("code") == COMMAND) or wire.get("caller") == PERSON:
            self._command_open = False

    def command_sent(self) -> None:
        self._command_open = self._typed_ahead = True

    def line_sent(self) -> None:
        self._command_open = False

    def act(self, do: Callable[[], None]) -> None:
        """Lets the person act on the question in front, and moves the keyboard with it."""
        before = self.answering.front
        do()
        if self.answering.front is not before:
            self._screen.keyboard.question_changed()
        else:
            self._screen.keyboard.stage_changed()

    def _opened(self, event: Event) -> None:
        wanted = self._command_open and event.type == FORM and event.wire.get("source") == _OF_COMMAND
        in_front = self.answering.opened(event.type, event.wire)
        keyboard = self._screen.keyboard
        if wanted and in_front:
            keyboard.question_wanted()
            if self._typed_ahead:
                keyboard.take_what_was_typed()
        elif in_front:
            keyboard.question_changed()
        self._typed_ahead = False

    def _ask(self, lines: Iterable[Line]) -> None:
        """What belongs to the question in front, which is then the last thing on the screen."""
        self._screen.say(lines)
        self._asked_at = self._screen.printed

    def _uncover(self) -> bool:
        """What was printed since may have pushed the question out of sight."""
        if self._screen.printed == self._asked_at:
            return False
        self.answering.show_front()
        return True


def _how_it_ended(event: Event, question: Mapping[str, Any]) -> Line:
    if event.type == "formResolved":
        return [("dim", f"form: {plain(str(event.wire['action']))}")]
    return answered(question, event.wire, here=NAME)
