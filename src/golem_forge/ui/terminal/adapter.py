"""`TerminalAdapter`: a session at a terminal. Draws events of the bus, and puts the person's actions on the bus.

`initialize` draws the input line and registers as a UI that can answer; `shutdown` restores the terminal. When the
person leaves, `exit_requested` is set and nothing more is answered here: an awaited input ends unavailable, and
`exit_code` is the exit code for the process. Ctrl+C once interrupts or clears the line, twice within two seconds exits;
any other key between them means that the person stays.
`QuestionPresenter` connects the open questions with the screen: draws a question when it comes, gives it the keyboard,
says how it ended. A form that a command of this terminal asked for has the keyboard at once; others wait.
"""

from __future__ import annotations

import asyncio
import os
import threading
import time
from base64 import b64decode
from collections.abc import Awaitable, Callable, Iterable, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final, TextIO

from golem_forge.agent.run_result import RunResult
from golem_forge.agent.slash.parser import is_command
from golem_forge.agent.slash.session_commands import NEXT_MODE
from golem_forge.core.ids import new_id
from golem_forge.core.regex import regex
from golem_forge.events.bus import EventBus
from golem_forge.events.open_questions import INTERRUPT
from golem_forge.events.runtime_ui import create_runtime_ui
from golem_forge.events.serialization import Event
from golem_forge.orchestrator.bound_output import stored_picture
from golem_forge.tools.threads import run_in_thread
from golem_forge.ui.render.card import answer_line
from golem_forge.ui.render.lines import chat_lines, excerpt, mappings_in, one_line
from golem_forge.ui.render.reports import form_ending
from golem_forge.ui.terminal.input_line import CompletionSources, HistoryFile, Menu, candidates, holds_secret
from golem_forge.ui.terminal.questions import (
    FORM_EVENT,
    UI_NAME,
    AnswerStage,
    KeyMeaning,
    PendingQuestion,
    PendingQuestions,
)
from golem_forge.ui.terminal.screen import Screen
from golem_forge.ui.terminal.transcript import CallFolds, EventRenderer, Transcript, warm_up
from golem_forge.ui.terminal.tty import (
    Activity,
    StatusLine,
    StyledLine,
    TerminalModes,
    colour_wanted,
    picture_protocol,
    picture_sequence,
    redirect_standard_streams,
    safe_prose,
    safe_text,
)
from golem_forge.ui.trace import COMMAND, PERSON, TraceLevel, create_trace_formatter

_PROMPT: Final = "> "
_PREFILL: Final = "prefill"
"""The code of a status whose message belongs into the input line."""
_MAX_QUEUED: Final = 100
_MOST_PICTURES: Final = 4
"""Maximum pictures of one result."""
_STORED_NAME: Final = regex(r"[0-9a-zA-Z_-]{8,64}")
"""The name of a session's folder of outputs, and of an output in it."""


class TerminalAdapter:
    def __init__(
        self,
        bus: EventBus,
        sources: CompletionSources,
        *,
        output: TextIO,
        input: TextIO,
        trace_level: str,
        home: Path | None,
    ) -> None:
        self.bus = bus
        self.exit_requested = asyncio.Event()
        self.exit_code = 0
        self._input = input
        self._output = output
        self._history = HistoryFile(home / "history") if home else None
        self._outputs = home / "output" if home else None
        self._pictures = picture_protocol(os.environ)
        self._being_drawn: set[asyncio.Task[None]] = set()
        self._sources = sources
        self._formatter = create_trace_formatter(trace_level, lambda: self._screen.width if self._screen else 80)
        self._activity = Activity()
        self._foot = StatusLine()
        self._leaving = ExitConfirmation()
        self._queued: list[str] = []
        """Lines that wait: text for the next prompt, commands until somebody hears them."""
        self._commands_heard = False
        self._answers_once = False
        self._warmed_up = False
        self._prompt_id = ""
        self._runs_elsewhere: bool | None = None
        self.prompt = _PROMPT
        self._ended = False
        self._screen: Screen | None = None
        self._close = ExitStack()
        self._detach: Callable[[], None] = lambda: None

    # ---- life

    async def initialize(self) -> None:
        """Returns once the input line is drawn; a second time at once. Refuses (OSError) a terminal whose modes cannot
        be read."""
        if self._screen is not None:
            return
        colour = colour_wanted()
        self.bus.bind_loop()
        self._close.callback(TerminalModes(self._input.fileno(), self._output.fileno()).restore)
        screen = self._screen = Screen(
            self,
            input=self._input,
            output=self._output,
            colour=colour,
            history=self._history.lines() if self._history else (),
            menu=Menu(self._sources, self._redraw),
        )
        transcript = Transcript(screen.print_above, lambda: screen.width, colour=colour)
        self._asking = QuestionPresenter(screen, self._emit)
        self._answering = self._asking.answering
        self._transcript = transcript
        self._folds = CallFolds(screen, UI_NAME)
        self._drawing = EventRenderer(self._formatter, transcript, self._activity, screen.say, self._folds)
        await screen.start()
        self._close.enter_context(redirect_standard_streams(screen.print_above))
        ui = create_runtime_ui(self.bus)
        self._close.callback(self.bus.on("*", self._take))
        self._detach = ui.attach(UI_NAME)
        ui.replay_open(self._take)

    def offer_files(self, lister: Callable[[], Awaitable[Iterable[str]]]) -> None:
        """Sets the files that `@` offers, by their paths in the zones. They are listed when the person types `@`, not
        for each key.
        """
        self._sources.zone_files = lister

    def offer_commands(self, commands: Mapping[str, str]) -> None:
        """Sets the only commands that work after the `/`, with descriptions."""
        self._sources.only_commands = commands

    def follow_turn(self, runs: bool) -> None:
        """Sets whether a turn runs in a session of another process. Its prompt is always open, because a line is sent
        at once. Ctrl+] leaves it running.
        """
        self._runs_elsewhere = runs
        if self._screen is not None:
            self._drawing.follows = True
        if runs:
            self._activity.turn_began()
        else:
            self._activity.turn_ended()
        self._redraw()

    @property
    def is_attached(self) -> bool:
        """Whether the session goes on without this terminal."""
        return self._runs_elsewhere is not None

    def keyboard(self) -> int:
        """The descriptor of the terminal that it reads."""
        return self._input.fileno()

    async def shutdown(self) -> None:
        """Ends the screen; safe to call twice. Open questions are denied if no other UI can answer."""
        screen, self._screen = self._screen, None
        for drawn in self._being_drawn:
            drawn.cancel()
        self._detach()
        try:
            if screen is not None:
                self._asking.stop()
                self._transcript.finish_all()
                await screen.stop()
        finally:
            self._close.close()

    def finished(self, result: RunResult) -> None:
        """Does nothing: the events of the run were drawn."""

    async def stay(self, result: RunResult) -> None:
        """Returns immediately."""

    def _redraw(self) -> None:
        if self._screen is not None:
            self._screen.redraw()

    # ---- events

    def _take(self, event: Event) -> None:
        screen = self._screen
        if screen is None:
            return
        if (handler := _HANDLERS.get(event.type)) is not None:
            handler(self, event)
        self._folds.take(event)
        self._asking.take(event)
        self._foot.take(event)
        self._drawing.draw(event)
        if event.type == "toolResult" and self._pictures:
            self._draw_pictures(event)
        if event.type == "sessionStarted":  # the schemas of all tools are made next, which takes a third of the start
            screen.draw_now()
        else:
            screen.redraw()

    def _draw_pictures(self, event: Event) -> None:
        for part in mappings_in(event.wire.get("media"))[:_MOST_PICTURES]:
            names = (event.session_id, str(part.get("handle")))
            if self._outputs is not None and all(map(_STORED_NAME.fullmatch, names)):
                drawn = asyncio.get_running_loop().create_task(self._draw_picture(self._outputs.joinpath(*names)))
                self._being_drawn.add(drawn)
                drawn.add_done_callback(self._being_drawn.discard)

    async def _draw_picture(self, path: Path) -> None:
        """Makes the picture in a thread; text that comes meanwhile may stand above it."""
        columns = self._screen.width if self._screen is not None else 0
        made = await run_in_thread(
            lambda: picture_sequence(self._pictures, b64decode(stored_picture(path)), columns) if columns else ""
        )
        if made and self._screen is not None:
            self._screen.print_picture(made)

    def _on_input_prompt(self, event: Event) -> None:
        self._prompt_id = str(event.wire["requestId"])
        shown = safe_text(str(event.wire["prompt"])).strip().replace("\n", " ")
        self.prompt = f"{shown[:40]} " if shown else _PROMPT
        self._activity.turn_ended()
        self._hear_commands()

    def _on_input_resolved(self, event: Event) -> None:
        if event.wire["requestId"] == self._prompt_id:
            self._prompt_id = ""
            self._commands_heard = not self._answers_once
            self._leaving.turn_began()
            self._activity.turn_began()

    def _on_message(self, event: Event) -> None:
        """A turn began, so the conversation listens, also where it began with words of the command line. What lays
        answers out is loaded while the model works on the first one: an idle session does without."""
        if not self._warmed_up:
            self._warmed_up = True
            threading.Thread(target=warm_up, name="markdown", daemon=True).start()
        if not self._answers_once:
            self._hear_commands()

    def _hear_commands(self) -> None:
        self._commands_heard = True
        if self._queued:
            # Later: this event is still being delivered, and who asked must have begun to wait.
            asyncio.get_running_loop().call_soon(self._send_queued)

    def _on_session_started(self, event: Event) -> None:
        self._answers_once = event.wire["mode"] == "single"
        if not self._prompt_id:
            self._activity.turn_began()

    def _on_status(self, event: Event) -> None:
        """Text for the input line goes behind what stands there; the person sends it, or not."""
        if event.wire.get("code") == _PREFILL and self._screen is not None:
            parts = (self._screen.whole_draft, str(event.wire["message"]))
            self._set_draft("\n".join(part for part in parts if part))

    def _set_draft(self, text: str) -> None:
        assert self._screen is not None
        self._screen.draft.text = text
        self._screen.draft.cursor_position = len(text)

    def _on_session_end(self, event: Event) -> None:
        self._ended = True
        self._activity.clear()

    def _emit(self, type: str, data: dict[str, Any]) -> None:
        self.bus.emit(type, data, source=UI_NAME)

    # ---- what the person does; the screen calls these

    def line(self, text: str) -> bool:
        """A finished line. True: the input line is to be emptied."""
        if not text.strip():
            return bool(text)
        if is_command(text) and self._commands_heard:
            self._command(text)
        elif self._prompt_id and not is_command(text):
            self._send(text)
        elif len(self._queued) < _MAX_QUEUED:
            self._queued.append(text)
        else:
            return False
        return True

    def key_came(self) -> None:
        self._leaving.key_came()

    def meaning(self, key: str) -> KeyMeaning:
        return self._answering.meaning(key)

    def key(self, key: str) -> None:
        self._asking.act(lambda: self._answering.press(key))

    def answer(self, text: str) -> None:
        self._asking.act(lambda: self._answering.enter(text))

    def escape(self) -> None:
        front = self._answering.front
        if front is not None and (front.reason or front.form is not None):
            self._asking.act(self._answering.back)
        elif self.running:
            self._interrupt()

    def control_c(self) -> None:
        assert self._screen is not None
        if self._screen.keyboard.asking and self._answering.front is not None:
            left: list[bool] = []
            self._asking.act(lambda: left.append(self._answering.cancel()))
            if left[0]:
                return
        if self.running:
            if self._leaving.again_while_running():
                self.request_exit(130)
            else:
                self._interrupt()
        elif self._leaving.again_at_prompt():
            self.request_exit(130)
        else:
            self._screen.clear_draft()
            self._screen.redraw()

    def complete(self, before: str) -> tuple[int, list[str]]:
        return candidates(before, self._sources)

    def next_mode(self) -> None:
        """The other approval mode; the status line and what the session says show which."""
        if self._commands_heard and not self.is_attached:
            self._emit("command", {"requestId": new_id(), "text": f"/mode {NEXT_MODE}"})

    def show_folded(self) -> None:
        """The last card or result that was folded or cut, whole; again: the one before it."""
        assert self._screen is not None
        self._folds.show(self._screen.say)
        self._screen.redraw()

    def show_question(self) -> None:
        """Draws the question in front again, whole: the person asked for it, or the width changed."""
        self._answering.show_front()

    def _interrupt(self) -> None:
        """Interrupts the turn and puts queued lines back into the input line, so that the person decides anew."""
        assert self._screen is not None
        if self._queued:
            self._set_draft("\n".join([*self._queued, self._screen.whole_draft]).strip("\n"))
            self._queued.clear()
        self._emit("interrupt", {"reason": "user"})
        self._screen.redraw()

    def request_exit(self, code: int = 0) -> None:
        """The person leaves, or a signal tells the process to end."""
        if self.exit_requested.is_set():
            return
        self.exit_code = code
        self.exit_requested.set()
        if self.running and not self.is_attached:
            self._emit("interrupt", {"reason": "exit"})
        self._detach()

    def _command(self, text: str) -> None:
        assert self._screen is not None
        self._echo(text)
        words = text.lower().split()
        if words == ["/trace"]:  # the level is this terminal's own: nobody else knows it
            self._screen.say([[("", f"Trace level: {self._formatter.level} ({', '.join(TraceLevel)})")]])
            return
        if words[0] == "/trace" and len(words) == 2 and words[1] in set(TraceLevel):
            self._formatter.level = TraceLevel(words[1])
        self._asking.command_sent()
        self._emit("command", {"requestId": new_id(), "text": text})

    def _send(self, text: str) -> None:
        self._echo(text)
        self._drawing.sent(text)
        self._asking.line_sent()
        self._emit("userInput", {"requestId": self._prompt_id, "content": text})

    def _send_queued(self) -> None:
        """Sends queued lines in order: commands immediately, one text for each prompt."""
        while self._queued and self._screen is not None:
            if is_command(self._queued[0]):
                if not self._commands_heard:
                    return
                self._command(self._queued.pop(0))
            elif self._prompt_id:
                self._send(self._queued.pop(0))
            else:
                return

    def _echo(self, text: str) -> None:
        """Shows a line that is sent, and keeps it in the history. By now it is known which fields are secret."""
        assert self._screen is not None
        if not holds_secret(text, self._sources.tools, self.bus):
            self._screen.draft.history.append_string(text)
            if self._history is not None:
                self._history.add(text)
        rows = chat_lines(safe_prose(text), "user", "  ")
        rows[0] = [("user", rows[0][0][1].replace(" ", ">", 1))]
        self._screen.say(excerpt(rows))

    # ---- what is to be seen; the screen reads these

    @property
    def stage(self) -> AnswerStage:
        return self._answering.stage

    @property
    def running(self) -> bool:
        """Whether there is something to interrupt."""
        if self._ended:
            return False
        turn = not self._prompt_id if self._runs_elsewhere is None else self._runs_elsewhere
        return turn or bool(self._activity.calls) or self._answering.waiting

    @property
    def moving(self) -> bool:
        waiting = self._answering.front is not None and not self._activity.calls
        return (self._activity.busy and not waiting) or self._leaving.hint != ""

    @property
    def secret(self) -> bool:
        return (question := self._answering.question) is not None and question.secret

    @property
    def multiline(self) -> bool:
        return (question := self._answering.question) is not None and question.multiline

    def live_lines(self, width: int, rows: int) -> list[StyledLine]:
        waiting = self._answering.front is not None
        busy = self._activity.lines(waiting=waiting, streaming=self._transcript.streaming)
        return [*self._transcript.live_lines(width, max(rows - len(busy), 2)), *busy]

    def question_lines(self) -> list[StyledLine]:
        if self._screen is None:
            return self._answering.lines(taken=False)
        keyboard = self._screen.keyboard
        return self._answering.lines(taken=keyboard.listening, text_waits=keyboard.text_waits, writing=keyboard.writing)

    def queued_lines(self) -> list[StyledLine]:
        return [[("dim", f"queued: {safe_text(text)}".replace("\n", " ⏎ "))] for text in self._queued[-3:]]

    def foot_lines(self) -> list[StyledLine]:
        hint = self._leaving.hint
        width = self._screen.width if self._screen is not None else 80
        if hint or not self.is_attached:
            return [[("dim", hint)]] if hint else self._foot.lines(width)
        return self._foot.lines(width, "Ctrl+] leaves it running")


_HANDLERS: Final[dict[str, Callable[[TerminalAdapter, Event], None]]] = {
    "inputPrompt": TerminalAdapter._on_input_prompt,
    "inputResolved": TerminalAdapter._on_input_resolved,
    "message": TerminalAdapter._on_message,
    "manualToolsAvailable": lambda self, event: self._sources.set_tools(event.wire["tools"]),
    "toolResult": lambda self, event: self._sources.add_result(
        str(event.wire["toolCallId"]), event.wire.get("outputHandle")
    ),
    "sessionStarted": TerminalAdapter._on_session_started,
    "sessionEnd": TerminalAdapter._on_session_end,
    "status": TerminalAdapter._on_status,
}


_COMMAND_SOURCE = "command"
"""The source of a form that a slash command asks for."""
_NEXT_S: Final = 0.05
"""Pause before the next question is drawn; an answer that was just remembered may cover it too."""
_ENDING_S: Final = 1.0
"""The pause after an interrupt, which denies the other questions within a second."""


class QuestionPresenter:
    def __init__(self, screen: Screen, emit: Callable[[str, dict[str, Any]], None]) -> None:
        self.answering = PendingQuestions(emit, self._ask, lambda: screen.width)
        self._screen = screen
        self._asked_at = 0
        self._calls: dict[str, str] = {}
        """The call that an open question is about, by the question."""
        self._ending = ""
        """The call of the question that ends right now."""
        self._command_open = False
        """One was sent from here and has neither answered nor begun to run."""
        self._typed_ahead = False
        """Nothing was asked since: what is in the input line was typed after the command."""
        self._next: asyncio.TimerHandle | None = None
        self._interrupted_at = float("-inf")
        screen.keyboard.start = lambda: self.answering.start
        screen.keyboard.draw_again = self._uncover

    def take(self, event: Event) -> None:
        kind, wire = event.type, event.wire
        if kind in ("approvalRequired", "formRequired"):
            self._opened(event)
        elif kind in ("approvalResolved", "formResolved"):
            self._closed(event)
        elif kind == "interrupt" or (kind == "approvalResponse" and wire.get("stop")):
            self._interrupted_at = time.monotonic()
        elif (kind == "status" and wire.get("code") == COMMAND) or wire.get("caller") == PERSON:
            self._command_open = False

    def stop(self) -> None:
        if self._next is not None:
            self._next.cancel()

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
        wanted = self._command_open and event.type == FORM_EVENT and event.wire.get("source") == _COMMAND_SOURCE
        self._calls[str(event.wire["requestId"])] = str(event.wire.get("toolCallId") or "")
        in_front = self.answering.opened(event.type, event.wire)
        keyboard = self._screen.keyboard
        if wanted and in_front:
            keyboard.question_wanted()
            if self._typed_ahead:
                keyboard.take_what_was_typed()
        elif in_front:
            keyboard.question_changed()
        self._typed_ahead = False

    def _closed(self, event: Event) -> None:
        """The next question waits a moment: what ended this one may end it as well, and then nobody sees it."""
        if event.wire.get("by") == INTERRUPT:
            self._interrupted_at = time.monotonic()
        request_id = str(event.wire["requestId"])
        self._ending = self._calls.pop(request_id, "")
        closed = self.answering.closed(request_id, lambda question: _ending_line(event, question))
        self._ending = ""
        if not closed:
            return
        self._screen.keyboard.question_changed()
        self.stop()
        wait = max(self._interrupted_at + _ENDING_S - time.monotonic(), _NEXT_S)
        self._next = asyncio.get_running_loop().call_later(wait, self._bring_next)

    def _bring_next(self) -> None:
        if self.answering.bring_next():
            self._screen.keyboard.question_changed()

    def _ask(self, lines: Iterable[StyledLine]) -> None:
        """Draws the front question as the last thing on the screen."""
        front = self.answering.front
        self._screen.say(lines, self._ending or (self._calls.get(front.id, "") if front is not None else ""))
        self._asked_at = self._screen.printed

    def _uncover(self) -> bool:
        """Draws the front question again if other output may have pushed it out of sight."""
        if self._screen.printed == self._asked_at:
            return False
        self.answering.show_front()
        return True


def _ending_line(event: Event, question: PendingQuestion) -> StyledLine:
    """Returns the line for an answered question; empty for one that was never drawn and ended by an interrupt. Others
    that were not drawn name their subject.
    """
    if event.type == "formResolved":
        line: StyledLine = [("dim", form_ending(question.wire, event.wire))]
    else:
        line = [*answer_line(question.wire, event.wire, here=UI_NAME)]
    if question.drawn:
        return line
    subject = one_line(question.wire.get("tool") or question.wire.get("title") or "")
    return [] if event.wire.get("by") == INTERRUPT else [("dim", f"{subject} · "), *line]


_WITHIN_S: Final = 2.0


class ExitConfirmation:
    """Whether Ctrl+C was pressed twice in a row: within two seconds, and no other key between."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._running_at = self._prompt_at = float("-inf")
        self._keys = self._pressed = 0

    def key_came(self) -> None:
        """Called for every key, Ctrl+C too, before it does anything."""
        self._keys += 1

    def again_while_running(self) -> bool:
        before, self._running_at = self._running_at, self._clock()
        return self._in_a_row() and self._running_at - before <= _WITHIN_S

    def again_at_prompt(self) -> bool:
        before, self._prompt_at = self._prompt_at, self._clock()
        return self._in_a_row() and self._prompt_at - before <= _WITHIN_S

    def _in_a_row(self) -> bool:
        since, self._pressed = self._keys - self._pressed, self._keys
        return since <= 1

    def turn_began(self) -> None:
        """Resets the confirmation: an interrupt of an earlier turn is no request to leave."""
        self._running_at = float("-inf")

    @property
    def hint(self) -> str:
        recent = max(self._running_at, self._prompt_at)
        armed = self._keys == self._pressed and self._clock() - recent <= _WITHIN_S
        return "Ctrl+C again exits" if armed else ""
