"""Which part of the screen has the keyboard: the input line, a reply, or a question that one key answers.

Threat: a key pressed before a card was drawn, a paste, a burst of keys (a paste from a terminal that does not mark
them) or a typed word ("why") must not answer it. So a question gets the keyboard only once it is on the screen, the
input line (the draft) is empty and nobody has typed for half a second: `_arm_when_quiet` decides that, and nothing else
does. Any text in the draft, however it came there and however long ago, disarms the question. Keys that come together
do not count. After any key that is no answer, also one that changes nothing, the silence begins anew; what is typed
meanwhile goes to the draft. Only the line of a form that the person asked for has the keyboard at once.
"""

from __future__ import annotations

import asyncio
import select
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from prompt_toolkit.document import Document
from prompt_toolkit.search import stop_search

from golem_forge.ui.terminal.questions import AnswerStage, KeyMeaning

if TYPE_CHECKING:
    from prompt_toolkit.application import Application
    from prompt_toolkit.buffer import Buffer

SILENCE_S: Final = 0.5
"""Seconds without a key before a single key may answer: a person who is typing has not seen the card yet."""
_BURST_S: Final = 0.01


class KeyTiming:
    """Measures the time since the last key, and whether a key came alone."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._typed_at = self._key_at = float("-inf")

    @property
    def seconds_left(self) -> float:
        """Returns the seconds until a single key may answer."""
        return max(self._typed_at + SILENCE_S - self._clock(), 0.0)

    def key_pressed(self) -> None:
        self._typed_at = self._clock()

    def came_alone(self, *, more: bool) -> bool:
        """Whether the key at hand came alone; `more`: others lie behind it."""
        now = self._clock()
        together = more or now - self._key_at < _BURST_S
        self._key_at = now
        return not together


class Keyboard:
    def __init__(
        self,
        *,
        draft: Buffer,
        reply: Buffer,
        stage: Callable[[], AnswerStage],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.app: Application[None]
        self.keys: Any
        """The window that takes single keys. Both are set when the layout is made."""
        self.start: Callable[[], str] = lambda: ""
        """What stands in the line of the question in front."""
        self.draw_again: Callable[[], bool] = lambda: False
        """Draws the question anew if something was printed below it; True: it did."""
        self.fresh = False
        """The reply is still what stood there to begin with: typing replaces it, moving in it keeps it."""
        self._draft = draft
        self.whole_draft: Callable[[], str] = lambda: draft.text
        self._reply = reply
        self._stage = stage
        self._silence = KeyTiming(clock)
        self._armed = False
        self._taken = AnswerStage.NOTHING
        """What the question was last given the keyboard for."""
        self._commands = ""
        """Keys that acted since the last silence. If more follows, they began a word and belong to the draft."""
        self.came_alone = self._quiet = True
        """Of the key at hand: whether it came alone, and after a silence."""
        self.held = False
        """A question had the keyboard and waits for silence; the draft has it meanwhile."""
        self.writing = False
        """The person moved to the input line: the question waits until they sent a line or came back."""
        self._due: asyncio.TimerHandle | None = None
        self._drawn_again = False
        draft.on_text_changed += lambda _: self._draft_changed()
        reply.on_text_changed += lambda _: setattr(self, "fresh", False)
        reply.on_cursor_position_changed += lambda _: setattr(self, "fresh", False)

    @property
    def asking(self) -> bool:
        """Whether a question has the keyboard, or had it and gets it back."""
        return self._armed or self.held

    @property
    def listening(self) -> bool:
        """Whether the question's keys count."""
        return self._armed and not self._commands

    @property
    def text_waits(self) -> bool:
        """Whether a question waits until the draft is empty. A blank is text too: nobody sees how much of it stands."""
        return bool(self._draft.text) and not self._armed and self._stage() is not AnswerStage.NOTHING

    @property
    def deliberate(self) -> bool:
        """Whether the key at hand came alone and after a silence."""
        return self.came_alone and self._quiet

    # ---- questions come and go

    def question_changed(self) -> None:
        """Another question is in front, or none: the keyboard is the draft's until the new one is on the screen."""
        self.stop()
        self._drawn_again = self.held = False
        self._commands = ""
        if self._stage() is AnswerStage.NOTHING:
            self.writing = False
        self._reply.reset()  # what was typed for the last question, maybe a secret, is not to be seen at the next
        if self._armed:
            self._armed = False
            self.app.layout.focus(self._draft)
        self.app.invalidate()

    def question_wanted(self) -> None:
        """The person asked for the form in front. A single key that sends it still waits as every other does."""
        self.question_changed()
        if self._stage() is AnswerStage.LINE:
            self._leave_search()
            self._armed = True
            self._take(self.start())

    def take_what_was_typed(self) -> None:
        """The draft was meant for the line of the question in front."""
        ahead = self.whole_draft()
        if ahead and self._armed:
            self._draft.reset()
            self._reply.text = ahead
            self._reply.cursor_position = len(ahead)

    def stage_changed(self) -> None:
        """Continues the same question with another key or line. After a line, the single key waits for silence."""
        if self._armed and self._stage() is AnswerStage.KEY and self._taken is AnswerStage.LINE:
            self._hold()
        elif self._armed:
            self._take(self.start())
        self.app.invalidate()

    def was_drawn(self) -> None:
        """Called when the screen shows everything there is to show."""
        if self._due is None and not self._armed and self._stage() is not AnswerStage.NOTHING:
            self._arm_when_quiet()

    def stop(self) -> None:
        if self._due is not None:
            self._due.cancel()
            self._due = None

    def _arm_when_quiet(self) -> None:
        self._due = None
        if wait := self._silence.seconds_left:
            self._due = asyncio.get_running_loop().call_later(wait, self._arm_when_quiet)
            return
        if self._stage() is AnswerStage.NOTHING:
            return
        if self._drain():
            self._arm_when_quiet()
            return
        if not self._draft.text:
            self._leave_search()
        if self._draft.text or self.writing:
            return  # every key draws anew, and so asks again
        if not self._drawn_again and self.draw_again():
            self._drawn_again = True  # once: a flood of output must not keep the question from being asked
            return
        self._armed = True
        self.held = False
        self._take(self.start())
        self.app.invalidate()

    def _hold(self) -> None:
        """The draft has the keyboard until nobody types."""
        self._armed, self.held = False, True
        self._commands = ""
        self.app.layout.focus(self._draft)
        self.stop()
        self._arm_when_quiet()
        self.app.invalidate()

    def _count_again_when_quiet(self) -> None:
        self.stop()
        if wait := self._silence.seconds_left:
            self._due = asyncio.get_running_loop().call_later(wait, self._count_again_when_quiet)
            return
        self._commands = ""
        self.app.invalidate()

    def _take(self, start: str) -> None:
        self._taken = self._stage()
        if self._stage() is AnswerStage.LINE:
            self._commands = ""
            self._reply.reset(Document(start, len(start)))
            self.fresh = bool(start)
            self.app.layout.focus(self._reply)
        elif self._stage() is AnswerStage.KEY:
            self._reply.reset()
            self.app.layout.focus(self.keys)

    def _drain(self) -> bool:
        """Moves earlier input from the terminal's buffer to the draft. Returns True if there was any."""
        app = self.app
        if not app.is_running or app.context is None or not self._more_to_read():
            return False

        def feed() -> None:
            app.key_processor.feed_multiple(app.input.read_keys())
            app.key_processor.process_keys()

        app.context.copy().run(feed)
        self._silence.key_pressed()
        return True

    def _more_to_read(self) -> bool:
        return bool(select.select([self.app.input.fileno()], [], [], 0)[0])

    def _leave_search(self) -> None:
        """Threat: who searches is typing. What they typed goes to the draft, where what follows goes as well."""
        app = self.app
        if not app.layout.is_searching or app.context is None:
            return
        typed = app.layout.current_buffer.text if app.layout.current_buffer is not None else ""
        app.context.copy().run(stop_search)
        self._draft.insert_text(typed)

    # ---- the person moves

    def to_the_line(self) -> None:
        """Switches from a question that one key answers to the input line, until `line_left`."""
        self.writing = True
        self._hold()
        self.held = False  # Enter sends what is typed there at once

    def line_left(self) -> bool:
        """The person sent a line, or comes back to the question. True: they had moved to the line."""
        was, self.writing = self.writing, False
        self.app.invalidate()
        return was

    # ---- keys

    def key_came(self) -> None:
        """Called for every key before it does anything, whoever has the keyboard and whatever the key means."""
        self._quiet = not self._silence.seconds_left
        more = bool(self.app.key_processor.input_queue) or self._more_to_read()
        self.came_alone = self._silence.came_alone(more=more)
        self._silence.key_pressed()

    def pressed(self, meaning: KeyMeaning, text: str) -> bool:
        """A key at a question that single keys answer. True: it may act; else it, `text`, went to the draft."""
        if self.came_alone and meaning is KeyMeaning.COMMAND:
            self._commands += text or " "
            self._count_again_when_quiet()
            return True
        if meaning is KeyMeaning.ANSWER and self.deliberate:
            return True
        self._spill(text)
        return False

    def pasted(self, text: str) -> None:
        """At a question. Threat: pasted text can hold the mark that ends a paste, and a `y` behind it."""
        self.key_came()  # the terminal's own words are not counted as keys
        self._spill(text)

    def _spill(self, text: str) -> None:
        began = self._commands.strip() if text.strip() else ""
        self._hold()
        self._draft.insert_text(began + text)

    def _draft_changed(self) -> None:
        """Text can come without a key, e.g. a prompt of a server: it disarms the question all the same."""
        if self._draft.text and self._armed and self._stage() is AnswerStage.KEY:
            self._hold()
